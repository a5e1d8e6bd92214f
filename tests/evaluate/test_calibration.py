"""Calibration: the streaming passes against brute force, and planted softmaxes whose answer is known."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from kgem.data.dataset import Dataset
from kgem.data.index import QueryIndex
from kgem.errors import FitError, InputError
from kgem.evaluate import calibration
from kgem.evaluate.calibration import (
    COLDEST,
    HOTTEST,
    ece,
    fit_temperature,
    log_loss,
    measure,
    reliability,
    top_answers,
)
from kgem.evaluate.ranking import rank
from kgem.model.embeddings import Embeddings
from kgem.model.scores import get_score

Array = npt.NDArray[np.float64]
Facts = npt.NDArray[np.int32]

N_HEADS, N_RELATIONS, N_ENTITIES = 12, 3, 40


class Fixed:
    """A scorer that reads its scores from an array (heads, relations, entities)."""

    bytes_per_query = 0
    bytes_per_entity = 0

    def __init__(self, scores: Array, dtype: torch.dtype = torch.float64) -> None:
        self.scores = torch.from_numpy(scores).to(dtype)
        self.like = self.scores
        self.n_entities = scores.shape[2]
        self.passes = 0  # over queries, counted where they are prepared

    def prepare(self, heads: Tensor, relations: Tensor) -> Callable[[int, int, Tensor], None]:
        self.passes += len(heads)
        rows = self.scores[heads, relations]

        def write(start: int, stop: int, block: Tensor) -> None:
            block.copy_(rows[:, start:stop])

        return write


def graph(seed: int = 0, n: int = 150, scale: float = 2.0) -> tuple[Array, Facts, QueryIndex]:
    """Random scores, facts with several tails per query (some twice), and an index of more known tails."""
    rng = np.random.default_rng(seed)
    scores = scale * rng.normal(size=(N_HEADS, N_RELATIONS, N_ENTITIES))
    columns = [rng.integers(high, size=2 * n) for high in (N_HEADS, N_RELATIONS, N_ENTITIES)]
    facts = np.stack(columns, 1).astype(np.int32)
    return scores, facts[:n], QueryIndex.build(facts, N_ENTITIES, N_RELATIONS)


def obvious(scores: Array, fact: npt.NDArray[np.int32], known: QueryIndex | None) -> Array:
    """One fact's scores, the other known tails of its query at -inf."""
    h, r, t = fact
    row = scores[h, r].copy()
    if known is not None:
        others = known.tails_of(int(known.find([h], [r])[0]))
        row[others[others != t]] = -np.inf
    return row


def obvious_loss(scores: Array, facts: Facts, known: QueryIndex | None, temperature: float) -> float:
    losses = []
    for fact in facts:
        row = obvious(scores, fact, known) / temperature
        losses.append(np.log(np.exp(row - row.max()).sum()) + row.max() - row[fact[2]])
    return float(np.mean(losses))


def softmax(row: Array) -> Array:
    weights = np.exp(row - row.max())
    share: Array = weights / weights.sum()
    return share


def planted(n: int, scale: float = 2.0, seed: int = 0) -> tuple[Array, Facts, QueryIndex]:
    """One query per fact, its tail drawn from the softmax of its scores: calibrated at T = 1."""
    rng = np.random.default_rng(seed)
    scores = scale * rng.normal(size=(n, 1, N_ENTITIES))
    tails = (scores[:, 0] + rng.gumbel(size=(n, N_ENTITIES))).argmax(1)
    facts = np.stack([np.arange(n), np.zeros(n), tails], 1).astype(np.int32)
    return scores, facts, QueryIndex.build(facts, n, 1)


def top_confidences(*given: Any) -> tuple[Array, npt.NDArray[np.bool_]]:
    """The probability of the first answer for each fact's query, and whether it is the fact's tail: (n,) each."""
    confidence, correct = top_answers(*given, top=1)
    return confidence[:, 0], correct[:, 0]


SMALL = 8 * 16 * 8 * 7  # bytes that leave room for seven entities in a block
FILTERS = ["known", "raw", "other"]


def chosen(name: str, known: QueryIndex) -> QueryIndex | None:
    """All known tails, none, or an index in which most facts are missing."""
    few = np.stack([known.heads[::2], known.relations[::2], known.tails[known.offsets[:-1:2]]], 1)
    return {"known": known, "raw": None, "other": QueryIndex.build(few, N_ENTITIES, N_RELATIONS)}[name]


@pytest.mark.parametrize("memory", [2**30, SMALL])
@pytest.mark.parametrize("filtering", FILTERS)
@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_log_loss_is_that_of_each_fact_by_itself(temperature: float, filtering: str, memory: int) -> None:
    scores, facts, known = graph()
    index = chosen(filtering, known)
    found = log_loss(Fixed(scores), facts, index, temperature, memory=memory)
    assert found == pytest.approx(obvious_loss(scores, facts, index, temperature), rel=1e-12)


