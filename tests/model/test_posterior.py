"""The approximate posterior: entropy, reparameterisation, and the noise behind its samples."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.profiler import ProfilerActivity, profile

from kgem.errors import ConfigError
from kgem.model import posterior as module
from kgem.model.posterior import Gaussian, Posterior, fill_normal


def gaussian(dtype: torch.dtype = torch.float64, rows: int = 5, width: int = 4, seed: int = 0) -> Gaussian:
    generator = torch.Generator().manual_seed(seed)
    mean, log_std = torch.randn(2, rows, width, dtype=dtype, generator=generator)
    return Gaussian(mean, log_std)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_entropy_is_that_of_independent_normals() -> None:
    q = gaussian()
    expected = torch.distributions.Normal(q.mean, q.std).entropy().sum()
    torch.testing.assert_close(q.entropy(), expected)
    both = Posterior(q, gaussian(seed=1))
    torch.testing.assert_close(both.entropy(), expected + gaussian(seed=1).entropy())


def test_entropy_has_gradient_one_in_log_std() -> None:
    log_std = gaussian().log_std.requires_grad_()
    Gaussian(gaussian().mean, log_std).entropy().backward()
    assert log_std.grad is not None
    assert torch.equal(log_std.grad, torch.ones_like(log_std))


def test_around_copies_the_table() -> None:
    table = torch.randn(3, 4, generator=seeded())
    q = Gaussian.around(table)
    assert torch.equal(q.mean, table)
    torch.testing.assert_close(q.std, torch.full_like(table, 0.2))
    q.mean.zero_()
    assert table.abs().min() > 0
    assert Posterior.around(table, table, std=0.5).relations.log_std[0, 0].item() == pytest.approx(math.log(0.5))


@pytest.mark.parametrize("std", [0.0, -1.0, math.nan])
def test_around_wants_a_positive_std(std: float) -> None:
    with pytest.raises(ConfigError, match="not positive"):
        Gaussian.around(torch.zeros(1, 2), std)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sample_is_mean_plus_std_times_noise(dtype: torch.dtype) -> None:
    q = gaussian(dtype)
    sample, noise = q.sample(seeded())
    torch.testing.assert_close(sample, q.mean + q.std * noise)
    assert sample.dtype == noise.dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sample_writes_into_the_given_buffers(dtype: torch.dtype) -> None:
    q = gaussian(dtype)
    mean, log_std = q.mean.clone(), q.log_std.clone()
    out, noise_out = torch.empty(2, 5, 4, dtype=dtype)
    sample, noise = q.sample(seeded(), out, noise_out)
    assert sample is out
    assert noise is noise_out
    fresh, fresh_noise = q.sample(seeded())
    assert torch.equal(sample, fresh)
    assert torch.equal(noise, fresh_noise)
    assert torch.equal(q.mean, mean)
    assert torch.equal(q.log_std, log_std)


def test_reparameterised_gradient_equals_autograd() -> None:
    q = gaussian()
    sample, noise = q.sample(seeded())
    mean, log_std = q.mean.clone().requires_grad_(), q.log_std.clone().requires_grad_()
    leaf = Gaussian(mean, log_std)
    (((mean + leaf.std * noise) ** 3).sum() - leaf.entropy()).backward()
    gradient = 3 * sample**2
    assert mean.grad is not None
    assert log_std.grad is not None
    torch.testing.assert_close(mean.grad, gradient)
    torch.testing.assert_close(log_std.grad, gradient * q.std * noise - 1)


def test_posterior_draws_both_tables_from_one_generator() -> None:
    q = Posterior(gaussian(), gaussian(rows=3, seed=1))
    generator = seeded(7)
    entities, relations = q.sample(generator)
    again = seeded(7)
    assert torch.equal(entities, q.entities.sample(again)[0])
    assert torch.equal(relations, q.relations.sample(again)[0])
    assert not torch.equal(q.sample(generator)[0], entities)


def reference_noise(start: int, n: int) -> np.ndarray:
    """fill_normal by the definitions, one number after the other."""
    numbers, mask = [], 2**64 - 1
    for i in range((n + 1) // 2):
        z = (start + i * 0x9E3779B97F4A7C15) & mask
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        z ^= z >> 31
        for word in (z & 0xFFFFFFFF, z >> 32):
            signed = word - 2**32 if word >= 2**31 else word
            numbers.append(((signed >> 7) | 1) / 2**24)
    return stats.norm.ppf((np.array(numbers[:n]) + 1) / 2)


@pytest.mark.parametrize("n", [1, 2, 7, 64, 65, 301])
def test_noise_follows_its_definition(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 64)
    monkeypatch.setattr(module, "SERIAL", 0)
    start = int(torch.empty(1, dtype=torch.int64).random_(-(2**63), None, generator=seeded(5)))
    out = torch.empty(n)
    fill_normal(out, seeded(5))
    np.testing.assert_allclose(out.numpy(), reference_noise(start, n), rtol=2e-5, atol=1e-6)


def test_splitmix_gives_the_published_sequence() -> None:
    # The first outputs of SplitMix64 for seed 1234567, as printed in many places.
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    counters = torch.arange(1, 5).mul_(module._signed(module.GOLDEN)).add_(1234567)
    bits = module._splitmix(counters, 0, torch.empty_like(counters), torch.empty_like(counters))
    assert [word % 2**64 for word in bits.tolist()] == published


@pytest.mark.parametrize(
    ("dtype", "n"), [(torch.float32, 2**19 + 13), (torch.float64, 2**19 + 13), (torch.float32, module.SERIAL - 3)]
)
def test_noise_is_standard_normal_and_independent(dtype: torch.dtype, n: int) -> None:
    out = torch.empty(n, dtype=dtype)
    fill_normal(out, seeded(11))
    noise = out.double().numpy()
    assert np.isfinite(noise).all()
    assert stats.kstest(noise, "norm").pvalue > 1e-3
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((noise**power).mean() - moment) < 4 * (variance / n) ** 0.5
    for lag in (1, 2, 3, 200, 2**17, 2**18):
        for left, right in ((noise, noise), (noise**2 - 1, noise**2 - 1)):
            product = left[lag:] * right[:-lag]
            assert abs(product.mean()) < 4.5 * product.std() / len(product) ** 0.5
    tail = (np.abs(noise) > 4).sum()
    assert abs(tail - 2 * stats.norm.sf(4) * n) < 4 * (2 * stats.norm.sf(4) * n) ** 0.5


def test_noise_of_successive_draws_is_independent() -> None:
    generator, first, second = seeded(), torch.empty(200_000), torch.empty(200_000)
    fill_normal(first, generator)
    fill_normal(second, generator)
    assert abs((first * second).mean().item()) < 4 / 200_000**0.5


def test_noise_is_reproducible_bit_for_bit_on_any_number_of_threads() -> None:
    threads = torch.get_num_threads()
    generator = seeded(3)
    state = generator.get_state()
    draws = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            generator.set_state(state)
            large, small = torch.empty(module.SERIAL + 77), torch.empty(1001)
            fill_normal(large, generator)
            fill_normal(small, generator)
            draws.append(torch.cat([large, small]))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(draws[0], draws[1])
    assert torch.equal(draws[0], draws[2])


def test_extreme_words_give_finite_symmetric_noise() -> None:
    extremes = torch.tensor([2**24 - 1, -(2**24) + 1], dtype=torch.int32).float() * 2.0**-24
    noise = torch.erfinv(extremes) * math.sqrt(2)
    assert torch.isfinite(noise).all()
    assert noise[0] == -noise[1]
    assert noise[0].item() == pytest.approx(stats.norm.isf(2.0**-25), rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("before", "n"), [(0, 270_001), (6, 10), (7, 265_000), (270_000, 1), (11, 0)])
def test_noise_of_a_part_is_that_part_of_the_noise(dtype: torch.dtype, before: int, n: int) -> None:
    """So that processes draw for their own rows what one would draw for all; odd places are in the middle of a word."""
    total = 270_001
    whole, part = torch.empty(total, dtype=dtype), torch.empty(n, dtype=dtype)
    one, other = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    fill_normal(whole, one)
    fill_normal(part, other, (before, total))
    assert torch.equal(part, whole[before : before + n])
    assert torch.equal(one.get_state(), other.get_state())  # and what comes next is the same, too


@pytest.mark.parametrize("part", [None, (4, 100)])
def test_a_table_on_another_device_gets_the_noise_of_its_generator(
    part: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on CUDA, where generators stay on the CPU: 'meta' has no numbers, so what is copied to it is looked at."""
    elsewhere, here, copied, copy = torch.empty(7, 3, device="meta"), torch.empty(7, 3), [], torch.Tensor.copy_
    monkeypatch.setattr(torch.Tensor, "copy_", lambda out, made: (copied.append((out, made)), copy(out, made))[1])
    one, other = seeded(5), seeded(5)
    fill_normal(elsewhere, one, part)
    monkeypatch.undo()
    fill_normal(here, other, part)
    assert copied[-1][0] is elsewhere
    assert torch.equal(copied[-1][1], here)
    assert torch.equal(one.get_state(), other.get_state())


def test_the_entropy_of_a_large_table_needs_no_copy_of_it() -> None:
    q = Gaussian(torch.empty(0), torch.full((2**18, 48), -0.5))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        entropy = q.entropy()
    largest = max(event.self_cpu_memory_usage for event in seen.events())
    assert 0 < largest < q.log_std.numel() * 4
    assert float(entropy) == pytest.approx(2**18 * 48 * (-0.5 + 0.5 * math.log(2 * math.pi * math.e)), rel=1e-12)
