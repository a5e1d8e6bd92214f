"""Each equation of the paper against an independent computation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from driving import exhaust
from kgem.config import EMConfig
from kgem.data.dataset import Dataset
from kgem.data.index import Vocabulary
from kgem.model.embeddings import Embeddings
from kgem.model.objective import SoftmaxObjective
from kgem.model.posterior import Gaussian, Posterior
from kgem.model.prior import Prior, Strengths, conventional_strengths
from kgem.train.variational_em import EMState, elbo, variational_em
from obvious import log_density, loss_over_facts, random_embeddings, random_graph, strengths_of

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
    torch.testing.assert_close(log_density(prior, x, lam) - log_density(prior, y, lam), expected)


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
    got = log_density(prior, x, high) - log_density(prior, x, low)
    torch.testing.assert_close(got, expected.squeeze())


# Eq. 17: the best strengths given q


@each_prior
def test_eq17_zeroes_the_derivative_of_the_expected_eq16(prior: Prior) -> None:
    q = Gaussian(normal(5, 6), normal(5, 6, seed=1) - 1)
    generator = torch.Generator().manual_seed(2)
    samples = [q.sample(generator)[0] for _ in range(50)]
    sampled = torch.stack([prior.norm(x) for x in samples]).mean(0)
    lam = (1 / prior.optimal_inverse_strengths(sampled, 6)).requires_grad_()
    objective = torch.stack([log_density(prior, x, lam) for x in samples]).mean()
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


# Eq. 10: the log joint distribution


def joint_of_facts(model: Embeddings, strengths: Strengths, prior: Prior, facts: np.ndarray) -> Tensor:
    """Eq. 10 fact by fact, without P(h, r), which inference does not depend on."""
    total = sum(log_density(prior, table, lam) for table, lam in zip(model.tables(), strengths, strict=True))
    return total - loss_over_facts(model, facts)


@pytest.mark.parametrize("score", ["distmult", "complex"])
def test_eq10_is_minus_the_loss_with_its_normalisers(score: str) -> None:
    data = random_graph()
    model = random_embeddings(data, score)
    prior, strengths = Prior(3, model.score.complex), strengths_of("individual", data, model)
    objective = SoftmaxObjective(data.query_index, model, prior)
    loss, _ = objective(model, strengths, torch.arange(objective.n_items))
    penalty = sum(float(prior.penalty(table, lam)) for table, lam in zip(model.tables(), strengths, strict=True))
    minus_loss = -(objective.n_facts * loss + penalty)
    normalisers = sum(prior.log_normaliser(lam, t.shape[1]) for lam, t in zip(strengths, model.tables(), strict=True))
    expected = joint_of_facts(model, strengths, prior, data.train)
    torch.testing.assert_close(minus_loss + normalisers, expected)


# Eqs. 11 and 14: the marginal likelihood and its bound, on a graph small enough to integrate

FACTS = np.array([[0, 0, 1], [1, 0, 1]], dtype=np.int32)
PAIR = Dataset("pair", Vocabulary(("a", "b")), Vocabulary(("r",), "relation"), FACTS, FACTS[:0], FACTS[:0])
LAMBDAS = Strengths(*(torch.tensor(lam, dtype=torch.float64) for lam in ([0.7, 1.6], [0.4, 2.5])))


def log_likelihood(x: Tensor) -> Tensor:
    """Eq. 9 for all facts of S' at points x = (E_0, E_1, R_0, R_0^-1) of DistMult with K = 1: (n, 4) -> (n,)."""
    entities, total = x[:, :2], torch.zeros(len(x), dtype=x.dtype)
    for h, _, t in FACTS.tolist():
        for head, relation, tail in ((h, 2, t), (t, 3, h)):
            scores = x[:, [head]] * x[:, [relation]] * entities
            total += scores.log_softmax(1)[:, tail]
    return total


def log_prior(x: Tensor, p: int) -> Tensor:
    """Eq. 8 with its normaliser, one number per symbol: (n, 4) -> (n,)."""
    lam = torch.cat(tuple(LAMBDAS))
    constant = math.log(p / 2) - math.lgamma(1 / p) + (lam / p).log() / p
    return (constant - lam / p * x.abs() ** p).sum(1)


def log_marginal(p: int) -> float:
    """Eq. 11 by the trapezoidal rule."""
    step, reach = 0.4, 6.0
    line = torch.arange(-reach, reach + step / 2, step, dtype=torch.float64)
    points = torch.cartesian_prod(line, line, line)
    total = [
        (log_likelihood(x) + log_prior(x, p)).logsumexp(0)
        for x in (torch.cat([points, torch.full_like(points[:, :1], last)], 1) for last in line.tolist())
    ]
    return float(torch.stack(total).logsumexp(0)) + 4 * math.log(step)


def on_pair(state: EMState) -> Tensor:
    """Nodes (n, 4) of q by Gauss and Hermite, with their weights in a fifth column."""
    nodes, weights = (torch.from_numpy(a) for a in np.polynomial.hermite_e.hermegauss(13))
    mean, std = (torch.cat([getattr(q, part).flatten() for q in state.posterior]) for part in ("mean", "std"))
    x = mean + std * torch.cartesian_prod(nodes, nodes, nodes, nodes)
    weight = torch.cartesian_prod(*[weights / weights.sum()] * 4).prod(1)
    return torch.cat([x, weight[:, None]], 1)


def exact_bound(state: EMState, prior: Prior) -> float:
    grid = on_pair(state)
    return elbo(state, prior, -float(grid[:, 4] @ log_likelihood(grid[:, :4]))).elbo


