"""Filtered and raw ranks of facts among all entities, in blocks under a memory limit; equal queries scored once.

The paper's filtered rank is one plus the number of incorrect tails whose score is at least the target's.
That settles ties against the model (pessimistic); the other two rules are reported beside it:

    pessimistic  1 + #{ incorrect t' : f(t') >= f(t) }
    optimistic   1 + #{ incorrect t' : f(t') >  f(t) }
    realistic    the mean of both

A score that is not a number is the lowest: a target that has one ranks last under every rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kgem.data.index import LongArray, QueryIndex
from kgem.model.embeddings import Embeddings
from kgem.model.kernels import LANE

__all__ = [
    "MEMORY",
    "OnProgress",
    "Plan",
    "Ranks",
    "Scorer",
    "TableScorer",
    "gather_equal_queries",
    "known_cells",
    "rank",
]

MEMORY = 2**30  # bytes an evaluation may use, unless told otherwise
BLOCK_BYTES = 32 * 2**20  # a block of scores: large enough for fast products
MIN_QUERIES, MAX_QUERIES = 16, 1024  # in a block
MAX_ENTITIES = 2**24  # in a block: up to here float32 counts exactly

Ints = npt.NDArray[np.integer[Any]]
OnProgress = Callable[[int, int], None]  # hears (done, of all)


class Scorer(Protocol):
    """Anything that scores queries against ranges of entities: a model, or an average over a posterior."""

    n_entities: int
    bytes_per_query: int  # working memory beyond the block of scores itself
    bytes_per_entity: int  # likewise, for each entity of a range
    like: Tensor  # scores have its dtype and live on its device

    def prepare(self, heads: Tensor, relations: Tensor) -> Callable[[int, int, Tensor], None]:
        """For some queries: a function that writes the scores of entities start..stop into a block."""
        ...


class TableScorer:
    """Scores from a model's tables."""

    def __init__(self, embeddings: Embeddings) -> None:
        self.embeddings = embeddings
        self.n_entities = embeddings.n_entities
        self.like = embeddings.entities
        (_, width), (_, relation_width) = (table.shape for table in embeddings.tables())
        copies = (not embeddings.score.bilinear) + (not embeddings.reciprocal)  # of the range's rows
        self.bytes_per_query = (4 * width + 2 * relation_width) * self.like.element_size()
        self.bytes_per_entity = copies * (width + 2) * self.like.element_size()

    def prepare(self, heads: Tensor, relations: Tensor) -> Callable[[int, int, Tensor], None]:
        model, score = self.embeddings, self.embeddings.score
        sides = [
            (
                rows,
                reverse,
                score.query(
                    model.heads(heads[rows], reverse=reverse),
                    model.relation_rows(relations[rows], reverse=reverse),
                ),
            )
            for reverse, rows in model.sides(relations)
        ]

        def write(start: int, stop: int, block: Tensor) -> None:
            for rows, reverse, q in sides:
                tails = model.tail_table(reverse=reverse, rows=slice(start, stop))
                if len(sides) > 1:
                    block[rows] = score.compare(q, tails)
                elif score.bilinear:
                    torch.mm(q, tails.T, out=block)
                else:
                    block.copy_(score.compare(q, tails))

        return write


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
) -> Ranks:
    """Rank each fact's tail among all entities, leaving out the known tails (None: raw ranks).

    `facts` (n, 3) hold reciprocal ids for head queries; on_progress hears (queries done, of all).
    """
    if isinstance(scorer, Embeddings):
        scorer = TableScorer(scorer)
    facts = np.asarray(facts).reshape(-1, 3)
    order, firsts = gather_equal_queries(facts)
    above = np.zeros((2, len(facts)), dtype=np.int64)  # strictly higher, at least as high
    plan = Plan.fit(scorer, memory)
    blocks = _Blocks.make(plan, len(firsts), scorer.like)
    borders = [*range(0, len(firsts), plan.queries), len(firsts)]
    starts = np.append(firsts, len(facts))
    for low, high in pairwise(borders):
        mine = order[starts[low] : starts[high]]  # facts of these queries, gathered
        rows = np.repeat(np.arange(high - low), np.diff(starts[low : high + 1]))
        queries = facts[order[starts[low:high]]]
        above[:, mine] = _count(scorer, plan, blocks, queries, rows, facts[mine, 2], known)
        if on_progress:
            on_progress(high, len(firsts))
    return Ranks(facts, optimistic=above[0] + 1, pessimistic=above[1] + 1)


def gather_equal_queries(facts: Ints) -> tuple[Ints, Ints]:
    """An order of the facts in which equal queries follow each other, and where each query begins."""
    keys = facts[:, 1].astype(np.int64) << 32 | facts[:, 0].astype(np.int64)
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    new = np.ones(len(ordered), dtype=bool)
    new[1:] = ordered[1:] != ordered[:-1]
    return order, np.flatnonzero(new)


