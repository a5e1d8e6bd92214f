"""The calls of the library, from a graph to a model: settings, splits, validation, the choice of the mode."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor

import kgem
from driving import complete
from kgem.answer import judge, proposals
from kgem.answer.modes import MODES
from kgem.config import Config
from kgem.errors import ConfigError, DatasetError
from kgem.evaluate import validation as validating
from kgem.evaluate.blocks import TableScorer
from kgem.evaluate.metrics import summarise
from kgem.evaluate.ranking import rank
from kgem.evaluate.temperature import Temperature, fit_temperatures
from kgem.evaluate.validation import make_validator
from kgem.runs import fitting, mode_choice
from kgem.runs.configure import configure
from kgem.runs.fitting import Prepared, finish, prepare
from kgem.runs.mode_choice import choose_mode
from kgem.runs.run import Run
from kgem.train.phases import FitResult
from obvious import random_graph
from small_models import random_model

QUICK: dict[str, Any] = {
    "pretrain": {"epochs": 3},
    "em": {"epochs": 2},
    "retrain": {"epochs": 2, "trial_epochs": 1},
    "companions": {"epochs": 1, "mixes": ((1.0, 0.3),)},
    "distil": {"epochs": 2, "candidates": ((1.0, 0.0),)},
}


def test_importing_kgem_imports_nothing_heavy() -> None:
    heavy = "{'torch', 'numpy', 'polars', 'pydantic'} & set(sys.modules)"
    code = f"import sys, kgem; sys.exit(str({heavy}) if {heavy} else 0)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_facade_has_what_it_names() -> None:
    assert all(getattr(kgem, name) is not None for name in kgem.__all__)
    assert dir(kgem) == sorted(kgem.__all__), "the public names and nothing else"
    assert kgem.errors.KgemError is kgem.KgemError and kgem.__version__
    with pytest.raises(AttributeError, match="has no attribute 'reproduce'"):
        kgem.reproduce  # noqa: B018


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        (
            "fit",
            [
                "data",
                "model",
                "dim",
                "seed",
                "threads",
                "time_budget",
                "valid",
                "test",
                "out",
                "force",
                "config",
                "progress",
                "tensorboard",
                "settings",
            ],
        ),
        ("update", ["model", "facts", "remove", "threads", "progress", "reading", "settings"]),
        ("load", ["folder", "device"]),
    ],
)
def test_the_calls_are_functions_that_show_their_parameters(name: str, parameters: list[str]) -> None:
    assert inspect.isfunction(getattr(kgem, name))
    assert list(inspect.signature(getattr(kgem, name)).parameters) == parameters


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("dims", "dim"),
        ("Dim", "dim"),
        ("k", "dim"),
        ("score", "model"),
        ("random_state", "seed"),
        ("beta", "em.beta"),
        (
            "batch_size",
            "pretrain.batch_size, em.batch_size, retrain.batch_size, companions.batch_size, distil.batch_size",
        ),
    ],
)
def test_an_unknown_name_is_answered_with_what_may_have_been_meant(given: str, meant: str) -> None:
    with pytest.raises(ConfigError) as caught:
        kgem.fit(random_graph(), **{given: 16})
    assert caught.value.what == f"there is no setting {given!r}" and caught.value.remedy == f"did you mean {meant}?"
    with pytest.raises(ConfigError, match="did you mean threads"):
        kgem.update(random_model(), [("e1", "r1", "e2"), ("new", "r1", "e2")], thread=1)


def test_a_run_folder_is_one_of_the_command_line_and_gives_the_same_model(tmp_path: Path) -> None:
    heard: list[tuple[str, int, float]] = []
    data, folder = random_graph(), tmp_path / "run"
    made = kgem.fit(
        data, dim=2, threads=1, out=folder, progress=lambda p, r: heard.append((p, r.epoch, r.loss)), **QUICK
    )
    assert made.config.run.threads == 1 and (folder / "log.jsonl").read_text().count("\n") == len(heard) > 8
    with Run.open(folder) as run:
        assert run.model() is not None
    again, told = kgem.load(folder), []
    plain = kgem.fit(data, dim=2, threads=1, progress=lambda p, r: told.append((p, r.epoch, r.loss)), **QUICK)
    assert torch.equal(again.point.entities, plain.point.entities) and told == heard
    with pytest.raises(kgem.KgemError, match="force"):
        kgem.fit(data, out=folder)
    with pytest.raises(ConfigError, match="TensorBoard"):
        kgem.fit(data, out=tmp_path / "other", tensorboard=tmp_path)
    assert not (tmp_path / "other").exists()


def test_tuples_in_a_model_out() -> None:
    facts = [(f"e{i}", f"r{j}", f"e{(i + j) % 12}") for i in range(12) for j in range(3)]
    model = kgem.fit(iter(facts), dim=2, time_budget="1m", **QUICK)
    assert model.data.n_entities == 12 and model.config.run.time_budget == 60
    assert 0 < model.evaluate().mrr <= 1 and model.evaluate().hits_at_1 <= model.evaluate().hits_at_3
    more = kgem.update(model, [("e1", "r1", "new")], em={"epochs": 1}, retrain={"epochs": 1}, distil={"epochs": 1})
    assert "new" in more.data.entities


def test_threads_hold_in_the_library_too_and_are_given_back() -> None:
    before, seen = torch.get_num_threads(), []
    more = {"run.threads": before + 1, **QUICK}
    model = kgem.fit(random_graph(), dim=2, progress=lambda *_: seen.append(torch.get_num_threads()), **more)
    assert set(seen) == {before + 1} and torch.get_num_threads() == before
    assert model.config.run.threads == before + 1


def test_a_model_of_the_library_knows_as_much_as_one_of_the_command_line(tmp_path: Path) -> None:
    graph, config = random_graph(), configure(None, {"model.dim": 2, **QUICK})
    with Run.create(tmp_path / "run", prepare(graph), config) as run:
        on_disk = complete(run)
    in_memory = kgem.fit(graph, config=config)
    assert in_memory.metrics == on_disk.metrics and set(in_memory.metrics) == {"valid", "test"}
    different = {name for name in on_disk.provenance if on_disk.provenance[name] != in_memory.provenance[name]}
    assert on_disk.provenance.keys() == in_memory.provenance.keys() and different <= {"seconds"}


def test_a_graph_becomes_a_model_in_all_phases() -> None:
    heard: list[tuple[str, int]] = []
    data = random_graph()
    model = kgem.fit(data, model="distmult", dim=4, seed=3, progress=lambda p, r: heard.append((p, r.epoch)), **QUICK)
    assert list(dict.fromkeys(phase for phase, _ in heard)) == ["pretrain", "em", "retrain", "companions", "distil"]
    assert (model.config.model.score, model.config.model.dim, model.config.seed) == ("distmult", 4, 3)
    assert model.config.em.epochs == 2 and model.data is data and model.provenance["split"] is None
    assert model.provenance["epochs"]["em"] == model.provenance["epochs"]["distil"] == 2
    assert model.provenance["seconds"] > 0
    assert set(model.validation) == set(model.temperatures) == set(MODES)
    single = max(("point", "mean"), key=lambda mode: model.validation[mode])
    best = max(model.validation, key=lambda mode: model.validation[mode])
    assert model.mode in (single, best) and model.mode == choose_mode(model).mode
    assert 0 < model.evaluate("test").mrr <= 1
    again = kgem.fit(data, model="distmult", dim=4, seed=3, **QUICK)
    assert torch.equal(again.point.entities, model.point.entities) and again.validation == model.validation
    assert again.predict("e1", "r1", mode="bayes") == model.predict("e1", "r1", mode="bayes")


def test_every_kind_of_graph_will_do(tmp_path: Path) -> None:
    data = random_graph()
    frame = pl.concat([data.frame(split) for split in ("train", "valid", "test")])
    frame.write_csv(tmp_path / "graph.tsv", separator="\t", include_header=False)
    models = [
        kgem.fit(source, dim=2, **QUICK) for source in (frame, tmp_path / "graph.tsv", str(tmp_path / "graph.tsv"))
    ]
    for model in models:
        made = model.provenance["split"]
        assert made["seed"] == 0 and made["got"] == {s: len(model.data.split(s)) for s in ("train", "valid", "test")}
        assert len(model.data.valid) and len(model.data.test)
        assert model.data.content_hash == models[0].data.content_hash
    with pytest.raises(DatasetError, match="neither a file"):
        kgem.fit(tmp_path / "nothing.tsv")


def test_only_what_has_no_validation_is_split() -> None:
    data = random_graph()
    assert prepare(data).data is data
    only_test = replace(data, valid=data.valid[:0])
    made = prepare(only_test, seed=5, valid=12)
    assert np.array_equal(made.data.test, data.test) and len(made.data.valid) == 12
    pooled = np.concatenate([made.data.train, made.data.valid])
    assert sorted(pooled.tolist()) == sorted(data.train.tolist())
    assert made.data.n_entities == data.n_entities
    only_train = replace(only_test, test=data.test[:0])
    assert not len(prepare(only_train, test=0).data.test)
    assert prepare(only_train, valid=0).split is None


def test_without_validation_the_point_model_is_used() -> None:
    data = random_graph()
    bare = replace(data, valid=data.valid[:0], test=data.test[:0])
    model = kgem.fit(bare, dim=2, valid=0, **QUICK)
    assert model.mode == "point" and not model.validation and model.temperature() == Temperature()
    assert model.predict("e1", "r1", mode="bayes")[0].low is not None
    assert make_validator(bare) is None


def test_figures_of_all_modes_on_validation() -> None:
    model = random_model()
    facts = model.data.reciprocal(model.data.valid)
    choice = choose_mode(model)
    validation, temperatures = choice.validation, choice.temperatures
    for mode in MODES:
        scorer = model.scorer(mode)
        ranks = rank(scorer, facts, model.data.filter_index).of("pessimistic")
        assert validation[mode] == pytest.approx(summarise(ranks).mrr, rel=1e-12)
        wanted = fit_temperatures(scorer, facts, model.data.filter_index, model.data.query_index)
        assert astuple(temperatures[mode])[:4] == pytest.approx(astuple(wanted)[:4], rel=1e-6)
        assert temperatures[mode].relations == pytest.approx(wanted.relations, abs=1e-6)


def test_a_huge_validation_split_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model()
    data = model.data
    validate = make_validator(data, seed=1)
    assert validate is not None and validate(model.point) == pytest.approx(model.evaluate("valid", "point").mrr)
    monkeypatch.setattr(validating, "VALIDATION_QUERIES", 7)
    few, same, other = (make_validator(data, seed=s) for s in (1, 1, 2))
    assert few is not None and same is not None and other is not None
    assert few(model.point) == same(model.point) != other(model.point)
    monkeypatch.setattr(mode_choice, "FEWEST", 5)
    whole = choose_mode(model)
    monkeypatch.setattr(mode_choice, "MODE_CELLS", 5 * data.n_entities)
    sampled = choose_mode(model)
    monkeypatch.setattr(mode_choice, "KEPT_CELLS", 0)
    anew = choose_mode(model)  # scores that are not kept are the same, up to the order of sums
    assert (anew.mode, anew.validation) == (sampled.mode, sampled.validation)
    for mode in MODES:
        kept, made = sampled.temperatures[mode], anew.temperatures[mode]
        assert astuple(made)[:4] == pytest.approx(astuple(kept)[:4], rel=1e-9)
        assert made.relations == pytest.approx(kept.relations, rel=1e-9)
    assert sampled.temperatures != whole.temperatures
    ranked = {mode: model.evaluate("valid", mode).mrr for mode in MODES}  # the figures are of all questions
    assert sampled.validation == pytest.approx(ranked) and whole.validation == pytest.approx(ranked)
    monkeypatch.setattr(mode_choice, "RANKED_CELLS", 1)
    assert sampled.mode != "bayes"
    assert choose_mode(model).validation == {mode: ranked[mode] for mode in MODES if mode != "bayes"}


def test_the_end_of_a_fit_of_a_large_graph_scores_a_bounded_number_of_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(random_graph(n_entities=40, n_facts=4000, seed=2))
    data, n = model.data, model.data.n_entities
    result = FitResult(model.point, model.posterior, model.learned, (1.0, 0.0), None, 1.0, {}, (), 1.0)
    scored = [0]
    prepare_plainly = TableScorer.prepare

    def prepare_and_count(self: TableScorer, heads: Tensor, relations: Tensor) -> Any:
        write = prepare_plainly(self, heads, relations)

        def count(start: int, stop: int, block: Tensor) -> None:
            scored[0] += block.numel()
            write(start, stop, block)

        return count

    def spend() -> int:
        scored[0] = 0
        made = finish(result, Prepared(data, None), model.config, 0.0)
        assert made.metrics["valid"]["overall"]["mrr"] == pytest.approx(made.validation[made.mode])
        return scored[0]

    monkeypatch.setattr(TableScorer, "prepare", prepare_and_count)
    monkeypatch.setattr(fitting, "affordable_samples", lambda posterior: 4)
    whole = spend()
    few = 30 * n  # scores; what is kept for the temperatures goes with them
    monkeypatch.setattr(mode_choice, "FEWEST", 5)
    monkeypatch.setattr(mode_choice, "MODE_CELLS", 5 * n)
    monkeypatch.setattr(mode_choice, "RANKED_CELLS", 1)
    monkeypatch.setattr(mode_choice, "EACH_CELLS", few)
    monkeypatch.setattr(validating, "FEWEST_QUERIES", 5)
    monkeypatch.setattr(fitting, "affordable_questions", lambda n_entities: 60)
    monkeypatch.setattr(proposals, "LEARNED_SCORES", few)
    monkeypatch.setattr(proposals, "POOL", 10)
    monkeypatch.setattr(proposals, "LEAST_POOL", 10)
    monkeypatch.setattr(judge, "MOST", 5)
    monkeypatch.setattr(judge, "LEAST", 5)
    modes = (1 + 1 + 2 + 4) * 5 * n + (1 + 1 + 2) * few  # calibrated, then ranked: point, mean, blend and bayes
    test, ranker, learned_judge = 60 * n, few + 2 * 10 * n, (2 * 5 + 2 * 4 * 2 * 5) * n
    twice = 2  # at most two tables answer in the mode that was chosen
    assert spend() <= modes + twice * (test + ranker + learned_judge) < whole / 4


@pytest.mark.parametrize(
    ("n_entities", "questions"), [(1_000, 4096), (300_000, 256), (1_400_000, 256), (5_000_000, 107)]
)
def test_the_scores_of_questions_for_temperatures_are_kept(n_entities: int, questions: int) -> None:
    """Made anew for each of some thirty passes and eight tables, they took longer than all else at the end of a fit."""
    assert mode_choice._affordable(n_entities) == questions
    assert questions * n_entities <= mode_choice.KEPT_CELLS


def test_the_mode_is_chosen_by_all_questions_that_are_ranked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Point and mean differ on the questions that temperatures are fitted on otherwise than on all of them."""
    data = random_graph(n_entities=40, n_facts=4000, seed=2)
    monkeypatch.setattr(mode_choice, "FEWEST", 5)
    monkeypatch.setattr(mode_choice, "MODE_CELLS", 5 * data.n_entities)
    few_say_otherwise = 0
    for seed in range(8):
        model = random_model(data, seed=seed)
        by_all = max(("point", "mean"), key=lambda mode: model.evaluate("valid", mode).mrr)
        by_few = max(("point", "mean"), key=lambda mode: model.evaluate("valid", mode, most=5).mrr)
        few_say_otherwise += by_few != by_all
        assert choose_mode(model).mode in (by_all, "blend", "bayes")
    assert few_say_otherwise


