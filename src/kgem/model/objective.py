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
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from kgem.data.index import QueryIndex
from kgem.model.embeddings import Embeddings
from kgem.model.joint import Gradients, empty_joint, stack, walk
from kgem.model.kernels import Shard, SoftmaxKernel, block_size
from kgem.model.pieces import Batch, Batches, Pieces, shuffle_batches
from kgem.model.posterior import Gaussian
from kgem.model.prior import Prior, Strengths
from kgem.model.rows import ALL, Touched
from kgem.model.scores import Score
from kgem.model.teacher import KEPT_BYTES, Teacher

__all__ = ["Gradients", "MarginObjective", "Objective", "Pieces", "SoftmaxObjective", "shuffle_batches"]


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
        self._gradients = Gradients(*empty_joint(like.tables()))
        shards = like.shards
        self._shard = None if shards.n_rows is None else Shard(shards.start, shards.join)
        block = None if shards.n_rows is None else block_size(shards.largest, dtype)  # the same in all processes
        self._kernel = SoftmaxKernel(like.score, len(entities), dtype, entities.device, block)
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

    def batches(self, size: int, generator: torch.Generator) -> Batches:
        return Batches(self._pieces, shuffle_batches(self.n_items, size, generator), self._gradients.entities.dtype)

    @torch.no_grad()
    def __call__(self, embeddings: Embeddings, strengths: Strengths, batch: Batch | Tensor) -> tuple[float, Gradients]:
        """`batch` may be the numbers of some queries, too."""
        grads = self._gradients
        for (grad,) in walk(grads):
            grad.zero_()
        batch = batch if isinstance(batch, Batch) else self._gather(batch)
        scale = self.n_items / (len(batch) * self.n_facts)
        if embeddings.reciprocal:
            data = self._add_side(embeddings, batch, scale, reverse=False)
        else:
            data = torch.zeros((), dtype=torch.float64, device=batch.items.device)
            for reverse, rows in embeddings.sides(batch.relations):
                data += self._add_side(embeddings, self._gather(batch.items[rows]), scale, reverse)
        add_penalty_gradient(self._prior, embeddings, strengths, grads, self.n_facts)
        return float(data), grads

    def _gather(self, items: Tensor) -> Batch:
        return self._pieces.gather([items], self._gradients.entities.dtype)[0]

    def _add_side(self, embeddings: Embeddings, batch: Batch, scale: float, reverse: bool) -> Tensor:
        """The data term of queries that all read the tables the same way round."""
        score, grads, heads, relations = embeddings.score, self._gradients, batch.heads, batch.relations
        h = embeddings.heads(heads, reverse=reverse)
        r = embeddings.relation_rows(relations, reverse=reverse)
        q = score.query(h, r)

        turn = _turned(score, grads.entities) if reverse else grads.entities
        loss, grad_q = self._kernel(
            q,
            embeddings.tail_table(reverse=reverse),
            batch.counts,
            batch.rows,
            batch.tails,
            score.tails(turn),
            scale,
            self._shard,
            soft=None if self._teacher is None else self._teacher.targets(batch.items, heads, relations, reverse),
        )
        if self._shard is not None:
            embeddings.shards.processes.sum(grad_q)
        grad_h, grad_r = score.query_vjp(h, r, grad_q)
        embeddings.shards.add(turn, heads, grad_h)
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
        embeddings.shards.hear_wishes()
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
        embeddings.shards.add(grads.entities, heads, grad_h)
        embeddings.shards.add(grads.entities, ids.flatten(), grad_t.flatten(0, 1))
        embeddings.add_relation_gradient(relations, grad_r, grads.relations)
        return float(hinge.detach())


def _turned(score: Score, like: Tensor) -> Tensor:
    """Where a reversed side gathers its gradient: the same memory if heads and tails share a vector."""
    return like if score.swap(like) is like else torch.zeros_like(like)


def add_penalty_gradient(
    prior: Prior, embeddings: Embeddings, strengths: Strengths, grads: Gradients, n_facts: int
) -> None:
    """Add the gradient of the penalty term to `grads`, for all rows; at once where both tables have the same width."""
    table, out = stack(embeddings), stack(grads)
    if table is not None and out is not None:
        prior.add_gradient(table, torch.cat(strengths), out, scale=1.0 / n_facts)
        return
    for table, lam, out in zip(embeddings.tables(), strengths, grads, strict=True):
        prior.add_gradient(table, lam, out, scale=1.0 / n_facts)
