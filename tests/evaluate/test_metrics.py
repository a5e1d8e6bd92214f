"""Figures from ranks against hand computation."""

from __future__ import annotations

import json
import math
from dataclasses import astuple

import numpy as np
import pytest

from kgem.data.dataset import Dataset
from kgem.data.index import Vocabulary
from kgem.data.stats import graph_stats, relation_categories
from kgem.evaluate.metrics import FREQUENCY_BINS, breakdown, frequency_bin, summarise
from kgem.evaluate.ranking import Ranks, rank
from obvious import random_embeddings, random_graph


def test_figures_by_hand() -> None:
    """Eqs. 18-19 for ranks 1, 2, 4, 10, 20."""
    metrics = summarise(np.array([1, 2, 4, 10, 20]))
    assert metrics.n == 5
    assert metrics.mrr == pytest.approx((1 + 1 / 2 + 1 / 4 + 1 / 10 + 1 / 20) / 5)
    assert metrics.mean_rank == pytest.approx(37 / 5)
    assert (metrics.hits_at_1, metrics.hits_at_3, metrics.hits_at_10) == (0.2, 0.4, 0.8)


def test_realistic_ranks_may_be_halves() -> None:
    metrics = summarise(np.array([1.0, 1.5, 3.5]))
    assert metrics.mrr == pytest.approx((1 + 1 / 1.5 + 1 / 3.5) / 3)
    assert metrics.hits_at_1 == pytest.approx(1 / 3)
    assert metrics.hits_at_3 == pytest.approx(2 / 3)


def test_no_ranks_have_no_figures() -> None:
    metrics = summarise(np.array([], dtype=np.int64))
    assert metrics.n == 0
    assert math.isnan(metrics.mrr)


def test_frequency_bins() -> None:
    counts = np.array([0, 1, 2, 3, 9, 10, 29, 30, 99, 100, 299, 300, 999, 1000, 10**6])
    assert frequency_bin(counts).tolist() == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7]
    assert frequency_bin(np.array(FREQUENCY_BINS)).tolist() == list(range(len(FREQUENCY_BINS)))


def dataset(train: list[tuple[int, int, int]], n_entities: int, n_relations: int) -> Dataset:
    return Dataset(
        name="by hand",
        entities=Vocabulary(tuple(f"e{i}" for i in range(n_entities)), "entity"),
        relations=Vocabulary(tuple(f"r{i}" for i in range(n_relations)), "relation"),
        train=np.array(train, dtype=np.int32),
        valid=np.empty((0, 3), dtype=np.int32),
        test=np.empty((0, 3), dtype=np.int32),
    )


CATEGORISED = dataset(
    [
        *((i, 0, i + 1) for i in range(4)),  # r0: one tail per head, one head per tail
        *((0, 1, t) for t in range(1, 5)),  # r1: one head has four tails
        *((h, 2, 5) for h in range(4)),  # r2: four heads share a tail
        *((h, 3, t) for h in range(3) for t in range(3)),  # r3: all with all
        (0, 5, 1),  # r5: 3 facts of 2 heads and 3 tails, just many: 1.5 tails per head
        (0, 5, 2),
        (1, 5, 3),
    ],
    n_entities=7,
    n_relations=6,
)


def test_relation_categories_by_hand() -> None:
    assert relation_categories(CATEGORISED).tolist() == ["1-1", "1-N", "N-1", "N-N", "unseen", "1-N"]


def test_relation_categories_are_those_of_the_statistics() -> None:
    for data in (CATEGORISED, random_graph(seed=3)):
        rows = {row.relation: row.category for row in graph_stats(data).per_relation}
        assert [rows[label] for label in data.relations] == relation_categories(data).tolist()


def test_breakdown_by_hand() -> None:
    n = CATEGORISED.n_relations
    facts = np.array([[0, 0, 1], [1, 0 + n, 0], [0, 1, 6], [5, 2 + n, 1], [0, 4, 5]])
    ranks = Ranks(facts, optimistic=np.array([1, 1, 2, 4, 9]), pessimistic=np.array([1, 3, 2, 4, 11]))
    result = breakdown(ranks, CATEGORISED)

    assert result.overall == result.by_ties["pessimistic"] == summarise(ranks.pessimistic)
    assert result.mrr == pytest.approx((1 + 1 / 3 + 1 / 2 + 1 / 4 + 1 / 11) / 5)
    assert result.hits_at_10 == 0.8
    assert result.by_ties["optimistic"].hits_at_10 == 1
    assert result.by_ties["realistic"].mean_rank == pytest.approx((1 + 2 + 2 + 4 + 10) / 5)

    assert {side: m.n for side, m in result.by_side.items()} == {"tail": 3, "head": 2}
    assert result.by_side["head"].mean_rank == 3.5
    assert {c: m.n for c, m in result.by_category.items()} == {"1-1": 2, "1-N": 1, "N-1": 1, "unseen": 1}
    assert result.by_category["1-1"].mean_rank == 2
    assert {r: m.n for r, m in result.by_relation.items()} == {"r0": 2, "r1": 1, "r2": 1, "r4": 1}
    assert result.by_relation["r0"].mrr == pytest.approx(2 / 3)

    assert CATEGORISED.entity_counts[[1, 0, 6, 1, 5]].tolist() == [12, 14, 0, 12, 4]
    assert {name: m.n for name, m in result.by_frequency.items()} == {"0": 1, "3-9": 1, "10-29": 3}
    assert result.by_frequency["0"].mean_rank == 2
    assert result.unseen_targets == 1


def test_groups_equal_the_obvious_selection() -> None:
    data = random_graph(seed=2)
    ranks = rank(random_embeddings(data, "complex"), data.reciprocal(data.test), data.filter_index)
    result = breakdown(ranks, data)
    relations, tails = ranks.facts[:, 1], ranks.facts[:, 2]
    for r, label in enumerate(data.relations):
        mine = ranks.pessimistic[relations % data.n_relations == r]
        assert len(mine)
        assert astuple(result.by_relation[label]) == pytest.approx(astuple(summarise(mine)))
    heads = summarise(ranks.pessimistic[relations >= data.n_relations])
    assert astuple(result.by_side["head"]) == pytest.approx(astuple(heads))
    assert sum(m.n for m in result.by_frequency.values()) == len(ranks)
    assert sum(m.n for m in result.by_category.values()) == len(ranks)
    assert result.unseen_targets == int((data.entity_counts[tails] == 0).sum()) > 0


def test_an_evaluation_goes_into_json() -> None:
    data = random_graph()
    ranks = rank(random_embeddings(data, "complex"), data.reciprocal(data.test), data.filter_index)
    told = json.loads(json.dumps(breakdown(ranks, data).to_dict()))
    assert told["overall"]["n"] == len(ranks)
    assert set(told["by_ties"]) == {"pessimistic", "optimistic", "realistic"}
