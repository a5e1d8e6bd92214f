"""Each fact's tail against all entities not known to be right: softmax sums and first answers, in blocks.

The other known answers of a query are left out, as in filtered ranks. A score that is not finite stands for a
probability of zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from kgem.data.index import QueryIndex
from kgem.evaluate.ranking import Ints, Plan, Scorer, gather_equal_queries, known_cells

__all__ = ["Best", "Moments", "Part", "first_answers", "log_loss_sums", "parts"]

UNDERFLOW = -800.0  # exp of this is zero, in float64 too
LOWEST = -1e30  # the highest score of a query that has no competitor left


class Best(NamedTuple):
    """The highest scores of some queries and whose they are."""

    scores: Tensor  # (queries, top), descending
    tails: Tensor  # (queries, top)

    @classmethod
    def of(cls, scores: Tensor, tails: Tensor, top: int) -> Best:
        """The highest of each row; of equal ones, those further left."""
        ordered, places = scores.sort(dim=1, descending=True, stable=True)
        return cls(ordered[:, :top], tails.gather(1, places[:, :top]))

    def joined(self, scores: Tensor, tails: Tensor, top: int) -> Best:
        """The highest of these and others; equal others are behind."""
        return Best.of(torch.cat([self.scores, scores], 1), torch.cat([self.tails, tails], 1), top)


class Moments(NamedTuple):
    """Sums over competitors of e^(beta d), d e^(beta d), d^2 e^(beta d), where d is the score minus `top`; float64."""

    top: Tensor  # (n,)
    zeroth: Tensor
    first: Tensor
    second: Tensor

    @classmethod
    def of(cls, block: Tensor, beta: float) -> Moments:
        """Of the rows of a block (queries, entities), which is used up."""
        top = block.amax(1).clamp_min_(LOWEST)
        d = block.sub_(top[:, None]).clamp_min_(UNDERFLOW / beta)
        weights = (d * beta).exp_()
        sums = [weights.sum(1), weights.mul_(d).sum(1), weights.mul_(d).sum(1)]
        return cls(top.double(), *(each.double() for each in sums))

    @classmethod
    def of_one(cls, scores: Tensor) -> Moments:
        """Of a single competitor per row."""
        zeros = torch.zeros_like(scores, dtype=torch.float64)
        return cls(scores.double().clamp_min(LOWEST), torch.isfinite(scores).double(), zeros, zeros)

    def shifted(self, top: Tensor, beta: float) -> Moments:
        """The same sums, counted from a higher score."""
        by = self.top - top  # at most 0
        factor = (beta * by).exp()
        zeroth = self.zeroth
        first = self.first + by * self.zeroth
        second = self.second + 2 * by * self.first + by.square() * self.zeroth
        return Moments(top, factor * zeroth, factor * first, factor * second)

    def merged(self, other: Moments, beta: float) -> Moments:
        """Of the competitors of both."""
        top = torch.maximum(self.top, other.top)
        one, two = self.shifted(top, beta), other.shifted(top, beta)
        return Moments(top, *(a + b for a, b in zip(one[1:], two[1:], strict=True)))


class Part:
    """Some queries with all their facts; `blocks` scores them and, on its way, notes the scores of the facts' tails."""

    def __init__(
        self, scorer: Scorer, plan: Plan, facts: Ints, mine: Ints, rows: Ints, queries: Ints, known: QueryIndex | None
    ) -> None:
        self.mine = mine  # (n,), places of the facts
        self.rows = _put(rows, scorer)  # (n,), the query of each fact
        self.tails = _put(facts[mine, 2], scorer)  # (n,)
        self.scores = scorer.like.new_full((len(rows),), -torch.inf)  # (n,), of the tails
        known_rows, known_tails = known_cells(queries, known)
        n = scorer.n_entities
        # A tail that is not known stays in the contest by itself; one that is known must be added to it.
        left_out = np.isin(rows * n + facts[mine, 2], known_rows * n + known_tails)
        self.left_out = torch.from_numpy(left_out).to(scorer.like.device)  # (n,)
        self._known = _put(known_rows, scorer), _put(known_tails, scorer)
        self._scorer, self._ranges = scorer, list(plan.ranges(n))
        self._queries = _put(queries[:, 0], scorer), _put(queries[:, 1], scorer)

    def blocks(self) -> Iterator[tuple[int, Tensor]]:
        """For each range of entities its start and scores (queries, entities), the known answers at -inf."""
        write = self._scorer.prepare(*self._queries)
        buffer = self._scorer.like.new_empty(len(self._queries[0]), self._ranges[0][1])
        for start, stop in self._ranges:
            block = buffer[:, : stop - start]
            write(start, stop, block)
            block.nan_to_num_(nan=-torch.inf, posinf=-torch.inf, neginf=-torch.inf)
            inside = (self.tails >= start) & (self.tails < stop)
            self.scores[inside] = block[self.rows[inside], self.tails[inside] - start]
            rows, tails = self._known
            inside = (tails >= start) & (tails < stop)
            block[rows[inside], tails[inside] - start] = -torch.inf
            yield start, block

    @property
    def n_queries(self) -> int:
        return len(self._queries[0])

    @property
    def added(self) -> Tensor:
        """The scores of tails that must be added to the contest; -inf for those that are in it: (n,)."""
        return self.scores.masked_fill(~self.left_out, -torch.inf)

    def nothing(self) -> Moments:
        """The sums of each query before any block."""
        zeros = torch.zeros(self.n_queries, dtype=torch.float64, device=self.scores.device)
        return Moments(zeros + LOWEST, zeros, zeros, zeros)

    def joined(self, moments: Moments, beta: float) -> Moments:
        """The sums of each fact's own contest, (n,): its query's competitors and its tail."""
        mine = Moments(*(each[self.rows] for each in moments))
        return mine.merged(Moments.of_one(self.added), beta)


