"""Cells of Table 1: made, stopped, killed and gone on with to the same figures; tables from their JSON files."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from driving import complete
from evidence.cells import VARIANTS, Cell, Variant, cells, changed_settings, graph_name, read_cells
from evidence.documents import write_json
from evidence.fits import SETTLED, CellMaker, discard_cell, keep_the_best
from evidence.page import between_marks
from evidence.published import published
from evidence.rows import Row, rows_of
from evidence.table1 import aims, behind, one_model, quality, table1
from evidence.tables import mean_and_spread
from kgem.answer.model import Model
from kgem.answer.modes import MODES
from kgem.config import Config
from kgem.errors import InputError
from kgem.runs.configure import configure
from kgem.runs.fitting import Prepared
from kgem.runs.run import Run
from kgem.train.budget import longest, within_budget
from kgem.train.phases import LEAST_BETA
from obvious import random_graph

GRAPH = Prepared(random_graph(), None)
CELL = Cell("random", "complex", 3, "em", 0, 3)
PHASE = {"epochs": 2, "batch_size": 40, "patience": 9}
BASE: dict[str, Any] = {
    "pretrain": {**PHASE, "candidates": (1.0,)},
    "em": {**PHASE, "settled": 0.0},
    "retrain": {**PHASE, "candidates": ((1.0, 0.0), (1.0, 1.0)), "trial_epochs": 1, "fall_back": False},
    "distil": PHASE,
    "run": {"checkpoint_seconds": 0.0, "threads": 1, "products": "exact"},
}
MADE = ("conventional", "search", "em")
UNTIMED = {"seconds", "finished", "machine", "curve", "trials", "run", "versions"}
pytestmark = pytest.mark.usefixtures("one_thread")


def base() -> Config:
    return configure(None, BASE)


def maker(out: Path, carry_on: Callable[[Run], Model] = complete, **more: Any) -> CellMaker:
    return CellMaker(base=base(), out=out, carry_on=carry_on, tell=lambda text: None, **more)


def made(out: Path, variant: str = "em", **more: Any) -> dict[str, Any]:
    return maker(out, **more).make(replace(CELL, variant=variant), GRAPH, "kgem ...")


def figures(document: dict[str, Any]) -> dict[str, Any]:
    """What must not depend on time nor on how often the cell was stopped."""
    trials = [{k: v for k, v in t.items() if k not in ("seconds", "curve")} for t in document.get("trials", [])]
    return {key: value for key, value in document.items() if key not in UNTIMED} | {"tried": trials}


class Stopped(Exception):
    """As when the user presses Ctrl-C."""


def stopping_after(epochs: int) -> Callable[[Run], Model]:
    def carry_on(run: Run) -> Model:
        for _ in run.epochs():
            if len(run.records) >= epochs:
                run.save()
                raise Stopped
        return run.finish()

    return carry_on


# cells


@pytest.mark.parametrize("variant", MADE)
def test_a_cell_has_its_figures_and_where_they_come_from(variant: str, tmp_path: Path) -> None:
    document = made(tmp_path, variant)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    curves = [trial["curve"] for trial in document["trials"]] if variant == "search" else [document["curve"]]
    assert sum(document["epochs"].values()) == sum(len(curve["mrr"]) for curve in curves) >= 2 * len(curves)
    assert document["epochs"]["em"] == (2 if variant == "em" else 0)
    modes = tuple(MODES) if variant == "em" else ("point",)
    assert tuple(document["metrics"]) == modes and document["mode"] in modes
    with Run.open(Path(document["run"])) as run:
        model = run.model()
    assert model is not None
    for mode in modes:
        expected = model.evaluate("test", mode).to_dict()
        assert document["metrics"][mode]["test"]["mrr"] == expected["overall"]["mrr"]
        assert document["metrics"][mode]["valid"]["n"] == 2 * len(GRAPH.data.valid)
    assert document["facts"]["hash"] == GRAPH.data.content_hash
    assert document["seconds"] > 0 and {"kgem", "torch", "python"} <= document["versions"].keys()


def test_the_variants_differ_in_what_they_say(tmp_path: Path) -> None:
    conventional, search = made(tmp_path, "conventional"), made(tmp_path, "search")
    assert conventional["config"]["pretrain"]["strength"] == base().pretrain.strength
    assert set(conventional["curve"]["candidate"]) == {0}, "no race: the strength is given"
    best = max(search["trials"], key=lambda trial: trial["mrr"])
    assert search["strength"]["value"] == best["strength"] == search["config"]["pretrain"]["strength"]
    assert best["mrr"] == pytest.approx(search["metrics"]["point"]["valid"]["mrr"])
    keep_the_best(conventional)
    keep_the_best(search)
    kept = sorted(path.name for path in (tmp_path / search["name"]).glob("trial-*"))
    assert kept == [f"trial-{best['number']:03d}"], "the runs of the others are removed"
    assert Path(conventional["run"]).is_dir()
    assert [len(trial["curve"]["mrr"]) for trial in search["trials"]] == [trial["epochs"] for trial in search["trials"]]


def test_a_cell_says_what_its_fit_settled_on(tmp_path: Path) -> None:
    document = made(tmp_path / "runs")
    curve = document["curve"]
    rows = zip(curve["phase"], curve["candidate"], curve["mrr"], strict=True)
    _, winner = max((mrr, -candidate) for phase, candidate, mrr in rows if phase == "retrain")
    assert tuple(document["mix"]) == base().retrain.candidates[-winner] and document["shared"] == 1.0
    assert document["beta"] == LEAST_BETA, "so small a graph is tempered as far as that goes"
    assert not set(SETTLED) & made(tmp_path / "runs", "conventional").keys(), "it has nothing to settle"


def test_a_new_variant_is_one_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ordinary = VARIANTS["conventional"]
    twice = Variant(ordinary.changes, "published", width=2, labels={"point": "conventional, twice the K"})
    monkeypatch.setitem(VARIANTS, "twice", twice)
    document = made(tmp_path, "twice")
    assert document["config"]["model"]["dim"] == 2 * CELL.dim == 2 * document["dim"]
    assert document["name"] == "random-complex-3-twice-0" and tuple(document["metrics"]) == ("point",)
    assert document["strength"]["value"] == document["config"]["pretrain"]["strength"]


@pytest.mark.parametrize(("variant", "start"), [("ordinary", "warm"), ("fresh", "fresh"), ("warm", "warm")])
def test_controls_are_the_same_fit_with_nothing_learned(variant: str, start: str, tmp_path: Path) -> None:
    fit, control = made(tmp_path), made(tmp_path, variant)
    assert control["config"]["retrain"]["start"] == start
    if variant == "ordinary":
        assert control["epochs"] == fit["epochs"] | {"em": 0, "retrain": 0} and tuple(control["metrics"]) == ("point",)
    else:
        assert control["mix"][0] == 0.0, "nothing of the learned strengths"
        assert control["metrics"]["mean"] == fit["metrics"]["mean"], "the same fit up to the end of EM"


@pytest.mark.parametrize(("variant", "epochs"), [("em", 1), ("em", 5), ("search", 1), ("conventional", 1)])
def test_a_stopped_cell_goes_on_to_the_same_figures(variant: str, epochs: int, tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        made(tmp_path / "a", variant, carry_on=stopping_after(epochs))
    assert figures(made(tmp_path / "a", variant)) == figures(made(tmp_path / "b", variant))


def _killed(out: str, variant: str, epochs: int) -> None:
    torch.set_num_threads(1)
    heard = 0

    def carry_on(run: Run) -> Model:
        nonlocal heard
        for _ in run.epochs():
            heard += 1
            if heard == epochs:
                os.kill(os.getpid(), signal.SIGKILL)
        return run.finish()

    made(Path(out), variant, carry_on=carry_on)


@pytest.mark.parametrize(("variant", "epochs"), [("em", 4), ("search", 3)])
def test_a_killed_cell_goes_on_to_the_same_figures(variant: str, epochs: int, tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["evidence.fits", "torch._dynamo", "pytest", "obvious", "optuna"])
    process = context.Process(target=_killed, args=(str(tmp_path / "a"), variant, epochs))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert figures(made(tmp_path / "a", variant)) == figures(made(tmp_path / "b", variant))


def test_a_search_can_be_made_longer_and_goes_on_from_its_trials(tmp_path: Path) -> None:
    short = maker(tmp_path / "a").make(replace(CELL, variant="search", trials=2), GRAPH, "")
    keep_the_best(short)
    ran: list[Path] = []

    def noting(run: Run) -> Model:
        ran.append(run.folder)
        return complete(run)

    longer = maker(tmp_path / "a", noting).make(replace(CELL, variant="search"), GRAPH, "kgem ...", short["trials"])
    assert [path.name for path in ran] == ["trial-003"]
    assert longer["trials"][:2] == short["trials"]
    assert figures(longer) == figures(made(tmp_path / "b", "search"))


def test_a_search_refuses_another_range_and_can_begin_anew(tmp_path: Path) -> None:
    made(tmp_path, "search")
    with pytest.raises(InputError, match=r"begun with another pretrain\.strength"):
        made(tmp_path, "search", strengths=(1e-2, 1.0))
    discard_cell(replace(CELL, variant="search"), tmp_path)
    assert made(tmp_path, "search", strengths=(1e-2, 1.0))["strengths"] == [1e-2, 1.0]


@pytest.mark.parametrize("change", ["pretrain.learning_rate", "graph or split"])
def test_trials_of_other_settings_or_facts_are_not_gone_on_with(change: str, tmp_path: Path) -> None:
    """The JSON of the search may be in another folder, so that only its run folders can tell."""
    short, longer = (replace(CELL, variant="search", trials=trials) for trials in (1, 2))
    maker(tmp_path).make(short, GRAPH, "")
    changed = "." in change
    other = replace(maker(tmp_path), base=configure(base(), {change: 0.2} if changed else {}))
    with pytest.raises(InputError, match=f"begun with another {change}"):
        other.make(longer, GRAPH if changed else Prepared(random_graph(seed=5), None), "")
    assert len(maker(tmp_path).make(longer, GRAPH, "")["trials"]) == 2


def test_a_run_of_another_graph_or_with_other_settings_is_refused(tmp_path: Path) -> None:
    document = made(tmp_path, "conventional")
    cell = replace(CELL, variant="conventional")
    with pytest.raises(InputError, match="another graph"):
        maker(tmp_path).make(cell, Prepared(random_graph(seed=5), None), "")
    other = replace(maker(tmp_path), base=configure(base(), {"pretrain.learning_rate": 0.2}))
    with pytest.raises(InputError, match=r"begun with another pretrain\.learning_rate"):
        other.make(cell, GRAPH, "")
    assert changed_settings(document, cell, other.base) == ["pretrain.learning_rate"]
    assert changed_settings(document, cell, configure(base(), {"run.threads": 7})) == []
    tempered = configure(base(), {"em.beta": 0.5})
    assert changed_settings(document, cell, tempered) == [], "it has no EM"
    again = replace(maker(tmp_path), base=tempered).make(cell, GRAPH, "")
    assert figures(again) == figures(document) | {"command": ""}


def test_a_setting_that_is_newer_than_a_cell_is_not_what_it_would_be_now() -> None:
    def cell(seed: int) -> dict[str, Any]:
        config = CELL.settings(configure(base(), {"seed": seed})).model_dump(mode="json")
        return document("umls", "em", seed, 0.8, config=config)

    older, newer = cell(0), cell(1)
    del older["config"]["retrain"]["fall_back"], older["config"]["run"]["products"], older["config"]["distil"]
    del older["config"]["train"], older["config"]["run"]["remeasure"]
    assert changed_settings(older, CELL, base()) == ["retrain.fall_back"], (
        "products were exact then, and nothing distilled"
    )
    distilled = replace(CELL, variant="distil")
    assert "distil.epochs" in changed_settings({**older, "variant": "distil"}, distilled, base())
    rounded = configure(base(), {"run.products": "bfloat16"})
    assert "run.products" in changed_settings(newer, CELL, rounded), "rounding shows in figures"
    assert all(row.seeds == [0] for row in rows_of([older, newer])), "the two are not averaged"
    assert changed_settings({**older, "config": {**older["config"], "gone": 1}}, CELL, base()) == [
        "retrain.fall_back",
        "gone",
    ]


def test_names_of_graphs_and_cells() -> None:
    assert [graph_name(name) for name in ("FB15k-237", "a/b/My Graph.tsv", "..")] == ["fb15k-237", "my-graph", "graph"]
    made = cells(["umls", "nations"], [("complex", 5), ("distmult", 10)], ["em", "search"], [0, 1], 4)
    assert len(made) == len({cell.name for cell in made}) == 16
    assert made[0].name == "umls-complex-5-em-0" and made[-1].name == "nations-distmult-10-search-1"
    with pytest.raises(InputError, match="the same name"):
        cells(["umls", "other/umls"], [("complex", 5)], ["em"], [0], 4)
    with pytest.raises(InputError, match="no variant is called 'mean'"):
        cells(["umls"], [("complex", 5)], ["mean"], [0], 4)


def test_a_budget_is_not_kept_for_phases_without_epochs() -> None:
    conventional = replace(CELL, variant="conventional").settings(configure(None, {}))
    assert longest(within_budget(conventional, "pretrain", 1.0, 50.0), "pretrain") == 1 + 45
    shared = replace(CELL, variant="search").settings(configure(None, {"run.time_budget": 90.0}))
    assert shared.run.time_budget == 30.0


# published figures


def test_published_strengths_are_those_of_the_nearest_size() -> None:
    n3 = published()
    assert n3.strength("fb15k-237", "complex", 100, 0.5).value == pytest.approx(4.7622 * 5e-2)
    assert n3.strength("fb15k", "complex", 120, 0.5).value == pytest.approx(4.7622 * 7.5e-4)
    assert n3.strength("fb15k", "distmult", 200, 0.5).value == pytest.approx(4.7622 * 7.5e-4), "half as many pairs"
    for graph in ("umls", "factor", "strengths"):
        assert n3.strength(graph, "complex", 100, 0.5).value == 0.5, "whatever a graph is called"


def test_the_penalty_of_the_published_strength_is_that_of_its_authors() -> None:
    """kbc adds reg * ||x||^3 of head, relation and tail of each augmented fact; ours is Eq. 8 with strength * n.

    The two weigh entities against relations differently. What a model feels of that is the least penalty among all
    models with its scores, E -> a E and R -> R / a^2.
    """
    from kgem.model.prior import Prior, conventional_strengths

    data, reg, prior = GRAPH.data, 0.05, Prior(3, complex=True)
    generator = torch.Generator().manual_seed(0)
    entities = torch.randn(data.n_entities, 6, generator=generator, dtype=torch.float64)
    relations = 0.3 * torch.randn(2 * data.n_relations, 6, generator=generator, dtype=torch.float64)
    facts = torch.from_numpy(data.reciprocal(data.train)).long()
    counts = (data.entity_counts, np.tile(data.relation_counts, 2))
    strength = float(published().n3["factor"]) * reg
    # ours also holds symbols that no fact shows
    lam = [conventional_strengths(n, strength, torch.float64) * torch.from_numpy(n > 0) for n in counts]

    def theirs(a: float) -> float:
        of_entities, of_relations = prior.norm(a * entities), prior.norm(relations / a**2)
        each = of_entities[facts[:, 0]] + of_relations[facts[:, 1]] + of_entities[facts[:, 2]]
        return reg * float(each.sum())

    def ours(a: float) -> float:
        scaled = (a * entities, relations / a**2)
        return sum(float(prior.penalty(x, each)) for x, each in zip(scaled, lam, strict=True))

    scales = np.exp(np.linspace(-2, 2, 2001))
    least = [min(penalty(float(a)) for a in scales) for penalty in (theirs, ours)]
    assert least[1] == pytest.approx(least[0], rel=1e-4)
    assert ours(1.0) != pytest.approx(theirs(1.0), rel=0.01), "as they stand the two differ"


def test_published_figures_name_their_sources() -> None:
    assert {figure.source for figure in published().figures} <= published().sources.keys()
    paper = {(f.model, f.graph): f.mrr for f in published().figures if f.who == "the paper, after variational EM"}
    assert len(paper) == 8 and str(paper["complex", "fb15k-237"]) == "0.365"
    assert {f.text for f in published().figures} >= {"0.365 / 0.560", "0.452 / 0.530", "0.35 / 0.54"}, "as published"


# tables


def document(graph: str, variant: str, seed: int, mrr: float, **more: Any) -> dict[str, Any]:
    """A cell as far as tables look at it."""
    figures = {"n": 10, "mrr": mrr, "mean_rank": 3.0, "hits_at_1": mrr / 2, "hits_at_3": mrr, "hits_at_10": mrr + 0.2}
    modes = {"point": 0.0, "mean": -0.1, "bayes": -0.2, "blend": 0.01} if variant == "em" else {"point": 0.0}
    return {
        "kind": "kgem-table1-cell",
        "version": 1,
        "name": f"{graph}-complex-100-{variant}-{seed}",
        "graph": graph,
        "model": "complex",
        "dim": 100,
        "variant": variant,
        "seed": seed,
        "mode": "point",
        "metrics": {
            mode: {"valid": figures | {"mrr": mrr + by}, "test": figures | {"mrr": mrr + by}}
            for mode, by in modes.items()
        },
        "epochs": {"pretrain": 10, "em": 20, "retrain": 5},
        "seconds": 60.0,
        "run": "nowhere",
        "facts": {"hash": "0123"},
        **more,
    }


DOCUMENTS = [
    document("fb15k-237", "em", 0, 0.353),
    document("fb15k-237", "em", 1, 0.355),
    document("fb15k-237", "conventional", 0, 0.34),
    document("wn18rr", "em", 0, 0.465, mode="blend"),
    document("umls", "search", 0, 0.9, trials=[{}] * 12),
]


def test_tables_have_means_spread_and_the_published_figures_beside_them(tmp_path: Path) -> None:
    for each in DOCUMENTS:
        write_json(tmp_path / f"{each['name']}.json", each)
    assert read_cells(tmp_path) == sorted(DOCUMENTS, key=lambda each: f"{each['name']}.json")
    paper, _ = table1(DOCUMENTS)
    assert paper.cell("100", "kgem, after EM: point (re-trained)", "fb15k-237") == "0.354 ± 0.001 / 0.554 ± 0.001 (2)"
    best = next(row for row in paper.rows if "blend" in row["who"])
    assert best["fb15k-237"] == "**0.364 ± 0.001 / 0.554 ± 0.001 (2)**"
    assert best["wn18rr"].endswith("0.475 / 0.665**")
    assert "0.365 / 0.560" in paper.markdown() and "0.35 / 0.54" in paper.markdown()
    assert len({line.count("|") for line in paper.markdown().splitlines() if line.startswith("|")}) == 1


def test_rows_are_gathered_over_seeds_and_auto_is_what_the_fit_chose() -> None:
    rows = {(row.key[0], row.label): row for row in rows_of([*DOCUMENTS, document("umls", "em", 3, 0.8, mode="blend")])}
    assert rows["fb15k-237", "after EM: point (re-trained)"].seeds == [0, 1]
    assert rows["umls", "after EM: auto"].mean("mrr") == pytest.approx(0.81)
    assert rows["umls", "after EM: auto without blend"].mean("mrr") == pytest.approx(0.8)
    assert [table.title for table in table1(DOCUMENTS)] == ["Table 1", "Other graphs"]


def test_cells_that_other_settings_made_are_not_averaged() -> None:
    def cell(seed: int, mrr: float, **changes: Any) -> dict[str, Any]:
        config = configure(None, {"seed": seed, **changes}).model_dump(mode="json")
        return document("umls", "em", seed, mrr, config=config)

    mixed = [
        cell(0, 0.8),
        cell(1, 0.6, **{"em.beta": 0.3}),
        cell(2, 0.9, **{"run.threads": 1, "run.time_budget": 60.0}),
    ]
    assert {tuple(row.seeds) for row in rows_of(mixed)} == {(0, 2)}, "of the settings that most of them have"
    (table,) = table1(mixed)
    assert table.cell("kgem, after EM: point (re-trained)", "umls")[:13] == "0.850 ± 0.071"
    searches = [document("umls", "search", seed, 0.9, trials=[{}] * n) for seed, n in enumerate((12, 30, 30))]
    assert [(row.trials, row.seeds) for row in rows_of(searches)] == [(30, [1, 2])]
    strengths = {"pretrain.strength": 0.2}, {"pretrain.strength": 0.5}
    configs = [configure(None, each).model_dump(mode="json") for each in strengths]
    for variant, n in {"search": 2, "conventional": 1}.items():
        found = [document("umls", variant, seed, 0.9, config=config) for seed, config in enumerate(configs)]
        (row,) = rows_of(found)
        assert len(row.seeds) == n, "a search chooses its strength; a given one makes another cell"
    other = [document("umls", "em", seed, 0.9, facts={"hash": f"{seed}"}) for seed in (0, 1)]
    assert all(len(row.seeds) == 1 for row in rows_of(other)), "other facts"


def test_the_best_is_chosen_on_validation() -> None:
    one, two = document("umls", "em", 0, 0.8, mode="blend"), document("umls", "em", 1, 0.7, mode="blend")
    one["metrics"]["mean"]["test"]["mrr"] = 0.99
    (table,) = table1([one, two])
    blend = "kgem, after EM: blend of point and mean"
    assert [row["who"] for row in table.rows if "**" in row["umls"]] == [blend], "not the best on test"


def test_a_row_of_some_of_its_seeds() -> None:
    row: Row = next(row for row in rows_of(DOCUMENTS) if row.label == "after EM: point (re-trained)")
    assert row.values("mrr") == [0.353, 0.355] and row.values("mrr", seeds=[1, 5]) == [0.355]


def test_aims_are_met_or_missed_by_unrounded_means() -> None:
    table = aims(DOCUMENTS)
    assert {row["graph and model"]: (row["reached"], row["reached by `auto`"]) for row in table.rows} == {
        "fb15k-237, ComplEx, K = 100": ("yes", "yes"),
        "wn18rr, ComplEx, K = 100": ("**no**", "yes"),
    }
    assert table.rows[0]["published by"] == "Lacroix et al., grid-searched N3, same K"
    assert table.cell("fb15k-237, ComplEx, K = 100", "ours, published strength") == "0.340 / 0.540"
    assert table.cell("wn18rr, ComplEx, K = 100", "ours, published strength") == ""
    assert not aims([document("umls", "em", 0, 0.9)]).rows
    (unsized,) = aims([document("wn18rr", "em", 0, 0.465, model="distmult", dim=200)]).rows
    assert unsized["published by"] == "LibKGE, K not given"


def test_the_readme_has_one_row_for_each_graph_over_common_seeds() -> None:
    fits = [document("world", "em", seed, mrr, mode="blend") for seed, mrr in enumerate((0.9, 0.8, 0.1))]
    searches = [document("world", "search", seed, 0.7, trials=[{}] * 12) for seed in (0, 1, 7)]
    smaller = document("fb15k-237", "em", 0, 0.3, dim=50, mode="mean")
    alone = [document("nations", "em", 0, 0.9), document("umls", "em", 0, 0.9, model="distmult")]
    rows = quality([*DOCUMENTS, *fits, *searches, smaller, *alone]).rows
    given, known = "0.340 (its published value)", "0.35 (kbc), 0.348 (libkge)"
    assert [list(row.values()) for row in rows] == [
        ["fb15k-237, ComplEx, K = 100", given, "0.353 (not distilled)", "0.353", known],
        ["world, ComplEx, K = 100", "0.700 ± 0.000 (12 trials)", "0.850 ± 0.071 (not distilled)", "0.860 ± 0.071", ""],
    ]
    students = [document("world", "distil", seed, mrr) for seed, mrr in enumerate((0.88, 0.78))]
    (row,) = quality([*fits, *searches, *students]).rows
    assert row["one fit, one model"] == "0.830 ± 0.071"
    (row,) = quality([*fits, *searches, students[0]]).rows
    assert row["one fit, one model"] == "0.850 ± 0.071 (not distilled)", "not of all seeds"
    short = document("fb15k-237", "search", 0, 0.29, dim=50, trials=[{}] * 11)
    assert not quality([smaller, short]).rows, "too few trials to be called a search"
    searched = short | {"trials": [{}] * 12}
    assert [row["one shared strength, by search"] for row in quality([smaller, searched]).rows] == ["0.290 (12 trials)"]
    given = [document("fb15k-237", "conventional", seed, 0.31, dim=50) for seed in (0, 1)]
    told = quality([smaller, *given, searched]).rows[0]["one shared strength, by search"]
    assert told == "0.290 (12 trials)", "a search goes before a given strength"
    assert not quality([smaller, given[1]]).rows, "of no common seed"
    guess = [document("world", variant, 0, 0.5, dim=20) for variant in ("em", "conventional")]
    assert not quality(guess).rows, "nobody published that strength"


def test_one_model_stands_beside_ordinary_ones_of_its_size_and_of_twice_that() -> None:
    fits = [document("umls", "distil", seed, mrr) for seed, mrr in enumerate((0.9, 0.92, 0.94))]
    searches = [document("umls", "search", seed, 0.8, trials=[{}] * 12) for seed in (0, 1, 7)]
    given = [document("umls", "conventional", seed, 0.1) for seed in (0, 1)]
    twice = [document("umls", "conventional", 5, 0.2, dim=200), document("umls", "conventional", 1, 0.3, dim=200)]
    (row,) = one_model([*fits, *searches, *given, *twice, document("world", "em", 0, 0.5)]).rows
    assert row["graph and model"] == "umls, ComplEx, K = 100" and row["seeds"] == "3"
    assert row["one ordinary model"] == "0.800 ± 0.000", "a search goes before a given strength"
    assert row["it has beyond that"] == "+0.110 (-0.017 to +0.237)", "of the seeds that both have"
    assert row["an ordinary model of 2 K"] == "0.250 ± 0.071"
    (alone,) = one_model([fits[2], *searches]).rows
    assert (alone["one ordinary model"], alone["it has beyond that"]) == ("", ""), "of no common seed"


def test_aims_are_held_against_the_distilled_model_where_there_is_one() -> None:
    (row,) = (
        row
        for row in aims([*DOCUMENTS, document("wn18rr", "distil", 0, 0.6)]).rows
        if "wn18rr" in row["graph and model"]
    )
    assert row["one fit, one model"].startswith("0.600") and row["reached"] == "yes"


def test_rows_are_behind_where_one_model_has_less_than_an_ordinary_one() -> None:
    fits = [document("umls", "em", 0, 0.8, mode="blend"), document("nations", "em", 0, 0.8)]
    others = [document("umls", "conventional", 0, 0.9), document("nations", "conventional", 0, 0.7)]
    (row,) = behind([*fits, *others]).rows
    assert row["graph and model"] == "umls, ComplEx, K = 100" and row["one model's loss"] == "-0.100"
    assert (row["one ordinary model"], row["one fit, one model"], row["one fit, `auto`"]) == ("0.900", "0.800", "0.810")


def test_what_is_between_marks_is_replaced() -> None:
    text = "Before.\n\n<!-- results begin -->\nold\n<!-- results end -->\n\nAfter.\n"
    again = between_marks(between_marks(text, "newer\n"), "new\n")
    assert again == text.replace("old", "new")


def test_mean_and_spread() -> None:
    assert mean_and_spread([0.5]) == "0.500" and mean_and_spread([0.4, 0.6]) == "0.500 ± 0.141"
    assert mean_and_spread([]) == ""


def test_files_that_are_no_cells_are_refused(tmp_path: Path) -> None:
    assert read_cells(tmp_path) == [] == read_cells(tmp_path / "nowhere")
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(InputError, match="is not JSON"):
        read_cells(tmp_path)
    write_json(tmp_path / "a.json", {"kind": "other"})
    with pytest.raises(InputError, match="not a document of kind kgem-table1-cell"):
        read_cells(tmp_path)
    write_json(tmp_path / "a.json", {**DOCUMENTS[0], "version": 99})
    with pytest.raises(InputError, match="another version"):
        read_cells(tmp_path)
