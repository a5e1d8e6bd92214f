"""Scores of queries against entities, in blocks under a memory limit; equal queries are scored once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kgem.data.index import LongArray, QueryIndex
from kgem.model.embeddings import Embeddings
from kgem.model.kernels import LANE
from kgem.model.products import multiply
from kgem.model.shards import WHOLE, Shards

__all__ = [
    "AFFORDABLE_SCORES",
    "MEMORY",
    "Block",
    "Blocks",
    "Ints",
    "OnProgress",
    "Scorer",
    "TableScorer",
    "Targets",
    "known_cells",
    "shards_of",
]

MEMORY = 2**30  # bytes an evaluation may use, unless told otherwise
BLOCK_BYTES = 32 * 2**20  # a block of scores: large enough for fast products
MIN_QUERIES, MAX_QUERIES = 16, 1024  # in a block
AFFORDABLE_SCORES = 2**34  # questions times entities: what nobody asked for by hand takes minutes, not hours
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


def shards_of(scorer: Scorer) -> Shards:
    """The entities that this process can score: all of them, unless several work together."""
    shards: Shards = getattr(scorer, "shards", WHOLE)
    return shards


class TableScorer:
    """Scores from a model's tables."""

    def __init__(self, embeddings: Embeddings) -> None:
        self.embeddings = embeddings
        self.n_entities = embeddings.n_entities
        self.shards = embeddings.shards
        self.like = embeddings.entities
        (_, width), (_, relation_width) = (table.shape for table in embeddings.tables())
        copies = (not embeddings.score.bilinear) + (not embeddings.reciprocal)  # of the range's rows
        mixed = max(relation_width, embeddings.n_shared)  # numbers that a query takes for its relation, at most
        self.bytes_per_query = (4 * width + 2 * mixed) * self.like.element_size()
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
            first = self.shards.start
            for rows, reverse, q in sides:
                tails = model.tail_table(reverse=reverse, rows=slice(start - first, stop - first))
                if len(sides) > 1:
                    block[rows] = score.compare(q, tails)
                elif score.bilinear:
                    multiply(q, tails.T, out=block)
                else:
                    block.copy_(score.compare(q, tails))

        return write


