"""Each equation of the paper against an independent computation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from kgem.model.posterior import Gaussian, Posterior
from kgem.model.prior import Prior, conventional_strengths

PRIORS = [Prior(p, space) for p in (2, 3) for space in (False, True)]
each_prior = pytest.mark.parametrize("prior", PRIORS, ids=lambda prior: f"p{prior.p}-{prior.complex}")


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def norm_p(prior: Prior, x: Tensor) -> Tensor:
    """||x||_p^p of one embedding vector, as a sum over its coordinates."""
    k = len(x) // 2
    sizes = [torch.hypot(x[i], x[k + i]) for i in range(k)] if prior.complex else [abs(v) for v in x]
    return torch.stack([size**prior.p for size in sizes]).sum()


# Eq. 6: conventional models have strengths in proportion to counts


@each_prior
def test_eq6_makes_eq2_the_conventional_loss(prior: Prior) -> None:
    facts = np.array([[0, 0, 1], [0, 1, 2], [3, 0, 1], [1, 1, 1]])  # h, r, t
    E, R, strength = normal(4, 6), normal(2, 6, seed=1), 0.3
    inside = sum(  # Eq. 1: the penalty inside the sum over facts
        strength / prior.p * (norm_p(prior, E[h]) + norm_p(prior, E[t]) + norm_p(prior, R[r])) for h, r, t in facts
    )
    counts = np.bincount(facts[:, [0, 2]].ravel()), np.bincount(facts[:, 1])
    outside = sum(
        prior.penalty(table, conventional_strengths(n, strength, dtype=torch.float64))
        for table, n in zip((E, R), counts, strict=True)
    )
    torch.testing.assert_close(outside, inside)


# Eq. 8: the prior


@each_prior
def test_eq8_log_density_ratios_are_penalty_differences(prior: Prior) -> None:
    x, y, lam = normal(1, 6), normal(1, 6, seed=1), torch.tensor([1.7], dtype=torch.float64)
    expected = -1.7 / prior.p * (norm_p(prior, x[0]) - norm_p(prior, y[0]))
    torch.testing.assert_close(prior.log_density(x, lam) - prior.log_density(y, lam), expected)


# Eqs. 12 and 13: the variational family, and the entropy of Eq. 14


def test_eqs12_13_samples_have_the_means_and_deviations_of_q() -> None:
    q = Posterior(Gaussian(normal(3, 4), normal(3, 4, seed=1)), Gaussian(normal(2, 4, seed=2), normal(2, 4, seed=3)))
    generator = torch.Generator().manual_seed(4)
    draws = [q.sample(generator) for _ in range(4000)]
    for part, samples in zip((q.entities, q.relations), zip(*draws, strict=True), strict=True):
        stacked = torch.stack(samples)
        z = (stacked.mean(0) - part.mean) / part.std * len(draws) ** 0.5
        assert z.abs().max() < 4.5
        assert ((stacked.std(0) / part.std - 1).abs() < 4.5 / (2 * len(draws)) ** 0.5).all()


def test_eq14_entropy_is_minus_the_expected_log_density() -> None:
    q = Gaussian(normal(2, 3), normal(2, 3, seed=1))
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    density = torch.distributions.Normal(q.mean, q.std)
    expected = torch.zeros((), dtype=torch.float64)
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        expected = expected - weight * density.log_prob(q.mean + q.std * node).sum()
    torch.testing.assert_close(q.entropy(), expected)


# Eq. 16: the normalised prior


@each_prior
def test_eq16_depends_on_the_strength_as_stated(prior: Prior) -> None:
    x, width = normal(1, 6), 6  # K' = 6: K = 6 real or K = 3 complex coordinates
    low, high = (torch.tensor([value], dtype=torch.float64) for value in (0.4, 9.0))
    expected = width / prior.p * (high / low).log() - (high - low) / prior.p * norm_p(prior, x[0])
    got = prior.log_density(x, high) - prior.log_density(x, low)
    torch.testing.assert_close(got, expected.squeeze())


# Eq. 17: the best strengths given q


@each_prior
def test_eq17_zeroes_the_derivative_of_the_expected_eq16(prior: Prior) -> None:
    q = Gaussian(normal(5, 6), normal(5, 6, seed=1) - 1)
    generator = torch.Generator().manual_seed(2)
    samples = [q.sample(generator)[0] for _ in range(50)]
    sampled = torch.stack([prior.norm(x) for x in samples]).mean(0)
    lam = (1 / prior.optimal_inverse_strengths(sampled, 6)).requires_grad_()
    objective = torch.stack([prior.log_density(x, lam) for x in samples]).mean()
    (slope,) = torch.autograd.grad(objective, lam, create_graph=True)
    torch.testing.assert_close(slope * lam, torch.zeros_like(lam), rtol=0, atol=1e-10)
    (curvature,) = torch.autograd.grad(slope.sum(), lam)
    assert (curvature < 0).all()  # a maximum


@each_prior
def test_eq17_with_the_exact_expectation(prior: Prior) -> None:
    q = Gaussian(normal(5, 6), normal(5, 6, seed=1) - 1)
    expected = prior.expected_norm(q.mean, q.log_std)
    lam = (1 / prior.optimal_inverse_strengths(expected, 6)).requires_grad_()
    bound = prior.log_normaliser(lam, 6) - (lam / prior.p * expected).sum()
    (slope,) = torch.autograd.grad(bound, lam)
    torch.testing.assert_close(slope * lam, torch.zeros_like(lam), rtol=0, atol=1e-10)
