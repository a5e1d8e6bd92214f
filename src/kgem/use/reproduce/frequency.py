"""Where the gain comes from: MRR by how often the answer occurs in training, and Fig. 3 from the same run."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kgem.errors import InputError
from kgem.evaluate.metrics import frequency_bin, frequency_names
from kgem.evaluate.ranking import rank
from kgem.use.compare import bootstrap_interval
from kgem.use.figures import ProportionalFit, fit_strengths
from kgem.use.model import Model
from kgem.use.reproduce.documents import VERSION, Document
from kgem.use.reproduce.origin import now, versions
from kgem.use.reproduce.table1 import chosen_mode
from kgem.use.reproduce.tables import Table

__all__ = ["KIND", "by_frequency", "frequency_table", "groups", "slope_table"]

KIND = "kgem-frequency"
BASELINES = ("search", "conventional")  # what EM is compared with: the first that there is
POINTS = 4000  # of Fig. 3 that are kept to draw it

Floats = npt.NDArray[np.float64]
Load = Callable[[Document], Model]  # the model of a cell
Pair = tuple[Document, Document]  # of a fit and of its baseline


def groups(documents: Sequence[Document]) -> dict[tuple[str, str, int], list[Pair]]:
    """Fit and baseline with the same seed, by graph, model and dimension."""
    found: dict[tuple[str, str, int], list[Pair]] = {}
    for variant in BASELINES:
        others = {(d["graph"], d["model"], d["dim"], d["seed"]): d for d in documents if d["variant"] == variant}
        pairs: dict[tuple[str, str, int], list[Pair]] = {}
        for fit in documents:
            key = (fit["graph"], fit["model"], fit["dim"], fit["seed"])
            if fit["variant"] == "em" and key in others:
                pairs.setdefault(key[:3], []).append((fit, others[key]))
        found = pairs | found
    return found


def by_frequency(pairs: Sequence[Pair], load: Load, command: str, seed: int = 0) -> dict[str, Any]:
    """The JSON of one graph, model and dimension; `seed` is of the bootstrap."""
    if not pairs:
        raise InputError("there is no fit with a baseline beside it", remedy="make cells: kgem reproduce table1 ...")
    first = pairs[0][0]
    strengths: list[dict[str, Any]] = []
    values: list[tuple[Floats, Floats]] = []
    for fit, other in pairs:
        model, baseline = load(fit), load(other)
        values.append(
            (_reciprocal_ranks(model, chosen_mode(fit, "single")), _reciprocal_ranks(baseline, other["mode"]))
        )
        strengths.append(_strengths(model, points=not strengths))
        counts = model.data.entity_counts[model.data.reciprocal(model.data.test)[:, 2]]
    return {
        "kind": KIND,
        "version": VERSION,
        "name": f"{first['graph']}-{first['model']}-{first['dim']}",
        "command": command,
        **{key: first[key] for key in ("graph", "model", "dim")},
        "seeds": [fit["seed"] for fit, _ in pairs],
        "baseline": pairs[0][1]["variant"],
        "cells": [document["name"] for pair in pairs for document in pair],
        "runs": [document["run"] for pair in pairs for document in pair],
        "modes": [chosen_mode(fit, "single") for fit, _ in pairs],
        "bins": _bins(values, counts, np.random.default_rng(seed)),
        "slopes": [each["entities"]["slope"] for each in strengths],
        "strengths": strengths[0],
        "versions": versions(),
        "finished": now(),
    }


def _reciprocal_ranks(model: Model, mode: str) -> Floats:
    """Of all test questions, tails before heads: (2n,)."""
    data = model.data
    ranks = rank(model.scorer(mode), data.reciprocal(data.test), data.filter_index).of("pessimistic")
    return 1.0 / np.asarray(ranks, dtype=np.float64)


def _bins(values: Sequence[tuple[Floats, Floats]], counts: npt.NDArray[Any], rng: np.random.Generator) -> list[Any]:
    """Figures of each bin over all seeds; the interval of the gain is of the paired bootstrap over questions."""
    fit, other = (np.mean([pair[side] for pair in values], axis=0) for side in (0, 1))
    gains, place = fit - other, frequency_bin(counts)
    bins = []
    for i, name in enumerate(frequency_names()):
        here = place == i
        if here.any():
            low, high = bootstrap_interval(gains[here], rng)
            bins.append(
                {
                    "bin": name,
                    "n": int(here.sum()),
                    "fit": float(fit[here].mean()),
                    "baseline": float(other[here].mean()),
                    "gain": float(gains[here].mean()),
                    "low": low,
                    "high": high,
                    "of_all": float(gains[here].sum() / len(gains)),  # what the bin adds to the gain in MRR
                }
            )
    return bins


def _strengths(model: Model, *, points: bool) -> dict[str, Any]:
    """Fig. 3: how learned strengths follow frequency, for entities and for relations with their reciprocals."""
    data, lam = model.data, model.strengths
    relations = np.concatenate([lam.relations.array, lam.reciprocals.array])
    return {
        "entities": _fitted(lam.entities.array, data.entity_counts, POINTS if points else 0),
        "relations": _fitted(relations, np.tile(data.relation_counts, 2), POINTS if points else 0),
    }


def _fitted(strengths: Floats, counts: npt.NDArray[Any], points: int) -> dict[str, Any]:
    n = np.maximum(np.asarray(counts), 1)
    fit: ProportionalFit = fit_strengths(strengths, n)
    low, high = np.quantile(n, [1 / 3, 2 / 3])
    rule = fit.c * n
    order = np.lexsort((strengths, n))
    kept = order[np.unique(np.linspace(0, len(order) - 1, min(points, len(order))).astype(np.int64))]
    return {
        "symbols": len(n),
        "c": fit.c,
        "slope": None if np.isnan(fit.slope) else fit.slope,
        "scale": None if np.isnan(fit.scale) else fit.scale,
        "learned": _quantiles(strengths),
        "counts": _quantiles(n),
        # What the best proportional rule does to the rarer third and to the more frequent third of the symbols.
        "rare_under_regularised": float((rule < strengths)[n <= low].mean()),
        "frequent_over_regularised": float((rule > strengths)[n >= high].mean()),
        **({"points": {"n": n[kept].tolist(), "strength": [_round(x) for x in strengths[kept]]}} if points else {}),
    }


def _quantiles(values: npt.NDArray[Any]) -> list[float]:
    """The 5 %, 50 % and 95 % quantiles."""
    return [_round(value) for value in np.quantile(values, [0.05, 0.5, 0.95])]


def _round(value: float) -> float:
    return float(f"{value:.5g}")


def frequency_table(documents: Iterable[Document]) -> Table:
    """A row per graph and bin."""
    lines: list[list[str]] = []
    bold: set[tuple[int, int]] = set()
    for document in documents:
        name = f"{document['graph']}, {document['model']}, K = {document['dim']}"
        for row in document["bins"]:
            if row["low"] > 0 or row["high"] < 0:
                bold.add((len(lines), 5))
            figures = [f"{row['baseline']:.3f}", f"{row['fit']:.3f}", f"{row['gain']:+.3f}"]
            interval = f"{row['low']:+.3f} to {row['high']:+.3f}"
            lines.append([name, row["bin"], f"{row['n']:,}", *figures, interval, f"{row['of_all']:+.4f}"])
            name = ""
    columns = [
        "graph and model",
        "training facts of the answer",
        "questions",
        "best shared strength",
        "after EM",
        "gain",
    ]
    notes = [
        "Test MRR, means over seeds. The interval of the gain is a 95 % paired bootstrap over questions, bold where it "
        "leaves out zero; the last column is what the bin adds to the gain in MRR over all questions."
    ]
    return Table("By frequency", [*columns, "95 % interval", "of the gain"], lines, 2, frozenset(bold), notes)


def slope_table(documents: Iterable[Document]) -> Table:
    """Fig. 3 in numbers: the exponent of frequency, and what a proportional rule would do."""
    lines = []
    for document in documents:
        for what in ("entities", "relations"):
            found = document["strengths"][what]
            name = f"{document['graph']}, {document['model']}, K = {document['dim']}"
            slope = "" if found["slope"] is None else f"{found['slope']:.2f}"
            if what == "entities" and len(document["slopes"]) > 1:
                slope = f"{statistics.fmean(document['slopes']):.2f} ± {statistics.stdev(document['slopes']):.2f}"
            spans = [f"{span[0]:.3g} to {span[2]:.3g}" for span in (found["counts"], found["learned"])]
            shares = [f"{found[key]:.0%}" for key in ("rare_under_regularised", "frequent_over_regularised")]
            lines.append([name, what, *spans, slope, *shares])
    columns = ["graph and model", "symbols", "training facts", "learned strengths", "slope"]
    columns += ["rarer third under-regularised", "more frequent third over-regularised"]
    note = (
        "5 % to 95 % quantiles. Slope: of log strength on log frequency; 1 is the proportional rule. The shares are of "
        "the symbols that the best proportional rule would regularise less, or more, than learned."
    )
    return Table("Strength and frequency", columns, lines, 2, frozenset(), [note])
