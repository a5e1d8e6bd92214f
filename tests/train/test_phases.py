"""Three phases: what is handed from one to the next, the race, collapse, and going on after a stop at any epoch."""

from __future__ import annotations

import gc
import json
import logging
import math
import weakref
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from driving import exhaust
from kgem.config import (
    CompanionsConfig,
    Config,
    DistilConfig,
    EMConfig,
    ModelConfig,
    PretrainConfig,
    RetrainConfig,
    RunConfig,
    SharedConfig,
)
from kgem.data.dataset import Dataset
from kgem.data.index import Vocabulary
from kgem.errors import Collapsed
from kgem.evaluate.ranking import rank
from kgem.model.embeddings import Embeddings
from kgem.train.phases import FitResult, ThreePhases
from kgem.train.point_estimate import EpochRecord, PointState, Validate, point_estimate
from kgem.train.variational_em import signal_to_noise
from obvious import penalty_over_rows, random_graph

DATA = random_graph(n_entities=20, n_relations=3, n_facts=120)
COMMON = {"batch_size": 30, "optimizer": "adagrad", "min_gain": 0.0, "validate_every": 1, "averaging": 1.0}


def settings(
    *, model: dict[str, Any] | None = None, pretrain: dict[str, Any], em: dict[str, Any], retrain: dict[str, Any]
) -> Config:
    """Explicit settings: a test here must not move with a default."""
    pretrain = {
        "learning_rate": 0.2,
        "half_life": None,
        "rule": "conventional",
        "strength": 0.03,
        "candidates": (1.0,),
        "final_epochs": 1,
    } | pretrain
    em = {
        "learning_rate": 0.1,
        "std_learning_rate": 0.1,
        "strength_rate": 0.5,
        "half_life": 25.0,
        "initial_std": 0.2,
        "initial_strengths": "optimal",
        "carry_accumulators": True,
        "e_epochs": 0,
        "beta": 1.0,
        "m_step": "sample",
        "samples": 1,
        "settled": 0,
        "restarts": 2,
    } | em
    retrain = {
        "learning_rate": 0.1,
        "half_life": 10.0,
        "start": "warm",
        "trial_epochs": 2,
        "final_epochs": 1,
        "fall_back": False,
    } | retrain
    return Config(
        model=ModelConfig(**({"score": "complex", "dim": 4, "p": 3, "init_scale": 0.1} | (model or {}))),
        pretrain=PretrainConfig(**(COMMON | pretrain)),
        em=EMConfig(**(COMMON | em)),
        retrain=RetrainConfig(**(COMMON | retrain)),
        companions=CompanionsConfig(mixes=()),  # `with_companions` is what has them
        distil=DistilConfig(epochs=0),  # and `with_student` is what has it
        seed=3,
    )


RACE = ((1.0, 0.0), (3.0, 0.0), (1.0, 0.5))


def with_student(config: Config, **distil: Any) -> Config:
    """The same fit, with distillation after it."""
    common = {"epochs": 3, "batch_size": COMMON["batch_size"], "patience": 50, "accumulators": 1.0}
    distil = common | {"candidates": RACE[:1]} | distil
    return config.model_copy(update={"distil": DistilConfig(**distil)})


def with_companions(config: Config, **companions: Any) -> Config:
    """The same fit, whose student has two companions to learn from."""
    companions = {"epochs": 3, "batch_size": COMMON["batch_size"], "patience": 50, "mixes": RACE[1:]} | companions
    return with_student(config).model_copy(update={"companions": CompanionsConfig(**companions)})


TINY = settings(
    pretrain={"epochs": 3, "patience": 50},
    em={"epochs": 3, "patience": 50},
    retrain={"epochs": 4, "patience": 50, "candidates": RACE},
)
RACING = settings(
    pretrain={
        "epochs": 4,
        "patience": 50,
        "candidates": (1.0, 8.0, 0.2),
        "extensions": 1,
        "trial_epochs": 2,
        "final_epochs": 3,
    },
    em={"epochs": 2, "patience": 50},
    retrain={"epochs": 2, "patience": 50, "candidates": RACE[:1]},
)
MARGIN = settings(
    pretrain={"epochs": 4, "patience": 50, "candidates": (1.0, 8.0), "extensions": 0, "trial_epochs": 2}
    | {"loss": "margin", "margin": 2.0, "negatives": 3},
    em={"epochs": 2, "patience": 50},
    retrain={"epochs": 2, "patience": 50, "candidates": RACE[:1]},
)
IMPATIENT = settings(
    pretrain={"epochs": 40, "patience": 1, "learning_rate": 0.5},
    em={"epochs": 40, "patience": 1, "learning_rate": 0.5, "samples": 2},
    retrain={"epochs": 40, "patience": 1, "candidates": RACE, "trial_epochs": 3, "fall_back": True},
)
SETTLING = settings(
    pretrain={"epochs": 2, "patience": 50},
    em={"epochs": 40, "patience": 50, "settled": 0.1, "m_step": "exact", "initial_std": 0.01}
    | {"learning_rate": 1e-3, "std_learning_rate": 1e-3},
    retrain={"epochs": 2, "patience": 50, "candidates": ((1.0, 0.0),), "start": "fresh"},
)
DROWNING = settings(  # noise far above anything known, and rates that change nothing
    pretrain={"epochs": 2, "patience": 50},
    em={
        "epochs": 40,
        "patience": 50,
        "initial_std": 3.0,
        "learning_rate": 1e-6,
        "std_learning_rate": 1e-6,
        "restarts": 1,
    },
    retrain={"epochs": 2, "patience": 50, "candidates": ((1.0, 0.0),)},
)


