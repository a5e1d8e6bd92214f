"""Soft targets: what several models together say about each question, for a point estimate to learn.

The teacher's distribution is the softmax of the mean of its models' scores over all entities: the geometric mean of
their probabilities. With weight a it takes the place of a part of the observed tails; the gradient of a question's
scores becomes n_q (P - (1 - a) Y / n_q - a P_teacher), with Y the indicator of its observed tails (docs/method.md).

Where f is linear in the tail, the mean of scores is one product over the models' vectors side by side. Its factors are
rounded to bfloat16 where the processor multiplies these faster: targets so rounded are right to about three digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kgem.errors import ConfigError
from kgem.model.embeddings import Embeddings

__all__ = ["KEPT_BYTES", "SoftTargets", "Teacher"]

KEPT_BYTES = 2**30  # of targets that are kept, so that they are made only once
ROWS = 256  # questions whose targets are made at a time


class Teacher:
    """Models that answer together, and how much their answers weigh beside the facts."""

    def __init__(self, models: Sequence[Embeddings], weight: float) -> None:
        """`weight` is a: 0 leaves the facts alone, 1 the teacher."""
        if not 0 <= weight <= 1:
            raise ConfigError(f"a teacher cannot have the weight {weight:g}", remedy="from 0 to 1")
        self.models = list(models)
        self.weight = weight
        first = self.models[0]
        self.n_entities, self._like = first.n_entities, first.entities
        rounded = first.score.bilinear and self._like.dtype == torch.float32 and _multiplies_bfloat16()
        self._dtype = torch.bfloat16 if rounded else self._like.dtype
        self._tables: dict[bool, Tensor] = {}  # by side, those of all models side by side: (n_entities, width)
        self._kept: Tensor | None = None

    def keep(self, heads: Tensor, relations: Tensor, memory: int = KEPT_BYTES) -> None:
        """Mutates: make the targets of all these questions now, (Q,) each, if they fit into so many bytes.

        In a fixed order: rounding depends on how questions stand together, and a fit that goes on must find the same.
        """
        if len(heads) * self.n_entities * self._dtype.itemsize > memory:
            return
        kept = self._like.new_empty(len(heads), self.n_entities, dtype=self._dtype)
        for reverse, rows in self.models[0].sides(relations):
            for start in range(0, len(rows), ROWS):
                part = rows[start : start + ROWS]
                kept[part] = self._probabilities(heads[part], relations[part], reverse)
        self._kept = kept

    def targets(self, items: Tensor, heads: Tensor, relations: Tensor, reverse: bool) -> SoftTargets:
        """Of a batch of questions, all of one side; `items` are their numbers among those that were kept."""

        def make(rows: slice) -> Tensor:
            if self._kept is None:
                return self._probabilities(heads[rows], relations[rows], reverse)
            return self._kept.index_select(0, items[rows])

        return SoftTargets(self.weight, make)

    def _probabilities(self, heads: Tensor, relations: Tensor, reverse: bool) -> Tensor:
        """softmax over all entities of the mean of the models' scores: (b, n_entities)."""
        queries = [
            m.score.query(m.heads(heads, reverse=reverse), m.relation_rows(relations, reverse=reverse))
            for m in self.models
        ]
        if self.models[0].score.bilinear:
            q = torch.cat(queries, dim=1).div_(len(queries)).to(self._dtype)
            scores = torch.mm(q, self._table(reverse).T)
        else:
            scores = self.models[0].score.compare(queries[0], self.models[0].tail_table(reverse=reverse))
            for q, model in zip(queries[1:], self.models[1:], strict=True):
                scores = scores + model.score.compare(q, model.tail_table(reverse=reverse))
            scores = scores / len(self.models)
        return torch.softmax(scores, dim=1, out=scores)

    def _table(self, reverse: bool) -> Tensor:
        if reverse not in self._tables:
            tables = [model.tail_table(reverse=reverse) for model in self.models]
            self._tables[reverse] = torch.cat(tables, dim=1).to(self._dtype)
        return self._tables[reverse]


@dataclass(frozen=True, eq=False)
class SoftTargets:
    """What a teacher says about the questions of a batch."""

    weight: float
    make: Callable[[slice], Tensor]  # some of the questions: their probabilities, (rows, n_entities)

    def subtract(self, rows: slice, block: Tensor) -> None:
        """Mutates a block of probabilities, (rows, n_entities): less those of the teacher, times its weight."""
        block.sub_(self.make(rows), alpha=self.weight)


def _multiplies_bfloat16() -> bool:
    """Whether the processor has instructions for it."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
