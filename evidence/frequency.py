"""Where the gain comes from: MRR by how often the answer occurs in training, and learned strengths by frequency."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from evidence.cells import BASELINES
from evidence.documents import Document, Key, about, key_of
from evidence.rows import LABELS, chosen_mode, side_by_side
from evidence.study import Group, Load, Study
from evidence.tables import Table, bold, mean_and_spread
from kgem.answer.model import Model
from kgem.evaluate.comparison import bootstrap_interval
from kgem.evaluate.metrics import frequency_bin, frequency_names
from kgem.evaluate.ranking import rank
from kgem.evaluate.strength_laws import fit_strengths

FIT, BASELINE = "fit", "baseline"  # the fit is asked as it would choose among modes of one model
BOOTSTRAP_SEED = 0

Floats = npt.NDArray[np.float64]


def select(cells: Sequence[Document]) -> Iterable[Group]:
    """Fit and baseline with the same seed, by graph, model and dimension; the first baseline that there is."""
    found: dict[Key, Group] = {}
    for variant in BASELINES:
        for group in side_by_side(cells, fit="em", baseline=variant):
            found.setdefault(key_of(group[FIT][0]), group)
    return found.values()


def measure(group: Group, load: Load) -> dict[str, Any]:
    """MRR of each bin of frequency, with the interval of the gain, and learned strengths against frequency."""
    modes = [chosen_mode(fit, "single") for fit in group[FIT]]
    by_seed, ours, theirs = [], [], []
    for fit, other, mode in zip(group[FIT], group[BASELINE], modes, strict=True):
        model = load(fit)
        ours.append(_reciprocal_ranks(model, mode))
        theirs.append(_reciprocal_ranks(load(other), other["mode"]))
        by_seed.append(_slopes(model))
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


def _slopes(model: Model) -> dict[str, Any]:
    """Fig. 3: the exponent of frequency, for entities and for relations with their reciprocals."""
    data, lam = model.data, model.strengths
    relations = np.concatenate([lam.relations.array, lam.reciprocals.array])
    fits = {
        "entities": fit_strengths(lam.entities.array, np.maximum(data.entity_counts, 1)),
        "relations": fit_strengths(relations, np.maximum(np.tile(data.relation_counts, 2), 1)),
    }
    return {what: {"slope": None if np.isnan(fit.slope) else fit.slope} for what, fit in fits.items()}


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
    """Fig. 3 in numbers."""
    rows = []
    for document in documents:
        slopes = {
            f"slope of {what}": [seed[what]["slope"] for seed in document["by_seed"] if seed[what]["slope"] is not None]
            for what in ("entities", "relations")
        }
        told = {name: mean_and_spread(found, 2) for name, found in slopes.items()}
        rows.append({"graph and model": about(document), "seeds": str(len(document["by_seed"])), **told})
    note = "Of log learned strength on log frequency, over seeds; 1 is the proportional rule, 0 no rise."
    return Table("Strength and frequency", rows, 1, note)


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
