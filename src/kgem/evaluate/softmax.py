"""Each fact's tail among all entities not known to be right: sums of softmaxes and first answers, in blocks.

The other known answers of a query are left out, as in filtered ranks. A score that is not finite stands for a
probability of zero. beta is 1/T: one number for each query, or row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kgem.data.index import QueryIndex
from kgem.evaluate.blocks import Block, Blocks, Ints, OnProgress, Scorer, Targets
from kgem.model.embeddings import Embeddings

__all__ = [
    "Competition",
    "Temperatures",
    "entropies",
    "entropies_of",
    "first_answers",
    "log_losses",
    "log_probabilities",
    "split_competitions",
]

UNDERFLOW = -800.0  # exp of this is zero, in float64 too
LOWEST = -1e30  # the highest score of a query that has no competitor left


Temperatures = float | npt.NDArray[np.float64]  # one for all facts, or each question's own, at each of its facts (n,)


class Best(NamedTuple):
    """The highest scores of some queries and whose they are."""

    scores: Tensor  # (queries, top), descending
    tails: Tensor  # (queries, top)

    @classmethod
    def of(cls, scores: Tensor, tails: Tensor, top: int) -> Best:
        """The highest of each row; of equal ones, those further left."""
        ordered, places = scores.sort(dim=1, descending=True, stable=True)
        return cls(ordered[:, :top], tails.gather(1, places[:, :top]))

    def extend(self, scores: Tensor, tails: Tensor, top: int) -> Best:
        """The highest of these and others; equal others are behind."""
        return Best.of(torch.cat([self.scores, scores], 1), torch.cat([self.tails, tails], 1), top)


class Moments(NamedTuple):
    """Sums over competitors of e^(beta d), d e^(beta d), d^2 e^(beta d), where d is the score minus `top`; float64."""

    top: Tensor  # (n,)
    zeroth: Tensor
    first: Tensor
    second: Tensor

    @classmethod
    def of_none(cls, n: int, device: torch.device) -> Moments:
        """Before there is any competitor: (n,)."""
        zeros = torch.zeros(n, dtype=torch.float64, device=device)
        return cls(zeros + LOWEST, zeros, zeros, zeros)

    @classmethod
    def of(cls, block: Tensor, beta: Tensor) -> Moments:
        """Of the rows of a block (queries, entities), which is used up."""
        top, by_row = block.amax(1).clamp_min_(LOWEST), beta.to(block.dtype)[:, None]
        d = block.sub_(top[:, None]).clamp_min_(UNDERFLOW / by_row)
        weights = (d * by_row).exp_()
        sums = [weights.sum(1), weights.mul_(d).sum(1), weights.mul_(d).sum(1)]
        return cls(top.double(), *(each.double() for each in sums))

    @classmethod
    def of_single(cls, scores: Tensor) -> Moments:
        """Of a single competitor per row."""
        zeros = torch.zeros_like(scores, dtype=torch.float64)
        return cls(scores.double().clamp_min(LOWEST), torch.isfinite(scores).double(), zeros, zeros)

    def relative_to(self, top: Tensor, beta: Tensor) -> Moments:
        """The same sums, counted from a higher score."""
        by = self.top - top  # at most 0
        factor = (beta * by).exp()
        zeroth = self.zeroth
        first = self.first + by * self.zeroth
        second = self.second + 2 * by * self.first + by.square() * self.zeroth
        return Moments(top, factor * zeroth, factor * first, factor * second)

    def combine(self, other: Moments, beta: Tensor) -> Moments:
        """Of the competitors of both."""
        top = torch.maximum(self.top, other.top)
        one, two = self.relative_to(top, beta), other.relative_to(top, beta)
        return Moments(top, *(a + b for a, b in zip(one[1:], two[1:], strict=True)))


class Competition:
    """The facts of a block against the competitors of their tails; `blocks` notes the tails' scores on its way."""

    def __init__(self, block: Block, facts: Ints, known: QueryIndex | None) -> None:
        self._block, self._targets = block, Targets(block, facts, known)
        self.places = block.places  # (n,), of the facts
        self.rows, self.tails = self._targets.rows, self._targets.tails  # (n,) each
        self.scores = block.buffer.new_full((len(block.rows),), -torch.inf)  # (n,), of the tails
        self.n_queries = len(block.queries)

    def blocks(self) -> Iterator[tuple[int, Tensor]]:
        """For each range of entities its start and scores (queries, entities), the known answers at -inf."""
        for start, scores in self._block.scores():
            scores.nan_to_num_(nan=-torch.inf, posinf=-torch.inf, neginf=-torch.inf)
            self._targets.read(start, scores, self.scores)
            self._targets.leave_out(start, scores, -torch.inf)
            yield start, scores

    @property
    def known_scores(self) -> Tensor:
        """The scores of tails that were left out with the known answers, -inf for the other ones: (n,)."""
        left_out = torch.from_numpy(self._targets.known).to(self.scores.device)
        return self.scores.masked_fill(~left_out, -torch.inf)

    def betas(self, temperatures: Temperatures) -> Tensor:
        """1/T of each query, from those of all facts: (queries,), float64."""
        if not isinstance(temperatures, np.ndarray):
            return torch.full((self.n_queries,), 1 / temperatures, dtype=torch.float64, device=self.scores.device)
        betas = torch.empty(self.n_queries, dtype=torch.float64, device=self.scores.device)
        betas[self.rows] = torch.from_numpy(1 / temperatures[self.places]).to(betas)
        return betas

    def sum_competitors(self, beta: Tensor) -> Moments:
        """The sums of each query's competitors."""
        moments = self.no_competitors()
        for _, block in self.blocks():
            moments = moments.combine(Moments.of(block, beta), beta)
        return moments

    def no_competitors(self) -> Moments:
        return Moments.of_none(self.n_queries, self.scores.device)

    def add_tails(self, moments: Moments, beta: Tensor) -> Moments:
        """The sums of each fact, (n,): its query's competitors and its tail."""
        mine = Moments(*(each[self.rows] for each in moments))
        return mine.combine(Moments.of_single(self.known_scores), beta[self.rows])


