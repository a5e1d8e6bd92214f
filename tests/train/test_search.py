"""The baseline: every trial is Algorithm 1 with one shared strength, and the best one is what comes out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from driving import exhaust
from kgem.config import Config, RunConfig
from kgem.errors import ConfigError, Diverged
from kgem.evaluate.metrics import summarise
from kgem.evaluate.ranking import rank
from kgem.model.embeddings import Embeddings
from kgem.train.phases import ThreePhases
from kgem.train.point_estimate import point_estimate
from kgem.train.search import Trial, search, train_in_memory
from obvious import random_graph

DATA = random_graph(n_entities=30, n_relations=3, n_facts=200)


def config(**pretrain: Any) -> Config:
    return Config.model_validate({"model": {"dim": 4}, "pretrain": {"epochs": 3, **pretrain}, "seed": 3})


def validate(model: Embeddings) -> float:
    return summarise(rank(model, DATA.reciprocal(DATA.valid), DATA.filter_index).of("pessimistic")).mrr


def searched(
    settings: Config, measure: Callable[[Embeddings], float] = validate, **more: Any
) -> list[tuple[Trial, Embeddings]]:
    return list(search(settings, partial(train_in_memory, DATA, measure), **more))


def trials_of(settings: Config, measure: Callable[[Embeddings], float] = validate, **more: Any) -> list[Trial]:
    return [trial for trial, _ in searched(settings, measure, **more)]


def test_trials_differ_in_strength_and_have_the_tables_that_were_measured() -> None:
    found = searched(config(), trials=4, strengths=(0.01, 0.5))
    trials = [trial for trial, _ in found]
    assert [trial.number for trial in trials] == [1, 2, 3, 4]
    assert len({trial.strength for trial in trials}) == 4 and all(0.01 <= t.strength <= 0.5 for t in trials)
    assert {trial.learning_rate for trial in trials} == {config().pretrain.learning_rate}
    for trial, tables in found:
        assert trial.mrr == pytest.approx(validate(tables))
        assert trial.epochs == 3 and trial.seconds > 0
    assert {trial.outcome for trial in trials} == {"done"} and trials[0].to_dict()["number"] == 1


def test_a_trial_is_pre_training_with_that_strength() -> None:
    trial, found = searched(config(), trials=2)[-1]
    phases = ThreePhases(DATA, config(strength=trial.strength))
    state, strengths = phases.pretraining, phases.rule_strengths()
    exhaust(point_estimate(state, phases.objective, strengths, phases.config.pretrain, validate))
    tables = state.best
    for ours, theirs in zip(found.tables(), tables.tables(), strict=True):
        assert ours.equal(theirs)


def test_the_same_seed_asks_the_same_and_the_rate_can_be_searched_too() -> None:
    chosen = [
        [(t.strength, t.learning_rate) for t in trials_of(config(epochs=1), trials=3, rates=(0.1, 0.2))]
        for _ in range(2)
    ]
    assert chosen[0] == chosen[1] and len({rate for _, rate in chosen[0]}) == 3
    assert all(0.1 <= rate <= 0.2 for _, rate in chosen[0])


def test_a_search_goes_on_from_the_trials_that_are_done() -> None:
    """As many as Optuna draws at random, and more, which depend on how the first ones ended."""
    whole = trials_of(config(epochs=1), trials=13)
    rest = trials_of(config(epochs=1), trials=13, done=whole[:11])
    assert [(t.number, t.strength, t.mrr) for t in rest] == [(t.number, t.strength, t.mrr) for t in whole[11:]]
    assert trials_of(config(epochs=1), trials=2, done=whole[:2]) == []
    with pytest.raises(ConfigError, match="trial 1 is not of this search"):
        trials_of(config(epochs=1), trials=3, strengths=(0.5, 1.0), done=whole[:1])


def test_trials_that_are_behind_are_pruned_only_if_asked() -> None:
    values = iter(range(1000, 0, -1))  # every epoch looks worse than all before

    def worse(_: Embeddings) -> float:
        return float(next(values))

    pruned = trials_of(config(epochs=4, patience=9), worse, trials=8, prune=True)
    assert {trial.outcome for trial in pruned} == {"done", "pruned"} and min(t.epochs for t in pruned) < 4
    kept = trials_of(config(epochs=4, patience=9), worse, trials=8)
    assert {(trial.outcome, trial.epochs) for trial in kept} == {("done", 4)}


def test_a_failed_trial_is_told_and_the_search_goes_on() -> None:
    calls = iter([True, False, False])

    def sometimes(model: Embeddings) -> float:
        if next(calls):
            raise Diverged("no number")
        return 0.5

    found = trials_of(config(epochs=1), sometimes, trials=3)
    assert [trial.outcome for trial in found] == ["failed", "done", "done"]
    assert [trial.mrr for trial in found] == [None, 0.5, 0.5]


def test_wrong_settings_and_a_missing_optuna_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="0 trials"):
        searched(config(), trials=0)
    with pytest.raises(ConfigError, match="strengths between"):
        searched(config(), strengths=(1.0, 0.1))
    with pytest.raises(ConfigError, match="rates between"):
        searched(config(), rates=(0.0, 0.1))
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match=r"kgem\[search\]"):
        searched(config(), trials=1)


def test_trials_have_the_threads_of_the_settings() -> None:
    before, seen = torch.get_num_threads(), set()

    def measure(model: Embeddings) -> float:
        seen.add(torch.get_num_threads())
        return validate(model)

    chosen = config(epochs=1)
    trials_of(chosen.model_copy(update={"run": RunConfig(threads=before + 1)}), measure, trials=1)
    assert seen == {before + 1} and torch.get_num_threads() == before
