"""Two models on the same facts: the difference of their MRRs and a bootstrap interval of it.

What is drawn again and again, with replacement, are facts: the two questions of a fact (its tail, its head) stay
together, and so do the two models' answers to them. The interval says what another test set of this kind could show;
it says nothing about another seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kgem.data.dataset import Dataset, IntArray
from kgem.data.options import FACT
from kgem.errors import InputError
from kgem.evaluate.blocks import OnProgress, Scorer
from kgem.evaluate.metrics import Metrics, summarise
from kgem.evaluate.ranking import rank

__all__ = ["Difference", "bootstrap_interval", "compare_values", "find_common", "rank_facts"]

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


def find_common(graphs: Sequence[Dataset], split: str) -> list[IntArray]:
    """The facts (n, 3) that all graphs have in this split, in the same order, by the ids of each graph.

    Graphs need not be equal: one may have grown out of the other. An error if no fact is in all of them.
    """
    first = graphs[0]
    if not len(first.split(split)):
        raise InputError(f"{first.name} has no facts in {split}", remedy="compare on another split")
    if all(each.content_hash == first.content_hash for each in graphs):
        return [first.split(split)] * len(graphs)
    frames = [each.frame(split).select(FACT).with_row_index("place") for each in graphs]
    both = frames[0].rename({"place": "0"})
    for number, frame in enumerate(frames[1:], 1):
        both = both.join(frame.rename({"place": f"{number}"}), on=FACT, how="inner", maintain_order="left")
    if not len(both):
        names = " and ".join(dict.fromkeys(repr(each.name) for each in graphs))
        raise InputError(
            f"the graphs of these models have no {split} fact in common: {names}",
            remedy="fit both to the same folder with train, valid and test, or split with the same seed",
        )
    return [each.split(split)[both[f"{number}"].to_numpy()] for number, each in enumerate(graphs)]


def rank_facts(
    scorer: Scorer,
    data: Dataset,
    split: str = "test",
    *,
    facts: IntArray | None = None,
    on_progress: OnProgress | None = None,
) -> tuple[Metrics, Floats]:
    """The figures of a split, or of some facts (n, 3), and the mean reciprocal rank of each's two questions: (n,)."""
    facts = data.split(split) if facts is None else facts
    if not len(facts):
        raise InputError(f"{data.name} has no facts in {split}", remedy="compare on another split")
    ranks = rank(scorer, data.reciprocal(facts), data.filter_index, on_progress=on_progress)
    worst = ranks.of("pessimistic")
    return summarise(worst), (1.0 / worst.astype(np.float64)).reshape(2, -1).mean(axis=0)


def compare_values(first: Floats, second: Floats, rng: np.random.Generator) -> Difference:
    """The mean of second - first over paired facts (n,) each, with its bootstrap interval."""
    if first.shape != second.shape or not len(first):
        raise InputError(f"{len(first)} and {len(second)} facts cannot be paired", remedy="rank the same facts")
    gains = second - first
    low, high = bootstrap_interval(gains, rng)
    return Difference(float(gains.mean()), low, high, LEVEL, len(gains))


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
