"""Search against fit, frequency, calibration and the page: from cells and models to JSON, tables and pictures."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from evidence.cost import FEWEST_TRIALS, compare_costs, cost_table, pairs
from evidence.documents import made_from, write_json
from evidence.doubt import area_under_roc, calibration_document, calibration_table, doubt, doubt_table
from evidence.frequency import by_frequency, frequency_table, groups, slope_table
from evidence.results_page import results_page
from evidence.tables import STUDENT, half_width, with_interval

from evidence import apart, cost, pictures, together
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


def figures(mrr: float) -> dict[str, Any]:
    one = {"n": 10, "mrr": mrr, "mean_rank": 3.0, "hits_at_1": mrr / 2, "hits_at_3": mrr, "hits_at_10": mrr}
    return {"valid": one, "test": one | {"mrr": mrr - 0.1}}


def cell(variant: str, seed: int = 0, **more: Any) -> dict[str, Any]:
    """A cell as the commands write it, without what is not looked at here."""
    return {
        "kind": "kgem-table1-cell",
        "version": 1,
        "name": f"tiny-complex-4-{variant}-{seed}",
        "command": f"kgem reproduce table1 --variants {variant} --seeds {seed}",
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
    group = pairs([search_cell(), fit_cell(), search_cell(1), fit_cell(1), fit_cell(2)])["tiny", "complex", 4]
    assert [search["seed"] for search, _ in group] == [0, 1], "a fit without a search has nothing beside it"
    assert not pairs([search_cell(), fit_cell() | {"facts": {"hash": "of another split"}}])
    document = compare_costs(group, "kgem ...")
    assert document["ratio"] == {"epochs": 10 / 40, "work": 10 / 40, "seconds": 20 / 400} and document["reached"]
    assert document["gain"] == {"valid": pytest.approx(0.05), "test": pytest.approx(0.05)}, "of one model, no blend"
    one = document["seeds"][0]
    assert one["fit"]["mode"] == "point" and one["fit"]["auto"]["mode"] == "blend"
    rows = cost_table([document]).rows
    assert rows[0][1] == "search, 4 trials" and rows[1][-6:] == ["10", "25%", "25%", "", "", "too few trials"]
    assert rows[2][1] == "the same fit, mode auto" and rows[2][3].startswith("0.7") and rows[2][-1] == "too few trials"
    assert rows[2][-6] == "9"
    assert [row[5] for row in rows] == ["", "+0.050 (+0.050 to +0.050)", "+0.200 (+0.200 to +0.200)"]
    rows = cost_table([document | {"trials": [FEWEST_TRIALS]}]).rows
    assert rows[1][-1] == rows[2][-1] == "yes"
    missed = cost_table([document | {"trials": [FEWEST_TRIALS], "reached": False}])
    assert missed.rows[1][-1] == "no" and missed.bold >= {(1, 13)}
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    drawn = figure_svg(pictures.cost_figure(document))
    assert "one kgem fit, one model" in drawn and "the same fit, blend of two models" in drawn
    with pytest.raises(InputError, match="no search"):
        compare_costs([], "")


def test_a_fit_is_also_held_against_a_search_that_stopped_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "FEWEST_TRIALS", 3)
    table = cost_table([compare_costs([(search_cell(), fit_cell())], "")])
    assert table.columns[11] == "of its first 3 trials' work"
    assert [row[11] for row in table.rows] == ["", "32%", "32%"], "10 epochs of 31"
    assert [row[-1] for row in table.rows] == ["", "yes", "yes"]


def test_search_and_fit_are_credited_at_every_epoch_and_pay_for_all_that_they_took() -> None:
    one = compare_costs([(search_cell(), fit_cell())], "")["seeds"][0]
    curve = one["search"]["curve"]
    assert curve["epochs"] == list(range(1, 41)) and curve["seconds"] == [10.0 * epoch for epoch in range(1, 41)]
    assert curve["best"] == [*[0.4] * 22, 0.42, 0.45, *[0.5] * 16], "a trial that failed has found nothing"
    assert one["search"]["trials"] == {
        "epochs": [20, 21, 31, 40],
        "seconds": [200.0, 210.0, 310.0, 400.0],
        "best": [0.4, 0.4, 0.5, 0.5],
        "mrr": [0.4, 0.0, 0.5, 0.45],
    }
    assert one["fit"]["curve"]["seconds"] == [2.0 * epoch for epoch in range(1, 8)]
    assert one["epochs_to_the_best"]["search"] == 25


def test_what_re_training_logs_of_a_blend_is_not_taken_for_one_model() -> None:
    one = compare_costs([(search_cell(), fit_cell())], "")["seeds"][0]
    assert one["fit"]["curve"]["best"] == [0.1, 0.35, 0.35, 0.35, 0.42, 0.42, 0.45]
    assert one["fit"]["blend"]["epochs"] == [8, 9, 10] and one["fit"]["blend"]["best"] == [0.2, 0.65, 0.7]
    assert one["epochs_to_the_best"] == {"search": 25, "fit": 10, "auto": 9}
    judged = compare_costs([(search_cell(), fit_cell(judge="point"))], "")
    one = judged["seeds"][0]
    assert one["fit"]["blend"] is None and one["fit"]["curve"]["best"][-3:] == [0.45, 0.65, 0.7]
    assert one["epochs_to_the_best"]["fit"] == 9
    assert "blend of two models" not in figure_svg(pictures.cost_figure(judged))


def test_an_epoch_of_em_counts_as_what_it_takes_the_time_of() -> None:
    fit = fit_cell()
    fit["curve"]["seconds"] = [1.0, 1.0, 9.0, *[2.5] * 4, 1.5, 1.5, 1.5]
    document = compare_costs([(search_cell(), fit)], "")
    assert document["seeds"][0]["fit"]["of_one_epoch"] == {"pretrain": 1.0, "em": 2.5, "retrain": 1.5}
    assert document["seeds"][0]["fit"]["work"] == 3 + 4 * 2.5 + 3 * 1.5, "one epoch that was disturbed does not count"
    assert document["ratio"]["epochs"] == 0.25 and not document["reached"], "its work is more than a quarter"
    table = cost_table([document])
    assert table.rows[1][9:11] == ["25%", "44%"] and "(2.5 to 2.5)" in table.notes[1]


@pytest.mark.parametrize(
    ("run", "pace", "told"),
    [
        ({"threads": 2}, 5.0, ""),
        ({"threads": 1, "products": "bfloat16"}, 5.0, ""),
        ({"threads": 1, "products": "exact"}, 5.0, "5%"),
        ({"threads": 1, "products": "exact"}, 3.0, ""),
    ],
)
def test_seconds_are_compared_only_if_both_ran_alike(run: dict[str, Any], pace: float, told: str) -> None:
    """A cell that is older than the setting had exact products; one epoch of the search takes five seconds."""
    fit = fit_cell()
    fit["config"]["run"] = run
    fit["curve"]["seconds"] = [pace] * 10
    search = search_cell() | {"config": {"run": {"threads": 1}}}
    assert [row[-2] for row in cost_table([compare_costs([(search, fit)], "")]).rows] == ["", told, told]


def test_seeds_that_searched_for_longer_are_told() -> None:
    short = search_cell(1) | {"trials": search_cell()["trials"][:3]}
    document = compare_costs([(search_cell(), fit_cell()), (short, fit_cell(1))], "")
    assert document["trials"] == [3, 4] and cost_table([document]).rows[0][1] == "search, 3 or 4 trials"


def test_a_search_whose_first_trial_failed_has_no_best_yet() -> None:
    search = search_cell() | {"trials": [trial(1, None, [0.9, 0.9]), trial(2, 0.5, [0.5] * 10)]}
    document = compare_costs([(search, fit_cell())], "")
    assert document["seeds"][0]["search"]["trials"]["best"] == [0.0, 0.5]
    assert "<svg" in figure_svg(pictures.cost_figure(document))
    better = search | {"trials": [trial(1, 0.9, [0.9])], "metrics": {"point": figures(0.9)}}
    assert cost_table([compare_costs([(better, fit_cell())], "")]).rows[1][8] == "1 of 1 never"


# by frequency


@pytest.fixture(scope="module")
def models() -> dict[str, Model]:
    return {name: random_model(DATA, seed=seed) for seed, name in enumerate(("em", "search"), 3)}


def load(models: dict[str, Model]) -> Any:
    return lambda document: models[document["variant"]]


def test_mrr_by_frequency_is_that_of_the_ranks(models: dict[str, Model]) -> None:
    found = groups([fit_cell(), search_cell(), cell("conventional")])
    assert [other["variant"] for _, other in found["tiny", "complex", 4]] == ["search"], "the better baseline"
    document = by_frequency(found["tiny", "complex", 4], load(models), "kgem ...")
    facts = DATA.reciprocal(DATA.test)
    ranks = {
        name: 1 / rank(model.scorer("point"), facts, DATA.filter_index).of("pessimistic").astype(float)
        for name, model in models.items()
    }
    mean = 1 / rank(models["em"].scorer("mean"), facts, DATA.filter_index).of("pessimistic").astype(float)
    counts, rng = DATA.entity_counts[facts[:, 2]], np.random.default_rng(0)
    for row in document["bins"]:
        low = 1000 if row["bin"].endswith("+") else int(row["bin"].split("-")[0])
        high = min([border for border in FREQUENCY_BINS if border > low], default=math.inf)
        here = (counts >= low) & (counts < high)
        assert row["n"] == here.sum()
        assert row["fit"] == pytest.approx(ranks["em"][here].mean())
        assert row["baseline"] == pytest.approx(ranks["search"][here].mean())
        assert row["point"] == row["fit"] and row["mean"] == pytest.approx(mean[here].mean())
        gains = ranks["em"][here] - ranks["search"][here]
        assert (row["low"], row["high"]) == pytest.approx(bootstrap_interval(gains, rng))
    assert sum(row["n"] for row in document["bins"]) == len(facts)
    assert sum(row["of_all"] for row in document["bins"]) == pytest.approx((ranks["em"] - ranks["search"]).mean())
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    rows = frequency_table([document]).rows
    assert len(rows) == len(document["bins"]) and rows[0][0] == "tiny, ComplEx, K = 4, 1 seed: point"
    for draw in (pictures.frequency_figure, pictures.slope_figure):
        assert "<svg" in figure_svg(draw(document))


def test_a_planted_slope_is_found_and_told(models: dict[str, Model]) -> None:
    n = torch.tensor(np.maximum(DATA.entity_counts, 1).tolist(), dtype=torch.float64)
    planted = Strengths(2.0 * n**0.3, models["em"].learned.relations)
    group = [(fit_cell(), search_cell())]
    document = by_frequency(group, load(models | {"em": replace(models["em"], learned=planted)}), "")
    found = document["strengths"]["entities"]
    assert found["slope"] == pytest.approx(0.3) and found["scale"] == pytest.approx(2.0)
    assert found["rare_under_regularised"] > 0.5 and found["frequent_over_regularised"] == 1.0
    assert [each["entities"]["slope"] for each in document["by_seed"]] == [pytest.approx(0.3)]
    row = slope_table([document]).rows[0]
    assert row[5:7] == ["0.30", "0.00"] and row[-2:] == ["yes", "yes"], "without noise there is no error"
    with pytest.raises(InputError, match="no fit"):
        by_frequency([], load(models), "")
    other = random_model(random_graph(seed=5))
    with pytest.raises(InputError, match="are of different facts"):
        by_frequency(group, load(models | {"search": other}), "")


# two models together


def test_two_models_answer_together_as_the_mean_of_their_scores_does() -> None:
    made = {seed: random_model(DATA, seed=seed) for seed in (3, 4, 5)}
    cells = [*(search_cell(seed) for seed in made), fit_cell(4), fit_cell(9)]
    (group,) = together.groups(cells).values()
    assert [each["seed"] for each in group[0]] == [3, 4, 5] and [fit["seed"] for fit in group[1]] == [4]
    heard: list[Any] = []
    document = together.together_document(
        group, lambda cell: made[cell["seed"]], "kgem ...", lambda *told: heard.append(told)
    )
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert [told[0] for told in heard[:2]] == ["pair 1 of 3, ranking valid", "pair 1 of 3, ranking test"]
    assert len(heard) == 6 and all(done == total > 0 for _, done, total in heard)
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
    (row,) = together.together_table([document]).rows
    assert row[1:3] == ["conventional, one given strength", "0, 1"]
    assert row[3:] == ["0.400 ± 0.141", "0.450", *["0.500 ± 0.000", "0.600 ± 0.000"], "+0.050", "+0.150"], (
        "one pair has no interval"
    )
    fits = [{"seed": seed, "single": figures_of(0.5), "blend": figures_of(0.6)} for seed in (0, 2)]
    (row,) = together.together_table([document | {"fits": fits}]).rows
    assert row[2] == "0, 1; 0, 2"


def test_the_interval_of_a_blends_gain_knows_that_pairs_share_models() -> None:
    """Against many repetitions: a pair has the mean of its models' figures, a blend its own."""
    rng = np.random.default_rng(0)
    for n in (3, 6):
        models, blends = rng.normal(size=(2, 2000, n))
        answers = (models + np.roll(models, 1, axis=1)) / 2
        both = zip(answers.tolist(), blends.tolist(), strict=True)
        halves = np.array([together._half_width(*each) for each in both])
        missed = np.abs(blends.mean(1) - answers.mean(1)) > halves
        assert 0.005 < missed.mean() < 0.06
    assert together._half_width([0.5], [0.5, 0.6]) is None is together._half_width([0.5, 0.6, 0.5], [0.5])


