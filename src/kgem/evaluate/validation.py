"""The figure that decides while a fit runs: filtered MRR on validation, on a fixed part of it if it is huge."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kgem.data.dataset import Dataset, IntArray
from kgem.evaluate.metrics import summarise
from kgem.evaluate.ranking import Scorer, rank
from kgem.model.embeddings import Embeddings

__all__ = ["filtered_mrr", "make_validator", "pick_facts"]

VALIDATION_QUERIES = 20_000  # of a huge validation split, as many are ranked after each epoch


def make_validator(
    data: Dataset, seed: int = 0, stop: Callable[[], bool] | None = None
) -> Callable[[Scorer | Embeddings], float] | None:
    """A function to the filtered MRR on validation; None without validation facts. After a `stop` it means nothing."""
    if not len(data.valid):
        return None
    facts = pick_facts(data.reciprocal(data.valid), VALIDATION_QUERIES, seed)
    return lambda model: filtered_mrr(model, facts, data, stop)


def pick_facts(facts: IntArray, most: int, seed: int) -> IntArray:
    """All of the facts (n, 3), or so many of them at random, in their order."""
    if len(facts) <= most:
        return facts
    return facts[np.sort(np.random.default_rng(seed).choice(len(facts), most, replace=False))]


def filtered_mrr(
    scorer: Scorer | Embeddings, facts: IntArray, data: Dataset, stop: Callable[[], bool] | None = None
) -> float:
    """The paper's, pessimistic about ties, of facts with reciprocal ids."""
    return summarise(rank(scorer, facts, data.filter_index, stop=stop).of("pessimistic")).mrr
