"""Where the gain comes from: MRR by how often the answer occurs in training, and Fig. 3 from the same run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from evidence.documents import Document
from evidence.naming import about
from evidence.origin import evidence
from evidence.rows import BASELINES, LABELS, Key, chosen_mode, largest_alike
from evidence.tables import Table
from kgem.answer.model import Model
from kgem.errors import InputError
from kgem.evaluate.comparison import bootstrap_interval
from kgem.evaluate.metrics import frequency_bin, frequency_names
from kgem.evaluate.ranking import rank
from kgem.evaluate.strength_laws import ProportionalFit, fit_strengths

__all__ = ["KIND", "Load", "by_frequency", "frequency_table", "groups", "slope_table"]

KIND = "kgem-frequency"
POINTS = 4000  # of Fig. 3 that are kept to draw it
SHARES = ("rare_under_regularised", "frequent_over_regularised")
BY_SEED = ("slope", "slope_error", *SHARES)  # of Fig. 3, for every fit
FIT, BASELINE = "fit", "baseline"  # the fit is asked as it would choose among modes of one model
BOTH = ("point", "mean")  # models that a fit leaves behind, whichever it would choose
ERRORS = 2.0  # standard errors between a slope and what it must differ from

Floats = npt.NDArray[np.float64]
Load = Callable[[Document], Model]  # the model of a cell
Pair = tuple[Document, Document]  # of a fit and of its baseline
Values = dict[str, Floats]  # reciprocal ranks of all questions, by what was asked


def groups(documents: Sequence[Document]) -> dict[Key, list[Pair]]:
    """Fit and baseline with the same seed, by graph, model and dimension; of the settings that most of them have."""
    same = largest_alike(documents)
    pairs: dict[Key, list[Pair]] = {}
    for key in dict.fromkeys(key for key, _ in same):
        fits = same.get((key, "em"), [])
        for variant in BASELINES:
            others = {other["seed"]: other for other in same.get((key, variant), [])}
            found = [(fit, others[fit["seed"]]) for fit in fits if fit["seed"] in others]
            if found and key not in pairs:
                pairs[key] = found
    return pairs


def by_frequency(pairs: Sequence[Pair], load: Load, command: str, seed: int = 0) -> dict[str, Any]:
    """The JSON of one graph, model and dimension; `seed` is of the bootstrap."""
    if not pairs:
        raise InputError("there is no fit with a baseline beside it", remedy="make cells: kgem reproduce table1 ...")
    strengths: list[dict[str, Any]] = []
    values: list[Values] = []
    for fit, other in pairs:
        model, baseline, chosen = load(fit), load(other), chosen_mode(fit, "single")
        if model.data.content_hash != baseline.data.content_hash:
            what = f"{fit['name']} and {other['name']} are of different facts"
            raise InputError(what, remedy=f"make both of the same graph and split: {other['command']} --force")
        ours = {mode: _reciprocal_ranks(model, mode) for mode in {**dict.fromkeys(BOTH), chosen: None}}
        values.append(ours | {FIT: ours[chosen], BASELINE: _reciprocal_ranks(baseline, other["mode"])})
        strengths.append(_strengths(model, points=not strengths))
        counts = model.data.entity_counts[model.data.reciprocal(model.data.test)[:, 2]]
    content = {
        "seeds": [fit["seed"] for fit, _ in pairs],
        "baseline": pairs[0][1]["variant"],
        "cells": [document["name"] for pair in pairs for document in pair],
        "runs": [document["run"] for pair in pairs for document in pair],
        "modes": [chosen_mode(fit, "single") for fit, _ in pairs],
        "bins": _bins(values, counts, np.random.default_rng(seed)),
        "strengths": strengths[0],
        "by_seed": [{what: {key: found[key] for key in BY_SEED} for what, found in each.items()} for each in strengths],
    }
    return evidence(KIND, pairs[0][0], command, content)


def _reciprocal_ranks(model: Model, mode: str) -> Floats:
    """Of all test questions, tails before heads: (2n,)."""
    data = model.data
    ranks = rank(model.scorer(mode), data.reciprocal(data.test), data.filter_index).of("pessimistic")
    return 1.0 / np.asarray(ranks, dtype=np.float64)


def _bins(values: Sequence[Values], counts: npt.NDArray[Any], rng: np.random.Generator) -> list[Any]:
    """Figures of each bin over all seeds; the interval of the gain is of the paired bootstrap over questions."""
    means = {what: np.mean([each[what] for each in values], axis=0) for what in (FIT, BASELINE, *BOTH)}
    gains, place = means[FIT] - means[BASELINE], frequency_bin(counts)
    bins = []
    for i, name in enumerate(frequency_names()):
        here = place == i
        if here.any():
            low, high = bootstrap_interval(gains[here], rng)
            bins.append(
                {
                    "bin": name,
                    "n": int(here.sum()),
                    **{what: float(each[here].mean()) for what, each in means.items()},
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
        "slope_error": _slope_error(strengths, n, fit),
        "scale": None if np.isnan(fit.scale) else fit.scale,
        "learned": _quantiles(strengths),
        "counts": _quantiles(n),
        # What the best proportional rule does to the rarer third and to the more frequent third of the symbols.
        "rare_under_regularised": float((rule < strengths)[n <= low].mean()),
        "frequent_over_regularised": float((rule > strengths)[n >= high].mean()),
        **({"points": {"n": n[kept].tolist(), "strength": [_round(x) for x in strengths[kept]]}} if points else {}),
    }


def _slope_error(strengths: Floats, n: npt.NDArray[Any], fit: ProportionalFit) -> float | None:
    """The standard error of the slope of least squares in log space; None without a slope or a degree of freedom."""
    x, y = np.log(n), np.log(np.asarray(strengths, dtype=np.float64))
    if np.isnan(fit.slope) or len(x) < 3:
        return None
    left = y - np.log(fit.scale) - fit.slope * x
    return float(np.sqrt(left @ left / (len(x) - 2) / ((x - x.mean()) ** 2).sum()))


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
        seeds = len(document["seeds"])
        modes = " or ".join(dict.fromkeys(document["modes"]))
        name = f"{about(document)}, {seeds} seed{'s' * (seeds > 1)}: {modes}"
        against = LABELS[document["baseline"], "point"]
        for row in document["bins"]:
            if seeds > 1 and (row["low"] > 0 or row["high"] < 0):
                bold.add((len(lines), 7))
            figures = [*(f"{row[what]:.3f}" for what in (BASELINE, *BOTH)), f"{row['gain']:+z.3f}"]
            interval = f"{row['low']:+.3f} to {row['high']:+.3f}"
            lines.append([name, against, row["bin"], f"{row['n']:,}", *figures, interval, f"{row['of_all']:+z.4f}"])
            name = against = ""
    columns = [
        "graph and model",
        "baseline",
        "training facts of the answer",
        "questions",
        "baseline",
        "point",
        "mean of q",
        "gain",
    ]
    notes = [
        "Test MRR, means over seeds, no blend. The gain is that of the mode in the first column, which is the best of "
        "one model on validation, by seed. Its interval is a 95 % paired bootstrap over questions: it leaves out that "
        "another seed would give other models. Bold where it excludes zero, but never for a single seed. The last "
        "column is what the bin adds to the gain in MRR over all questions."
    ]
    return Table("By frequency", [*columns, "95 % interval", "of the gain"], lines, 3, frozenset(bold), notes)


def slope_table(documents: Iterable[Document]) -> Table:
    """Fig. 3 in numbers: the exponent of frequency, and what a proportional rule would do."""
    lines = []
    for document in documents:
        for what in ("entities", "relations"):
            found, seeds = document["strengths"][what], [each[what] for each in document["by_seed"]]
            name = about(document)
            spans = [f"{span[0]:.3g} to {span[2]:.3g}" for span in (found["counts"], found["learned"])]
            slope, error = _slope_of(seeds)
            shares = [statistics.fmean(each[key] for each in seeds) for key in SHARES]
            told = ["" if value is None else f"{value:z.2f}" for value in (slope, error)]
            verdicts = _verdicts(slope, error, shares)
            lines.append([name, what, str(len(seeds)), *spans, *told, *(f"{share:.0%}" for share in shares), *verdicts])
    columns = ["graph and model", "symbols", "seeds", "training facts", "learned strengths", "slope", "its error"]
    columns += ["rarer third under-regularised", "more frequent third over-regularised", "both, as the paper found"]
    columns += ["strengths rise with frequency"]
    note = (
        "5 % to 95 % quantiles of the first seed; slopes and shares are means over seeds. Slope: of log strength on "
        "log frequency; 1 is the proportional rule. Its standard error has that of the regression and that of the "
        "seeds. The shares are of the symbols that the best proportional rule would regularise less, or more, than "
        "learned. The paper found that a proportional rule regularises frequent symbols too much and rare ones too "
        "little: yes where the slope is more than two errors below 1 and both shares are above one half. In its figure "
        "strengths still rise with frequency: yes where the slope is more than two errors above 0."
    )
    return Table("Strength and frequency", columns, lines, 2, frozenset(), [note])


def _slope_of(seeds: Sequence[Document]) -> tuple[float | None, float | None]:
    """The mean slope over seeds and its standard error; None without any.

    All seeds see the same symbols, so that the error of the regression does not shrink with their number; what differs
    between seeds does.
    """
    slopes = [each["slope"] for each in seeds if each["slope"] is not None]
    errors = [each["slope_error"] for each in seeds if each["slope_error"] is not None]
    if not slopes or not errors:
        return (statistics.fmean(slopes) if slopes else None), None
    between = statistics.variance(slopes) / len(slopes) if len(slopes) > 1 else 0.0
    return statistics.fmean(slopes), math.sqrt(statistics.fmean(errors) ** 2 + between)


def _verdicts(slope: float | None, error: float | None, shares: Sequence[float]) -> list[str]:
    """Whether a proportional rule is wrong at both ends as in Fig. 3, and whether strengths rise; empty if unknown."""
    if slope is None or error is None:
        return ["", ""]
    wrong = slope < 1 - ERRORS * error and all(share > 0.5 for share in shares)
    return ["yes" if found else "no" for found in (wrong, slope > ERRORS * error)]
