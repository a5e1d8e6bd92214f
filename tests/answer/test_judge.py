"""The judge against loops over facts, its logistic model against its equations, and mistakes that were planted."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import kgem
from kgem.answer import judge as judging
from kgem.answer.cases import Cases
from kgem.answer.features import Known, view_facts
from kgem.answer.judge import JUDGED, Judge, Pairs, make_negatives, view_features
from kgem.answer.logistic import GROUP_RIDGE, RIDGE, Logistic, expand, weigh_alike
from kgem.answer.model import Model
from kgem.data.dataset import Dataset
from kgem.errors import InputError
from obvious import random_graph
from small_models import candidates, probabilities, random_model


def big_graph() -> Dataset:
    return random_graph(n_facts=400)


def known_facts(data: Dataset) -> set[tuple[int, int, int]]:
    return {tuple(fact) for split in ("train", "valid", "test") for fact in data.split(split).tolist()}


def labels(data: Dataset, facts: np.ndarray) -> list[tuple[str, str, str]]:
    return [(data.entities[h], data.relations[r], data.entities[t]) for h, r, t in facts.tolist()]


def test_logistic_is_where_the_penalised_loss_is_flat() -> None:
    rng = np.random.default_rng(0)
    features, groups = rng.normal(size=(300, 3)), rng.integers(5, size=300)
    right = rng.random(300) < 1 / (1 + np.exp(-features[:, 0] - (groups == 2) + 1))
    fitted = Logistic.fit(features, right, groups, 6, weight=weigh_alike(right))
    rows = expand((features - fitted.centre) / fitted.scale)
    weight = np.where(right, 150 / right.sum(), 150 / (~right).sum())
    error = weight * (fitted.chance(features, groups) - right)
    slope = rows.T @ error
    slope[:-1] += RIDGE * fitted.weights[:-1]
    np.testing.assert_allclose(slope, 0, atol=1e-3)
    effects = [error[groups == g].sum() + GROUP_RIDGE * fitted.effects[g] for g in range(6)]
    np.testing.assert_allclose(effects, 0, atol=1e-3)
    assert fitted.effects[5] == 0 and np.argmax(fitted.effects) == 2
    again = Logistic.from_dict(fitted.to_dict(), 3, 6)
    np.testing.assert_array_equal(again.logit(features, groups), fitted.logit(features, groups))
    with pytest.raises(ValueError, match="effects"):
        Logistic.from_dict(fitted.to_dict(), 3, 7)


def test_pairs_against_counting() -> None:
    data = big_graph()
    known = Known.of(data, data.train)
    facts = np.concatenate([data.train[:50], data.valid, [[3, 1, 3]]]).astype(np.int64)
    found = Pairs.of(known, data.n_entities).features(facts)
    for (h, r, t), row in zip(facts.tolist(), found, strict=True):
        others = {tuple(f) for f in data.train.tolist()} - {(h, r, t)}
        degrees = [sum((f[0] == e) + (f[2] == e) for f in others) for e in (h, t)]
        expected = [*map(math.log1p, degrees), any((f[0], f[2]) == (h, t) for f in others)]
        np.testing.assert_allclose(row, [*expected, any((f[0], f[2]) == (t, h) for f in others)])


def test_own_negatives_are_unknown_and_plausible() -> None:
    model = random_model(big_graph())
    data, known = model.data, known_facts(model.data)
    made = make_negatives(model.mode_scorer(), data.valid, np.random.default_rng(0))
    assert len(made) > 2 * len(data.valid) and not known & set(map(tuple, made.tolist()))
    again = make_negatives(model.mode_scorer(), data.valid, np.random.default_rng(0))
    np.testing.assert_array_equal(made, again)
    asked = {(h, r) for h, r, _ in data.valid.tolist()}, {(r, t) for _, r, t in data.valid.tolist()}
    assert all((h, r) in asked[0] or (r, t) in asked[1] for h, r, t in made.tolist())


def test_chance_and_ranks_against_one_fact_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "BLOCK", 7)
    model = random_model(big_graph())
    data, n = model.data, model.data.n_relations
    facts = np.concatenate([data.train[:9], data.test[:9], [[1, 0, 2], [4, 2, 5]]]).astype(np.int64)
    judge, scorer = model.learn_judge(), model.mode_scorer()
    fitted = Known.of(data, data.train)
    seen: list[tuple[int, int]] = []
    judged = list(model.judge(labels(data, facts), uncertainty=True, progress=lambda *far: seen.append(far)))
    assert seen == [(7, 20), (14, 20), (20, 20)]
    for (h, r, t), found in zip(facts.tolist(), judged, strict=True):
        one = np.array([[h, r, t]])
        features = view_features(view_facts(scorer, one, fitted), Pairs.of(fitted, data.n_entities))
        assert features.shape == (1, len(JUDGED))
        assert found.chance == pytest.approx(float(judge.chance(features, one)[0]), rel=1e-6)
        assert found.low is not None and found.high is not None and 0 <= found.low <= found.high <= 1
        for head, relation, tail, rank in ((h, r, t, found.rank_tail), (t, r + n, h, found.rank_head)):
            p = probabilities(model, "point", head, relation)
            index = data.filter_index
            right = index.tails_of(int(index.find([head], [relation])[0])).tolist()
            rivals = [e for e in range(data.n_entities) if candidates(model, head, relation)[e] and e not in right]
            scores = model.mode_scorer().scorer
            assert scores is not None and rank == 1 + sum(p[e] > p[tail] for e in rivals if e != tail)
    splits = [judgement.known for judgement in judged]
    assert splits[:9] == ["train"] * 9 and splits[9:18] == ["test"] * 9


def test_unknown_labels_get_a_note_and_the_others_are_judged() -> None:
    model = random_model(big_graph())
    good = labels(model.data, model.data.test[:1])[0]
    bad = list(model.judge([good, ("nobody", good[1], good[2]), good, (good[0], "r", "nobody")]))
    assert [j.chance is None for j in bad] == [False, True, False, True]
    assert bad[0] == bad[2] and (bad[1].head, bad[1].relation, bad[1].tail) == ("nobody", good[1], good[2])
    assert bad[1].note is not None and "no entity is called 'nobody'" in bad[1].note
    assert bad[3].note is not None and "no relation is called 'r': did you mean" in bad[3].note
    with pytest.raises(InputError, match="not a fact"):
        list(model.judge([("one", "two")]))


def test_given_negatives_are_what_it_learns_from() -> None:
    model = random_model(big_graph())
    made = make_negatives(model.mode_scorer(), model.data.valid, np.random.default_rng(5))
    judge = model.learn_judge(negatives=labels(model.data, made))
    assert (judge.right, judge.wrong) == (len(model.data.valid), len(made)) and judge.wrong != model.learn_judge().wrong
    assert isinstance(judge.classifier, Cases) and isinstance(model.learn_judge().classifier, Logistic)
    for n in (1, 3):
        with pytest.raises(
            InputError, match=f"too few wrong facts to learn from: the graph has the labels of {n}"
        ) as few:
            model.learn_judge(negatives=labels(model.data, np.concatenate([made[:n], made[:n]])))
    assert "give 10 different ones" in str(few.value) and "validation" not in str(few.value)


def test_of_many_given_negatives_it_keeps_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "CASES", 15)
    model = random_model(big_graph())
    made = make_negatives(model.mode_scorer(), model.data.valid, np.random.default_rng(5))
    judge = model.learn_judge(negatives=labels(model.data, made))
    assert (judge.right, judge.wrong) == (15, 15) and isinstance(judge.classifier, Cases)
    kept = judge.classifier.facts
    assert {tuple(fact) for fact in kept[:15].tolist()} <= known_facts(model.data)
    assert {tuple(fact) for fact in kept[15:].tolist()} <= {tuple(fact) for fact in made.tolist()}


def test_a_document_of_an_older_version_says_no_kind() -> None:
    model = random_model(big_graph())
    judge = model.learn_judge()
    document = judge.to_dict()
    assert document.pop("kind") == "logistic"
    again = Judge.from_dict(document, model.data.n_relations)
    assert again is not None and again.to_dict() == judge.to_dict()


def test_a_judge_by_cases_is_saved(tmp_path: Path) -> None:
    model = random_model(big_graph())
    facts = labels(model.data, model.data.test[:5])
    wrong = make_negatives(model.mode_scorer(), model.data.valid, np.random.default_rng(5))
    fitted = replace(model, learned_judge=Judge.learn(model.mode_scorer(), wrong))
    fitted.save(tmp_path / "cases")
    again = kgem.load(tmp_path / "cases")
    assert again.learned_judge is not None and isinstance(again.learned_judge.classifier, Cases)
    assert list(again.judge(facts)) == list(fitted.judge(facts)) != list(model.judge(facts))


def test_a_judge_is_saved_and_old_models_learn_one(tmp_path: Path) -> None:
    model = random_model(big_graph())
    facts = labels(model.data, model.data.test[:5])
    fitted = replace(model, learned_judge=Judge.learn(model.mode_scorer(), seed=model.config.seed))
    fitted.save(tmp_path / "new")
    model.save(tmp_path / "old")
    new, old = kgem.load(tmp_path / "new"), kgem.load(tmp_path / "old")
    assert new.learned_judge is not None and old.learned_judge is None
    for mode in ("auto", "mean"):
        assert list(new.judge(facts, mode)) == list(old.judge(facts, mode)) == list(fitted.judge(facts, mode))


def test_test_facts_teach_nothing() -> None:
    """Other test facts, none of them a wrong example, leave the judge as it is."""
    model = random_model(big_graph())
    fewer = replace(model, data=replace(model.data, test=model.data.test[:0]))
    made = {tuple(f) for f in make_negatives(fewer.mode_scorer(), fewer.data.valid, np.random.default_rng(1)).tolist()}
    harmless = np.array([f for f in model.data.test.tolist() if tuple(f) not in made], dtype=np.int32)
    wrong = np.array(sorted(made - {tuple(f) for f in harmless.tolist()}))
    one, other = (
        Judge.learn(replace(model, data=replace(model.data, test=test)).mode_scorer(), wrong)
        for test in (harmless[:0], harmless)
    )
    assert one is not None and other is not None
    np.testing.assert_array_equal(one.classifier.weights, other.classifier.weights)


def test_without_validation_there_is_no_judge() -> None:
    data = big_graph()
    model: Model = random_model(replace(data, valid=data.valid[:0]))
    with pytest.raises(InputError, match="too few validation facts to learn from: 0"):
        list(model.judge([("e1", "r0", "e2")]))


def test_what_speaks_against_a_fact() -> None:
    """Each person has one birthplace, a city; nobody is born in a person."""
    people, cities = [f"p{i:02}" for i in range(40)], [f"c{i}" for i in range(4)]
    rows = [(p, "born in", cities[i % 4]) for i, p in enumerate(people)]
    rows += [(p, "knows", people[(i + 1) % 40]) for i, p in enumerate(people)]
    frame = pl.DataFrame(rows, ["head", "relation", "tail"], orient="row")
    data = Dataset.from_frames(frame.head(-1), valid=frame.tail(1))
    model = random_model(replace(data, valid=data.train[:30]))
    second, stranger = model.judge([("p00", "born in", "c1"), ("p00", "born in", "p01")])
    assert second.against[0] == "born in has one tail for each head as a rule, and this head has c0"
    assert "p01 was never the tail of born in" in stranger.against
    assert any(" better tail" in sentence for sentence in (*second.against, *stranger.against))


def test_what_never_leads_to_itself_does_not_do_so_now() -> None:
    """Neighbours are like each other, and each is most like itself; a town may trade with itself."""
    towns = [f"t{i:02}" for i in range(40)]
    rows = [(a, "borders", towns[(i + 1) % 40]) for i, a in enumerate(towns)]
    rows += [(a, "trades with", towns[(i + i % 2) % 40]) for i, a in enumerate(towns)]  # half of them with themselves
    data = Dataset.load([*rows, ("t00", "borders", "t00")])
    model = random_model(replace(data, valid=data.train[:30]))
    asked = [
        ("t01", "borders", "t01"),
        ("t01", "trades with", "t01"),
        ("t00", "borders", "t00"),
        ("t01", "borders", "t05"),
    ]
    apart, trade, known, other = model.judge(asked, uncertainty=True)
    assert apart.chance <= 2 / 43 and apart.high <= 2 / 43  # one of 41 facts
    assert apart.against[0] == "1 of the 41 training facts of borders lead from an entity to itself"
    assert all("to itself" not in " ".join(each.against) for each in (trade, known, other))
    learned = model.learned_judge or model.learn_judge()
    assert trade.chance == learned.chances(model.mode_scorer(), data.ids(asked))[1]


def test_a_fitted_fact_with_bad_ranks_is_explained() -> None:
    """One town is where everybody lives, and itself lives in another: its vector serves its 60 facts as a tail."""
    rows = [(f"p{i:02}", "lives in", "hub") for i in range(60)]
    rows += [("hub", "lives in", "far"), *((f"p{i:02}", "knows", f"p{(i + 1) % 60:02}") for i in range(60))]
    frame = pl.DataFrame(rows, ["head", "relation", "tail"], orient="row")
    data = Dataset.from_frames(frame)
    model = random_model(replace(data, valid=data.train[:30]))
    (fact,) = data.ids([("hub", "lives in", "far")])
    told = {}
    for label, better in (("learned", 0), ("not learned", judging.UNLEARNED)):
        views = view_facts(model.mode_scorer(), fact[None], Known.training(data))
        views = replace(views, better=np.full((1, 2), better))
        court = judging._Court(model.learn_judge(), model.mode_scorer(), False, 2**28)
        told[label] = [list(court._excuse(views, 0, split)) for split in ("train", "test")]
    assert told["learned"] == [[], []] and told["not learned"][1] == []
    assert told["not learned"][0][0].startswith("the model was fitted to this fact and has not learned it")
    assert told["not learned"][0][1:] == ["hub has one vector for 1 facts as head and 60 as tail"]


def test_mistakes_by_frequency_have_frequent_answers() -> None:
    data = big_graph()
    asked = np.repeat(data.reciprocal(data.valid).astype(np.int64), 200, axis=0)
    drawn = {
        often: judging._draw_in_role(data, asked, np.random.default_rng(0), by_frequency=often)
        for often in (False, True)
    }
    facts = data.reciprocal(data.train).astype(np.int64)
    relation = int(np.bincount(asked[:, 1]).argmax())
    tails = facts[facts[:, 1] == relation][:, 2]
    wanted = {False: np.unique(tails), True: tails}
    for often, made in drawn.items():
        expected = np.bincount(wanted[often], minlength=data.n_entities) / len(wanted[often])
        answers = made[made[:, 1] == relation][:, 2]
        found = np.bincount(answers, minlength=data.n_entities) / len(answers)
        np.testing.assert_allclose(found, expected, atol=0.04)
        assert set(answers.tolist()) <= set(tails.tolist())
