"""One estimate of how long a fit takes: what it counts, that it leaves the fit alone, and how it is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from driving import stop_after
from kgem.cli.progress import duration, pace
from kgem.cli.tables import describe_time
from kgem.runs import estimate as estimating
from kgem.runs.configure import configure
from kgem.runs.estimate import Estimate, estimate_fit
from kgem.runs.fitting import Prepared, start_fit
from kgem.runs.run import Run
from kgem.train.budget import longest
from kgem.train.phases import PHASES
from obvious import random_graph

GRAPH = random_graph()
pytestmark = pytest.mark.usefixtures("one_thread")
CONFIG = configure(None, {"model.dim": 3, "run.threads": 1, "run.products": "exact"})


def test_every_phase_counts_with_what_its_steps_and_validations_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """A point step takes 1 s, one of EM 2 s, a validation 10 s."""
    monkeypatch.setattr(estimating, "_measure", lambda step: 2.0 if "_em_steps" in step.__qualname__ else 1.0)
    monkeypatch.setattr(estimating, "_measure_validation", lambda *_: 10.0)
    config = configure(CONFIG, {f"{phase}.batch_size": 40 for phase in PHASES})
    fit = start_fit(Prepared(GRAPH, None), config)
    steps = -(-fit.phases.objective.n_items // 40)
    found = estimate_fit(fit, Prepared(GRAPH, None))
    assert found.epochs["pretrain"] == steps + 10 and found.epochs["em"] == 2 * steps + 10
    assert found.epochs["retrain"] == steps + 10 * estimating.BLEND  # two models answer together
    assert found.epochs["distil"] == pytest.approx(estimating.TAUGHT * steps + 10)
    assert found.usual == estimating.USUAL
    assert found.most == {phase: longest(config, phase) for phase in PHASES}
    whole = sum(found.epochs[phase] * n for phase, n in found.usual.items())
    assert found.seconds == pytest.approx(estimating.LAST * (whole + found.targets) + estimating.AT_LEAST)
    assert found.seconds < found.most_seconds


def test_races_that_are_sampled_make_their_phases_cheaper(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exact step takes 1 s, a sampled one a tenth; a fit whose pre-training is decided has only exact ones."""
    seconds = {"_em_steps": 2.0, "_point_steps": 1.0, "_measure_steps": 0.1}
    monkeypatch.setattr(estimating, "_measure", lambda step: seconds[step.__qualname__.split(".")[0]])
    monkeypatch.setattr(estimating, "_measure_validation", lambda *_: 0.0)
    sampled = configure(CONFIG, {"train.races": "sampled", "train.candidates": 8})
    fit = start_fit(Prepared(GRAPH, None), sampled)
    found = estimate_fit(fit, Prepared(GRAPH, None))
    usual = estimate_fit(start_fit(Prepared(GRAPH, None), CONFIG), Prepared(GRAPH, None))
    for phase, share in estimating.RACED.items():
        assert found.epochs[phase] == pytest.approx(
            usual.epochs[phase] * (0.1 * estimating.UPDATED * share + 1 - share)
        )
    assert found.seconds < usual.seconds and found.most_seconds == pytest.approx(usual.most_seconds)
    fit.phases.pretraining_race.end_here()
    decided = estimate_fit(fit, Prepared(GRAPH, None))
    assert (
        decided.epochs["pretrain"] == usual.epochs["pretrain"] and decided.epochs["retrain"] < usual.epochs["retrain"]
    )


def test_what_is_done_does_not_count_and_the_fit_stays_as_it_was(tmp_path: Path) -> None:
    short = {f"{phase}.epochs": 3 for phase in PHASES}
    config = configure(CONFIG, short | {"pretrain.candidates": (1.0,), "retrain.candidates": ((1.0, 0.0),)})
    config = configure(config, {"distil.candidates": ((1.0, 0.0),)})
    with Run.create(tmp_path / "run", Prepared(GRAPH, None), config) as run:
        stop_after(run, 4)
        before = run.fit.phases.tensors()
        found = estimate_fit(run.fit, run.prepared)
        after = run.fit.phases.tensors()
    assert found.most == {"em": 2, "retrain": 3, "companions": 2 * 3, "distil": 3} and found.seconds > 0
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


def test_times_in_words() -> None:
    assert [pace(s) for s in (0.0042, 0.03, 0.25, 2.5, 210.0)] == ["4.2 ms", "30 ms", "0.2 s", "2.5 s", "3 min 30 s"]
    told = describe_time(Estimate({"pretrain": 200.0}, {"pretrain": 20}, {"pretrain": 100}, 0.0))
    assert told.startswith("about 3 min 20 s an epoch, about 1 h 13 min in all") and "at most 100: 6 h" in told
    assert duration(4210) == "1 h 10 min"


def test_statistics_tell_the_same_time_as_a_fit(kgem: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    GRAPH.frame("train").write_csv("graph.tsv", separator="\t", include_header=False)
    fixed = Estimate({"pretrain": 200.0}, {"pretrain": 20}, {"pretrain": 100}, 0.0)
    monkeypatch.setattr(estimating, "estimate_fit", lambda *_: fixed)
    code, out, _ = kgem("data", "stats", "graph.tsv", "--dim", 4)  # type: ignore[operator]
    assert code == 0 and describe_time(fixed) in " ".join(out.split())
    code, out, _ = kgem("data", "stats", "graph.tsv", "--dim", 4, "--json")  # type: ignore[operator]
    assert json.loads(out)["time"]["seconds"] == fixed.seconds
