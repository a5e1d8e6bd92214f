"""Pictures of the evidence, drawn from JSON files alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from evidence.documents import Document
from evidence.rows import LABELS
from kgem.evaluate.strength_laws import ProportionalFit
from kgem.report.figures import strengths_figure
from kgem.report.figures.drawing import BLUE, FAINT, GREEN, INK, ORANGE, PURPLE, RED, empty_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MODE_COLOURS = {"point": GREEN, "mean": ORANGE, "bayes": BLUE, "blend": PURPLE}
FEW = 10  # a share of fewer questions than this is no point of a curve


def cost_figure(document: Document) -> Figure:
    """Validation MRR against epochs spent: the best so far of the search, of the fit's one model and of its blend."""
    seeds = document["seeds"]
    firsts = [min(filter(None, seed["search"]["trials"]["best"])) for seed in seeds]
    ends = [curve["best"][-1] for seed in seeds for curve in _lines(seed)]
    low, high = min(*ends, statistics.median(firsts)), max(ends)
    margin = max(high - low, 0.02)
    with style():
        figure = empty_figure(7.0, 3.9)
        axes = figure.subplots()
        for place, seed in enumerate(seeds):
            _draw_cost(axes, seed, first=not place)
        axes.set(xlabel="epochs spent", ylabel="validation MRR (filtered), best so far")
        axes.set(ylim=(low - 1.5 * margin, high + 0.3 * margin))
        axes.set_xlim(left=0)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=2)
        return figure


def _lines(seed: Document) -> list[Document]:
    """The search's line, that of one model of the fit, and that of its blend if it has one."""
    fit = seed["fit"]
    return [seed["search"]["curve"], fit["curve"], *([] if fit["blend"] is None else [fit["blend"]])]


def _draw_cost(axes: Axes, seed: Document, *, first: bool) -> None:
    """One seed's lines, and where each trial of its search ended; further seeds are fainter and without names."""
    alpha, trials = 1.0 if first else 0.25, seed["search"]["trials"]
    names = ("search", "one kgem fit, one model", "the same fit, blend of two models")
    for curve, colour, name in zip(_lines(seed), (RED, BLUE, PURPLE), names, strict=False):
        label = name if first else None
        axes.step(curve["epochs"], curve["best"], where="post", color=colour, alpha=alpha, label=label)
    label = "one trial of the search" if first else None
    axes.scatter(trials["epochs"], trials["mrr"], s=12, color=RED, alpha=0.5 * alpha, linewidths=0, label=label)


def frequency_figure(document: Document) -> Figure:
    """MRR by how often the answer occurs in training, and what each bin adds to the gain."""
    bins = document["bins"]
    places = list(range(len(bins)))
    with style():
        figure = empty_figure(9.2, 3.9)
        left, right = figure.subplots(1, 2)
        left.plot(
            places, [row["baseline"] for row in bins], "o-", color=RED, label=LABELS[document["baseline"], "point"]
        )
        left.plot(places, [row["fit"] for row in bins], "o-", color=BLUE, label="after EM")
        left.set(ylabel="test MRR (filtered)")
        left.set_ylim(0, 1.08 * max(max(row["fit"], row["baseline"]) for row in bins))
        left.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
        low = [row["gain"] - row["low"] for row in bins]
        high = [row["high"] - row["gain"] for row in bins]
        gains = [row["gain"] for row in bins]
        right.axhline(0, color=FAINT, linewidth=1)
        right.errorbar(places, gains, [low, high], fmt="o", color=BLUE, ecolor=FAINT, elinewidth=1.2, capsize=3)
        right.set(ylabel="gain in MRR, 95 % interval")
        for axes in (left, right):
            _name_bins(axes, bins)
            axes.set(xlabel="training facts with the answer")
        return figure


def slope_figure(document: Document, what: str = "entities") -> Figure:
    """Fig. 3: learned strength against frequency, from the points that the document has."""
    found = document["strengths"][what]
    points, slope, scale = found["points"], found["slope"], found["scale"]
    fit = ProportionalFit(found["c"], math.nan if slope is None else slope, math.nan if scale is None else scale)
    name = {"entities": "entity", "relations": "relation"}[what]
    return strengths_figure(points["strength"], points["n"], what=name, fit=fit)


def _name_bins(axes: Axes, bins: Sequence[Document]) -> None:
    """Each bin by its name and, below, how many questions it has."""
    size = 8.5 if len(bins) < 7 else 6.5
    axes.set_xticks(range(len(bins)), [f"{row['bin']}\n{_amount(row['n'])}" for row in bins], fontsize=size)
    axes.set_xlim(-0.5, len(bins) - 0.5)


def _amount(n: int) -> str:
    return f"({n:,})" if n < 1_000 else f"({n / 1000:.2g}k)" if n < 10_000 else f"({n / 1000:.0f}k)"


def calibration_figure(document: Document) -> Figure:
    """Reliability of the first answer in each mode; shares of few questions are left out."""
    with style():
        figure = empty_figure(5.4, 4.6)
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1, linestyle=(0, (4, 3)))
        for mode, found in document["modes"].items():
            curve = found["calibration"]["curve"]
            bins = zip(curve["confidence"], curve["accuracy"], curve["counts"], strict=True)
            x, y = np.array([(x, y) for x, y, n in bins if n >= FEW]).reshape(-1, 2).T
            colour = MODE_COLOURS.get(mode, INK)
            axes.plot(x, y, "o-", color=colour, markersize=3.5, clip_on=False, label=mode)
        axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="probability of the first answer", ylabel="share that is right")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=4)
        return figure
