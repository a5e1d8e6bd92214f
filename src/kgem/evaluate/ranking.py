"""Filtered and raw ranks of facts among all entities, in blocks under a memory limit.

The paper's filtered rank is one plus the number of incorrect tails whose score is at least the target's.
That settles ties against the model (pessimistic); the other two rules are reported beside it:

    pessimistic  1 + #{ incorrect t' : f(t') >= f(t) }
    optimistic   1 + #{ incorrect t' : f(t') >  f(t) }
    realistic    the mean of both

A score that is not a number is the lowest: a target that has one ranks last under every rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kgem.data.index import QueryIndex
from kgem.evaluate.blocks import MEMORY, Block, Blocks, Ints, OnProgress, Scorer, Targets, shards_of
from kgem.model.embeddings import Embeddings

__all__ = ["MEMORY", "OnProgress", "Ranks", "Scorer", "rank"]

COMPARED_BYTES = 2**20  # of scores that are compared at a time: their marks are counted before they leave the cache


@dataclass(frozen=True, eq=False)
class Ranks:
    """The ranks of facts, head queries included as queries on the reciprocal relation."""

    facts: Ints  # (n, 3): head, relation (ids from n_relations on are reciprocal), tail
    optimistic: npt.NDArray[np.int64]  # (n,)
    pessimistic: npt.NDArray[np.int64]  # (n,)

    @property
    def realistic(self) -> npt.NDArray[np.float64]:
        return (self.optimistic + self.pessimistic) / 2

    def of(self, ties: str) -> npt.NDArray[Any]:
        """The ranks under one tie rule."""
        ranks: npt.NDArray[Any] = getattr(self, ties)
        return ranks

    def __len__(self) -> int:
        return len(self.facts)


@torch.no_grad()
def rank(
    scorer: Scorer | Embeddings,
    facts: Ints,
    known: QueryIndex | None,
    *,
    memory: int = MEMORY,
    on_progress: OnProgress | None = None,
    stop: Callable[[], bool] | None = None,
) -> Ranks:
    """Rank each fact's tail among all entities, leaving out the known tails (None: raw ranks).

    `facts` (n, 3) hold reciprocal ids for head queries; on_progress hears (queries done, of all). Asked to `stop` it
    ends at once: whoever asks does not want the ranks.
    """
    facts = np.asarray(facts).reshape(-1, 3)
    above = np.zeros((2, len(facts)), dtype=np.int64)  # strictly higher, at least as high
    blocks = Blocks(scorer, facts, memory, on_progress=on_progress)
    row_bytes = blocks.entities * blocks.scorer.like.element_size()
    scratch = tuple(blocks.new_buffer(queries=max(2, COMPARED_BYTES // row_bytes)) for _ in range(2))
    for block in blocks:
        if stop is not None and stop():
            break
        above[:, block.places] = _count_above(block, Targets(block, facts, known), scratch)
    return Ranks(facts, optimistic=above[0] + 1, pessimistic=above[1] + 1)


def _count_above(block: Block, targets: Targets, scratch: tuple[Tensor, ...]) -> npt.NDArray[np.int64]:
    """For each target of some queries, how many unknown tails score higher, and at least as high: (2, n)."""
    # A target's own score is read from the block, not computed apart, where rounding could differ.
    own = block.buffer.new_full((len(block.rows),), torch.nan)
    for start, scores in block.scores():
        targets.read(start, scores, own)
    shards = shards_of(block.scorer)
    own = shards.choose(own, targets.tails)
    above = torch.zeros(2, len(own), dtype=torch.int64, device=own.device)
    for start, scores in block.scores(again=True):
        targets.leave_out(start, scores, torch.nan)  # nothing compares with what is not a number
        above += _compare(scores, block.rows, own[:, None], scratch)
    counts = (above if shards.n_rows is None else shards.processes.sum(above)).cpu().numpy()
    counts[1] -= ~targets.known  # itself, where it was left in the competition
    others = block.scorer.n_entities - targets.left_out[block.rows] - ~targets.known
    return np.where(own.isnan().cpu().numpy(), others, counts)


def _compare(scores: Tensor, rows: Ints, own: Tensor, scratch: tuple[Tensor, ...]) -> Tensor:
    """Count the scores above, and at or above, each target's own (n, 1), some at a time, in the cache: (2, n).

    `rows` (n,), ascending, are the queries of the targets.
    """
    counts = torch.empty(2, len(rows), dtype=torch.int64, device=scores.device)
    copies, marks = (each[:, : scores.shape[1]] for each in scratch)
    for start in range(0, len(rows), len(copies)):
        here = slice(start, min(start + len(copies), len(rows)))
        size, first = here.stop - here.start, int(rows[here.start])
        if rows[here.stop - 1] - first == size - 1:  # one target per query: no copies needed
            mine = scores[first : first + size]
        else:
            ids = torch.from_numpy(rows[here].astype(np.int64)).to(scores.device)
            mine = torch.index_select(scores, 0, ids, out=copies[:size])
        # Comparing into floats and adding those up is several times faster than counting booleans.
        counts[0, here] = torch.gt(mine, own[here], out=marks[:size]).sum(dim=1)
        counts[1, here] = torch.ge(mine, own[here], out=marks[:size]).sum(dim=1)
    return counts
