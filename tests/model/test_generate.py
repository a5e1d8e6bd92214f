"""Drawn graphs: exact samplers, tails from the softmax, every symbol shown, the same files as in memory."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import integrate, stats
from scipy.special import gamma, logsumexp

from kgem.data.dataset import Dataset
from kgem.errors import ConfigError, DatasetError
from kgem.model import generate as module
from kgem.model.generate import MODELS, Planted, generate, sample_prior, sample_tails, save

SPACES = [(p, is_complex) for p in (2, 3) for is_complex in (False, True)]


def small(seed: int = 0, **settings) -> Planted:
    given = {"n_entities": 60, "n_relations": 5, "n_facts": 900, "dim": 8} | settings
    return generate(rng=np.random.default_rng(seed), **given)


def modulus_density(p: int, is_complex: bool, strength: float):
    """The density of |x|, with the normalisers of one coordinate as the model's prior has them."""
    if is_complex:
        norm = p / (2 * math.pi * gamma(2 / p)) * (strength / p) ** (2 / p)
        return lambda r: 2 * math.pi * r * norm * math.exp(-strength / p * r**p)
    norm = p / (2 * gamma(1 / p)) * (strength / p) ** (1 / p)
    return lambda r: 2 * norm * math.exp(-strength / p * r**p)


