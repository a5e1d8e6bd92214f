"""Ranks to figures: MRR, mean rank and Hits@k; overall, per side, relation, category and frequency bin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kgem.data.dataset import Dataset
from kgem.data.stats import relation_categories
from kgem.evaluate.ranking import Ranks
from kgem.tables import Bar, Table, draw_table

if TYPE_CHECKING:
    import polars as pl

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
PARTS = ("ties", "side", "category", "frequency", "relation")  # an evaluation's figures by what
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


@dataclass(frozen=True, repr=False)
class Evaluation(Table):
    """All figures of one evaluation; `overall` uses the paper's pessimistic rule."""

    overall: Metrics
    by_ties: Mapping[str, Metrics]
    by_side: Mapping[str, Metrics]
    by_category: Mapping[str, Metrics]
    by_frequency: Mapping[str, Metrics]
    by_relation: Mapping[str, Metrics]
    unseen_targets: int  # ranked targets that training never showed: kept, and counted here
    available: int | None = None  # questions that there were to rank; None if nobody counted them

    @property
    def mrr(self) -> float:
        return self.overall.mrr

    @property
    def hits_at_10(self) -> float:
        return self.overall.hits_at_10

    @property
    def hits_at_1(self) -> float:
        return self.overall.hits_at_1

    @property
    def hits_at_3(self) -> float:
        return self.overall.hits_at_3

    @property
    def mean_rank(self) -> float:
        return self.overall.mean_rank

    @property
    def is_sample(self) -> bool:
        """Whether the figures are of some questions only, drawn at random."""
        return self.available is not None and self.overall.n < self.available

    @property
    def questions(self) -> str:
        """How many were ranked, and of how many if these are not all."""
        rest = f" of {self.available:,}" if self.is_sample else ""
        return f"{self.overall.n:,}{rest} questions{', at random' if rest else ''}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_polars(self) -> pl.DataFrame:
        """One row for each set of ranks: all of them, and by side, category, frequency and relation."""
        import polars as pl

        parts = {"all": {"": self.overall}, **{name: getattr(self, f"by_{name}") for name in PARTS}}
        rows = [
            {"by": by, "name": name, **asdict(metrics)} for by, part in parts.items() for name, metrics in part.items()
        ]
        return pl.DataFrame(rows)

    def _repr_html_(self) -> str:
        parts = {"all": self.overall, **{f"for the {side}": m for side, m in self.by_side.items()}, **self.by_category}
        rows = (
            (name, Bar(m.mrr), m.mrr, m.hits_at_1, m.hits_at_3, m.hits_at_10, m.mean_rank, m.n)
            for name, m in parts.items()
        )
        columns = ("ranks", "", "MRR", "Hits@1", "Hits@3", "Hits@10", "mean rank", "questions")
        about = f"{self.questions}; " if self.is_sample else ""
        return draw_table("Evaluation", columns, rows, len(parts), f"{about}by relation and frequency: .to_polars()")

    def __repr__(self) -> str:
        return f"<Evaluation MRR {self.mrr:.4f}, Hits@10 {self.hits_at_10:.4f}, {self.questions}>"


def summarise(ranks: npt.NDArray[Any]) -> Metrics:
    """Eqs. 18-19: MRR and Hits@k of some ranks."""
    return next(iter(_by_group(ranks, np.zeros(len(ranks), dtype=np.int64), ["all"]).values()), _NOTHING)


def breakdown(ranks: Ranks, data: Dataset, available: int | None = None) -> Evaluation:
    """Everything worth knowing about the ranks of a split, or of some of its `available` questions."""
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
        available=available,
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