def pair_state(prior: Prior, config: EMConfig, *, scale: float, seed: int) -> tuple[EMState, SoftmaxObjective]:
    means = random_embeddings(PAIR, "distmult", 1, scale=scale, seed=seed)
    strengths = Strengths(*(lam.clone() for lam in LAMBDAS))
    generators = (torch.Generator().manual_seed(s) for s in (seed, seed + 100))
    state = EMState.start(means, strengths, config, *generators)
    return state, SoftmaxObjective(PAIR.query_index, means, prior)


@pytest.mark.parametrize("p", [2, 3])
def test_eq14_every_elbo_is_below_the_log_marginal_likelihood_and_em_comes_close(p: int) -> None:
    prior, marginal = Prior(p, False), log_marginal(p)
    assert marginal < 0  # the probability of discrete data
    rates = {"learning_rate": 0.3, "std_learning_rate": 0.3, "half_life": 20.0}
    config = EMConfig(epochs=300, e_epochs=300, batch_size=10, samples=4, beta=1.0, settled=0, **rates)
    bounds = []
    for seed in range(20):
        wide = config.model_copy(update={"initial_std": 0.1 * (seed + 1)})
        bounds.append(exact_bound(pair_state(prior, wide, scale=0.7, seed=seed)[0], prior))
    assert max(bounds) < marginal
    state, objective = pair_state(prior, config, scale=1.0, seed=0)
    exhaust(variational_em(state, objective, prior, config))
    # The posterior has several modes of opposite signs: one of two equal ones costs log 2.
    assert max(bounds) < exact_bound(state, prior) < marginal
    assert exact_bound(state, prior) > marginal - math.log(2)


@pytest.mark.parametrize("p", [2, 3])
def test_eq14_is_the_expectation_of_log_p_minus_log_q(p: int) -> None:
    prior = Prior(p, False)
    state, _ = pair_state(prior, EMConfig(initial_std=0.8), scale=1.0, seed=3)
    mean, std = (torch.cat([getattr(q, part).flatten() for q in state.posterior]) for part in ("mean", "std"))
    draws = mean + std * normal(100_000, 4, seed=9)
    log_q = torch.distributions.Normal(mean, std).log_prob(draws).sum(1)
    values = log_likelihood(draws) + log_prior(draws, p) - log_q
    assert abs(float(values.mean()) - exact_bound(state, prior)) < 4.5 * float(values.std()) / len(values) ** 0.5


# Algorithm 2: variational EM


def adagrad(table: Tensor, square: Tensor, gradient: Tensor, rate: float) -> None:
    square += gradient**2
    table -= rate * gradient / (square.sqrt() + 1e-12)


@pytest.mark.parametrize("prior", PRIORS[1:], ids=lambda prior: f"p{prior.p}-{prior.complex}")
def test_algorithm2_line_by_line(prior: Prior) -> None:
    """Two epochs, T_E = 1, with autograd, fact after fact; one sample per step."""
    data = random_graph(n_entities=9, n_relations=2, n_facts=25)
    means = random_embeddings(data, "complex" if prior.complex else "distmult", 3)
    config = EMConfig(epochs=2, e_epochs=1, batch_size=6, beta=1.0, settled=0, half_life=None)
    config = config.model_copy(update={"learning_rate": 0.1, "std_learning_rate": 0.05, "strength_rate": 0.4})
    start = strengths_of("individual", data, means)
    objective = SoftmaxObjective(data.query_index, means, prior)

    mu, xi = [t.clone() for t in means.tables()], [torch.full_like(t, math.log(0.2)) for t in means.tables()]
    lam = [s.clone() for s in start]
    squares = [torch.zeros_like(t) for t in (*mu, *xi)]
    order, noise = (torch.Generator().manual_seed(seed) for seed in (4, 5))
    index = data.query_index
    for epoch in range(2):
        for batch in objective.batches(6, order):
            drawn = torch.randn(sum(t.numel() for t in mu), generator=noise, dtype=mu[0].dtype)  # line 4
            eps = [e.view_as(t) for e, t in zip(drawn.split([t.numel() for t in mu]), mu, strict=True)]
            leaves = [t.clone().requires_grad_() for t in (*mu, *xi)]
            sample = [m + s.exp() * e for m, s, e in zip(leaves[:2], leaves[2:], eps, strict=True)]  # line 5
            facts = [
                (int(index.heads[q]), int(index.relations[q]), t)
                for q in batch.items.tolist()
                for t in index.tails_of(q)
            ]
            score = means.score
            loss = -sum(log_density(prior, x, s) for x, s in zip(sample, lam, strict=True))
            for h, r, t in facts:
                scores = score.triple(sample[0][h], sample[1][r], sample[0])
                loss = loss - len(index) / len(batch) * scores.log_softmax(0)[int(t)]
            gradients = torch.autograd.grad(loss, leaves)
            for i in range(2):
                adagrad(mu[i], squares[i], gradients[i] / objective.n_facts, 0.1)  # line 6
                adagrad(xi[i], squares[2 + i], (gradients[2 + i] - 1) / objective.n_facts, 0.05)  # line 7
                if epoch >= 1:  # lines 8 and 9
                    norms = torch.stack([norm_p(prior, row.detach()) for row in sample[i]])
                    lam[i] = 1 / ((1 - 0.4) / lam[i] + 0.4 * norms / sample[i].shape[1])

    generators = (torch.Generator().manual_seed(seed) for seed in (4, 5))
    state = EMState.start(means, Strengths(*(s.clone() for s in start)), config, *generators)
    exhaust(variational_em(state, objective, prior, config))
    for got, want in zip((*state.means.tables(), *state.log_stds, *state.strengths), (*mu, *xi, *lam), strict=True):
        torch.testing.assert_close(got, want)