def test_one_seed_is_no_pair_and_a_search_comes_first() -> None:
    assert together.groups([search_cell(0), fit_cell(0)]) == {}
    assert together.groups([search_cell(0), search_cell(1), fit_cell(2)]) == {}
    given = [cell("conventional", seed) for seed in (0, 1)]
    (group,) = together.groups([*given, search_cell(0), fit_cell(0)]).values()
    assert [each["variant"] for each in group[0]] == ["conventional"] * 2
    (group,) = together.groups([*given, search_cell(0), search_cell(1), fit_cell(0)]).values()
    assert [each["variant"] for each in group[0]] == ["search"] * 2
    with pytest.raises(InputError, match="no two models"):
        together.together_document(([], []), lambda cell: random_model(DATA), "", lambda *told: None)


def test_what_the_start_and_the_strengths_bring_is_of_the_same_seeds() -> None:
    def arm(*mrrs: float) -> list[dict[str, Any]]:
        more = {"mix": [0, 3]}
        return [more | {"point": {"test": {"mrr": mrr}}, "blend": {"test": {"mrr": mrr + 0.1}}} for mrr in mrrs]

    document = {
        **{"graph": "tiny", "model": "complex", "dim": 4, "seeds": [0, 1, 2]},
        **{"ordinary": arm(0.2, 0.4, 0.3), "fresh": arm(0.1, 0.1, 0.1)},
        **{"warm": arm(0.25, 0.46, 0.36), "fit": arm(0.3, 0.4, 0.35)},
    }
    table = apart.apart_table([document])
    alone, blend = table.rows
    assert alone[:4] == ["tiny, ComplEx, K = 4", "re-trained model alone", "0, 1, 2", "0.300 ± 0.100"]
    assert alone[4:7] == ["0.357 ± 0.105", "0.350 ± 0.050", "3, 3, 3"]
    half = 4.303 * np.std([0.05, 0.06, 0.06], ddof=1) / math.sqrt(3)
    assert alone[7] == f"+0.057 ({0.17 / 3 - half:+.3f} to {0.17 / 3 + half:+.3f})"
    assert table.bold == {(0, 7)}, "the strengths bring +0.05, -0.06 and -0.01: nothing that is clear"
    assert blend[:4] == ["", "blend with the means of q", "", "0.200 ± 0.000"] and blend[-1] == alone[-1]
    one = {name: [each[0]] for name, each in document.items() if isinstance(each, list)}
    assert apart.apart_table([document | one]).rows[0][-2:] == ["+0.050", "+0.050"]


