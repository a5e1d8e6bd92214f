"""Numbers about a graph: against hand-counted ones and obvious versions."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from kgem.data.dataset import Dataset
from kgem.data.stats import fit_cost, graph_stats


def graph(*facts: str, test: str = "") -> Dataset:
    def frame(rows: list[str]) -> pl.DataFrame:
        return pl.DataFrame([row.split() for row in rows], schema=["head", "relation", "tail"], orient="row")

    return Dataset.from_frames(frame(list(facts)), test=frame([test]) if test else None)


def test_categories_as_counted_by_hand() -> None:
    stats = graph_stats(
        graph(
            *("a one b", "c one d"),  # a husband and a wife
            *("a many b", "a many c", "a many d"),  # one head, three tails
            *("b into z", "c into z", "d into z", "e into y"),  # 2 tails, 4 heads: 2 heads per tail
            *("a all b", "a all c", "b all b", "b all c"),
            test="a never b",
        )
    )
    rows = {row.relation: row for row in stats.per_relation}
    assert {name: row.category for name, row in rows.items()} == {
        "one": "1-1",
        "many": "1-N",
        "into": "N-1",
        "all": "N-N",
        "never": "unseen",
    }
    assert (rows["into"].heads, rows["into"].tails, rows["into"].facts) == (4, 2, 4)
    assert rows["into"].heads_per_tail == 2.0 and rows["into"].tails_per_head == 1.0
    assert stats.categories["N-N"] == {"relations": 1, "facts": 4}
    assert stats.facts == {"train": 13, "valid": 0, "test": 1}
    assert stats.per_relation[-1].relation == "never" and stats.per_relation[-1].facts == 0


def test_threshold_is_one_and_a_half() -> None:
    below = graph_stats(graph("a r b", "a r c", "d r e", "f r g"))  # 4 tails for 3 heads
    at = graph_stats(graph("a r b", "a r c", "d r e"))  # 3 tails for 2 heads
    assert below.per_relation[0].category == "1-1"
    assert at.per_relation[0].category == "1-N"


def test_sizes_and_frequencies() -> None:
    data = graph("a r b", "a r c", "b s a", test="d r a")
    stats = graph_stats(data)
    # S' has the queries (a r) (b r-) (c r-) (b s) (a s-)
    assert (stats.augmented_facts, stats.queries, stats.facts_per_query) == (6, 5, 6 / 5)
    assert data.entity_counts.tolist() == [3, 2, 1, 0] and data.relation_counts.tolist() == [2, 1]
    assert stats.relation_frequency["min"] == 1 and stats.relation_frequency["max"] == 2
    assert stats.entity_frequency["min"] == 0 and stats.entity_frequency["max"] == 3
    assert stats.entity_frequency["50%"] == 1.5 and stats.entity_frequency["mean"] == 1.5


def test_cost_is_the_stated_formula() -> None:
    data = graph("a r b", "a r c", "b s a")
    cost = fit_cost(data, dim=10, complex_space=True)
    assert cost.width == 20
    assert cost.parameters == (3 + 4) * 20
    assert cost.exact_operations == 3 * 2 * 5 * 3 * 20
    assert cost.table_bytes == 4 * cost.parameters
    assert fit_cost(data, dim=10, complex_space=False).parameters == (3 + 4) * 10


def test_per_relation_rows_equal_the_obvious_version() -> None:
    rng = np.random.default_rng(1)
    triples = {tuple(f"{kind}{i}" for kind, i in zip("ere", row, strict=True)) for row in rng.integers(0, 9, (150, 3))}
    data = graph(*(" ".join(t) for t in triples))
    for row in graph_stats(data).per_relation:
        mine = [(h, t) for h, r, t in triples if r == row.relation]
        assert row.facts == len(mine)
        assert (row.heads, row.tails) == (len({h for h, _ in mine}), len({t for _, t in mine}))


def test_json_can_hold_it() -> None:
    stats = graph_stats(graph("a r b", "b s a"))
    assert json.loads(json.dumps(asdict(stats)))["cost"]["dim"] == 100


@pytest.mark.parametrize(("name", "ratio"), [("fb15k-237", 3.6), ("wn18rr", 1.7), ("wn18", 1.7)])
def test_facts_per_query_of_benchmark_graphs(benchmark_graphs: Path, name: str, ratio: float) -> None:
    stats = graph_stats(Dataset.load(benchmark_graphs / name, cache=False))
    assert stats.facts_per_query == pytest.approx(ratio, abs=0.05)
    assert sum(row["facts"] for row in stats.categories.values()) == stats.facts["train"]
    assert all(row["relations"] for row in stats.categories.values())
