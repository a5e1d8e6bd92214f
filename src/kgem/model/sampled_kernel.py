"""Loss and gradients of a sampled softmax on touched rows: three products with the candidates, pairs for the answers.

For a question with own answers T_q, candidates C with weights w = 1 / pi, and scores s, with everything relative to the
largest score, Z = sum_{t in T_q} exp s_t + sum_{t in C \\ T_q} w_t exp s_t. The loss is n_q log Z less the scores of
its answers; its derivative n_q w_t exp(s_t) / Z at a candidate and n_q exp(s_t) / Z - 1 at an answer. Weights of
candidates and 1 / Z are factors of rows and columns, so that they go into the small factors of the products and the
block of scores is passed over three times only. Answers are a sparse matrix of questions and touched rows: what belongs
to its entries is never written out as rows. A teacher subtracts its own share from the block.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from kgem.model.embeddings import Embeddings
from kgem.model.products import multiply
from kgem.model.scores import Score

__all__ = ["Answers", "Estimated", "Side", "SideGradients", "add_up", "estimate_softmax", "sampled_softmax"]


@dataclass(frozen=True, eq=False)
class Side:
    """Questions that read the tables the same way round; ids count within the touched rows."""

    reverse: bool
    heads: Tensor  # (b,)
    relations: Tensor  # (b,)
    counts: Tensor  # (b,) n_q
    offsets: Tensor  # (b + 1,) where the answers of each begin
    rows: Tensor  # (pairs,) the question of each answer, ascending
    answers: Tensor  # (pairs,)
    cells: Tensor  # (own,) where candidates are answers of a question: its number * M + theirs

    @classmethod
    def of(
        cls, reverse: bool, heads: Tensor, relations: Tensor, counts: Tensor, offsets: Tensor, answers: Tensor,
        nth: Tensor, n_candidates: int,
    ) -> Side:  # fmt: skip
        """`nth` (touched,) says which candidate a touched row is, or -1."""
        rows = torch.repeat_interleave(offsets.diff(), output_size=len(answers))
        places = nth.index_select(0, answers)
        own = torch.nonzero(places >= 0).squeeze(1)
        cells = rows.index_select(0, own).mul_(n_candidates).add_(places.index_select(0, own))
        return cls(reverse, heads, relations, counts, offsets, rows, answers, cells)


class Answers(NamedTuple):
    """Gradients of a side's answers as tails: that of pair j is weights[j] * rows[of[j]]."""

    rows: Tensor  # (k, d)
    of: Tensor  # (pairs,)
    weights: Tensor  # (pairs,)


class SideGradients(NamedTuple):
    """The scaled loss of one side, and what it adds to the gradients of heads, answers, candidates and relations."""

    loss: Tensor  # float64
    answers: Answers  # whose rows are those of entities
    heads: Tensor  # (b, entity_width)
    candidates: Tensor  # (M, entity_width)
    relations: Tensor  # (b, relation_width)


class _Read(NamedTuple):
    """What questions read from the touched rows of one model."""

    h: Tensor  # (b, entity_width)
    r: Tensor  # (b, relation_width), or mixed (b, d)
    q: Tensor  # (b, d)
    tails: Tensor  # (touched, d)
    others: Tensor  # (M, d) candidates as tails


class Estimated(NamedTuple):
    """Scores of a step, relative to each question's largest."""

    block: Tensor  # (b, M) exp, without the weights of candidates
    own: Tensor  # (pairs,) exp
    z: Tensor  # (b,)
    largest: Tensor  # (b,) the scores that all is relative to
    loss: Tensor  # float64


def sampled_softmax(
    model: Embeddings,
    side: Side,
    candidates: Tensor,  # (M,)
    weights: Tensor,  # (M,)
    scale: float,
    dtype: torch.dtype,
    teachers: Sequence[Embeddings] = (),
    taught: float = 0.0,
) -> SideGradients:
    """Loss and gradients of one side, times `scale`. `dtype` is that of products with the candidates."""
    score, read = model.score, _read(model, side, candidates)
    kernel = _by_products if score.bilinear else _by_autograd
    loss, grad_q, grad_others, answers = kernel(
        score, read, side, weights, dtype, [_read(m, side, candidates) for m in teachers], taught
    )
    grad_h, grad_r = score.query_vjp(read.h, read.r, grad_q.mul_(scale))
    grad_others = _as_entities(score, grad_others.mul_(scale), model.entities)
    rows = _as_entities(score, answers.rows, model.entities)
    if side.reverse:
        grad_h, grad_others, rows = score.swap(grad_h), score.swap(grad_others), score.swap(rows)
        grad_r = score.transpose(grad_r)
    return SideGradients(
        loss * scale, Answers(rows, answers.of, answers.weights.mul_(scale)), grad_h, grad_others, grad_r
    )