def test_fits_have_controls_of_the_same_seeds() -> None:
    fits = [fit_cell(seed) for seed in (2, 0, 1)]
    names = [fit["name"] for fit in fits]
    arms = {"fresh": {name: {"arm": name} for name in names}, "warm": {name: {"arm": name} for name in names[:2]}}
    ((mine, beside),) = apart.groups(fits, arms)
    assert [fit["seed"] for fit in mine] == [0, 2], "a fit that lacks a control is left out"
    assert beside == {arm: [{"arm": fit["name"]} for fit in mine] for arm in arms}


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
                temperature = model.temperature(mode)  # the same for all measures of doubt
                each = torch.stack([(scores_of(s, h, r)[left] / temperature).softmax(0) for s in model.samples])
                mixed = each.mean(0)
                information = _entropy(mixed) - sum(_entropy(p) for p in each) / len(each)
                assert found["information"][i] == pytest.approx(information, abs=1e-9)
                first = each[:, int(scores.argmax())]
                assert found["spread"][i] == pytest.approx(float(first.std(correction=0) / first.mean()))
            elif mode == "blend":
                scores = ((scores_of(model.point, h, r) + scores_of(model.mean, h, r)) / 2)[left]
            else:
                scores = scores_of(model.tables(mode), h, r)[left]
            p = (scores / model.temperature(mode)).softmax(0)
            assert found["confidence"][i] == pytest.approx(float(p.max()))
            assert found["entropy"][i] == pytest.approx(_entropy(p))
            place = 1 + sum(float(s) > float(scores[left.index(t)]) for s in scores)
            assert found["reciprocal_rank"][i] == pytest.approx(1 / place)
            assert found["right"][i] == (place == 1)