def mrr_on(data: Dataset, split: str) -> Validate:
    facts = data.reciprocal(data.split(split))
    return lambda model: float((1 / rank(model, facts, data.filter_index).pessimistic).mean())


class Log:
    """Notes every epoch of a fit, and takes a checkpoint of each as a store would keep it."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, int, float, float | None]] = []
        self.records: list[EpochRecord] = []
        self.checkpoints: list[tuple[dict[str, Tensor], str]] = []

    def follow(self, fit: ThreePhases, epochs: int | None = None) -> None:
        """To the end of the fit, or so many epochs."""
        for phase, record in islice(fit.epochs(), epochs):
            self.lines.append((phase, record.epoch, record.loss, record.mrr))
            self.records.append(record)
            self.checkpoints.append((fit.tensors(), json.dumps(fit.numbers())))

    @property
    def phases(self) -> list[tuple[str, int]]:
        return [line[:2] for line in self.lines]

    @property
    def em(self) -> list[EpochRecord]:
        return [record for (phase, *_), record in zip(self.lines, self.records, strict=True) if phase == "em"]


def follow(fit: ThreePhases, log: Log, epochs: int | None = None) -> str | None:
    """To the end, or so many epochs; what a collapse says, if it ends in one."""
    try:
        log.follow(fit, epochs)
    except Collapsed as error:
        return error.message
    return None


CASES = {
    "tiny": TINY,
    "racing": RACING,
    "margin": MARGIN,
    "impatient": IMPATIENT,
    "settling": SETTLING,
    "drowning": DROWNING,
    "student": with_student(TINY),
    "students": with_student(RACING, epochs=4, candidates=RACE, trial_epochs=2, final_epochs=3),
    "companions": with_companions(TINY),
    "impatient companions": with_companions(TINY, epochs=40, patience=1),
    "core": with_student(TINY).model_copy(update={"model": ModelConfig(score="tucker", dim=3)}),
    "sampled": with_student(RACING).model_copy(
        update={"train": SharedConfig(softmax="sampled", candidates=8, exact_epochs=2)}
    ),
    "sampled races": RACING.model_copy(
        update={"train": SharedConfig(races="sampled", candidates=8), "retrain": TINY.retrain}
    ),
    "sampled companions": with_companions(RACING, epochs=4, sampled_epochs=2).model_copy(
        update={"train": SharedConfig(races="sampled", candidates=8), "retrain": TINY.retrain}
    ),
}


@cache
def without_a_stop(case: str) -> tuple[ThreePhases, Log, str | None]:
    """A fit from beginning to end, for all tests that look at it: the fit, its log, and how it ended."""
    fit, log = ThreePhases(DATA, CASES[case], mrr_on(DATA, "valid")), Log()
    return fit, log, follow(fit, log)


@pytest.mark.parametrize("case", CASES)
def test_a_fit_goes_on_from_any_epoch_bit_for_bit(case: str) -> None:
    """From every checkpoint to the next but one, whence the same is shown; and from every seventh to the end."""
    through, log, ending = without_a_stop(case)
    last = len(log.checkpoints)
    assert (ending is None) == (case != "drowning")
    assert last >= 8
    for epoch, (tensors, numbers) in enumerate(log.checkpoints, start=1):
        to_the_end = epoch % 7 == 1 or epoch + 2 >= last
        again = Log()
        fit = ThreePhases(DATA, CASES[case], mrr_on(DATA, "valid"))
        fit.restore(tensors, json.loads(numbers))
        assert_same_state(fit, tensors, numbers, epoch)
        if to_the_end:
            assert follow(fit, again) == ending
            assert again.lines == log.lines[epoch:], epoch
            assert_same_state(fit, through.tensors(), json.dumps(through.numbers()), epoch)
        else:
            assert follow(fit, again, epochs=2) is None
            assert again.lines == log.lines[epoch : epoch + 2], epoch
            assert_same_state(fit, *log.checkpoints[epoch + 1], epoch)


def assert_same_state(fit: ThreePhases, tensors: dict[str, Tensor], numbers: str, epoch: int) -> None:
    got = fit.tensors()
    assert got.keys() == tensors.keys(), epoch
    assert all(torch.equal(got[name], tensors[name]) for name in tensors), epoch
    assert json.dumps(fit.numbers()) == numbers, epoch


def test_rounded_products_learn_as_exact_ones_do() -> None:
    """All three phases end near where they would: the rounding is noise beside that of the minibatches."""
    ends = {}
    for products in ("exact", "bfloat16"):
        log = Log()
        config = TINY.model_copy(update={"run": RunConfig(products=products)})
        log.follow(ThreePhases(DATA, config, mrr_on(DATA, "train")))
        ends[products] = {phase: (loss, mrr) for phase, _, loss, mrr in log.lines}
    assert ends["exact"] != ends["bfloat16"]
    for phase, (loss, mrr) in ends["exact"].items():
        assert ends["bfloat16"][phase][0] == pytest.approx(loss, rel=0.02), phase
        assert ends["bfloat16"][phase][1] == pytest.approx(mrr, rel=0.1), phase


def test_the_cases_above_are_what_they_say() -> None:
    """The resumed fits do end their phases in all ways there are."""
    tiny, impatient, settling = (without_a_stop(case)[1] for case in ("tiny", "impatient", "settling"))
    trials = [("retrain", epoch) for _ in RACE for epoch in (1, 2)]
    begin = [(phase, epoch) for phase in ("pretrain", "em") for epoch in (1, 2, 3)]
    assert tiny.phases == [*begin, *trials, ("retrain", 3), ("retrain", 4)]
    for phase in ("pretrain", "em", "retrain"):
        assert 2 <= sum(line[0] == phase for line in impatient.lines) < 30
    assert 4 <= len(settling.em) < 40
    drifts = [record.extra["drift"] for record in settling.em if "drift" in record.extra]
    assert all(drift < 0.1 for drift in drifts[-3:])


def test_the_margin_loss_is_of_pretraining_alone() -> None:
    """Its first epoch starts at the margin, where all scores are about 0; the softmax starts at log n."""
    epochs = {"epochs": 1, "patience": 50}
    tiny = {"init_scale": 1e-4}
    log = Log()
    config = settings(
        model=tiny,
        pretrain=epochs | {"loss": "margin", "margin": 2.0, "learning_rate": 1e-6},
        em=epochs | {"initial_std": 1e-4, "learning_rate": 1e-6, "std_learning_rate": 1e-6},
        retrain=epochs | {"candidates": ((1.0, 0.0),), "learning_rate": 1e-6},
    )
    log.follow(ThreePhases(DATA, config, mrr_on(DATA, "valid")))
    chance = math.log(DATA.n_entities)
    assert [line[2] for line in log.lines] == pytest.approx([2.0, chance, chance], rel=1e-3)


def test_the_margin_loss_learns_and_its_leader_goes_on_as_if_alone() -> None:
    pretrain = MARGIN.pretrain.model_dump() | {"epochs": 20}
    none = {"epochs": 0, "patience": 50}
    log = Log()
    race = settings(pretrain=pretrain, em=none, retrain=none | {"candidates": RACE[:1]})
    fit = ThreePhases(DATA, race, mrr_on(DATA, "valid"))
    log.follow(fit)
    assert log.lines[-1][2] < 0.7 * log.lines[0][2]
    single = settings(
        pretrain=pretrain | {"candidates": (fit.shared_factor,)}, em=none, retrain=none | {"candidates": RACE[:1]}
    )
    alone, _ = finished(single, mrr_on(DATA, "valid"))
    assert all(map(torch.equal, fit.pretraining.best.tables(), alone.pretraining.best.tables()))


def test_companions_are_trained_one_after_another_from_other_tables_with_their_own_strengths() -> None:
    """As if each were trained alone; and the student learns from all."""
    fit, log, _ = without_a_stop("companions")
    assert log.phases[-9:] == [("companions", epoch) for epoch in (1, 2, 3)] * 2 + [("distil", e) for e in (1, 2, 3)]
    assert fit.companions is not None and fit.distillation is not None
    assert list(fit.distillation.companions) == fit.companions.trained
    starts = [fit.companions.tables(torch.Generator().manual_seed(fit.companions.seed + turn)) for turn in (0, 1)]
    assert not torch.equal(starts[0].entities, starts[1].entities)
    config = fit.config.companions
    for turn, (start, mix, trained) in enumerate(zip(starts, config.mixes, fit.companions.trained, strict=True)):
        generator = torch.Generator().manual_seed(fit.companions.seed + turn)
        alone = PointState.start(fit.companions.tables(generator), config, generator)
        exhaust(point_estimate(alone, fit.objective, fit.retraining_strengths(*mix), config, mrr_on(DATA, "valid")))
        assert all(map(torch.equal, alone.best.tables(), trained.tables()))
        assert not torch.equal(trained.entities, start.entities)
    without, _ = finished(with_student(TINY), mrr_on(DATA, "valid"))
    assert not torch.equal(without.result().point.entities, fit.result().point.entities)


def test_companions_begin_with_a_sampled_softmax_where_races_do() -> None:
    """Their first epochs, whatever patience says; then their patience begins."""
    config = CASES["sampled companions"].model_copy(
        update={"companions": CompanionsConfig(epochs=9, sampled_epochs=4, patience=1, mixes=RACE[:1])}
    )
    fit = ThreePhases(DATA, config, lambda tables: 0.5)
    kinds = []
    for phase, _ in fit.epochs("companions"):
        if phase == "companions":
            kinds.append(fit.is_sampling)
    assert kinds == [True, True, True, False, False]  # of the epoch to come; one exact epoch gained nothing


def test_without_a_student_nobody_needs_companions() -> None:
    fit, _ = finished(TINY.model_copy(update={"companions": CompanionsConfig()}), mrr_on(DATA, "valid"))
    assert fit.companions is None and fit.missing == () and "companions" not in fit.epochs_spent


def test_the_student_whose_strengths_are_best_on_validation_is_the_one_that_counts() -> None:
    """Each starts at the same tables; the one that leads goes on, and the fit says which it was."""
    fit, log, _ = without_a_stop("students")
    first = [line for line in log.lines if line[0] == "distil" and line[1] == 1]
    assert len(first) == len(RACE) and len({mrr for *_, mrr in first}) > 1
    assert fit.students is not None and fit.students.stage == "won"
    assert fit.result().student == RACE[fit.students.leader]
    assert without_a_stop("student")[0].result().student == RACE[0]
    assert without_a_stop("tiny")[0].result().student is None


def test_a_student_of_the_first_version_goes_on() -> None:
    """Its checkpoints have one student, where there is a race now."""
    through, log, _ = without_a_stop("student")
    tensors, numbers = log.checkpoints[-2]
    old = json.loads(numbers)
    old["student"] = old.pop("students")["state"]
    renamed = {name.replace("students.state.", "student."): tensor for name, tensor in tensors.items()}
    fit = ThreePhases(DATA, CASES["student"], mrr_on(DATA, "valid"))
    fit.restore(renamed, old)
    exhaust(fit.epochs())
    assert all(map(torch.equal, fit.result().point.tables(), through.result().point.tables()))


@pytest.mark.parametrize("mrr", [0.9, 0.4, 0.1])
@pytest.mark.parametrize("better", ["point", "mean"])
def test_a_student_starts_at_the_better_model_and_counts_if_it_beats_the_re_trained(better: str, mrr: float) -> None:
    """Validation that likes the re-trained tables, or the means of q, most; then the student more, between, or less."""
    gains = mrr > (0.5 if better == "point" else 0.3)

    def validate(tables: Embeddings) -> float:
        if fit.students is not None:
            return mrr
        return 0.5 if fit.em is not None and (tables is fit.em.best) == (better == "mean") else 0.3

    fit = ThreePhases(DATA, with_student(TINY), validate)
    exhaust(fit.epochs("companions"))
    assert fit.em is not None and fit.race is not None
    began = {"point": fit.race.state.best, "mean": fit.em.best}[better].clone()
    assert next(fit.epochs())[0] == "distil" and fit.students is not None
    (event,) = (event for event in fit.events if event["event"] == "distil")
    assert (event["start"], event["mrr"]) == (better, 0.5)
    moved = float((fit.students.state.embeddings.entities - began.entities).abs().mean())
    assert 0 < moved < float(began.entities.abs().mean())  # with its accumulators: no shock
    exhaust(fit.epochs())
    assert fit.result().point is (fit.students.state.best if gains else fit.race.state.best)
    assert fit.result().epochs["distil"] == 3


@pytest.mark.parametrize(("mrr", "teaches"), [(0.6, True), (0.5, False), (0.4, False)])
def test_pre_trained_tables_teach_where_they_are_better_than_re_trained_ones(mrr: float, teaches: bool) -> None:
    fit = ThreePhases(DATA, with_student(TINY), lambda tables: mrr if tables is fit.pretraining.best else 0.5)
    exhaust(fit.epochs("companions"))
    distillation = fit._start_distillation()
    assert distillation._choose_start()
    assert any(tables is fit.pretraining.best for tables in distillation._teachers) is teaches
    assert len(distillation._teachers) == 2 + teaches + len(distillation.companions)
    (event,) = (event for event in fit.events if event["event"] == "distil")
    assert event["start"] == "point" and event.get("pretrained") == (mrr if teaches else None)


def test_a_student_begins_with_a_part_of_the_accumulators() -> None:
    """Of Adagrad's, which only grow; Adam's are averages, and stay."""
    for optimizer, part in (("adagrad", 0.1), ("adam", 1.0)):
        config = with_student(TINY, accumulators=0.1, optimizer=optimizer, epochs=0)
        config = config.model_copy(update={"retrain": config.retrain.model_copy(update={"optimizer": optimizer})})
        fit = ThreePhases(DATA, config, lambda tables: 0.5)
        exhaust(fit.epochs())
        assert fit.race is not None and fit.distillation is None
        fit.config = with_student(config, accumulators=0.1, optimizer=optimizer)
        student = fit._start_distillation()
        assert student._choose_start()
        begun, before = student._start().optimizer.state(), fit.race.state.optimizer.state()
        assert begun.keys() == before.keys()
        assert all(torch.allclose(begun[name], part * before[name]) for name in begun)


def test_a_checkpoint_is_a_copy() -> None:
    fit, log, _ = without_a_stop("tiny")
    first, last = log.checkpoints[0][0], fit.tensors()
    assert not torch.equal(first["pretraining.state.now.entities"], last["pretraining.state.now.entities"])


def test_finished_phases_keep_only_what_is_needed_later() -> None:
    """Where tables are large, as with a sampled softmax."""
    _, log, _ = without_a_stop("sampled")
    first, last = log.checkpoints[0][0], log.checkpoints[-1][0]
    assert {"pretraining.state.now.entities", "pretraining.state.average.entities"} <= first.keys() - last.keys()
    kept = {name for name in last if name.startswith("em.") and name.endswith("mean.entities")}
    assert kept == {"em.best_mean.entities"}


def finished(config: Config, validate: Validate | None = None, data: Dataset = DATA) -> tuple[ThreePhases, FitResult]:
    fit = ThreePhases(data, config, validate)
    exhaust(fit.epochs())
    return fit, fit.result()


def test_em_begins_at_the_best_of_pretraining_and_retraining_at_the_best_of_em() -> None:
    values = iter([0.1, 0.5, 0.3, 0.2, 0.6, 0.4, *[0.1] * 50])
    seen: list[Embeddings] = []

    def validate(model: Embeddings) -> float:
        seen.append(model.clone())
        return next(values)

    config = settings(
        pretrain={"epochs": 3, "patience": 50},
        em={"epochs": 3, "patience": 50},
        retrain={"epochs": 0, "patience": 50, "candidates": ((1.0, 0.0),)},
    )
    fit, result = finished(config, validate)
    assert torch.equal(fit.pretraining.best.entities, seen[1].entities)
    assert torch.equal(result.posterior.entities.mean, seen[4].entities)
    assert torch.equal(result.point.relations, seen[4].relations)  # no epoch of re-training: where it began
    assert result.epochs == {"pretrain": 3, "em": 3, "retrain": 0}
    assert result.events == ()


def test_fresh_retraining_begins_where_pretraining_did() -> None:
    none = {"epochs": 0, "patience": 50}
    start = {"candidates": ((1.0, 0.0),), "start": "fresh"}
    config = settings(pretrain={"epochs": 2, "patience": 50}, em=none, retrain=none | start)
    untouched = settings(pretrain=none, em=none, retrain=none | start)
    fit, result = finished(config)
    assert torch.equal(result.point.entities, finished(untouched)[1].point.entities)
    assert not torch.equal(result.point.entities, fit.pretraining.best.entities)


def test_the_leader_of_the_race_goes_on_as_if_it_had_been_alone() -> None:
    """The middle one of three candidates leads: its result is that of a fit with no other candidate."""

    def validate(model: Embeddings) -> float:
        return 1 - abs(float(model.entities.square().mean()) - target)

    parts: dict[str, Any] = {"pretrain": {"epochs": 3, "patience": 50}, "em": {"epochs": 2, "patience": 50}}
    retrain = {"epochs": 6, "patience": 50, "trial_epochs": 3}
    config = settings(**parts, retrain=retrain | {"candidates": (RACE[1],)})
    alone, _ = finished(config, lambda _: 0.5)
    assert alone.race is not None
    target = float(alone.race.state.average.entities.square().mean())
    _, result = finished(settings(**parts, retrain=retrain | {"candidates": RACE}), validate)
    _, single = finished(config, validate)
    assert result.mix == RACE[1]
    assert all(map(torch.equal, result.point.tables(), single.point.tables()))
    assert result.epochs["retrain"] == 3 * 3 + 3


def test_what_a_candidate_held_gives_way_when_its_heat_is_over() -> None:
    """Where tables are large, four sets of them would stay for the rest of a race."""
    parts: dict[str, Any] = {
        "pretrain": {"epochs": 2, "candidates": (1.0, 3.0), "trial_epochs": 1},
        "em": {"epochs": 1},
    }
    config = settings(**parts, retrain={"epochs": 2, "trial_epochs": 1, "candidates": RACE})
    fit = ThreePhases(DATA, config, lambda _: 0.5)
    raced: dict[tuple[str, int], weakref.ref[PointState]] = {}
    for phase, _ in fit.epochs():
        race = {"pretrain": fit.pretraining_race, "retrain": fit.race}.get(phase)
        if race is None or race.stage != "heats":
            continue
        raced.setdefault((phase, race.heat), weakref.ref(race.state))
        if race.heat:
            gc.collect()
            assert raced[phase, race.heat - 1]() is None
    assert {("pretrain", 1), ("retrain", 1), ("retrain", 2)} <= raced.keys()


@pytest.mark.parametrize("final_epochs", [2, 4])
def test_the_final_is_between_the_two_best_and_may_turn_them_round(final_epochs: int) -> None:
    """The first candidate leads after its heat and then stands still; the second overtakes it in the third epoch."""
    curves = ((0.5, 0.5, 0.5, 0.5, 0.5, 0.5), (0.1, 0.4, 0.6, 0.7, 0.8, 0.9), (0.1, 0.2, 0.9, 0.9, 0.9, 0.9))
    turns: list[tuple[int | None, int]] = []

    def validate(_: Embeddings) -> float:
        turns.append((fit.candidate, fit.pretraining.epoch))
        return curves[fit.candidate or 0][fit.pretraining.epoch - 1]

    race = {"candidates": (1.0, 8.0, 0.2), "extensions": 0, "trial_epochs": 2, "final_epochs": final_epochs}
    config = settings(
        pretrain={"epochs": 6, "patience": 50} | race,
        em={"epochs": 0, "patience": 50},
        retrain={"epochs": 0, "patience": 50, "candidates": RACE[:1]},
    )
    fit = ThreePhases(DATA, config, validate)
    exhaust(fit.epochs("pretrain"))
    winner = 1 if final_epochs == 4 else 0
    heats = [(candidate, epoch) for candidate in (0, 1, 2) for epoch in (1, 2)]
    final = [(candidate, epoch) for candidate in (0, 1) for epoch in (3, 4)] if final_epochs == 4 else []
    assert turns == heats + final + [(winner, epoch) for epoch in range(max(final_epochs, 2) + 1, 7)]
    assert fit.shared_factor == (1.0, 8.0)[winner]
    alone = settings(
        pretrain={"epochs": 6, "patience": 50, "candidates": (fit.shared_factor,)},
        em={"epochs": 0, "patience": 50},
        retrain={"epochs": 0, "patience": 50, "candidates": RACE[:1]},
    )
    single = ThreePhases(DATA, alone, lambda _: 0.0)
    exhaust(single.epochs("pretrain"))
    assert torch.equal(single.pretraining.average.entities, fit.pretraining.average.entities)


LOSING = (  # of each candidate, epoch by epoch
    (0.5, 0.58, 0.6, 0.62, 0.63, 0.64, 0.65, 0.66, 0.66, 0.66),
    (0.2, 0.3, 0.36, 0.40, 0.43, 0.9, 0.9, 0.9, 0.9, 0.9),  # in the final .40 + 4 * .067 would do, .43 + 3 * .043 not
    (0.1, 0.19, 0.21, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9),  # in its heat .21 + .055 is below .40
    (0.15, 0.32, 0.35, 0.39, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9),  # .35 + .1 is not, but .39 is
)


def test_whoever_cannot_catch_up_ends_there_and_a_stop_changes_nothing() -> None:
    race = {"candidates": (1.0, 8.0, 0.2, 3.0), "extensions": 0, "trial_epochs": 4, "final_epochs": 8}
    config = settings(
        pretrain={"epochs": 10, "patience": 50} | race,
        em={"epochs": 0, "patience": 50},
        retrain={"epochs": 0, "patience": 50, "candidates": RACE[:1]},
    )

    def start() -> ThreePhases:
        def validate(_: Embeddings) -> float:
            return LOSING[fit.candidate or 0][fit.pretraining.epoch - 1]

        fit = ThreePhases(DATA, config, validate)
        return fit

    def turns(fit: ThreePhases, log: Log) -> list[tuple[int | None, int]]:
        seen = []
        for _, record in fit.epochs("pretrain"):
            log.checkpoints.append((fit.tensors(), json.dumps(fit.numbers())))
            seen.append((fit.candidate, record.epoch))
        return seen

    log = Log()
    every = turns(start(), log)
    heats = [(0, 1), (0, 2), (0, 3), (0, 4), (1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (2, 3)]
    heats += [(3, epoch) for epoch in (1, 2, 3, 4)]
    final = [(0, epoch) for epoch in (5, 6, 7, 8)] + [(1, 5)]
    assert every == [*heats, *final, (0, 9), (0, 10)]
    for done, (tensors, numbers) in enumerate(log.checkpoints, start=1):
        fit = start()
        fit.restore(tensors, json.loads(numbers))
        assert turns(fit, Log()) == every[done:], done


@pytest.mark.parametrize(("wanted", "joined"), [(1.0, []), (20.0, [10.0, 20.0, 40.0]), (0.1, [0.25, 0.125, 0.0625])])
def test_further_strengths_join_while_one_at_the_edge_leads(wanted: float, joined: list[float]) -> None:
    """Validation prefers one factor on the shared strength, however far from the candidates it is."""
    quick = {"epochs": 1, "patience": 50}
    race = {"candidates": (0.5, 1.0, 2.0) if wanted == 1.0 else (0.5, 1.0) if wanted < 1 else (2.5, 5.0)}
    config = settings(
        pretrain=quick | race | {"extensions": 4, "trial_epochs": 1},
        em=quick | {"epochs": 0},
        retrain=quick | {"candidates": RACE[:1], "epochs": 0},
    )
    fit = ThreePhases(
        DATA, config, lambda _: -abs(math.log(fit.pretraining_race.candidates[fit.candidate or 0] / wanted))
    )
    exhaust(fit.epochs())
    assert fit.pretraining_race.candidates == (*race["candidates"], *joined)
    assert fit.shared_factor == min(fit.pretraining_race.candidates, key=lambda factor: abs(math.log(factor / wanted)))
    assert ThreePhases(DATA, config).pretraining_race.candidates == race["candidates"]
    held = config.model_copy(update={"pretrain": config.pretrain.model_copy(update={"extensions": 0})})
    fit = ThreePhases(
        DATA, held, lambda _: -abs(math.log(fit.pretraining_race.candidates[fit.candidate or 0] / wanted))
    )
    exhaust(fit.epochs())
    assert fit.pretraining_race.candidates == race["candidates"]


def test_without_validation_no_strength_joins() -> None:
    quick = {"epochs": 1, "patience": 50}
    race = {"candidates": (1.0, 2.0), "extensions": 4, "trial_epochs": 1}
    fit, _ = finished(settings(pretrain=quick | race, em=quick, retrain=quick | {"candidates": RACE[:1]}), None)
    assert fit.pretraining_race.candidates == (1.0, 2.0) and fit.shared_factor == 1.0


def test_retraining_strengths_are_learned_plus_counts() -> None:
    fit, _, _ = without_a_stop("tiny")
    learned = fit.result().strengths
    assert all(map(torch.equal, fit.retraining_strengths(1.0, 0.0), learned))
    mixed = fit.retraining_strengths(2.0, 0.5)
    counts = torch.from_numpy(np.maximum(DATA.entity_counts, 1)).float()
    shared = TINY.pretrain.strength
    torch.testing.assert_close(mixed.entities, 2 * learned.entities + 0.5 * shared * counts)
    twice = torch.from_numpy(np.tile(np.maximum(DATA.relation_counts, 1), 2)).float()
    torch.testing.assert_close(mixed.relations, 2 * learned.relations + 0.5 * shared * twice)


def test_retraining_knows_what_pretraining_settled_on() -> None:
    fit, _, _ = without_a_stop("racing")
    assert fit.shared_factor in RACING.pretrain.candidates
    mixed = fit.retraining_strengths(0.0, 1.0)
    counts = torch.from_numpy(np.maximum(DATA.entity_counts, 1)).float()
    torch.testing.assert_close(mixed.entities, fit.shared_factor * RACING.pretrain.strength * counts)


@pytest.mark.parametrize("judge", ["blend", "point"])
def test_retraining_is_judged_together_with_the_means_of_q(judge: str) -> None:
    """Two judges that prefer different candidates: the one that is asked for decides, and hears the means of q."""
    parts: dict[str, Any] = {"pretrain": {"epochs": 2, "patience": 50}, "em": {"epochs": 2, "patience": 50}}
    retrain = {"epochs": 2, "patience": 50, "trial_epochs": 2, "candidates": RACE[:2], "judge": judge}
    partners: list[Embeddings] = []

    def together(_: Embeddings, partner: Embeddings) -> float:
        partners.append(partner)
        return float(fit.candidate == 1)

    def alone(_: Embeddings) -> float:
        return float(fit.candidate != 1)

    fit = ThreePhases(DATA, settings(**parts, retrain=retrain), alone, validate_blend=together)
    exhaust(fit.epochs())
    assert fit.em is not None
    assert fit.result().mix == RACE[1 if judge == "blend" else 0]
    assert len(partners) == (4 if judge == "blend" else 0)
    assert all(partner is fit.em.best for partner in partners)


@pytest.mark.parametrize("fall_back", [True, False])
def test_tables_that_retraining_spoils_are_the_pretrained_ones_again(fall_back: bool) -> None:
    """A penalty that leaves nothing of the tables: no re-training could be worse."""
    ruin = {"epochs": 2, "patience": 50, "candidates": ((1e4, 0.0),), "judge": "point", "fall_back": fall_back}
    config = settings(pretrain={"epochs": 20, "patience": 50}, em={"epochs": 2, "patience": 50}, retrain=ruin)
    validate = mrr_on(DATA, "train")
    fit, result = finished(config, validate)
    same = all(map(torch.equal, result.point.tables(), fit.pretraining.best.tables()))
    assert same == fit.fell_back == fall_back
    assert result.mix == ((0.0, 1.0) if fall_back else (1e4, 0.0))
    if fall_back:
        (event,) = result.events
        assert event["mrr"] == validate(fit.pretraining.best) > event["retrained"]


def test_retraining_that_gains_is_kept() -> None:
    config = settings(
        pretrain={"epochs": 1, "patience": 50, "learning_rate": 0.01},
        em={"epochs": 1, "patience": 50},
        retrain={"epochs": 20, "patience": 50, "candidates": ((1e-3, 0.0),), "judge": "point", "fall_back": True},
    )
    fit, result = finished(config, mrr_on(DATA, "train"))
    assert not fit.fell_back
    assert result.mix == (1e-3, 0.0)
    assert not result.events


def test_tempering_gives_the_learned_prior_a_quarter_of_the_weight_of_the_shared_one() -> None:
    quick = {"epochs": 3, "patience": 50}
    config = settings(
        pretrain=quick | {"strength": 0.2},
        em={"epochs": 0, "patience": 50, "beta": None, "initial_std": 1e-9},
        retrain={"epochs": 0, "patience": 50, "candidates": ((1.0, 0.0),)},
    )
    fit, result = finished(config)
    shared, optimal = (
        float(penalty_over_rows(fit.pretraining.best, strengths, 3))
        for strengths in (fit.rule_strengths(), result.strengths)
    )
    assert 0.01 < result.beta < 1
    assert 4 * result.beta * optimal == pytest.approx(shared, rel=1e-4)
    assert fit.em_config().beta == result.beta
    held = settings(pretrain=quick | {"epochs": 0}, em=quick | {"beta": None}, retrain=quick | {"candidates": RACE[:1]})
    assert ThreePhases(DATA, held).tempering() == 0.01  # tables that know nothing yet


def test_accumulators_carried_over_spare_the_tables_a_shock() -> None:
    """A fresh accumulator makes the first step as large as the rate in every coordinate."""
    moved = {}
    for carry in (True, False):
        fit = ThreePhases(
            DATA,
            settings(
                pretrain={"epochs": 10, "patience": 50},
                em={"epochs": 1, "patience": 50, "carry_accumulators": carry, "beta": 0.1},
                retrain={"epochs": 0, "patience": 50, "candidates": ((1.0, 0.0),)},
            ),
        )
        exhaust(fit.epochs())
        assert fit.em is not None
        moved[carry] = float((fit.em.means.entities - fit.pretraining.best.entities).square().mean())
    assert moved[True] < 0.5 * moved[False]


def test_another_optimiser_begins_afresh() -> None:
    config = settings(
        pretrain={"epochs": 2, "patience": 50, "optimizer": "adam", "learning_rate": 0.01},
        em={"epochs": 1, "patience": 50},
        retrain={"epochs": 1, "patience": 50, "candidates": ((1.0, 0.0),)},
    )
    assert finished(config)[1].epochs == {"pretrain": 2, "em": 1, "retrain": 1}


# Collapse: with beta = 1 a q of many dimensions finds it cheaper to forget a sparse graph than to know it


def sparse_graph(n_entities: int = 500, n_facts: int = 600) -> Dataset:
    """About one fact per entity."""
    rng = np.random.default_rng(0)
    sizes = (n_entities, 3, n_entities)
    facts = np.unique(np.stack([rng.integers(size, size=n_facts) for size in sizes], axis=1), axis=0)
    rng.shuffle(facts)
    entities, relations = (tuple(f"{kind}{i}" for i in range(n)) for kind, n in (("e", n_entities), ("r", 3)))
    return Dataset("sparse", Vocabulary(entities), Vocabulary(relations, "relation"), facts[60:], facts[:60], facts[:0])


SPARSE = sparse_graph()
CHANCE = math.log(SPARSE.n_entities)


def on_sparse(**em: Any) -> Config:
    quick = {"batch_size": 50, "patience": 100, "learning_rate": 0.3}
    return settings(
        model={"dim": 50, "init_scale": 1e-3},
        pretrain=quick | {"epochs": 10, "strength": 0.1, "candidates": (1.0,)},
        em=quick | {"epochs": 15, "std_learning_rate": 0.3} | em,
        retrain=quick | {"epochs": 1, "candidates": ((1.0, 0.0),)},
    )


@cache
def pretrained_on_sparse() -> Log:
    """All ten epochs of pre-training, which are the same whatever comes after them."""
    log = Log()
    log.follow(ThreePhases(SPARSE, on_sparse(), mrr_on(SPARSE, "train")), epochs=10)
    return log


def after_pretraining(config: Config) -> tuple[ThreePhases, Log]:
    """A fit of the sparse graph with pre-training behind it, and the log of that."""
    before, log = pretrained_on_sparse(), Log()
    log.lines, log.records, log.checkpoints = before.lines.copy(), before.records.copy(), before.checkpoints.copy()
    fit = ThreePhases(SPARSE, config, mrr_on(SPARSE, "train"))
    tensors, numbers = before.checkpoints[-1]
    fit.restore(tensors, json.loads(numbers))
    return fit, log


PAPER = {"beta": 1.0, "initial_strengths": "pretrain", "e_epochs": 25}


@pytest.mark.parametrize("em", [PAPER, {"beta": 1.0}], ids=["paper", "optimal"])
def test_a_collapse_is_reported_as_what_it_is(em: dict[str, Any]) -> None:
    fit, log = after_pretraining(on_sparse(**em, epochs=25, restarts=0))
    with pytest.raises(Collapsed, match=r"(?s)phase em: q fell back to the prior in epoch \d+ .*beta = 1.*em.beta"):
        log.follow(fit)
    assert fit.em is not None
    last = log.records[-1]
    assert last.extra["collapsed"] == 1.0
    assert last.loss > 0.98 * CHANCE
    assert signal_to_noise(fit.em) < 0.05
    assert all("collapsed" not in record.extra for record in log.records[:-1])
    assert fit.em.epoch < 25
    assert fit.phase == "em"


def test_the_collapse_is_real(monkeypatch: pytest.MonkeyPatch) -> None:
    """Left alone, it ends where it was said to go: the means know nothing any more, and do not recover."""
    monkeypatch.setattr("kgem.train.stopping.Collapse.done", False)
    fit, log = after_pretraining(on_sparse(beta=1.0, epochs=30))
    log.follow(fit)
    assert fit.em is not None
    assert log.records[9].mrr > 0.95  # type: ignore[operator]
    assert log.em[-1].mrr < 0.05  # type: ignore[operator]
    assert log.em[-1].loss > 0.98 * CHANCE
    assert signal_to_noise(fit.em) < 0.02


def test_a_smaller_beta_is_tried_before_giving_up(caplog: pytest.LogCaptureFixture) -> None:
    fit, log = after_pretraining(on_sparse(beta=1.0, restarts=2))
    with caplog.at_level(logging.WARNING):
        log.follow(fit)
    result = fit.result()
    (event,) = result.events
    assert event == {"event": "collapse", "phase": "em", "epoch": event["epoch"], "beta": 1.0}
    assert "starts again from the pre-trained tables with beta = 0.25" in caplog.text
    assert [record.epoch for record in log.em] == [*range(1, event["epoch"] + 1), *range(1, 16)]
    assert result.epochs["em"] == len(log.em)
    assert log.em[-1].loss < 0.5 * CHANCE
    assert log.em[-1].mrr > 0.95  # type: ignore[operator]


def test_it_gives_up_after_the_restarts(caplog: pytest.LogCaptureFixture) -> None:
    fit = ThreePhases(DATA, DROWNING)
    with caplog.at_level(logging.WARNING), pytest.raises(Collapsed, match=r"beta = 0.25") as error:
        exhaust(fit.epochs())
    assert [event["beta"] for event in fit.events] == [1.0]
    assert len(caplog.records) == 1
    assert error.value.exit_code == 1
    assert error.value.remedy
    assert fit.epochs_spent == {"pretrain": 2, "em": 6, "retrain": 0}


def test_a_drowned_start_that_comes_up_is_no_collapse() -> None:
    """The first epochs are worse than chance; what counts is that they do not last."""
    config = settings(
        pretrain={"epochs": 15, "patience": 50},
        em={"epochs": 40, "patience": 50, "initial_std": 1.0, "half_life": None, "beta": 0.01}
        | {"learning_rate": 0.3, "std_learning_rate": 0.5},
        retrain={"epochs": 1, "patience": 50, "candidates": ((1.0, 0.0),)},
    )
    log = Log()
    fit = ThreePhases(DATA, config)
    log.follow(fit)
    chance = math.log(DATA.n_entities)
    assert log.em[0].loss > chance > log.em[-1].loss
    assert not fit.events
