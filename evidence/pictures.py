"""Pictures of the evidence, drawn from JSON files alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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
    """Validation MRR against compute spent: the best so far of the search, of the fit's one model and of its blend."""
    with style():
        figure = empty_figure(9.2, 3.9)
        panels = figure.subplots(1, 2, sharey=True)
        for axes, unit in zip(panels, ("epochs", "seconds"), strict=True):
            for place, seed in enumerate(document["seeds"]):
                _draw_cost(axes, seed, unit, first=not place)
            axes.set(xlabel=f"{unit} spent")
            axes.set_xlim(left=0)
        panels[0].set_ylabel("validation MRR (filtered), best so far")
        low, high = _span(document["seeds"])
        margin = max(high - low, 0.02)
        panels[0].set_ylim(low - 1.5 * margin, high + 0.3 * margin)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3)
        return figure


def _span(seeds: Sequence[Document]) -> tuple[float, float]:
    """From what the first trial of a search finds (the median seed's), or a fit that found less, to the best of all."""
    ends = [curve["best"][-1] for seed in seeds for curve in _lines(seed)]
    ends += [_left_behind(seed) for seed in seeds]
    first = statistics.median(min(filter(None, seed["search"]["trials"]["best"])) for seed in seeds)
    return min(*ends, first), max(ends)


def _left_behind(seed: Document) -> float:
    """The validation MRR of what the fit leaves behind, on the scale of the logs.

    These are of a sample of validation where that is large: what the search leaves behind stands at its logged best.
    """
    search, fit = seed["search"], seed["fit"]
    return float(search["curve"]["best"][-1] + fit["valid"]["mrr"] - search["valid"]["mrr"])


def _lines(seed: Document) -> list[Document]:
    """The search's line, that of one model of the fit, and that of its blend if it has one."""
    fit = seed["fit"]
    return [seed["search"]["curve"], fit["curve"], *([] if fit["blend"] is None else [fit["blend"]])]


def _draw_cost(axes: Axes, seed: Document, unit: str, *, first: bool) -> None:
    """One seed's lines; further seeds are fainter and without names."""
    alpha = 1.0 if first else 0.25
    trials, fit = seed["search"]["trials"], seed["fit"]
    names = ("search, best so far", "one kgem fit, one model", "the same fit, blend of two models")
    for curve, colour, name in zip(_lines(seed), (RED, BLUE, PURPLE), names, strict=False):
        axes.step(curve[unit], curve["best"], where="post", color=colour, alpha=alpha, label=name if first else None)
    label = "one trial of the search" if first else None
    axes.scatter(trials[unit], trials["mrr"], s=12, color=RED, alpha=0.5 * alpha, linewidths=0, label=label)
    label = "what the fit leaves, one model" if first else None
    axes.scatter([fit[unit]], [_left_behind(seed)], s=34, color=BLUE, alpha=alpha, zorder=3, linewidths=0, label=label)
    if first:
        best, name = seed["search"]["curve"]["best"][-1], "the best of the search"
        axes.axhline(best, color=FAINT, linewidth=1, linestyle=(0, (4, 3)), zorder=1, label=name)


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
    """Reliability of the first answer; share right from the surest to the most doubtful tenth; doubt by frequency."""
    with style():
        figure = empty_figure(11.0, 3.9)
        reliability, tenths, frequency = figure.subplots(1, 3)
        reliability.plot([0, 1], [0, 1], color=FAINT, linewidth=1, linestyle=(0, (4, 3)))
        for mode, found in document["modes"].items():
            colour, curve = MODE_COLOURS.get(mode, INK), found["calibration"]["curve"]
            bins = zip(curve["confidence"], curve["accuracy"], curve["counts"], strict=True)
            points = [(x, y) for x, y, n in bins if n >= FEW]
            reliability.plot(
                [x for x, _ in points],
                [y for _, y in points],
                "o-",
                color=colour,
                markersize=3.5,
                clip_on=False,
                label=mode,
            )
            shares = found["tenths"]["right"]
            tenths.plot(range(1, len(shares) + 1), shares, "o-", color=colour, markersize=3.5, clip_on=False)
        reliability.set(
            xlim=(0, 1), ylim=(0, 1), xlabel="probability of the first answer", ylabel="share that is right"
        )
        tenths.set(ylim=(0, 1), xlabel="tenths of the questions, surest first", ylabel="share that is right")
        tenths.set_xticks(range(1, 11))
        _draw_doubt(frequency, document["modes"])
        figure.legend(*reliability.get_legend_handles_labels(), loc="outside upper center", ncols=4)
        return figure


def _draw_doubt(axes: Axes, modes: Document) -> None:
    """Confidence and share right by how often the asked entity occurs, for the posterior."""
    bins: Any = modes["bayes"]["bins"]
    places = list(range(len(bins)))
    axes.plot(places, [row["confidence"] for row in bins], "o--", color=BLUE, markersize=3.5, label="said (bayes)")
    axes.plot(places, [row["right"] for row in bins], "o-", color=INK, markersize=3.5, label="right (bayes)")
    _name_bins(axes, bins)
    axes.set(ylim=(0, 1), xlabel="training facts with the asked entity", ylabel="first answer: share")
    axes.legend(loc="best", fontsize=8.5)
