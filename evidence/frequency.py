"""Where the gain comes from: MRR by how often the answer occurs in training, and learned strengths by frequency."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from evidence.cells import BASELINES
from evidence.documents import Document, about, key_of
from evidence.rows import LABELS, chosen_mode, side_by_side
from evidence.study import Group, Load, Study
from evidence.tables import Table, bold
from kgem.answer.model import Model
from kgem.evaluate.comparison import bootstrap_interval
from kgem.evaluate.metrics import frequency_bin, frequency_names
from kgem.evaluate.ranking import rank
from kgem.evaluate.strength_laws import fit_strengths

SHARES = ("rare_under_regularised", "frequent_over_regularised")
FIT, BASELINE = "fit", "baseline"  # the fit is asked as it would choose among modes of one model
BOOTSTRAP_SEED = 0

Floats = npt.NDArray[np.float64]


def select(cells: Sequence[Document]) -> Iterator[Group]:
    """Fit and baseline with the same seed, by graph, model and dimension; the first baseline that there is."""
    found = set()
    for variant in BASELINES:
        for both in side_by_side(cells, "em", variant):
            key = key_of(both["em"][0])
            if key not in found:
                yield {FIT: both["em"], BASELINE: both[variant]}
            found.add(key)


def measure(group: Group, load: Load) -> dict[str, Any]:
    """MRR of each bin of frequency, with the interval of the gain, and learned strengths against frequency."""
    modes = [chosen_mode(fit, "single") for fit in group[FIT]]
    by_seed, ours, theirs = [], [], []
    for fit, other, mode in zip(group[FIT], group[BASELINE], modes, strict=True):
        model = load(fit)
        ours.append(_reciprocal_ranks(model, mode))
        theirs.append(_reciprocal_ranks(load(other), other["mode"]))
        by_seed.append(_strengths(model))
    counts = model.data.entity_counts[model.data.reciprocal(model.data.test)[:, 2]]
    return {
        "seeds": [fit["seed"] for fit in group[FIT]],
        "baseline": group[BASELINE][0]["variant"],
        "modes": modes,
        "bins": list(_bins(np.mean(ours, axis=0), np.mean(theirs, axis=0), counts)),
        "by_seed": by_seed,
    }


def _reciprocal_ranks(model: Model, mode: str) -> Floats:
    """Of all test questions, tails before heads: (2n,)."""
    data = model.data
    ranks = rank(model.scorer(mode), data.reciprocal(data.test), data.filter_index).of("pessimistic")
    return 1.0 / np.asarray(ranks, dtype=np.float64)


def _bins(ours: Floats, theirs: Floats, counts: npt.NDArray[Any]) -> Iterator[dict[str, Any]]:
    """Figures of each bin; the interval of the gain is of the paired bootstrap over questions."""
    gains, place, rng = ours - theirs, frequency_bin(counts), np.random.default_rng(BOOTSTRAP_SEED)
    for i, name in enumerate(frequency_names()):
        here = place == i
        if here.any():
            low, high = bootstrap_interval(gains[here], rng)
            yield {
                "bin": name,
                "n": int(here.sum()),
                FIT: float(ours[here].mean()),
                BASELINE: float(theirs[here].mean()),
                "gain": float(gains[here].mean()),
                "low": low,
                "high": high,
                "of_all": float(gains[here].sum() / len(gains)),  # what the bin adds to the gain in MRR
            }


def _strengths(model: Model) -> dict[str, Any]:
    """Fig. 3: how learned strengths follow frequency, for entities and for relations with their reciprocals."""
    data, lam = model.data, model.strengths
    relations = np.concatenate([lam.relations.array, lam.reciprocals.array])
    return {
        "entities": _fitted(lam.entities.array, data.entity_counts),
        "relations": _fitted(relations, np.tile(data.relation_counts, 2)),
    }


def _fitted(strengths: Floats, counts: npt.NDArray[Any]) -> dict[str, Any]:
    """The slope in log space with its standard error (None without one), and what the best proportional rule does."""
    n = np.maximum(np.asarray(counts), 1)
    fit, slope, error = fit_strengths(strengths, n), None, None
    if not np.isnan(fit.slope):
        x, y = np.log(n), np.log(np.asarray(strengths, dtype=np.float64))
        slope, left = fit.slope, y - np.log(fit.scale) - fit.slope * x
        if len(x) > 2:
            error = float(np.sqrt(left @ left / (len(x) - 2) / ((x - x.mean()) ** 2).sum()))
    low, high = np.quantile(n, [1 / 3, 2 / 3])  # the rarer and the more frequent third of the symbols
    rare, frequent = (fit.c * n < strengths)[n <= low], (fit.c * n > strengths)[n >= high]
    shares = dict(zip(SHARES, (float(rare.mean()), float(frequent.mean())), strict=True))
    return {"slope": slope, "slope_error": error, **shares}


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
                    "after EM": f"{each[FIT]:.3f}",
                    "its gain": bold(f"{each['gain']:+z.3f}", clear),
                    "95 % interval": f"{each['low']:+.3f} to {each['high']:+.3f}",
                    "of the gain": f"{each['of_all']:+z.4f}",
                }
            )
    note = (
        "Test MRR, means over seeds, in the mode of one model that was best on validation. The interval is a 95 % "
        "paired bootstrap over questions: it leaves out that another seed would give other models. Bold where it "
        "excludes zero, but never for a single seed. Last: what the bin adds to the gain over all questions."
    )
    return Table("By frequency", rows, 3, note)


def slope_table(documents: Iterable[Document]) -> Table:
    """Fig. 3 in numbers: the exponent of frequency, and what a proportional rule would do."""
    rows = []
    for document in documents:
        for what in ("entities", "relations"):
            seeds = [each[what] for each in document["by_seed"]]
            slope, error = _slope_of(seeds)
            rare, frequent = (statistics.fmean(each[key] for each in seeds) for key in SHARES)
            rows.append(
                {
                    "graph and model": about(document),
                    "symbols": what,
                    "seeds": str(len(seeds)),
                    "slope": "" if slope is None else f"{slope:z.2f}",
                    "its error": "" if error is None else f"{error:z.2f}",
                    "rarer third under-regularised": f"{rare:.0%}",
                    "more frequent third over-regularised": f"{frequent:.0%}",
                }
            )
    note = (
        "Means over seeds. Slope: of log strength on log frequency, with its standard error; 1 is the proportional "
        "rule, 0 no rise. Shares: of symbols that the best proportional rule would regularise less, or more, than "
        "learned; the paper found both ends wrong."
    )
    return Table("Strength and frequency", rows, 2, note)


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


FREQUENCY = Study(
    name="frequency",
    folder="frequency",
    kind="kgem-frequency",
    asks="Where the gain comes from: MRR by how often the answer occurs, and learned strengths against frequency.",
    needs="fit with a search or a conventional model beside it",
    variants=("em", *BASELINES),
    select=select,
    measure=measure,
    tables=(frequency_table, slope_table),
)
