"""Missing and doubtful facts against loops over the whole graph."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from kgem.answer import missing
from kgem.answer.missing import ScoredFact
from kgem.answer.model import Model
from kgem.answer.modes import MODES
from kgem.data.dataset import Dataset
from kgem.errors import InputError, UnknownLabel
from kgem.evaluate import blocks
from kgem.evaluate.temperature import EntropyEffect, Temperature
from obvious import random_graph
from small_models import candidates, loopless_graph, probabilities, random_model

Triple = tuple[int, int, int]


def everything_missing(model: Model, mode: str) -> dict[Triple, tuple[float, float]]:
    """(n + 1) p and p of each fact that no split has, from the better side that training asks."""
    data, n = model.data, model.data.n_relations
    index, known = data.query_index, data.filter_index
    found: dict[Triple, tuple[float, float]] = {}
    for h, r in zip(index.heads.tolist(), index.relations.tolist(), strict=True):
        p = probabilities(model, mode, h, r)
        right = known.tails_of(int(known.find([h], [r])[0])).tolist()
        possible = candidates(model, h, r)
        for t in {e for e in range(data.n_entities) if possible[e]} - set(right):
            fact = (h, r, t) if r < n else (t, r - n, h)
            found[fact] = max(found.get(fact, (0.0, 0.0)), ((len(right) + 1) * float(p[t]), float(p[t])))
    return found


def ids(model: Model, fact: ScoredFact) -> Triple:
    entities, relations = model.data.entities, model.data.relations
    return entities.id(fact.head), relations.id(fact.relation), entities.id(fact.tail)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("block", [1, 10**9])
@pytest.mark.parametrize("graph", [random_graph, loopless_graph])
def test_missing_facts_against_all_of_them(
    mode: str, block: int, graph: Callable[[], Dataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", block)
    model = random_model(graph())
    wanted = everything_missing(model, mode)
    best = sorted(wanted, key=lambda fact: -wanted[fact][0])[:40]
    found = model.missing_facts(40, mode=mode, all_values=True)
    assert [ids(model, fact) for fact in found] == best
    np.testing.assert_allclose([fact.share for fact in found], [wanted[f][0] for f in best], rtol=1e-8)
    np.testing.assert_allclose([fact.probability for fact in found], [wanted[f][1] for f in best], rtol=1e-8)
    assert {fact.known for fact in found} == {None} and {fact.side for fact in found} == {"head", "tail"}


def test_a_missing_fact_has_the_probability_of_its_prediction() -> None:
    model = random_model()
    for fact in model.missing_facts(10):
        given = {"head": fact.head, "relation": fact.relation, "tail": fact.tail} | {fact.side: None}
        answers = {a.label: a for a in model.predict(**given, top=99)}
        answer = answers[fact.tail if fact.side == "tail" else fact.head]
        assert answer.known is None and math.isclose(answer.probability, fact.probability, rel_tol=1e-9)


def test_all_missing_facts_each_once_and_none_twice() -> None:
    model = random_model(loopless_graph())
    wanted = everything_missing(model, "point")
    found = [ids(model, fact) for fact in model.missing_facts(10**6, all_values=True)]
    assert len(found) == len(set(found)) and set(found) == set(wanted)
    assert {r for h, r, t in found if h == t} == {2, 3}  # those that training often has from an entity to itself


def test_some_relations_only_and_progress() -> None:
    model = random_model()
    heard: list[tuple[int, int]] = []
    found = model.missing_facts(15, relations=["r1", "r3"], progress=lambda *now: heard.append(now))
    everything = [fact for fact in model.missing_facts(10**6) if fact.relation in ("r1", "r3")]
    assert [ids(model, f) for f in found] == [ids(model, f) for f in everything[:15]]
    assert heard[-1][0] == heard[-1][1] > 0
    with pytest.raises(UnknownLabel):
        model.missing_facts(relations=["r77"])
    for call in (model.missing_facts, model.doubtful_facts):
        with pytest.raises(InputError, match="at least one"):
            call(0)


def test_questions_about_some_entities_only() -> None:
    model = random_model()
    names = [model.data.entities[i] for i in (0, 3)]
    every = {ids(model, fact): fact for fact in model.missing_facts(10**6, about=names, all_values=True)}
    index = model.data.query_index
    asked = {(h, r) for h, r in zip(index.heads.tolist(), index.relations.tolist(), strict=True) if h in (0, 3)}
    n = model.data.n_relations
    assert every and all((h, r) in asked or (t, r + n) in asked for h, r, t in every)
    assert {fact.head if fact.side == "tail" else fact.tail for fact in every.values()} == set(names)
    wanted = [
        fact
        for fact in everything_missing(model, "point")
        if (fact[0], fact[1]) in asked or (fact[2], fact[1] + n) in asked
    ]
    assert set(every) == set(wanted)
    with pytest.raises(UnknownLabel):
        model.missing_facts(about=["nobody"])
    assert model.missing_facts(about=[]) == []


def test_doubtful_facts_of_some_relations_only() -> None:
    model = random_model()
    found = model.doubtful_facts(10, relations=["r1", "r3"])
    everything = [fact for fact in model.doubtful_facts(10**6) if fact.relation in ("r1", "r3")]
    assert found == everything[:10] and len(found) == 10
    assert model.doubtful_facts(10, relations=[]) == []


@pytest.mark.parametrize("splits", [("train", "valid", "test"), ("train",)])
def test_doubtful_facts_against_all_known_ones(splits: tuple[str, ...]) -> None:
    model = random_model()
    data, n, known = model.data, model.data.n_relations, model.data.filter_index
    wanted: dict[Triple, float] = {}
    for split in splits:
        for h, r, t in data.split(split).tolist():
            sides = []
            for a, b, c in ((h, r, t), (t, r + n, h)):
                p = probabilities(model, "point", a, b, everyone=True)  # rivals as in ranks
                others = set(known.tails_of(int(known.find([a], [b])[0])).tolist()) - {c}
                rivals = torch.tensor([e for e in range(data.n_entities) if e not in others])
                sides.append(float(p[c] / p[rivals].sum()))
            wanted[h, r, t] = max(sides)
    least = sorted(wanted, key=lambda fact: wanted[fact])[:25]
    found = model.doubtful_facts(25, splits)
    assert [ids(model, fact) for fact in found] == least
    np.testing.assert_allclose([fact.probability for fact in found], [wanted[f] for f in least], rtol=1e-8)
    for fact in found:
        assert fact.known in splits and list(ids(model, fact)) in data.split(fact.known).tolist()


def test_doubtful_facts_with_a_judge_go_by_both_sides_together() -> None:
    model = random_model(random_graph(n_facts=400))
    model = replace(model, learned_judge=model.learn_judge())
    data, n, known = model.data, model.data.n_relations, model.data.filter_index
    wanted: dict[Triple, float] = {}
    for h, r, t in data.train.tolist():
        shares = []
        for a, b, c in ((h, r, t), (t, r + n, h)):
            others = set(known.tails_of(int(known.find([a], [b])[0])).tolist()) - {c}
            shares.append(math.log(float(probabilities(model, "point", a, b)[c]) * (len(others) + 1)))
        wanted[h, r, t] = sum(shares)
    found = model.doubtful_facts(20, ("train",))
    assert [ids(model, fact) for fact in found] == sorted(wanted, key=lambda fact: wanted[fact])[:20]
    judged = model.judge([(fact.head, fact.relation, fact.tail) for fact in found])
    np.testing.assert_allclose([fact.chance for fact in found], [each.chance for each in judged])
    assert model.doubtful_facts(5, relations=[]) == []


def test_a_time_budget_ends_the_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1)  # one question at a time
    model, heard = random_model(), []
    found = model.missing_facts(5, seconds=0.0, all_values=True, progress=lambda *counts: heard.append(counts))
    n = len(model.data.query_index)
    assert heard == [(1, n)] and found  # one question has been asked, and its answers are there
    questions = [{(fact.relation, fact.head, "?"), (fact.relation, "?", fact.tail)} for fact in found]
    assert len(set.intersection(*questions)) == 1
    whole = model.missing_facts(5, all_values=True)
    assert model.missing_facts(5, seconds=1e9, all_values=True) == whole


def test_more_known_facts_than_can_be_looked_at_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model()
    n_valid = len(model.data.valid)
    monkeypatch.setattr(missing, "MOST_SCORES", 2 * n_valid * model.data.n_entities)
    assert model.doubtful_facts(2, splits=("valid",))
    with pytest.raises(InputError, match=r"would take hours\n.*relations with fewer facts"):
        model.doubtful_facts(2)


def test_proposals_are_ordered_without_the_entropy_and_told_with_it() -> None:
    """What they are ordered by is as it was learned; the probability is the one that `predict` gives."""
    plain = random_model()
    effect = EntropyEffect(0.9, 0.5, 1.5, (0.1, -0.2, 0.0, 0.0, 0.2, 0.3, 0.0, 0.1))
    both = Temperature(1.1, entropy=effect, without=plain.temperature("point"))
    undecided = replace(plain, temperatures={"point": both})
    one, other = (model.missing_facts(20, mode="point") for model in (plain, undecided))
    assert [(f.head, f.relation, f.tail) for f in one] == [(f.head, f.relation, f.tail) for f in other]
    assert all(a.probability != b.probability for a, b in zip(one, other, strict=True))
    for fact in other:
        question = {"head": fact.head, "tail": fact.tail} | {fact.side: None}
        answers = undecided.predict(**question, relation=fact.relation, mode="point", top=99)
        same = next(a for a in answers if a.label == getattr(fact, fact.side))
        assert fact.probability == pytest.approx(same.probability)
