"""Two models with a shared strength each that answer together, beside the blend that a fit leaves behind.

A blend has two models, and any second model helps. What it gains beyond such a pair is what EM brought.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from evidence.documents import Document
from evidence.frequency import Load
from evidence.naming import about
from evidence.origin import evidence
from evidence.rows import BASELINES, LABELS, Key, chosen_mode, kept_figures, largest_alike
from evidence.tables import Table, half_width, mean_and_spread, with_interval
from kgem.answer.model import Model
from kgem.data.dataset import SPLITS
from kgem.errors import InputError
from kgem.evaluate.averaging import BlendScorer
from kgem.evaluate.metrics import breakdown
from kgem.evaluate.ranking import rank

__all__ = ["KIND", "groups", "together_document", "together_table"]

KIND = "kgem-together"

Group = tuple[list[Document], list[Document]]  # models with a shared strength, and fits of the same seeds


def groups(documents: Sequence[Document]) -> dict[Key, Group]:
    """Baselines of two seeds or more, and the fits that have a seed with them, by graph, model and dimension."""
    same = largest_alike(documents)
    found: dict[Key, Group] = {}
    for key in dict.fromkeys(key for key, _ in same):
        several = (same.get((key, variant), []) for variant in BASELINES)
        baselines = next((each for each in several if len(each) > 1), [])
        seeds = {each["seed"] for each in baselines}
        fits = [fit for fit in same.get((key, "em"), []) if fit["seed"] in seeds]
        if fits:
            found[key] = (sorted(baselines, key=lambda each: int(each["seed"])), fits)
    return found


def together_document(
    group: Group, load: Load, command: str, progress: Callable[[str, int, int], None]
) -> dict[str, Any]:
    """The JSON of one graph, model and dimension: what a model has alone, with the next seed's, and after EM."""
    baselines, fits = group
    if len(baselines) < 2 or not fits:
        raise InputError("there are no two models to ask together, and a fit beside them", remedy="make more seeds")
    models = [load(each) for each in baselines]
    n = len(models) if len(models) > 2 else 1  # two of them are one pair
    pairs = []
    for i in range(n):
        j = (i + 1) % len(models)
        seeds = [baselines[i]["seed"], baselines[j]["seed"]]
        pair = f"pair {i + 1} of {n}"
        figures = {
            split: _figures(models[i], models[j], split, partial(progress, f"{pair}, ranking {split}"))
            for split in SPLITS[1:]
        }
        pairs.append({"seeds": seeds, **figures})
    content = {
        "baseline": baselines[0]["variant"],
        "seeds": [each["seed"] for each in baselines],
        "alone": [kept_figures(each, each["mode"]) for each in baselines],
        "pairs": pairs,
        "fits": [
            {
                "seed": fit["seed"],
                "single": kept_figures(fit, chosen_mode(fit, "single")),
                "blend": kept_figures(fit, "blend"),
            }
            for fit in fits
        ],
    }
    return evidence(KIND, fits[0], command, content)


def _figures(one: Model, other: Model, split: str, progress: Callable[[int, int], None]) -> dict[str, Any]:
    """Figures on a split of two models whose logits are averaged, as those of a fit's blend are."""
    data, scorer = one.data, BlendScorer([one.point, other.point])
    ranks = rank(scorer, data.reciprocal(data.split(split)), data.filter_index, on_progress=progress)
    figures: dict[str, Any] = breakdown(ranks, data).to_dict()["overall"]
    return figures


def together_table(documents: Iterable[Document]) -> Table:
    """A row per graph: one model and two, before EM and after it."""
    lines: list[list[str]] = []
    bold: set[tuple[int, int]] = set()
    for document in documents:
        name = about(document)
        sides = [
            document["alone"],
            document["pairs"],
            [fit["single"] for fit in document["fits"]],
            [fit["blend"] for fit in document["fits"]],
        ]
        found = [[each["test"]["mrr"] for each in side] for side in sides]
        one, two, _, blend = map(statistics.fmean, found)
        half = _half_width(pairs=found[1], blends=found[3])
        if half is not None and abs(blend - two) > half:
            bold.add((len(lines), 8))
        seeds = "; ".join(", ".join(map(str, each)) for each in _seeds(document))
        gains = [with_interval(two - one, None), with_interval(blend - two, half)]
        lines.append([name, LABELS[document["baseline"], "point"], seeds, *map(mean_and_spread, found), *gains])
    columns = ["graph and model", "shared strength", "seeds", "one model", "two of them", "after EM, one model"]
    columns += ["after EM, blend", "a second model brings", "the blend has beyond it"]
    note = (
        "Test MRR. Two of them: the models of two seeds, their logits averaged as in a blend, each seed with the next. "
        "The last columns: from one model with a shared strength to two of them, and from these to the blend, with a "
        "95 % interval over seeds (Student's t; pairs that share a model are not counted as independent), bold where "
        "it excludes zero. Seeds of the fits follow after a semicolon where they are others."
    )
    return Table("Two models", columns, lines, 2, frozenset(bold), [note])


def _seeds(document: Document) -> list[list[int]]:
    """Of the models with a shared strength, and of the fits if these are others."""
    fits = [fit["seed"] for fit in document["fits"]]
    return [document["seeds"]] if fits == document["seeds"] else [document["seeds"], fits]


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