def add_up(sides: Sequence[SideGradients], order: Tensor, offsets: Tensor) -> Tensor:
    """The gradient of all touched rows of entities, (touched, entity_width).

    `order` sorts all answers, then all heads, then the candidates by the row that they are, and `offsets`
    (touched + 1,) say where those of each row begin. Each row is so written once, whatever adds to it.
    """
    candidates = sides[0].candidates
    for side in sides[1:]:
        candidates = candidates + side.candidates
    whole = [*(side.heads for side in sides), candidates]
    rows = torch.cat([*whole, *(side.answers.rows for side in sides)])
    index, weights, first = [], [], sum(map(len, whole))
    plain = torch.arange(first, device=order.device)
    for side in sides:
        index.append(side.answers.of + first)
        weights.append(side.answers.weights)
        first += len(side.answers.rows)
    which = torch.cat([*index, plain]).index_select(0, order)
    factors = torch.cat([*weights, rows.new_ones(len(plain))]).index_select(0, order)
    return embedding_bag(which, rows, offsets, mode="sum", per_sample_weights=factors, include_last_offset=True)


def _read(model: Embeddings, side: Side, candidates: Tensor) -> _Read:
    score, entities = model.score, model.entities
    r = model.mix_relations(side.relations)
    if side.reverse:
        entities, r = score.swap(entities), score.transpose(r)
    h, tails = entities.index_select(0, side.heads), score.tails(entities)
    return _Read(h, r, score.query(h, r), tails, tails.index_select(0, candidates))


def _as_entities(score: Score, grad: Tensor, like: Tensor) -> Tensor:
    """The gradient of tails as that of whole rows, whose other columns have none."""
    if grad.shape[1] == like.shape[1]:
        return grad
    whole = like.new_zeros(len(grad), like.shape[1])
    score.tails(whole).copy_(grad)
    return whole


def _by_products(
    score: Score,
    read: _Read,
    side: Side,
    weights: Tensor,
    dtype: torch.dtype,
    teachers: Sequence[_Read],
    taught: float,
) -> tuple[Tensor, Tensor, Tensor, Answers]:
    """Loss, and gradients of questions, candidates and answers; for scores that are linear in the tail."""
    soft = estimate_softmax(read.q, read.others, _pair_scores(read.q, read.tails, side), side, weights, dtype)
    counts = side.counts.to(read.q.dtype)
    factor = counts / soft.z  # (b,) n_q / Z
    own = soft.own.mul_(factor[side.rows]).sub_(1.0 - taught)  # (pairs,) derivative of the loss by the answer's score
    if teachers:
        q = torch.cat([t.q for t in teachers], 1).div_(len(teachers))
        others, tails = torch.cat([t.others for t in teachers], 1), torch.cat([t.tails for t in teachers], 1)
        said = estimate_softmax(q, others, _pair_scores(q, tails, side), side, weights, dtype)
        part = taught / said.z
        soft.block.sub_(said.block.mul_((part * soft.z).to(dtype).unsqueeze(1)))
        own -= said.own * (part * counts)[side.rows]
    weighted = (read.others * weights.unsqueeze(1)).to(dtype)
    grad_q = multiply(soft.block, weighted).to(read.q.dtype).mul_(factor.unsqueeze(1))
    grad_q += embedding_bag(
        side.answers, read.tails, side.offsets, mode="sum", per_sample_weights=own, include_last_offset=True
    )
    grad_others = multiply(soft.block.T, (read.q * factor.unsqueeze(1)).to(dtype)).to(read.q.dtype)
    return soft.loss, grad_q, grad_others.mul_(weights.unsqueeze(1)), Answers(read.q, side.rows, own)


