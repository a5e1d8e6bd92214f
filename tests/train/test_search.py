"""The baseline: every trial is Algorithm 1 with one shared strength, and the best one is what comes out."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from driving import exhaust
from kgem.config import Config
from kgem.errors import ConfigError, Diverged, FitError
from kgem.evaluate.metrics import summarise
from kgem.evaluate.ranking import rank
from kgem.model.embeddings import Embeddings
from kgem.train import search as module
from kgem.train.phases import ThreePhases
from kgem.train.point_estimate import point_estimate
from kgem.train.search import Trial, search
from obvious import random_graph

DATA = random_graph(n_entities=30, n_relations=3, n_facts=200)


def config(**pretrain: Any) -> Config:
    return Config.model_validate({"model": {"dim": 4}, "pretrain": {"epochs": 3, **pretrain}, "seed": 3})


def validate(model: Embeddings) -> float:
    return summarise(rank(model, DATA.reciprocal(DATA.valid), DATA.filter_index).of("pessimistic")).mrr


def test_trials_differ_in_strength_and_the_best_one_wins() -> None:
    heard: list[Trial] = []
    found = search(DATA, config(), validate, trials=4, strengths=(0.01, 0.5), on_trial=heard.append)
    assert list(found.trials) == heard and [trial.number for trial in heard] == [1, 2, 3, 4]
    assert len({trial.strength for trial in heard}) == 4 and all(0.01 <= t.strength <= 0.5 for t in heard)
    assert {trial.learning_rate for trial in heard} == {config().pretrain.learning_rate}
    assert found.best.mrr == max(trial.mrr or 0 for trial in heard) == pytest.approx(validate(found.embeddings))
    assert found.epochs == sum(trial.epochs for trial in heard) == 12 and found.seconds > 0
    assert {trial.outcome for trial in heard} == {"done"} and heard[0].to_dict()["number"] == 1


def test_a_trial_is_pre_training_with_that_strength() -> None:
    found = search(DATA, config(), validate, trials=2)
    phases = ThreePhases(DATA, config(strength=found.best.strength))
    state, strengths = phases.pretraining, phases.rule_strengths()
    exhaust(point_estimate(state, phases.objective, strengths, phases.config.pretrain, validate))
    for ours, theirs in zip(found.embeddings.tables(), state.best.tables(), strict=True):
        assert ours.equal(theirs)


def test_the_same_seed_asks_the_same_and_the_rate_can_be_searched_too() -> None:
    chosen = [
        [
            (t.strength, t.learning_rate)
            for t in search(DATA, config(epochs=1), validate, trials=3, rates=(0.1, 0.2)).trials
        ]
        for _ in range(2)
    ]
    assert chosen[0] == chosen[1] and len({rate for _, rate in chosen[0]}) == 3
    assert all(0.1 <= rate <= 0.2 for _, rate in chosen[0])


def test_trials_that_are_behind_are_pruned_only_if_asked() -> None:
    values = iter(range(1000, 0, -1))  # every epoch looks worse than all before

    def worse(_: Embeddings) -> float:
        return float(next(values))

    pruned = search(DATA, config(epochs=4, patience=9), worse, trials=8, prune=True).trials
    assert {trial.outcome for trial in pruned} == {"done", "pruned"} and min(t.epochs for t in pruned) < 4
    kept = search(DATA, config(epochs=4, patience=9), worse, trials=8).trials
    assert {(trial.outcome, trial.epochs) for trial in kept} == {("done", 4)}


def test_a_failed_trial_is_told_and_the_search_goes_on() -> None:
    calls = iter([True, False, False])

    def sometimes(model: Embeddings) -> float:
        if next(calls):
            raise Diverged("no number")
        return 0.5

    found = search(DATA, config(epochs=1), sometimes, trials=3)
    assert [trial.outcome for trial in found.trials] == ["failed", "done", "done"]
    assert found.trials[0].mrr is None and found.best.number == 2

    def never(model: Embeddings) -> float:
        raise Diverged("no number")

    with pytest.raises(FitError, match="no trial"):
        search(DATA, config(epochs=1), never, trials=2)


def test_wrong_settings_and_a_missing_optuna_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="0 trials"):
        search(DATA, config(), validate, trials=0)
    with pytest.raises(ConfigError, match="strengths between"):
        search(DATA, config(), validate, strengths=(1.0, 0.1))
    with pytest.raises(ConfigError, match="rates between"):
        search(DATA, config(), validate, rates=(0.0, 0.1))
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match=r"kgem\[search\]"):
        module.search(DATA, config(), validate, trials=1)
