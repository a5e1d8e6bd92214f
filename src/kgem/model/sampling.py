"""Candidates of a step: a Poisson sample of all entities, with known probabilities of being in it.

Entity t is in the sample with probability pi_t = min(1, c n_t^a), independently of the others, with c such that the
sample has M entities on average. A sum over all entities is then estimated without bias by the sum over the sample of
each term times 1 / pi_t. Nothing in a draw looks at all entities: a Poisson process of rate 1 on a line, where t has
the length -log(1 - pi_t), has a point in t's part with probability pi_t, and the points are found by bisection.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kgem.errors import ConfigError

__all__ = ["Candidates"]

ROUNDS = 60  # of the search for c: bisection to the last digit


class Candidates:
    """Inclusion probabilities for a number of candidates, and draws by them."""

    def __init__(self, counts: Tensor, expected: int, exponent: float) -> None:
        """`counts` (n,) are the facts of each entity; one without any counts as if it had one."""
        if expected < 1:
            raise ConfigError(f"{expected} candidates are none", remedy="train.candidates is at least 1")
        weights = _round(_inclusion(counts.clamp_min(1).double().pow(exponent), expected).reciprocal())
        self.weights = weights.float()  # (n,) 1 / pi, which a bfloat16 holds exactly
        self.probabilities = weights.reciprocal()  # (n,) pi, float64
        self._always = torch.nonzero(weights <= 1).squeeze(1)
        lengths = torch.where(weights <= 1, 0.0, -torch.log1p(-self.probabilities))
        self._ends = lengths.cumsum(0)

    @property
    def expected(self) -> float:
        """M: how many there are on average."""
        return float(self.probabilities.sum())

    def draw(self, generator: torch.Generator) -> Tensor:
        """One sample, ascending: (about M,)."""
        total = self._ends[-1:]
        n = int(torch.poisson(total, generator=generator))
        points = torch.rand(n, generator=generator, dtype=torch.float64).mul_(total)
        points = points.sort().values  # to be found one beside the other
        found = torch.searchsorted(self._ends, points, right=True).clamp_(max=len(self._ends) - 1)
        sample: Tensor = torch.unique(torch.cat([found, self._always]))
        return sample


def _inclusion(weights: Tensor, expected: int) -> Tensor:
    """min(1, c * weights) with the c that makes them add up to `expected`, or all 1 if there are no more entities."""
    if expected >= len(weights):
        return torch.ones_like(weights)
    low, high = 0.0, expected / float(weights.min())  # at the upper end every one is at least expected / n_min
    for _ in range(ROUNDS):
        c = (low + high) / 2
        low, high = (c, high) if float((c * weights).clamp_max(1).sum()) < expected else (low, c)
    return (high * weights).clamp_max(1)


def _round(weights: Tensor) -> Tensor:
    """To what bfloat16 holds, so that products in it stay without bias; never below 1."""
    return weights.to(torch.bfloat16).double().clamp_min(1)