@dataclass(frozen=True)
class Plan:
    """How many queries and entities a block has, so that all buffers stay under the limit."""

    queries: int
    entities: int

    @classmethod
    def fit(cls, scorer: Scorer, memory: int) -> Plan:
        # Three blocks live at once: scores, the targets' copies of them, comparisons.
        limit = memory // 8
        size = scorer.like.element_size()
        most = max(1, min(MAX_ENTITIES, limit // (MIN_QUERIES * size + scorer.bytes_per_entity)))
        entities = min(scorer.n_entities, most)
        queries = min(BLOCK_BYTES, limit) // (size * entities + scorer.bytes_per_query)
        return cls(max(MIN_QUERIES, min(MAX_QUERIES, queries)), entities)

    def ranges(self, n_entities: int) -> Iterator[tuple[int, int]]:
        for start in range(0, n_entities, self.entities):
            yield start, min(start + self.entities, n_entities)


@dataclass(frozen=True)
class _Blocks:
    """Memory that every block of queries uses again: fresh pages would cost more than the comparisons.

    Rows are padded to whole cache lines, without which the product that writes them is half as fast; the
    padding holds no numbers, and so wins no comparison.
    """

    scores: Tensor  # (queries, padded)
    copies: Tensor
    marks: Tensor

    @classmethod
    def make(cls, plan: Plan, n_queries: int, like: Tensor) -> _Blocks:
        lane = LANE // like.element_size()
        shape = min(plan.queries, max(n_queries, 1)), -(-plan.entities // lane) * lane
        return cls(like.new_empty(shape), like.new_empty(shape), like.new_empty(shape))


def _count(
    scorer: Scorer,
    plan: Plan,
    blocks: _Blocks,
    queries: Ints,
    rows: Ints,
    targets: Ints,
    known: QueryIndex | None,
) -> npt.NDArray[np.int64]:
    """For each target of some queries, how many unknown tails score higher, and at least as high: (2, n)."""
    like = scorer.like

    def put(array: Ints) -> Tensor:
        return torch.from_numpy(array.astype(np.int64)).to(like.device)

    write = scorer.prepare(put(queries[:, 0]), put(queries[:, 1]))
    ranges = list(plan.ranges(scorer.n_entities))
    block = blocks.scores[: len(queries)]

    def fill(start: int, stop: int) -> None:
        block[:, stop - start :] = torch.nan
        write(start, stop, block[:, : stop - start])

    # A target's own score is read from the block, not computed apart, where rounding could differ.
    target_rows, target_tails = put(rows), put(targets)
    scores = like.new_full((len(rows), 1), torch.nan)
    for start, stop in ranges:
        fill(start, stop)
        inside = (target_tails >= start) & (target_tails < stop)
        scores[inside, 0] = block[target_rows[inside], target_tails[inside] - start]

    known_rows, known_tails = known_cells(queries, known)
    answered = put(known_rows), put(known_tails)
    above = torch.zeros(2, len(rows), dtype=torch.int64, device=like.device)
    for start, stop in ranges:
        if len(ranges) > 1:
            fill(start, stop)
        _mask(block[:, : stop - start], start, *answered)
        above += _compare(blocks, len(queries), target_rows, scores)

    n = scorer.n_entities
    itself = ~np.isin(rows * n + targets, known_rows * n + known_tails)  # whether the target was left in the contest
    counts = above.cpu().numpy()
    counts[1] -= itself
    nowhere = scores[:, 0].isnan().cpu().numpy()
    others = n - np.bincount(known_rows, minlength=len(queries))[rows] - itself
    return np.where(nowhere, others, counts)


def known_cells(queries: Ints, known: QueryIndex | None) -> tuple[LongArray, LongArray]:
    """Row and tail of every known answer to some queries."""
    if known is None:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    rows, tails = known.gather(known.find(queries[:, 0], queries[:, 1]))
    return rows, tails.astype(np.int64)


def _mask(block: Tensor, start: int, rows: Tensor, tails: Tensor) -> None:
    """Take the known answers out of the contest: nothing compares with what is not a number."""
    inside = (tails >= start) & (tails < start + block.shape[1])
    block[rows[inside], tails[inside] - start] = torch.nan


def _compare(blocks: _Blocks, n_queries: int, rows: Tensor, scores: Tensor) -> Tensor:
    """Count the block's entries above, and at or above, each target's score, as many at a time as fit: (2, n)."""
    counts = torch.empty(2, len(rows), dtype=torch.int64, device=rows.device)
    alone = len(rows) == n_queries  # one target per query: no copies needed
    for start in range(0, len(rows), len(blocks.copies)):
        here = slice(start, min(start + len(blocks.copies), len(rows)))
        size = here.stop - here.start
        mine, marks = blocks.scores[:size], blocks.marks[:size]
        if not alone:
            mine = torch.index_select(blocks.scores, 0, rows[here], out=blocks.copies[:size])
        # Comparing into floats and adding those up is several times faster than counting booleans.
        counts[0, here] = torch.gt(mine, scores[here], out=marks).sum(dim=1)
        counts[1, here] = torch.ge(mine, scores[here], out=marks).sum(dim=1)
    return counts
