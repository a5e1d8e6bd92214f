"""Studies and pages: from cells and models to JSON, tables and pictures."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from evidence import cost, pairs
from evidence.ablation import ABLATION, ablation_table
from evidence.calibration import (
    CALIBRATION,
    area_under_roc,
    by_frequency,
    calibration_figure,
    calibration_table,
    doubt,
    ece_by_chance,
)
from evidence.cost import FEWEST_TRIALS, SEARCH, SHORT, cost_figure, cost_table
from evidence.documents import write_json
from evidence.frequency import FREQUENCY, frequency_table, slope_table
from evidence.page import STUDIES, Pages, make_pages, read_results
from evidence.pairs import PAIRS, pairs_table
from evidence.study import Study
from evidence.tables import STUDENT, Table, gain, half_width, with_interval
from kgem.answer.model import Model
from kgem.answer.modes import MODES
from kgem.errors import InputError
from kgem.evaluate.comparison import bootstrap_interval
from kgem.evaluate.metrics import FREQUENCY_BINS
from kgem.evaluate.ranking import rank
from kgem.model.prior import Strengths
from kgem.report.figures.drawing import figure_svg
from obvious import random_graph
from small_models import random_model, scores_of

DATA = random_graph()


def documents(study: Study, cells: Sequence[Any], load: Any = None) -> list[Any]:
    return list(study.documents(cells, load or (lambda cell: None), "as typed"))


def column(table: Table, name: str) -> list[str]:
    return [row[name] for row in table.rows]


def figures(mrr: float) -> dict[str, Any]:
    one = {"n": 10, "mrr": mrr, "mean_rank": 3.0, "hits_at_1": mrr / 2, "hits_at_3": mrr, "hits_at_10": mrr}
    return {"valid": one, "test": one | {"mrr": mrr - 0.1}}


def cell(variant: str, seed: int = 0, **more: Any) -> dict[str, Any]:
    """A cell as the commands write it, without what is not looked at here."""
    return {
        "kind": "kgem-table1-cell",
        "version": 1,
        "name": f"tiny-complex-4-{variant}-{seed}",
        "command": f"python -m evidence table1 --variants {variant} --seeds {seed}",
        "data": "tiny",
        "graph": "tiny",
        "model": "complex",
        "dim": 4,
        "variant": variant,
        "seed": seed,
        "mode": "point",
        "metrics": {"point": figures(0.5)},
        "epochs": {"pretrain": 5, "em": 0, "retrain": 0},
        "seconds": 50.0,
        "run": f"runs/{variant}-{seed}",
        "machine": {"threads": 1 if variant == "em" else 2},
        "facts": {"hash": "0123456789"},
        "versions": {"kgem": "0", "commit": "abc"},
        "finished": "today",
        **more,
    }


def trial(number: int, mrr: float | None, mrrs: list[float | None]) -> dict[str, Any]:
    """Of 10 seconds an epoch, half of them not in the log."""
    n = len(mrrs)
    curve = {"phase": ["pretrain"] * n, "candidate": [0] * n, "mrr": mrrs, "seconds": [5.0] * n}
    done = "done" if mrr is not None else "failed"
    return {"number": number, "mrr": mrr, "epochs": n, "seconds": 10.0 * n, "outcome": done, "curve": curve}


def search_cell(seed: int = 0) -> dict[str, Any]:
    """Its best is found in the fourth epoch of its third trial, whose tenth is its last."""
    third = [0.3, 0.42, 0.45, 0.5, *[0.4] * 6]
    trials = [trial(1, 0.4, [0.4] * 20), trial(2, None, [0.9]), trial(3, 0.5, third), trial(4, 0.45, [0.45] * 9)]
    epochs = {"pretrain": 40, "em": 0, "retrain": 0}
    more: dict[str, Any] = {"strength": {"value": 0.1, "why": ""}, "trials": trials, "epochs": epochs}
    more["config"] = {"run": {}}
    return cell("search", seed, seconds=400.0, strengths=[0.01, 1.0], **more)


def fit_cell(seed: int = 0, judge: str = "blend") -> dict[str, Any]:
    """Its blend is as good as the search in the ninth epoch, its one model only when it is over."""
    phases = ["pretrain"] * 3 + ["em"] * 4 + ["retrain"] * 3
    mrrs = [0.1, 0.35, None, 0.3, 0.42, 0.41, 0.45, 0.2, 0.65, 0.7]
    curve = {"phase": phases, "candidate": [None] * 10, "mrr": mrrs, "seconds": [1.0] * 10}
    metrics = {"point": figures(0.55), "mean": figures(0.5), "bayes": figures(0.4), "blend": figures(0.7)}
    epochs = {"pretrain": 3, "em": 4, "retrain": 3}
    more: dict[str, Any] = {"curve": curve, "epochs": epochs, "config": {"retrain": {"judge": judge}, "run": {}}}
    return cell("em", seed, mode="blend", metrics=metrics, seconds=20.0, **more)


# search against fit


def test_costs_of_search_and_fit() -> None:
    (document,) = documents(SEARCH, [search_cell(1), search_cell(), fit_cell(), fit_cell(1), fit_cell(2)])
    assert [seed["seed"] for seed in document["seeds"]] == [0, 1], "a fit without a search has nothing beside it"
    assert [each["cell"] for each in document["sources"]] == [
        f"tiny-complex-4-{variant}-{seed}" for variant in ("search", "em") for seed in (0, 1)
    ]
    assert document["command"] == "as typed"
    with pytest.raises(InputError, match="are of different facts"):
        documents(SEARCH, [search_cell(), fit_cell() | {"facts": {"hash": "of another split"}}])
    assert document["ratio"] == {"work": 10 / 40}
    one = document["seeds"][0]
    assert one["fit"]["mode"] == "point" and one["fit"]["auto"]["mode"] == "blend"
    (row,) = cost_table([document]).rows
    one_model, auto = "**+0.050 (+0.050 to +0.050)**", "**+0.200 (+0.200 to +0.200)**"
    assert (row["seeds"], row["trials"], row["cost of the fit"], row[SHORT]) == ("2", "4", "25%", "")
    assert (row["one fit, one model"], row["one model on validation"]) == (one_model, one_model), "no blend"
    assert (row["one fit, `auto`"], row["`auto` on validation"]) == (auto, auto)
    assert (row["the search"], row["the search on validation"]) == ("0.400 ± 0.000", "0.500 ± 0.000")
    assert (row["epochs, search and fit"], row["seconds, search and fit"]) == ("40 and 10", "400 and 20")
    assert not cost.summary([document]).rows, "too few trials"
    short = cost.summary([document | {"trials": [FEWEST_TRIALS]}])
    assert short.columns[-1] == SHORT and short.cell("tiny, ComplEx, K = 4", "one fit, `auto`") == auto.strip("*")
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    drawn = figure_svg(cost_figure(document))
    assert "one kgem fit, one model" in drawn and "the same fit, blend of two models" in drawn


def compared(search: Mapping[str, Any], fit: Mapping[str, Any]) -> Any:
    (document,) = documents(SEARCH, [search, fit])
    return document


def test_a_fit_is_also_held_against_a_search_that_stopped_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "FEWEST_TRIALS", 3)
    table = cost_table([compared(search_cell(), fit_cell())])
    assert column(table, SHORT) == ["32%"], "10 epochs of 31"


def test_search_and_fit_are_credited_at_every_epoch_and_pay_for_all_that_they_took() -> None:
    one = compared(search_cell(), fit_cell())["seeds"][0]
    curve = one["search"]["curve"]
    assert curve["epochs"] == list(range(1, 41))
    assert curve["best"] == [*[0.4] * 22, 0.42, 0.45, *[0.5] * 16], "a trial that failed has found nothing"
    assert one["search"]["trials"] == {
        "epochs": [20, 21, 31, 40],
        "best": [0.4, 0.4, 0.5, 0.5],
        "mrr": [0.4, 0.0, 0.5, 0.45],
    }
    assert one["fit"]["curve"]["epochs"] == list(range(1, 8)) and one["fit"]["blend"]["epochs"][-1] == 10


def test_what_re_training_logs_of_a_blend_is_not_taken_for_one_model() -> None:
    one = compared(search_cell(), fit_cell())["seeds"][0]
    assert one["fit"]["curve"]["best"] == [0.1, 0.35, 0.35, 0.35, 0.42, 0.42, 0.45]
    assert one["fit"]["blend"]["epochs"] == [8, 9, 10] and one["fit"]["blend"]["best"] == [0.2, 0.65, 0.7]
    judged = compared(search_cell(), fit_cell(judge="point"))
    one = judged["seeds"][0]
    assert one["fit"]["blend"] is None and one["fit"]["curve"]["best"][-3:] == [0.45, 0.65, 0.7]
    assert "blend of two models" not in figure_svg(cost_figure(judged))


def test_an_epoch_of_em_counts_as_what_it_takes_the_time_of() -> None:
    fit = fit_cell()
    fit["curve"]["seconds"] = [1.0, 1.0, 9.0, *[2.5] * 4, 1.5, 1.5, 1.5]
    document = compared(search_cell(), fit)
    assert document["seeds"][0]["fit"]["of_one_epoch"] == {"pretrain": 1.0, "em": 2.5, "retrain": 1.5}
    assert document["seeds"][0]["fit"]["work"] == 3 + 4 * 2.5 + 3 * 1.5, "one epoch that was disturbed does not count"
    table = cost_table([document])
    assert column(table, "cost of the fit") == ["44%"] and "(2.5 to 2.5)" in table.note


def test_searches_of_other_lengths_are_not_put_together() -> None:
    short = search_cell(2) | {"trials": search_cell()["trials"][:3]}
    cells = [search_cell(), fit_cell(), search_cell(1), fit_cell(1), short, fit_cell(2)]
    (document,) = documents(SEARCH, cells)
    assert document["trials"] == [4] and [seed["seed"] for seed in document["seeds"]] == [0, 1]


def test_a_search_whose_first_trial_failed_has_no_best_yet() -> None:
    search = search_cell() | {"trials": [trial(1, None, [0.9, 0.9]), trial(2, 0.5, [0.5] * 10)]}
    document = compared(search, fit_cell())
    assert document["seeds"][0]["search"]["trials"]["best"] == [0.0, 0.5]
    assert "<svg" in figure_svg(cost_figure(document))


# by frequency


@pytest.fixture(scope="module")
def models() -> dict[str, Model]:
    return {name: random_model(DATA, seed=seed) for seed, name in enumerate(("em", "search"), 3)}


def load(models: dict[str, Model]) -> Any:
    return lambda document: models[document["variant"]]


def test_mrr_by_frequency_is_that_of_the_ranks(models: dict[str, Model]) -> None:
    (document,) = documents(FREQUENCY, [fit_cell(), search_cell(), cell("conventional")], load(models))
    assert document["baseline"] == "search" and len(document["sources"]) == 2, "the better baseline"
    facts = DATA.reciprocal(DATA.test)
    ranks = {
        name: 1 / rank(model.scorer("point"), facts, DATA.filter_index).of("pessimistic").astype(float)
        for name, model in models.items()
    }
    counts, rng = DATA.entity_counts[facts[:, 2]], np.random.default_rng(0)
    for row in document["bins"]:
        low = 1000 if row["bin"].endswith("+") else int(row["bin"].split("-")[0])
        high = min([border for border in FREQUENCY_BINS if border > low], default=math.inf)
        here = (counts >= low) & (counts < high)
        assert row["n"] == here.sum()
        assert row["fit"] == pytest.approx(ranks["em"][here].mean())
        assert row["baseline"] == pytest.approx(ranks["search"][here].mean())
        gains = ranks["em"][here] - ranks["search"][here]
        assert (row["low"], row["high"]) == pytest.approx(bootstrap_interval(gains, rng))
    assert sum(row["n"] for row in document["bins"]) == len(facts)
    assert sum(row["of_all"] for row in document["bins"]) == pytest.approx((ranks["em"] - ranks["search"]).mean())
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    rows = frequency_table([document]).rows
    assert len(rows) == len(document["bins"])
    assert [rows[0][name] for name in ("graph and model", "seeds")] == ["tiny, ComplEx, K = 4", "1"]
    assert document["modes"] == ["point"]


def test_a_planted_slope_is_found_and_told(models: dict[str, Model]) -> None:
    n = torch.tensor(np.maximum(DATA.entity_counts, 1).tolist(), dtype=torch.float64)
    planted = Strengths(2.0 * n**0.3, models["em"].learned.relations)
    group = [fit_cell(), search_cell()]
    (document,) = documents(FREQUENCY, group, load(models | {"em": replace(models["em"], learned=planted)}))
    assert [each["entities"]["slope"] for each in document["by_seed"]] == [pytest.approx(0.3)]
    assert slope_table([document]).cell("tiny, ComplEx, K = 4", "slope of entities") == "0.30"
    alike = Strengths(torch.ones_like(n), models["em"].learned.relations)
    (document,) = documents(FREQUENCY, group, load(models | {"em": replace(models["em"], learned=alike)}))
    assert document["by_seed"][0]["entities"]["slope"] == pytest.approx(0.0)


# two models together


def test_two_models_answer_together_as_the_mean_of_their_scores_does() -> None:
    made = {seed: random_model(DATA, seed=seed) for seed in (3, 4, 5)}
    cells = [*(search_cell(seed) for seed in made), fit_cell(4), fit_cell(9)]
    (document,) = documents(PAIRS, cells, lambda cell: made[cell["seed"]])
    assert document["seeds"] == [3, 4, 5] and [fit["seed"] for fit in document["fits"]] == [4]
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert [pair["seeds"] for pair in document["pairs"]] == [[3, 4], [4, 5], [5, 3]]
    known = {(h, r, t) for split in (DATA.train, DATA.valid, DATA.test) for h, r, t in DATA.reciprocal(split).tolist()}
    for pair in document["pairs"]:
        ranks = []
        for h, r, t in DATA.reciprocal(DATA.test).tolist():
            scores = sum(scores_of(made[seed].point, h, r) for seed in pair["seeds"])
            left = [e for e in range(DATA.n_entities) if e == t or (h, r, e) not in known]
            ranks.append(sum(float(scores[e]) >= float(scores[t]) for e in left))
        assert pair["test"]["mrr"] == pytest.approx(np.mean(1 / np.array(ranks, dtype=float)))


def test_what_any_second_model_brings() -> None:
    def figures_of(mrr: float) -> dict[str, Any]:
        return {"test": {"mrr": mrr}}

    document = {
        **{"graph": "tiny", "model": "complex", "dim": 4, "baseline": "conventional", "seeds": [0, 1]},
        "alone": [figures_of(0.3), figures_of(0.5)],
        "pairs": [figures_of(0.45)],
        "fits": [{"seed": seed, "single": figures_of(0.5), "blend": figures_of(0.6)} for seed in (0, 1)],
    }
    (row,) = pairs_table([document]).rows
    counts = [row[name] for name in ("shared strength", "ordinary models", "fits")]
    assert counts == ["conventional, one given strength", "2", "2"]
    assert [row[side] for side in pairs.SIDES] == ["0.400 ± 0.141", "0.450", "0.500 ± 0.000", "0.600 ± 0.000"]
    assert row["a second ordinary model brings"] == "+0.050"
    assert row["the blend has beyond two"] == "+0.150", "one pair has no interval"
    assert column(pairs_table([document | {"fits": document["fits"][:1]}]), "fits") == ["1"]


def test_the_interval_of_a_blends_gain_knows_that_pairs_share_models() -> None:
    """Against many repetitions: a pair has the mean of its models' figures, a blend its own."""
    rng = np.random.default_rng(0)
    for n in (3, 6):
        models, blends = rng.normal(size=(2, 2000, n))
        answers = (models + np.roll(models, 1, axis=1)) / 2
        both = zip(answers.tolist(), blends.tolist(), strict=True)
        halves = np.array([pairs._half_width(*each) for each in both])
        missed = np.abs(blends.mean(1) - answers.mean(1)) > halves
        assert 0.005 < missed.mean() < 0.06
    assert pairs._half_width([0.5], [0.5, 0.6]) is None is pairs._half_width([0.5, 0.6, 0.5], [0.5])


