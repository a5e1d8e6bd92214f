"""One contract over all score functions, a user's own among them; the example of docs/scores.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from kgem.errors import ConfigError
from kgem.model.prior import Prior
from kgem.model.scores import SCORES, Score, find_score, get_score
from obvious import ALL_SCORES, DEFINITIONS, TWO_SIDED

DOCS = Path(__file__).parents[2] / "docs" / "scores.md"
every_score = pytest.mark.parametrize("name", ALL_SCORES)
every_dim = pytest.mark.parametrize("dim", [1, 4, 5])


def draw(score: Score, dim: int, b: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    """Heads, relations and tails of b facts."""
    generator = torch.Generator().manual_seed(3)
    widths = (score.entity_width(dim), score.relation_width(dim), score.entity_width(dim))
    h, r, t = (torch.randn(b, width, generator=generator, dtype=torch.float64) for width in widths)
    if n := score.shared_rows(dim):
        r = score.mix(r, torch.randn(n, widths[1], generator=generator, dtype=torch.float64))
    return h, r, t


def by_definition(name: str, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
    """f of every query (row of h and r) and every tail."""
    tails = t.tolist()
    rows = zip(h.tolist(), r.tolist(), strict=True)
    return torch.tensor([[DEFINITIONS[name](a, b, c) for c in tails] for a, b in rows], dtype=torch.float64)


def test_every_score_has_a_definition() -> None:
    assert set(DEFINITIONS) == set(ALL_SCORES)
    assert all(score.name == name for name, score in ALL_SCORES.items())
    assert {"distmult", "complex", "cp", "hole", "rescal", "transe-l1", "transe-l2"} <= set(SCORES)


@every_dim
@every_score
def test_triple_wise_score_equals_all_tails_score_equals_definition(name: str, dim: int) -> None:
    score = ALL_SCORES[name]
    h, r, t = draw(score, dim)
    expected = by_definition(name, h, r, t)
    torch.testing.assert_close(score.compare(score.query(h, r), score.tails(t)), expected)
    torch.testing.assert_close(score.triple(h, r, t), expected.diagonal())


@every_score
def test_single_precision_is_exact_where_query_and_tail_nearly_meet(name: str) -> None:
    """A distance much smaller than the vectors: squares of them cancel in a difference of matrix products."""
    score = ALL_SCORES[name]
    generator = torch.Generator().manual_seed(5)
    tails = 0.5 * torch.randn(200, 50, generator=generator)
    q = tails[:40] + 1e-3 * torch.randn(40, 50, generator=generator)
    got = score.compare(q, tails)
    exact = score.compare(q.double(), tails.double())
    torch.testing.assert_close(got.double(), exact, rtol=1e-5, atol=1e-5 if score.bilinear else 0.0)
    torch.testing.assert_close(got.diagonal(), score.pair(q, tails[:40]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["transe-l1", "transe-l2"])
def test_no_distance_has_a_finite_gradient(name: str) -> None:
    q, tails = torch.ones(30, 3, requires_grad=True), torch.ones(40, 3, requires_grad=True)
    with torch.no_grad():
        tails[1:] += 1
    for scores in (ALL_SCORES[name].compare(q, tails), ALL_SCORES[name].pair(q[:, None], tails)):
        assert not scores[:, 0].any()
        for grad in torch.autograd.grad(scores.sum(), (q, tails)):
            assert bool(grad.isfinite().all())
            assert bool(grad.any())


@every_score
def test_pairs_broadcast_over_several_tails_per_query(name: str) -> None:
    score = ALL_SCORES[name]
    h, r, t = draw(score, 4)
    scores = score.pair(score.query(h, r)[:, None], score.tails(t)[None])
    torch.testing.assert_close(scores, by_definition(name, h, r, t))


@every_dim
@pytest.mark.parametrize("name", TWO_SIDED)
def test_reading_a_fact_backwards(name: str, dim: int) -> None:
    """f(h, r, t) = f(swap(t), transpose(r), swap(h))."""
    score = ALL_SCORES[name]
    h, r, t = draw(score, dim)
    backwards = score.triple(score.swap(t), score.transpose(r), score.swap(h))
    torch.testing.assert_close(backwards, score.triple(h, r, t))


@pytest.mark.parametrize("name", TWO_SIDED)
def test_transpose_and_swap_are_linear_isometric_involutions(name: str) -> None:
    """The objective uses each as its own adjoint, and the prior must not notice them."""
    score = ALL_SCORES[name]
    h, r, t = draw(score, 5)
    _, other, _ = draw(score, 5, b=12)
    for turn, x, y in ((score.transpose, r, other[6:]), (score.swap, h, t)):
        torch.testing.assert_close(turn(turn(x)), x)
        torch.testing.assert_close(turn(2 * x - 3 * y), 2 * turn(x) - 3 * turn(y))
        torch.testing.assert_close((turn(x) * y).sum(), (x * turn(y)).sum())
        for p in (2, 3):
            prior = Prior(p, score.complex)
            torch.testing.assert_close(prior.norm(turn(x)), prior.norm(x))


@every_dim
@every_score
def test_query_vjp_equals_autograd(name: str, dim: int) -> None:
    score = ALL_SCORES[name]
    h, r, _ = draw(score, dim)
    h.requires_grad_()
    r.requires_grad_()
    q = score.query(h, r)
    grad = torch.randn(q.shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    expected = torch.autograd.grad(q, (h, r), grad)
    with torch.no_grad():
        for got, want in zip(score.query_vjp(h, r, grad), expected, strict=True):
            assert got.shape == want.shape
            torch.testing.assert_close(got, want)
        for got, want in zip(Score.query_vjp(score, h, r, grad), expected, strict=True):
            torch.testing.assert_close(got, want)


@every_dim
def test_tucker_is_its_core_times_three_vectors(dim: int) -> None:
    generator = torch.Generator().manual_seed(6)
    score = get_score("tucker")
    core, h, r, t = (
        torch.randn(n, dim, generator=generator, dtype=torch.float64) for n in (score.shared_rows(dim), 1, 1, 1)
    )
    (a,), (b,), (c,) = h.tolist(), r.tolist(), t.tolist()
    places = [(i, j, k) for i in range(dim) for j in range(dim) for k in range(dim)]
    expected = sum(float(core[i * dim + j, k]) * a[i] * b[k] * c[j] for i, j, k in places)
    assert float(score.triple(h, score.mix(r, core), t)) == pytest.approx(expected, rel=1e-12)


@every_dim
def test_mix_vjp_equals_autograd(dim: int) -> None:
    score = get_score("tucker")
    generator = torch.Generator().manual_seed(8)
    r, core = (
        torch.randn(n, dim, generator=generator, dtype=torch.float64, requires_grad=True)
        for n in (6, score.shared_rows(dim))
    )
    mixed = score.mix(r, core)
    grad = torch.randn(mixed.shape, generator=generator, dtype=torch.float64)
    expected = torch.autograd.grad(mixed, (r, core), grad)
    with torch.no_grad():
        for given in (score.mix_vjp(r, core, grad), Score.mix_vjp(score, r, core, grad)):
            for got, want in zip(given, expected, strict=True):
                torch.testing.assert_close(got, want)


@every_score
def test_bilinear_means_linear_in_the_tail(name: str) -> None:
    score = ALL_SCORES[name]
    h, r, t = draw(score, 4)
    together = score.triple(h, r, 2 * t + t.roll(1, 0))
    apart = 2 * score.triple(h, r, t) + score.triple(h, r, t.roll(1, 0))
    assert torch.allclose(together, apart) == score.bilinear


@every_score
def test_tails_are_a_view(name: str) -> None:
    """The objective adds the tails' gradient through it."""
    score = ALL_SCORES[name]
    table = torch.zeros(3, score.entity_width(4))
    score.tails(table).add_(1)
    assert table.any()


