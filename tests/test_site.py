"""What the site is built of: the page of commands, notebooks without outputs, the check for requests to other hosts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from tools.cli_page import cli_page
from tools.outside_requests import outside_requests

from kgem.cli import app

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def commands(group: Any, name: str) -> Iterator[tuple[str, Any]]:
    for word, command in group.commands.items():
        yield from (
            commands(command, f"{name} {word}") if hasattr(command, "commands") else [(f"{name} {word}", command)]
        )


def test_the_page_of_commands_has_every_command_and_option() -> None:
    page, found = cli_page(), dict(commands(typer.main.get_command(app), "kgem"))
    assert {"kgem fit", "kgem data check"} <= set(found)
    for name, command in found.items():
        section = page.partition(f"## {name}\n")[2].partition("\n## ")[0]
        assert command.help.split("\n")[0][:40] in section
        options = [option for parameter in command.params for option in parameter.opts if option.startswith("--")]
        assert all(option in section for option in options if option != "--help"), name


def test_examples_of_commands_can_be_copied_whole() -> None:
    blocks = re.findall(r"```text\n(.*?)```", cli_page(), re.DOTALL)
    assert len(blocks) > 15
    assert all(line.startswith("kgem ") for block in blocks for line in block.splitlines())


def test_text_of_commands_is_shown_as_it_is() -> None:
    assert "<str>" not in cli_page() and "<bool>" not in cli_page()
    rows = [line for line in cli_page().splitlines() if line.startswith("| `")]
    assert rows and all(re.sub(r"`[^`]*`|\\\|", "", row).count("|") == 3 for row in rows)  # two columns each


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_outputs(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code and all(not cell["outputs"] and cell["execution_count"] is None for cell in code)


@pytest.mark.parametrize(
    ("name", "text", "requests"),
    [
        ("a.html", '<script src="https://cdn.example/x.js"></script>', 1),
        ("b.html", '<link rel="stylesheet" href="//fonts.example/css"><img src="HTTP://i.example/p.png">', 2),
        ("c.html", "<style>@import 'https://a.example/x.css'; b {background: url(//b.example/y)}</style>", 2),
        ("d.html", '<p style="background: url(https://a.example/p.png)">', 1),
        ("e.html", '<a href="https://example.org">x</a><img src="images/p.png"><script src="../x.js"></script>', 0),
        ("f.html", '<link rel="canonical" href="https://example.org/"><code>https://example.org</code>', 0),
        ("g.css", "@font-face {src: url('https://fonts.example/f.woff2')} a {src: url(f.woff2)}", 1),
        ("h.txt", '<script src="https://cdn.example/x.js">', 0),
    ],
)
def test_requests_to_other_hosts_are_found(tmp_path: Path, name: str, text: str, requests: int) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert len(outside_requests(tmp_path / name)) == requests
