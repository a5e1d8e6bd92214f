"""Numbers as people read them, on the command line and on pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kgem.answer.predict import Answer
    from kgem.evaluate.metrics import Metrics

METRICS = ("MRR", "Hits@1", "Hits@3", "Hits@10", "mean rank", "ranks")  # what `metric_cells` gives


def pluralise(number: int, one: str, many: str | None = None) -> str:
    """1 epoch, 2 epochs."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def list_some(names: Sequence[str], most: int) -> str:
    """The first of the names, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def percent(share: float) -> str:
    """A probability as people read it; what is small is not rounded to nothing."""
    if share >= 0.0995:
        return f"{share:.0%}"
    return f"{share:.1%}" if share >= 0.0005 else "< 0.1%"


def answer_ranges(answer: Answer) -> tuple[str, str]:
    """The intervals of an answer's probability and of its rank; empty where the model has no posterior."""
    if answer.low is None or answer.high is None or answer.rank_low is None or answer.rank_high is None:
        return "", ""
    return _range(percent(answer.low), percent(answer.high)), _range(f"{answer.rank_low:,}", f"{answer.rank_high:,}")


def metric_cells(metrics: Metrics) -> list[str]:
    """The figures of a group of ranks, one for each of METRICS."""
    shares = (metrics.mrr, metrics.hits_at_1, metrics.hits_at_3, metrics.hits_at_10)
    mean = metrics.mean_rank
    return [*(f"{share:.3f}" for share in shares), f"{mean:,.0f}" if mean >= 100 else f"{mean:.1f}", f"{metrics.n:,}"]


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"