def drawn(p: int, is_complex: bool, strength: float, n: int = 40_000) -> np.ndarray:
    """n coordinates from the sampler, as numbers of their space."""
    table = sample_prior(np.full(n // 10, strength), 10, p, is_complex=is_complex, rng=np.random.default_rng(7))
    assert table.shape == (n // 10, 20 if is_complex else 10)
    x = table[:, :10] + 1j * table[:, 10:] if is_complex else table
    return x.ravel()


@pytest.mark.parametrize(("p", "is_complex"), SPACES)
@pytest.mark.parametrize("strength", [0.3, 1.0, 20.0])
def test_prior_has_the_moments_of_its_density(p: int, is_complex: bool, strength: float) -> None:
    density = modulus_density(p, is_complex, strength)
    x = drawn(p, is_complex, strength)
    assert integrate.quad(density, 0, np.inf)[0] == pytest.approx(1)
    for power in (1, 2, 3, 4):
        exact = integrate.quad(lambda r, k=power: r**k * density(r), 0, np.inf)[0]
        values = np.abs(x) ** power
        assert abs(values.mean() - exact) < 5 * values.std() / math.sqrt(len(x)), power
    # Eq. 17 rests on it: E||x||_p^p = K' / lambda
    assert (np.abs(x) ** p).mean() == pytest.approx((2 if is_complex else 1) / strength, rel=0.05)
    assert abs(x.mean()) < 5 * np.abs(x).std() / math.sqrt(len(x))


@pytest.mark.parametrize(("p", "is_complex"), SPACES)
def test_prior_has_the_distribution_of_its_density(p: int, is_complex: bool) -> None:
    strength = 2.5
    density = modulus_density(p, is_complex, strength)
    grid = np.linspace(0, 6, 4001)
    cdf = integrate.cumulative_simpson([density(r) for r in grid], x=grid, initial=0)
    x = drawn(p, is_complex, strength)
    result = stats.kstest(np.abs(x), lambda r: np.interp(r, grid, cdf))
    assert result.pvalue > 0.01
    wrong = modulus_density(p, is_complex, 1.1 * strength)  # the test can fail: ten per cent off is noticed
    cdf_wrong = integrate.cumulative_simpson([wrong(r) for r in grid], x=grid, initial=0)
    assert stats.kstest(np.abs(x), lambda r: np.interp(r, grid, cdf_wrong)).pvalue < 0.01
    if is_complex:
        assert stats.kstest(np.angle(x), stats.uniform(-math.pi, 2 * math.pi).cdf).pvalue > 0.01
    else:
        signed = stats.gennorm(p, scale=(p / strength) ** (1 / p))
        assert stats.kstest(x, signed.cdf).pvalue > 0.01


def test_each_row_has_its_own_strength() -> None:
    strengths = np.array([0.1, 1.0, 10.0])
    table = sample_prior(strengths, 20_000, 3, is_complex=False, rng=np.random.default_rng(1))
    np.testing.assert_allclose((np.abs(table) ** 3).mean(axis=1), 1 / strengths, rtol=0.1)


def test_scores_are_those_of_eqs_3_and_4() -> None:
    rng = np.random.default_rng(3)
    h, r, t = (rng.normal(size=(6, 8)) for _ in range(3))
    np.testing.assert_allclose((MODELS["distmult"].query(h, r) * t).sum(1), (h * r * t).sum(1))
    c = [x[:, :4] + 1j * x[:, 4:] for x in (h, r, t)]
    exact = (c[0] * c[1] * c[2].conj()).sum(1).real
    np.testing.assert_allclose((MODELS["complex"].query(h, r) * t).sum(1), exact)


@pytest.mark.parametrize("model", list(MODELS))
def test_tails_follow_the_softmax(model: str) -> None:
    rng = np.random.default_rng(4)
    entities, relations = rng.normal(size=(12, 6)), rng.normal(size=(3, 6))
    heads, asked = rng.integers(12, size=60_000), rng.integers(3, size=60_000)
    tails = sample_tails(heads, asked, entities, relations, model=model, rng=rng)
    for h, r in ((0, 0), (5, 2), (11, 1)):
        scores = MODELS[model].query(entities[[h]], relations[[r]]) @ entities.T
        expected = np.exp(scores - logsumexp(scores))[0]
        seen = np.bincount(tails[(heads == h) & (asked == r)], minlength=12)
        common = expected * seen.sum() > 5  # the chi-squared test wants no nearly empty cells
        rest = expected[~common].sum()
        observed = np.append(seen[common], seen[~common].sum())
        wanted = np.append(expected[common], rest) * seen.sum()
        cells = slice(None) if rest else slice(-1)
        assert stats.chisquare(observed[cells], wanted[cells]).pvalue > 0.001


def test_tails_do_not_depend_on_the_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    entities, relations = rng.normal(size=(40, 6)), rng.normal(size=(4, 6))
    heads, asked = rng.integers(40, size=500), rng.integers(4, size=500)
    made = []
    for block in (1, 130, 10**6):
        monkeypatch.setattr(module, "BLOCK", block)
        again = np.random.default_rng(6)
        made.append(sample_tails(heads, asked, entities, relations, model="complex", rng=again))
    np.testing.assert_array_equal(made[0], made[1])
    np.testing.assert_array_equal(made[0], made[2])


def test_inverse_cdf_is_the_obvious_one() -> None:
    rng = np.random.default_rng(8)
    scores = rng.normal(scale=50, size=(30, 17))  # most weights vanish
    rows, uniform = rng.integers(30, size=400), rng.random(400)
    obvious = []
    for row, u in zip(rows, uniform, strict=True):
        weights = np.exp(scores[row] - scores[row].max())
        obvious.append(int(np.searchsorted(np.cumsum(weights) / np.cumsum(weights)[-1], u, side="right")))
    np.testing.assert_array_equal(module._inverse_cdf(scores, rows, uniform), obvious)
    # at the very edge, where row + u rounds up, the outcome still is one of its own row that can happen
    edge = module._inverse_cdf(scores, np.arange(30), np.full(30, np.nextafter(1, 0)))
    assert (scores[np.arange(30), edge] > scores.max(axis=1) - 40).all()


@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize("p", [2, 3])
def test_graph_is_what_was_asked_for(model: str, p: int) -> None:
    planted = small(model=model, p=p)
    data = planted.dataset
    facts = np.concatenate([data.train, data.valid, data.test])
    assert len(np.unique(facts, axis=0)) == len(facts) == 900
    assert (data.n_entities, data.n_relations) == (60, 5)
    assert (len(data.valid), len(data.test)) == (90, 90)
    assert set(data.train[:, [0, 2]].ravel()) == set(range(60)) and set(data.train[:, 1]) == set(range(5))
    width = 16 if model == "complex" else 8
    assert planted.entities.shape == (60, width) and planted.relations.shape == (5, width)
    for strengths in (planted.entity_strengths, planted.relation_strengths):
        assert 0.5 <= strengths.min() < strengths.max() <= 5.0


def test_facts_are_likely_under_what_was_planted() -> None:
    planted = small(n_entities=200, n_facts=2000)
    facts = np.concatenate([planted.dataset.train, planted.dataset.test])
    query = MODELS["complex"].query(planted.entities[facts[:, 0]], planted.relations[facts[:, 1]])
    scores = query @ planted.entities.T
    log_p = scores - logsumexp(scores, axis=1, keepdims=True)
    likelihood = log_p[np.arange(len(facts)), facts[:, 2]]
    entropy = -(np.exp(log_p) * log_p).sum(1)
    # a draw's log-probability is minus the entropy on average; distinct facts push it a little lower
    assert -entropy.mean() - 0.8 < likelihood.mean() < -entropy.mean() + 0.1
    assert likelihood.mean() > -math.log(200) + 0.5


def test_frequencies_are_heavy_tailed_as_asked() -> None:
    def top_share(exponent: float) -> float:
        planted = small(n_entities=300, n_facts=6000, head_exponent=exponent)
        heads = np.sort(np.bincount(planted.dataset.train[:, 0], minlength=300))[::-1]
        return heads[:30].sum() / heads.sum()

    assert top_share(0.0) < 0.2 < 0.35 < top_share(1.0)


def test_same_seed_same_graph() -> None:
    a, b, c = small(3), small(3), small(4)
    assert a.dataset.content_hash == b.dataset.content_hash != c.dataset.content_hash
    np.testing.assert_array_equal(a.entities, b.entities)


def test_given_strengths_are_used() -> None:
    strengths = np.geomspace(0.5, 50, 60)
    planted = small(entity_strengths=strengths, relation_strengths=[1.0] * 5, dim=200, n_facts=600)
    np.testing.assert_array_equal(planted.entity_strengths, strengths)
    sizes = (np.abs(planted.entities[:, :200] + 1j * planted.entities[:, 200:]) ** 3).sum(1)
    np.testing.assert_allclose(sizes, 2 * 200 / strengths, rtol=0.5)


def test_more_relations_than_entities() -> None:
    data = small(n_entities=6, n_relations=40, n_facts=60, valid=0.0, test=0.0).dataset
    assert set(data.train[:, 1]) == set(range(40)) and set(data.train[:, 0]) == set(range(6))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_entities": 0}, "n_entities is 0"),
        ({"dim": 0}, "dim is 0"),
        ({"model": "transe"}, "one of distmult, complex"),
        ({"p": 4}, "2 or 3"),
        ({"n_facts": 59}, "at least 60"),
        ({"n_facts": 60 * 60 * 5}, "at most 9,000"),
        ({"entity_strengths": (2.0, 1.0)}, r"entity_strengths = \(2.0, 1.0\) are no bounds"),
        ({"relation_strengths": (0.0, 1.0)}, "relation_strengths"),
        ({"entity_strengths": np.ones(59)}, "60 finite numbers"),
        ({"relation_strengths": [1.0, 1.0, 1.0, 1.0, -1.0]}, "5 finite numbers"),
        ({"entity_strengths": (1e-6, 1e-6), "n_facts": 5000}, "keeps drawing the same facts"),
    ],
)
def test_what_cannot_be_drawn_is_an_error(wrong: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        small(**wrong)


def test_saved_files_are_the_same_graph(tmp_path: Path) -> None:
    planted = small()
    folder = save(planted, tmp_path / "new" / "planted")
    frames = {
        split: pl.read_csv(
            folder / f"{split}.txt",
            separator="\t",
            has_header=False,
            new_columns=["head", "relation", "tail"],
        )
        for split in ("train", "valid", "test")
    }
    assert Dataset.from_frames(**frames).content_hash == planted.dataset.content_hash
    with np.load(folder / "planted.npz", allow_pickle=False) as tables:
        for name in ("entities", "relations", "entity_strengths", "relation_strengths"):
            np.testing.assert_array_equal(tables[name], getattr(planted, name))
    about = json.loads((folder / "planted.json").read_text("utf-8"))
    assert about["model"] == "complex" and about["p"] == 3 and about["dim"] == 8
    with pytest.raises(DatasetError, match=r"already is train\.txt"):
        save(planted, folder)