@pytest.mark.parametrize(
    ("changes", "mode"),
    [
        ({}, "point"),
        ({"mean": 0.001}, "mean"),  # as cheap as point: what is better is taken
        ({"blend": 0.001}, "point"),  # ahead by less than noise
        ({"blend": 0.05}, "blend"),
        ({"bayes": 0.05}, "bayes"),
        ({"mean": 0.05, "blend": 0.051}, "mean"),
    ],
)
def test_more_than_one_model_answers_only_where_that_is_clearly_better(changes: dict[str, float], mode: str) -> None:
    rng = np.random.default_rng(0)
    same = rng.uniform(0.2, 0.8, 400)
    noise = {name: rng.normal(0, 0.05, 400) for name in MODES}
    values = {name: same + changes.get(name, 0.0) + (noise[name] - noise[name].mean()) for name in MODES}
    assert mode_choice._choose(values) == mode


def test_settings_nested_dotted_and_before_the_config() -> None:
    config = Config.model_validate({"em": {"beta": 0.5, "epochs": 7}, "seed": 4})
    made = configure(config, {"em.beta": 0.3, "retrain": {"epochs": 9}, "model.dim": 12})
    assert (made.em.beta, made.em.epochs, made.retrain.epochs, made.model.dim, made.seed) == (0.3, 7, 9, 12, 4)
    assert configure(None, {}) == Config()


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ({"em.betta": 0.3}, "no setting 'em.betta'.*\n.*em.beta"),
        ({"sead": 1}, "no setting 'sead'.*\n.*seed"),
        ({"em.beta": 7}, r"em.beta = 7: .*less than or equal to 1"),
        ({"am.beta": 0.3}, "no section 'am'.*\n.*pretrain"),
        ({"seed.x": 3}, "a setting, not a section"),
        ({"model.dim": "many"}, "model.dim = 'many'"),
        ({"em": 3}, "em = 3"),
        ({"model.score": "nonsense"}, "no score function"),
        ({"device": "abacus"}, "'abacus' cannot be used here"),
    ],
)
def test_wrong_settings_are_explained(overrides: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        configure(None, overrides)
    assert caught.value.remedy


@pytest.mark.parametrize("given", [{"model.score": "ComplEx"}, {"model": {"score": "COMPLEX"}}])
def test_scores_may_be_written_as_in_papers(given: dict[str, Any]) -> None:
    assert configure(None, given).model.score == "complex"


def test_a_config_that_is_none_is_told() -> None:
    with pytest.raises(ConfigError, match="dict"):
        kgem.fit(random_graph(), config={"em": {"beta": 0.3}})  # type: ignore[arg-type]
