"""The model in hand: modes, samples, strengths by label, evaluation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from kgem.answer import model as module
from kgem.answer.model import affordable_samples
from kgem.answer.modes import MODES
from kgem.errors import DatasetError, InputError, UnknownLabel
from kgem.evaluate.averaging import AverageScorer, BlendScorer
from kgem.evaluate.blocks import TableScorer
from kgem.evaluate.validation import filtered_mrr, pick_facts
from kgem.model.posterior import Posterior
from obvious import random_graph
from small_models import random_model


def test_auto_is_the_recorded_mode() -> None:
    model = random_model()
    for mode in MODES:
        chosen = replace(model, mode=mode)
        assert chosen.resolve("auto") == mode and chosen.temperature() == model.temperatures[mode]
        assert chosen.predict("e1", "r1") == model.predict("e1", "r1", mode=mode)
        assert chosen.evaluate() == model.evaluate(mode=mode)
    assert isinstance(model.scorer("bayes"), AverageScorer)
    for mode, tables in (("point", model.point), ("mean", model.mean)):
        scorer = model.scorer(mode)
        assert isinstance(scorer, TableScorer) and scorer.embeddings is tables
    assert isinstance(model.scorer("blend"), BlendScorer) and model.tables("blend") is model.point
    assert torch.equal(model.tables("bayes").entities, model.posterior.entities.mean)
    with pytest.raises(InputError, match="'best'"):
        model.scorer("best")


def test_samples_are_drawn_once_and_by_the_seed() -> None:
    model = random_model(n_samples=400)
    assert model.samples is model.samples and len(model.samples) == 400
    again = replace(model)
    assert all(torch.equal(a.entities, b.entities) for a, b in zip(model.samples, again.samples, strict=True))
    other = replace(model, config=model.config.model_copy(update={"seed": 9}))
    assert not torch.equal(other.samples[0].entities, model.samples[0].entities)
    drawn = torch.stack([s.entities for s in model.samples])
    gap = (drawn.mean(0) - model.posterior.entities.mean) / (0.3 / 20)  # in standard errors
    assert 0.8 < float(gap.std()) < 1.2 and abs(float(drawn.std(0).mean()) - 0.3) < 0.01


def test_large_tables_get_fewer_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    q = Posterior.around(torch.zeros(100, 8), torch.zeros(28, 8))  # 4 KiB
    assert affordable_samples(q) == 20
    monkeypatch.setattr(module, "SAMPLE_BYTES", 10 * 4096)
    assert affordable_samples(q) == 10
    monkeypatch.setattr(module, "SAMPLE_BYTES", 1)
    assert affordable_samples(q) == 4


@pytest.mark.parametrize("reciprocal", [True, False])
def test_strengths_by_label(reciprocal: bool) -> None:
    model = random_model(reciprocal=reciprocal)
    strengths, n = model.strengths, model.data.n_relations
    assert strengths.entities["e7"] == float(model.learned.entities[7])
    assert strengths.relations["r2"] == float(model.learned.relations[2])
    assert strengths.reciprocals["r2"] == float(model.learned.relations[2 + n if reciprocal else 2])
    assert len(strengths.relations) == n and list(strengths.relations) == list(model.data.relations)
    assert dict(strengths.entities.items())["e3"] == strengths.entities["e3"]
    assert "e3" in strengths.entities and "nobody" not in strengths.entities
    with pytest.raises(UnknownLabel, match="did you mean"):
        strengths.entities["E7"]


def test_evaluation_is_of_both_sides_and_filtered() -> None:
    model = random_model()
    data, known = model.data, model.data.filter_index
    found = model.evaluate("valid", mode="mean")
    ranks = []
    for h, r, t in data.reciprocal(data.valid).tolist():
        scores = model.mean.scores(torch.tensor([h]), torch.tensor([r]))[0]
        others = set(known.tails_of(int(known.find([h], [r])[0])).tolist()) - {t}
        rivals = [e for e in range(data.n_entities) if e not in others]
        ranks.append(int((scores[rivals] >= scores[t]).sum()))
    assert found.overall.n == 2 * len(data.valid)
    np.testing.assert_allclose(found.mrr, np.mean(1 / np.array(ranks)), rtol=1e-9)
    heard: list[tuple[int, int]] = []
    model.evaluate(progress=lambda *now: heard.append(now))
    assert heard and heard[-1][0] == heard[-1][1]


def test_raw_ranks_leave_nothing_out_and_memory_changes_nothing() -> None:
    model = random_model()
    data = model.data
    facts = torch.from_numpy(data.reciprocal(data.valid).astype(np.int64))
    scores = model.mean.scores(facts[:, 0], facts[:, 1])
    ranks = (scores >= scores.gather(1, facts[:, 2:])).sum(dim=1).numpy()
    raw = model.evaluate("valid", mode="mean", filtered=False)
    np.testing.assert_allclose(raw.mrr, np.mean(1 / ranks), rtol=1e-9)
    filtered = model.evaluate("valid", mode="mean")
    assert raw.overall.mean_rank > filtered.overall.mean_rank
    assert model.evaluate("valid", mode="mean", memory=10_000) == filtered


def test_a_split_without_facts_cannot_be_evaluated() -> None:
    data = random_graph()
    model = random_model(replace(data, test=data.test[:0]))
    with pytest.raises(InputError, match="no facts in test"):
        model.evaluate()
    with pytest.raises(DatasetError, match="no split is called"):
        model.evaluate("exam")


def test_it_says_what_it_is() -> None:
    assert repr(random_model()) == "<Model complex, K=4, of random: mode point>"


def test_evaluation_of_some_questions_is_that_of_these_against_all_entities() -> None:
    model = random_model()
    data = model.data
    asked = pick_facts(data.reciprocal(data.test), 7, model.config.seed)
    found = model.evaluate("test", "point", most=7)
    assert found.overall.n == 7 == len(asked)
    assert found.mrr == filtered_mrr(model.point, asked, data)
    assert model.evaluate("test", "point", most=10**6) == model.evaluate("test", "point")


def test_an_evaluation_of_some_questions_says_so() -> None:
    model = random_model()
    some, every = model.evaluate("test", "point", most=7), model.evaluate("test", "point")
    n = 2 * len(model.data.test)
    assert (some.is_sample, every.is_sample) == (True, False) and every.overall.n == every.available == n
    assert f"7 of {n:,} questions, at random" in repr(some) and "random" not in repr(every)
    assert some._repr_html_().count("at random") == 1 and some.to_dict()["available"] == n