def test_one_seed_is_no_pair_and_a_search_comes_first() -> None:
    def baselines(*cells: Mapping[str, Any]) -> list[list[str]]:
        return [[each["variant"] for each in group["baseline"]] for group in PAIRS.select(cells)]

    assert baselines(search_cell(0), fit_cell(0)) == []
    assert baselines(search_cell(0), search_cell(1), fit_cell(2)) == []
    given = [cell("conventional", seed) for seed in (0, 1)]
    assert baselines(*given, search_cell(0), fit_cell(0)) == [["conventional"] * 2]
    assert baselines(*given, search_cell(0), search_cell(1), fit_cell(0)) == [["search"] * 2]


# re-training and its controls


def test_what_the_start_and_the_strengths_bring_is_of_the_same_seeds() -> None:
    def arm(*mrrs: float) -> list[dict[str, Any]]:
        return [{"point": {"test": {"mrr": mrr}}, "blend": {"test": {"mrr": mrr + 0.1}}} for mrr in mrrs]

    document = {
        **{"graph": "tiny", "model": "complex", "dim": 4, "seeds": [0, 1, 2]},
        **{"ordinary": arm(0.2, 0.4, 0.3), "fresh": arm(0.1, 0.1, 0.1)},
        **{"warm": arm(0.25, 0.46, 0.36), "fit": arm(0.3, 0.4, 0.35)},
    }
    table = ablation_table([document])
    assert column(table, "graph and model") == ["tiny, ComplEx, K = 4"] * 2
    assert column(table, "asked") == ["re-trained model alone", "blend with the means of q"]
    assert column(table, "shared strength, from random tables") == ["0.300 ± 0.100", "0.200 ± 0.000"]
    assert column(table, "shared strength, from the means of q")[0] == "0.357 ± 0.105"
    assert column(table, "learned strengths, from the means of q (the fit)")[0] == "0.350 ± 0.050"
    assert column(table, "seeds") == ["3", "3"]
    half = 4.303 * np.std([0.05, 0.06, 0.06], ddof=1) / math.sqrt(3)
    start, strengths = column(table, "the start brings"), column(table, "the strengths bring")
    assert start[0] == f"**+0.057 ({0.17 / 3 - half:+.3f} to {0.17 / 3 + half:+.3f})**"
    assert strengths[0] == strengths[1] and "*" not in strengths[0], "+0.05, -0.06 and -0.01 are nothing that is clear"
    one = {name: [each[0]] for name, each in document.items() if isinstance(each, list)}
    alone = ablation_table([document | one]).rows[0]
    assert (alone["the start brings"], alone["the strengths bring"]) == ("+0.050", "+0.050")


