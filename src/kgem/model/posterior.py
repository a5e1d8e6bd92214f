"""The approximate posterior q: a mean-field Gaussian over both tables, its samples and its entropy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from kgem.errors import ConfigError
from kgem.model.prior import Prior

__all__ = ["Gaussian", "Posterior", "fill_normal"]

SERIAL = 2**19  # numbers of noise up to which torch's own generator is faster, though it has one thread
BLOCK = 2**16  # numbers of noise per pass beyond: large enough that dispatch does not count, small enough for the cache
SUMMED = 2**22  # numbers of a table that are added up at a time

# SplitMix64 (Steele, Lea, Flood 2014): the increment, then shift and multiplier of each round.
GOLDEN = 0x9E3779B97F4A7C15
ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))


@dataclass(frozen=True, eq=False)
class Gaussian:
    """Eq. 13: independent N(mean, exp(log_std)^2) for every number of one table."""

    mean: Tensor  # (rows, K')
    log_std: Tensor  # (rows, K'), xi in the paper

    @classmethod
    def around(cls, table: Tensor, std: float = 0.2) -> Gaussian:
        """Section 3.2: q around a pre-trained table, with the same standard deviation everywhere."""
        if not std > 0:
            raise ConfigError(f"a standard deviation of {std} is not positive", remedy="the paper starts with 0.2")
        return cls(mean=table.detach().clone(), log_std=torch.full_like(table, math.log(std)))

    @classmethod
    def of_prior(cls, prior: Prior, strengths: Tensor, width: int) -> Gaussian:
        """Rows about which nothing is known yet: of all q, the one nearest to the prior of these strengths, (rows,)."""
        log_std = prior.closest_log_std(strengths, width)[:, None].expand(-1, width).contiguous()
        return cls(mean=torch.zeros_like(log_std), log_std=log_std)

    @property
    def std(self) -> Tensor:
        """Eq. 15: sigma = exp(xi), (rows, K')."""
        return self.log_std.exp()

    def sample(
        self,
        generator: torch.Generator,
        out: Tensor | None = None,
        noise_out: Tensor | None = None,
        part: tuple[int, int] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Algorithm 2, lines 4-5: mean + exp(log_std) * noise, and the noise; both (rows, K').

        Writes into `out` and `noise_out` where given (contiguous, of the table's shape). Line 7 wants
        the gradient of log_std: that of the sample times exp(log_std) * noise, less 1. If these numbers are a part of
        more, `part` says how many come before them, and how many there are: the noise is that part of theirs.
        """
        sample = torch.empty_like(self.mean) if out is None else out
        noise = torch.empty_like(self.mean) if noise_out is None else noise_out
        fill_normal(noise, generator, part)
        torch.exp(self.log_std, out=sample)
        torch.addcmul(self.mean, sample, noise, out=sample)
        return sample, noise

    def entropy(self) -> Tensor:
        """H[q] = sum of log_std + log(2 pi e) / 2 (Eq. 14, every constant kept), a float64 scalar."""
        constant = 0.5 * math.log(2 * math.pi * math.e)
        rows = max(1, SUMMED // max(1, self.log_std.shape[1]))  # torch sums a float64 copy, twice the table
        sums = [part.sum(dtype=torch.float64) for part in torch.split(self.log_std, rows)]
        return torch.stack(sums).sum() + constant * self.log_std.numel()


@dataclass(frozen=True, eq=False)
class Posterior:
    """Eq. 12: q(E, R) = q(E) q(R)."""

    entities: Gaussian
    relations: Gaussian

    @classmethod
    def around(cls, entities: Tensor, relations: Tensor, std: float = 0.2) -> Posterior:
        """Section 3.2: q around two pre-trained tables."""
        return cls(Gaussian.around(entities, std), Gaussian.around(relations, std))

    def sample(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Fresh tables E and R drawn from q, entities first."""
        return self.entities.sample(generator)[0], self.relations.sample(generator)[0]

    def entropy(self) -> Tensor:
        """H[q], a float64 scalar."""
        return self.entities.entropy() + self.relations.entropy()


def fill_normal(out: Tensor, generator: torch.Generator, part: tuple[int, int] | None = None) -> None:
    """Fill a contiguous tensor with standard normal noise, in place; bit for bit the same for the same state.

    As a `part` of more numbers, of which so many come before and so many there are, it gets that part of their noise.

    torch draws normal numbers on one core only. Where there are many, on a CPU in float32, the noise is instead
    SplitMix64, started at 64 bits from `generator`, through the inverse of the distribution function: 24 bits a number,
    symmetric around 0, made by all of torch's threads and the same for any number of them. Where the generator is on
    another device than the tensor, as in a fit on CUDA, the noise is made beside the generator and copied.
    """
    if out.device.type != generator.device.type:
        made = torch.empty(out.shape, dtype=out.dtype, device=generator.device)
        fill_normal(made, generator, part)
        out.copy_(made)
        return
    before, total = part or (0, out.numel())
    if out.dtype != torch.float32 or out.device.type != "cpu" or total <= SERIAL:
        whole = out if part is None else out.new_empty(total)
        whole.normal_(generator=generator)
        if part is not None:
            out.view(-1).copy_(whole[before : before + out.numel()])
        return
    if before % 2:  # in the middle of a word
        longer = out.new_empty(out.numel() + 1)
        fill_normal(longer, generator, (before - 1, total))
        out.view(-1).copy_(longer[1:])
        return
    flat = out.view(-1)
    start = int(torch.empty(1, dtype=torch.int64).random_(-(2**63), None, generator=generator))
    counters = _counters(BLOCK)[: min(BLOCK, flat.numel() + 1) // 2 + 1]
    bits, shifted = torch.empty_like(counters), torch.empty_like(counters)
    for first in range(0, flat.numel(), BLOCK):
        block = flat[first : first + BLOCK]
        pairs = (block.numel() + 1) // 2  # one 64-bit word makes two numbers
        words = _splitmix(counters[:pairs], start + GOLDEN * ((before + first) // 2), bits[:pairs], shifted[:pairs])
        odd = words.view(torch.int32)[: block.numel()].bitwise_right_shift_(7).bitwise_or_(1)
        block.copy_(odd).mul_(2.0**-24)  # exact: odd multiples of 2^-24 in (-1, 1)
        torch.erfinv(block, out=block).mul_(math.sqrt(2))


@cache
def _counters(block: int) -> Tensor:
    """Multiples of the increment, as many as a pass over so many numbers needs."""
    return torch.arange(block // 2 + 1).mul_(_signed(GOLDEN))


def _splitmix(counters: Tensor, offset: int, bits: Tensor, shifted: Tensor) -> Tensor:
    """SplitMix64's output function of counters + offset, written to `bits`; `shifted` is scratch."""
    torch.add(counters, _signed(offset), out=bits)
    for shift, multiplier in ROUNDS:
        # torch shifts int64 with its sign: the mask makes that the unsigned shift of the definition.
        torch.bitwise_right_shift(bits, shift, out=shifted).bitwise_and_((1 << (64 - shift)) - 1)
        bits.bitwise_xor_(shifted)
        if multiplier != 1:
            bits.mul_(_signed(multiplier))
    return bits


def _signed(word: int) -> int:
    """The int64 with the same 64 bits."""
    return (word + 2**63) % 2**64 - 2**63
