"""Cells of Table 1 gathered over seeds: only those whose settings are the same are averaged."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from evidence.cells import settings_of
from evidence.documents import Document

__all__ = [
    "AUTO",
    "BASELINES",
    "CHOSEN",
    "LABELS",
    "SINGLE",
    "Key",
    "Row",
    "alike",
    "chosen_mode",
    "kept_figures",
    "largest_alike",
    "rows_of",
]

AUTO, SINGLE = "after EM: auto", "after EM: auto without blend"
ONE_MODEL = ("point", "mean", "bayes")  # modes of one model; a blend of two has twice the numbers of its dimension
LABELS = {
    ("conventional", "point"): "conventional, one given strength",
    ("search", "point"): "best shared strength of a search",
    ("em", "point"): "after EM: point (re-trained)",
    ("em", "mean"): "after EM: mean of q",
    ("em", "bayes"): "after EM: bayes (averaged over q)",
    ("em", "blend"): "after EM: blend of point and mean",
    ("em", "single"): SINGLE,
    ("em", "auto"): AUTO,
}
BASELINES = ("search", "conventional")  # what EM is compared with: the first that there is
CHOSEN = (SINGLE, AUTO)  # not further ways to predict, but which of the others was best on validation

Key = tuple[str, str, int]  # graph, model, dimension


@dataclass(frozen=True)
class Row:
    """One graph, model, dimension and variant, over its seeds."""

    graph: str
    model: str
    dim: int
    label: str
    settings: str  # what tells it from rows of the same name that other settings made; empty if there are none
    seeds: tuple[int, ...]
    modes: tuple[str, ...]  # by seed, how it predicts
    autos: tuple[str, ...]  # by seed, the mode that the fit chose
    valid: tuple[dict[str, Any], ...]  # figures by seed
    test: tuple[dict[str, Any], ...]
    epochs: tuple[int, ...]
    seconds: tuple[float, ...]
    trials: int | None  # of a search

    @property
    def name(self) -> str:
        """The label, with the settings if there are others."""
        return f"{self.label} [{self.settings}]" if self.settings else self.label

    @property
    def n_auto(self) -> int:
        """How many of the fits chose to predict this way."""
        return sum(mode == auto for mode, auto in zip(self.modes, self.autos, strict=True))

    @property
    def repeats(self) -> bool:
        """Whether its figures are those of another row: a choice that is the same for all seeds."""
        return self.label == SINGLE or (self.label == AUTO and len(set(self.modes)) == 1)

    def values(self, name: str, split: str = "test", seeds: Sequence[int] | None = None) -> list[float]:
        """One figure of each seed, or of some of them."""
        by_seed = zip(self.seeds, getattr(self, split), strict=True)
        return [float(each[name]) for seed, each in by_seed if seeds is None or seed in seeds]

    def mean(self, name: str, split: str = "test") -> float:
        return statistics.fmean(self.values(name, split))


def rows_of(documents: Sequence[Document]) -> list[Row]:
    """The cells gathered over seeds, in the order of LABELS; `auto` is what each fit chose on validation."""
    cells: dict[tuple[str, str, int, str], list[Document]] = {}
    for document in sorted(documents, key=lambda each: int(each["seed"])):
        key = (document["graph"], document["model"], document["dim"], document["variant"])
        cells.setdefault(key, []).append(document)
    rows = []
    for variant, mode in LABELS:
        for key, group in cells.items():
            if key[3] == variant:
                rows += [_row(mode, text, same) for text, same in alike(group) if _measured(same, mode)]
    return rows


def chosen_mode(document: Document, mode: str) -> str:
    """The mode that is meant: what the fit chose, or what it would have chosen among those of one model."""
    if mode == "auto":
        return str(document["mode"])
    if mode != "single":
        return mode
    found = {each: document["metrics"][each]["valid"]["mrr"] for each in ONE_MODEL if each in document["metrics"]}
    return max(found, key=lambda each: float(found[each]))


def kept_figures(document: Document, mode: str) -> dict[str, dict[str, Any]]:
    """Of a cell in a mode, what is kept of its figures where cells are compared, by split."""
    names = ("n", "mrr", "hits_at_1", "hits_at_10")
    return {split: {name: figures[name] for name in names} for split, figures in document["metrics"][mode].items()}


def _measured(documents: Sequence[Document], mode: str) -> list[Document]:
    return [each for each in documents if chosen_mode(each, mode) in each["metrics"]]


def alike(documents: Sequence[Document]) -> Iterator[tuple[str, list[Document]]]:
    """The cells that the same settings made, and the settings by which they differ from the others."""
    groups: dict[str, list[Document]] = {}
    for document in documents:
        groups.setdefault(json.dumps(_what_matters(document), sort_keys=True), []).append(document)
    settings = [_what_matters(group[0]) for group in groups.values()]
    names = sorted({name for each in settings for name in each})
    differing = [name for name in names if len({_told(each, name) for each in settings}) > 1]
    for each, group in zip(settings, groups.values(), strict=True):
        yield ", ".join(_told(each, name) for name in differing), group


def largest_alike(documents: Sequence[Document]) -> dict[tuple[Key, str], list[Document]]:
    """By graph, model and dimension, and by variant, the cells of the settings that most of them have."""
    cells: dict[tuple[Key, str], list[Document]] = {}
    for each in documents:
        cells.setdefault(((each["graph"], each["model"], each["dim"]), each["variant"]), []).append(each)
    return {key: max((group for _, group in alike(found)), key=len) for key, found in cells.items()}


def _told(settings: dict[str, Any], name: str) -> str:
    """A setting and its value; some are newer than the cell."""
    return f"{name} = {settings[name]}" if name in settings else f"before there was {name}"


def _what_matters(document: Document) -> dict[str, Any]:
    """All that two cells must share to be averaged: the settings, but not how they were carried out, and the facts."""
    found = {name: value for name, value in settings_of(document).items() if name != "seed"}
    search = {"trials": len(document["trials"]), "range": document.get("strengths")} if "trials" in document else {}
    facts = {"facts": document["facts"]["hash"][:8]} if "facts" in document else {}
    return found | search | facts


def _row(mode: str, settings: str, documents: Sequence[Document]) -> Row:
    kept = _measured(documents, mode)
    first, modes = kept[0], [chosen_mode(each, mode) for each in kept]
    figures = [each["metrics"][by] for each, by in zip(kept, modes, strict=True)]
    return Row(
        graph=first["graph"],
        model=first["model"],
        dim=first["dim"],
        label=LABELS[first["variant"], mode],
        settings=settings,
        seeds=tuple(each["seed"] for each in kept),
        modes=tuple(modes),
        autos=tuple(each["mode"] for each in kept),
        valid=tuple(each["valid"] for each in figures),
        test=tuple(each["test"] for each in figures),
        epochs=tuple(sum(each["epochs"].values()) for each in kept),
        seconds=tuple(float(each["seconds"]) for each in kept),
        trials=len(first["trials"]) if "trials" in first else None,
    )