def control(variant: str, seed: int, **more: Any) -> dict[str, Any]:
    """A cell of a fit and its controls, with the settings that make it one."""
    retrain: dict[str, Any] = {"start": "warm", "epochs": 3, "candidates": [[1, 0]], "fall_back": True}
    shared = {"candidates": [[0, 1], [0, 0.3], [0, 3], [0, 10]], "fall_back": False}
    changes = {"warm": shared, "fresh": shared | {"start": "fresh"}, "ordinary": {"epochs": 0}}
    config = {"em": {"epochs": 0 if variant == "ordinary" else 4}, "retrain": retrain | changes.get(variant, {})}
    found = {"metrics": {"point": figures(0.5), "blend": figures(0.6)}, "config": config, "mix": [0, 3]}
    return cell(variant, seed, **found | more)


def test_fits_have_controls_of_the_same_seeds() -> None:
    arms = ("em", "ordinary", "fresh", "warm")
    cells = [control(variant, seed) for seed in (2, 0, 1) for variant in arms if (variant, seed) != ("warm", 1)]
    (document,) = documents(ABLATION, cells)
    assert document["seeds"] == [0, 2], "a fit that lacks a control is left out"
    for arm, modes in {"fit": {"point", "blend"}, "ordinary": {"point"}, "fresh": {"blend"}}.items():
        assert [each["seed"] for each in document[arm]] == [0, 2]
        assert all(each.keys() == {"seed", *modes} for each in document[arm])
    assert len(document["sources"]) == 8 and json.loads(json.dumps(document, allow_nan=False))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"facts": {"hash": "other"}}, "em-0 and tiny-complex-4-fresh-0 are of different facts"),
        ({"config": control("warm", 0)["config"]}, "its control 'fresh' differ in retrain.start"),
    ],
)
def test_a_control_must_be_the_same_fit_but_for_what_makes_it_one(change: dict[str, Any], said: str) -> None:
    cells = [
        control(variant, 0, **(change if variant == "fresh" else {})) for variant in ("em", "ordinary", "fresh", "warm")
    ]
    with pytest.raises(InputError, match=said):
        documents(ABLATION, cells)


