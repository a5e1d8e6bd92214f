"""Algorithm 1 against an obvious loop; determinism, early stopping, rollback."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from driving import exhaust
from kgem.config import TrainConfig
from kgem.data.dataset import Dataset
from kgem.errors import Diverged
from kgem.evaluate.metrics import breakdown
from kgem.evaluate.ranking import rank
from kgem.model.embeddings import Embeddings
from kgem.model.objective import Gradients, MarginObjective, Objective, SoftmaxObjective
from kgem.model.prior import Prior, Strengths
from kgem.train.point_estimate import EpochRecord, PointState, point_estimate
from obvious import (
    loss_over_facts,
    penalty_over_rows,
    random_embeddings,
    random_graph,
    relation_vectors,
    strengths_of,
    with_leaves,
)

DATA = random_graph(n_entities=40, n_relations=4, n_facts=300)
N_FACTS = 2 * len(DATA.train)
PASSES = [
    *((name, True) for name in ("complex", "distmult", "hole", "tucker", "transe-l2")),
    *((name, False) for name in ("complex", "cp")),
]


def train_config(**changes: Any) -> TrainConfig:
    """Settings that do not follow the defaults when those change."""
    fixed = {"batch_size": 20, "optimizer": "adagrad", "learning_rate": 0.1, "half_life": 25.0, "patience": 10}
    return TrainConfig(**(fixed | changes))


def float_model(name: str = "complex", *, reciprocal: bool = True, scale: float = 1e-3, seed: int = 1) -> Embeddings:
    return random_embeddings(DATA, name, 8, reciprocal=reciprocal, scale=scale, dtype=torch.float32, seed=seed)


def strengths_for(model: Embeddings) -> Strengths:
    return Strengths(*(lam / 100 for lam in strengths_of("conventional", DATA, model)))


def softmax(model: Embeddings, max_tails: int | None = None) -> SoftmaxObjective:
    return SoftmaxObjective(DATA.query_index, model, Prior(3, model.score.complex), max_tails=max_tails)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def fit(
    model: Embeddings, config: TrainConfig, *, seed: int = 2, objective: Objective | None = None
) -> tuple[PointState, list[EpochRecord], Embeddings]:
    state = PointState.start(model, config, seeded(seed))
    records = list(point_estimate(state, objective or softmax(model), strengths_for(model), config))
    return state, records, state.best


def facts_of(data: Dataset, queries: Tensor) -> Iterator[tuple[int, int, int]]:
    index = data.query_index
    for i in queries.tolist():
        for t in index.tails_of(i).tolist():
            yield int(index.heads[i]), int(index.relations[i]), t


def obvious_pass(model: Embeddings, config: TrainConfig, seed: int) -> Embeddings:
    """One epoch with the same batches: cross-entropy of fact after fact, autograd, Adagrad as in its paper."""
    strengths, score, n = strengths_for(model), model.score, model.n_relations
    n_queries = len(DATA.query_index)
    tables = [t.clone() for t in model.tables()]
    squares = [torch.zeros_like(t) for t in tables]
    batches = softmax(model).batches(config.batch_size, seeded(seed))
    for step, batch in enumerate(batches):
        leaves = with_leaves(model.with_tables(*tables))
        e, r = leaves.entities, relation_vectors(leaves)
        data = e.new_zeros(())
        for h, relation, t in facts_of(DATA, batch.items):
            if leaves.reciprocal or relation < n:
                scores = score.triple(e[h], r[relation], e)
            else:
                scores = score.triple(e, r[relation - n].expand(len(e), -1), e[h])
            data = data - scores.log_softmax(0)[t]
        loss = n_queries / len(batch) * data / N_FACTS + penalty_over_rows(leaves, strengths, 3) / N_FACTS
        assert config.half_life
        rate = config.learning_rate * (config.half_life / (step / len(batches) + config.half_life)) ** 0.5
        for table, square, gradient in zip(tables, squares, torch.autograd.grad(loss, leaves.tables()), strict=True):
            square += gradient**2
            table -= rate * gradient / (square.sqrt() + 1e-12)
    return model.with_tables(*tables)


@pytest.mark.parametrize(("name", "reciprocal"), PASSES)
def test_the_loss_after_one_pass_equals_the_obvious_version(name: str, reciprocal: bool) -> None:
    """Trained in float32 from the usual small start, with the same seed: 1e-5 relative.

    The losses themselves are computed in float64: single precision would round such differences away.
    """
    config = train_config(epochs=1, batch_size=20, learning_rate=0.1)
    model = float_model(name, reciprocal=reciprocal)
    expected, other = (obvious_pass(model, config, seed=seed) for seed in (2, 3))
    start = full_loss(model)
    _, _, best = fit(model, config, seed=2)
    want = full_loss(expected)
    assert want < 0.99 * start
    assert full_loss(best) == pytest.approx(want, rel=1e-5)
    assert full_loss(other) != pytest.approx(want, rel=1e-3)  # another order of batches is seen
    for got, table in zip(best.tables(), expected.tables(), strict=True):
        torch.testing.assert_close(got, table, rtol=1e-3, atol=1e-4)


def full_loss(model: Embeddings) -> float:
    return float(loss_over_facts(model.with_tables(*(t.double() for t in model.tables())), DATA.train))


def test_the_recorded_loss_is_the_mean_over_the_pass() -> None:
    """With a rate too small to move anything it is the loss itself."""
    model = float_model(scale=0.5)
    want = float(loss_over_facts(model, DATA.train)) / N_FACTS
    _, records, _ = fit(model, train_config(epochs=2, batch_size=7, learning_rate=1e-9))
    assert [record.loss for record in records] == pytest.approx([want, want], rel=1e-5)
    assert [record.epoch for record in records] == [1, 2]
    assert all(record.seconds > 0 for record in records)
    assert all(record.mrr is None and record.best is None for record in records)


@pytest.mark.parametrize("optimizer", ["adagrad", "adam", "sgd"])
def test_every_optimizer_learns(optimizer: str) -> None:
    rate = {"adagrad": 0.1, "adam": 0.02, "sgd": 2.0}[optimizer]
    config = train_config(epochs=15, batch_size=20, learning_rate=rate, optimizer=optimizer)
    _, records, _ = fit(float_model(scale=0.3), config)
    assert records[-1].loss < 0.8 * records[0].loss


@pytest.mark.parametrize("name", ["transe-l1", "transe-l2", "distmult"])
def test_the_margin_objective_learns(name: str) -> None:
    model = float_model(name, scale=0.1)
    objective = MarginObjective(DATA.query_index, model, Prior(2, False), generator=seeded(0))
    before = breakdown(rank(model, DATA.reciprocal(DATA.train), DATA.filter_index), DATA).mrr
    _, records, best = fit(model, train_config(epochs=15, batch_size=50), objective=objective)
    assert records[-1].loss < 0.8 * records[0].loss
    assert breakdown(rank(best, DATA.reciprocal(DATA.train), DATA.filter_index), DATA).mrr > 1.3 * before


def test_a_seed_means_one_result() -> None:
    config = train_config(epochs=3, batch_size=20)
    one, again, other = (fit(float_model(), config, seed=seed)[2] for seed in (2, 2, 3))
    assert all(map(torch.equal, one.tables(), again.tables()))
    assert not torch.equal(one.entities, other.entities)


def test_going_on_from_a_state_equals_going_through() -> None:
    """Three epochs, then three more, are six."""
    through = fit(float_model(), train_config(epochs=6, batch_size=20))[2]
    model = float_model()
    state, _, _ = fit(model, train_config(epochs=3, batch_size=20))
    exhaust(point_estimate(state, softmax(model), strengths_for(model), train_config(epochs=6, batch_size=20)))
    assert all(map(torch.equal, through.tables(), state.best.tables()))


def test_a_restored_state_goes_on_bit_for_bit() -> None:
    """In another process, or in the same state after it went on: nothing of the later epochs is left in it."""
    model = float_model()
    state, _, _ = fit(model, train_config(epochs=2))
    tensors, numbers = state.tensors(), json.loads(json.dumps(state.numbers()))

    def go_on(some: PointState) -> Embeddings:
        objective = softmax(some.embeddings)
        exhaust(point_estimate(some, objective, strengths_for(model), train_config(epochs=5)))
        return some.best.clone()

    through = go_on(state)
    fresh = PointState.start(float_model(seed=9), train_config(epochs=5), seeded(9))
    for some in (state, fresh):
        some.restore(tensors, numbers)
        assert some.good is None
        assert all(map(torch.equal, go_on(some).tables(), through.tables()))


def test_no_epochs_return_the_start() -> None:
    model = float_model()
    _, records, best = fit(model, train_config(epochs=0))
    assert not records
    assert torch.equal(best.entities, model.entities)


def test_early_stopping_keeps_the_best() -> None:
    values = iter([0.1, 0.3, 0.2, 0.25, 0.9])
    model = float_model()
    config = train_config(epochs=50, batch_size=20, patience=2)
    seen: list[Tensor] = []
    records: list[EpochRecord] = []
    state = PointState.start(model, config, seeded(2))
    for record in point_estimate(state, softmax(model), strengths_for(model), config, lambda _: next(values)):
        seen.append(state.embeddings.entities.clone())
        records.append(record)
    best = state.best
    assert [record.mrr for record in records] == [0.1, 0.3, 0.2, 0.25]
    assert [record.best for record in records] == [0.1, 0.3, 0.3, 0.3]
    assert torch.equal(best.entities, seen[1])
    assert not torch.equal(best.entities, state.embeddings.entities)
    assert (state.stopping.best, state.stopping.best_epoch) == (0.3, 2)


def test_validation_is_every_so_often_and_at_the_end() -> None:
    model = float_model()
    config = train_config(epochs=7, batch_size=20, validate_every=3)
    state = PointState.start(model, config, seeded(2))
    records = point_estimate(state, softmax(model), strengths_for(model), config, validate=lambda _: 0.5)
    assert [record.epoch for record in records if record.mrr is not None] == [3, 6, 7]


class Faulty(Objective):
    """An objective whose answers at some calls are spoiled."""

    def __init__(self, inner: Objective, losses: set[int] = frozenset(), gradients: set[int] = frozenset()) -> None:  # type: ignore[assignment]
        self.inner, self.losses, self.gradients = inner, losses, gradients
        self.n_items, self.n_facts = inner.n_items, inner.n_facts
        self.calls = 0
        self.before: list[Tensor] = []  # the entities at each call

    def batches(self, size: int, generator: torch.Generator) -> list[Tensor]:
        return self.inner.batches(size, generator)

    def __call__(self, embeddings: Embeddings, strengths: Strengths, batch: Tensor) -> tuple[float, Gradients]:
        self.before.append(embeddings.entities.clone())
        loss, gradients = self.inner(embeddings, strengths, batch)
        if self.calls in self.gradients:
            gradients.entities[0, 0] = math.inf
        if self.calls in self.losses:
            loss = math.nan
        self.calls += 1
        return loss, gradients


@pytest.mark.parametrize("optimizer", ["adagrad", "adam", "sgd"])
def test_a_loss_that_is_not_a_number_rolls_back_with_a_smaller_rate(optimizer: str) -> None:
    model = float_model(scale=0.1)
    config = train_config(epochs=3, batch_size=20, optimizer=optimizer, half_life=None)
    steps = len(softmax(model).batches(20, seeded(0)))
    objective = Faulty(softmax(model), losses={steps + 2})  # the third step of the second epoch
    state, records, best = fit(model, config, objective=objective)
    assert [record.epoch for record in records] == [1, 2, 3]
    assert [record.rate for record in records] == [0.1, 0.025, 0.025]
    assert (state.rollbacks, state.slower) == (1, 0.25)
    assert torch.equal(objective.before[steps + 3], objective.before[steps])  # begun again where it began
    assert not torch.equal(objective.before[steps + 2], objective.before[steps])
    assert bool(best.entities.isfinite().all())


def test_accumulators_are_rolled_back_as_well() -> None:
    model = float_model(scale=0.1)
    config = train_config(epochs=1, batch_size=20)
    kept = PointState.start(model.clone(), config, seeded(2)).optimizer.state()
    state = PointState.start(model, config, seeded(2))
    objective = Faulty(softmax(model), losses={2})
    accumulators: list[dict[str, Tensor]] = []
    batches = objective.batches

    def note(size: int, generator: torch.Generator) -> list[Tensor]:
        accumulators.append(state.optimizer.state())
        return batches(size, generator)

    objective.batches = note  # type: ignore[method-assign]
    exhaust(point_estimate(state, objective, strengths_for(model), config))
    assert len(accumulators) == 2
    for attempt in accumulators:
        assert all(torch.equal(attempt[key], kept[key]) for key in kept)


def test_a_last_step_that_spoils_the_tables_is_noticed() -> None:
    """No loss is left to tell: the tables themselves must be looked at, or NaN would be the result."""
    model = float_model(scale=0.1)
    steps = len(softmax(model).batches(20, seeded(0)))
    objective = Faulty(softmax(model), gradients={steps - 1})
    state, records, best = fit(model, train_config(epochs=1, batch_size=20, optimizer="sgd"), objective=objective)
    assert state.rollbacks == 1
    assert len(records) == 1
    assert all(bool(t.isfinite().all()) for t in best.tables())


def test_an_epoch_that_cannot_even_begin_goes_back_one_further() -> None:
    """Tables can be finite and yet too large: then the start of the epoch is no good to come back to."""

    class Exploding(Faulty):
        def __call__(self, embeddings: Embeddings, strengths: Strengths, batch: Tensor) -> tuple[float, Gradients]:
            if self.calls == steps - 1:
                embeddings.entities.fill_(1e30)
            return super().__call__(embeddings, strengths, batch)

    model = float_model(scale=0.1)
    steps = len(softmax(model).batches(20, seeded(0)))
    objective = Exploding(softmax(model))
    objective.inner = Forgiving(objective.inner, steps - 1)
    state, records, best = fit(model, train_config(epochs=3, batch_size=20), objective=objective)
    assert state.rollbacks == 1
    assert np.isfinite([record.loss for record in records]).all()
    assert float(best.entities.abs().max()) < 100


class Forgiving(Faulty):
    """Hides the loss and gradient of one call."""

    def __init__(self, inner: Objective, call: int) -> None:
        super().__init__(inner)
        self.call = call

    def __call__(self, embeddings: Embeddings, strengths: Strengths, batch: Tensor) -> tuple[float, Gradients]:
        loss, gradients = super().__call__(embeddings, strengths, batch)
        if self.calls - 1 == self.call:
            return 1.0, Gradients(*(torch.zeros_like(g) for g in gradients))
        return loss, gradients


def test_after_two_rollbacks_it_gives_up() -> None:
    model = float_model(scale=0.1)
    objective = Faulty(softmax(model), losses={1, 3, 5})
    with pytest.raises(Diverged, match=r"epoch 1, also after 2 restarts.*\n.*lower the learning rate") as error:
        fit(model, train_config(epochs=3, batch_size=20), objective=objective)
    assert error.value.exit_code == 1
    assert objective.calls == 6


def test_two_rollbacks_are_still_survived() -> None:
    model = float_model(scale=0.1)
    objective = Faulty(softmax(model), losses={1, 3})
    state, records, _ = fit(model, train_config(epochs=3, batch_size=20), objective=objective)
    assert (state.rollbacks, state.slower) == (2, 1 / 16)
    assert len(records) == 3


def test_a_rate_that_is_far_too_large_is_an_error_with_a_remedy() -> None:
    model = float_model(scale=0.5)
    with pytest.raises(Diverged, match="learning rate"):
        fit(model, train_config(epochs=50, batch_size=20, optimizer="sgd", learning_rate=1e30))


def test_a_start_that_is_not_a_number_is_an_error() -> None:
    model = float_model()
    model.entities[0, 0] = math.nan
    with pytest.raises(Diverged, match="before the first step"):
        fit(model, train_config(epochs=1, batch_size=20))
