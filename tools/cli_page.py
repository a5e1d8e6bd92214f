"""The page of all commands, from the command line itself: what each does, its options, an example."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from kgem.cli import app

_INTRODUCTION = """# Commands

Results go to standard output, as JSON with `--json`; everything else goes to standard error. Exit codes: 0 done, 1 the
run failed, 2 wrong usage or input. This page is made from the code; `kgem COMMAND --help` says the same.
"""
_HELP = "--help"  # every command has it


def cli_page() -> str:
    """Every command of kgem as Markdown: usage, what it does, arguments and options, an example."""
    group: Any = typer.main.get_command(app)
    parts = [_INTRODUCTION, _options(group, typer.Context(group, info_name="kgem"))]
    for name, command in _commands(group, "kgem"):
        context = typer.Context(command, info_name=name)
        parts += [f"## {name}", _escape(command.help or ""), _options(command, context)]
        if command.epilog:
            _, *lines = command.epilog.split("\n\n")  # below a heading
            parts.append("```text\n" + "\n".join(lines) + "\n```")
    return "\n\n".join(part for part in parts if part) + "\n"


def _commands(group: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The commands in the order of `kgem --help`; those of a group instead of the group."""
    for word, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{name} {word}")
        else:
            yield f"{name} {word}", command


def _options(command: Any, context: typer.Context) -> str:
    records = [parameter.get_help_record(context) for parameter in command.get_params(context)]
    rows = [
        f"| `{record[0].strip()}` | {_escape(record[1])} |" for record in records if record and _HELP not in record[0]
    ]
    return "\n".join(["| argument or option | meaning |", "|---|---|", *rows]) if rows else ""


def _escape(text: str) -> str:
    """Plain text as Markdown that shows it."""
    return text.replace("|", "\\|").replace("[", "\\[").replace("<", "&lt;")