# intervals and tables


def test_the_interval_of_a_few_seeds_is_that_of_student() -> None:
    """The quantiles against the integral of the density, by the trapezoidal rule."""
    for n, quantile in enumerate(STUDENT, 1):
        x = np.linspace(0, quantile, 200_001)
        density = (1 + x**2 / n) ** (-(n + 1) / 2)
        scale = math.gamma((n + 1) / 2) / math.gamma(n / 2) / math.sqrt(n * math.pi)
        assert scale * np.trapezoid(density, x) == pytest.approx(0.475, abs=1e-4)
    assert half_width(0.04, 3) == pytest.approx(4.303 * 0.2)
    assert half_width(0.04, 50) == half_width(0.04, 10), "wider than it would have to be, never narrower"
    assert [with_interval(0.1, None), with_interval(-0.1, 0.2)] == ["+0.100", "-0.100 (-0.300 to +0.100)"]
    assert gain([0.1], [0.3]) == "+0.200" and gain([0.1, 0.1], [0.2, 0.2]).startswith("**"), "one has no interval"


def test_a_cell_of_a_table_is_found_by_words_of_its_row() -> None:
    rows = [{"a": "x", "b": "y", "c": "**1**"}, {"a": "x", "b": "z", "c": "2"}]
    table = Table("T", rows, 2)
    assert table.cell("x", "y", "c") == "1" and table.cell("z", "c") == "2"
    for words in (("x", "c"), ("w", "c"), ("z", "d")):
        with pytest.raises(InputError, match="of the table 'T' are"):
            table.cell(*words)


