"""Minibatch estimates of the loss L (Eq. 10) and its gradient; sole owner of the data scaling.

L is divided by N', the number of augmented facts, so that learning rates carry over between graphs:

    L / N' = (1 / N') sum_q [ n_q logsumexp_t f(h, r, t) - sum_{t in T_q} f(h, r, t) ] + penalty / N'

Equal queries are gathered: the same number and gradient as the paper's sum over facts, with Q instead of
N' softmaxes. A minibatch of queries B stands for all of them with the factor Q / |B|; the penalty enters
once per step for all rows, so that symbols that training never shows shrink to the prior.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from kgem.data.index import QueryIndex
from kgem.model.embeddings import Embeddings
from kgem.model.exact_pass import Questions
from kgem.model.kernels import SoftmaxKernel
from kgem.model.posterior import Gaussian
from kgem.model.prior import Prior, Strengths
from kgem.model.rows import ALL, Touched
from kgem.model.scores import Score
from kgem.model.teacher import KEPT_BYTES, Teacher

__all__ = ["Gradients", "MarginObjective", "Objective", "Pieces", "SoftmaxObjective", "shuffle_batches"]


class Gradients(NamedTuple):
    """The gradient of L / N' with respect to both tables."""

    entities: Tensor  # (n_entities, entity_width)
    relations: Tensor  # (relation rows, relation_width)


class Objective(Protocol):
    """What the algorithms of kgem.train minimise."""

    n_items: int  # what an epoch visits once: queries, or facts
    n_facts: int  # N', the unit of the loss

    def batches(self, size: int, generator: torch.Generator) -> Sequence[Any]:
        """One epoch: all items in random order, in batches of nearly equal size."""
        ...

    def touched(self, batch: Any) -> Touched:
        """The rows that a batch reads and changes: tables and strengths are reduced to them for `__call__`."""
        return ALL

    def __call__(self, embeddings: Embeddings, strengths: Strengths, batch: Any) -> tuple[float, Gradients]:
        """The data term of L / N' as one batch estimates it, and the gradient of all of L / N'.

        Both in the touched rows alone. The gradients' memory is reused by the next call.
        """
        ...

    def expected_loss(self, loss: float, posterior: tuple[Gaussian, Gaussian], like: Embeddings) -> float:
        """The data term of L / N' under q, without bias, given what an epoch's steps came to on average."""
        return loss


def shuffle_batches(n_items: int, size: int, generator: torch.Generator) -> list[Tensor]:
    """A random order cut into batches whose sizes differ by at most one.

    A short last batch would be scaled up by Q / |B| and shake the whole model.
    """
    order = torch.randperm(n_items, generator=generator)
    return list(order.tensor_split(max(1, round(n_items / size))))


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

    def questions(self, most: int) -> Questions:
        """Some of them, evenly spread, to be looked at exactly."""
        wanted = torch.linspace(0, len(self) - 1, min(most, len(self)), device=self.heads.device).long()
        offsets, tails = self.tails_of(wanted)
        return Questions(self.heads[wanted], self.relations[wanted], torch.repeat_interleave(offsets.diff()), tails)


class SoftmaxObjective(Objective):
    """Eqs. 5 and 10: the exact softmax over all entities, with reciprocal facts or two-sided."""

    def __init__(
        self,
        index: QueryIndex,
        like: Embeddings,
        prior: Prior,
        *,
        max_tails: int | None = None,
        products: torch.dtype | None = None,
    ) -> None:
        """`products` is the type in which scores that are products are computed; None: that of the tables."""
        entities = like.entities
        dtype = products if products is not None and like.score.bilinear else entities.dtype
        self._pieces = Pieces.cut(index, max_tails, entities.device)
        self._prior = prior
        self._gradients = Gradients(torch.empty_like(entities), torch.empty_like(like.relations))
        self._kernel = SoftmaxKernel(like.score, len(entities), dtype, entities.device)
        self._teacher: Teacher | None = None
        self.n_items = len(self._pieces)
        self.n_facts = len(index.tails)

    def taught_by(
        self, teacher: Teacher, memory: int = KEPT_BYTES, stop: Callable[[], bool] | None = None
    ) -> SoftmaxObjective:
        """The same objective with a part of the observed tails replaced by what a teacher says; shares its memory."""
        teacher.keep(self._pieces.heads, self._pieces.relations, memory, stop)
        taught = copy(self)
        taught._teacher = teacher
        return taught

    def batches(self, size: int, generator: torch.Generator) -> list[Tensor]:
        device = self._pieces.heads.device
        return [batch.to(device) for batch in shuffle_batches(self.n_items, size, generator)]

    @torch.no_grad()
    def __call__(self, embeddings: Embeddings, strengths: Strengths, batch: Tensor) -> tuple[float, Gradients]:
        grads = self._gradients
        grads.entities.zero_()
        grads.relations.zero_()
        scale = self.n_items / (len(batch) * self.n_facts)
        if embeddings.reciprocal:
            data = self._add_side(embeddings, batch, scale, reverse=False)
        else:
            data = torch.zeros((), dtype=torch.float64, device=batch.device)
            for reverse, rows in embeddings.sides(self._pieces.relations[batch]):
                data += self._add_side(embeddings, batch[rows], scale, reverse)
        add_penalty_gradient(self._prior, embeddings, strengths, grads, self.n_facts)
        return float(data), grads

    def _add_side(self, embeddings: Embeddings, batch: Tensor, scale: float, reverse: bool) -> Tensor:
        """The data term of queries that all read the tables the same way round."""
        score, grads, pieces = embeddings.score, self._gradients, self._pieces
        heads, relations = pieces.heads.index_select(0, batch), pieces.relations.index_select(0, batch)
        h = embeddings.heads(heads, reverse=reverse)
        r = embeddings.relation_rows(relations, reverse=reverse)
        q = score.query(h, r)

        turn = _turned(score, grads.entities) if reverse else grads.entities
        offsets, tails = pieces.tails_of(batch)
        loss, grad_q = self._kernel(
            q,
            embeddings.tail_table(reverse=reverse),
            pieces.counts.index_select(0, batch).to(q.dtype),
            offsets,
            tails,
            score.tails(turn),
            scale,
            soft=None if self._teacher is None else self._teacher.targets(batch, heads, relations, reverse),
        )
        grad_h, grad_r = score.query_vjp(h, r, grad_q)
        turn.index_add_(0, heads, grad_h)
        if turn is not grads.entities:
            grads.entities.add_(score.swap(turn))
        if reverse:
            relations, grad_r = relations - embeddings.n_relations, score.transpose(grad_r)
        embeddings.add_relation_gradient(relations, grad_r, grads.relations)
        return loss


