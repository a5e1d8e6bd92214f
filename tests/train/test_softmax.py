"""Which softmax a fit has, and what all phases do with a sampled one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from driving import exhaust
from kgem.config import Config, SharedConfig
from kgem.errors import ConfigError
from kgem.model.objective import MarginObjective, SoftmaxObjective
from kgem.model.sampled import SampledObjective
from kgem.train.memory import fit_memory
from kgem.train.phases import ThreePhases
from kgem.train.softmax import sampled_settings, say_softmax
from obvious import random_graph

DATA = random_graph()
SHORT = {"epochs": 2, "batch_size": 20, "learning_rate": 0.2}


def config(**train: Any) -> Config:
    return Config.model_validate(
        {
            "model": {"dim": 4, "init_scale": 0.1},
            "pretrain": SHORT | {"candidates": [1.0]},
            "em": SHORT | {"beta": 0.3},
            "retrain": SHORT | {"candidates": [[1.0, 0.0]]},
            "companions": SHORT,
            "distil": SHORT | {"candidates": [[1.0, 0.0]]},
            "train": {"candidates": 8, **train},
        }
    )


def fitted(given: Config) -> ThreePhases:
    fit = ThreePhases(DATA, given)
    exhaust(fit.epochs())
    return fit


def test_auto_is_exact_while_that_is_affordable(monkeypatch: pytest.MonkeyPatch) -> None:
    auto = config()
    assert isinstance(ThreePhases(DATA, auto).objective, SoftmaxObjective)
    assert sampled_settings(auto, DATA, 8) is auto
    assert say_softmax(auto, DATA, 8).startswith("exact softmax over all entities: an exact epoch has ")
    monkeypatch.setattr("kgem.config.AFFORDABLE", 1000)
    assert isinstance(ThreePhases(DATA, auto).objective, SampledObjective)
    assert say_softmax(auto, DATA, 8).startswith("sampled softmax, 8 candidates a step: ")
    assert isinstance(ThreePhases(DATA, config(softmax="exact")).objective, SoftmaxObjective)


RACES = {"candidates": [1.0, 8.0], "extensions": 0, "trial_epochs": 1, "final_epochs": 2}


def racing(**more: Any) -> Config:
    """Two candidates of pre-training with a heat of one epoch and a final of two, and four epochs for the winner."""
    settings = config(races="sampled").model_dump()
    settings["pretrain"] |= RACES | {"epochs": 4}
    settings["retrain"] |= {"candidates": [[1.0, 0.0], [3.0, 0.0]], "trial_epochs": 1, "final_epochs": 1}
    return Config.model_validate(settings | more)


def objectives_of(given: Config, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Which objective each epoch of the phases had, by the steps that it made."""
    asked: list[str] = []
    for kind in (SoftmaxObjective, SampledObjective, MarginObjective):
        plain = kind.batches

        def batches(self: Any, *args: Any, plain: Any = plain, name: str = kind.__name__) -> Any:
            asked.append(name)
            return plain(self, *args)

        monkeypatch.setattr(kind, "batches", batches)
    fit, seen = ThreePhases(DATA, given, lambda _: 0.5), []
    for phase, record in fit.epochs("retrain"):
        assert fit.is_sampling == (asked[-1] == "SampledObjective")
        seen.append((f"{phase} {record.epoch}", asked[-1]))
    return seen


