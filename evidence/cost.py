"""The search that kgem replaces: what it found and what it cost, beside one fit of the same seed.

Search and fit are credited alike, at every epoch that was validated: with the best so far of whatever the log followed.
That is one model in every trial of a search and in pre-training and EM of a fit; in re-training it is the blend of two
if the fit's settings say so, and then the blend has a line of its own.

An epoch of EM takes longer than one of a point estimate. `work` counts each epoch of a fit as the many ordinary ones
that it took the time of: by the medians of its own phases, which ran under the same conditions.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from evidence.documents import Document
from evidence.engine import VALIDATION_QUERIES
from evidence.naming import Key, about, key_of
from evidence.pictures import cost_figure
from evidence.rows import chosen_mode, kept_figures
from evidence.study import Group, Load, OnMeasuring, Picture, Study
from evidence.table1 import FEWEST_TRIALS
from evidence.tables import Table, bold, gain, mean_and_spread, most_seeds

QUARTER = 0.25  # of the search's cost is what we allow a fit
COSTS = ("epochs", "work")
SHORT = f"of its first {FEWEST_TRIALS} trials' work"
ROWS = {"search": "search, {} trials", "fit": "one kgem fit, one model", "auto": "the same fit, mode auto"}


def select(cells: Sequence[Document]) -> Iterator[Group]:
    """Search and fit with the same seed and facts, by graph, model and dimension."""

    def whose(cell: Document) -> tuple[Key, int, str]:
        return key_of(cell), cell["seed"], cell["facts"]["hash"]

    fits = {whose(cell): cell for cell in cells if cell["variant"] == "em"}
    groups: dict[Key, tuple[list[Document], list[Document]]] = {}
    searches = (cell for cell in cells if cell["variant"] == "search" and whose(cell) in fits)
    for cell in sorted(searches, key=lambda cell: int(cell["seed"])):
        both = groups.setdefault(key_of(cell), ([], []))
        both[0].append(cell)
        both[1].append(fits[whose(cell)])
    for found, beside in groups.values():
        yield {"search": found, "fit": beside}


def measure(group: Group, load: Load, on_measuring: OnMeasuring) -> dict[str, Any]:
    """Both sides of each seed, and their ratios."""
    seeds = [_compare(*pair) for pair in zip(group["search"], group["fit"], strict=True)]
    ratios = {name: statistics.fmean(seed["ratio"][name] for seed in seeds) for name in COSTS}
    gains = {split: statistics.fmean(seed["gain"][split] for seed in seeds) for split in ("valid", "test")}
    return {
        "trials": sorted({len(search["trials"]) for search in group["search"]}),
        "ratio": ratios,
        "gain": gains,
        "seeds": seeds,
    }


def _compare(search: Document, fit: Document) -> dict[str, Any]:
    one, other = _search_side(search), _fit_side(fit)
    return {
        "seed": search["seed"],
        "search": one,
        "fit": other,
        "ratio": {name: other[name] / one[name] for name in COSTS},
        "gain": {split: other[split]["mrr"] - one[split]["mrr"] for split in ("valid", "test")},
    }


def _search_side(cell: Document) -> dict[str, Any]:
    """A search one trial after the other; a trial that failed costs, and finds nothing."""
    trials = cell["trials"]
    found = [mrr for each in trials for mrr in (each["curve"]["mrr"] if each["mrr"] else [None] * each["epochs"])]
    ends = [each["mrr"] or 0.0 for each in trials]
    side = _side(cell, "point", _curve(found))
    return side | {
        "strength": cell["strength"]["value"],
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
        "phases": cell["epochs"],
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
        "cell": cell["name"],
        "mode": mode,
        **kept_figures(cell, mode),
        "epochs": sum(cell["epochs"].values()),
        "seconds": cell["seconds"],
        "curve": curve,
    }


def cost_table(documents: Sequence[Document]) -> Table:
    """A row for the search, the fit's one model and its mode auto, and whether the fit kept within a quarter."""
    rows = []
    for document in documents:
        trials = " or ".join(map(str, document["trials"]))  # seeds may have searched for longer than others
        for what, words in ROWS.items():
            test, is_fit = _mrrs(document, what, "test"), what != "search"
            work, short = _shares(document) if is_fit else ("", "")
            rows.append(
                {
                    "graph and model": about(document),
                    "what": words.format(trials),
                    "seeds": str(len(test)),
                    "valid MRR": mean_and_spread(_mrrs(document, what, "valid")),
                    "test MRR": mean_and_spread(test),
                    "beyond the search": gain(_mrrs(document, "search", "test"), test) if is_fit else "",
                    **{name: f"{_mean(document, what, name):,.0f}" for name in ("epochs", "seconds")},
                    "of its epochs": f"{document['ratio']['epochs']:.0%}" if is_fit else "",
                    "of its work": work,
                    SHORT: short,
                    "met": _verdict(document, what) if is_fit else "",
                }
            )
    ems = [seed["fit"]["of_one_epoch"].get("em", 1.0) for document in documents for seed in document["seeds"]]
    note = (
        "Means over seeds. Beyond the search: on test, fit by fit of the same seed, with a 95 % interval over seeds "
        "(Student's t), bold where it excludes zero. Work is epochs, but one of EM counts as the ordinary ones that it "
        f"took the time of ({min(ems):.1f} to {max(ems):.1f}). Met: on validation at least the best of the whole "
        f"search, with at most a quarter of its work; no verdict on fewer than {FEWEST_TRIALS} trials. Curves are of "
        f"{VALIDATION_QUERIES:,} validation questions where a graph has more."
    )
    return Table("Search and fit", rows, 2, note)