def _pair_scores(q: Tensor, tails: Tensor, side: Side) -> Tensor:
    """Scores of the answers, (pairs,): entries of q @ tails.T, and no others."""
    _hear_warning()
    shape, none = (len(q), len(tails)), q.new_zeros(len(side.answers))
    wanted = torch.sparse_csr_tensor(side.offsets, side.answers, none, shape, check_invariants=False)
    scores: Tensor = torch.sparse.sampled_addmm(wanted, q, tails.T, beta=0.0).values()
    return scores


@cache
def _hear_warning() -> None:
    """Torch says once in a process that its compressed matrices are a beta."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.eye(1).to_sparse_csr()


def estimate_softmax(
    q: Tensor, others: Tensor, scores: Tensor, side: Side, weights: Tensor, dtype: torch.dtype
) -> Estimated:
    """exp of all scores and Z; `scores` (pairs,) are those of the answers."""
    block = multiply(q.to(dtype), others.to(dtype).T)
    block.view(-1).index_fill_(0, side.cells, -torch.inf)
    largest = scores.new_full((len(q),), -torch.inf)
    if block.shape[1]:
        largest = block.amax(1).to(scores.dtype)
    largest.scatter_reduce_(0, side.rows, scores, "amax")
    block.sub_(largest.to(dtype).unsqueeze(1)).exp_()
    own = (scores - largest[side.rows]).exp_()
    z = torch.mv(block, weights.to(dtype)).to(scores.dtype).index_add_(0, side.rows, own)
    loss = (side.counts * (largest + z.log())).sum(dtype=torch.float64) - scores.sum(dtype=torch.float64)
    return Estimated(block, own, z, largest, loss)


def _by_autograd(
    score: Score,
    read: _Read,
    side: Side,
    weights: Tensor,
    dtype: torch.dtype,
    teachers: Sequence[_Read],
    taught: float,
) -> tuple[Tensor, Tensor, Tensor, Answers]:
    """Likewise for any score, by autograd."""
    with torch.enable_grad():
        q, others, own = (x.detach().requires_grad_() for x in (read.q, read.others, read.tails[side.answers]))
        block, scores, log_z = _log_z(score, q, others, own, side, weights)
        loss = (side.counts * log_z).sum() - scores.sum()
        aim = (side.counts * log_z).sum() - (1.0 - taught) * scores.sum()
        if teachers:
            said = [_log_z(score, t.q, t.others, t.tails[side.answers], side, weights)[:2] for t in teachers]
            mean_block, mean_scores = (torch.stack(each).mean(0) for each in zip(*said, strict=True))
            chances, answers = _chances(mean_block, mean_scores, side)
            per_answer = answers * side.counts[side.rows]
            known = block.masked_fill(chances == 0, 0.0)
            aim = aim - taught * ((side.counts.unsqueeze(1) * chances * known).sum() + (per_answer * scores).sum())
        grad_q, grad_others, grad_own = torch.autograd.grad(aim, (q, others, own))
    every = torch.arange(len(grad_own), device=grad_own.device)
    return loss.detach().double(), grad_q, grad_others, Answers(grad_own, every, torch.ones_like(grad_own[:, 0]))


def _log_z(
    score: Score, q: Tensor, others: Tensor, own: Tensor, side: Side, weights: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores of candidates with the logarithm of their weights (b, M), of answers (pairs,), and log Z (b,)."""
    block = score.compare(q, others) + weights.to(q.dtype).log()
    block = block.view(-1).index_fill(0, side.cells, -torch.inf).view(len(q), len(others))
    scores = score.pair(q.index_select(0, side.rows), own)
    return block, scores, _join(block, scores, side)


def _join(block: Tensor, scores: Tensor, side: Side) -> Tensor:
    """The logarithm of the sum of exp over candidates and answers, (b,)."""
    with torch.no_grad():
        largest = scores.new_full((len(block),), -torch.inf).scatter_reduce_(0, side.rows, scores, "amax")
        largest = torch.maximum(largest, block.amax(1)) if block.shape[1] else largest
    z = (block - largest.unsqueeze(1)).exp().sum(1)
    return largest + z.index_add(0, side.rows, (scores - largest[side.rows]).exp()).log()


def _chances(block: Tensor, scores: Tensor, side: Side) -> tuple[Tensor, Tensor]:
    """Probabilities of candidates (b, M) and answers (pairs,), from scores that have the weights in them."""
    log_z = _join(block, scores, side)
    return (block - log_z.unsqueeze(1)).exp(), (scores - log_z[side.rows]).exp()