def test_races_are_sampled_until_somebody_has_won(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = objectives_of(racing(), monkeypatch)
    sampled = [epoch for epoch, kind in seen if kind == "SampledObjective"]
    exact = [epoch for epoch, kind in seen if kind == "SoftmaxObjective"]
    assert sampled == ["pretrain 1", "pretrain 1", "pretrain 2", "pretrain 2", "retrain 1", "retrain 1"]
    assert exact == ["pretrain 3", "pretrain 4", "em 1", "em 2", "retrain 2"]


@pytest.mark.parametrize(
    "why",
    [
        {"train": {"races": "exact"}},
        {"train": {"races": "auto", "candidates": 2048}},
        {"pretrain": RACES | {"epochs": 4, "optimizer": "adam"}},
        {"pretrain": RACES | {"epochs": 4, "loss": "margin"}, "retrain": SHORT | {"candidates": [[1.0, 0.0]]}},
        {"run": {"time_budget": 1000.0}},
    ],
    ids=lambda why: ", ".join(why),
)
def test_races_are_exact_where_they_should_be(why: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert {kind for _, kind in objectives_of(racing(**why), monkeypatch)} <= {"SoftmaxObjective", "MarginObjective"}


def test_a_winner_has_all_of_its_patience_for_the_exact_softmax() -> None:
    """Nobody gains after the first epoch: with what the race had left of it, the winner would stop at once."""
    given = racing(pretrain=RACES | {"epochs": 20, "final_epochs": 4, "patience": 3, "batch_size": 20})
    fit = ThreePhases(DATA, given, lambda _: 0.5)
    exhaust(fit.epochs("pretrain"))
    assert fit.pretraining.epoch == 4 + 3
    assert say_softmax(given, DATA, 8).startswith("exact softmax over all entities, in races sampled with 8 candidates")


def test_sampling_of_races_depends_on_the_numbers_of_entities_and_questions() -> None:
    auto = SharedConfig()
    assert auto.samples_races(150_000, 14_541, 200)  # FB15k-237
    assert not auto.samples_races(11_000, 2_034, 100)  # CoDEx-S
    assert not auto.samples_races(112_000, 40_559, 200)  # WN18RR: few questions for each entity
    assert not auto.samples_races(647_028, 294_230, 100)  # all of it is sampled
    assert not SharedConfig(races="exact").samples_races(150_000, 14_541, 200)


def test_sizes_at_which_auto_changes() -> None:
    """Questions, entities and numbers in a row of benchmarks at K = 100, and of a package registry at K = 50."""
    auto = SharedConfig()
    assert not auto.is_sampled(150_000, 14_541, 200)  # FB15k-237
    assert not auto.is_sampled(110_000, 40_943, 200)  # WN18RR
    assert auto.is_sampled(647_028, 294_230, 100)
    assert not auto.accumulates_rows(294_230, 100)
    assert auto.accumulates_rows(1_000_000, 100)


@pytest.mark.parametrize(("accumulators", "columns"), [("row", 1), ("number", 8), ("auto", 8)])
def test_accumulators_are_per_row_or_per_number(accumulators: str, columns: int) -> None:
    fit = ThreePhases(DATA, config(softmax="sampled", accumulators=accumulators))
    assert fit.pretraining.optimizer.state()["0.sum"].shape == (DATA.n_entities, columns)
    assert fit.config.pretrain.optimizer == "adagrad"  # the user's settings stay as they are


def test_adam_and_a_sampled_softmax_are_refused_together() -> None:
    given = config(softmax="sampled").model_copy(update={"em": config().em.model_copy(update={"optimizer": "adam"})})
    with pytest.raises(ConfigError, match="Adam") as error:
        _ = ThreePhases(DATA, given).settings
    assert error.value.where == "em.optimizer" and "train.softmax = exact" in error.value.remedy


def test_eq_17_holds_for_all_rows_after_an_epoch_of_em_and_symbols_without_facts_are_the_prior() -> None:
    fit = ThreePhases(DATA, config(softmax="sampled"))
    exhaust(fit.epochs("pretrain"))
    next(fit.epochs("em"))
    assert fit.em is not None and isinstance(fit.objective, SampledObjective)
    seen = torch.ones(DATA.n_entities, dtype=torch.bool).index_fill(0, fit.objective.unseen[0], False)
    q = fit.em.posterior[0]
    optimum = fit.prior.optimal_inverse_strengths(fit.prior.expected_norm(q.mean, q.log_std), 8)
    torch.testing.assert_close(fit.em.strengths.entities, optimum.reciprocal())
    exhaust(fit.epochs("em"))
    best, log_std = fit.em.best.entities[~seen], fit.em.best_log_stds.entities[~seen]
    assert len(best) == 2 and not best.any()
    norms = fit.prior.expected_norm(best, log_std)
    torch.testing.assert_close(fit.prior.optimal_inverse_strengths(norms, 8), fit.em.strengths.entities[~seen] ** -1)
    assert fit.em.best.entities[seen].any(dim=1).all()


def test_the_bound_is_that_of_an_exact_pass() -> None:
    """Steps underestimate log Z, so that their mean is no bound."""
    fit = ThreePhases(DATA, config(softmax="sampled", candidates=3))
    records = [record for phase, record in fit.epochs("em") if phase == "em"]
    expected = [-record.extra["log_likelihood"] / fit.objective.n_facts for record in records]
    assert all(exact != record.loss for exact, record in zip(expected, records, strict=True))
    assert expected == pytest.approx([record.loss for record in records], rel=0.3)


def test_with_all_entities_as_candidates_the_phases_learn_as_with_the_exact_softmax() -> None:
    sampled = fitted(config(softmax="sampled", candidates=DATA.n_entities, accumulators="number"))
    same = {"em": sampled.settings.em, "companions": sampled.settings.companions}
    exact = fitted(config(softmax="exact").model_copy(update=same))
    items = torch.arange(exact.objective.n_items)
    losses = [exact.softmax.exact(fit.result().point, fit.rule_strengths(), items)[0] for fit in (sampled, exact)]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
    assert losses[1] < 0.9 * torch.tensor(DATA.n_entities).log()


def test_exact_epochs_come_last() -> None:
    fit = fitted(config(softmax="sampled", exact_epochs=3))
    assert fit.epochs_spent["distil"] == 2 + 3
    assert {"event": "exact", "phase": "distil", "epoch": 2} in fit.events


@pytest.mark.parametrize(("n_entities", "n_facts", "dim", "limit"), [(10**6, 10**7, 50, 8e9)])
def test_memory_of_a_million_entities(n_entities: int, n_facts: int, dim: int, limit: float) -> None:
    memory = fit_memory(Config(), n_entities, n_facts, n_facts, (2 * dim, 2 * dim), 20)
    assert memory.largest == "retrain"
    assert memory.peak < limit
    assert memory.peak > 13 * 4 * n_entities * 2 * dim


def test_memory_of_five_million_entities_without_races() -> None:
    alone = config().model_copy(update={"dtype": "float32"})
    memory = fit_memory(alone, 5 * 10**6, 2 * 10**7, 2 * 10**7, (128, 128), 20)
    assert memory.set_bytes * memory.sets["em"] + memory.other_bytes < 24e9
    races = fit_memory(Config(), 5 * 10**6, 2 * 10**7, 2 * 10**7, (128, 128), 20)
    assert races.peak > memory.peak


def test_memory_of_an_exact_fit_is_what_its_states_hold() -> None:
    """Beyond what a checkpoint writes: start, gradients, EM's sample, what to fall back on, the teacher's tables."""
    given = config(softmax="exact").model_copy(update={"dtype": "float32"})
    fit = fitted(given)
    width, rows = fit.result().point.entities.shape[1], len(fit.result().point.relations)
    memory = fit_memory(given, DATA.n_entities, len(DATA.train), len(DATA.query_index), (width, width), rows)
    tables = [t for t in fit.tensors(copies=False).values() if t.ndim == 2]
    held = sum(t.numel() * t.element_size() for t in tables) / memory.set_bytes
    states = [fit.pretraining, fit.race.state, fit.students.state]  # each may fall back on tables and accumulators
    assert fit.companions is not None and len(fit.companions.trained) == 2
    teacher, start, gradients, sample = 2 + 2, 1, 1, 1
    assert memory.sets["distil"] == held + 2 * len(states) + teacher + start + gradients + sample
    assert memory.largest == "distil"
    races = fit_memory(Config(), 1000, 5000, 3000, (width, width), rows)
    for phase in ("retrain", "distil"):
        assert races.sets[phase] == memory.sets[phase] + 8  # two more point estimates may go on
