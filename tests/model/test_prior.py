"""The prior: norms, gradients, normalisers, moments and strengths against independent computations."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.polynomial.legendre import leggauss
from scipy import integrate
from torch import Tensor

from kgem.errors import ConfigError
from kgem.model import prior as module
from kgem.model.prior import Prior, conventional_strengths, similar_strengths, uniform_strengths
from obvious import log_density

ALL = [Prior(p, space) for p in (2, 3) for space in (False, True)]
each_prior = pytest.mark.parametrize("prior", ALL, ids=lambda prior: f"p{prior.p}-{prior.complex}")


def table(rows: int = 7, width: int = 6, seed: int = 0) -> Tensor:
    return torch.randn(rows, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def strengths(rows: int = 7) -> Tensor:
    return torch.linspace(0.3, 4.0, rows, dtype=torch.float64)


def plain_norm(prior: Prior, x: Tensor) -> Tensor:
    """The definition, by way of torch's complex numbers."""
    width = x.shape[1]
    coordinates = torch.complex(x[:, : width // 2], x[:, width // 2 :]) if prior.complex else x
    return (coordinates.abs() ** prior.p).sum(1)


@each_prior
def test_norm_is_the_sum_of_powers(prior: Prior, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 12)  # two rows a block, the last one short
    torch.testing.assert_close(prior.norm(table()), plain_norm(prior, table()))


@each_prior
def test_penalty_weighs_every_row_with_its_strength(prior: Prior) -> None:
    expected = sum(s / prior.p * n for s, n in zip(strengths(), plain_norm(prior, table()), strict=True))
    torch.testing.assert_close(prior.penalty(table(), strengths()), expected)


@each_prior
@pytest.mark.parametrize("block", [12, 2**19])
def test_gradient_equals_autograd_also_at_zeros(prior: Prior, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", block)
    x = table()
    x[2] = 0  # a row of zeros
    x[4, 1] = 0  # a part of a coordinate
    leaf = x.clone().requires_grad_()
    prior.penalty(leaf, strengths()).backward()
    assert leaf.grad is not None
    start = table(seed=1)
    out = start.clone()
    prior.add_gradient(x, strengths(), out, scale=0.25)
    assert torch.isfinite(out).all()
    torch.testing.assert_close(out, start + 0.25 * leaf.grad)
    assert torch.equal(out[2], start[2])


@each_prior
def test_gradient_of_the_penalty_is_its_finite_difference(prior: Prior) -> None:
    x, lam = table().requires_grad_(), strengths()
    assert torch.autograd.gradcheck(lambda t: prior.penalty(t, lam), (x,))


@each_prior
def test_table_without_rows(prior: Prior) -> None:
    empty = torch.zeros(0, 4)
    prior.add_gradient(empty, torch.zeros(0), empty)
    assert prior.norm(empty).shape == (0,)
    assert prior.expected_norm(empty, empty).shape == (0,)


@each_prior
@pytest.mark.parametrize("strength", [0.2, 1.0, 30.0])
def test_density_integrates_to_one(prior: Prior, strength: float) -> None:
    lam = torch.tensor([strength], dtype=torch.float64)
    reach = (strength / prior.p) ** (-1 / prior.p) * 7  # beyond it the density is below exp(-49)

    def density(*x: float) -> float:
        return float(log_density(prior, torch.tensor([x], dtype=torch.float64), lam).exp())

    if prior.complex:  # integrate over both parts of one coordinate; it is even in both
        nodes, weights = leggauss(60)
        grid, mass = (nodes + 1) * reach / 2, weights * reach / 2
        real, imaginary = np.meshgrid(grid, grid)
        points = torch.tensor(np.stack([real.ravel(), imaginary.ravel()], 1))  # (3600, 2)
        logs = prior.log_normaliser(lam, 2) - strength / prior.p * plain_norm(prior, points)
        total = 4 * float((torch.tensor(np.outer(mass, mass).ravel()) * logs.exp()).sum())
        assert density(0.1, -0.2) == pytest.approx(
            float(torch.exp(prior.log_normaliser(lam, 2) - strength / prior.p * np.hypot(0.1, 0.2) ** prior.p))
        )
    else:
        total = 2 * integrate.quad(density, 0, reach, epsabs=1e-11)[0]
    assert total == pytest.approx(1, abs=1e-6)


@each_prior
def test_normaliser_adds_up_over_rows_and_coordinates(prior: Prior) -> None:
    lam = strengths(5)
    one_by_one = sum(3 * prior.log_normaliser(lam[i : i + 1], 2) for i in range(5))
    torch.testing.assert_close(prior.log_normaliser(lam, 6), one_by_one)


def test_normal_prior_is_a_normal_distribution() -> None:
    x, lam = table(), strengths()
    expected = torch.distributions.Normal(0.0, lam[:, None] ** -0.5).log_prob(x).sum()
    for space in (False, True):
        torch.testing.assert_close(log_density(Prior(2, space), x, lam), expected)


def grid_moment(p: int, mean: np.ndarray, std: np.ndarray) -> float:
    """E |x|^p over one real or complex coordinate by fine Gauss-Legendre pieces, split where |x| = 0."""
    nodes, weights = leggauss(40)
    axes = []
    for m, s in zip(mean, std, strict=True):
        low, high = m - 9 * s, m + 9 * s
        near = [e for r in (-1, -0.1, 0, 0.1, 1) if low < (e := r * s) < high]
        edges = np.unique([*np.linspace(low, high, 7), *near])
        half, middle = np.diff(edges)[:, None] / 2, (edges[1:] + edges[:-1])[:, None] / 2
        x = (middle + half * nodes).ravel()
        density = np.exp(-0.5 * ((x - m) / s) ** 2) / (s * np.sqrt(2 * np.pi))
        axes.append((x, (half * weights).ravel() * density))
    if len(axes) == 1:
        return float((axes[0][1] * np.abs(axes[0][0]) ** p).sum())
    (x, u), (y, w) = axes
    return float(u @ np.hypot(x[:, None], y[None]) ** p @ w)


MOMENTS = [  # (means, standard deviations) of the two parts
    ([0.0, 0.0], [1.0, 1.0]),
    ([0.0, 0.0], [1.0, 0.01]),
    ([1.0, -2.0], [0.01, 0.02]),
    ([0.3, -0.5], [0.7, 0.2]),
    ([0.001, 0.0], [0.2, 0.2]),
    ([5.0, 0.0], [0.1, 3.0]),
    ([0.0, 2.0], [3.0, 1e-6]),
    ([-40.0, 30.0], [10.0, 20.0]),
]


@each_prior
@pytest.mark.parametrize(("mean", "std"), MOMENTS)
def test_expected_norm_equals_numerical_integration(prior: Prior, mean: list[float], std: list[float]) -> None:
    m, s = np.array(mean), np.array(std)
    if prior.complex:
        expected = grid_moment(prior.p, m, s)
    else:
        expected = sum(grid_moment(prior.p, m[i : i + 1], s[i : i + 1]) for i in range(2))
    got = prior.expected_norm(torch.tensor(m)[None], torch.tensor(s).log()[None])
    tolerance = 1e-5 if (prior.p, prior.complex) == (3, True) else 1e-9
    assert got.item() == pytest.approx(expected, rel=tolerance)


def test_third_moment_of_equal_parts_is_known() -> None:
    # A centred complex Gaussian has a Rayleigh modulus: E |x|^3 = 3 sqrt(pi / 2) sigma^3.
    std = torch.tensor([0.01, 0.2, 5.0], dtype=torch.float64)[:, None].expand(3, 2)
    got = Prior(3, True).expected_norm(torch.zeros_like(std), std.log())
    torch.testing.assert_close(got, 3 * np.sqrt(np.pi / 2) * std[:, 0] ** 3, rtol=1e-9, atol=0)


@each_prior
def test_expected_norm_over_many_scales_in_float32(prior: Prior) -> None:
    generator = torch.Generator().manual_seed(3)
    exponents = torch.rand(500, 4, generator=generator, dtype=torch.float64) * 4 - 3
    mean, log_std = 10 ** exponents[:, :2], exponents[:, 2:] * np.log(10)
    exact = prior.expected_norm(mean, log_std)
    got = prior.expected_norm(mean.float(), log_std.float())
    torch.testing.assert_close(got.double(), exact, rtol=2e-5, atol=0)


@each_prior
def test_expected_norm_without_noise_is_the_norm(prior: Prior) -> None:
    x = table().float()
    x[1] = 0
    got = prior.expected_norm(x, torch.full_like(x, -torch.inf))
    torch.testing.assert_close(got, prior.norm(x), rtol=1e-5, atol=0)


@each_prior
def test_expected_norm_is_the_mean_over_samples(prior: Prior) -> None:
    mean, std = table(4), table(4, seed=1).exp()
    noise = torch.randn(100_000, 4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    norms = plain_norm(prior, (mean + std * noise).view(-1, 6)).view(-1, 4)
    error = norms.std(0) / len(noise) ** 0.5
    assert ((prior.expected_norm(mean, std.log()) - norms.mean(0)).abs() < 4.5 * error).all()


@each_prior
def test_expected_norm_is_differentiable(prior: Prior) -> None:
    mean, log_std = table(3).requires_grad_(), (table(3, seed=1) - 1).requires_grad_()
    assert torch.autograd.gradcheck(prior.expected_norm, (mean, log_std))


@each_prior
def test_float32_stays_float32_and_agrees(prior: Prior) -> None:
    x, lam = table().float(), strengths().float()
    norm = prior.norm(x)
    assert norm.dtype == torch.float32
    torch.testing.assert_close(norm.double(), prior.norm(x.double()), rtol=1e-6, atol=0)
    torch.testing.assert_close(
        log_density(prior, x, lam), log_density(prior, x.double(), lam.double()), rtol=1e-6, atol=0
    )


def test_strengths_from_counts() -> None:
    counts = np.array([0, 1, 5, 100])
    counts.setflags(write=False)  # as Dataset hands them out
    assert conventional_strengths(counts, 0.5).tolist() == [0.5, 0.5, 2.5, 50.0]
    assert uniform_strengths(counts, 0.5).tolist() == [0.5 * 107 / 4] * 4
    assert torch.equal(conventional_strengths(torch.tensor(counts.copy()), 2.0), torch.tensor([2.0, 2, 10, 200]))
    assert uniform_strengths(counts, 1.0, dtype=torch.float64).dtype == torch.float64


@pytest.mark.parametrize("p", [0, 1, 4])
def test_other_norms_are_refused(p: int) -> None:
    with pytest.raises(ConfigError, match="p is 2 or 3"):
        Prior(p, complex=False)


@pytest.mark.parametrize("p", [2, 3])
@pytest.mark.parametrize("is_complex", [False, True])
def test_the_gaussian_nearest_to_the_prior(p: int, is_complex: bool) -> None:
    """KL(q || p) is least there, for scale and for shift, and Eq. 17 holds."""
    prior, width = Prior(p, is_complex), 6
    strengths = torch.tensor([0.3, 2.0, 40.0], dtype=torch.float64)
    log_std = prior.closest_log_std(strengths, width)[:, None].expand(-1, width)
    mean = torch.zeros_like(log_std)
    torch.testing.assert_close(
        prior.optimal_inverse_strengths(prior.expected_norm(mean, log_std), width), 1 / strengths
    )

    def divergence(mean: Tensor, log_std: Tensor) -> Tensor:  # without constants
        return strengths / p * prior.expected_norm(mean, log_std) - log_std.sum(1)

    least = divergence(mean, log_std)
    for shift, scale in ((0.0, 0.1), (0.0, -0.1), (0.1, 0.0)):
        assert bool((divergence(mean + shift * log_std.exp(), log_std + scale) > least).all())


def test_strengths_of_new_symbols_are_those_of_symbols_as_frequent() -> None:
    counts = np.array([0, 1, 1, 2, 5, 5, 9, 100, 0])
    learned = torch.tensor([9e9, 1.0, 4.0, 3.0, 5.0, 20.0, 7.0, 50.0, 9e9], dtype=torch.float64)
    found = similar_strengths(counts, learned, np.array([0, 1, 5, 1000]), nearest=2)
    torch.testing.assert_close(found, torch.tensor([2.0, 2.0, 10.0, math.sqrt(350)], dtype=torch.float64))
    everyone = similar_strengths(counts, learned, np.array([3]), nearest=99)
    torch.testing.assert_close(everyone[0], learned[learned < 1e9].log().mean().exp())
    unseen = similar_strengths(np.zeros(2, dtype=np.int64), learned[1:3], np.array([1]))
    torch.testing.assert_close(unseen, torch.tensor([2.0], dtype=torch.float64))
    assert len(similar_strengths(counts, learned, np.zeros(0, dtype=np.int64))) == 0