@pytest.mark.parametrize("memory", [2**30, SMALL])
@pytest.mark.parametrize("filtering", FILTERS)
@pytest.mark.parametrize("top", [1, 3, 10, 1000])
def test_first_answers_are_those_of_each_fact_by_itself(top: int, filtering: str, memory: int) -> None:
    scores, facts, known = graph(1)
    index = chosen(filtering, known)
    confidence, correct = top_answers(Fixed(scores), facts, index, 1.7, top=top, memory=memory)
    assert confidence.shape == correct.shape == (len(facts), min(top, N_ENTITIES))
    for i, fact in enumerate(facts):
        share = softmax(obvious(scores, fact, index) / 1.7)
        order = np.argsort(-share, kind="stable")[:top]
        np.testing.assert_allclose(confidence[i], share[order], rtol=1e-12)
        np.testing.assert_array_equal(correct[i], order == fact[2])


@pytest.mark.parametrize("memory", [2**30, SMALL])
def test_temperature_is_the_one_brute_force_finds(memory: int) -> None:
    scores, facts, known = graph(2, scale=0.2)
    scores[facts[:, 0], facts[:, 1], facts[:, 2]] += (
        0.3  # right tails are a little higher, so there is something to fit
    )
    grid = np.geomspace(0.05, 5.0, 2001)
    rows = np.stack([obvious(scores, fact, known) for fact in facts])
    targets = rows[np.arange(len(facts)), facts[:, 2]]
    losses = [np.mean(np.log(np.exp(rows / t).sum(1)) - targets / t) for t in grid]
    best = grid[int(np.argmin(losses))]
    assert grid[0] < best < grid[-1]
    assert fit_temperature(Fixed(scores), facts, known, memory=memory) == pytest.approx(best, rel=0.003)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_calibrated_scores_have_temperature_one_and_tripled_ones_three(dtype: torch.dtype) -> None:
    scores, facts, known = planted(6000)
    one = fit_temperature(Fixed(scores, dtype), facts, known)
    assert one == pytest.approx(1.0, abs=0.05)
    assert fit_temperature(Fixed(3 * scores, dtype), facts, known) == pytest.approx(3 * one, rel=1e-4)


def test_a_sample_of_many_facts_saves_passes_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, facts, known = planted(6000)
    whole, sampled = Fixed(9 * scores), Fixed(9 * scores)
    expected = fit_temperature(whole, facts, known)
    monkeypatch.setattr(calibration, "SAMPLE", 500)
    assert fit_temperature(sampled, facts, known) == pytest.approx(expected, rel=1e-5)
    assert sampled.passes < whole.passes


def test_temperature_stays_within_bounds_where_the_loss_has_no_minimum() -> None:
    scores, facts, known = planted(200)
    perfect, reversed_ = np.zeros_like(scores), np.zeros_like(scores)
    perfect[facts[:, 0], 0, facts[:, 2]] = 1
    reversed_[facts[:, 0], 0, facts[:, 2]] = -1
    assert fit_temperature(Fixed(perfect), facts, known) == pytest.approx(COLDEST, rel=0.01)
    assert fit_temperature(Fixed(reversed_), facts, known) == pytest.approx(HOTTEST, rel=0.01)
    assert fit_temperature(Fixed(np.zeros_like(scores)), facts, known) == 1.0


def test_nothing_to_fit() -> None:
    scores, facts, known = graph()
    assert fit_temperature(Fixed(scores), facts[:0], known) == 1.0
    assert math.isnan(log_loss(Fixed(scores), facts[:0], known))
    confidence, correct = top_confidences(Fixed(scores), facts[:0], known)
    assert len(confidence) == len(correct) == 0


def test_a_tail_whose_competitors_are_all_known_is_certain() -> None:
    facts = np.stack([np.zeros(5), np.zeros(5), np.arange(5)], 1).astype(np.int32)
    scorer = Fixed(np.random.default_rng(0).normal(size=(1, 1, 5)))
    known = QueryIndex.build(facts, 5, 1)
    confidence, correct = top_answers(scorer, facts, known, top=3)
    np.testing.assert_allclose(confidence, [[1, 0, 0]] * 5)
    np.testing.assert_array_equal(correct, [[True, False, False]] * 5)
    assert log_loss(scorer, facts, known) == pytest.approx(0, abs=1e-12)
    assert fit_temperature(scorer, facts, known) == 1.0


