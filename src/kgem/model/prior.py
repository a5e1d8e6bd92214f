"""The prior on embedding vectors: penalty, normaliser and strengths; the only place that knows p and K'.

A table has one embedding vector per row; in a complex space a row is [real parts | imaginary parts].
Either way K' is the number of columns, and a "coordinate" is one real number or one complex one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kgem.errors import ConfigError

__all__ = ["Prior", "Strengths", "conventional_strengths", "similar_strengths", "uniform_strengths"]

Counts = Tensor | npt.NDArray[np.int64]

# Numbers per block of rows: temporaries stay in cache, and there are few enough calls for dispatch not to count.
BLOCK = 2**19

# Nodes of the quadrature behind `_third_moment_complex`: 12 leave a relative error below 1e-5, 8 below 1e-4.
NODES = 12


class Strengths(NamedTuple):
    """lambda^E and lambda^R: one regulariser strength per row of each table."""

    entities: Tensor  # (n_entities,)
    relations: Tensor  # (relation rows,), reciprocal ones included

    def __repr__(self) -> str:
        return f"<Strengths of {len(self.entities):,} entities and {len(self.relations):,} rows of relations>"


@dataclass(frozen=True)
class Prior:
    """Eq. 8: p(x | lambda) proportional to exp(-lambda/p ||x||_p^p), one strength lambda per row."""

    p: int  # 2 or 3
    complex: bool  # moduli of complex coordinates, or absolute values of real ones

    def __post_init__(self) -> None:
        if self.p not in (2, 3):
            raise ConfigError(f"the prior has no norm p = {self.p}", remedy="p is 2 or 3")

    def norm(self, table: Tensor) -> Tensor:
        """||x||_p^p of each row, (rows,); differentiable, at zeros too."""
        blocks = [self._norm(x) for (x,) in _cut(table)]
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks)

    def penalty(self, table: Tensor, strengths: Tensor) -> Tensor:
        """Eq. 8: the sum over rows of lambda/p ||x||_p^p, a float64 scalar."""
        return (strengths * self.norm(table)).sum(dtype=torch.float64) / self.p

    def add_gradient(self, table: Tensor, strengths: Tensor, out: Tensor, scale: float = 1.0) -> None:
        """Eq. 8: add scale * d penalty / d table = scale * lambda |x|^(p-2) x to `out`, in place."""
        if self.p == 2:
            out.addcmul_(table, strengths[:, None], value=scale)
            return
        for x, lam, part in _cut(table, strengths, out):
            weight = lam.unsqueeze(1)  # (block, 1)
            if self.complex:
                factor = _squared_moduli(x).sqrt_().mul_(weight)  # (block, K)
                # Real and imaginary part apart: half the time of one product with the factor repeated.
                for half, of in zip(part.chunk(2, dim=1), x.chunk(2, dim=1), strict=True):
                    half.addcmul_(factor, of, value=scale)
            else:
                part.addcmul_(x.abs().mul_(weight), x, value=scale)

    def log_normaliser(self, strengths: Tensor, width: int) -> Tensor:
        """Eq. 16 without its norm: K'/p log lambda and every constant, summed over rows; a float64 scalar."""
        p = self.p
        if self.complex:
            coordinates, constant = width // 2, math.log(p / (2 * math.pi)) - math.lgamma(2 / p)
        else:
            coordinates, constant = width, math.log(p / 2) - math.lgamma(1 / p)
        logs = (strengths.to(torch.float64) / p).log().sum()
        return width / p * logs + coordinates * constant * len(strengths)

    def optimal_inverse_strengths(self, expected_norm: Tensor, width: int) -> Tensor:
        """Eq. 17: 1/lambda = E_q ||x||_p^p / K' for each row, (rows,)."""
        return expected_norm / width

    def expected_norm(self, mean: Tensor, log_std: Tensor) -> Tensor:
        """Right-hand side of Eq. 17: E_q ||x||_p^p of each row under a Gaussian, (rows,).

        A closed form, except for p = 3 in a complex space: there a quadrature with a relative error
        below 1e-5 whatever the means and standard deviations. Differentiable.
        """
        return torch.cat([self._expected_norm(m, xi.exp()) for m, xi in _cut(mean, log_std)])

    def closest_log_std(self, strengths: Tensor, width: int) -> Tensor:
        """The xi, (rows,), of the centred Gaussian nearest to the prior: KL(q || p) is least where Eq. 17 holds.

        With zero mean E ||x||_p^p = c sigma^p, and the derivative of lambda/p c sigma^p - K' log sigma vanishes
        where lambda c sigma^p = K'. It is all that is known about a symbol without facts.
        """
        centred = torch.zeros(1, width, dtype=torch.float64)
        constant = float(self.expected_norm(centred, centred))
        return (math.log(width / constant) - strengths.log()) / self.p

    def _norm(self, x: Tensor) -> Tensor:
        if self.p == 2:
            return x.square().sum(1)
        if not self.complex:
            return x.abs().pow(3).sum(1)
        squares = _squared_moduli(x)
        if not squares.requires_grad:
            return squares.sqrt().mul_(squares).sum(1)
        # Without the clamp, the derivative of the root at 0 is infinite and autograd makes NaN of it.
        return (squares.clamp_min(torch.finfo(x.dtype).tiny).sqrt() * squares).sum(1)

    def _expected_norm(self, mean: Tensor, std: Tensor) -> Tensor:
        if self.p == 2:
            return (mean.square() + std.square()).sum(1)
        moments = _third_moment_complex if self.complex else _third_moment_real
        return moments(mean, std).sum(1)


