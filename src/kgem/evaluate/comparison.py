"""Two models on the same facts: the difference of their MRRs and a bootstrap interval of it.

What is drawn again and again, with replacement, are facts: the two questions of a fact (its tail, its head) stay
together, and so do the two models' answers to them. The interval says what another test set of this kind could show;
it says nothing about another seed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kgem.data.dataset import Dataset
from kgem.errors import InputError
from kgem.evaluate.blocks import MEMORY, OnProgress, Scorer
from kgem.evaluate.metrics import Metrics, summarise
from kgem.evaluate.ranking import rank

__all__ = ["Difference", "bootstrap_interval", "check_same_facts", "compare_values", "rank_facts"]

RESAMPLES = 10_000
LEVEL = 0.95
CELLS = 2**22  # facts drawn at a time

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Difference:
    """How much higher the second MRR is."""

    value: float
    low: float
    high: float
    level: float  # of the interval from low to high
    n: int  # facts

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low > 0 or self.high < 0

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"clear": self.clear}


def check_same_facts(first: Dataset, second: Dataset) -> None:
    """An error unless both are the same graph with the same splits."""
    if first.content_hash != second.content_hash:
        raise InputError(
            f"the models are of different graphs or splits: {first.name!r} and {second.name!r}",
            remedy="fit both to the same folder with train, valid and test, or split with the same seed",
        )


def rank_facts(
    scorer: Scorer,
    data: Dataset,
    split: str = "test",
    *,
    memory: int = MEMORY,
    on_progress: OnProgress | None = None,
) -> tuple[Metrics, Floats]:
    """The figures of a split, and the mean reciprocal rank of each fact's two questions: (n,)."""
    facts = data.split(split)
    if not len(facts):
        raise InputError(f"{data.name} has no facts in {split}", remedy="compare on another split")
    ranks = rank(scorer, data.reciprocal(facts), data.filter_index, memory=memory, on_progress=on_progress)
    worst = ranks.of("pessimistic")
    return summarise(worst), (1.0 / worst.astype(np.float64)).reshape(2, -1).mean(axis=0)


def compare_values(
    first: Floats, second: Floats, rng: np.random.Generator, *, resamples: int = RESAMPLES, level: float = LEVEL
) -> Difference:
    """The mean of second - first over paired facts (n,) each, with its bootstrap interval."""
    if first.shape != second.shape or not len(first):
        raise InputError(f"{len(first)} and {len(second)} facts cannot be paired", remedy="rank the same facts")
    gains = second - first
    low, high = bootstrap_interval(gains, rng, resamples=resamples, level=level)
    return Difference(float(gains.mean()), low, high, level, len(gains))


def bootstrap_interval(
    values: Floats, rng: np.random.Generator, *, resamples: int = RESAMPLES, level: float = LEVEL
) -> tuple[float, float]:
    """Percentile interval of the mean of values (n,), drawn anew with replacement `resamples` times."""
    n, at_once = len(values), max(1, CELLS // len(values))
    means = np.concatenate(
        [
            values[rng.integers(n, size=(min(at_once, resamples - start), n))].mean(axis=1)
            for start in range(0, resamples, at_once)
        ]
    )
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