def parts(scorer: Scorer, facts: Ints, known: QueryIndex | None, memory: int) -> Iterator[Part]:
    """The facts in parts whose scores fit into memory, each query in one part only."""
    order, firsts = gather_equal_queries(facts)
    starts = np.append(firsts, len(facts))
    plan = Plan.fit(scorer, memory)
    for low, high in pairwise([*range(0, len(firsts), plan.queries), len(firsts)]):
        mine = order[starts[low] : starts[high]]
        rows = np.repeat(np.arange(high - low), np.diff(starts[low : high + 1]))
        yield Part(scorer, plan, facts, mine, rows, facts[order[starts[low:high]]], known)


@torch.no_grad()
def log_loss_sums(part: Part, beta: float) -> Tensor:
    """The sum over facts of -log softmax(beta * scores)[tail], and its first two derivatives by beta: (3,)."""
    moments = part.nothing()
    for _, block in part.blocks():
        moments = moments.merged(Moments.of(block, beta), beta)
    own = part.joined(moments, beta)
    gap = own.top - part.scores.double()
    mean = own.first / own.zeroth
    variance = (own.second / own.zeroth - mean.square()).clamp_min(0)
    return torch.stack([(own.zeroth.log() + beta * gap).sum(), (mean + gap).sum(), variance.sum()])


@torch.no_grad()
def first_answers(part: Part, beta: float, top: int) -> tuple[Tensor, Tensor]:
    """For each fact the probabilities of the first answers, and which of them is its tail: (n, top) each."""
    moments = part.nothing()
    best = Best(part.scores.new_empty(part.n_queries, 0), part.tails.new_empty(part.n_queries, 0))
    for start, block in part.blocks():
        scores, places = block.max(1, keepdim=True) if top == 1 else block.topk(min(top, block.shape[1]), dim=1)
        best = best.joined(scores, places + start, top)
        moments = moments.merged(Moments.of(block, beta), beta)
    own = part.joined(moments, beta)
    mine = Best(best.scores[part.rows], best.tails[part.rows]).joined(part.added[:, None], part.tails[:, None], top)
    share = (beta * (mine.scores.double() - own.top[:, None])).exp() / own.zeroth.clamp_min(1)[:, None]
    # Answers that are left out sink to the end at -inf: the tail may be among them once more.
    return share, (mine.tails == part.tails[:, None]) & torch.isfinite(mine.scores)


def _put(array: Ints, scorer: Scorer) -> Tensor:
    return torch.from_numpy(array.astype(np.int64)).to(scorer.like.device)