def summary(documents: Sequence[Document]) -> Table:
    """One row for each graph and model, the one with the most seeds, of searches that are long enough."""
    rows = []
    for document in most_seeds([each for each in documents if min(each["trials"]) >= FEWEST_TRIALS]):
        search, fit, auto = (_mrrs(document, what, "test") for what in ROWS)
        work, short = _shares(document)
        rows.append(
            {
                "graph and model": about(document),
                "seeds": str(len(search)),
                "trials": " or ".join(map(str, document["trials"])),
                "the search": mean_and_spread(search),
                "one fit, one model": gain(search, fit),
                "one fit, `auto`": gain(search, auto),
                "cost of the fit": work,
                f"if the search stops after {FEWEST_TRIALS}": short,
            }
        )
    note = (
        "Test MRR of the search, and what the fit has beyond it, with a 95 % interval over seeds (bold where it "
        "excludes zero). Cost: the work of the fit as a share of the search's."
    )
    return Table("One fit and a search", rows, 1, note)


def _of(seed: Document, what: str) -> Document:
    """One side of a seed; what auto chose cost what the fit did."""
    fit: Document = seed["fit"]
    return seed["search"] if what == "search" else fit if what == "fit" else {**fit, **fit["auto"]}


def _mrrs(document: Document, what: str, split: str) -> list[float]:
    return [_of(seed, what)[split]["mrr"] for seed in document["seeds"]]


def _mean(document: Document, what: str, name: str) -> float:
    return statistics.fmean(_of(seed, what)[name] for seed in document["seeds"])


def _shares(document: Document) -> tuple[str, str]:
    """What the fit took of a search's work, and of that of its first trials if there are enough."""
    both = [(seed["fit"]["work"], seed["search"]["trials"]["epochs"]) for seed in document["seeds"]]
    enough = all(len(ends) >= FEWEST_TRIALS for _, ends in both)
    short = f"{statistics.fmean(fit / ends[FEWEST_TRIALS - 1] for fit, ends in both):.0%}" if enough else ""
    return f"{document['ratio']['work']:.0%}", short


def _verdict(document: Document, what: str) -> str:
    """Whether it is at least as good on validation as the search, for a quarter of the work."""
    if min(document["trials"]) < FEWEST_TRIALS:
        return "too few trials"
    both = zip(_mrrs(document, what, "valid"), _mrrs(document, "search", "valid"), strict=True)
    reached = statistics.fmean(fit - search for fit, search in both) >= 0
    return "yes" if reached and document["ratio"]["work"] <= QUARTER else bold("no")


SEARCH = Study(
    name="search",
    folder="search",
    kind="kgem-search-cost",
    asks="The search that kgem replaces, beside one fit: what both found, and what both cost.",
    needs="search with a fit of the same seed beside it",
    variants=("em", "search"),
    makes=True,
    select=select,
    measure=measure,
    tables=(cost_table,),
    pictures=(Picture("search", ".svg", "validation MRR against epochs spent, search and fit", cost_figure),),
)
