"""How a fit shows itself: one bar per phase that is updated in a notebook, text if asked for, silence otherwise."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kgem
from kgem.config import Config
from kgem.runs import watching
from kgem.runs.watching import Bars, in_notebook, watch_epochs
from kgem.train.budget import longest
from kgem.train.phases import PHASES
from kgem.train.point_estimate import EpochRecord
from obvious import random_graph

QUICK: dict[str, Any] = {
    "pretrain": {"epochs": 2, "candidates": (1.0,)},
    "em": {"epochs": 2},
    "retrain": {"epochs": 1, "candidates": ((1.0, 0.0),)},
    "companions": {"epochs": 1, "mixes": ((1.0, 0.3),)},
    "distil": {"epochs": 1, "candidates": ((1.0, 0.0),)},
}


class Notebook:
    """Stands for IPython in a kernel, and keeps what is displayed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kernel: object = "one") -> None:
        self.pictures: list[list[str]] = []  # by the output that they were shown in
        shell = SimpleNamespace(kernel=kernel) if kernel else SimpleNamespace()
        display = SimpleNamespace(HTML=str, display=self.display)
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell, display=display))
        monkeypatch.setitem(sys.modules, "IPython.display", display)

    def display(self, picture: str, display_id: bool) -> Any:
        assert display_id
        self.pictures.append([picture])
        return SimpleNamespace(update=self.pictures[-1].append)


def record(epoch: int, mrr: float | None = None) -> EpochRecord:
    return EpochRecord(epoch, loss=1.0, rate=0.1, seconds=0.1, mrr=mrr)


def test_a_notebook_has_one_output_that_is_updated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = Notebook(monkeypatch)
    monkeypatch.setattr(watching, "BETWEEN", 0.0)
    kgem.fit(random_graph(), dim=2, **QUICK)
    (pictures,) = notebook.pictures
    assert len(pictures) == 2 + 2 + 1 + 1 + 1 + 1, "one an epoch, and the last"
    assert ": fitting, " in pictures[0] and ": done, " in pictures[-1]
    assert re.findall(r"left:0px;width:(\d+)px", pictures[0]) == ["60", "0", "0", "0", "0"]
    assert re.findall(r"left:0px;width:(\d+)px", pictures[-1]) == ["120"] * 5
    assert capsys.readouterr() == ("", "")


def test_elsewhere_nothing_is_printed_unless_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = Notebook(monkeypatch, kernel=None)  # IPython in a terminal
    assert not in_notebook()
    model = kgem.fit(random_graph(), dim=2, **QUICK)
    assert capsys.readouterr() == ("", "")
    kgem.update(model, [("e1", "r1", "new")], progress=True, **{**QUICK, "pretrain": {}})
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.endswith("done\n") and not notebook.pictures
    assert re.search(r"\rvariational EM +\[#{10}\.{10}\] 1 of at most 2", err)


def test_a_notebook_can_be_told_to_be_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = Notebook(monkeypatch)
    heard: list[str] = []
    kgem.fit(random_graph(), dim=2, progress=False, **QUICK)
    kgem.fit(random_graph(), dim=2, progress=lambda phase, _: heard.append(phase), **QUICK)
    assert not notebook.pictures and set(heard) == set(PHASES)


def test_a_fit_that_fails_leaves_a_bar_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = Notebook(monkeypatch)
    with pytest.raises(KeyboardInterrupt), watch_epochs(None, Config()) as heard:
        assert heard is not None
        heard("pretrain", record(1, 0.25))
        raise KeyboardInterrupt
    (pictures,) = notebook.pictures
    assert ": stopped, " in pictures[-1] and "best MRR 0.250" in pictures[-1]


def test_bars_are_drawn_at_most_so_often_and_a_phase_that_ended_early_is_full() -> None:
    now, shown = [0.0], []

    class Screen:
        def show(self, bars: Bars, last: bool) -> None:
            shown.append({phase: bars.share(phase) for phase in bars.phases})

    config = Config()
    bars = Bars(config, Screen(), clock=lambda: now[0])
    for epoch in range(1, 11):
        bars("pretrain", record(epoch))
        now[0] += 0.05
    assert len(shown) == 3
    assert shown[-1]["pretrain"] == pytest.approx(9 / longest(config, "pretrain"), abs=0.01)
    bars("em", record(1))
    assert shown[-1]["pretrain"] == 1.0 and 0 < shown[-1]["em"] < 1
    assert bars.describe("pretrain") == "10" and bars.describe("em").startswith("1 of at most ")


def test_a_real_kernel_shows_it(tmp_path: Path) -> None:
    """Against the real IPython, in a kernel's shell but without a browser."""
    pytest.importorskip("IPython")
    from IPython.core.displaypub import CapturingDisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    try:
        publisher = shell.display_pub = CapturingDisplayPublisher()
        shell.kernel = object()  # type: ignore[attr-defined]
        assert in_notebook()
        with watch_epochs(None, Config()) as heard:
            assert heard is not None
            heard("pretrain", record(1))
        first, last = publisher.outputs
        assert "pre-training" in first["data"]["text/html"] and last["update"]
        assert first["transient"] == last["transient"]
    finally:
        InteractiveShell.clear_instance()
