"""The hot loop: softmax over all entities and its gradient, one block of scores at a time, no autograd graph.

For a block of queries with scores S (b, n), n_q observed tails each and P = softmax(S):

    loss    = sum_q n_q log Z_q - sum of the observed tails' scores
    dloss/dS = n_q P, minus one at each observed tail

so that with the observed tails subtracted from P in place (as 1 / n_q) two matrix products finish the
gradient. Three products per block are the cost; everything else is small beside them. Soft targets of a
teacher, with a weight a for each query, are subtracted likewise, and the observed tails then as (1 - a) / n_q.

The block may be bfloat16 while the tables are not: then the products take half the time and are right to about
three digits each, with sums in float32. Gradients so rounded are noise far below that of a minibatch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from kgem.model.products import add_product, multiply
from kgem.model.scores import Score
from kgem.model.teacher import SoftTargets

__all__ = ["BLOCK_BYTES", "Shard", "SoftmaxKernel", "block_size"]

BLOCK_BYTES = 192 * 2**20  # at most for a block of scores; below 256 queries the products lose speed
LEAST_SHARE = 1e-20  # of a shard: it is divided by, and what is below is nothing
LANE = 64  # bytes: rows of a block start on cache lines, or the product that writes them is half as fast
PART = 2**18  # numbers of a table that are taken from one type to another at a time


@dataclass(frozen=True)
class Shard:
    """A range of the entity table's rows, and how to combine with those who hold the other ranges.

    `join` takes the log of the sum of exp over own rows (b,), and a sum over own rows, to those over all.
    """

    start: int
    join: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def block_size(n_tails: int, dtype: torch.dtype) -> int:
    """How many queries make a block of scores of about BLOCK_BYTES."""
    return max(16, min(1024, BLOCK_BYTES // (n_tails * dtype.itemsize)))


class SoftmaxKernel:
    """Loss and gradients of queries against a table of tails; owns the block of scores that it reuses."""

    def __init__(
        self, score: Score, n_tails: int, dtype: torch.dtype, device: torch.device, block: int | None = None
    ) -> None:
        """`dtype` is that of the scores: the tables' own, or bfloat16, for scores that are products.

        `block` is the number of queries in a block: shards meet after each, so all must have the same.
        """
        self.score = score
        self.n_tails = n_tails
        lane = LANE // dtype.itemsize
        self.padded = -(-n_tails // lane) * lane
        if (self.padded * dtype.itemsize) % 4096 == 0:  # a power-of-two stride would thrash one cache set
            self.padded += lane
        self.block = block or block_size(self.padded, dtype)
        self._scores = torch.empty(self.block, self.padded, dtype=dtype, device=device)
        self._rounded: tuple[Tensor, Tensor] | None = None  # the table of tails and its gradient, in the block's type

    def __call__(
        self,
        q: Tensor,  # (b, d)
        table: Tensor,  # (n_tails, d)
        counts: Tensor,  # (b,) n_q of each query, over all shards
        rows: Tensor,  # (pairs,), ascending: the query of each observed tail
        tails: Tensor,  # (pairs,) observed tails, ids over all shards
        grad_table: Tensor,  # (n_tails, d), added to
        scale: float = 1.0,
        shard: Shard | None = None,
        soft: SoftTargets | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The scaled loss summed over queries, and its gradient with respect to them, (b, d).

        The loss is that of the observed tails, also where soft targets have a part in the gradient. Of a shard, the
        gradient is that by its own rows: the sum over shards is what is wanted.
        """
        grad_q = torch.empty_like(q)
        if len(q) <= self.block:
            every = slice(0, len(q))
            loss = self._block(q, table, counts, rows, tails, grad_table, grad_q, scale, shard, soft, every)
            return loss * scale, grad_q
        borders = torch.tensor([*range(0, len(q), self.block), len(q)], device=rows.device)
        pair_borders = torch.searchsorted(rows, borders).tolist()
        loss = q.new_zeros((), dtype=torch.float64)
        for (start, stop), (first, last) in zip(pairwise(borders.tolist()), pairwise(pair_borders), strict=True):
            loss += self._block(
                q[start:stop],
                table,
                counts[start:stop],
                rows[first:last] - start,
                tails[first:last],
                grad_table,
                grad_q[start:stop],
                scale,
                shard,
                soft,
                slice(start, stop),
            )
        return loss * scale, grad_q

    def _block(
        self,
        q: Tensor,
        table: Tensor,
        counts: Tensor,
        rows: Tensor,
        tails: Tensor,
        grad_table: Tensor,
        grad_q: Tensor,
        scale: float,
        shard: Shard | None,
        soft: SoftTargets | None,
        part: slice,
    ) -> Tensor:
        block = self._scores[: len(q)]
        pull_back = self._score(q, table, block)
        if shard is not None:
            mine = (tails >= shard.start) & (tails < shard.start + self.n_tails)
            rows, tails = rows[mine], tails[mine] - shard.start
        cells = torch.add(tails, rows, alpha=self.padded)  # the observed tails' places in the flattened block
        flat = block.view(-1)
        weights = counts * scale
        hard = counts.reciprocal() if soft is None else (1.0 - soft.weights[part]).div_(counts)
        if shard is None:
            torch.softmax(block, dim=1, out=block)
            loss = self._log_loss(q, table, rows, tails, flat.take(cells).to(q.dtype))
        else:
            log_z, total, share = _softmax_of_shards(block, flat.take(cells).sum(dtype=torch.float64), shard)
            loss = (counts * log_z).sum(dtype=torch.float64) - total
            if soft is not None:
                block.mul_(share.to(block.dtype).unsqueeze(1))
            else:  # the block's own softmax, and what it is of the whole one, enter where that costs least
                weights, hard = weights * share, hard / share
        flat.index_add_(0, cells, hard.index_select(0, rows).to(block.dtype), alpha=-1)
        if soft is not None:
            soft.subtract(part, block[:, : self.n_tails])
        pull_back(weights.unsqueeze(1), grad_table, grad_q)
        return loss

    def _log_loss(self, q: Tensor, table: Tensor, rows: Tensor, tails: Tensor, probabilities: Tensor) -> Tensor:
        """The sum of log Z - f over observed tails: minus the log of their probabilities, unless one underflowed."""
        limit = 1e8 * torch.finfo(probabilities.dtype).tiny
        if not len(probabilities) or not float(probabilities.amin()) < limit:
            return -probabilities.log().sum(dtype=torch.float64)
        faint = probabilities < limit
        loss = -probabilities.masked_fill(faint, 1.0).log_().sum(dtype=torch.float64)
        asked = q[rows[faint]]
        log_z = self.score.compare(asked, table).logsumexp(dim=1)
        return loss + (log_z - self.score.pair(asked, table[tails[faint]])).sum(dtype=torch.float64)

    def _score(self, q: Tensor, table: Tensor, block: Tensor) -> Callable[[Tensor, Tensor, Tensor], None]:
        """Fill the block with scores; return what turns (block times row weights) into gradients."""
        if block.dtype != table.dtype:
            return self._score_rounded(q, table, block)
        scores = block[:, : self.n_tails]
        if self.padded > self.n_tails:
            block[:, self.n_tails :] = -torch.inf
        if self.score.bilinear:
            multiply(q, table.T, out=scores)

            def by_products(weights: Tensor, grad_table: Tensor, grad_q: Tensor) -> None:
                add_product(grad_table, scores.T, q * weights)
                multiply(scores, table, out=grad_q).mul_(weights)

            return by_products

        with torch.enable_grad():
            leaves = q.detach().requires_grad_(), table.detach().requires_grad_()
            compared = self.score.compare(*leaves)
        scores.copy_(compared.detach())

        def by_autograd(weights: Tensor, grad_table: Tensor, grad_q: Tensor) -> None:
            for_q, for_table = torch.autograd.grad(compared, leaves, scores * weights)
            grad_q.copy_(for_q)
            grad_table.add_(for_table)

        return by_autograd

    def _score_rounded(self, q: Tensor, table: Tensor, block: Tensor) -> Callable[[Tensor, Tensor, Tensor], None]:
        """Likewise, with factors rounded to the block's type; on whole padded rows, where that type is fastest.

        What is as large as the table has memory of its own: fresh memory would cost as much as a product.
        """
        if self._rounded is None:
            zeros = table.new_zeros(self.padded, table.shape[1], dtype=block.dtype)
            self._rounded = zeros, zeros.clone()
        rounded, grad = self._rounded
        rounded[: self.n_tails] = table
        torch.mm(q.to(block.dtype), rounded.T, out=block)
        block[:, self.n_tails :] = -torch.inf

        def by_products(weights: Tensor, grad_table: Tensor, grad_q: Tensor) -> None:
            torch.mm(block.T, (q * weights).to(block.dtype), out=grad)
            rows = max(1, PART // grad.shape[1])
            for start in range(0, self.n_tails, rows):  # a sum of two types makes a copy in between
                grad_table[start : start + rows] += grad[start : min(start + rows, self.n_tails)]
            grad_q.copy_(torch.mm(block, rounded)).mul_(weights)

        return by_products


def _softmax_of_shards(block: Tensor, observed: Tensor, shard: Shard) -> tuple[Tensor, Tensor, Tensor]:
    """Mutates the block: scores to probabilities among own rows; returns log Z (b,), the sum of `observed`, the share.

    The share (b,) is that of own rows in the whole: a factor of the block's rows, which is left to smaller tensors.
    """
    exact = torch.promote_types(block.dtype, torch.float32)
    highest, where = block.max(dim=1, keepdim=True)
    torch.softmax(block, dim=1, out=block)
    local = highest.to(exact) - block.gather(1, where).to(exact).log_()  # the largest probability never underflows
    log_z, total = shard.join(local.squeeze(1), observed)
    share = (local.squeeze(1) - log_z).exp_().clamp_(min=LEAST_SHARE)
    return log_z, total, share.to(exact)
