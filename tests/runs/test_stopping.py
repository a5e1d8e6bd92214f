"""A fit that is stopped in the middle of an epoch: it goes on to the same bits, or is made a model of as it stands."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from driving import complete, exhaust, stop_after
from kgem.answer.model import load
from kgem.answer.unfinished import describe_missing
from kgem.errors import ArtifactError, InputError
from kgem.evaluate import validation
from kgem.model.objective import SoftmaxObjective
from kgem.model.teacher import Teacher
from kgem.report.report import render_report
from kgem.runs.configure import configure
from kgem.runs.fitting import Prepared
from kgem.runs.hugging_face import write_card
from kgem.runs.listing import list_runs
from kgem.runs.run import Run, read_log
from killing import same
from obvious import random_graph

Kgem = Callable[..., tuple[int, str, str]]
PHASES = {"epochs": 2, "patience": 50, "batch_size": 40}
SMALL: dict[str, Any] = {
    "model": {"dim": 3},
    "pretrain": {**PHASES, "candidates": (1.0, 3.0), "extensions": 0, "trial_epochs": 1, "final_epochs": 2},
    "em": {**PHASES, "settled": 0.0},
    "retrain": {**PHASES, "candidates": ((1.0, 0.0), (1.0, 2.0)), "trial_epochs": 1, "final_epochs": 2},
    "companions": {"mixes": ()},
    "distil": {**PHASES, "candidates": ((1.0, 0.0),)},
    "run": {"checkpoint_seconds": 1e9, "threads": 1, "products": "exact"},
}
GRAPH = random_graph()
pytestmark = pytest.mark.usefixtures("one_thread")


def begin(folder: Path, **more: Any) -> Run:
    return Run.create(folder, Prepared(GRAPH, None), configure(configure(None, SMALL), more))


class Asks:
    """Asks for a stop when it has been looked at so often, and ever after."""

    def __init__(self, looks: float = float("inf")) -> None:
        self.left, self.looked = looks, 0

    def __call__(self) -> bool:
        self.looked += 1
        return self.looked > self.left


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A run that nothing disturbed, and how often it looked whether it was to stop."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    folder, asks = tmp_path_factory.mktemp("whole") / "run", Asks()
    with begin(folder) as run:
        run.stop = asks
        complete(run)
    torch.set_num_threads(threads)
    return folder, asks.looked


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {f"{phase}.averaging": 0.0 for phase in ("pretrain", "em", "retrain")},
        {"train.softmax": "sampled", "train.candidates": 8},
    ],
    ids=["exact", "no averages", "sampled"],
)
def test_stopped_anywhere_and_resumed_it_ends_the_same(
    settings: dict[str, Any], whole: tuple[Path, int], tmp_path: Path
) -> None:
    """Between steps, inside validation, at the border of phases and of candidates: wherever it looks."""
    reference, looks = whole
    if settings:
        asks, reference = Asks(), tmp_path / "whole"
        with begin(reference, **settings) as run:
            run.stop = asks
            complete(run)
        looks = asks.looked
    rng, middles = random.Random(0), 0
    for part in range(6):
        folder = tmp_path / str(part)
        begin(folder, **settings).close()
        for _ in range(4):  # some of these stops are a few steps apart
            with Run.open(folder) as run:
                run.stop = Asks(rng.randrange(looks // 4) if part else rng.randrange(12))
                exhaust(run.epochs())
                run.save_at_stop()
                middles += run.steps_of_next_epoch > 0
        with Run.open(folder) as run:
            complete(run)
        assert same(folder, reference)
    assert middles > 6


def test_a_rollback_after_a_stop_inside_its_epoch_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss is not a number in the last step of an epoch; the tables to fall back on come with the checkpoint."""
    real, calls = SoftmaxObjective.__call__, 0
    per_epoch = 0

    def fails_once(self: SoftmaxObjective, *words: Any) -> Any:
        nonlocal calls
        calls += 1
        loss, gradients = real(self, *words)
        return (float("nan") if calls == 2 * per_epoch else loss), gradients

    def reached() -> bool:
        return calls == 2 * per_epoch - 2

    with begin(tmp_path / "count", **{"pretrain.candidates": (1.0,)}) as run:
        objective = run.fit.phases.objective
        per_epoch = len(objective.batches(40, torch.Generator().manual_seed(0)))
    monkeypatch.setattr(SoftmaxObjective, "__call__", fails_once)
    for name in ("a", "b"):
        calls = 0
        with begin(tmp_path / name, **{"pretrain.candidates": (1.0,)}) as run:
            if name == "a":
                run.stop = reached
                exhaust(run.epochs())
                run.save()
                assert run.steps_of_next_epoch == per_epoch - 2
        with Run.open(tmp_path / name) as run:
            complete(run)
            assert len(run.records) == 10
    assert same(tmp_path / "a", tmp_path / "b")


# by signals, as a person and a system do


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    GRAPH.frame("train").write_csv("graph.tsv", separator="\t", include_header=False)
    return tmp_path


SETTINGS = [
    word
    for phase in ("pretrain", "em", "retrain", "distil")
    for name, value in {**PHASES, "batch_size": 10}.items()
    for word in ("--set", f"{phase}.{name}={value}")
] + ["--dim", 3, "--threads", 1, "--set", "pretrain.candidates=[1.0]", "--set", "retrain.candidates=[[1.0, 0.0]]"]
SETTINGS += ["--set", "run.products=exact"]


