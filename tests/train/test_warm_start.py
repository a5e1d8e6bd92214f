"""Fits that go on: old rows to the bit, new rows from the prior, accumulators without a step, resume at any epoch."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from driving import exhaust
from kgem.config import Config
from kgem.data.growth import grow
from kgem.model.embeddings import Embeddings
from kgem.model.prior import Prior
from kgem.train.phases import FitResult, ThreePhases
from kgem.train.stopping import EarlyStopping
from kgem.train.warm_start import WarmStart, grown_start
from obvious import random_graph

OLD = random_graph(n_entities=20, n_relations=3, n_facts=120)
FACTS = [("n1", "r0", "e1"), ("e2", "r1", "n1"), ("n2", "new", "e3"), ("n1", "new", "n2"), ("n2", "r2", "e0")]
NEW, _ = grow(OLD, {"train": pl.DataFrame(FACTS, ["head", "relation", "tail"], orient="row")})
PRIOR = Prior(3, complex=True)
PHASE = {"epochs": 3, "batch_size": 30, "patience": 1}


def config(reciprocal: bool = True, score: str = "complex", **more: Any) -> Config:
    content: dict[str, Any] = {
        "model": {"score": score, "dim": 3, "p": 3, "reciprocal": reciprocal},
        "pretrain": {**PHASE, "candidates": (2.0,)},
        "em": {**PHASE, "carry_accumulators": True},
        "retrain": {**PHASE, "candidates": ((1.0, 0.5),)},
        "companions": {"mixes": ()},  # as an update has it
        "distil": {**PHASE, "candidates": ((1.0, 0.0),)},
        "seed": 3,
    }
    for name, value in more.items():
        content[name] |= value
    return Config.model_validate(content)


def fitted(reciprocal: bool = True, score: str = "complex") -> FitResult:
    fit = ThreePhases(OLD, config(reciprocal, score))
    exhaust(fit.epochs())
    return fit.result()


def started(result: FitResult, epochs: int = 7) -> WarmStart:
    prior = Prior(3, result.point.score.complex)
    return grown_start(OLD, NEW, result.point, result.posterior, result.strengths, prior, epochs)


@pytest.fixture(scope="module")
def result() -> FitResult:
    return fitted()


@pytest.fixture(scope="module")
def warm(result: FitResult) -> WarmStart:
    return started(result)


@pytest.mark.parametrize(
    ("reciprocal", "score"), [(True, "complex"), (False, "complex"), (True, "tucker"), (False, "tucker")]
)
def test_old_rows_stay_to_the_bit_and_new_ones_are_where_their_ids_are(reciprocal: bool, score: str) -> None:
    result = fitted(reciprocal, score)
    warm = started(result)
    q = warm.posterior
    for data, place in ((OLD.entities, 0), (OLD.relations, 1)):
        grown = (NEW.entities, NEW.relations)[place]
        blocks = 2 if place and reciprocal else 1
        rows = blocks * len(grown) + place * result.point.n_shared  # what all facts share stays last
        ids = np.concatenate([grown.ids(data.labels) + block * len(grown) for block in range(blocks)])
        ids = np.append(ids, np.arange(blocks * len(grown), rows))
        pairs = [
            (result.point.tables()[place], warm.point[place]),
            (
                (result.posterior.entities, result.posterior.relations)[place].mean,
                (q.entities, q.relations)[place].mean,
            ),
            (
                (result.posterior.entities, result.posterior.relations)[place].log_std,
                (q.entities, q.relations)[place].log_std,
            ),
            (result.strengths[place], warm.strengths[place]),
        ]
        for old, new in pairs:
            assert len(new) == rows and torch.equal(new[ids], old)
        is_new = torch.ones(rows, dtype=torch.bool)
        is_new[ids] = False
        assert torch.equal(warm.new[place], is_new) and bool(is_new.any())


def test_new_rows_are_their_prior(warm: WarmStart, result: FitResult) -> None:
    for q, lam, old, new in zip(
        (warm.posterior.entities, warm.posterior.relations), warm.strengths, result.strengths, warm.new, strict=True
    ):
        mean, log_std = q.mean[new], q.log_std[new]
        assert not mean.any() and torch.equal(log_std, log_std[:, :1].expand_as(log_std))
        expected = PRIOR.expected_norm(mean, log_std)
        torch.testing.assert_close(PRIOR.optimal_inverse_strengths(expected, mean.shape[1]), lam[new].reciprocal())
        assert bool((lam[new] >= old.min()).all() and (lam[new] <= old.max()).all())


def test_samples_of_new_rows_have_the_norm_that_the_prior_expects(warm: WarmStart) -> None:
    generator = torch.Generator().manual_seed(0)
    new = warm.new[0]
    norms = torch.stack([PRIOR.norm(warm.posterior.sample(generator)[0][new]) for _ in range(4000)]).mean(0)
    torch.testing.assert_close(norms, 6 / warm.strengths.entities[new], rtol=0.05, atol=0)


def test_measuring_moves_nothing_but_the_accumulators(warm: WarmStart) -> None:
    fit = ThreePhases(NEW, config(pretrain={"epochs": 0}, em={"epochs": 0}), warm=warm)
    exhaust(fit.epochs())
    assert fit.em is not None
    for name, tensor in {"mean": fit.em.means.entities, "best": fit.em.best.entities}.items():
        assert torch.equal(tensor, warm.posterior.entities.mean), name
    assert torch.equal(fit.em.log_stds.relations, warm.posterior.relations.log_std)
    assert torch.equal(fit.em.strengths.entities, warm.strengths.entities)
    twice = started(fitted(), epochs=14)
    again = ThreePhases(NEW, config(pretrain={"epochs": 0}, em={"epochs": 0}), warm=twice)
    exhaust(again.epochs())
    assert again.em is not None
    for optimizer, other in (
        (fit.em.mean_optimizer, again.em.mean_optimizer),
        (fit.em.std_optimizer, again.em.std_optimizer),
    ):
        for place, new in enumerate(warm.new):
            sums = optimizer.state()[f"{place}.sum"]
            assert not sums[new].any() and bool((sums[~new] > 0).all())
            torch.testing.assert_close(other.state()[f"{place}.sum"], 2 * sums)


def test_a_small_step_with_measured_accumulators_does_not_wreck_the_tables(warm: WarmStart) -> None:
    """Without them the first step moves every old number by the full rate."""
    moved = {}
    for carry in (True, False):
        fit = ThreePhases(NEW, config(pretrain={"epochs": 0}, em={"epochs": 1, "carry_accumulators": carry}), warm=warm)
        exhaust(fit.epochs())
        assert fit.em is not None
        old = ~warm.new[0]
        moved[carry] = float((fit.em.means.entities - warm.posterior.entities.mean)[old].abs().mean())
    assert 0 < moved[True] < 0.5 * moved[False]


def test_the_latest_tables_count_whatever_validation_says(warm: WarmStart) -> None:
    values = iter(range(100, 0, -1))
    fit = ThreePhases(NEW, config(pretrain={"epochs": 0}), lambda _: float(next(values)), warm=warm)
    exhaust(fit.epochs())
    assert fit.epochs_spent == {"pretrain": 0, "em": 3, "retrain": 3, "distil": 3}  # a patience of 1 would have stopped
    assert fit.em is not None and torch.equal(fit.em.best.entities, fit.em.average.entities)
    assert fit.race is not None and torch.equal(fit.race.state.best.entities, fit.race.state.average.entities)
    assert fit.students is not None and torch.equal(fit.result().point.entities, fit.students.state.average.entities)
    stopping = EarlyStopping(1, latest=True)
    assert stopping.update(0.5, 1) and stopping.update(0.1, 2) and not stopping.done and stopping.best == 0.1


@pytest.mark.parametrize("epochs", [0, 1])
def test_the_student_begins_at_the_re_trained_tables_whatever_validation_says(epochs: int, warm: WarmStart) -> None:
    """Validation likes the means of q most and the student least; with 0 epochs there is no student."""

    def validate(tables: Embeddings) -> float:
        if fit.students is not None:
            return 0.1
        return 0.9 if fit.em is not None and tables is fit.em.best else 0.5

    fit = ThreePhases(NEW, config(pretrain={"epochs": 0}, distil={"epochs": epochs}), validate, warm=warm)
    exhaust(fit.epochs("retrain"))
    assert fit.em is not None and fit.race is not None
    began = fit.race.state.best.clone()
    assert not torch.equal(began.entities, fit.em.best.entities)
    exhaust(fit.epochs())
    point = fit.result().point
    assert torch.equal(fit.race.state.best.entities, began.entities)
    if not epochs:
        assert torch.equal(point.entities, began.entities) and fit.events == []
        return
    (event,) = fit.events
    assert (event["start"], event["mrr"]) == ("point", 0.5)
    assert fit.students is not None and point is fit.students.state.best and fit.students.state.stopping.latest
    near, far = (float((point.entities - other.entities).abs().mean()) for other in (began, fit.em.best))
    assert 0 < near < far  # with the accumulators of re-training: no shock


def test_re_training_begins_at_the_old_tables_and_at_the_means_of_what_is_new(warm: WarmStart) -> None:
    short = config(pretrain={"epochs": 0}, retrain={"epochs": 0}, distil={"epochs": 0})
    fit = ThreePhases(NEW, short, warm=warm)
    exhaust(fit.epochs())
    assert fit.em is not None
    for place, (new, table) in enumerate(zip(warm.new, fit.result().point.tables(), strict=True)):
        assert torch.equal(table[~new], warm.point[place][~new])
        assert torch.equal(table[new], fit.em.best.tables()[place][new]) and bool(table[new].any())
    assert fit.result().shared == 2.0


@pytest.mark.parametrize("epoch", range(1, 10))
def test_stopped_and_restored_it_ends_the_same_to_the_bit(epoch: int, warm: WarmStart) -> None:
    chosen = config(pretrain={"epochs": 0})
    whole = ThreePhases(NEW, chosen, warm=warm)
    exhaust(whole.epochs())
    part = ThreePhases(NEW, chosen, warm=warm)
    exhaust(islice(part.epochs(), epoch))
    kept = WarmStart.from_tensors(warm.tensors(), warm.epochs, "cpu")
    again = ThreePhases(NEW, chosen, warm=kept)
    again.restore(part.tensors(), part.numbers())
    exhaust(again.epochs())
    for one, other in zip(whole.tensors().items(), again.tensors().items(), strict=True):
        assert one[0] == other[0] and torch.equal(one[1], other[1]), one[0]


def test_the_warm_start_itself_never_changes(result: FitResult) -> None:
    warm = started(result)
    before = {name: tensor.clone() for name, tensor in warm.tensors().items()}
    exhaust(ThreePhases(NEW, config(pretrain={"epochs": 0}), warm=warm).epochs())
    assert all(torch.equal(tensor, before[name]) for name, tensor in warm.tensors().items())
