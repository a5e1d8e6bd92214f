"""Tools: the graph of Debian's files, on a few lines of a list; Pythons to try the wheel with."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

LINES = """\
usr/bin/a                 utils/one
usr/share/doc/a file      utils/one,contrib/net/two
usr/share/doc/b/a file    net/two
"""


@pytest.fixture
def facts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str]]:
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[1] / "tools"), *sys.path])
    from build_files import facts_of_files, parse_contents

    return list(facts_of_files(parse_contents(LINES.splitlines()), least=2))


def test_packages_write_to_directories(facts: list[tuple[str, str, str]]) -> None:
    written = [(head, tail) for head, relation, tail in facts if relation == "writes to"]
    assert written == [
        ("one", "dir:usr/bin"),
        ("one", "dir:usr/share/doc"),
        ("two", "dir:usr/share/doc"),
        ("two", "dir:usr/share/doc/b"),
    ]


def test_names_that_occur_once_are_left_out(facts: list[tuple[str, str, str]]) -> None:
    shipped = [(head, tail) for head, relation, tail in facts if relation == "ships"]
    assert shipped == [("one", "file:a file"), ("two", "file:a file")]


def test_directories_are_inside_their_parents(facts: list[tuple[str, str, str]]) -> None:
    inside = {(head, tail) for head, relation, tail in facts if relation == "inside"}
    assert inside == {
        ("dir:usr/share/doc/b", "dir:usr/share/doc"),
        ("dir:usr/share/doc", "dir:usr/share"),
        ("dir:usr/share", "dir:usr"),
        ("dir:usr/bin", "dir:usr"),
        ("dir:usr", "dir:"),
    }


def test_all_pythons_of_pyenv_can_be_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[1] / "tools"), *sys.path])
    import try_wheel

    (tmp_path / "pyenv").write_text("#!/bin/sh\nprintf '3.11.7\\n3.12.1\\n'\n")
    (tmp_path / "pyenv").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("PYENV_VERSION", raising=False)
    try_wheel.pyenv_versions.cache_clear()
    assert try_wheel._environment()["PYENV_VERSION"] == "3.11.7:3.12.1"
    monkeypatch.setenv("PYENV_VERSION", "3.13.0")  # said by who calls
    assert try_wheel._environment()["PYENV_VERSION"] == "3.13.0"
    try_wheel.pyenv_versions.cache_clear()
