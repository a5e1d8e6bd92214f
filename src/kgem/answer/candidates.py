"""Who may answer a question, and which answers a graph has already: what depends on the graph alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from kgem.data.dataset import SPLITS, Dataset, LongArray, QueryIndex
from kgem.data.index import fact_keys

__all__ = ["Candidates"]

LOOPS = 0.05  # of a relation's facts: fewer from an entity to itself are taken for slips


@dataclass(frozen=True, eq=False)
class Candidates:
    """A graph's answers, known and possible; what is looked up is made once."""

    data: Dataset
    rejected: LongArray = field(default_factory=lambda: np.empty((0, 3), dtype=np.int64))  # by people: no proposals

    def is_rejected(self, facts: LongArray) -> npt.NDArray[np.bool_]:
        """Whether each fact (n, 3) was rejected as a proposal, (n,)."""
        n, m = self.data.n_entities, self.data.n_relations
        return np.isin(fact_keys(facts, n, m), fact_keys(self.rejected, n, m))

    @cached_property
    def loops(self) -> npt.NDArray[np.bool_]:
        """The relations of which at least one training fact in twenty goes from an entity to itself, (N_r,)."""
        enough: npt.NDArray[np.bool_] = self.loop_counts >= np.maximum(LOOPS * self.data.relation_counts, 1)
        return enough

    @cached_property
    def loop_counts(self) -> LongArray:
        """How many training facts of each relation go from an entity to itself, (N_r,)."""
        heads, relations, tails = self.data.train.T
        return np.bincount(relations[heads == tails], minlength=self.data.n_relations)

    def are_slips(self, facts: LongArray) -> npt.NDArray[np.bool_]:
        """Which of the facts (n, 3) go from an entity to itself, as neither `loops` nor training has it: (n,)."""
        heads, relations = facts[:, 0].astype(np.int64), facts[:, 1].astype(np.int64)
        known = np.isin(heads * self.data.n_relations + relations, self._known_loops)
        slips: npt.NDArray[np.bool_] = (facts[:, 0] == facts[:, 2]) & ~self.loops[relations] & ~known
        return slips

    @cached_property
    def _known_loops(self) -> LongArray:
        """h * N_r + r of the training facts from an entity to itself."""
        facts = self.data.train[self.data.train[:, 0] == self.data.train[:, 2]].astype(np.int64)
        keys: LongArray = facts[:, 0] * self.data.n_relations + facts[:, 1]
        return keys

    def self_answers(self, queries: LongArray) -> tuple[LongArray, LongArray]:
        """Cells of (b, N_e) that answer a query (b, 2) with its own entity, where that is no candidate.

        "France borders France" scores high, because France is like its neighbours; nothing in the loss speaks
        against it but that it is not among the facts. It is a candidate where `loops` says so, or training has it.
        """
        n = self.data.n_relations
        heads, relations = queries[:, 0].astype(np.int64), queries[:, 1].astype(np.int64) % n  # same from either side
        known = np.isin(heads * n + relations, self._known_loops)
        rows = np.flatnonzero(~self.loops[relations] & ~known)
        return rows, heads[rows]

    @cached_property
    def split_indexes(self) -> dict[str, QueryIndex]:
        """The known answers of each split that has any."""
        data, n = self.data, 2 * self.data.n_relations
        held_out = {
            split: QueryIndex.build(data.reciprocal(data.split(split)), data.n_entities, n)
            for split in SPLITS[1:]
            if len(data.split(split))
        }
        return {"train": data.query_index, **held_out}
