"""Paired bootstrap: against a loop over resamples, against theory, and on models whose order is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kgem.data.dataset import Dataset, Vocabulary
from kgem.errors import InputError
from kgem.evaluate import comparison as module
from kgem.evaluate.comparison import bootstrap_interval, compare_values, find_common, rank_facts
from kgem.evaluate.ranking import rank
from obvious import random_graph
from small_models import random_model


def test_interval_is_that_of_a_loop_over_resamples() -> None:
    values = np.random.default_rng(1).normal(size=50)
    draws = np.random.default_rng(7).integers(50, size=(400, 50))
    means = sorted(float(np.mean([values[i] for i in draw])) for draw in draws.tolist())
    low, high = bootstrap_interval(values, np.random.default_rng(7), resamples=400, level=0.9)
    np.testing.assert_allclose([low, high], np.quantile(means, [0.05, 0.95]))


@pytest.mark.parametrize("cells", [1, 1000, 2**22])
def test_interval_has_the_width_that_theory_gives_whatever_the_blocks(
    cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CELLS", cells)
    values = np.random.default_rng(2).normal(size=400)
    low, high = bootstrap_interval(values, np.random.default_rng(0), resamples=4000)
    half = 1.96 * values.std() / np.sqrt(400)
    np.testing.assert_allclose([low, high], [values.mean() - half, values.mean() + half], atol=0.1 * half)


def test_pairs_are_what_makes_a_small_gain_clear() -> None:
    rng = np.random.default_rng(3)
    first = rng.random(300)
    second = first + 0.01 + 0.01 * rng.normal(size=300)
    paired = compare_values(first, second, rng)
    assert paired.clear and paired.low < paired.value < paired.high and paired.n == 300
    assert not compare_values(first, rng.permutation(second), rng).clear
    assert not compare_values(first, first, rng).clear


def test_the_two_questions_of_a_fact_stay_together() -> None:
    model = random_model()
    metrics, values = rank_facts(model.scorer(), model.data, "test")
    one, other = (
        rank(model.scorer(), model.data.reciprocal(model.data.test), model.data.filter_index)
        .of("pessimistic")
        .reshape(2, -1)
    )
    np.testing.assert_allclose(values, (1 / one + 1 / other) / 2)
    assert len(values) == len(model.data.test) and np.isclose(values.mean(), metrics.mrr)
    assert np.isclose(metrics.mrr, model.evaluate("test").mrr)


def test_graphs_that_differ_are_compared_on_what_both_hold_out() -> None:
    """By labels, whatever the ids: against looking at each fact."""
    data = random_model().data
    same = find_common([data, random_model(seed=3).data], "test")
    assert all(np.array_equal(facts, data.test) for facts in same)
    order = np.random.default_rng(1).permutation(data.n_entities)
    labels = tuple(data.entities[i] for i in order)
    place = np.argsort(order)  # of an old id among the new ones

    def renumber(facts: np.ndarray) -> np.ndarray:
        return np.stack([place[facts[:, 0]], facts[:, 1], place[facts[:, 2]]], axis=1)

    kept = data.test[::2]
    grown = Dataset(
        "h",
        Vocabulary((*labels, "new")),
        data.relations,
        renumber(data.train),
        renumber(data.valid),
        renumber(kept)[::-1],
    )
    first, second = find_common([data, grown], "test")
    assert [data.label(fact) for fact in first] == [grown.label(fact) for fact in second]
    assert [data.label(fact) for fact in first] == [data.label(fact) for fact in kept]


def test_what_cannot_be_compared_is_refused() -> None:
    model, other = random_model(), random_model(random_graph(seed=5))
    labelled = replace(other.data, entities=Vocabulary(tuple(f"x{i}" for i in range(other.data.n_entities))))
    with pytest.raises(InputError, match="no test fact in common"):
        find_common([model.data, labelled], "test")
    with pytest.raises(InputError, match="cannot be paired"):
        compare_values(np.zeros(3), np.zeros(2), np.random.default_rng(0))
    data = model.data
    without = Dataset("g", data.entities, data.relations, data.train, data.valid, data.test[:0])
    with pytest.raises(InputError, match="no facts in test"):
        rank_facts(random_model(without).scorer(), without, "test")
