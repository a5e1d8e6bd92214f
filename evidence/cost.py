"""The search that kgem replaces: what it found and what it cost, beside one fit of the same seed.

Search and fit are credited alike, at every epoch that was validated: with the best so far of whatever the log followed.
That is one model in every trial of a search and in pre-training and EM of a fit; in re-training it is the blend of two
if the fit's settings say so, and then the blend has a line of its own.

An epoch of EM takes longer than one of a point estimate. `work` counts each epoch of a fit as the many ordinary ones
that it took the time of: by the medians of its own phases, which ran under the same conditions.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from evidence.documents import Document, about
from evidence.rows import chosen_mode, kept_figures, side_by_side
from evidence.study import Group, Load, Study
from evidence.table1 import FEWEST_TRIALS
from evidence.tables import Table, gain, mean_and_spread, most_seeds
from kgem.evaluate.validation import VALIDATION_QUERIES
from kgem.report.figures.drawing import BLUE, PURPLE, RED, empty_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIDES = ("search", "fit", "auto")
SHORT = f"if the search stops after {FEWEST_TRIALS}"


def measure(group: Group, load: Load) -> dict[str, Any]:
    """Both sides of each seed, and what the fits took of the searches' work."""
    seeds = [
        {"seed": search["seed"], "search": _search_side(search), "fit": _fit_side(fit)}
        for search, fit in zip(group["search"], group["fit"], strict=True)
    ]
    return {
        "trials": sorted({len(search["trials"]) for search in group["search"]}),
        "ratio": {"work": statistics.fmean(seed["fit"]["work"] / seed["search"]["work"] for seed in seeds)},
        "seeds": seeds,
    }


def _search_side(cell: Document) -> dict[str, Any]:
    """A search one trial after the other; a trial that failed costs, and finds nothing."""
    trials = cell["trials"]
    found = [mrr for each in trials for mrr in (each["curve"]["mrr"] if each["mrr"] else [None] * each["epochs"])]
    ends = [each["mrr"] or 0.0 for each in trials]
    side = _side(cell, "point", _curve(found))
    return side | {
        "work": side["epochs"],
        "trials": {
            "epochs": [*accumulate(each["epochs"] for each in trials)],
            "best": [*accumulate(ends, max)],
            "mrr": ends,
        },
    }


def _fit_side(cell: Document) -> dict[str, Any]:
    """A fit epoch by epoch: the line of one model, that of the blend, and the one model that the fit leaves behind."""
    columns = cell["curve"]
    together = cell["config"]["retrain"]["judge"] == "blend" and "em" in columns["phase"]
    n = len(columns["mrr"]) - together * columns["phase"].count("retrain")
    ordinary = _pace(columns, "pretrain")
    of_one = {phase: _pace(columns, phase) / ordinary for phase, epochs in cell["epochs"].items() if epochs}
    return _side(cell, chosen_mode(cell, "single"), _curve(columns["mrr"][:n])) | {
        "work": sum(cell["epochs"][phase] * each for phase, each in of_one.items()),
        "of_one_epoch": of_one,
        "blend": _curve(columns["mrr"][n:], n) if columns["mrr"][n:] else None,
        "auto": {"mode": cell["mode"], **kept_figures(cell, cell["mode"])},
    }


def _pace(curve: Document, phase: str) -> float:
    """Seconds of an epoch of a phase, which has some."""
    both = zip(curve["seconds"], curve["phase"], strict=True)
    return float(statistics.median(seconds for seconds, each in both if each == phase))


def _curve(mrrs: Sequence[float | None], after: int = 0) -> dict[str, list[float]]:
    """The best so far against epochs spent; 0 where nothing was measured yet."""
    best = [*accumulate((mrr or 0.0 for mrr in mrrs), max)]
    return {"epochs": [*range(after + 1, after + len(best) + 1)], "best": best}


def _side(cell: Document, mode: str, curve: Document) -> dict[str, Any]:
    return {
        "mode": mode,
        **kept_figures(cell, mode),
        "epochs": sum(cell["epochs"].values()),
        "seconds": cell["seconds"],
        "curve": curve,
    }