def conventional_strengths(counts: Counts, strength: float, dtype: torch.dtype = torch.float32) -> Tensor:
    """Eq. 6: lambda_i = strength * n_i, where a symbol that training never shows counts once."""
    return strength * _at_least_one(counts, dtype)


def uniform_strengths(counts: Counts, strength: float, dtype: torch.dtype = torch.float32) -> Tensor:
    """The uniform variant of Eq. 6: lambda_i = strength * mean(n) for every i."""
    occurrences = _at_least_one(counts, torch.float64)
    return torch.full_like(occurrences, strength * float(occurrences.mean()), dtype=dtype)


def similar_strengths(counts: Counts, strengths: Tensor, new_counts: Counts, nearest: int = 32) -> Tensor:
    """Strengths for new symbols: the geometric mean of those of the known ones with the most similar counts, (new,).

    Learned strengths follow counts, but no fixed rule (Fig. 3): this one is read off what was learned. Symbols that
    training never showed have told nothing, and are left out if there are others.
    """
    known = torch.as_tensor(np.array(counts)).to(strengths.device)
    seen = known > 0 if bool((known > 0).any()) else known >= 0
    order = torch.argsort(known[seen], stable=True)
    ordered = known[seen][order].contiguous()  # ascending
    logs = strengths[seen][order].double().log()
    sums = torch.cat([logs.new_zeros(1), logs.cumsum(0)])
    size = min(nearest, len(ordered))
    wanted = torch.as_tensor(np.array(new_counts)).to(ordered)
    middle = (torch.searchsorted(ordered, wanted) + torch.searchsorted(ordered, wanted, right=True)) // 2
    first = (middle - size // 2).clamp(0, len(ordered) - size)
    return ((sums[first + size] - sums[first]) / size).exp().to(strengths.dtype)


def _at_least_one(counts: Counts, dtype: torch.dtype) -> Tensor:
    # torch.tensor copies: the counts of a Dataset are read-only arrays, which torch will not wrap silently.
    given = counts if isinstance(counts, Tensor) else torch.tensor(counts)
    return given.clamp_min(1).to(dtype)


def _pairs(x: Tensor) -> Tensor:
    """Rows [real | imaginary] as (rows, 2, K), the same memory."""
    return x.view(len(x), 2, x.shape[1] // 2)


def _squared_moduli(x: Tensor) -> Tensor:
    """|x_k|^2 of the complex coordinates of rows [real | imaginary], (rows, K)."""
    real, imaginary = _pairs(x).unbind(1)
    return (real * real).addcmul_(imaginary, imaginary)


def _third_moment_real(mean: Tensor, std: Tensor) -> Tensor:
    """E |x|^3 for x ~ N(mean, std^2): the third moment of the folded normal distribution."""
    ratio = mean / std.clamp_min(torch.finfo(std.dtype).tiny)
    near = (mean.square() + 2 * std.square()) * std * math.sqrt(2 / math.pi) * (-0.5 * ratio.square()).exp()
    return near + mean * (mean.square() + 3 * std.square()) * (ratio / math.sqrt(2)).erf()


def _third_moment_complex(mean: Tensor, std: Tensor) -> Tensor:
    """E |x|^3 for a complex x whose two parts are independent Gaussians, (rows, K).

    Let Q = |x|^2 and M(s) = E exp(-s Q), which is elementary. As Q^(3/2) is the integral of
    Q^2 exp(-s Q) / sqrt(pi s) over s > 0, E Q^(3/2) is that of M''(s) / sqrt(pi s). After s = 2 tan(a)^2 / E Q
    the integrand is smooth in a with period pi, and the midpoint rule converges fast. A product rule over
    both parts would need 64 x 64 nodes for 1e-4, because |x|^3 is not smooth at 0.
    """
    # Real and imaginary part apart, because torch is slow at reductions over two numbers.
    m1, m2 = (part.square() for part in _pairs(mean).unbind(1))  # (rows, K)
    v1, v2 = (part.square() for part in _pairs(std).unbind(1))
    scale = (m1 + v1 + m2 + v2).clamp_min(torch.finfo(mean.dtype).tiny)  # E Q
    m1, v1, m2, v2 = m1 / scale, v1 / scale, m2 / scale, v2 / scale
    total = torch.zeros_like(scale)
    for node in range(NODES):
        angle = (node + 0.5) * math.pi / (2 * NODES)
        s = 2 * math.tan(angle) ** 2
        log1, first1, second1 = _log_transform(m1, v1, s)
        log2, first2, second2 = _log_transform(m2, v2, s)
        curvature = (first1 + first2).square() + second1 + second2  # M'' / M
        total = total + (log1 + log2).exp() * curvature / math.cos(angle) ** 2
    return total * scale * scale.sqrt() * (math.sqrt(2 * math.pi) / NODES)


def _log_transform(m: Tensor, v: Tensor, s: float) -> tuple[Tensor, Tensor, Tensor]:
    """log E exp(-s x^2) for a Gaussian x with squared mean m and variance v; minus its first, its second derivative."""
    shrink = (1 + 2 * s * v).reciprocal()
    shift, spread = m * shrink, v * shrink
    centre = shift * shrink
    return 0.5 * shrink.log() - s * shift, spread + centre, 2 * spread * (spread + 2 * centre)


def _cut(table: Tensor, *others: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Blocks of rows that cover a table, and the same rows of others; an empty one for an empty table."""
    size = max(1, BLOCK // max(1, table.shape[1]))
    every = (table, *others)
    if len(table) <= size:
        yield every
        return
    yield from zip(*(torch.split(each, size) for each in every), strict=True)
