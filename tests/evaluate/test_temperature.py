"""Temperatures by question: against loops over facts, and planted ones that the fit must find."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize

from evaluate.test_calibration import N_RELATIONS, Array, Facts, Fixed, graph, obvious, obvious_loss, softmax
from kgem.data.index import QueryIndex
from kgem.errors import InputError
from kgem.evaluate import temperature as module
from kgem.evaluate.calibration import fact_losses, fit_temperature, log_loss, measure, top_answers
from kgem.evaluate.temperature import FARTHEST, EntropyEffect, Temperature, fit_temperatures, query_entropies

SIDED = Temperature(0.7, 0.3, -0.2, 0.9, (0.1, -0.4, 0.2, 0.0), (0.1, 0.0, -0.3, 0.2))

UNSURE = replace(SIDED, entropy=EntropyEffect(0.9, 0.3, 2.1, (0.1, -0.2, 0.0, 0.3)), without=replace(SIDED, side=0.1))


def sided_graph(seed: int = 0) -> tuple[Array, Facts, QueryIndex, QueryIndex]:
    """As `graph`, with two relations and their reverses, and what training knows: some of the known tails."""
    rng = np.random.default_rng(seed)
    scores = 2 * rng.normal(size=(12, 4, 40))
    facts = np.stack([rng.integers(high, size=400) for high in (12, 4, 40)], 1).astype(np.int32)
    return scores, facts[:150], QueryIndex.build(facts, 40, 4), QueryIndex.build(facts[150:220], 40, 4)


def obvious_temperature(t: Temperature, query: tuple[int, int], train: QueryIndex) -> float:
    h, r = query
    n = len(train.tails_of(int(train.find([h], [r])[0])))
    half = 0.5 if r >= train.n_relations // 2 else -0.5
    effects = half * t.side + (t.slope + t.slopes[r]) * (math.log(1 + n) - t.centre) + t.relations[r]
    return t.common * math.exp(min(max(effects, -FARTHEST), FARTHEST))


def test_each_question_has_its_own() -> None:
    _, facts, _, train = sided_graph()
    for sloped in (SIDED, replace(SIDED, slope=-3.0)):  # the second goes beyond what is allowed
        wanted = [obvious_temperature(sloped, (h, r), train) for h, r, _ in facts.tolist()]
        np.testing.assert_allclose(sloped.of(facts, train), wanted, rtol=1e-12)
        np.testing.assert_array_equal(sloped.of(facts[:, :2], train), sloped.of(facts, train))
    assert max(abs(np.log(replace(SIDED, slope=-3.0).of(facts, train) / SIDED.common))) == pytest.approx(FARTHEST)
    assert set(Temperature(0.6).of(facts, train)) == {0.6}


def obvious_entropy(scores: Array, query: tuple[int, int], train: QueryIndex, temperature: float) -> float:
    row = scores[query] / temperature
    row[train.tails_of(int(train.find([query[0]], [query[1]])[0]))] = -np.inf
    p = softmax(row)
    return -float((p[p > 0] * np.log(p[p > 0])).sum())


@pytest.mark.parametrize("memory", [2**10, 2**30])
def test_entropies_are_of_what_training_does_not_know(memory: int) -> None:
    scores, facts, _, train = sided_graph()
    found = query_entropies(Fixed(scores), facts[:, :2], train, 0.9, memory=memory)
    wanted = [obvious_entropy(scores, (h, r), train, 0.9) for h, r, _ in facts.tolist()]
    np.testing.assert_allclose(found, wanted, rtol=1e-9)
    everything = QueryIndex.build(np.array([(0, 0, t) for t in range(40)], dtype=np.int32), 40, 4)
    assert query_entropies(Fixed(scores), facts[:1] * 0, everything, 0.9).tolist() == [0.0]  # nobody is left


def test_a_question_whose_scores_are_undecided_has_another_temperature() -> None:
    scores, facts, _, train = sided_graph()
    found = query_entropies(Fixed(scores), facts, train, 0.9)
    effect = UNSURE.entropy
    assert effect is not None
    wanted = [
        SIDED.common
        * math.exp(
            math.log(obvious_temperature(SIDED, (h, r), train) / SIDED.common)
            + (effect.slope + effect.slopes[r]) * (obvious_entropy(scores, (h, r), train, 0.9) - effect.centre)
        )
        for h, r, _ in facts.tolist()
    ]
    within = np.abs(np.log(np.array(wanted) / SIDED.common)) < FARTHEST
    made = UNSURE.of(facts, train, found)
    np.testing.assert_allclose(made[within], np.array(wanted)[within], rtol=1e-9)
    assert within.mean() > 0.8 and np.abs(np.log(made / SIDED.common)).max() <= FARTHEST + 1e-12
    with pytest.raises(ValueError, match="depend on the entropies"):
        UNSURE.of(facts, train)


@pytest.mark.parametrize("memory", [2**10, 2**30])
def test_losses_and_first_answers_at_temperatures_of_their_own(memory: int) -> None:
    scores, facts, known, train = sided_graph()
    temperatures = SIDED.of(facts, train)
    rows = [obvious(scores, fact, known) / t for fact, t in zip(facts, temperatures, strict=True)]
    wanted = [-math.log(softmax(row)[fact[2]]) for row, fact in zip(rows, facts, strict=True)]
    losses, slopes, _ = fact_losses(Fixed(scores), facts, known, temperatures, memory=memory)
    np.testing.assert_allclose(losses, wanted, rtol=1e-10)
    h = 1e-6
    up, down = (fact_losses(Fixed(scores), facts, known, 1 / (1 / temperatures + d))[0] for d in (h, -h))
    np.testing.assert_allclose(slopes, (up - down) / (2 * h), rtol=1e-4, atol=1e-6)
    shares, right = top_answers(Fixed(scores), facts, known, temperatures, top=3, memory=memory)
    np.testing.assert_allclose(shares, [np.sort(softmax(row))[::-1][:3] for row in rows], rtol=1e-10)
    assert right[:, 0].tolist() == [row.argmax() == fact[2] for row, fact in zip(rows, facts, strict=True)]
    found = measure(Fixed(scores), facts, known, temperatures)
    assert found.log_loss == pytest.approx(np.mean(wanted))
    assert found.temperature == pytest.approx(np.exp(np.log(temperatures).mean()))
    with pytest.raises(InputError, match="makes no distribution"):
        log_loss(Fixed(scores), facts, known, np.where(np.arange(len(facts)) == 3, 0.0, temperatures))


def test_the_table_between_its_points_is_the_loss() -> None:
    scores, facts, known, _ = sided_graph()
    table = module._Table.of(Fixed(scores), facts, known, 0.8, 2**30)
    by_question = np.random.default_rng(0).uniform(-module.REACH, module.REACH, (12, 4))
    logs = by_question[facts[:, 0], facts[:, 1]]
    losses, slopes = table.at(logs)
    t = 0.8 * np.exp(logs)
    exact = fact_losses(Fixed(scores), facts, known, t)
    np.testing.assert_allclose(losses, exact[0], atol=0.02)
    np.testing.assert_allclose(slopes, -exact[1] / t, atol=0.3)
    assert np.abs(losses - exact[0]).mean() < 1e-3
    at_points = table.at(np.full(len(facts), module.REACH))
    np.testing.assert_allclose(at_points[0], table.losses[-1])
    np.testing.assert_allclose(at_points[1], table.slopes[-1])


def test_effects_are_those_of_a_search_over_the_exact_loss() -> None:
    scores, facts, known, train = sided_graph()
    common, ridge = fit_temperature(Fixed(scores), facts, known), 10.0
    centre = float(np.mean([math.log1p(len(train.tails_of(int(train.find([h], [r])[0])))) for h, r, _ in facts]))

    def objective(effects: Array) -> float:
        shift, side, slope, *own = effects.tolist()
        t = Temperature(common * math.exp(shift), side, slope, centre, tuple(own[:4]), tuple(own[4:]))
        each = [obvious_loss(scores, fact[None], known, obvious_temperature(t, fact[:2], train)) for fact in facts]
        return sum(each) + 0.5 * (side**2 + slope**2 + ridge * sum(r * r for r in own))

    wanted = scipy.optimize.minimize(objective, np.zeros(11), method="BFGS").x
    table = module._Table.of(Fixed(scores), facts, known, common, 2**30)
    found = module._fit_effects(table, module._Design.of(facts, train, centre), ridge)
    assert objective(found) == pytest.approx(objective(wanted), abs=0.01)
    np.testing.assert_allclose(found, wanted, atol=0.03)


def planted(temperatures: Temperature, n: int = 6000) -> tuple[Array, Facts, QueryIndex]:
    """One question for each fact, its tail drawn from softmax(scores / T_q); training knows up to 15 other tails."""
    rng = np.random.default_rng(0)
    relations = rng.integers(4, size=n)
    answers = np.array([rng.choice(20, size=k, replace=False) for k in 2 ** rng.integers(5, size=n) - 1], dtype=object)
    train = np.array([(h, relations[h], t) for h in range(n) for t in answers[h]], dtype=np.int32)
    index = QueryIndex.build(train, 20, 4)
    logits = 2 * rng.normal(size=(n, 20))
    tails = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    facts = np.stack([np.arange(n), relations, tails], 1).astype(np.int32)
    scores = np.zeros((n, 4, 20))
    scores[np.arange(n), relations] = logits * temperatures.of(facts, index)[:, None]
    return scores, facts, index


@pytest.mark.parametrize(
    "truth",
    [
        Temperature(0.5, side=0.8),
        Temperature(1.5, slope=-0.3, centre=1.4),
        Temperature(1.0, relations=(0.5, -0.5, 0.2, -0.2)),
        Temperature(1.0, centre=1.4, slopes=(0.5, -0.5, 0.3, 0.0)),
    ],
)
def test_what_was_planted_is_found(truth: Temperature) -> None:
    scores, facts, train = planted(truth)
    half = len(facts) // 2
    found = fit_temperatures(Fixed(scores), facts[:half], None, train)
    wanted, made = truth.of(facts[half:], train), found.of(facts[half:], train)
    assert np.abs(np.log(made / wanted)).mean() < 0.06
    one = fit_temperature(Fixed(scores), facts[:half], None)
    losses = [log_loss(Fixed(scores), facts[half:], None, t) for t in (wanted, made, one)]
    assert losses[1] - losses[0] < 0.1 * (losses[2] - losses[0])


def test_where_undecided_questions_are_too_sure_that_is_found() -> None:
    scores, facts, train = planted(Temperature(1.0))
    heads, relations, _ = facts.T
    sizes = 0.5 + np.random.default_rng(1).random(len(facts))[:, None] * 2  # low scores that mean what high ones do
    spread = scores[heads, relations] * sizes
    truth = EntropyEffect(1.0, 0.4, 1.8, (0.2, 0.0, 0.0, -0.2))
    scores[heads, relations] = spread
    t = Temperature(1.0, entropy=truth).of(facts, train, query_entropies(Fixed(scores), facts, train, 1.0))
    tails = (spread / t[:, None] + np.random.default_rng(2).gumbel(size=spread.shape)).argmax(1)
    facts = np.stack([heads, relations, tails], 1).astype(np.int32)
    half = len(facts) // 2
    found = fit_temperatures(Fixed(scores), facts[:half], None, train)
    assert found.entropy is not None and found.plain.entropy is None and found.plain == found.without
    entropies = query_entropies(Fixed(scores), facts[half:], train, found.entropy.reference)
    made = found.of(facts[half:], train, entropies)
    assert np.abs(np.log(made / t[half:])).mean() < 0.1
    one = fit_temperature(Fixed(scores), facts[:half], None)
    losses = [log_loss(Fixed(scores), facts[half:], None, each) for each in (t[half:], made, one)]
    assert losses[1] - losses[0] < 0.2 * (losses[2] - losses[0])


def test_where_questions_do_not_differ_one_temperature_is_kept() -> None:
    scores, facts, train = planted(Temperature(1.7), 1000)
    found = fit_temperatures(Fixed(scores), facts, None, train)
    assert found == Temperature(fit_temperature(Fixed(scores), facts, None))


def test_without_facts_it_is_one() -> None:
    scores, facts, known = graph()
    assert fit_temperatures(Fixed(scores), facts[:0], known, known) == Temperature(1.0)
    assert known.n_relations == N_RELATIONS
    with pytest.raises(InputError, match="makes no distribution"):
        log_loss(Fixed(scores), facts, known, 0.0)


def test_documents_come_back_and_a_number_is_one_temperature_for_all() -> None:
    assert Temperature.from_dict(SIDED.to_dict()) == SIDED and "entropy" not in SIDED.to_dict()
    assert Temperature.from_dict(json.loads(json.dumps(UNSURE.to_dict()))) == UNSURE
    assert Temperature.from_dict(0.4) == Temperature(0.4)
    old = SIDED.to_dict()
    del old["slopes"]  # older models have none
    assert Temperature.from_dict(old) == replace(SIDED, slopes=())
    for wrong in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="a temperature of"):
            Temperature(wrong)
    with pytest.raises(ValueError, match="a temperature of"):
        Temperature(1.0, relations=(math.nan,))
    for broken in ({"reference": 0.0}, {"slope": math.nan}, {"slopes": [math.inf]}):
        document = UNSURE.to_dict()
        document["entropy"] |= broken
        with pytest.raises(ValueError, match="an entropy at"):
            Temperature.from_dict(document)
