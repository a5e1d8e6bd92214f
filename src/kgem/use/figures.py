"""Pictures of a graph and of a run: the paper's Figs. 1, 3 and S1, learning curves, the parts of the ELBO.

Every function returns a matplotlib Figure; `save_figure` and `figure_svg` bring it to a file and into HTML.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kgem.errors import InputError
from kgem.use.drawing import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    duration,
    empty_figure,
    engineering,
    figure_svg,
    save_figure,
    short,
    style,
    thousands,
    ticks,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from kgem.evaluate.calibration import ReliabilityCurve

__all__ = [
    "ProportionalFit",
    "counts_figure",
    "elbo_figure",
    "figure_svg",
    "fit_strengths",
    "learning_curves",
    "prior_figure",
    "reliability_figure",
    "save_figure",
    "strengths_figure",
]

PHASES = {"pretrain": ("pre-train", SKY), "em": ("variational EM", ORANGE), "retrain": ("re-train", GREEN)}
PARTS = {
    "log_likelihood": ("expected log-likelihood", GREEN),
    "prior": ("expected log prior", PURPLE),
    "entropy": ("entropy of q", SKY),
}
MANY = 2000  # points from which on single ones cannot be told apart: shade by density
MOST = 300  # points of a line at equal distances, and again at equal ratios; more are not seen
Records = Sequence[Mapping[str, Any]]
Floats = npt.NDArray[np.float64]


class ProportionalFit(NamedTuple):
    """Least squares in log space: lambda = c * n (Eq. 6), and lambda = scale * n^slope."""

    c: float
    slope: float  # NaN where all counts are equal
    scale: float


def fit_strengths(strengths: npt.ArrayLike, counts: npt.ArrayLike) -> ProportionalFit:
    """How strengths follow frequency; a symbol that training never shows counts once, as in Eq. 6."""
    x, y = _logs(strengths, counts)
    distance = x - x.mean()
    spread = float(distance @ distance)
    slope = float(distance @ y) / spread if spread > 0 else math.nan
    return ProportionalFit(
        c=math.exp(float((y - x).mean())), slope=slope, scale=math.exp(float(y.mean() - slope * x.mean()))
    )


def counts_figure(entity_counts: npt.ArrayLike, relation_counts: npt.ArrayLike) -> Figure:
    """Fig. 1: the number of training facts of each entity and relation, sorted by frequency."""
    with style():
        figure = empty_figure(8.4, 3.6)
        panels = figure.subplots(1, 2)
        _draw_counts(panels[0], np.asarray(entity_counts), "Entities", BLUE)
        _draw_counts(panels[1], np.asarray(relation_counts), "Relations", RED)
        panels[0].set_ylabel("training facts")
        return figure


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
    _logs(lam, n)  # refuses what is wrong
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
        fit = fit or fit_strengths(lam, n)
        _draw_fits(axes, fit)
        if labels is not None:
            _name_extremes(axes, x, y, labels, fit, annotate)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
        return figure


def prior_figure(strengths: Sequence[float] = (1.0, 10.0, 100.0, 1000.0), p: int = 3) -> Figure:
    """Fig. S1: the prior (Eq. 8) of one real coordinate for several strengths."""
    import torch

    from kgem.model.prior import Prior

    if not len(strengths) or min(strengths) <= 0:
        raise InputError("the prior needs strengths above zero", remedy="give one or more positive numbers")
    prior = Prior(p, complex=False)
    reach = 1.7 * (p / min(strengths)) ** (1 / p)
    x = torch.linspace(-reach, reach, 1201, dtype=torch.float64)
    with style():
        from matplotlib import colormaps

        figure = empty_figure(6.4, 4.0)
        axes = figure.add_subplot()
        shades = colormaps["viridis_r"](np.linspace(0.25, 0.95, len(strengths)))
        for strength, shade in zip(sorted(strengths), shades, strict=True):
            lam = torch.tensor([strength], dtype=torch.float64)
            density = (prior.log_normaliser(lam, 1) - strength / p * prior.norm(x[:, None])).exp()
            axes.plot(x.numpy(), density.numpy(), color=shade, label=f"$\\lambda$ = {short(strength)}")
        axes.set(xlim=(-reach, reach), xlabel="one coordinate of an embedding, $x$")
        axes.set_ylabel(f"$p(x\\,|\\,\\lambda) \\propto \\exp(-\\lambda\\,|x|^{p}/{p})$")
        axes.set_ylim(bottom=0)
        axes.legend(loc="upper right")
        return figure


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


def _logs(strengths: npt.ArrayLike, counts: npt.ArrayLike) -> tuple[Floats, Floats]:
    """log n and log lambda."""
    lam, n = np.asarray(strengths, dtype=np.float64), np.asarray(counts, dtype=np.float64)
    if lam.shape != n.shape or lam.ndim != 1 or not len(lam):
        raise InputError(
            f"strengths of shape {lam.shape} do not belong to counts of shape {n.shape}",
            remedy="give one strength and one count per symbol",
        )
    if not bool((np.isfinite(lam) & (lam > 0)).all()):
        raise InputError("a strength is not a positive number", remedy="strengths are above zero and finite")
    return np.log(np.maximum(n, 1)), np.log(lam)


def _draw_points(axes: Axes, x: Floats, y: Floats, colour: str, name: str | None) -> None:
    axes.scatter(x, y, s=26, color=colour, alpha=0.55, linewidths=0, label=name)


def _draw_density(axes: Axes, x: Floats, y: Floats) -> None:
    """Points shaded by how many are near; one for each cell of a grid as fine as a screen."""
    cells = 400
    places = [_cell(np.log(values), cells) for values in (x, y)]
    number, first = np.unique(places[0] * cells + places[1], return_index=True)
    amount = np.bincount(places[0] * cells + places[1], minlength=cells * cells).reshape(cells, cells)
    near = _blurred(amount.astype(np.float64), width=6).ravel()[number]
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


def _blurred(grid: Floats, width: float) -> Floats:
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
        name = f"best power: $\\lambda \\propto n^{{{fit.slope:.2f}}}$"
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


class _Segment(NamedTuple):
    """Epochs of one phase that follow each other, and where they begin on the common axis."""

    phase: str
    start: int
    records: list[Mapping[str, Any]]

    @property
    def epochs(self) -> Floats:
        return self.start + np.array([record["epoch"] for record in self.records], dtype=np.float64)

    @property
    def colour(self) -> str:
        return PHASES.get(self.phase, (self.phase, PURPLE))[1]

    @property
    def end(self) -> int:
        return self.start + int(self.records[-1]["epoch"])


def _segments(records: Records) -> list[_Segment]:
    """Cut where the phase changes or the epochs start anew."""
    segments: list[_Segment] = []
    for record in records:
        last = segments[-1] if segments else None
        if last and last.phase == record["phase"] and record["epoch"] > last.records[-1]["epoch"]:
            last.records.append(record)
        else:
            segments.append(_Segment(record["phase"], last.end if last else 0, [record]))
    return segments


def _draw_segment(axes: Axes, segment: _Segment, key: str) -> None:
    values = _column(segment.records, key)
    there = np.isfinite(values)
    few = key == "mrr" or there.sum() == 1  # not measured every epoch, or no line at all
    axes.plot(segment.epochs[there], values[there], color=segment.colour, **_dots(int(there.sum()) if few else MOST))


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
        text = f"{name}\n{epochs} epoch{'s' * (epochs != 1)}, {duration(seconds)}"
        handles.append(Line2D([], [], color=mine[0].colour, linewidth=5, label=text))
    if handles:
        axes.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, columnspacing=3)


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
