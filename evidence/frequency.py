"""Where the gain comes from: MRR by how often the answer occurs in training, and Fig. 3 from the same run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from evidence.cells import BASELINES
from evidence.documents import Document
from evidence.naming import about
from evidence.pictures import frequency_figure, slope_figure
from evidence.rows import LABELS, chosen_mode, largest_alike
from evidence.study import Group, Load, OnMeasuring, Picture, Study
from evidence.tables import Table, bold
from kgem.answer.model import Model
from kgem.errors import InputError
from kgem.evaluate.comparison import bootstrap_interval
from kgem.evaluate.metrics import frequency_bin, frequency_names
from kgem.evaluate.ranking import rank
from kgem.evaluate.strength_laws import ProportionalFit, fit_strengths

POINTS = 4000  # of Fig. 3 that are kept to draw it
SHARES = ("rare_under_regularised", "frequent_over_regularised")
BY_SEED = ("slope", "slope_error", *SHARES)  # of Fig. 3, for every fit
FIT, BASELINE = "fit", "baseline"  # the fit is asked as it would choose among modes of one model
BOTH = ("point", "mean")  # models that a fit leaves behind, whichever it would choose
ERRORS = 2.0  # standard errors between a slope and what it must differ from
BOOTSTRAP_SEED = 0

Floats = npt.NDArray[np.float64]
Values = dict[str, Floats]  # reciprocal ranks of all questions, by what was asked


def select(cells: Sequence[Document]) -> Iterator[Group]:
    """Fit and baseline with the same seed, by graph, model and dimension; of the settings that most of them have."""
    same = largest_alike(cells)
    for key in dict.fromkeys(key for key, _ in same):
        for variant in BASELINES:
            others = {other["seed"]: other for other in same.get((key, variant), [])}
            fits = [fit for fit in same.get((key, "em"), []) if fit["seed"] in others]
            if fits:
                yield {FIT: fits, BASELINE: [others[fit["seed"]] for fit in fits]}
                break


def measure(group: Group, load: Load, on_measuring: OnMeasuring) -> dict[str, Any]:
    """MRR of each bin of frequency, with the interval of the gain, and learned strengths against frequency."""
    pairs = list(zip(group[FIT], group[BASELINE], strict=True))
    modes = [chosen_mode(fit, "single") for fit in group[FIT]]
    strengths: list[dict[str, Any]] = []
    values: list[Values] = []
    for place, ((fit, other), chosen) in enumerate(zip(pairs, modes, strict=True)):
        on_measuring(f"ranking {fit['name']}", place, len(pairs))
        model, baseline = load(fit), load(other)
        if model.data.content_hash != baseline.data.content_hash:
            what = f"{fit['name']} and {other['name']} are of different facts"
            raise InputError(what, remedy="make both of the same graph and split: python -m evidence table1 --force")
        ours = {mode: _reciprocal_ranks(model, mode) for mode in {**dict.fromkeys(BOTH), chosen: None}}
        values.append(ours | {FIT: ours[chosen], BASELINE: _reciprocal_ranks(baseline, other["mode"])})
        strengths.append(_strengths(model, points=not strengths))
        counts = model.data.entity_counts[model.data.reciprocal(model.data.test)[:, 2]]
    return {
        "seeds": [fit["seed"] for fit in group[FIT]],
        "baseline": group[BASELINE][0]["variant"],
        "modes": modes,
        "bins": _bins(values, counts, np.random.default_rng(BOOTSTRAP_SEED)),
        "strengths": strengths[0],
        "by_seed": [{what: {key: found[key] for key in BY_SEED} for what, found in each.items()} for each in strengths],
    }


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
    rows = []
    for document in documents:
        for each in document["bins"]:
            clear = len(document["seeds"]) > 1 and (each["low"] > 0 or each["high"] < 0)
            rows.append(
                {
                    "graph and model": about(document),
                    "training facts of the answer": each["bin"],
                    "shared strength by": LABELS[document["baseline"], "point"],
                    "seeds": str(len(document["seeds"])),
                    "questions": f"{each['n']:,}",
                    "shared strength": f"{each[BASELINE]:.3f}",
                    "point": f"{each['point']:.3f}",
                    "mean of q": f"{each['mean']:.3f}",
                    "mode": " or ".join(dict.fromkeys(document["modes"])),
                    "its gain": bold(f"{each['gain']:+z.3f}", clear),
                    "95 % interval": f"{each['low']:+.3f} to {each['high']:+.3f}",
                    "of the gain": f"{each['of_all']:+z.4f}",
                }
            )
    note = (
        "Test MRR, means over seeds, no blend. The mode is the best of one model on validation, by seed. The interval "
        "is a 95 % paired bootstrap over questions: it leaves out that another seed would give other models. Bold "
        "where it excludes zero, but never for a single seed. Last: what the bin adds to the gain over all questions."
    )
    return Table("By frequency", rows, 3, note)


def slope_table(documents: Iterable[Document]) -> Table:
    """Fig. 3 in numbers: the exponent of frequency, and what a proportional rule would do."""
    rows = []
    for document in documents:
        for what in ("entities", "relations"):
            found, seeds = document["strengths"][what], [each[what] for each in document["by_seed"]]
            slope, error = _slope_of(seeds)
            rare, frequent = (statistics.fmean(each[key] for each in seeds) for key in SHARES)
            too_flat, rises = _verdicts(slope, error, (rare, frequent))
            rows.append(
                {
                    "graph and model": about(document),
                    "symbols": what,
                    "seeds": str(len(seeds)),
                    "training facts": _span(found["counts"]),
                    "learned strengths": _span(found["learned"]),
                    "slope": "" if slope is None else f"{slope:z.2f}",
                    "its error": "" if error is None else f"{error:z.2f}",
                    "rarer third under-regularised": f"{rare:.0%}",
                    "more frequent third over-regularised": f"{frequent:.0%}",
                    "both, as the paper found": too_flat,
                    "strengths rise with frequency": rises,
                }
            )
    note = (
        "5 % to 95 % quantiles of the first seed; slopes and shares are means over seeds. Slope: of log strength on "
        "log frequency, with its standard error; 1 is the proportional rule. Shares: of symbols that the best "
        "proportional rule would regularise less, or more, than learned. The paper found both ends wrong: yes where "
        "the slope is more than two errors below 1 and both shares are above one half. Strengths rise: yes where the "
        "slope is more than two errors above 0."
    )
    return Table("Strength and frequency", rows, 2, note)


def _span(quantiles: Sequence[float]) -> str:
    return f"{quantiles[0]:.3g} to {quantiles[2]:.3g}"


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


FREQUENCY = Study(
    name="frequency",
    folder="frequency",
    kind="kgem-frequency",
    asks="Where the gain comes from: MRR by how often the answer occurs, and learned strengths against frequency.",
    needs="fit with a search or a conventional model beside it",
    variants=("em", *BASELINES),
    makes=False,
    select=select,
    measure=measure,
    tables=(frequency_table, slope_table),
    pictures=(
        Picture("frequency", ".svg", "test MRR by frequency of the answer", frequency_figure),
        Picture("strengths", ".png", "learned strength against frequency of entities", slope_figure),
    ),
)
