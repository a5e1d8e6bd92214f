"""Soft targets: what several models together say about each question, for a point estimate to learn.

The teacher's distribution is the softmax of the mean of its models' scores over all entities: the geometric mean of
their probabilities. With weight a it takes the place of a part of the observed tails; the gradient of a question's
scores becomes n_q (P - (1 - a) Y / n_q - a P_teacher), with Y the indicator of its observed tails (docs/method.md).

Where memory allows, the targets of all questions are made once and kept in one byte each: the logarithm of a
probability beside the question's largest, over a range of 2^24, right to 3 %. The tail of the distribution counts in
sum and not in its digits. Where memory does not allow it they are made for each step anew, and then for a share of
its questions, with more weight: the others learn from their facts alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kgem.errors import ConfigError
from kgem.model.embeddings import Embeddings
from kgem.model.shards import WHOLE, Shards

__all__ = ["KEPT_BYTES", "KeptTargets", "SoftTargets", "Teacher", "multiplies_bfloat16"]

KEPT_BYTES = 4 * 2**30  # of targets that are kept
SHARE = 0.5  # of a step's questions that are taught where targets are not kept: a step then costs a third more
MADE = 256  # questions whose targets are made at a time: large products
READ = 16  # questions whose targets are written or read at a time: what stays in the cache
LARGEST = 255  # the code of a question's largest probability
STEP = 24 / LARGEST  # between two codes, in powers of two


@dataclass(frozen=True, eq=False)
class KeptTargets:
    """Probabilities in one byte each."""

    codes: Tensor  # (Q, n_entities), uint8
    scale: Tensor  # (Q, 1): the probability of code 0, so that each question's sum to one

    @classmethod
    def empty(cls, n: int, n_entities: int, like: Tensor) -> KeptTargets:
        return cls(like.new_empty(n, n_entities, dtype=torch.uint8), like.new_empty(n, 1))

    def write(self, items: Tensor, probabilities: Tensor, shards: Shards = WHOLE) -> None:
        """Mutates: the targets of these questions."""
        largest = shards.highest(probabilities.amax(dim=1, keepdim=True))
        groups = (torch.split(each, READ) for each in (items, probabilities, largest))
        for part, rows, most in zip(*groups, strict=True):
            below = rows.div(most).log2_()  # from -inf to 0
            self.codes[part] = below.div_(STEP).add_(LARGEST).round_().clamp_(min=0).to(torch.uint8)
            self.scale[part] = self._unscaled(part).sum(dim=1, keepdim=True)
        total = self.scale[items]
        if shards.n_rows is not None:
            shards.processes.sum(total)
        self.scale[items] = total.reciprocal_()

    def read(self, items: Tensor) -> Tensor:
        """The probabilities of these questions, (b, n_entities)."""
        return self._unscaled(items).mul_(self.scale.index_select(0, items))

    def _unscaled(self, items: Tensor) -> Tensor:
        return self.codes.index_select(0, items).to(self.scale.dtype).mul_(STEP).exp2_()


class Teacher:
    """Models that answer together, and how much their answers weigh beside the facts."""

    def __init__(self, models: Sequence[Embeddings], weight: float, share: float = SHARE) -> None:
        """`weight` is a: 0 leaves the facts alone, 1 the teacher."""
        if not 0 <= weight <= 1:
            raise ConfigError(f"a teacher cannot have the weight {weight:g}", remedy="from 0 to 1")
        self.models = list(models)
        self.weight = weight
        self.kept: KeptTargets | None = None
        self._share = share
        first = self.models[0]
        self._shards, self.n_entities, self._like = first.shards, len(first.entities), first.entities
        rounded = first.score.bilinear and self._like.dtype == torch.float32 and multiplies_bfloat16()
        self._dtype = torch.bfloat16 if rounded else self._like.dtype
        self._tables: dict[bool, Tensor] = {}  # by side, those of all models side by side: (n_entities, width)

    def keep(
        self, heads: Tensor, relations: Tensor, memory: int = KEPT_BYTES, stop: Callable[[], bool] | None = None
    ) -> None:
        """Mutates: make the targets of all these questions now, (Q,) each, if they fit into so many bytes.

        Asked to `stop` in between it ends without them.

        In a fixed order: rounding depends on how questions stand together, and a fit that goes on must find the same.
        """
        if len(heads) * (self._shards.largest or self.n_entities) > memory:
            return
        kept = KeptTargets.empty(len(heads), self.n_entities, self._like)
        for reverse, rows in self.models[0].sides(relations):
            for part in torch.split(rows, MADE):
                if stop is not None and stop():
                    return
                said = self.probabilities(heads[part], relations[part], reverse).to(self._like.dtype)
                kept.write(part, said, self._shards)
        self.kept = kept

    def targets(self, items: Tensor, heads: Tensor, relations: Tensor, reverse: bool) -> SoftTargets:
        """Of a batch of questions in random order, all of one side; `items` are their numbers among those kept."""
        share = 1.0 if self.kept is not None else self._share
        weights = self._like.new_zeros(len(items))
        weights[: round(share * len(items))] = min(1.0, self.weight / share)
        return SoftTargets(self, weights, items, heads, relations, reverse)

    def probabilities(self, heads: Tensor, relations: Tensor, reverse: bool) -> Tensor:
        """softmax over all entities of the mean of the models' scores, of those in this process: (b, n_entities)."""
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
        if self._shards.n_rows is None:
            return torch.softmax(scores, dim=1, out=scores)
        exact = scores.to(self._like.dtype)
        log_z, _ = self._shards.join(exact.logsumexp(1), exact.new_zeros(()))
        return exact.sub_(log_z.unsqueeze(1)).exp_()

    def _table(self, reverse: bool) -> Tensor:
        if reverse not in self._tables:
            tables = [model.tail_table(reverse=reverse) for model in self.models]
            self._tables[reverse] = torch.cat(tables, dim=1).to(self._dtype)
        return self._tables[reverse]


@dataclass(frozen=True, eq=False)
class SoftTargets:
    """What a teacher says about the questions of a batch."""

    teacher: Teacher
    weights: Tensor  # (b,) of each question's targets beside its facts; those that have any come first
    items: Tensor  # (b,)
    heads: Tensor  # (b,)
    relations: Tensor  # (b,)
    reverse: bool

    def subtract(self, rows: slice, block: Tensor) -> None:
        """Mutates a block of probabilities, (rows, n_entities): less those of the teacher, times their weights."""
        stop = min(rows.stop, int(self.weights.count_nonzero()))
        step = MADE if self.teacher.kept is None else READ
        for start in range(rows.start, stop, step):
            part = slice(start, min(start + step, stop))
            taught = block[part.start - rows.start : part.stop - rows.start]
            taught.addcmul_(self._make(part).to(block.dtype), self.weights[part, None].to(block.dtype), value=-1.0)

    def _make(self, part: slice) -> Tensor:
        if self.teacher.kept is None:
            return self.teacher.probabilities(self.heads[part], self.relations[part], self.reverse)
        return self.teacher.kept.read(self.items[part])


def multiplies_bfloat16() -> bool:
    """Whether the processor has instructions for it."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
