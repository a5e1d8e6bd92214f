"""Predictions against loops over entities and samples; known marks; wrong questions."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from kgem.answer import predict as module
from kgem.answer.modes import MODES
from kgem.answer.predict import MEANING, Query
from kgem.data.dataset import Dataset
from kgem.errors import InputError, UnknownLabel
from kgem.evaluate import blocks
from kgem.evaluate.ranking import rank
from kgem.evaluate.temperature import EntropyEffect, Temperature
from obvious import MODES as SCORE_MODES
from obvious import random_graph
from small_models import (
    TEMPERATURES,
    candidates,
    loopless_graph,
    mode_scores,
    probabilities,
    random_model,
    sampled,
    scores_of,
)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("graph", [random_graph, loopless_graph])
def test_tails_against_brute_force(mode: str, graph: Callable[[], Dataset]) -> None:
    model = random_model(graph())
    data = model.data
    found = model.predict(head="e3", relation="r1", top=data.n_entities, mode=mode)
    wanted = probabilities(model, mode, 3, 1)
    possible = candidates(model, 3, 1)
    order = wanted.argsort(descending=True)[: int(possible.sum())]
    assert [answer.label for answer in found] == [data.entities[i] for i in order.tolist()]
    np.testing.assert_allclose([answer.probability for answer in found], wanted[order], rtol=1e-9)
    assert math.isclose(sum(answer.probability for answer in found), 1, rel_tol=1e-9)
    assert found.entropy is not None
    assert math.isclose(found.entropy, -float((wanted * wanted.log())[possible].sum()), rel_tol=1e-9)
    of_samples = sampled(model, mode, 3, 1)[:, order]  # of seven: the 5 % and 95 % quantiles are the extremes
    low, high = of_samples.min(0).values.minimum(wanted[order]), of_samples.max(0).values.maximum(wanted[order])
    np.testing.assert_allclose([answer.low for answer in found], low, rtol=1e-8)
    np.testing.assert_allclose([answer.high for answer in found], high, rtol=1e-8)
    assert [answer.frequency for answer in found] == data.entity_counts[order].tolist()
    assert (found.mode, found.temperature) == (mode, TEMPERATURES[mode])
    assert (found.asked, found.meaning) == ("tail", MEANING["tail"])


@pytest.mark.parametrize("mode", MODES)
def test_an_entity_answers_a_question_about_itself_only_where_training_has_such_facts(mode: str) -> None:
    model = random_model(loopless_graph())
    assert model.candidates.loops.tolist() == [False, False, True, True]
    assert "e7" in [a.label for a in model.predict(head="e7", relation="r1", top=99, mode=mode)]  # training has it
    for relation, listed in (("r0", False), ("r1", False), ("r2", True), ("r3", True)):
        for question in ({"head": "e3", "relation": relation}, {"relation": relation, "tail": "e3"}):
            found = model.predict(**question, top=99, mode=mode)
            assert ("e3" in [a.label for a in found]) == listed
            assert math.isclose(sum(a.probability for a in found), 1, rel_tol=1e-9)
    assert {a.label for a in model.predict(head="e3", tail="e3", mode=mode)} == {"r2", "r3"}


def test_intervals_leave_out_a_twentieth_of_the_samples_at_either_end() -> None:
    model = random_model(n_samples=41)
    for answer in model.predict("e3", "r1", top=5):
        ordered = sampled(model, "point", 3, 1)[:, model.data.entities.id(answer.label)].sort().values
        assert float(ordered[2]) < answer.probability < float(ordered[38])
        assert (answer.low, answer.high) == pytest.approx((float(ordered[2]), float(ordered[38])), rel=1e-8)


@pytest.mark.parametrize("mode", MODES)
def test_a_range_contains_what_it_stands_beside(mode: str) -> None:
    model = random_model(std=0.6)
    beyond = 0
    for head in range(10):
        for i, answer in enumerate(model.predict(f"e{head}", "r1", top=99, mode=mode), 1):
            assert answer.low <= answer.probability <= answer.high and answer.rank_low <= i <= answer.rank_high
            moved = sampled(model, mode, head, 1)[:, model.data.entities.id(answer.label)]
            beyond += not moved.min() <= answer.probability <= moved.max()
    assert beyond < 0.05 * 10 * model.data.n_entities  # it is there by itself, nearly always


@pytest.mark.parametrize(("score", "reciprocal"), [m for m in SCORE_MODES if m[0] not in ("simple", "stretch")])
def test_heads_are_tails_of_the_reciprocal_relation(score: str, reciprocal: bool) -> None:
    model = random_model(score=score, reciprocal=reciprocal)
    found = model.predict(relation="r2", tail="e5", top=4)
    wanted = probabilities(model, "point", 5, 2 + model.data.n_relations)
    best, order = wanted.topk(4)
    assert [answer.label for answer in found] == [model.data.entities[i] for i in order.tolist()]
    np.testing.assert_allclose([answer.probability for answer in found], best, rtol=1e-7)
    assert found.asked == "head"


def test_ranges_cover_the_truth_as_often_as_they_say_if_it_is_half_as_far_off_as_samples() -> None:
    model = random_model(std=0.1, n_samples=41, temperatures={})
    generator = torch.Generator().manual_seed(0)
    answers = {(h, r): model.predict(f"e{h}", f"r{r}", top=1, mode="mean")[0] for h in range(10) for r in range(4)}
    inside = []
    for _ in range(10):
        drawn = zip(model.posterior.sample(generator), model.mean.tables(), strict=True)
        truth = replace(model, point=model.point.with_tables(*(mean + (w - mean) / 2 for w, mean in drawn)))
        for (h, r), answer in answers.items():
            logits = scores_of(truth.point, h, r).masked_fill(~candidates(model, h, r), -torch.inf)
            inside.append(answer.low <= logits.softmax(0)[model.data.entities.id(answer.label)] <= answer.high)
    assert 0.85 < np.mean(inside) < 0.95


@pytest.mark.parametrize("counted", [0, 32])
@pytest.mark.parametrize("new_only", [False, True])
def test_rank_intervals_against_sorting_every_sample(
    new_only: bool, counted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COUNTED", counted)
    model = random_model(n_samples=21)
    data = model.data
    head, relation = (int(x) for x in data.train[0, :2])
    query = {"head": data.entities[head], "relation": data.relations[relation]}
    known = data.filter_index.tails_of(int(data.filter_index.find([head], [relation])[0])).tolist()
    for own, answer in enumerate(model.predict(**query, top=6, new_only=new_only), 1):
        place = data.entities.id(answer.label)
        rivals = [e for e in range(data.n_entities) if e == place or not (new_only and e in known)]
        ranks = sorted(int((row[rivals] >= row[place]).sum()) for row in sampled(model, "point", head, relation))
        assert (answer.rank_low, answer.rank_high) == (
            min(ranks[1], own),
            max(ranks[19], own),
        )  # 5 and 95 % of 0 ... 20


def test_without_spread_in_q_there_is_no_uncertainty() -> None:
    model = random_model(std=1e-12)
    bayes, mean = (model.predict(head="e1", relation="r0", mode=mode) for mode in ("bayes", "mean"))
    assert [a.label for a in bayes] == [a.label for a in mean]
    assert [a.rank_low for a in mean] == [a.rank_high for a in mean] == list(range(1, 11))
    np.testing.assert_allclose([a.low for a in mean], [a.high for a in mean], rtol=1e-8)
    np.testing.assert_allclose([a.low for a in mean], [a.probability for a in mean], rtol=1e-8)
    same_scale = replace(model, temperatures={})
    one, other = (same_scale.predict(head="e1", relation="r0", mode=mode) for mode in ("bayes", "mean"))
    np.testing.assert_allclose([a.probability for a in one], [a.probability for a in other], rtol=1e-8)


@pytest.mark.parametrize("undecided", [None, EntropyEffect(0.9, 0.3, 1.5, (0.1, -0.2, 0.0, 0.0, 0.2, 0.3, 0.0, 0.1))])
@pytest.mark.parametrize("mode", MODES)
def test_probabilities_and_ranges_have_the_temperature_of_their_question(
    mode: str, undecided: EntropyEffect | None
) -> None:
    plain = random_model()
    data, effects = plain.data, (0.3, -0.2, 0.1, 0.0, 0.0, -0.1, 0.2, 0.4)
    temperature = Temperature(TEMPERATURES[mode], 0.4, -0.3, 0.8, effects, entropy=undecided)
    model = replace(plain, temperatures={mode: temperature})
    for relation, side in ((1, -0.2), (1 + data.n_relations, 0.2)):
        place = int(data.query_index.find([3], [relation])[0])
        n = len(data.query_index.tails_of(place))  # of training alone
        ratio = math.exp(side - 0.3 * (math.log(1 + n) - 0.8) + effects[relation])
        if undecided is not None:
            others = mode_scores(model, mode, 3, relation).clone()
            others[data.query_index.tails_of(place).astype(int)] = -torch.inf
            nats = float(torch.distributions.Categorical(logits=others / undecided.reference).entropy())
            ratio *= math.exp((undecided.slope + undecided.slopes[relation]) * (nats - undecided.centre))
        question = {"head": "e3", "relation": "r1"} if side < 0 else {"relation": "r1", "tail": "e3"}
        found = model.predict(**question, mode=mode, top=99)
        assert found.temperature == pytest.approx(TEMPERATURES[mode] * ratio)
        ids = [data.entities.id(a.label) for a in found]
        own, moved = (share(plain, mode, 3, relation) ** (1 / ratio) for share in (probabilities, sampled))
        own, moved = (shares / shares.sum(-1, keepdim=True) for shares in (own, moved))  # at another temperature
        np.testing.assert_allclose([a.probability for a in found], own[ids], rtol=1e-8)
        np.testing.assert_allclose([a.low for a in found], moved.min(0).values.minimum(own)[ids], rtol=1e-8)
        np.testing.assert_allclose([a.high for a in found], moved.max(0).values.maximum(own)[ids], rtol=1e-8)
    missing = model.missing_facts(5, mode=mode)
    doubtful = model.doubtful_facts(5, mode=mode)
    assert missing != plain.missing_facts(5, mode=mode) and doubtful != plain.doubtful_facts(5, mode=mode)
    for fact in missing:
        question = {"head": fact.head, "tail": fact.tail} | {fact.side: None}
        answers = model.predict(**question, relation=fact.relation, mode=mode, top=99)
        same = next(a for a in answers if a.label == getattr(fact, fact.side))
        assert same.probability == pytest.approx(fact.probability, rel=1e-8)


def test_known_answers_are_marked_with_their_split_and_left_out_on_demand() -> None:
    model = random_model()
    data = model.data
    for split in ("train", "valid", "test"):
        h, r, t = (int(x) for x in data.split(split)[1])
        everything = {a.label: a for a in model.predict(data.entities[h], data.relations[r], top=99)}
        assert everything[data.entities[t]].known == split
        true = {s: {(a, b, c) for a, b, c in data.split(s).tolist()} for s in ("train", "valid", "test")}
        for label, answer in everything.items():
            holders = [s for s in true if (h, r, data.entities.id(label)) in true[s]]
            assert answer.known == (holders[0] if holders else None)
        new = model.predict(data.entities[h], data.relations[r], top=99, new_only=True)
        assert [a.label for a in new] == [label for label, a in everything.items() if a.known is None]
        assert [a.probability for a in new] == [a.probability for a in everything.values() if a.known is None]
        backwards = model.predict(relation=data.relations[r], tail=data.entities[t], top=99)
        assert next(a for a in backwards if a.label == data.entities[h]).known == split


@pytest.mark.parametrize("mode", MODES)
def test_which_relation_is_by_the_probability_of_the_tail(mode: str) -> None:
    model = random_model()
    data = model.data
    h, r, t = (int(x) for x in data.train[0])
    found = model.predict(head=data.entities[h], tail=data.entities[t], mode=mode)
    wanted = torch.stack([probabilities(model, mode, h, i)[t] for i in range(data.n_relations)])
    order = wanted.argsort(descending=True)
    assert [a.label for a in found] == [data.relations[i] for i in order.tolist()]
    np.testing.assert_allclose([a.probability for a in found], wanted[order], rtol=1e-9)
    of_samples = torch.stack([sampled(model, mode, h, i)[:, t] for i in range(data.n_relations)], 1)  # (S, N_r)
    low, high = of_samples.min(0).values.minimum(wanted), of_samples.max(0).values.maximum(wanted)
    np.testing.assert_allclose([a.low for a in found], low[order], rtol=1e-8)
    np.testing.assert_allclose([a.high for a in found], high[order], rtol=1e-8)
    for own, answer in enumerate(found, 1):
        place = data.relations.id(answer.label)
        ranks = [own, *(of_samples >= of_samples[:, place, None]).sum(1).tolist()]
        assert (answer.rank_low, answer.rank_high) == (min(ranks), max(ranks))  # of seven samples
        assert answer.frequency == data.relation_counts[place]
    assert next(a for a in found if a.label == data.relations[r]).known == "train"
    assert found.entropy is None and "not a distribution" in found.meaning
    new = model.predict(head=data.entities[h], tail=data.entities[t], mode=mode, new_only=True)
    assert [a.label for a in new] == [a.label for a in found if a.known is None]


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model()
    queries = [
        Query("e1", "r0"),
        Query(relation="r1", tail="e2"),
        Query("e1", None, "e2"),
        Query("e4", "r3"),
        Query("e5", "r3"),
    ]
    whole = model.predict_many(queries, top=5)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1)
    for one, other, query in zip(whole, model.predict_many(queries, top=5), queries, strict=True):
        assert one.query == other.query == query
        assert [a.label for a in one] == [a.label for a in other]
        np.testing.assert_allclose([a.probability for a in one], [a.probability for a in other], rtol=1e-12)
        assert [(a.rank_low, a.rank_high) for a in one] == [(a.rank_low, a.rank_high) for a in other]
    assert model.predict_many([]) == []


def test_without_uncertainty_only_the_mode_is_asked() -> None:
    model = random_model()
    quick = model.predict("e1", "r1", uncertainty=False)
    assert "samples" not in vars(model)
    full = model.predict("e1", "r1")
    assert [a.probability for a in quick] == [a.probability for a in full]
    assert {(a.low, a.high, a.rank_low, a.rank_high) for a in quick} == {(None, None, None, None)}
    bayes = model.predict("e1", "r1", mode="bayes", uncertainty=False)
    assert bayes[0].low is None and bayes[0].probability > 0


def test_scorers_of_modes_rank_as_predictions_are_ordered() -> None:
    model = random_model()
    data = model.data
    for mode in MODES:
        labels = [a.label for a in model.predict("e2", "r1", top=99, mode=mode)]
        facts = np.array([[2, 1, t] for t in range(data.n_entities)])
        ranks = rank(model.scorer(mode), facts, None).of("optimistic")
        assert [labels.index(label) + 1 for label in data.entities] == ranks.tolist()


def test_labels_that_were_numbers_are_asked_for_as_numbers() -> None:
    model = random_model(Dataset.load([(i, 7, (i + 1) % 9) for i in range(9)]))
    answers, same = model.predict(3, 7), model.predict("3", "7")  # type: ignore[arg-type]
    assert [a.label for a in answers] == [a.label for a in same] and answers.query == same.query
    assert model.similar(3) == model.similar("3")  # type: ignore[arg-type]


def test_wrong_questions_are_explained() -> None:
    model = random_model(random_graph(30))
    with pytest.raises(UnknownLabel, match="did you mean 'e17'"):
        model.predict("E17", "r0")
    with pytest.raises(UnknownLabel, match="no relation is called"):
        model.predict("e17", "nothing")
    for query in ({}, {"head": "e1"}, {"head": "e1", "relation": "r1", "tail": "e2"}):
        with pytest.raises(InputError, match="two of head, relation, tail"):
            model.predict(**query)
    for query in ("e1", ("e1", "r1")):
        with pytest.raises(InputError, match="is not a question"):
            model.predict_many([query])  # type: ignore[list-item]
    with pytest.raises(InputError, match="at least one"):
        model.predict("e1", "r1", top=0)
    with pytest.raises(InputError, match="one of auto, point, mean, bayes"):
        model.predict("e1", "r1", mode="median")


def test_predictions_are_sequences_and_json() -> None:
    found = random_model().predict("e1", "r1", top=3)
    assert len(found) == 3 and found[0] == next(iter(found)) and found[-1] in found
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert (told["head"], told["relation"], told["tail"], told["asked"]) == ("e1", "r1", None, "tail")
    assert [a["label"] for a in told["answers"]] == [a.label for a in found]
