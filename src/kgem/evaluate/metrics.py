"""Ranks to figures: MRR, mean rank and Hits@k; overall, per side, relation, category and frequency bin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kgem.data.dataset import Dataset
from kgem.data.stats import relation_categories
from kgem.evaluate.ranking import Ranks

__all__ = [
    "FREQUENCY_BINS",
    "TIE_RULES",
    "Evaluation",
    "Metrics",
    "breakdown",
    "frequency_bin",
    "frequency_names",
    "summarise",
]

TIE_RULES = ("pessimistic", "optimistic", "realistic")
FREQUENCY_BINS = (0, 1, 3, 10, 30, 100, 300, 1000)  # lower borders of the bins


@dataclass(frozen=True)
class Metrics:
    """What a set of ranks amounts to."""

    n: int
    mrr: float
    mean_rank: float
    hits_at_1: float
    hits_at_3: float
    hits_at_10: float


@dataclass(frozen=True)
class Evaluation:
    """All figures of one evaluation; `overall` uses the paper's pessimistic rule."""

    overall: Metrics
    by_ties: Mapping[str, Metrics]
    by_side: Mapping[str, Metrics]
    by_category: Mapping[str, Metrics]
    by_frequency: Mapping[str, Metrics]
    by_relation: Mapping[str, Metrics]
    unseen_targets: int  # ranked targets that training never showed: kept, and counted here

    @property
    def mrr(self) -> float:
        return self.overall.mrr

    @property
    def hits_at_10(self) -> float:
        return self.overall.hits_at_10

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def summarise(ranks: npt.NDArray[Any]) -> Metrics:
    """Eqs. 18-19: MRR and Hits@k of some ranks."""
    return next(iter(_by_group(ranks, np.zeros(len(ranks), dtype=np.int64), ["all"]).values()), _NOTHING)


def breakdown(ranks: Ranks, data: Dataset) -> Evaluation:
    """Everything worth knowing about the ranks of a split."""
    worst = ranks.of("pessimistic")
    _, relations, tails = ranks.facts.T
    reverse = relations >= data.n_relations
    base = relations % data.n_relations
    counts = data.entity_counts[tails]
    categories, category_of = np.unique(relation_categories(data), return_inverse=True)
    return Evaluation(
        overall=summarise(worst),
        by_ties={rule: summarise(ranks.of(rule)) for rule in TIE_RULES},
        by_side=_by_group(worst, reverse.astype(np.int64), ["tail", "head"]),
        by_category=_by_group(worst, category_of[base], [str(c) for c in categories]),
        by_frequency=_by_group(worst, frequency_bin(counts), frequency_names()),
        by_relation=_by_group(worst, base, data.relations.labels),
        unseen_targets=int((counts == 0).sum()),
    )


def frequency_bin(counts: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Which of FREQUENCY_BINS each training count falls into."""
    return np.searchsorted(FREQUENCY_BINS, counts, side="right") - 1


def frequency_names() -> list[str]:
    uppers = [high - 1 for high in FREQUENCY_BINS[1:]]
    names = [str(low) if low == high else f"{low}-{high}" for low, high in zip(FREQUENCY_BINS, uppers, strict=False)]
    return [*names, f"{FREQUENCY_BINS[-1]}+"]


_NOTHING = Metrics(0, float("nan"), float("nan"), float("nan"), float("nan"), float("nan"))


def _by_group(ranks: npt.NDArray[Any], group: npt.NDArray[np.int64], names: Sequence[str]) -> dict[str, Metrics]:
    """The figures of each group that has any rank, without a loop over ranks."""
    n = np.bincount(group, minlength=len(names))

    def mean(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        return np.bincount(group, weights=values, minlength=len(names)) / np.maximum(n, 1)

    columns = [mean(1.0 / ranks), mean(ranks), *(mean(ranks <= k) for k in (1, 3, 10))]
    return {names[i]: Metrics(int(n[i]), *(float(column[i]) for column in columns)) for i in np.flatnonzero(n).tolist()}