# calibration and doubt


def test_doubt_is_what_the_obvious_computation_says() -> None:
    model = random_model(DATA, seed=7)
    facts = DATA.reciprocal(DATA.test)
    known = {(h, r, t) for split in (DATA.train, DATA.valid, DATA.test) for h, r, t in DATA.reciprocal(split).tolist()}
    for mode in MODES:
        found = doubt(model, facts, mode)
        for i, (h, r, t) in enumerate(facts.tolist()):
            left = [e for e in range(DATA.n_entities) if e == t or (h, r, e) not in known]
            if mode == "bayes":
                sampled = torch.stack([scores_of(s, h, r).softmax(0) for s in model.samples])
                scores = sampled.mean(0).log()[left]
                temperature = model.temperature(mode).common  # the same for all measures of doubt
                each = torch.stack([(scores_of(s, h, r)[left] / temperature).softmax(0) for s in model.samples])
                first = each[:, int(scores.argmax())]
                assert found["spread"][i] == pytest.approx(float(first.std(correction=0) / first.mean()))
            elif mode == "blend":
                scores = ((scores_of(model.point, h, r) + scores_of(model.mean, h, r)) / 2)[left]
            else:
                scores = scores_of(model.tables(mode), h, r)[left]
            p = (scores / model.temperature(mode).common).softmax(0)
            assert found["confidence"][i] == pytest.approx(float(p.max()))
            place = 1 + sum(float(s) > float(scores[left.index(t)]) for s in scores)
            assert found["right"][i] == (place == 1)


