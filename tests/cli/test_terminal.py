"""Commands on a real terminal, a pseudo-terminal: bars, Ctrl-C typed on the keyboard, terminals that cannot draw."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kgem.cli.console import table
from kgem.runs.run import read_log
from obvious import random_graph

PATIENCE = 60.0  # seconds before a test gives up
ESCAPE = "\x1b["
LONG = {"model.dim": 3, "pretrain.epochs": 4, "pretrain.candidates": [1.0], "em.epochs": 100000, "em.settled": 0.0}
LONG |= {
    "em.patience": 100000,
    "retrain.epochs": 1,
    "retrain.candidates": [[1.0, 0.0]],
    "companions.epochs": 1,
    "distil.epochs": 1,
}
LONG |= {"run.threads": 1}
SETTINGS = [word for name, value in LONG.items() for word in ("--set", f"{name}={value}")]


class Terminal:
    """A command on a pseudo-terminal of some width."""

    def __init__(self, words: list[str], folder: Path, columns: int = 80, **environment: str) -> None:
        self.mine, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kgem", *words],
            cwd=folder,
            env={**kept, "TERM": "xterm-256color", **environment},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            preexec_fn=lambda: (os.setsid(), fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)),
        )
        os.close(theirs)
        self.text = ""

    def until(self, enough: Callable[[str], bool]) -> None:
        """Read until there is enough, or the command ends."""
        end = time.monotonic() + PATIENCE
        while not enough(self.text):
            assert time.monotonic() < end, self.text
            if select.select([self.mine], [], [], 0.1)[0]:
                try:
                    read = os.read(self.mine, 65536)
                except OSError:  # Linux' way to say that the other end is closed
                    return
                self.text += read.decode()

    def finish(self) -> int:
        self.until(lambda _: False)
        os.close(self.mine)
        return self.process.wait(PATIENCE)

    def type(self, keys: bytes) -> None:
        os.write(self.mine, keys)


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    random_graph().frame("train").write_csv(tmp_path / "graph.tsv", separator="\t", include_header=False)
    return tmp_path


def test_bars_and_ctrl_c_which_saves(graph: Path) -> None:
    terminal = Terminal(["fit", "graph.tsv", "--out", "run", *SETTINGS], graph, NO_COLOR="1")
    terminal.until(lambda text: "/100000 · " in text)
    terminal.type(b"\x03")
    assert terminal.finish() == 130
    text = terminal.text
    assert "Traceback" not in text
    assert "pre-training" in text and "━" in text and "best MRR" in text and "left" in text
    assert f"{ESCAPE}3" not in text  # NO_COLOR
    after = read_log(graph / "run")
    assert f"stopped and saved after {len(after)} epochs" in text and "\ngo on: kgem resume run\r\n" in text
    assert after[-1]["phase"] == "em" and list((graph / "run" / "checkpoints").iterdir())

    again = Terminal(["resume", "run"], graph, columns=40)
    again.until(lambda text: "/100000 · " in text)
    again.type(b"\x03")
    assert again.finish() == 130 and len(read_log(graph / "run")) > len(after)
    drawn = again.text[again.text.index("variational EM") :]
    assert "━" not in drawn and "4 epochs" in drawn  # no room for bars; what was done before


def test_a_terminal_that_cannot_draw_gets_lines(graph: Path) -> None:
    words = ["fit", "graph.tsv", "--out", "run", *SETTINGS, "--set", "em.epochs=2"]
    terminal = Terminal(words, graph, TERM="dumb")
    assert terminal.finish() == 0
    assert ESCAPE not in terminal.text and "━" not in terminal.text
    assert "pre-training: epoch 1 of at most 4" in terminal.text and "variational EM: 2 epochs" in terminal.text


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_numbers_are_whole_on_narrow_terminals(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    from kgem.cli.console import emit

    monkeypatch.setenv("COLUMNS", str(columns))
    emit(table(["a name", "MRR", "range"], [("some label of several words", "0.123456", "0.1% to 25.5%")]))
    out = capsys.readouterr().out
    assert "0.123456" in out and "0.1% to 25.5%" in out and "…" not in out and "several" in out


def test_long_addresses_make_no_table_wider_than_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from kgem.cli.console import emit

    address = "https://data.example.org/" + "0123456789" * 20
    rows = [("Entity 1", address, 1234, "0.1% to 25.5%")]
    monkeypatch.delenv("COLUMNS", raising=False)
    emit(table(["name", "address", "n", "range"], rows, left=2))
    assert address in capsys.readouterr().out, "whole for other programs"
    monkeypatch.setenv("COLUMNS", "80")
    emit(table(["name", "address", "n", "range"], rows, left=2))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 and any("1,234" in line and "0.1% to 25.5%" in line for line in lines)
    assert "0123456789" * 20 in "".join(line[11:].split("  ")[0].strip() for line in lines)