def _entropy(p: torch.Tensor) -> float:
    return -sum(x * math.log(x) for x in p.tolist() if x > 0)


def test_the_area_under_the_curve_counts_pairs() -> None:
    rng = np.random.default_rng(0)
    values, wrong = rng.integers(5, size=40).astype(float), rng.random(40) < 0.4
    pairs = [(w > r) + 0.5 * (w == r) for w in values[wrong] for r in values[~wrong]]
    assert area_under_roc(values, wrong) == pytest.approx(float(np.mean(pairs)))
    assert area_under_roc(values, np.ones(40, dtype=bool)) is None


def test_calibration_of_all_modes(models: dict[str, Model]) -> None:
    heard: list[str] = []
    document = calibration_document(fit_cell(), models["em"], "kgem ...", lambda what, *_: heard.append(what))
    assert list(document["modes"]) == list(MODES) and len(heard) == len(MODES)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    for found in document["modes"].values():
        assert sum(row["n"] for row in found["bins"]) == document["questions"] == 2 * len(DATA.test)
        assert sorted(found["tenths"]["entropy"]) == found["tenths"]["entropy"]
        assert 0 <= found["calibration"]["ece"] <= 1
        assert 0 < found["ece_by_chance"]["mean"] < found["ece_by_chance"]["most"]
    assert len(calibration_table([document]).rows) == len(MODES)
    assert calibration_table([document | {"modes": {"point": _just_right(document)}}]).bold == {(0, 5)}
    assert doubt_table([document]).rows
    assert "<svg" in figure_svg(pictures.calibration_figure(document))