def split_competitions(
    scorer: Scorer | Embeddings,
    facts: Ints,
    known: QueryIndex | None,
    memory: int,
    on_progress: OnProgress | None = None,
) -> Iterator[Competition]:
    """The facts in parts whose scores fit into memory, each query in one part only."""
    for block in Blocks(scorer, facts, memory, on_progress=on_progress):
        yield Competition(block, facts, known)


@torch.no_grad()
def log_probabilities(part: Competition, temperatures: Temperatures) -> Tensor:
    """log softmax(scores / T)[tail] of each fact, (n,), float64."""
    return -log_losses(part, temperatures)[0]


@torch.no_grad()
def log_losses(part: Competition, temperatures: Temperatures) -> Tensor:
    """Of each fact -log softmax(beta * scores)[tail], and its first two derivatives by beta: (3, n), float64."""
    beta = part.betas(temperatures)
    own = part.add_tails(part.sum_competitors(beta), beta)
    gap = own.top - part.scores.double()
    mean = own.first / own.zeroth
    variance = (own.second / own.zeroth - mean.square()).clamp_min(0)
    return torch.stack([own.zeroth.log() + beta[part.rows] * gap, mean + gap, variance])


@torch.no_grad()
def entropies(part: Competition, temperature: float) -> Tensor:
    """For each fact the entropy of softmax(scores / T) over what its query does not know, nats: (n,), float64."""
    beta = part.betas(temperature)
    return _entropy(part.sum_competitors(beta), beta)[part.rows]


@torch.no_grad()
def entropies_of(scores: Tensor, left_out: tuple[Tensor, Tensor], temperature: float) -> Tensor:
    """Likewise for queries whose scores (b, N_e) are at hand, without some cells of them: (b,), float64."""
    beta = scores.new_full((len(scores),), 1 / temperature, dtype=torch.float64)
    others = scores.nan_to_num(nan=-torch.inf, posinf=-torch.inf, neginf=-torch.inf)  # a copy
    others[left_out] = -torch.inf
    return _entropy(Moments.of(others, beta), beta)


def _entropy(moments: Moments, beta: Tensor) -> Tensor:
    """log Z - beta E[d]; none where nothing competes."""
    there = moments.zeroth > 0
    z = moments.zeroth.where(there, torch.ones_like(moments.zeroth))
    return (z.log() - beta * moments.first / z).clamp_min(0)


@torch.no_grad()
def first_answers(part: Competition, temperatures: Temperatures, top: int) -> tuple[Tensor, Tensor]:
    """For each fact the probabilities of the first answers, and which of them is its tail: (n, top) each."""
    beta, moments = part.betas(temperatures), part.no_competitors()
    best = Best(part.scores.new_empty(part.n_queries, 0), part.tails.new_empty(part.n_queries, 0))
    for start, block in part.blocks():
        scores, places = block.max(1, keepdim=True) if top == 1 else block.topk(min(top, block.shape[1]), dim=1)
        best = best.extend(scores, places + start, top)
        moments = moments.combine(Moments.of(block, beta), beta)
    own = part.add_tails(moments, beta)
    mine = Best(best.scores[part.rows], best.tails[part.rows])
    mine = mine.extend(part.known_scores[:, None], part.tails[:, None], top)
    share = (beta[part.rows][:, None] * (mine.scores.double() - own.top[:, None])).exp() / own.zeroth.clamp_min(1)[
        :, None
    ]
    # Answers that are left out sink to the end at -inf: the tail may be among them once more.
    return share, (mine.tails == part.tails[:, None]) & torch.isfinite(mine.scores)