def test_a_score_that_ignores_the_head_has_gradients() -> None:
    class Popularity(Score):
        name = "popularity"

        def query(self, h: Tensor, r: Tensor) -> Tensor:
            return r

    h, r, t = draw(Popularity(), 3)
    grad_h, grad_r = Popularity().query_vjp(h, r, t)
    assert not grad_h.any()
    torch.testing.assert_close(grad_r, t)


def test_reading_backwards_is_an_error_where_the_score_does_not_say_how() -> None:
    with pytest.raises(ConfigError, match=r"'stretch'.*\n.*transpose.*reciprocal"):
        ALL_SCORES["stretch"].transpose(torch.zeros(1, 3))


@pytest.mark.parametrize(("name", "meant"), [("TransE", "transe-l1, transe-l2"), ("complexx", "complex"), ("", "cp")])
def test_an_unknown_score_is_answered_with_what_may_have_been_meant(name: str, meant: str) -> None:
    with pytest.raises(ConfigError) as caught:
        get_score(name)
    assert meant in str(caught.value.remedy)


def test_scores_are_found_whatever_the_case() -> None:
    assert [find_score(name) for name in ("ComplEx", "TuckER", "cp", "conve", 3)] == [
        *("complex", "tucker", "cp", "conve"),
        3,
    ]


def test_an_unknown_score_is_named_with_all_known_ones() -> None:
    assert get_score("hole") is SCORES["hole"]
    with pytest.raises(ConfigError, match=r"'conve'\n.*complex, cp, distmult") as error:
        get_score("conve")
    assert error.value.exit_code == 2


@pytest.fixture
def own_scores() -> Iterator[None]:
    """Whatever a test adds to the dict is gone after it."""
    before = dict(SCORES)
    yield
    SCORES.clear()
    SCORES.update(before)


def test_the_example_of_the_docs_trains_and_evaluates(own_scores: None) -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), flags=re.DOTALL)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(DOCS), "exec"), names)
    simple = names["SimplE"]
    assert isinstance(SCORES["simple"], simple)  # type: ignore[arg-type]
    h, r, t = draw(SCORES["simple"], 5)
    torch.testing.assert_close(SCORES["simple"].triple(h, r, t), by_definition("simple", h, r, t).diagonal())
    model = names["model"]
    assert model.config.model.score == "simple"  # type: ignore[attr-defined]
    assert model.evaluate("train").mrr > 0.8  # type: ignore[attr-defined]
    losses, evaluation = names["losses"], names["evaluation"]
    assert losses[-1] < 0.5 * losses[0]  # type: ignore[index]
    assert evaluation.mrr > 0.9  # type: ignore[attr-defined]
    assert set(names["two_sided"].relations.shape) == {2, 8}  # type: ignore[attr-defined]