@pytest.mark.parametrize(
    ("owner", "name", "call"),
    [
        (SoftmaxObjective, "__call__", 5),
        (SoftmaxObjective, "__call__", 60),
        (validation, "summarise", 2),
        (Teacher, "probabilities", 1),
    ],
)
def test_a_signal_ends_a_fit_in_the_middle_of_an_epoch(
    owner: Any, name: str, call: int, kgem: Kgem, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a step, in validation, while the teacher's targets are made."""
    assert kgem("fit", "graph.tsv", "--out", "whole", "-q", *SETTINGS)[0] == 0
    real, calls = getattr(owner, name), 0

    def signalled(*words: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            signal.raise_signal(signal.SIGTERM)
        return real(*words, **more)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, signalled)
        code, out, err = kgem("fit", "graph.tsv", "--out", "run", "-q", *SETTINGS)
    assert code == 130 and out == "" and "stopped and saved after" in err and "kgem resume run" in err
    assert calls <= call + 1  # it does not go on to the end of what it is at
    assert len(read_log(here / "run")) < len(read_log(here / "whole"))
    assert kgem("resume", "run", "-q")[0] == 0
    assert same(here / "run", here / "whole")


def test_a_stop_while_the_model_is_made_is_at_once(kgem: Kgem, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All epochs are on disk by then."""
    with monkeypatch.context() as patched:
        patched.setattr("kgem.runs.run.finish", lambda *_: signal.raise_signal(signal.SIGINT))
        code, _, err = kgem("fit", "graph.tsv", "--out", "run", "-q", *SETTINGS)
    assert code == 130 and "kgem resume run" in err
    assert kgem("resume", "run", "-q")[0] == 0


def test_where_saving_is_slow_the_last_epochs_checkpoint_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with begin(tmp_path / "run") as run:
        stop_after(run, 2)
        writes: list[int] = []
        monkeypatch.setattr(run, "save", lambda: writes.append(1))
        run._saving = 60.0
        run.save_at_stop()
        assert not writes
        run.records.append({})
        run.save_at_stop()
        assert writes


# a model of what is there


@pytest.mark.parametrize(
    ("epochs", "missing"),
    [
        (1, ["pretrain", "em", "retrain", "distil"]),
        (4, ["pretrain", "em", "retrain", "distil"]),
        (5, ["em", "retrain", "distil"]),
        (7, ["retrain", "distil"]),
        (11, ["distil"]),
    ],
)
def test_what_is_there_becomes_a_model_that_says_what_it_lacks(
    epochs: int, missing: list[str], whole: tuple[Path, int], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with begin(folder) as run:
        stop_after(run, epochs)
    with Run.open(folder) as run:
        pretrained = run.fit.phases.pretraining.best.entities.clone()
        run.finish(early=True)
    model = load(folder)
    assert list(model.unfinished) == missing
    assert model.metrics["valid"]["overall"]["mrr"] > 0 and model.predict(GRAPH.entities[0], GRAPH.relations[0])
    if missing[0] == "em":
        assert torch.equal(model.point.entities, pretrained) and model.provenance["mix"] == [0.0, 1.0]
    assert ("EM starts with" in describe_missing(model)) == (missing[0] == "pretrain")
    page = render_report(model)
    assert "<b>Unfinished.</b>" in page and "distillation" in page
    assert "**Unfinished:**" in write_card(model, "point")
    (listed,) = list_runs(folder)
    assert (listed.state, listed.phase) == ("unfinished", missing[0])
    with Run.open(folder) as run:  # and it can still go on
        assert run.model() is None
        complete(run)
    assert same(folder, whole[0]) and load(folder).unfinished == ()
    assert list_runs(folder)[0].state == "finished" and "Unfinished" not in write_card(load(folder), "point")


def test_whoever_leads_an_unfinished_race_has_won_it(tmp_path: Path) -> None:
    with begin(tmp_path / "run") as run:
        exhaust(_until(run, 2))  # both heats, no final
        race = run.fit.phases.pretraining_race
        bests = {kept.candidate: kept.best for kept in race.kept} | {race.turn: race.state.stopping.best}
        ahead = max(bests, key=lambda candidate: bests[candidate])
        factor = race.candidates[ahead]
        run.fit.phases.end_here()
        assert run.fit.phases.shared_factor == factor
        assert run.fit.phases.pretraining.stopping.best == max(bests.values())


def _until(run: Run, epochs: int) -> Any:
    for number, record in enumerate(run.epochs(), start=1):
        yield record
        if number == epochs:
            return


def test_finishing_early_on_the_command_line(kgem: Kgem, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = SoftmaxObjective.__call__, 0

    def signalled(self: SoftmaxObjective, *words: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 40:
            signal.raise_signal(signal.SIGTERM)
        return real(self, *words)

    with monkeypatch.context() as patched:
        patched.setattr(SoftmaxObjective, "__call__", signalled)
        assert kgem("fit", "graph.tsv", "--out", "run", "-q", *SETTINGS)[0] == 130
    code, _, err = kgem("evaluate", "run")
    assert code == 2 and "kgem resume run --finish" in err
    code, out, err = kgem("resume", "run", "--finish", "--json")
    assert code == 0 and json.loads(out)["unfinished"] and "not finished: without the end of" in err
    code, out, err = kgem("evaluate", "run")
    assert code == 0 and "not finished" in err and "kgem resume run" in err and "MRR" in out
    code, _, err = kgem("resume", "run", "-q")
    assert code == 0 and not load(here / "run").unfinished
    code, _, err = kgem("resume", "run", "--finish")
    assert code == 0 and "this run is finished" in err


def test_nothing_to_make_a_model_of(tmp_path: Path) -> None:
    begin(tmp_path / "run").close()
    with Run.open(tmp_path / "run") as run, pytest.raises(InputError, match="no epoch has ended"):
        run.finish(early=True)
    with pytest.raises(ArtifactError, match="--finish"):
        load(tmp_path / "run")
    assert not (tmp_path / "run" / "model").exists()