def test_the_area_under_the_curve_counts_pairs() -> None:
    rng = np.random.default_rng(0)
    values, wrong = rng.integers(5, size=40).astype(float), rng.random(40) < 0.4
    pairs = [(w > r) + 0.5 * (w == r) for w in values[wrong] for r in values[~wrong]]
    assert area_under_roc(values, wrong) == pytest.approx(float(np.mean(pairs)))
    assert area_under_roc(values, np.ones(40, dtype=bool)) is None


def test_calibration_of_all_modes(models: dict[str, Model]) -> None:
    (document,) = documents(CALIBRATION, [fit_cell(), search_cell()], load(models))
    assert document["name"] == "tiny-complex-4-0"
    assert list(document["modes"]) == list(MODES) and document["questions"] == 2 * len(DATA.test)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    for found in document["modes"].values():
        assert 0 <= found["calibration"]["ece"] <= 1
        assert 0 < found["ece_by_chance"]["mean"] < found["ece_by_chance"]["most"]
    assert len(calibration_table([document]).rows) == len(MODES)
    right = calibration_table([document | {"modes": {"point": _just_right(document)}}]).rows[0]["ECE"]
    assert right.startswith("**"), "chance alone could bring that"
    shares = [each["right"] for each in document["modes"]["bayes"]["bins"]]
    assert column(by_frequency([document]), "first answers right") == [f"{share:.1%}" for share in shares]
    assert "<svg" in figure_svg(calibration_figure(document))


