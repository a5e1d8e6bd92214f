"""The course of a run: learning curves over all phases, and the parts of the ELBO."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kgem.report.figures.drawing import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    empty_figure,
    engineering,
    rough_duration,
    style,
)
from kgem.report.formatting import pluralise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PHASES = {
    "pretrain": ("pre-train", SKY),
    "em": ("variational EM", ORANGE),
    "retrain": ("re-train", GREEN),
    "companions": ("companions", BLUE),
    "distil": ("distil", PURPLE),
}
PARTS = {
    "log_likelihood": ("expected log-likelihood", GREEN),
    "prior": ("expected log prior", PURPLE),
    "entropy": ("entropy of q", SKY),
}
Records = Sequence[Mapping[str, Any]]
Floats = npt.NDArray[np.float64]


def learning_curves(records: Records) -> Figure:
    """Section 3.2: MRR on validation and training loss over the epochs of all phases, one after another."""
    segments = _segments(records)
    with style():
        figure = empty_figure(8.4, 5.4)
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
        for segment in segments:
            _draw_segment(top, segment, "mrr")
            _draw_segment(bottom, segment, "loss")
            for axes in (top, bottom):
                axes.axvspan(segment.start, segment.end, color=segment.colour, alpha=0.09, linewidth=0)
        end = max((segment.end for segment in segments), default=1)
        bottom.set_xlim(0, end)
        _mark_best(top, segments, end)
        _name_phases(top, segments)
        top.set_ylabel("validation MRR (filtered)")
        bottom.set(xlabel="epoch, over all phases", ylabel="loss per fact, nats")
        return figure


def elbo_figure(records: Records, *, m_step_from: int | None = None) -> Figure:
    """Eq. 14: the evidence lower bound over the epochs of EM, and its three parts.

    `m_step_from` (T_E of Algorithm 2) marks the epoch after which the strengths are updated.
    """
    mine = [record for record in records if record.get("phase") == "em" and record.get("elbo") is not None]
    epochs = np.array([record["epoch"] for record in mine], dtype=np.float64)
    with style():
        figure = empty_figure(8.4, 4.6)
        panels = figure.subplot_mosaic(
            [["elbo", name] for name in PARTS], width_ratios=[3, 2], gridspec_kw={"hspace": 0.12}, sharex=True
        )
        series = {"elbo": ("ELBO", BLUE), **PARTS}
        for name, (title, colour) in series.items():
            axes = panels[name]
            axes.plot(epochs, _column(mine, name), color=colour, **_dots(len(mine)))
            axes.set_title(title, fontsize=11.5 if name == "elbo" else 9.5)
            axes.yaxis.set_major_formatter(engineering())
            if m_step_from is not None:
                axes.axvline(m_step_from, color=FAINT, linewidth=1, linestyle=(0, (4, 3)))
        panels["elbo"].set(xlabel="epoch of EM", ylabel="nats, over all facts")
        panels["entropy"].set_xlabel("epoch of EM")
        for name in list(PARTS)[:-1]:
            panels[name].tick_params(labelbottom=False)
        if m_step_from is not None:
            _write_beside(panels["elbo"], m_step_from, "strengths learn from here")
        return figure


class _Segment(NamedTuple):
    """Epochs of one candidate that follow each other, and how many there were before them on the common axis."""

    phase: str
    start: int
    records: list[Mapping[str, Any]]

    @property
    def epochs(self) -> Floats:
        return self._shift + np.array([record["epoch"] for record in self.records], dtype=np.float64)

    @property
    def colour(self) -> str:
        return PHASES.get(self.phase, (self.phase, PURPLE))[1]

    @property
    def end(self) -> int:
        return self._shift + int(self.records[-1]["epoch"])

    @property
    def _shift(self) -> int:
        """Of the epochs on the axis: a candidate that has another turn goes on counting where it was."""
        return self.start + 1 - int(self.records[0]["epoch"])


def _segments(records: Records) -> list[_Segment]:
    """Cut where the phase or the candidate of its race changes, or the epochs start anew."""
    segments: list[_Segment] = []
    for record in records:
        last = segments[-1] if segments else None
        if last and _goes_on(last.records[-1], record):
            last.records.append(record)
        else:
            segments.append(_Segment(record["phase"], last.end if last else 0, [record]))
    return segments


def _goes_on(last: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
    same = all(last.get(key) == record.get(key) for key in ("phase", "candidate"))
    return bool(same and record["epoch"] > last["epoch"])


def _draw_segment(axes: Axes, segment: _Segment, key: str) -> None:
    values = _column(segment.records, key)
    there = np.isfinite(values)
    few = key == "mrr" or there.sum() == 1  # not measured every epoch, or no line at all
    axes.plot(segment.epochs[there], values[there], color=segment.colour, **(_dots(int(there.sum())) if few else {}))


def _dots(n: int) -> dict[str, Any]:
    """Dots where there are few enough of them to be seen one by one."""
    return {"marker": "o", "markersize": 3.5} if n <= 30 else {}


def _mark_best(axes: Axes, segments: Sequence[_Segment], end: int) -> None:
    """Ring the best value of all and write it down."""
    values = np.concatenate([[math.nan], *(_column(segment.records, "mrr") for segment in segments)])
    epochs = np.concatenate([[0.0], *(segment.epochs for segment in segments)])
    if not np.isfinite(values).any():
        axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", color=FAINT)
        return
    best, epoch = np.nanmax(values), epochs[np.nanargmax(values)]
    axes.plot([epoch], [best], marker="o", markersize=9, markerfacecolor="none", markeredgecolor=INK, linestyle="")
    side = "right" if epoch > 0.95 * end else "left" if epoch < 0.05 * end else "center"
    axes.annotate(f"{best:.3f}", (epoch, best), xytext=(0, 9), textcoords="offset points", ha=side, weight="bold")
    axes.margins(y=0.14)


def _name_phases(axes: Axes, segments: Sequence[_Segment]) -> None:
    """Above the picture, the name and cost of each phase; a phase may have several segments."""
    from matplotlib.lines import Line2D

    handles = []
    for phase in dict.fromkeys(segment.phase for segment in segments):
        mine = [segment for segment in segments if segment.phase == phase]
        epochs = sum(segment.end - segment.start for segment in mine)
        seconds = sum(float(np.nansum(_column(segment.records, "seconds"))) for segment in mine)
        name = PHASES.get(phase, (phase, PURPLE))[0]
        text = f"{name}\n{pluralise(epochs, 'epoch')}, {rough_duration(seconds)}"
        handles.append(Line2D([], [], color=mine[0].colour, linewidth=5, label=text))
    if handles:
        axes.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=5, columnspacing=1.6)


def _write_beside(axes: Axes, x: float, text: str) -> None:
    low, high = axes.get_xlim()
    left = x > (low + high) / 2
    axes.annotate(
        text,
        (x, 0.03),
        xycoords=axes.get_xaxis_transform(),
        xytext=(-5 if left else 5, 0),
        textcoords="offset points",
        ha="right" if left else "left",
        color=FAINT,
        fontsize=9,
    )


def _column(records: Records, key: str) -> Floats:
    """One number per record, NaN where there is none."""
    values = (record.get(key) for record in records)
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)