class MarginObjective(Objective):
    """The margin loss of the early models: hinge(margin - f(fact) + f(fact with a random tail)).

    Reciprocal facts make random heads as well. Autograd, on the rows of the batch alone.
    """

    def __init__(
        self,
        index: QueryIndex,
        like: Embeddings,
        prior: Prior,
        *,
        generator: torch.Generator,
        margin: float = 1.0,
        negatives: int = 10,
    ) -> None:
        device = like.entities.device
        owner = np.repeat(np.arange(len(index)), index.counts)
        columns = (index.heads[owner], index.relations[owner], index.tails)
        self._facts = tuple(torch.from_numpy(c.astype(np.int64)).to(device) for c in columns)  # 3 x (N',)
        self._prior = prior
        self._gradients = Gradients(torch.empty_like(like.entities), torch.empty_like(like.relations))
        self._generator = generator
        self._margin = margin
        self._negatives = negatives
        self.n_items = self.n_facts = len(index.tails)

    def batches(self, size: int, generator: torch.Generator) -> list[Tensor]:
        device = self._facts[0].device
        return [batch.to(device) for batch in shuffle_batches(self.n_items, size, generator)]

    def __call__(self, embeddings: Embeddings, strengths: Strengths, batch: Tensor) -> tuple[float, Gradients]:
        grads = self._gradients
        for grad in grads:
            grad.zero_()
        wrong = torch.randint(embeddings.n_entities, (len(batch), self._negatives), generator=self._generator).to(
            batch.device
        )
        loss = 0.0
        for reverse, rows in embeddings.sides(self._facts[1][batch]):
            loss += self._add_side(embeddings, batch[rows], wrong[rows], reverse) / len(batch)
        for grad in grads:
            grad.div_(len(batch))
        add_penalty_gradient(self._prior, embeddings, strengths, grads, self.n_facts)
        return loss, grads

    def _add_side(self, embeddings: Embeddings, batch: Tensor, wrong: Tensor, reverse: bool) -> float:
        score = embeddings.score
        heads, relations, tails = (column[batch] for column in self._facts)
        with torch.enable_grad():
            h = embeddings.heads(heads, reverse=reverse).requires_grad_()
            r = embeddings.relation_rows(relations, reverse=reverse).requires_grad_()
            ids = torch.cat([tails.unsqueeze(1), wrong], dim=1)  # (b, 1 + negatives)
            t = embeddings.heads(ids.flatten(), reverse=reverse).view(*ids.shape, -1).requires_grad_()
            scores = score.pair(score.query(h, r).unsqueeze(1), score.tails(t))  # (b, 1 + negatives)
            hinge = (self._margin - scores[:, :1] + scores[:, 1:]).relu().mean(dim=1).sum()
            grad_h, grad_r, grad_t = torch.autograd.grad(hinge, (h, r, t))
        if reverse:
            grad_h, grad_t = score.swap(grad_h), score.swap(grad_t)
            relations, grad_r = relations - embeddings.n_relations, score.transpose(grad_r)
        grads = self._gradients
        grads.entities.index_add_(0, heads, grad_h)
        grads.entities.index_add_(0, ids.flatten(), grad_t.flatten(0, 1))
        embeddings.add_relation_gradient(relations, grad_r, grads.relations)
        return float(hinge.detach())


def _turned(score: Score, like: Tensor) -> Tensor:
    """Where a reversed side gathers its gradient: the same memory if heads and tails share a vector."""
    return like if score.swap(like) is like else torch.zeros_like(like)


def add_penalty_gradient(
    prior: Prior, embeddings: Embeddings, strengths: Strengths, grads: Gradients, n_facts: int
) -> None:
    """Add the gradient of the penalty term to `grads`, for all rows."""
    for table, lam, grad in zip(embeddings.tables(), strengths, grads, strict=True):
        prior.add_gradient(table, lam, grad, scale=1.0 / n_facts)
