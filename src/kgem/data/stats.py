"""What a person wants to know about a graph before training: sizes, frequencies, categories, cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kgem.data.dataset import SPLITS, Dataset, LongArray

__all__ = [
    "CATEGORIES",
    "FitCost",
    "GraphStats",
    "RelationStats",
    "fit_cost",
    "graph_stats",
    "relation_categories",
]

CATEGORIES = ("1-1", "1-N", "N-1", "N-N")
MANY = 1.5  # average tails per head (heads per tail) from which a side counts as N (Bordes et al. 2013)
QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
_FLOAT_BYTES = 4


@dataclass(frozen=True)
class RelationStats:
    """One relation in the training set."""

    relation: str
    facts: int
    heads: int  # distinct ones
    tails: int
    tails_per_head: float
    heads_per_tail: float
    category: str  # one of CATEGORIES, or "unseen" if train has no fact of it


@dataclass(frozen=True)
class FitCost:
    """What a fit costs, but for its time and its memory."""

    dim: int  # K
    width: int  # K': real numbers per embedding
    parameters: int  # of one set of tables
    exact_operations: int  # an epoch of the exact softmax: of the products that dominate it
    table_bytes: int


@dataclass(frozen=True)
class GraphStats:
    """A graph in numbers; all but `facts` are about its training set."""

    name: str
    entities: int
    relations: int
    facts: dict[str, int]
    augmented_facts: int  # N' (Eq. 7)
    queries: int  # Q: distinct (h, r) of S'
    facts_per_query: float  # N'/Q: how many softmaxes gathering saves
    entity_frequency: dict[str, float]  # quantiles of Fig. 1, left
    relation_frequency: dict[str, float]  # quantiles of Fig. 1, right
    categories: dict[str, dict[str, int]]  # category -> how many relations, how many facts
    per_relation: tuple[RelationStats, ...]  # the most frequent first
    cost: FitCost


def graph_stats(dataset: Dataset, *, dim: int = 100) -> GraphStats:
    """Everything `kgem data stats` shows but the time of a fit; `dim` is for its cost."""
    rows = _per_relation(dataset)
    index = dataset.query_index
    return GraphStats(
        name=dataset.name,
        entities=dataset.n_entities,
        relations=dataset.n_relations,
        facts={split: len(dataset.split(split)) for split in SPLITS},
        augmented_facts=2 * len(dataset.train),
        queries=len(index),
        facts_per_query=2 * len(dataset.train) / len(index),
        entity_frequency=_quantiles(dataset.entity_counts),
        relation_frequency=_quantiles(dataset.relation_counts),
        categories={
            name: {
                "relations": sum(row.category == name for row in rows),
                "facts": sum(row.facts for row in rows if row.category == name),
            }
            for name in CATEGORIES
        },
        per_relation=rows,
        cost=fit_cost(dataset, dim=dim),
    )


def fit_cost(dataset: Dataset, *, dim: int = 100, complex_space: bool = True) -> FitCost:
    """An exact epoch has three products of 2 Q N_e K' operations each."""
    width = dim * (2 if complex_space else 1)
    parameters = (dataset.n_entities + 2 * dataset.n_relations) * width
    return FitCost(
        dim=dim,
        width=width,
        parameters=parameters,
        exact_operations=3 * 2 * len(dataset.query_index) * dataset.n_entities * width,
        table_bytes=parameters * _FLOAT_BYTES,
    )


def relation_categories(dataset: Dataset) -> npt.NDArray[np.str_]:
    """One of CATEGORIES for each relation, or "unseen" if train has no fact of it, (N_r,).

    1-N: a head has many tails; N-1: a tail has many heads.
    """
    facts, heads, tails = _distinct(dataset)
    names = np.array([*CATEGORIES, "unseen"])
    place = 2 * (facts >= MANY * tails) + (facts >= MANY * heads)
    categories: npt.NDArray[np.str_] = names[np.where(facts > 0, place, len(CATEGORIES))]
    return categories


def _distinct(dataset: Dataset) -> tuple[LongArray, LongArray, LongArray]:
    """Facts, distinct heads and distinct tails of each relation in train, (N_r,) each.

    A query (h, r) is a distinct head of r, a query (t, r^-1) a distinct tail.
    """
    n, index = dataset.n_relations, dataset.query_index
    queries = np.bincount(index.relations, minlength=2 * n)
    facts = np.bincount(index.relations, weights=index.counts, minlength=2 * n)[:n]
    return facts.astype(np.int64), queries[:n], queries[n:]


def _per_relation(dataset: Dataset) -> tuple[RelationStats, ...]:
    """One row per relation, the most frequent first."""
    facts, heads, tails = _distinct(dataset)
    forth, back = facts / np.maximum(heads, 1), facts / np.maximum(tails, 1)
    categories = relation_categories(dataset)
    rows = (
        RelationStats(
            relation=dataset.relations[r],
            facts=int(facts[r]),
            heads=int(heads[r]),
            tails=int(tails[r]),
            tails_per_head=float(forth[r]),
            heads_per_tail=float(back[r]),
            category=str(categories[r]),
        )
        for r in np.argsort(-facts, kind="stable")
    )
    return tuple(rows)


def _quantiles(counts: LongArray) -> dict[str, float]:
    names = ("min", *(f"{q:.0%}" for q in QUANTILES[1:-1]), "max")
    values = np.quantile(counts, QUANTILES).tolist()
    return {**dict(zip(names, values, strict=True)), "mean": float(counts.mean())}
