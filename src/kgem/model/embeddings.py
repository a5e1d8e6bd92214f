"""The tables E and R of a model, how they start, and how queries read them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kgem.model.joint import clone_joint, join
from kgem.model.scores import Score
from kgem.model.shards import WHOLE, Shards

__all__ = ["Embeddings"]


@dataclass(frozen=True, eq=False)
class Embeddings:
    """One vector per entity and per relation.

    With reciprocal facts (Eq. 7) R has 2 * n_relations rows. In the two-sided mode of Eq. 5 it has
    n_relations rows, and the reciprocal id r + n_relations reads row r transposed, so that whoever
    asks (t, r^-1, ?) need not know the difference. What all facts share, as TuckER's core, are the last rows of R.

    Where several processes fit a model together, each has a range of the rows of E, and all of R.
    """

    score: Score
    entities: Tensor  # (n_entities, entity_width)
    relations: Tensor  # (2 * n_relations or n_relations, and n_shared, relation_width)
    n_relations: int
    n_shared: int = 0  # rows that belong to no relation
    shards: Shards = WHOLE

    @classmethod
    def random(
        cls,
        score: Score,
        n_entities: int,
        n_relations: int,
        dim: int,
        *,
        generator: torch.Generator,
        reciprocal: bool = True,
        scale: float = 1e-3,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        shards: Shards = WHOLE,
    ) -> Embeddings:
        """Algorithm 1, line 1: independent normal entries, drawn on the CPU: a seed means one start.

        Shared rows have length one on average: a product of four small numbers gives no gradient to leave with.
        """

        def draw(rows: int, width: int, scale: float) -> Tensor:
            entries = torch.randn(rows, width, generator=generator, dtype=torch.float32)
            return (entries * scale).to(device=device, dtype=dtype)

        rows = 2 * n_relations if reciprocal else n_relations
        entities = shards.own(draw(n_entities, score.entity_width(dim), scale))
        width, n_shared = score.relation_width(dim), score.shared_rows(dim)
        relations = draw(rows, width, scale)
        if n_shared:
            relations = torch.cat([relations, draw(n_shared, width, width**-0.5)])
        return cls(score, *clone_joint((entities, relations)), n_relations, n_shared, shards)

    @property
    def n_entities(self) -> int:
        return self.shards.n_rows or self.entities.shape[0]

    @property
    def reciprocal(self) -> bool:
        """Whether reciprocal relations have vectors of their own."""
        return self.n_own == 2 * self.n_relations

    @property
    def n_own(self) -> int:
        """How many rows of R belong to a relation or to a reciprocal one: the first."""
        return len(self.relations) - self.n_shared

    def relation_occurrences(self, counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """How often each row of R occurs, (rows,); `counts` (n_relations,) are facts of each relation.

        Shared rows are in every fact, but together: each counts for its part.
        """
        own = np.tile(counts, 2 if self.reciprocal else 1)
        return np.append(own, np.full(self.n_shared, int(counts.sum()) // max(1, self.n_shared)))

    def tables(self) -> tuple[Tensor, Tensor]:
        return self.entities, self.relations

    def with_tables(self, entities: Tensor, relations: Tensor) -> Embeddings:
        return replace(self, entities=entities, relations=relations)

    def clone(self) -> Embeddings:
        return self.with_tables(*clone_joint(self.tables()))

    @cached_property
    def flat(self) -> Tensor | None:
        """All numbers of both tables, (n,), the same memory; None if one does not lie behind the other."""
        return join(self.tables())

    def heads(self, ids: Tensor, *, reverse: bool = False) -> Tensor:
        """Head vectors of queries; reverse for reciprocal ids in the two-sided mode: (b, entity_width)."""
        rows = self.shards.fetch(self.entities, ids)
        return self.score.swap(rows) if reverse else rows

    def relation_rows(self, ids: Tensor, *, reverse: bool = False) -> Tensor:
        """What `query` takes for the relations of queries, all of one side: (b, relation_width), or mixed (b, d)."""
        if not reverse:
            return self.mix_relations(ids)
        return self.score.transpose(self.mix_relations(ids - self.n_relations))

    def mix_relations(self, rows: Tensor) -> Tensor:
        """Rows of R, each mixed with the shared ones where there are any: (b, relation_width), or (b, d)."""
        own = self.relations.index_select(0, rows)
        return self.score.mix(own, self.relations[self.n_own :]) if self.n_shared else own

    def add_relation_gradient(self, rows: Tensor, grad: Tensor, out: Tensor) -> None:
        """Mutates `out`, which is like R: adds what the gradient of `mix_relations(rows)` is for R."""
        if self.n_shared:
            own, shared = self.relations.index_select(0, rows), self.relations[self.n_own :]
            grad, grad_shared = self.score.mix_vjp(own, shared, grad)
            out[self.n_own :].add_(grad_shared)
        out.index_add_(0, rows, grad)

    def tail_table(self, *, reverse: bool = False, rows: slice = slice(None)) -> Tensor:
        """What queries of one side are compared with, or a range of it, in this process: (n_entities, query_width)."""
        entities = self.entities[rows]
        return self.score.tails(self.score.swap(entities) if reverse else entities)

    def scores(self, heads: Tensor, relations: Tensor) -> Tensor:
        """f(h, r, t) for all t, queries of one side or the other: (b, n_entities)."""
        out = self.entities.new_empty(len(heads), self.n_entities)
        for reverse, rows in self.sides(relations):
            q = self.score.query(
                self.heads(heads[rows], reverse=reverse), self.relation_rows(relations[rows], reverse=reverse)
            )
            out[rows] = self.score.compare(q, self.tail_table(reverse=reverse))
        return out

    def sides(self, relations: Tensor) -> list[tuple[bool, Tensor]]:
        """Which queries must read the tables in reverse: none, unless the mode is two-sided."""
        every = torch.arange(len(relations), device=relations.device)
        if self.reciprocal:
            return [(False, every)]
        reverse = relations >= self.n_relations
        return [(side, every[reverse == side]) for side in (False, True) if bool((reverse == side).any())]
