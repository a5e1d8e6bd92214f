"""Parts of the benchmarks that can be wrong without anybody noticing; the benchmarks themselves run elsewhere."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.neighbours import compare
from bench.ours import Ours, TimedFit, export
from bench.process_steps import Run, hear
from bench.quality import plot, run_in_turns, seconds_until, summarise
from bench.report import table
from bench.workers import WorkerFailed
from kgem.data.dataset import Dataset
from kgem.model.processes import ALONE


class Fake:
    """Trains one epoch a turn, which takes a second of training; done after so many."""

    def __init__(self, mrrs: list[float]) -> None:
        self.mrrs, self.turns = mrrs, 0

    def train(self, seconds: float) -> Mapping[str, Any]:
        self.turns += 1
        return {"points": [(float(self.turns), self.mrrs[self.turns - 1])], "done": self.turns == len(self.mrrs)}


def test_turns_end_when_it_is_enough_or_done_or_the_minutes_are_over() -> None:
    quick, slow = Fake([0.1, 0.4, 0.5]), Fake([0.1, 0.2, 0.3, 0.2])
    curves = run_in_turns({"ours": quick.train, "pykeen": slow.train}, minutes=10, enough=0.35)
    assert curves["ours"] == [(1.0, 0.1), (2.0, 0.4)]
    assert [mrr for _, mrr in curves["pykeen"]] == slow.mrrs
    impatient = Fake([0.1] * 9)
    assert len(run_in_turns({"ours": impatient.train}, minutes=0)["ours"]) == 1


def test_an_interrupt_keeps_what_there_is() -> None:
    first = Fake([0.1, 0.2])

    def interrupted(seconds: float) -> Mapping[str, Any]:
        raise KeyboardInterrupt

    assert run_in_turns({"ours": first.train, "pykeen": interrupted}, minutes=1) == {"ours": [(1.0, 0.1)], "pykeen": []}


def test_seconds_until_a_target_are_those_of_the_first_point_that_has_it(tmp_path: Path) -> None:
    curve = [(10.0, 0.2), (20.0, 0.31), (30.0, 0.29)]
    assert seconds_until(curve, 0.3) == 20.0
    assert seconds_until(curve, 0.4) is None
    kept = summarise({"ours": curve, "pykeen": []}, (0.3, 0.4))
    assert kept["ours"]["best"] == 0.31
    assert kept["pykeen"] == {"points": [], "best": None, "until": {"0.3": None, "0.4": None}}
    plot({"ours": curve, "pykeen": []}, "nations", tmp_path)
    assert "seconds of training" in (tmp_path / "quality.svg").read_text() or (tmp_path / "quality.png").stat().st_size
    results = {
        "machine": {"processor": "some", "load_before": 0.0},
        "threads": 2,
        "versions": {"kgem": "0", "commit": "0"},
        "when": "now",
        "mode": "long",
        "claims": [],
        "skipped": {},
        "suites": {"quality": {"facts": 2000, "graph": {"name": "nations"}, **kept}},
    }
    assert "| kgem | 20 |  | 0.310 | 30 |" in table(results)


def test_a_timed_fit_goes_on_where_it_was_and_waits_for_free(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    facts = np.stack([rng.integers(n, size=300) for n in (20, 3, 20)], axis=1)
    data = Dataset.load([(f"e{h}", f"r{r}", f"e{t}") for h, r, t in np.unique(facts, axis=0)])
    fit = TimedFit(data, 4, data.train[:20].astype(np.int64))
    first = fit.go_on(0.0)
    assert not first["done"]
    assert len(first["points"]) == 1
    monkeypatch.setattr("bench.ours.time.perf_counter", shift_clock(1000.0))
    second = fit.go_on(0.0)
    assert 0 < first["points"][0][0] < second["points"][0][0] < 500


@pytest.mark.parametrize("turn", ["steps", "em_steps"])
def test_every_turn_of_an_epoch_makes_its_steps(tmp_path: Path, turn: str) -> None:
    export("world", str(tmp_path / "graph.npz"), 4)
    ours = Ours()
    ours.load(str(tmp_path / "graph.npz"), 100)
    losses = []
    for _ in range(3):
        done = getattr(ours, turn)(2)
        assert done["items"] == 200 and done["seconds"] > 0
        losses.append(done["loss"])
    assert ours.state.steps == (6 if turn == "steps" else 0) and len(set(losses)) == 3
    assert min(losses) > 0  # of an epoch without a step the loss is 0


def test_neighbours_are_compared_over_the_epochs_that_all_had() -> None:
    taken = {
        "before": {"alone": [[1.0, 1.0, 9.0]], "together": [[8.0, 12.0], [10.0, 10.0, 50.0], [10.0, 14.0]]},
        "after": {"alone": [[1.0, 1.2, 9.0]], "together": [[3.0, 3.0, 9.0], [3.0, 3.6], [3.0, 3.6]]},
    }
    result = compare(taken, {"before": {"alone": [2], "together": [2, 2]}, "after": {"alone": [2], "together": [1, 1]}})
    assert result["epochs"] == 2
    assert result["before"]["ratio"] == pytest.approx(10.0)
    assert result["after"]["ratio"] == pytest.approx(3.0)
    assert result["alone_ratio"] == pytest.approx(1.1)
    with pytest.raises(WorkerFailed, match="no epoch"):
        compare({"before": {"alone": [[]], "together": [[1.0]]}}, {})


def shift_clock(seconds: float) -> Any:
    import time

    now = time.perf_counter
    return lambda: now() + seconds


@pytest.mark.parametrize("softmax", ["exact", "sampled"])
def test_processes_that_wait_between_turns_go_on_with_the_same_fit(
    softmax: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("3\n2\n"))
    run = Run(ALONE, "made/300/700", 4, softmax, torch.get_num_threads())
    turns = [run.turn(steps) for steps in hear(ALONE)]  # more steps than an epoch has
    assert [turn["steps"] for turn in turns] == [3, 2]
    assert all(turn["seconds"] > 0 and turn["bytes"] == turn["collectives"] == 0 for turn in turns)