def cost_table(documents: Sequence[Document]) -> Table:
    """A row per graph, model and dimension: what the search found, what the fit has beyond it, and what both cost."""
    rows = []
    for document in documents:
        search, fit, auto = (_mrrs(document, what, "test") for what in SIDES)
        before, one, chosen = (_mrrs(document, what, "valid") for what in SIDES)
        rows.append(
            {
                "graph and model": about(document),
                "seeds": str(len(search)),
                "trials": " or ".join(map(str, document["trials"])),
                "the search": mean_and_spread(search),
                "one fit, one model": gain(search, fit),
                "one fit, `auto`": gain(search, auto),
                "cost of the fit": f"{document['ratio']['work']:.0%}",
                SHORT: _share_of_first_trials(document),
                "the search on validation": mean_and_spread(before),
                "one model on validation": gain(before, one),
                "`auto` on validation": gain(before, chosen),
                **{f"{name}, search and fit": _means(document, name) for name in ("epochs", "seconds")},
            }
        )
    ems = [seed["fit"]["of_one_epoch"].get("em", 1.0) for document in documents for seed in document["seeds"]]
    note = (
        "MRR of the search, and what the fit of the same seed has beyond it: on test, then on validation. Means over "
        "seeds, with a 95 % interval (Student's t), bold where it excludes zero. Cost: the work of the fit as a share "
        "of the search's. Work is epochs, but one of EM counts as the ordinary ones that it took the time of "
        f"({min(ems):.1f} to {max(ems):.1f}). Curves are of {VALIDATION_QUERIES:,} validation questions where a graph "
        "has more."
    )
    return Table("Search and fit", rows, 1, note)


def summary(documents: Sequence[Document]) -> Table:
    """Of each graph and model the row with the most seeds, of searches that are long enough, as far as test goes."""
    long = most_seeds([each for each in documents if min(each["trials"]) >= FEWEST_TRIALS])
    rows = [dict(list(row.items())[:8]) for row in cost_table(long).rows] if long else []
    note = (
        "Test MRR of the search, and what the fit has beyond it, with a 95 % interval over seeds (bold where it "
        "excludes zero). Cost: the work of the fit as a share of the search's."
    )
    return Table("One fit and a search", rows, 1, note)


def _mrrs(document: Document, what: str, split: str) -> list[float]:
    sides = [seed["fit"]["auto"] if what == "auto" else seed[what] for seed in document["seeds"]]
    return [side[split]["mrr"] for side in sides]


def _means(document: Document, name: str) -> str:
    both = (statistics.fmean(seed[what][name] for seed in document["seeds"]) for what in ("search", "fit"))
    return " and ".join(f"{each:,.0f}" for each in both)


def _share_of_first_trials(document: Document) -> str:
    """What the fit took of the work of a search's first trials, if it has so many."""
    both = [(seed["fit"]["work"], seed["search"]["trials"]["epochs"]) for seed in document["seeds"]]
    if any(len(ends) < FEWEST_TRIALS for _, ends in both):
        return ""
    return f"{statistics.fmean(fit / ends[FEWEST_TRIALS - 1] for fit, ends in both):.0%}"


def cost_figure(document: Document) -> Figure:
    """Validation MRR against epochs spent: the best so far of the search, of the fit's one model and of its blend."""
    seeds = document["seeds"]
    firsts = [min(filter(None, seed["search"]["trials"]["best"])) for seed in seeds]
    ends = [curve["best"][-1] for seed in seeds for curve, *_ in _lines(seed)]
    low, high = min(*ends, statistics.median(firsts)), max(ends)
    margin = max(high - low, 0.02)
    with style():
        figure = empty_figure(7.0, 3.9)
        axes = figure.subplots()
        for place, seed in enumerate(seeds):  # further seeds are fainter and without names
            alpha, trials = 0.25 if place else 1.0, seed["search"]["trials"]
            for curve, colour, name in _lines(seed):
                label = None if place else name
                axes.step(curve["epochs"], curve["best"], where="post", color=colour, alpha=alpha, label=label)
            label = None if place else "one trial of the search"
            axes.scatter(trials["epochs"], trials["mrr"], s=12, color=RED, alpha=0.5 * alpha, linewidths=0, label=label)
        axes.set(xlabel="epochs spent", ylabel="validation MRR (filtered), best so far")
        axes.set(ylim=(low - 1.5 * margin, high + 0.3 * margin))
        axes.set_xlim(left=0)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=2)
        return figure


def _lines(seed: Document) -> list[tuple[Document, str, str]]:
    """The curve, colour and name of the search, of one model of the fit, and of its blend if it has one."""
    search, fit = seed["search"], seed["fit"]
    lines = [(search["curve"], RED, "search"), (fit["curve"], BLUE, "one kgem fit, one model")]
    return lines + ([(fit["blend"], PURPLE, "the same fit, blend of two models")] if fit["blend"] else [])


SEARCH = Study(
    name="search",
    folder="search",
    kind="kgem-search-cost",
    asks="The search that kgem replaces, beside one fit: what both found, and what both cost.",
    needs="search with a fit of the same seed beside it",
    variants=("em", "search"),
    select=partial(side_by_side, search="search", fit="em"),
    measure=measure,
    tables=(cost_table,),
    draw=cost_figure,
    shows="validation MRR against epochs spent, search and fit",
)
