"""Figures: what they show is read back from the drawing; files and SVG are deterministic and self-contained."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from kgem.errors import InputError
from kgem.evaluate.calibration import reliability
from kgem.evaluate.strength_laws import fit_strengths
from kgem.report.figures import (
    counts_figure,
    elbo_figure,
    figure_svg,
    learning_curves,
    reliability_figure,
    save_figure,
    strengths_figure,
)
from kgem.report.figures.strengths import MANY

rng = np.random.default_rng(0)
COUNTS = rng.zipf(1.6, size=300).clip(max=5000) - 1
STRENGTHS = 2.5 * np.maximum(COUNTS, 1) ** 0.4 * np.exp(0.2 * rng.normal(size=300))
SHARES = rng.random(500)
RIGHT = rng.random(500) < SHARES


def records() -> list[dict[str, Any]]:
    log: list[dict[str, Any]] = []
    for phase, epochs in (("pretrain", 6), ("em", 8), ("retrain", 4)):
        for epoch in range(1, epochs + 1):
            mrr = None if epoch % 2 else 0.1 * len(phase) / 8 + 0.01 * epoch
            log.append({"phase": phase, "epoch": epoch, "loss": 5 - epoch / 4, "mrr": mrr, "seconds": 2.0})
            if phase == "em":
                parts = {"log_likelihood": -1e6 + 1e4 * epoch, "prior": -2e5, "entropy": 3e5 - 1e3 * epoch}
                log[-1] |= parts | {"elbo": sum(parts.values())}
    return log


FIGURES = {
    "counts": lambda: counts_figure(COUNTS, COUNTS[:20]),
    "strengths": lambda: strengths_figure(STRENGTHS, COUNTS, [f"e{i}" for i in range(300)]),
    "dense": lambda: strengths_figure(np.tile(STRENGTHS, 10), np.tile(COUNTS, 10)),
    "curves": lambda: learning_curves(records()),
    "elbo": lambda: elbo_figure(records(), m_step_from=3),
    "reliability": lambda: reliability_figure(reliability(SHARES, RIGHT, 10), reliability(SHARES**2, RIGHT, 10)),
}


def legend(figure: Figure) -> list[str]:
    found = figure.axes[0].get_legend()
    return [text.get_text() for text in found.get_texts()] if found else []


@pytest.mark.parametrize("name", FIGURES)
def test_every_axis_has_labels_and_every_figure_is_drawn(name: str, tmp_path: Path) -> None:
    figure = FIGURES[name]()
    assert any(axes.get_ylabel() for axes in figure.axes)
    assert any(axes.get_xlabel() for axes in figure.axes)
    for path in (tmp_path / "a.png", tmp_path / "a.SVG"):
        assert save_figure(figure, path) == path
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert ElementTree.parse(tmp_path / "a.SVG").getroot().tag.endswith("svg")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.SVG", "a.png"]


@pytest.mark.parametrize("name", FIGURES)
def test_svg_is_deterministic_and_refers_to_nothing_outside(name: str) -> None:
    text = figure_svg(FIGURES[name](), "one")
    assert text == figure_svg(FIGURES[name](), "two").replace("two-", "one-")
    root = ElementTree.fromstring(text)
    assert "viewBox" in root.attrib
    assert "width" not in root.attrib
    ids = re.findall(r'\bid="([^"]*)"', text)
    assert all(each.startswith("one-") for each in ids)
    used = set(re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', text))
    assert {one or two for one, two in used} <= set(ids)
    links = re.findall(r'href="([^"]{0,20})', text)
    assert all(link.startswith(("#", "data:image/png")) for link in links)
    assert set(re.findall(r"https?://[^\"<> ]*", text)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert not re.search(r"<!DOCTYPE|<metadata|20\d\d-\d\d-\d\dT", text)


def test_files_of_equal_figures_are_equal(tmp_path: Path) -> None:
    for end in ("png", "svg"):
        one, two = (save_figure(FIGURES["counts"](), tmp_path / f"{i}.{end}").read_bytes() for i in (1, 2))
        assert one == two


def test_no_pyplot_and_no_settings_are_left_behind() -> None:
    before = dict(matplotlib.rcParams)
    figure_svg(FIGURES["counts"]())
    assert dict(matplotlib.rcParams) == before
    code = (
        "import sys, kgem.report.figures as f; assert 'matplotlib' not in sys.modules and 'torch' not in sys.modules; "
        "f.figure_svg(f.counts_figure([3, 1], [4])); assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_saving_refuses_what_it_cannot_do_and_leaves_files_alone(tmp_path: Path) -> None:
    for name in ("a.pdf", "a"):
        with pytest.raises(InputError, match="svg"):
            save_figure(FIGURES["counts"](), tmp_path / name)
    with pytest.raises(InputError, match="cannot be written"):
        save_figure(FIGURES["counts"](), tmp_path / "missing" / "a.svg")
    assert not list(tmp_path.iterdir())


def test_strengths_show_points_lines_and_their_numbers() -> None:
    figure = strengths_figure(STRENGTHS, COUNTS, [f"$name_{i}" for i in range(300)], annotate=5)
    axes, fit = figure.axes[0], fit_strengths(STRENGTHS, COUNTS)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    np.testing.assert_allclose(axes.collections[0].get_offsets()[:, 1], STRENGTHS)
    np.testing.assert_allclose(axes.collections[0].get_offsets()[:, 0], np.maximum(COUNTS, 1))
    x, y = axes.lines[0].get_data()
    np.testing.assert_allclose(np.asarray(y) / np.asarray(x), fit.c)
    assert any(f"{fit.c:.3g}" in text for text in legend(figure))
    assert any(f"{fit.slope:.2f}" in text for text in legend(figure))
    named = [text.get_text() for text in axes.texts]
    distance = np.abs(np.log(STRENGTHS / fit.scale) - fit.slope * np.log(np.maximum(COUNTS, 1)))
    assert len(named) == 5
    assert named[0] == f"$name_{distance.argmax()}"
    figure_svg(figure)


def test_relations_and_reciprocals_are_told_apart() -> None:
    figure = strengths_figure(np.arange(1.0, 9.0), [1, 5, 20, 90], ["a", "b", "c", "d"], what="relation", annotate=8)
    assert [len(points.get_offsets()) for points in figure.axes[0].collections] == [4, 4]
    assert legend(figure)[:2] == ["relation", "its reciprocal"]
    assert any(text.get_text().endswith("⁻¹") for text in figure.axes[0].texts)


def test_many_points_are_shaded_by_density_and_bounded() -> None:
    n = 200_000
    assert n > MANY
    counts = rng.integers(1, 2000, size=n)
    strengths = np.exp(rng.normal(size=n))
    points = strengths_figure(strengths, counts).axes[0].collections[0]
    shown = np.asarray(points.get_offsets())
    assert 10_000 < len(shown) <= 400 * 400
    assert {tuple(p) for p in shown[:100].tolist()} <= set(zip(counts.tolist(), strengths.tolist(), strict=True))
    shade = np.asarray(points.get_array())
    middle = (np.abs(np.log(shown[:, 1])) < 0.3) & (shown[:, 0] > 1000)
    edge = np.abs(np.log(shown[:, 1])) > 2.5
    assert shade[middle].mean() > shade[edge].mean() + 2


def test_labels_in_any_script_are_no_reason_to_fail() -> None:
    assert "<svg" in figure_svg(strengths_figure([1.0, 2.0, 9.0], [1, 2, 3], ["日本", "ελλάς", "x" * 90]))


def test_strengths_that_do_not_fit_are_refused() -> None:
    for strengths, counts in (([1.0], [1, 2, 3]), ([], []), ([1.0, -1.0], [1, 2]), ([1.0, math.nan], [1, 2])):
        with pytest.raises(InputError):
            strengths_figure(strengths, counts)


def test_counts_are_sorted_and_the_unseen_are_told() -> None:
    left, right = counts_figure(COUNTS, COUNTS[:20]).axes
    assert "300" in left.get_title(loc="left")
    assert "20" in right.get_title(loc="left")
    x, y = left.lines[0].get_data()
    seen = np.sort(COUNTS[COUNTS > 0])[::-1]
    np.testing.assert_array_equal(y, seen[np.asarray(x) - 1])
    assert f"{(COUNTS == 0).sum()} never in training" in left.texts[0].get_text()
    figure_svg(counts_figure([0, 0], []))


def test_learning_curves_put_phases_one_after_another() -> None:
    figure = learning_curves(records())
    top, bottom = figure.axes
    assert [list(line.get_xdata()) for line in bottom.lines] == [
        list(range(1, 7)),
        list(range(7, 15)),
        list(range(15, 19)),
    ]
    assert list(top.lines[1].get_xdata()) == [8, 10, 12, 14]
    assert legend(figure)[0] == "pre-train\n6 epochs, 12 s"
    best = max(record["mrr"] for record in records() if record["mrr"] is not None)
    assert top.texts[0].get_text() == f"{best:.3f}"


def test_learning_curves_of_a_race_have_a_line_for_each_turn_and_no_gaps() -> None:
    turns = [(0, 1), (0, 2), (1, 3), (1, 4), (2, 1), (2, 2), (1, 5), (1, 6)]  # candidate, its epoch
    log = [{"phase": "pretrain", "candidate": c, "epoch": e, "loss": 1.0, "mrr": None, "seconds": 1} for c, e in turns]
    figure = learning_curves(log)
    assert [list(line.get_xdata()) for line in figure.axes[1].lines] == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert legend(figure)[0] == "pre-train\n8 epochs, 8.0 s" and figure.axes[1].get_xlim() == (0, 8)


def test_learning_curves_of_restarts_and_of_nothing() -> None:
    log = [{"phase": "retrain", "epoch": e, "loss": 1.0, "mrr": None, "seconds": 1} for e in (1, 2, 1, 2, 3)]
    figure = learning_curves(log)
    assert [list(line.get_xdata()) for line in figure.axes[1].lines] == [[1, 2], [3, 4, 5]]
    assert figure.axes[0].texts[0].get_text() == "not measured"
    figure_svg(learning_curves([]))
    figure_svg(elbo_figure([]))


def test_elbo_is_the_sum_of_the_parts_shown() -> None:
    elbo, *parts = elbo_figure(records()).axes
    total = sum(np.asarray(axes.lines[0].get_ydata()) for axes in parts)
    assert len(parts) == 3
    np.testing.assert_allclose(elbo.lines[0].get_ydata(), total)


def test_reliability_draws_the_bins_that_have_answers() -> None:
    curve = reliability([0.05, 0.95, 0.95, 1.0], [0, 1, 1, 0], 10)
    top, bottom = reliability_figure(curve).axes
    drawn = {line.get_label(): line for line in top.get_lines()}
    np.testing.assert_allclose(drawn["calibrated"].get_xdata(), [0.05, 2.9 / 3])
    np.testing.assert_allclose(drawn["calibrated"].get_ydata(), [0, 2 / 3])
    assert [bar.get_height() for bar in bottom.patches] == [1, 0, 0, 0, 0, 0, 0, 0, 0, 3]
    assert "as trained" not in "".join(drawn)
    assert "as trained" in "".join(line.get_label() for line in reliability_figure(curve, curve).axes[0].get_lines())
