"""Which rows of the tables a step touches: all of them, or those of its questions, answers and candidates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["ALL", "Rows", "Touched"]


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one table, and what part of its prior and entropy each is charged in this step (1 on average)."""

    ids: Tensor | None = None  # (n,) ascending; None: every row
    share: Tensor | float = 1.0  # (n,), or the same for all
    part: tuple[int, int] | None = None  # if other processes have the others: how many are before them, and in all

    def take(self, table: Tensor) -> Tensor:
        """Copies of these rows, or the table itself if they are all."""
        return table if self.ids is None else table.index_select(0, self.ids)

    def followed_by(self, ids: Tensor) -> Rows:
        """These rows and further ones with larger ids, (m,), that are charged in full; not of every row."""
        assert self.ids is not None and isinstance(self.share, Tensor)
        return Rows(torch.cat([self.ids, ids]), torch.cat([self.share, self.share.new_ones(len(ids))]))


class Touched(NamedTuple):
    """The rows of both tables that a step reads and changes."""

    entities: Rows
    relations: Rows

    def of(self, tables: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
        """These rows of two tables, or of two vectors with a number for each row."""
        entities, relations = tables
        return self.entities.take(entities), self.relations.take(relations)

    @property
    def shares(self) -> tuple[Tensor | float, Tensor | float]:
        """What part of prior and entropy is charged, ready to be multiplied with rows: (n, 1), or one number."""
        entities, relations = (s if isinstance(s, float) else s.unsqueeze(1) for s in (r.share for r in self))
        return entities, relations


ALL = Touched(Rows(), Rows())
