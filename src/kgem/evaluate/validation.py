"""The figure that decides while a fit runs: filtered MRR on validation, on a fixed part of it if it is huge."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kgem.data.dataset import Dataset, IntArray
from kgem.evaluate.blocks import AFFORDABLE_SCORES
from kgem.evaluate.metrics import summarise
from kgem.evaluate.ranking import Scorer, rank
from kgem.model.embeddings import Embeddings

__all__ = ["affordable_questions", "filtered_mrr", "make_validator", "pick_facts", "validation_facts"]

VALIDATION_QUERIES = 20_000  # of a huge validation split, as many are ranked after each epoch
FEWEST_QUERIES, SCORES = 2_000, 10**9  # of a graph with many entities, as many as have so many scores together


def make_validator(
    data: Dataset, seed: int = 0, most: int | None = None, stop: Callable[[], bool] | None = None
) -> Callable[[Scorer | Embeddings], float] | None:
    """A function to the filtered MRR on validation, on `most` questions; None without validation facts.

    After a `stop` it means nothing.
    """
    if not len(data.valid):
        return None
    facts = validation_facts(data, seed, most)
    return lambda model: filtered_mrr(model, facts, data, stop)


def validation_facts(data: Dataset, seed: int = 0, most: int | None = None) -> IntArray:
    """Those that are ranked after each epoch, with reciprocal ids: (n, 3); fewer where there are many entities."""
    most = most or min(VALIDATION_QUERIES, max(FEWEST_QUERIES, SCORES // data.n_entities))
    return pick_facts(data.reciprocal(data.valid), most, seed)


def affordable_questions(n_entities: int, scores: int = AFFORDABLE_SCORES) -> int:
    """How many are ranked at the end of a fit, and for its report: of up to a million entities 17,000 or more."""
    return max(FEWEST_QUERIES, scores // n_entities)


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