def test_first_answer_is_right_exactly_where_the_pessimistic_rank_is_one() -> None:
    generator = torch.Generator().manual_seed(0)
    model = Embeddings.random(get_score("complex"), N_ENTITIES, 2, 3, generator=generator, scale=1.0)
    _, facts, _ = graph(3)
    facts[:, 0] = np.arange(len(facts)) % N_ENTITIES
    known = QueryIndex.build(facts, N_ENTITIES, 4)
    model.entities[7] = model.entities[8]  # two entities that always tie
    _, correct = top_confidences(model, facts, known)
    np.testing.assert_array_equal(correct, rank(model, facts, known).pessimistic == 1)
    assert correct.any()
    assert not correct.all()


def test_scores_that_are_no_numbers() -> None:
    scores, facts, known = planted(50)
    others = scores.copy()
    elsewhere = (facts[:, 2] + 1) % N_ENTITIES
    others[facts[:, 0], 0, elsewhere] = np.nan
    confidence, _ = top_answers(Fixed(others), facts, known, top=N_ENTITIES)
    np.testing.assert_allclose(confidence.sum(1), 1)
    assert (confidence[:, -1] == 0).all()
    scores[3, 0, facts[3, 2]] = np.nan
    assert not top_confidences(Fixed(scores), facts, known)[1][3]
    with pytest.raises(FitError, match="not a finite number"):
        fit_temperature(Fixed(scores), facts, known)


def test_curve_of_planted_softmax_is_the_diagonal() -> None:
    scores, facts, known = planted(20_000, seed=1)
    confidence, correct = top_confidences(Fixed(scores), facts, known)
    curve = reliability(confidence, correct)
    assert curve.counts.sum() == len(facts)
    assert ece(curve) < 0.02
    pairs = top_answers(Fixed(scores), facts, known, top=5)
    assert ece(reliability(*pairs)) < 0.01
    overconfident = top_confidences(Fixed(3 * scores), facts, known)
    assert ece(reliability(*overconfident)) > 0.15
    mended = top_confidences(Fixed(3 * scores), facts, known, 3.0)
    np.testing.assert_allclose(mended[0], confidence, rtol=1e-9)


def test_curve_by_hand() -> None:
    curve = reliability([0.1, 0.25, 0.5, 0.9, 1.0, 0.0], [False, True, True, True, False, False], bins=4)
    np.testing.assert_array_equal(curve.counts, [3, 1, 0, 2])
    np.testing.assert_allclose(curve.confidence, [0.35 / 3, 0.5, np.nan, 0.95])
    np.testing.assert_allclose(curve.accuracy, [1 / 3, 1, np.nan, 0.5])
    assert ece(curve) == pytest.approx((0.65 + 0.5 + 0.9) / 6)


@pytest.mark.parametrize(
    "call",
    [
        lambda: reliability([0.5], [True], bins=0),
        lambda: reliability([0.5, 0.6], [True]),
        lambda: reliability([1.5], [True]),
        lambda: reliability([math.nan], [True]),
        lambda: log_loss(Fixed(np.zeros((1, 1, 2))), np.zeros((1, 3), dtype=np.int32), None, 0.0),
        lambda: top_confidences(Fixed(np.zeros((1, 1, 2))), np.zeros((1, 3), dtype=np.int32), None, math.inf),
    ],
)
def test_wrong_input_is_refused(call: Callable[[], object]) -> None:
    with pytest.raises(InputError):
        call()


def test_it_measures_what_it_mends_and_goes_into_json() -> None:
    scores, facts, known = planted(8000, seed=2)
    temperature = fit_temperature(Fixed(3 * scores), facts[:4000], known)
    found = measure(Fixed(3 * scores), facts[4000:], known, temperature, top=5)
    assert found.temperature == pytest.approx(3, rel=0.05)
    assert found.ece < 0.03 < 0.15 < found.ece_before
    assert found.ece_pairs < found.ece_pairs_before
    assert found.log_loss < found.log_loss_before
    assert found.log_loss == pytest.approx(log_loss(Fixed(scores), facts[4000:], known, found.temperature / 3))
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert plain["n"] == 4000
    assert plain["top"] == 5
    assert len(plain["curve"]["counts"]) == 15
    assert sum(plain["curve_pairs"]["counts"]) == 5 * 4000
    nothing = measure(Fixed(scores), facts[:0], known, fit_temperature(Fixed(scores), facts[:0], known)).to_dict()
    assert nothing["ece"] is None
    json.dumps(nothing, allow_nan=False)


def test_memory_bounds_the_blocks_on_a_benchmark_graph(benchmark_graphs: Path) -> None:
    data = Dataset.load(benchmark_graphs / "umls")
    generator = torch.Generator().manual_seed(0)
    model = Embeddings.random(
        get_score("complex"), data.n_entities, data.n_relations, 10, generator=generator, scale=0.5
    )
    facts = data.reciprocal(data.valid)
    small, large = (fit_temperature(model, facts, data.filter_index, memory=m) for m in (2**14, 2**30))
    assert small == pytest.approx(large, rel=1e-4)
