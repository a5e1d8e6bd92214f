"""The search that kgem replaces: what it found and what it cost, beside one fit, from cells of Table 1.

Search and fit are credited alike, at every epoch that was validated: with the best so far of whatever the log followed.
That is one model in every trial of a search and in pre-training and EM of a fit; in re-training it is the blend of two
if the fit's settings say so, and then the blend has a line of its own, and the one model is seen again only when the
fit is over. What a run took beside its epochs is shared out over them, so that both lines end at the whole cost.

An epoch of EM takes longer than one of a point estimate. `work` counts each epoch of a fit as the many ordinary ones
that it took the time of: by the medians of its own phases, which ran under the same conditions.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from evidence.documents import Document
from evidence.naming import about
from evidence.origin import evidence
from evidence.rows import Key, chosen_mode, kept_figures
from evidence.tables import Table, gain, mean_and_spread
from kgem.errors import InputError
from kgem.runs.fitting import VALIDATION_QUERIES

__all__ = ["FEWEST_TRIALS", "KIND", "compare_costs", "cost_table", "pairs"]

KIND = "kgem-search-cost"
QUARTER = 0.25  # of the search's cost is what we allow a fit
FEWEST_TRIALS = 12  # of a search that a fit is held against
PACE = 1.3  # how far the seconds of an ordinary epoch may differ between runs whose seconds are compared
COSTS = ("epochs", "work", "seconds")
COLUMNS = (
    *("graph and model", "what", "seeds", "valid MRR", "test MRR", "beyond the search"),
    *("epochs", "seconds", "epochs to the best"),
)

Curve = dict[str, list[float]]


def pairs(documents: Sequence[Document]) -> dict[Key, list[tuple[Document, Document]]]:
    """Search and fit with the same seed and facts, by graph, model and dimension."""
    found: dict[Key, list[tuple[Document, Document]]] = {}
    fits = {_key(each): each for each in documents if each["variant"] == "em"}
    for each in documents:
        if each["variant"] == "search" and _key(each) in fits:
            found.setdefault(_key(each)[:3], []).append((each, fits[_key(each)]))
    return {key: sorted(group, key=lambda pair: pair[0]["seed"]) for key, group in found.items()}


def _key(document: Document) -> tuple[str, str, int, int, str]:
    return document["graph"], document["model"], document["dim"], document["seed"], document["facts"]["hash"]


def compare_costs(group: Sequence[tuple[Document, Document]], command: str) -> dict[str, Any]:
    """The JSON of one graph, model and dimension: both sides of each seed, and their ratios."""
    if not group:
        raise InputError(
            "there is no search with a fit beside it", remedy="make cells: kgem reproduce table1 --data ..."
        )
    seeds = [_compared(*pair) for pair in group]
    ratios = {name: statistics.fmean(seed["ratio"][name] for seed in seeds) for name in COSTS}
    gains = {split: statistics.fmean(seed["gain"][split] for seed in seeds) for split in ("valid", "test")}
    content = {
        "trials": sorted({len(each["trials"]) for each, _ in group}),
        "ratio": ratios,
        "seconds_compare": all(_ran_alike(*pair) for pair in group),
        "gain": gains,
        "reached": gains["valid"] >= 0 and ratios["work"] <= QUARTER,
        "seeds": seeds,
    }
    return evidence(KIND, group[0][0], command, content)


def _carried_out(document: Document) -> tuple[Any, ...]:
    """What makes a run faster or slower and nothing else: threads, and how products are computed."""
    run = document["config"]["run"]
    return run.get("threads"), run.get("products") or "exact"


def _ran_alike(search: Document, fit: Document) -> bool:
    """Whether seconds compare: the same threads and products, and a machine that was about as busy with other work."""
    trials = [seconds for trial in search["trials"] for seconds in trial["curve"]["seconds"]]
    pace = statistics.median(trials) / _pace(fit["curve"], "pretrain")
    return _carried_out(search) == _carried_out(fit) and 1 / PACE <= pace <= PACE


def _pace(curve: Document, phase: str) -> float:
    """Seconds of an epoch of a phase, which has some."""
    both = zip(curve["seconds"], curve["phase"], strict=True)
    return float(statistics.median(seconds for seconds, each in both if each == phase))


def _work(fit: Document) -> dict[str, Any]:
    """The ordinary epochs that a fit took the time of, in all and for an epoch of each phase."""
    ordinary = _pace(fit["curve"], "pretrain")
    of_one = {phase: _pace(fit["curve"], phase) / ordinary for phase, n in fit["epochs"].items() if n}
    return {"work": sum(fit["epochs"][phase] * each for phase, each in of_one.items()), "of_one_epoch": of_one}


def _compared(search: Document, fit: Document) -> dict[str, Any]:
    sides = {"search": _search_side(search), "fit": _fit_side(fit)}
    one, other = sides["search"], sides["fit"]
    return {
        "seed": search["seed"],
        **sides,
        "ratio": {name: other[name] / one[name] for name in COSTS},
        "gain": {split: other[split]["mrr"] - one[split]["mrr"] for split in ("valid", "test")},
        "epochs_to_the_best": _epochs_to_the_best(one, other),
    }


def _epochs_to_the_best(search: Document, fit: Document) -> dict[str, float | None]:
    """What each had spent when it first was as good as the best of the search; None if it never was.

    Logged figures are held against the best logged one, as both may be of a sample of validation, and the figures of
    what the fit leaves behind against those of what the search does.
    """
    best = search["curve"]["best"][-1]
    end = {
        name: [fit["epochs"]] if found["valid"]["mrr"] >= search["valid"]["mrr"] else []
        for name, found in {"fit": fit, "auto": fit["auto"]}.items()
    }
    logged = _first(fit["curve"], best)
    together = [] if fit["blend"] is None else _first(fit["blend"], best)
    return {
        "search": min(_first(search["curve"], best)),
        "fit": min([*logged, *end["fit"]], default=None),
        "auto": min([*logged, *together, *end["auto"]], default=None),
    }


def _search_side(document: Document) -> dict[str, Any]:
    """A search one trial after the other; a trial that failed costs, and finds nothing."""
    curve, ends = _Line(), _Line()
    for trial in document["trials"]:
        before, columns = curve.spent(), trial["curve"]
        mrrs = columns["mrr"] if trial["mrr"] is not None else [None] * trial["epochs"]
        for epoch, (mrr, seconds) in enumerate(zip(mrrs, _shared_out(columns, trial["seconds"]), strict=True), 1):
            curve.add(before[0] + epoch, before[1] + seconds, mrr)
        ends.add(*curve.spent(), trial["mrr"])
    side = _side(document, "point", curve)
    return side | {"work": side["epochs"], "trials": {**ends.columns(), "mrr": ends.found}}


def _fit_side(document: Document) -> dict[str, Any]:
    """A fit epoch by epoch: the line of one model, that of the blend, and the one model that the fit leaves behind."""
    columns, one, blend = document["curve"], _Line(), _Line()
    together = document["config"]["retrain"]["judge"] == "blend" and "em" in columns["phase"]
    spent = _shared_out(columns, document["seconds"])
    for epoch, (phase, mrr, seconds) in enumerate(zip(columns["phase"], columns["mrr"], spent, strict=True), 1):
        (blend if together and phase == "retrain" else one).add(epoch, seconds, mrr)
    return _side(document, chosen_mode(document, "single"), one) | {
        **_work(document),
        "blend": blend.columns() if blend.found else None,
        "phases": document["epochs"],
        "auto": {"mode": document["mode"], **kept_figures(document, document["mode"])},
    }


class _Line:
    """The best so far against epochs and seconds spent."""

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.seconds: list[float] = []
        self.found: list[float] = []  # 0 where nothing was measured

    def add(self, epochs: int, seconds: float, mrr: float | None) -> None:
        """Mutates: what was found when so much was spent."""
        self.epochs.append(epochs)
        self.seconds.append(round(seconds, 3))
        self.found.append(mrr or 0.0)

    def spent(self) -> tuple[int, float]:
        return (self.epochs[-1], self.seconds[-1]) if self.epochs else (0, 0.0)

    def columns(self) -> Curve:
        return {"epochs": [*self.epochs], "seconds": [*self.seconds], "best": [*accumulate(self.found, max)]}


def _shared_out(columns: Document, total: float) -> list[float]:
    """Seconds spent after each epoch, the last of them all that the run took."""
    spent = list(accumulate(columns["seconds"]))
    return [each * total / spent[-1] for each in spent] if spent and spent[-1] else spent


def _side(document: Document, mode: str, line: _Line) -> dict[str, Any]:
    return {
        "cell": document["name"],
        "mode": mode,
        **kept_figures(document, mode),
        "epochs": sum(document["epochs"].values()),
        "seconds": document["seconds"],
        "curve": line.columns(),
        **({"strength": document["strength"]["value"]} if "strength" in document else {}),
    }


def _first(curve: Mapping[str, Sequence[float]], best: float) -> list[float]:
    """Epochs spent when the curve first reaches a value; nothing if it never does."""
    return [epochs for epochs, value in zip(curve["epochs"], curve["best"], strict=True) if value >= best][:1]


def cost_table(documents: Sequence[Document]) -> Table:
    """One row for the search and one for the fit of each graph, and whether the fit kept within a quarter."""
    lines: list[list[str]] = []
    bold: set[tuple[int, int]] = set()
    for document in documents:
        trials = " or ".join(map(str, document["trials"]))  # seeds may have searched for longer than others
        rows = {"search": f"search, {trials} trials", "fit": "one kgem fit"}
        if any(seed["fit"]["auto"]["mode"] != seed["fit"]["mode"] for seed in document["seeds"]):
            rows["auto"] = "the same fit, mode auto"
        for what, words in rows.items():
            figures, clear = _figures(document, what)
            beside = [""] * 5 if what == "search" else [*_shares(document), _verdict(document, what)]
            bold |= {(len(lines), 5)} if clear else set()
            bold |= {(len(lines), len(COLUMNS) + 4)} if beside[-1] == "no" else set()
            lines.append([about(document), words, str(len(document["seeds"])), *figures, *beside])
    ems = [seed["fit"]["of_one_epoch"].get("em", 1.0) for document in documents for seed in document["seeds"]]
    notes = [
        "Means over seeds. Beyond the search: on test, fit by fit of the same seed, with a 95 % interval over seeds "
        "(Student's t), bold where it excludes zero. Epochs to the best: spent when it first was as good on validation "
        "as the search's best; both are looked at after every epoch. While a fit re-trains for the blend, its one "
        f"model is not looked at. That look, as in the pictures, is at {VALIDATION_QUERIES:,} validation questions if "
        "a graph has more; figures in the table are of all of them.",
        "The last columns: what the fit took of the search's cost, and whether it reached at least the best of the "
        "whole search on validation with at most a quarter of its work. Work is epochs, too, but one of EM counts as "
        f"the ordinary ones that it took the time of ({min(ems):.1f} to {max(ems):.1f}); that is also held against a "
        f"search that had stopped after {FEWEST_TRIALS} trials. The fit's own row is that of one model; mode auto may "
        "have chosen the blend of two that the fit leaves behind. No share of seconds where threads or products "
        "differ, or where the machine was busier with other work in one of them, and no verdict on a search of fewer "
        f"than {FEWEST_TRIALS} trials.",
    ]
    shares = ["of its epochs", "of its work", f"of its first {FEWEST_TRIALS} trials' work", "of its seconds"]
    return Table("Search and fit", [*COLUMNS, *shares, "met"], lines, 2, frozenset(bold), notes)


def _figures(document: Document, what: str) -> tuple[list[str], bool]:
    """The columns of a row that are its own, and whether it is clearly ahead of the search or behind it on test."""
    sides = [seed["fit"]["auto"] if what == "auto" else seed[what] for seed in document["seeds"]]
    valid, test = ([side[split]["mrr"] for side in sides] for split in ("valid", "test"))
    search = [seed["search"]["test"]["mrr"] for seed in document["seeds"]]
    beyond, clear = ("", False) if what == "search" else gain(search, test)
    means = [
        f"{statistics.fmean(side[key] for side in sides):,.0f}" for key in ("epochs", "seconds") if key in sides[0]
    ]
    reached = _spent([seed["epochs_to_the_best"][what] for seed in document["seeds"]])
    return [mean_and_spread(valid), mean_and_spread(test), beyond, *(means or ["", ""]), reached], clear


def _reached(document: Document, what: str) -> bool:
    """Whether it is at least as good on validation as the search, for a quarter of the cost."""
    if what == "fit":
        return bool(document["reached"])
    gains = [seed["fit"]["auto"]["valid"]["mrr"] - seed["search"]["valid"]["mrr"] for seed in document["seeds"]]
    return statistics.fmean(gains) >= 0 and document["ratio"]["work"] <= QUARTER


def _shares(document: Document) -> list[str]:
    """What the fit took of a search's epochs and work, of a short search's, and of the seconds if both ran alike."""
    seconds = f"{document['ratio']['seconds']:.0%}" if document["seconds_compare"] else ""
    both = [(seed["fit"]["work"], seed["search"]["trials"]["epochs"]) for seed in document["seeds"]]
    enough = all(len(ends) >= FEWEST_TRIALS for _, ends in both)
    short = f"{statistics.fmean(fit / ends[FEWEST_TRIALS - 1] for fit, ends in both):.0%}" if enough else ""
    return [*(f"{document['ratio'][name]:.0%}" for name in ("epochs", "work")), short, seconds]


def _verdict(document: Document, what: str) -> str:
    if min(document["trials"]) < FEWEST_TRIALS:
        return "too few trials"
    return "yes" if _reached(document, what) else "no"


def _spent(epochs: Sequence[float | None]) -> str:
    """The mean over the seeds that got there, and how many did not."""
    there = [each for each in epochs if each is not None]
    missing = f"{len(epochs) - len(there)} of {len(epochs)} never" if len(there) < len(epochs) else ""
    return ", ".join(filter(None, [f"{statistics.fmean(there):,.0f}" if there else "", missing]))
