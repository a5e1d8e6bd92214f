"""Laws of strengths against numpy's least squares and against a grid."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kgem.errors import InputError
from kgem.evaluate.strength_laws import fit_strengths

rng = np.random.default_rng(0)
COUNTS = rng.zipf(1.6, size=300).clip(max=5000) - 1
STRENGTHS = 2.5 * np.maximum(COUNTS, 1) ** 0.4 * np.exp(0.2 * rng.normal(size=300))


def test_fit_is_least_squares_in_log_space() -> None:
    x, y = np.log(np.maximum(COUNTS, 1)), np.log(STRENGTHS)
    fit = fit_strengths(STRENGTHS, COUNTS)
    slope, height = np.polyfit(x, y, 1)
    assert fit.slope == pytest.approx(slope)
    assert fit.scale == pytest.approx(math.exp(height))
    grid = np.geomspace(0.01, 100, 100_001)
    errors = ((y - x) ** 2).sum() - 2 * np.log(grid) * (y - x).sum() + len(x) * np.log(grid) ** 2
    assert fit.c == pytest.approx(grid[errors.argmin()], rel=1e-3)
    exact = fit_strengths([6.0, 15.0, 30.0], [2, 5, 10])
    assert (exact.c, exact.slope) == pytest.approx((3, 1))
    assert math.isnan(fit_strengths([1.0, 4.0], [7, 7]).slope)


@pytest.mark.parametrize(
    ("strengths", "counts", "told"),
    [([1.0, 2.0], [1], "do not belong"), ([], [], "do not belong"), ([0.0, 1.0], [1, 2], "positive number")],
)
def test_what_has_no_law_is_refused(strengths: list[float], counts: list[int], told: str) -> None:
    with pytest.raises(InputError, match=told):
        fit_strengths(strengths, counts)
