"""Help: as wide as an old terminal, with examples that can be pasted as they are."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator

import click
import pytest
import typer

from kgem.cli import app

Kgem = Callable[..., tuple[int, str, str]]
ROOT = typer.main.get_command(app)
WIDTH = 80


def commands(
    command: click.Command = ROOT, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


EVERY = dict(commands())


def examples(path: tuple[str, ...]) -> list[str]:
    title, *lines = str(EVERY[path].epilog).split("\n\n")
    assert title in ("Example:", "Examples:")
    return lines


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_help_fits_and_no_option_is_cut(path: tuple[str, ...], kgem: Kgem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    monkeypatch.setenv("TERMINAL_WIDTH", str(WIDTH))
    code, out, _ = kgem(*path, "--help")
    lines = out.splitlines()
    assert code == 0 and max(map(len, lines)) <= WIDTH and "…" not in out
    assert not re.findall(r"<(bool|str|int|float|path)|INTEGER|BOOLEAN", out), "types of Python, or of typer"
    for parameter in EVERY[path].params:
        names = [name for name in parameter.opts if name.startswith("--")]
        assert all(any(name in line.split() for line in lines) for name in names), names
    if path not in ((), ("data",)):
        shown = [line.strip() for line in lines]
        assert examples(path) and all(example in shown for example in examples(path))


@pytest.mark.parametrize("example", [e for path in EVERY if path not in ((), ("data",)) for e in examples(path)])
def test_examples_are_commands_that_are_understood(example: str) -> None:
    """All but the work itself: names of commands and options, numbers, choices."""
    words = shlex.split(example)
    assert words[0] == "kgem"
    path = ("data", words[2]) if words[1] == "data" else (words[1],)
    EVERY[path].make_context(words[1], words[1 + len(path) :])
