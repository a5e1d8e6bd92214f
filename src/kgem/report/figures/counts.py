"""Fig. 1: how often entities and relations occur."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kgem.report.figures.drawing import BLUE, FAINT, RED, empty_figure, engineering, style, thousands

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 300  # points of a line at equal distances, and again at equal ratios; more are not seen


def counts_figure(entity_counts: npt.ArrayLike, relation_counts: npt.ArrayLike) -> Figure:
    """Fig. 1: the number of training facts of each entity and relation, sorted by frequency."""
    with style():
        figure = empty_figure(8.4, 3.6)
        panels = figure.subplots(1, 2)
        _draw_counts(panels[0], np.asarray(entity_counts), "Entities", BLUE)
        _draw_counts(panels[1], np.asarray(relation_counts), "Relations", RED)
        panels[0].set_ylabel("training facts")
        return figure


def _draw_counts(axes: Axes, counts: npt.NDArray[Any], title: str, colour: str) -> None:
    ordered = np.sort(counts)[::-1]
    seen = ordered[ordered > 0]
    axes.set_title(f"{title} ({len(counts):,})")
    axes.set(yscale="log", xlabel=f"{title.lower()}, most frequent first")
    if not len(seen):
        return
    # Equal ratios as well, because the curve begins steeply.
    ranks = np.concatenate([np.linspace(1, len(seen), MOST), np.geomspace(1, len(seen), MOST)])
    places = np.unique(ranks.astype(np.int64)) - 1
    axes.plot(places + 1, seen[places], color=colour, drawstyle="steps-mid" if len(seen) < 60 else "default")
    axes.fill_between(places + 1, seen[places], 0.5, color=colour, alpha=0.12, linewidth=0)
    axes.set_xlim(1, max(2, len(counts)))
    axes.set_ylim(0.8, float(seen[0]) * 1.6)
    axes.xaxis.set_major_formatter(engineering())
    axes.yaxis.set_major_formatter(thousands())
    unseen = len(ordered) - len(seen)
    note = f"most {seen[0]:,}\nmedian {np.median(ordered):,.0f}\nleast {ordered[-1]:,}"
    note += f"\n{unseen:,} never in training" if unseen else ""
    axes.text(0.97, 0.95, note, transform=axes.transAxes, ha="right", va="top", color=FAINT, linespacing=1.5)