def _just_right(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["modes"]["point"]
    return found | {"calibration": found["calibration"] | {"ece": found["ece_by_chance"]["most"]}}


# the pages


@pytest.fixture
def results(tmp_path: Path, models: dict[str, Model]) -> Path:
    cells = [search_cell(), fit_cell()]
    for each in cells:
        write_json(tmp_path / "table1" / f"{each['name']}.json", each)
    for name in ("search", "frequency", "calibration"):
        for document in documents(STUDIES[name], cells, load(models)):
            write_json(tmp_path / STUDIES[name].folder / f"{document['name']}.json", document)
    return tmp_path


def pages(template: str, results: Path) -> Pages:
    return make_pages(template, read_results(results))


def test_the_page_keeps_the_prose_and_has_every_figure(results: Path) -> None:
    template = "Prose.\n\n{{table doubt}}\n\n{{picture search tiny-complex-4}}\n\nThe blend has "
    template += "{{Search and fit | tiny, ComplEx, K = 4 | one fit, `auto`}}.\n"
    made = pages(template, results)
    text = made.texts["results.md"]
    assert text.startswith("Prose.\n\n| fit |") and text.endswith("The blend has +0.200.\n")
    assert "](images/results-search-tiny-complex-4.svg)" in text
    ((name, draw),) = made.pictures.items()
    assert f"](images/{name})" in text and "<svg" in figure_svg(draw())
    for name in ("table1", "search", "frequency", "calibration"):
        assert "tiny, ComplEx" in made.texts[f"results/{name}.md"] or "| tiny |" in made.texts[f"results/{name}.md"]
    assert made == replace(pages(template, results), pictures=made.pictures), "the same again"


def test_every_file_is_in_the_index_with_its_command(results: Path) -> None:
    lines = pages("", results).texts["results/index.md"].splitlines()
    rows = {line.split("`")[1]: line for line in lines if line.startswith("- `")}
    assert set(rows) == {str(path.relative_to(results)) for path in results.glob("*/*.json")}
    told = "at abc: `python -m evidence table1 --variants em --seeds 0`"
    assert rows["table1/tiny-complex-4-em-0.json"].endswith(told)
    assert rows["search/tiny-complex-4.json"].endswith(": `as typed`")


def test_a_page_says_what_is_not_measured_and_is_not_made_of_nothing(tmp_path: Path) -> None:
    template = "{{table one-fit}}\n{{table doubt-by-frequency}}\n{{table doubt}}\n"
    with pytest.raises(InputError, match="no results in this folder"):
        read_results(tmp_path)
    write_json(tmp_path / "table1" / "tiny-complex-4-em-0.json", fit_cell())
    made = pages(template, tmp_path)
    assert made.texts["results.md"].count("*Not measured yet.*") == 3 and not made.pictures


@pytest.mark.parametrize(
    "template",
    [
        "{{nothing}}",
        "{{table nothing}}",
        "{{picture search nothing}}",
        "{{picture pairs tiny-complex-4}}",
        "{{nothing | a | b}}",
        "{{Search and fit | nothing | the search}}",
        "{{Search and fit | tiny, ComplEx, K = 4 | nothing}}",
    ],
)
def test_a_template_that_asks_for_what_is_not_there(template: str, results: Path) -> None:
    with pytest.raises(InputError, match=r"the template asks for|of the table"):
        pages(template, results)


def test_what_ece_chance_brings() -> None:
    """One bin: the mean absolute deviation of a binomial share, exactly; and confidence that is certain has none."""
    n, p = 40, 0.3
    shares = np.arange(n + 1) / n
    weights = np.array([math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)])
    mean, most = ece_by_chance(np.full(n, p), np.random.default_rng(0))
    assert mean == pytest.approx(weights @ np.abs(shares - p), rel=0.15)
    assert weights[np.abs(shares - p) <= most + 1e-12].sum() >= 0.94
    assert ece_by_chance(np.ones(n), np.random.default_rng(0)) == (0.0, 0.0)
    fewer, _ = ece_by_chance(np.full(n // 4, p), np.random.default_rng(0))
    assert fewer > 1.5 * mean, "twice as much for a quarter of the predictions"
