"""Cells gathered over seeds: only those whose settings are the same are averaged."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from evidence.cells import VARIANTS, settings_of
from evidence.documents import Document
from evidence.naming import Key, key_of

AUTO, SINGLE = "after EM: auto", "after EM: auto without blend"
ONE_MODEL = ("point", "mean", "bayes")  # modes of one model; a blend of two has twice the numbers of its dimension
CHOSEN = (SINGLE, AUTO)  # not further ways to predict, but which of the others was best on validation
LABELS = {(name, mode): label for name, variant in VARIANTS.items() for mode, label in variant.labels.items()}
LABELS |= {("em", "single"): SINGLE, ("em", "auto"): AUTO}


@dataclass(frozen=True)
class Row:
    """One graph, model, dimension and variant in one mode, over its seeds."""

    label: str
    settings: str  # what tells it from rows of the same name that other settings made; empty if there are none
    cells: Sequence[Document]  # by seed
    modes: Sequence[str]  # by seed, how it predicts

    @property
    def key(self) -> Key:
        return key_of(self.cells[0])

    @property
    def name(self) -> str:
        """The label, with the settings if there are others."""
        return f"{self.label} [{self.settings}]" if self.settings else self.label

    @property
    def seeds(self) -> list[int]:
        return [cell["seed"] for cell in self.cells]

    @property
    def trials(self) -> int | None:
        """Of a search."""
        return len(self.cells[0]["trials"]) if "trials" in self.cells[0] else None

    @property
    def n_auto(self) -> int:
        """How many of the fits chose to predict this way."""
        return sum(mode == cell["mode"] for mode, cell in zip(self.modes, self.cells, strict=True))

    @property
    def repeats(self) -> bool:
        """Whether its figures are those of another row: a choice that is the same for all seeds."""
        return self.label == SINGLE or (self.label == AUTO and len(set(self.modes)) == 1)

    def values(self, name: str, split: str = "test", seeds: Sequence[int] | None = None) -> list[float]:
        """One figure of each seed, or of some of them."""
        both = zip(self.cells, self.modes, strict=True)
        return [
            float(cell["metrics"][mode][split][name]) for cell, mode in both if seeds is None or cell["seed"] in seeds
        ]

    def mean(self, name: str, split: str = "test") -> float:
        return statistics.fmean(self.values(name, split))


def rows_of(documents: Sequence[Document]) -> list[Row]:
    """The cells gathered over seeds, in the order of LABELS; `auto` is what each fit chose on validation."""
    rows = []
    gathered = _gather(documents)
    for (variant, mode), label in LABELS.items():
        for (_, whose), group in gathered.items():
            for settings, same in alike(group) if whose == variant else ():
                kept = [cell for cell in same if chosen_mode(cell, mode) in cell["metrics"]]
                if kept:
                    rows.append(Row(label, settings, kept, [chosen_mode(cell, mode) for cell in kept]))
    return rows


def _gather(documents: Sequence[Document]) -> dict[tuple[Key, str], list[Document]]:
    """By graph, model and dimension, and by variant, the cells of all seeds."""
    cells: dict[tuple[Key, str], list[Document]] = {}
    for each in sorted(documents, key=lambda each: int(each["seed"])):
        cells.setdefault((key_of(each), each["variant"]), []).append(each)
    return cells


def largest_alike(documents: Sequence[Document]) -> dict[tuple[Key, str], list[Document]]:
    """By graph, model and dimension, and by variant, the cells of the settings that most of them have."""
    gathered = _gather(documents)
    return {key: max((group for _, group in alike(found)), key=len) for key, found in gathered.items()}


def alike(documents: Sequence[Document]) -> Iterator[tuple[str, list[Document]]]:
    """The cells that the same settings made, and the settings by which they differ from the others."""
    groups: dict[str, list[Document]] = {}
    for document in documents:
        groups.setdefault(json.dumps(_what_matters(document), sort_keys=True), []).append(document)
    settings = [_what_matters(group[0]) for group in groups.values()]
    names = sorted({name for each in settings for name in each})
    differing = [name for name in names if len({_tell(each, name) for each in settings}) > 1]
    for each, group in zip(settings, groups.values(), strict=True):
        yield ", ".join(_tell(each, name) for name in differing), group


def _tell(settings: dict[str, Any], name: str) -> str:
    """A setting and its value; some are newer than the cell."""
    return f"{name} = {settings[name]}" if name in settings else f"before there was {name}"


def _what_matters(document: Document) -> dict[str, Any]:
    """All that two cells must share to be averaged: the settings, but not how they were carried out, and the facts."""
    found = {name: value for name, value in settings_of(document).items() if name != "seed"}
    search = {"trials": len(document["trials"]), "range": document.get("strengths")} if "trials" in document else {}
    facts = {"facts": document["facts"]["hash"][:8]} if "facts" in document else {}
    return found | search | facts


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
