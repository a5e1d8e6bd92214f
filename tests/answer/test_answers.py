"""The picture of answers: every answer where it belongs, in the colour of what is known about it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kgem.errors import InputError
from kgem.report.figures.answers import KINDS, MOST, answers_figure
from kgem.report.figures.drawing import figure_svg
from small_models import random_model


def test_probabilities_ranges_and_colours() -> None:
    model = random_model()
    head, relation = (
        model.data.entities[int(model.data.train[0, 0])],
        model.data.relations[int(model.data.train[0, 1])],
    )
    found = model.predict(head, relation, top=8)
    (axes,) = answers_figure([found]).axes
    assert axes.get_title(loc="left") == f"{head} · {relation} · ?"
    assert [text.get_text() for text in axes.get_yticklabels()] == [answer.label for answer in found]
    for answer, dot, line in zip(found, axes.lines, axes.collections, strict=True):
        assert dot.get_xdata()[0] == answer.probability
        assert line.get_segments()[0][:, 0].tolist() == pytest.approx([answer.low, answer.high])
        kind = "new" if answer.known is None else "train" if answer.known == "train" else "held out"
        assert dot.get_color() == KINDS[kind][1]
    assert {answer.known for answer in found} >= {None, "train"}


def test_several_questions_none_and_too_many() -> None:
    model = random_model()
    found = model.predict("e1", "r1", top=2, uncertainty=False)
    figure = answers_figure([found] * 4)
    assert sum(axes.get_visible() for axes in figure.axes) == 4
    assert "$" not in answers_figure([replace(found, answers=())]).axes[0].get_title(loc="left")
    for wrong in ([], [found] * (MOST + 1)):
        with pytest.raises(InputError, match="1 to 12"):
            answers_figure(wrong)


def test_labels_are_text() -> None:
    found = random_model().predict("e1", "r1", top=1)
    strange = replace(found, answers=(replace(found[0], label="$\\frac{1}$ and much more than fits beside it"),))
    assert "<svg" in figure_svg(answers_figure([strange]))
