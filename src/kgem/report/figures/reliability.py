"""Whether answers are right as often as they are said to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kgem.report.figures.drawing import BLUE, FAINT, ORANGE, empty_figure, engineering, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from kgem.evaluate.calibration import ReliabilityCurve


def reliability_figure(curve: ReliabilityCurve, before: ReliabilityCurve | None = None) -> Figure:
    """How often answers are right against how probable they are said to be; the size of a dot tells how many.

    `before` is the curve of the same answers without the fitted temperature.
    """
    with style():
        figure = empty_figure(6.4, 5.0)
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
        top.plot([0, 1], [0, 1], color=FAINT, linewidth=1, linestyle=(0, (4, 3)), label="perfectly calibrated")
        if before is not None:
            _draw_reliability(top, before, ORANGE, "as trained, $T$ = 1", 0.45)
        _draw_reliability(top, curve, BLUE, "calibrated", 0.9)
        bottom.bar(curve.edges[:-1], curve.counts, width=np.diff(curve.edges), align="edge", color=BLUE, alpha=0.35)
        top.set(xlim=(0, 1), ylim=(0, 1), ylabel="share that is right")
        bottom.set(xlabel="probability of the first answer", ylabel="answers")
        bottom.yaxis.set_major_formatter(engineering())
        top.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
        return figure


def _draw_reliability(axes: Axes, curve: ReliabilityCurve, colour: str, name: str, alpha: float) -> None:
    there = curve.counts > 0
    x, y, n = curve.confidence[there], curve.accuracy[there], curve.counts[there]
    axes.plot(x, y, color=colour, alpha=alpha, label=name)
    axes.scatter(
        x, y, s=12 + 90 * n / max(1, int(curve.counts.max())), color=colour, alpha=alpha, linewidths=0, clip_on=False
    )