class Blocks:
    """Queries in blocks and entities in ranges, as many of each as the limit of memory allows; iterating scores them.

    `facts` (n, 2 or more) begin with head and relation. With `gather` equal ones are one query, else each is one, in
    the given order. `whole` asks for all entities in one range: a block may then have a single query, and go beyond the
    limit with it. `tables` is how many scores a query has for each entity, if more than one scorer answers it.
    """

    def __init__(
        self,
        scorer: Scorer | Embeddings,
        facts: Ints,
        memory: int = MEMORY,
        *,
        gather: bool = True,
        whole: bool = False,
        tables: int = 1,
        on_progress: OnProgress | None = None,
    ) -> None:
        scorer = TableScorer(scorer) if isinstance(scorer, Embeddings) else scorer
        self.scorer, self._facts, self._on_progress = scorer, facts, on_progress
        every = np.arange(len(facts))
        self._order, firsts = _gather_equal_queries(facts) if gather else (every, every)
        self._starts = np.append(firsts, len(facts))
        self.n_queries = len(firsts)
        limit = memory // 8  # three blocks may live at once: scores, copies of them, comparisons
        size = scorer.like.element_size()
        most = max(1, min(MAX_ENTITIES, limit // (MIN_QUERIES * size + scorer.bytes_per_entity)))
        self.shards = shards_of(scorer)
        here = self.shards.largest or scorer.n_entities  # the same in all processes
        self.entities = here if whole else min(here, most)  # in a range
        affordable = min(BLOCK_BYTES, limit) // (tables * size * self.entities + scorer.bytes_per_query)
        self.queries = max(1 if whole else MIN_QUERIES, min(MAX_QUERIES, affordable))  # in a block

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The first entity of each range and the one after its last."""
        first, last = self.shards.clip(0, self.scorer.n_entities)
        return [(start, min(start + self.entities, last)) for start in range(first, last, self.entities)]

    def new_buffer(self, queries: int | None = None) -> Tensor:
        """Memory for the scores of any block, or of so many queries, to be used again and again: fresh pages cost much.

        Rows are padded to whole cache lines, without which the product that writes them is half as fast.
        """
        lane = LANE // self.scorer.like.element_size()
        most = self.queries if queries is None else min(queries, self.queries)
        shape = min(most, max(self.n_queries, 1)), -(-self.entities // lane) * lane
        return self.scorer.like.new_empty(shape)

    def __iter__(self) -> Iterator[Block]:
        buffer, starts = self.new_buffer(), self._starts
        for low, high in pairwise([*range(0, self.n_queries, self.queries), self.n_queries]):
            places = self._order[starts[low] : starts[high]]
            rows = np.repeat(np.arange(high - low), np.diff(starts[low : high + 1]))
            queries = self._facts[self._order[starts[low:high]], :2].astype(np.int64)
            yield Block(self.scorer, queries, places, rows, self.ranges, buffer[: high - low])
            if self._on_progress:
                self._on_progress(high, self.n_queries)


@dataclass(frozen=True, eq=False)
class Block:
    """Some queries and the facts that ask them; its memory is the next one's too."""

    scorer: Scorer
    queries: LongArray  # (b, 2)
    places: LongArray  # (n,), of the facts among all
    rows: LongArray  # (n,), the query of each fact
    ranges: list[tuple[int, int]]
    buffer: Tensor  # (b, padded)

    def scores(self, *, again: bool = False) -> Iterator[tuple[int, Tensor]]:
        """For each range of entities its start and scores (b, entities); `again` leaves a single one as it is."""
        for start, stop in self.ranges:
            scores = self.buffer[:, : stop - start]
            if not again or len(self.ranges) > 1:
                self._write(start, stop, scores)
            yield start, scores

    @cached_property
    def _write(self) -> Callable[[int, int, Tensor], None]:
        return self.scorer.prepare(*self.ids)

    @cached_property
    def ids(self) -> tuple[Tensor, Tensor]:
        """Heads and relations of the queries, (b,) each."""
        return self.put(self.queries[:, 0]), self.put(self.queries[:, 1])

    def put(self, ids: Ints) -> Tensor:
        """Where the scores are."""
        return torch.from_numpy(ids.astype(np.int64)).to(self.scorer.like.device)


class Targets:
    """The tails of a block's facts, and the known answers of its queries, which are left out of the competition."""

    def __init__(self, block: Block, facts: Ints, known: QueryIndex | None) -> None:
        n, tails = block.scorer.n_entities, facts[block.places, 2]
        known_rows, known_tails = known_cells(block.queries, known)
        self.rows, self.tails = block.put(block.rows), block.put(tails)  # (n,) each: the query, the entity
        self.known = np.isin(
            block.rows * n + tails, known_rows * n + known_tails
        )  # (n,), whether it is left out itself
        self.left_out = np.bincount(known_rows, minlength=len(block.queries))  # (b,), how many are
        self._cells = block.put(known_rows), block.put(known_tails)

    def read(self, start: int, scores: Tensor, out: Tensor) -> None:
        """Write the scores of those targets that are in a range into out (n,)."""
        inside = (self.tails >= start) & (self.tails < start + scores.shape[1])
        out[inside] = scores[self.rows[inside], self.tails[inside] - start]

    def leave_out(self, start: int, scores: Tensor, value: float) -> None:
        """Give the known answers that are in a range this score."""
        rows, tails = self._cells
        inside = (tails >= start) & (tails < start + scores.shape[1])
        scores[rows[inside], tails[inside] - start] = value


def known_cells(queries: Ints, known: QueryIndex | None) -> tuple[LongArray, LongArray]:
    """Row and tail of every known answer to some queries."""
    if known is None:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    rows, tails = known.gather(known.find(queries[:, 0], queries[:, 1]))
    return rows, tails.astype(np.int64)


def _gather_equal_queries(facts: Ints) -> tuple[LongArray, LongArray]:
    """An order of the facts in which equal queries follow each other, and where each query begins."""
    keys = facts[:, 1].astype(np.int64) << 32 | facts[:, 0].astype(np.int64)
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    new = np.ones(len(ordered), dtype=bool)
    new[1:] = ordered[1:] != ordered[:-1]
    return order, np.flatnonzero(new)
