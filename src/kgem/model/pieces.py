"""Queries as tensors, and minibatches of them with all that a step reads, gathered for many steps at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import torch
from torch import Tensor

from kgem.data.index import QueryIndex
from kgem.model.exact_pass import Questions

__all__ = ["Batch", "Batches", "Pieces", "shuffle_batches"]

GATHERED = 2**15  # queries that are gathered at a time, in whole batches


def shuffle_batches(n_items: int, size: int, generator: torch.Generator) -> list[Tensor]:
    """A random order cut into batches whose sizes differ by at most one.

    A short last batch would be scaled up by Q / |B| and shake the whole model.
    """
    order = torch.randperm(n_items, generator=generator)
    return list(order.tensor_split(max(1, round(n_items / size))))


@dataclass(frozen=True, eq=False)
class Batch:
    """Some queries with their observed tails."""

    items: Tensor  # (b,) their numbers
    heads: Tensor  # (b,)
    relations: Tensor  # (b,)
    counts: Tensor  # (b,) n_q, of the tables' type
    rows: Tensor  # (pairs,), ascending: the query of each observed tail, within the batch
    tails: Tensor  # (pairs,)

    def __len__(self) -> int:
        return len(self.items)


@dataclass(frozen=True, eq=False)
class Pieces:
    """Queries as tensors; one with more than max_tails tails is cut into several."""

    heads: Tensor  # (Q,)
    relations: Tensor  # (Q,)
    starts: Tensor  # (Q,) where the tails of each begin
    counts: Tensor  # (Q,) how many there are
    tails: Tensor  # (N',)

    @classmethod
    def cut(cls, index: QueryIndex, max_tails: int | None, device: torch.device) -> Pieces:
        counts = index.counts
        most = max_tails or max(int(counts.max(initial=1)), 1)
        pieces = -(-counts // most)
        owner = np.repeat(np.arange(len(index)), pieces)
        nth = np.arange(len(owner)) - (np.cumsum(pieces) - pieces)[owner]
        starts = index.offsets[owner] + nth * most
        stops = np.minimum(starts + most, index.offsets[owner + 1])

        def put(array: np.ndarray) -> Tensor:
            return torch.from_numpy(array.astype(np.int64)).to(device)

        return cls(
            put(index.heads[owner]),
            put(index.relations[owner]),
            put(starts),
            put(stops - starts),
            put(index.tails),
        )

    def __len__(self) -> int:
        return len(self.heads)

    def tails_of(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Offsets (b + 1,) and observed tails (pairs,) of these queries, in their order."""
        counts, starts = self.counts.index_select(0, queries), self.starts.index_select(0, queries)
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        shift = torch.repeat_interleave(starts - offsets[:-1], counts)
        return offsets, self.tails.index_select(0, shift.add_(torch.arange(len(shift), device=shift.device)))

    def gather(self, batches: Sequence[Tensor], dtype: torch.dtype) -> list[Batch]:
        """All that steps with these queries read, one (b,) for each; `dtype` is that of the tables."""
        items = torch.cat(list(batches)).to(self.heads.device)
        sizes = [len(batch) for batch in batches]
        offsets, tails = self.tails_of(items)
        borders = offsets[np.cumsum([0, *sizes])].tolist()
        pairs = np.diff(borders).tolist()
        places = torch.cat([torch.arange(size, device=items.device) for size in sizes])  # within each batch
        rows = torch.repeat_interleave(places, offsets.diff(), output_size=len(tails))
        by_query = (items, self.heads[items], self.relations[items], self.counts[items].to(dtype))
        columns = [torch.split(column, sizes) for column in by_query]
        columns += [torch.split(column, pairs) for column in (rows, tails)]
        return [Batch(*each) for each in zip(*columns, strict=True)]

    def questions(self, most: int) -> Questions:
        """Some of them, evenly spread, to be looked at exactly."""
        wanted = torch.linspace(0, len(self) - 1, min(most, len(self)), device=self.heads.device).long()
        offsets, tails = self.tails_of(wanted)
        return Questions(self.heads[wanted], self.relations[wanted], torch.repeat_interleave(offsets.diff()), tails)


class Batches(Sequence[Batch]):
    """The minibatches of an epoch; those of many steps are gathered together, when the first of them is wanted."""

    def __init__(self, pieces: Pieces, items: Sequence[Tensor], dtype: torch.dtype) -> None:
        self._pieces, self._items, self._dtype = pieces, items, dtype
        self._together = max(1, GATHERED // max(1, len(items[0]))) if items else 1
        self._first = -1
        self._gathered: list[Batch] = []

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, step: int) -> Batch: ...
    @overload
    def __getitem__(self, step: slice) -> Batches: ...
    def __getitem__(self, step: int | slice) -> Batch | Batches:
        if isinstance(step, slice):
            return Batches(self._pieces, self._items[step], self._dtype)
        step = range(len(self._items))[step]
        first = step - step % self._together
        if first != self._first:
            self._gathered = self._pieces.gather(self._items[first : first + self._together], self._dtype)
            self._first = first
        return self._gathered[step - first]
