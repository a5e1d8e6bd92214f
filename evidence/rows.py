"""Cells gathered over seeds: only those whose settings are the same are averaged or compared."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from evidence.cells import VARIANTS, settings_of
from evidence.documents import Document, Key, key_of
from kgem.errors import InputError

AUTO, SINGLE = "after EM: auto", "after EM: auto without blend"
ONE_MODEL = ("point", "mean", "bayes")  # modes of one model; a blend of two has twice the numbers of its dimension
CHOSEN = (SINGLE, AUTO)  # not further ways to predict, but which of the others was best on validation
LABELS = {(name, mode): label for name, variant in VARIANTS.items() for mode, label in variant.labels.items()}
LABELS |= {("em", "single"): SINGLE, ("em", "auto"): AUTO}


@dataclass(frozen=True)
class Row:
    """One graph, model, dimension and variant in one mode, over its seeds."""

    label: str
    cells: Sequence[Document]  # by seed
    modes: Sequence[str]  # by seed, how it predicts

    @property
    def key(self) -> Key:
        return key_of(self.cells[0])

    @property
    def seeds(self) -> list[int]:
        return [cell["seed"] for cell in self.cells]

    @property
    def trials(self) -> int | None:
        """Of a search."""
        return len(self.cells[0]["trials"]) if "trials" in self.cells[0] else None

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
    gathered = gather(documents)
    for (variant, mode), label in LABELS.items():
        for (_, whose), same in gathered.items():
            kept = [cell for cell in same if whose == variant and chosen_mode(cell, mode) in cell["metrics"]]
            if kept:
                rows.append(Row(label, kept, [chosen_mode(cell, mode) for cell in kept]))
    return rows


def gather(documents: Sequence[Document]) -> dict[tuple[Key, str], list[Document]]:
    """By graph, model and dimension, and by variant, the cells by seed; only those of the settings that most have."""
    groups: dict[tuple[Key, str], dict[str, list[Document]]] = {}
    for each in sorted(documents, key=lambda each: int(each["seed"])):
        same = groups.setdefault((key_of(each), each["variant"]), {})
        same.setdefault(json.dumps(_what_matters(each), sort_keys=True), []).append(each)
    return {key: max(same.values(), key=len) for key, same in groups.items()}


def side_by_side(cells: Sequence[Document], **variants: str) -> Iterator[dict[str, list[Document]]]:
    """For each graph, model and dimension the cells of these variants, by their part, of the seeds that all have."""
    same = gather(cells)
    for key in dict.fromkeys(key for key, _ in same):
        known = {part: {cell["seed"]: cell for cell in same.get((key, name), [])} for part, name in variants.items()}
        seeds = sorted(set.intersection(*(set(found) for found in known.values())))
        if seeds:
            group = {part: [found[seed] for seed in seeds] for part, found in known.items()}
            _check_facts([cell for found in group.values() for cell in found])
            yield group


def _check_facts(cells: Sequence[Document]) -> None:
    """What is compared must be of the same graph and split."""
    for cell in cells:
        if cell["facts"]["hash"] != cells[0]["facts"]["hash"]:
            what = f"{cells[0]['name']} and {cell['name']} are of different facts"
            raise InputError(what, remedy="make both of the same graph and split: python -m evidence table1 --force")


def _what_matters(document: Document) -> dict[str, Any]:
    """All that two cells must share to be averaged: the settings, but not how they were carried out, and the facts."""
    found = {name: value for name, value in settings_of(document).items() if name != "seed"}
    search = {"trials": len(document["trials"]), "range": document.get("strengths")} if "trials" in document else {}
    return found | search | {"facts": document["facts"]["hash"]}


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
