"""How good proposals are: how many of the first ones are test facts, and how many were claimed to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from kgem.answer.features import Bools, Floats, Known, view_facts
from kgem.answer.modes import ModeScorer
from kgem.answer.proposals import POOL, find_candidates
from kgem.errors import InputError
from kgem.evaluate.blocks import MEMORY, OnProgress
from kgem.evaluate.frequency import FrequencyScorer
from kgem.evaluate.temperature import Temperature

__all__ = ["FIRST", "ProposalQuality", "measure_proposals"]

FIRST = (100, 500, 1000)
BIN = 100  # proposals


@dataclass(frozen=True)
class ProposalQuality:
    """Of proposals that training and validation do not have: the share that are test facts."""

    first: tuple[int, ...]  # N
    learned: tuple[float, ...] | None  # of the first N in the learned order; None without one
    by_share: tuple[float, ...]  # in the order of their share among known answers
    by_frequency: tuple[float, ...]  # of what is most frequent, whoever it is asked about
    claimed: tuple[float, ...]  # the mean of what the learned order says about a hundred each, in its order
    found: tuple[float, ...]  # and the share of each hundred that are test facts
    test_facts: int

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def measure_proposals(
    mode: ModeScorer, *, memory: int = MEMORY, on_progress: OnProgress | None = None
) -> ProposalQuality:
    """Propose as if test facts were not known, and count them."""
    data = mode.data
    if not len(data.test):
        raise InputError("proposals are measured by test facts, and there are none", remedy="fit with --test 0.1")
    known = Known.of(data, np.concatenate([data.train, data.valid]))
    test = Known.of(data, data.test)
    found = find_candidates(mode, known, POOL, memory=memory, on_progress=on_progress)
    views = view_facts(mode, found, Known.training(data), known, memory=memory)
    by_rule = replace(mode, scorer=FrequencyScorer(data), temperature=Temperature(1.0), ranker=None)
    frequent = find_candidates(by_rule, known, max(FIRST), memory=memory)
    right = test.has(found)
    claims, hits = np.empty(0), np.empty(0, dtype=bool)
    if mode.ranker is not None:
        features = views.features()
        chance = mode.ranker.chance_in_test(features, found[:, 1])
        order = np.argsort(-mode.ranker.chance(features, found[:, 1]), kind="stable")
        order = order[~views.breaks_a_rule[order]][: max(FIRST)]
        claims, hits = chance[order], right[order]
    bins = range(0, len(hits) - BIN + 1, BIN)
    return ProposalQuality(
        first=FIRST,
        learned=None if mode.ranker is None else _precision(hits, FIRST),
        by_share=_precision(right, FIRST),
        by_frequency=_precision(test.has(frequent), FIRST),
        claimed=tuple(_mean(claims[start : start + BIN]) for start in bins),
        found=tuple(_mean(hits[start : start + BIN]) for start in bins),
        test_facts=len(data.test),
    )


def _precision(right: Bools, first: Sequence[int]) -> tuple[float, ...]:
    """The share of the first N that are right; those that there are not are wrong."""
    return tuple(float(right[:n].sum()) / n for n in first)


def _mean(values: Floats | Bools) -> float:
    return float(values.mean())
