"""Proposals: features against loops, the ranking against what was planted, files, decisions of people."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

import kgem
from kgem.answer import proposals
from kgem.answer.features import FEATURES, FactViews, Known, explain_against, nearest_facts, view_facts
from kgem.answer.logistic import FOLDS, GROUP_RIDGE, RIDGE, Logistic, expand
from kgem.answer.model import Model
from kgem.answer.proposal_quality import measure_proposals
from kgem.answer.proposals import (
    POOL,
    Decided,
    Ranker,
    affordable_part,
    find_candidates,
    is_large,
    learn_ranker,
    training_questions,
)
from kgem.data.dataset import Dataset
from kgem.errors import InputError
from kgem.evaluate import blocks
from kgem.evaluate.frequency import FrequencyScorer
from kgem.evaluate.validation import filtered_mrr
from obvious import random_graph
from small_models import loopless_graph, probabilities, random_model

MANY = random_graph(n_entities=60, n_relations=5, n_facts=900, seed=3)


def views_of(model: Model, known: Known, mode: str = "point") -> tuple[np.ndarray, FactViews]:
    facts = np.concatenate([model.data.train[:20], model.data.valid, model.data.test]).astype(np.int64)
    return facts, view_facts(model.mode_scorer(mode), facts, known)


@pytest.mark.parametrize("mode", ["point", "blend"])
@pytest.mark.parametrize("block", [1, 10**9])
@pytest.mark.parametrize("held_out", [False, True])
def test_views_against_loops(mode: str, block: int, held_out: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", block)
    model = random_model(loopless_graph())
    data, n = model.data, model.data.n_relations
    counted = data.train if not held_out else np.concatenate([data.train, data.valid, data.test])
    known_facts = {tuple(f) for f in counted.tolist()}
    known_facts |= {(t, r + n, h) for h, r, t in known_facts}
    facts, views = views_of(model, Known.of(data, counted), mode)
    for row, (h, r, t) in enumerate(facts.tolist()):
        for side, (a, b, c) in enumerate(((h, r, t), (t, r + n, h))):
            p = probabilities(model, mode, a, b)
            others = {x[2] for x in known_facts if x[:2] == (a, b)} - {c}
            if a != c:  # an entity that is no candidate has no probability
                assert np.exp(views.log_probability[row, side]) == pytest.approx(float(p[c]), rel=1e-8)
                unknown = [e for e in range(data.n_entities) if e not in others]
                assert views.better[row, side] == sum(float(p[e]) > float(p[c]) * (1 + 1e-9) for e in unknown)
            assert views.known[row, side] == len(others)
            assert views.relations[row, side] == b
            back = (b + n) % (2 * n)
            assert views.role_seen[row, side] == any(x[:2] == (c, back) and x[2] != a for x in known_facts)
            sizes = [len({x[2] for x in known_facts if x[:2] == q}) for q in {x[:2] for x in known_facts if x[1] == b}]
            assert views.n_per_question[row, side] == pytest.approx(np.mean(sizes))
            assert views.single[row, side] == pytest.approx(np.mean([size == 1 for size in sizes]))
    features = views.features()
    assert features.shape == (len(facts), len(FEATURES)) and np.isfinite(features).all()
    np.testing.assert_allclose(features[:, 0], np.maximum(views.log_share.max(1), -30))
    np.testing.assert_array_equal(features[:, 4:6], np.log1p(views.known))
    part = views.take(np.array([3, 1]))
    np.testing.assert_array_equal(part.features(), features[[3, 1]])


def graph_with_rules() -> Dataset:
    """`born in` has one tail per head, and cities alone are its tails; `knows` is free."""
    rng = np.random.default_rng(0)
    people, cities = [f"p{i:02}" for i in range(40)], [f"c{i}" for i in range(4)]
    born = [(p, "born in", cities[i % 4]) for i, p in enumerate(people)]
    knows = {(people[a], "knows", people[b]) for a, b in rng.integers(0, 40, (200, 2)) if a != b}
    return Dataset.load(pl.DataFrame([*born, *sorted(knows)], schema=["head", "relation", "tail"], orient="row"))


def test_rules_of_the_graph_and_what_breaks_them() -> None:
    model = random_model(graph_with_rules())
    data, known = model.data, Known.everything(model.data)
    born, knows = data.relations.id("born in"), data.relations.id("knows")
    n = data.n_relations
    assert known.functional[born] and not known.functional[born + n] and not known.functional[knows]
    assert known.closed[born] and not known.closed[born + n]  # each head of `born in` is one once
    p0, p1, c0, c1 = (data.entities.id(name) for name in ("p00", "p01", "c0", "c1"))
    facts = np.array([[p0, born, c1], [p0, born, p1], [p0, born, c0], [p0, knows, c0]])
    views = view_facts(model.mode_scorer("point"), facts, known)
    said = [list(explain_against(data, known, views, row)) for row in range(4)]
    assert said[0] == ["born in has one tail for each head as a rule, and this head has c0"]
    assert said[1] == [*said[0], "p01 was never the tail of born in"]
    assert said[2] == []  # it is known itself, and looked at as if it were not
    proposals = model.missing_facts(10**6)
    assert not any(fact.relation == "born in" and fact.head.startswith("p") for fact in proposals)
    every = model.missing_facts(10**6, all_values=True)
    broken = [fact for fact in every if fact.relation == "born in" and fact.head.startswith("p")]
    assert broken and all(fact.against for fact in broken)
    assert set(proposals) < set(every)


def test_the_nearest_known_facts_against_a_loop() -> None:
    model = random_model(MANY)
    mode, known = model.mode_scorer("point"), Known.everything(model.data)
    table = model.point.entities

    def alike(a: int, b: int) -> float:
        return float(torch.cosine_similarity(table[a], table[b], dim=0))

    facts = {tuple(f) for split in ("train", "valid", "test") for f in model.data.split(split).tolist()}
    for h, r, t in find_candidates(mode, known, 30).tolist():
        heads = [a for a, b, c in facts if (b, c) == (r, t) and a != h]
        tails = [c for a, b, c in facts if (a, b) == (h, r) and c != t]
        wanted = [(max(alike(h, a) for a in heads), (max(heads, key=lambda a: alike(h, a)), r, t))] if heads else []
        wanted += [(max(alike(t, c) for c in tails), (h, r, max(tails, key=lambda c: alike(t, c))))] if tails else []
        assert nearest_facts(mode, known, np.array([h, r, t])) == [fact for _, fact in sorted(wanted, reverse=True)]


def test_chances_are_found_where_only_a_part_of_the_right_ones_can_be_seen() -> None:
    """Labelled right with probability c * sigmoid(z): the fit sees labels alone and finds sigmoid(z)."""
    rng = np.random.default_rng(1)
    features = rng.normal(size=(100_000, 2))
    truth = 1 / (1 + np.exp(0.5 - features @ [2.0, -1.0]))
    for c in (0.4, 1.0):
        seen = rng.random(len(features)) < c * truth
        found = Logistic.fit(features, seen, ceilings=np.full(len(features), c)).chance(features)
        assert np.abs(found - truth).max() < 0.1 and np.abs(found - truth).mean() < 0.01


def test_the_loss_of_a_fit_with_ceilings_is_at_its_least() -> None:
    rng = np.random.default_rng(2)
    features, groups = rng.normal(size=(500, 2)), rng.integers(-1, 3, 500)  # -1: of no group
    right, ceilings = rng.random(500) < 0.3, rng.uniform(0.5, 1.0, 500)
    weight = rng.uniform(0.5, 2.0, 500)
    fitted = Logistic.fit(features, right, groups, 3, weight=weight, ceilings=ceilings)
    rows = expand((features - fitted.centre) / fitted.scale)

    def loss(both: np.ndarray) -> float:
        w, effects = both[:6], both[6:]
        z = [row @ w + (0.0 if group < 0 else effects[group]) for row, group in zip(rows, groups, strict=True)]
        p = ceilings / (1 + np.exp(-np.array(z)))
        penalty = RIDGE / 2 * (w[:-1] ** 2).sum() + GROUP_RIDGE / 2 * (effects**2).sum()
        return float(-(weight * np.log(np.where(right, p, 1 - p))).sum() + penalty)

    best = np.concatenate([fitted.weights, fitted.effects])
    for step in np.concatenate([np.eye(9), -np.eye(9)]) * 1e-3:
        assert loss(best + step) > loss(best)


def ranked(data: Dataset = MANY) -> Model:
    model = random_model(data)
    ranker = learn_ranker(model.mode_scorer())
    assert ranker is not None
    return replace(model, ranker=ranker)


def test_examples_that_were_left_out_correct_the_chance_and_keep_the_order() -> None:
    rng = np.random.default_rng(2)
    n, ceiling = 3000, 0.5
    features, groups = rng.normal(size=(n, 4)), rng.integers(60, size=n)
    chance = 1 / (1 + np.exp(-3 * features[:, 0] + 1))
    right = rng.random(n) < ceiling * chance
    given = (features, right, groups, 60)
    ceilings = np.full(n, ceiling)
    whole, corrected = Logistic.fit(*given, ceilings=ceilings), Logistic.fit_in_folds(*given, ceilings=ceilings)
    z, line = whole.logit(features, groups), corrected.logit(features, groups)
    slope, shift = np.polyfit(z, line, 1)
    np.testing.assert_allclose(line, slope * z + shift, atol=1e-6)
    assert slope > 0 and abs(slope - 1) > 1e-3
    fresh, others = rng.normal(size=(20_000, 4)), rng.integers(60, size=20_000)
    true = 1 / (1 + np.exp(-3 * fresh[:, 0] + 1))
    errors = [np.abs(model.chance(fresh, others) - true).mean() for model in (whole, corrected)]
    assert errors[1] < errors[0]


def test_a_ranking_learns_from_validation_and_never_sees_test() -> None:
    model = ranked()
    data, ranker = model.data, model.ranker
    assert ranker is not None and ranker.hidden == len(data.valid) + len(data.test)
    assert ranker.validation_share == pytest.approx(len(data.valid) / ranker.hidden)
    known = Known.of(data, data.train)
    facts = find_candidates(model.mode_scorer(), known, POOL)
    right = Known.of(data, data.valid).has(facts)
    assert (ranker.candidates, ranker.found) == (len(facts), right.sum())
    chance = ranker.chance(view_facts(model.mode_scorer(), facts, known).features(), facts[:, 1])
    assert (ranker.validation_share * chance).sum() == pytest.approx(right.sum(), rel=0.1)
    features = view_facts(model.mode_scorer(), facts, known).features()
    ceilings = np.full(len(facts), ranker.validation_share)
    plain = Logistic.fit(features, right, facts[:, 1], data.n_relations, ceilings=ceilings)
    assert (ceilings * plain.chance(features, facts[:, 1])).sum() == pytest.approx(right.sum(), rel=0.02)
    # The line that corrects logits is fitted to candidates that were left out: of these the sum is right.
    slope, shift = np.polyfit(plain.logit(features, facts[:, 1]), ranker.logistic.logit(features, facts[:, 1]), 1)
    folds = np.random.default_rng(0).permutation(len(right)) % FOLDS
    left_out = np.empty(len(right))
    for fold in range(FOLDS):
        i, o = folds != fold, folds == fold
        part = Logistic.fit(features[i], right[i], facts[i, 1], data.n_relations, ceilings=ceilings[i])
        left_out[o] = part.logit(features[o], facts[o, 1])
    corrected = ceilings / (1 + np.exp(-slope * left_out - shift))
    assert corrected.sum() == pytest.approx(right.sum(), rel=0.02)
    swapped = replace(data, test=data.test[::-1].copy())
    other = learn_ranker(random_model(swapped).mode_scorer())
    assert other is not None
    np.testing.assert_array_equal(other.logistic.weights, ranker.logistic.weights)


def test_nothing_is_learned_from_few_or_no_validation_facts() -> None:
    assert learn_ranker(random_model(replace(MANY, valid=MANY.valid[:0])).mode_scorer()) is None
    assert learn_ranker(random_model(replace(MANY, valid=MANY.valid[:3])).mode_scorer()) is None


def test_proposals_come_in_the_learned_order_and_in_its_mode_alone() -> None:
    model = ranked()
    found = model.missing_facts(50, all_values=True)
    chances = [fact.chance for fact in found]
    assert None not in chances and chances == sorted(chances, reverse=True)
    assert all(0 <= fact.chance <= 1 and len(fact.like) <= 2 for fact in found if fact.chance is not None)
    others = model.missing_facts(50, mode="bayes", all_values=True)
    assert {fact.chance for fact in others} == {None}
    shares = [fact.share for fact in others]
    assert shares == sorted(shares, reverse=True)


def test_what_people_rejected_does_not_come_again() -> None:
    model = ranked()
    first, second, *_ = model.missing_facts(5)
    nobody = ("nobody", "r1", "e1")
    again = replace(model, rejected=((first.head, first.relation, first.tail), nobody)).missing_facts(4)
    assert again[0] == second and first not in again


def test_a_ranking_learns_from_decisions() -> None:
    """Candidates like those that people rejected come later, and those like accepted ones earlier."""
    model = ranked()
    mode, known = model.mode_scorer(), Known.everything(model.data)
    facts = find_candidates(mode, known, 40)
    features = view_facts(mode, facts, known).features()
    before = model.ranker.chance(features, facts[:, 1]) if model.ranker else np.empty(0)
    for right in (False, True):
        after = learn_ranker(mode, Decided(features, np.full(40, right)))
        assert after is not None
        assert (after.chance(features, facts[:, 1]).mean() > before.mean()) == right


def test_files_hold_the_ranking_and_the_decisions(tmp_path: Path) -> None:
    model = ranked()
    decided = Decided(np.arange(2.0 * len(FEATURES)).reshape(2, -1), np.array([True, False]))
    model = replace(model, decided=decided, rejected=(("e1", "r1", "e2"),))
    model.save(tmp_path / "m")
    again = kgem.load(tmp_path / "m")
    assert again.missing_facts(20) == model.missing_facts(20)
    assert again.rejected == model.rejected
    np.testing.assert_array_equal(again.decided.features, decided.features)
    np.testing.assert_array_equal(again.decided.right, decided.right)
    document = model.ranker.to_dict() if model.ranker else {}
    for damage, words in (({"features": ["other"]}, "other features"), ({"weights": [1.0]}, "weights of a logistic")):
        with pytest.raises(ValueError, match=words):
            Ranker.from_dict(document | damage, model.data.n_relations)
    del document["effects"]  # as models had none before relations counted
    old = Ranker.from_dict(document, model.data.n_relations)
    assert old.logistic.effects.tolist() == [0.0] * model.data.n_relations
    with pytest.raises(ValueError, match="decisions"):
        Decided.from_dict({"features": [[0.0] * len(FEATURES)], "right": []})


def test_proposals_are_measured_by_test_facts() -> None:
    model = ranked()
    data = model.data
    quality = measure_proposals(model.mode_scorer())
    unknown = replace(data, test=data.test[:0])  # as if there were none
    test = {tuple(data.label(fact)) for fact in data.test}
    proposed = replace(model, data=unknown).missing_facts(1000)
    right = [(fact.head, fact.relation, fact.tail) in test for fact in proposed]
    assert quality.learned is not None and quality.learned[0] == pytest.approx(np.mean(right[:100]))
    shared = replace(model, data=unknown, ranker=None).missing_facts(1000, all_values=True)
    right = [(fact.head, fact.relation, fact.tail) in test for fact in shared]
    assert quality.by_share == pytest.approx([sum(right[:n]) / n for n in quality.first])
    assert len(quality.claimed) == len(quality.found) == 10 and quality.test_facts == len(test)
    assert quality.found[0] == quality.learned[0]
    with pytest.raises(InputError, match="test facts"):
        measure_proposals(random_model(unknown).mode_scorer())


def test_frequencies_against_counting() -> None:
    data = MANY
    scorer = FrequencyScorer(data)
    facts = data.reciprocal(data.train)
    heads, relations = torch.tensor([0, 5, 7]), torch.tensor([0, 3, 8])
    block = torch.empty(3, data.n_entities)
    scorer.prepare(heads, relations)(0, data.n_entities, block)
    for row, r in enumerate(relations.tolist()):
        counts = np.bincount(facts[facts[:, 1] == r][:, 2], minlength=data.n_entities)
        np.testing.assert_allclose(block[row].numpy(), np.log(counts + 1e-3), rtol=1e-6)
    part = torch.empty(3, 7)
    scorer.prepare(heads, relations)(10, 17, part)
    assert torch.equal(part, block[:, 10:17])
    assert 0 < filtered_mrr(scorer, data.reciprocal(data.test), data) < 1


def test_a_large_graph_is_asked_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    every = training_questions(MANY)
    assert affordable_part(MANY, every)[1] == 1.0 and not is_large(MANY)
    half = len(every) // 2 * MANY.n_entities
    monkeypatch.setattr(proposals, "AFFORDABLE_SCORES", half)
    monkeypatch.setattr(proposals, "LEARNED_SCORES", half)
    some, part = affordable_part(MANY, every)
    assert is_large(MANY) and len(some) == len(every) // 2 and part == len(some) / len(every)
    assert len(np.unique(some, axis=0)) == len(some) and {*map(tuple, some)} < {*map(tuple, every)}
    monkeypatch.setattr(proposals, "LEAST_POOL", 100)
    monkeypatch.setattr(proposals, "FEWEST", 1)
    ranker = learn_ranker(random_model(MANY).mode_scorer())
    assert ranker is not None and ranker.candidates <= max(100, round(part * POOL))