def _just_right(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["modes"]["point"]
    return found | {"calibration": found["calibration"] | {"ece": found["ece_by_chance"]["most"]}}


# the page


@pytest.fixture
def results(tmp_path: Path, models: dict[str, Model]) -> Path:
    found = {
        "table1": [search_cell(), fit_cell()],
        "search": [compare_costs([(search_cell(), fit_cell())], "kgem reproduce search")],
        "frequency": [by_frequency([(fit_cell(), search_cell())], load(models), "kgem reproduce frequency")],
        "calibration": [calibration_document(fit_cell(), models["em"], "kgem reproduce calibration", lambda *_: None)],
    }
    used = {
        "frequency": [fit_cell(), search_cell()],
        "search": [search_cell(), fit_cell()],
        "calibration": [fit_cell()],
    }
    for folder, documents in found.items():
        for document in documents:
            whole = made_from(document, used[folder]) if folder in used else document
            write_json(tmp_path / folder / f"{document['name']}.json", whole)
    return tmp_path


def test_the_page_keeps_the_prose_and_has_every_figure(results: Path) -> None:
    names = ("table1", "aims", "details", "search", "frequency", "strengths", "calibration", "doubt", "sources")
    template = "Prose.\n" + "".join(f"\n{{{{{name}}}}}\n" for name in names)
    template += "\nThe MRR is {{value table1/tiny-complex-4-em-0.json metrics.blend.test.mrr .2f}}.\n"
    template += "{{mrr tiny-complex-4-em blend}}, {{both tiny-complex-4-em-0 single}}"
    page = results_page(template, results, "pictures")
    assert page.text.startswith("Prose.\n") and page.text.endswith("The MRR is 0.60.\n0.600, 0.450 / 0.550")
    assert "*Not measured yet.*" not in page.text and "*No graph of Table 1" in page.text
    assert "kgem reproduce calibration" in page.text and "`runs/em-0`" in page.text
    for name, draw in page.pictures.items():
        assert f"](pictures/{name})" in page.text and "<svg" in figure_svg(draw())
    assert len(page.pictures) == 4
    assert results_page(template, results, "pictures").text == page.text


def test_a_page_says_what_is_not_measured_and_is_not_made_of_nothing(tmp_path: Path) -> None:
    template = "{{together}}\n{{apart}}\n{{search}}\n{{frequency}}\n{{strengths}}\n{{calibration}}\n{{doubt}}\n"
    with pytest.raises(InputError, match="no results in this folder"):
        results_page(template, tmp_path)
    write_json(tmp_path / "table1" / "tiny-complex-4-em-0.json", fit_cell())
    page = results_page(template, tmp_path)
    assert page.text.count("*Not measured yet.*") == 7 and not page.pictures


def test_every_source_has_its_runs_and_time(results: Path) -> None:
    rows = [line for line in results_page("{{sources}}", results).text.splitlines() if line.startswith("| `")]
    cells = {line.split("`")[1].split("/")[0]: [cell.strip() for cell in line.split("|")[3:-1]] for line in rows}
    assert set(cells) == {"table1", "search", "frequency", "calibration"}
    for folder in ("search", "frequency"):
        assert {"`runs/search-0`", "`runs/em-0`"} == set(cells[folder][0].split(", "))
        assert cells[folder][-3:] == ["1, 2", "50", "420"], "threads, epochs and seconds of both cells"
    assert cells["calibration"][0] == "`runs/em-0`" and cells["calibration"][-3:] == ["1", "10", "20"]


@pytest.mark.parametrize(
    ("folder", "used"), [("search", "search"), ("search", "em"), ("frequency", "search"), ("calibration", "em")]
)
def test_what_is_older_than_its_cells_is_refused_with_its_command(folder: str, used: str, results: Path) -> None:
    path = results / "table1" / f"tiny-complex-4-{used}-0.json"
    cell = json.loads(path.read_text())
    path.write_text(json.dumps(cell))
    assert results_page("{{search}}", results).text, "the same cell, laid out otherwise"
    for each in ("search", "frequency", "calibration"):
        for file in [] if each == folder else [*(results / each).iterdir()]:
            file.unlink()
    cell["metrics"]["point"]["test"]["mrr"] += 0.01
    path.write_text(json.dumps(cell))
    with pytest.raises(InputError, match=f"{cell['name']}, which has changed since") as told:
        results_page("{{table1}}", results)
    assert folder in str(told.value) and f"make it again: kgem reproduce {folder}" in str(told.value)
    path.unlink()
    with pytest.raises(InputError, match=f"{cell['name']}, which is not there"):
        results_page("{{table1}}", results)


def test_what_an_older_version_wrote_is_refused_with_its_command(results: Path) -> None:
    path = results / "search" / "tiny-complex-4.json"
    document = json.loads(path.read_text())
    del document["ratio"]["work"]
    write_json(path, document)
    with pytest.raises(InputError, match="written by another version") as told:
        results_page("{{table1}}", results)
    assert "make it again: kgem reproduce search" in str(told.value)


def test_what_does_not_say_what_it_was_made_from_is_refused(results: Path) -> None:
    path = results / "search" / "tiny-complex-4.json"
    write_json(path, {k: v for k, v in json.loads(path.read_text()).items() if k != "sources"})
    with pytest.raises(InputError, match="does not say which cells"):
        results_page("{{table1}}", results)


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{nothing}}", "one of table1"),
        ("{{value a.json}}", "a value with 1 words"),
        ("{{value table1/none.json a .3f}}", "cannot be had"),
        ("{{value table1/tiny-complex-4-em-0.json metrics.none .3f}}", "cannot be had"),
        ("{{value table1/tiny-complex-4-em-0.json name .3f}}", "cannot be had"),
        ("{{mrr tiny-complex-4-em}}", "the template has"),
        ("{{mrr tiny-complex-4 auto}}", "which no cell has"),
        ("{{both tiny-complex-4-search-0 blend}}", "which no cell has"),
    ],
)
def test_a_template_that_asks_for_what_is_not_there(template: str, said: str, results: Path) -> None:
    with pytest.raises(InputError, match=said):
        results_page(template, results)
