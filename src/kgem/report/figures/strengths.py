"""Fig. 3: learned strengths against frequency, and how they follow it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kgem.evaluate.strength_laws import ProportionalFit, fit_strengths
from kgem.report.figures.drawing import BLUE, INK, PURPLE, RED, empty_figure, short, style, thousands, ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from kgem.answer.model import Model

MANY = 2000  # points from which on single ones cannot be told apart: shade by density
Floats = npt.NDArray[np.float64]


def strengths_figure(
    strengths: npt.ArrayLike,
    counts: npt.ArrayLike,
    labels: Sequence[str] | None = None,
    *,
    what: str = "entity",
    annotate: int = 8,
    fit: ProportionalFit | None = None,
) -> Figure:
    """Fig. 3: learned strength against frequency, with the best proportional line and the fitted slope.

    `fit` is that of all symbols where the strengths are of some. Twice as many strengths as counts are those of
    relations and of their reciprocals. With `labels`, the `annotate` symbols that are furthest from the fitted line
    are named.
    """
    lam, n = np.asarray(strengths, dtype=np.float64), np.asarray(counts)
    both = len(lam) == 2 * len(n) > 0
    if both:
        n = np.concatenate([n, n])
        labels = None if labels is None else [*labels, *(f"{label}⁻¹" for label in labels)]
    own = fit_strengths(lam, n)  # refuses what is wrong, with a given fit too
    fit = fit or own
    x, y = np.maximum(n, 1).astype(np.float64), lam
    with style():
        figure = empty_figure(7.2, 4.8)
        axes = figure.add_subplot()
        axes.set(xscale="log", yscale="log", xlabel=f"training facts with the {what}, $n$")
        axes.set_ylabel("learned strength, $\\lambda$")
        groups = {what: slice(None, len(n) // 2), "its reciprocal": slice(len(n) // 2, None)} if both else {}
        if len(x) >= MANY:
            _draw_density(axes, x, y)
        elif both:
            for (name, rows), colour in zip(groups.items(), (BLUE, PURPLE), strict=True):
                _draw_points(axes, x[rows], y[rows], colour, name)
        else:
            _draw_points(axes, x, y, BLUE, None)
        _limit(axes, x, y)
        _draw_fits(axes, fit)
        if labels is not None:
            _name_extremes(axes, x, y, labels, fit, annotate)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
        return figure


def draw_strengths(model: Model, kind: str) -> Figure:
    """Fig. 3 of a model's entities, or of its relations and their reciprocals."""
    data = model.data
    labels = [data.names.call(label) for label in (data.entities if kind == "entities" else data.relations)]
    if kind == "entities":
        return strengths_figure(model.strengths.entities.array, data.entity_counts, labels)
    strengths = model.learned.relations[: model.point.n_own].detach().cpu().double().numpy()
    return strengths_figure(strengths, data.relation_counts, labels, what="relation")


def _draw_points(axes: Axes, x: Floats, y: Floats, colour: str, name: str | None) -> None:
    axes.scatter(x, y, s=26, color=colour, alpha=0.55, linewidths=0, label=name)


def _draw_density(axes: Axes, x: Floats, y: Floats) -> None:
    """Points shaded by how many are near; one for each cell of a grid as fine as a screen."""
    cells = 400
    places = [_cell(np.log(values), cells) for values in (x, y)]
    number, first = np.unique(places[0] * cells + places[1], return_index=True)
    amount = np.bincount(places[0] * cells + places[1], minlength=cells * cells).reshape(cells, cells)
    near = _blur(amount.astype(np.float64), width=6).ravel()[number]
    order = np.argsort(near)  # the densest on top
    axes.scatter(
        x[first][order],
        y[first][order],
        c=np.log(near[order]),
        cmap="viridis_r",
        vmin=1.5 * math.log(near.min()) - 0.5 * math.log(near.max()),  # without the palest third: unseen on white
        s=7,
        alpha=0.8,
        linewidths=0,
        rasterized=True,
    )


def _cell(values: Floats, cells: int) -> npt.NDArray[np.int64]:
    low, high = values.min(), values.max()
    share: Floats = (values - low) / max(high - low, 1e-12)
    return np.minimum(share * cells, cells - 1).astype(np.int64)


def _blur(grid: Floats, width: float) -> Floats:
    """A grid convolved with a Gaussian of this width along both axes."""
    reach = np.arange(-4 * width, 4 * width + 1)
    kernel = np.exp(-0.5 * (reach / width) ** 2)
    for axis in (0, 1):
        grid = np.apply_along_axis(np.convolve, axis, grid, kernel, mode="same")
    return grid


def _limit(axes: Axes, x: Floats, y: Floats) -> None:
    """Room around the points, so that the proportional line, which leaves them, does not set the scale alone."""
    axes.set_xlim(x.min() / 1.35, x.max() * 1.35)
    low, high = y.min(), y.max()
    room = max((high / low) ** 0.25, 1.6)
    axes.set_ylim(low / room, high * room)
    for axis, (first, last) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        if last / first < 300:  # few powers of ten are in sight: numbers between them as well
            axis.set_major_locator(ticks())
        axis.set_major_formatter(thousands())
        axis.set_minor_formatter("")


def _draw_fits(axes: Axes, fit: ProportionalFit) -> None:
    ends = np.array(axes.get_xlim())
    axes.plot(ends, fit.c * ends, color=RED, label=f"best proportional: $\\lambda$ = {short(fit.c)} $n$")
    if not math.isnan(fit.slope):
        name = f"best power: $\\lambda \\propto n^{{{fit.slope:z.2f}}}$"
        axes.plot(ends, fit.scale * ends**fit.slope, color=INK, linestyle=(0, (5, 2.5)), label=name)
    axes.set_xlim(*ends)


def _name_extremes(axes: Axes, x: Floats, y: Floats, labels: Sequence[str], fit: ProportionalFit, most: int) -> None:
    """Write the labels of the points furthest from the fitted line, none over another."""
    from matplotlib.patheffects import withStroke

    level = np.log(y).mean() if math.isnan(fit.slope) else math.log(fit.scale) + fit.slope * np.log(x)
    distance = np.log(y) - level
    to_axes = axes.transData + axes.transAxes.inverted()
    taken: list[tuple[float, float, float, float]] = []
    for i in np.argsort(-np.abs(distance))[: 6 * most].tolist():
        if len(taken) == most:
            return
        text = labels[i] if len(labels[i]) <= 28 else labels[i][:27] + "…"
        left, middle = to_axes.transform((x[i], y[i]))
        wide, high = 0.0125 * len(text) + 0.015, 0.045
        right_side = left + wide < 1
        box = (left if right_side else left - wide, middle - high / 2, wide, high)
        if any(_overlap(box, other) for other in taken):
            continue
        taken.append(box)
        axes.annotate(
            text,
            (x[i], y[i]),
            xytext=(5 if right_side else -5, 0),
            textcoords="offset points",
            ha="left" if right_side else "right",
            va="center",
            fontsize=8.5,
            parse_math=False,  # a label may have dollar signs
            path_effects=[withStroke(linewidth=2.2, foreground="white")],
        )


def _overlap(one: tuple[float, float, float, float], two: tuple[float, float, float, float]) -> bool:
    (x1, y1, w1, h1), (x2, y2, w2, h2) = one, two
    return x1 < x2 + w2 and x2 < x1 + w1 and y1 < y2 + h2 and y2 < y1 + h1
