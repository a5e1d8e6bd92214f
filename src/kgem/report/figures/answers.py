"""A picture of answers: how probable each is, and how sure the model is of that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kgem.answer.predict import Answer, Prediction
from kgem.errors import InputError
from kgem.report.figures.drawing import BLUE, FAINT, GREEN, INK, empty_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST, ABREAST = 12, 3  # panels: of a figure, and beside each other
KINDS = {"train": ("in training", FAINT), "held out": ("held out", GREEN), "new": ("not in the graph", BLUE)}
LONGEST = 28  # characters of a label


def answers_figure(predictions: Sequence[Prediction]) -> Figure:
    """Probability of each answer (dot) and its range over nine of ten samples of q (line), a panel per question."""
    if not 0 < len(predictions) <= MOST:
        raise InputError(f"a figure cannot show {len(predictions):,} questions", remedy=f"ask 1 to {MOST}")
    columns = min(ABREAST, len(predictions))
    rows = -(-len(predictions) // columns)
    longest = max((len(prediction) for prediction in predictions), default=1)
    with style():
        figure = empty_figure(max(4.2 * columns, 5.4), rows * (1.0 + 0.27 * max(longest, 2)) + 0.4)
        panels = figure.subplots(rows, columns, squeeze=False, sharex=True).flatten().tolist()
        for axes, prediction in zip(panels, predictions, strict=False):
            _draw(axes, prediction)
        for axes in panels[len(predictions) :]:
            axes.set_visible(False)
        _explain(figure, {_kind(answer) for prediction in predictions for answer in prediction})
        return figure


def _kind(answer: Answer) -> str:
    if answer.known is None:
        return "new"
    return "train" if answer.known == "train" else "held out"


def _draw(axes: Axes, prediction: Prediction) -> None:
    for place, answer in enumerate(prediction):
        colour = KINDS[_kind(answer)][1]
        if answer.low is not None and answer.high is not None:
            axes.hlines(place, answer.low, answer.high, color=colour, linewidth=5, alpha=0.35)
        axes.plot([answer.probability], [place], "o", color=colour, markersize=6)
    axes.set_title(" · ".join("?" if label is None else _cut(label) for label in prediction.query), color=INK)
    axes.set_yticks(range(len(prediction)), [_cut(answer.label) for answer in prediction])
    axes.set(xlim=(-0.02, 1.02), ylim=(max(len(prediction), 2) - 0.5, -0.5))
    axes.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0, labelcolor=INK)


def _cut(label: str) -> str:
    """Text as it is, dollar signs included, and not too long."""
    short = label if len(label) <= LONGEST else f"{label[: LONGEST - 1]}…"
    return short.replace("$", r"\$")


def _explain(figure: Figure, kinds: set[str]) -> None:
    from matplotlib.lines import Line2D

    marks = [
        Line2D([], [], color=colour, marker="o", linewidth=0, label=name)
        for kind, (name, colour) in KINDS.items()
        if kind in kinds
    ]
    marks.append(Line2D([], [], color=FAINT, linewidth=5, alpha=0.35, label="90 % of the posterior"))
    figure.legend(handles=marks, loc="outside lower center", ncols=len(marks))
