"""Two models with a shared strength each that answer together, beside the blend that a fit leaves behind.

A blend has two models, and any second model helps. What it gains beyond such a pair is what EM brought.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from evidence.cells import BASELINES
from evidence.documents import Document, about
from evidence.rows import LABELS, chosen_mode, gather, kept_figures
from evidence.study import Group, Load, Study
from evidence.tables import Table, half_width, mean_and_spread, with_interval
from kgem.answer.model import Model
from kgem.data.dataset import SPLITS
from kgem.evaluate.averaging import BlendScorer
from kgem.evaluate.comparison import rank_facts

SIDES = ("one ordinary model", "two of them", "one fit, one model", "one fit, blend")


def select(cells: Sequence[Document]) -> Iterator[Group]:
    """Baselines of two seeds or more, and the fits that have a seed with them, by graph, model and dimension."""
    same = gather(cells)
    for key in dict.fromkeys(key for key, _ in same):
        several = (same.get((key, variant), []) for variant in BASELINES)
        baselines = next((each for each in several if len(each) > 1), [])
        seeds = {each["seed"] for each in baselines}
        fits = [fit for fit in same.get((key, "em"), []) if fit["seed"] in seeds]
        if fits:
            yield {"baseline": baselines, "fit": fits}


def measure(group: Group, load: Load) -> dict[str, Any]:
    """What a model has alone, together with the next seed's, and after EM."""
    baselines, fits = group["baseline"], group["fit"]
    models = [load(each) for each in baselines]
    n = len(models) if len(models) > 2 else 1  # two of them are one pair
    pairs = []
    for i in range(n):
        j = (i + 1) % len(models)
        figures = {split: _figures(models[i], models[j], split) for split in SPLITS[1:]}
        pairs.append({"seeds": [baselines[i]["seed"], baselines[j]["seed"]], **figures})
    return {
        "baseline": baselines[0]["variant"],
        "seeds": [each["seed"] for each in baselines],
        "alone": [kept_figures(each, each["mode"]) for each in baselines],
        "pairs": pairs,
        "fits": [
            {"seed": fit["seed"], **{name: kept_figures(fit, chosen_mode(fit, name)) for name in ("single", "blend")}}
            for fit in fits
        ],
    }


def _figures(one: Model, other: Model, split: str) -> dict[str, Any]:
    """Figures on a split of two models whose logits are averaged, as those of a fit's blend are."""
    return asdict(rank_facts(BlendScorer([one.point, other.point]), one.data, split)[0])


def pairs_table(documents: Iterable[Document]) -> Table:
    """A row per graph: one model and two, before EM and after it."""
    rows = []
    for document in documents:
        found = [[each["test"]["mrr"] for each in side] for side in _sides(document)]
        one, two, _, blend = map(statistics.fmean, found)
        half = _half_width(pairs=found[1], blends=found[3])
        rows.append(
            {
                "graph and model": about(document),
                "shared strength": LABELS[document["baseline"], "point"],
                "ordinary models": str(len(found[0])),
                "fits": str(len(found[2])),
                **dict(zip(SIDES, map(mean_and_spread, found), strict=True)),
                "a second ordinary model brings": with_interval(two - one, None),
                "the blend has beyond two": with_interval(blend - two, half),
            }
        )
    note = (
        "Test MRR. Two of them: the models of two seeds, their logits averaged as in a blend, each seed with the next. "
        "Intervals are of 95 % over seeds (Student's t; pairs that share a model are not counted as independent), bold "
        "where they exclude zero."
    )
    return Table("One model and two", rows, 2, note)


def _sides(document: Document) -> list[Sequence[Document]]:
    """One ordinary model, two of them, one model of a fit, its blend."""
    fits = document["fits"]
    return [document["alone"], document["pairs"], *([fit[what] for fit in fits] for what in ("single", "blend"))]


def _half_width(pairs: Sequence[float], blends: Sequence[float]) -> float | None:
    """Of the interval of what blends have beyond pairs; None if either has no spread.

    Each of n >= 3 models is in two of n pairs. If a pair has the mean of what its models would bring, of variance v,
    pairs have a sample variance of v (n - 2) / (2 (n - 1)) on average, and their mean the variance v / n.
    """
    if len(pairs) < 3 or len(blends) < 2:
        return None
    n = len(pairs)
    of_models = statistics.variance(pairs) * 2 * (n - 1) / (n - 2)
    return half_width(of_models / n + statistics.variance(blends) / len(blends), min(n, len(blends)))


PAIRS = Study(
    name="pairs",
    folder="together",
    kind="kgem-together",
    asks="What of a blend's gain any second model brings: two models with a shared strength, asked together.",
    needs="fit with two searches or two conventional models beside it",
    variants=("em", *BASELINES),
    select=select,
    measure=measure,
    tables=(pairs_table,),
)
