"""How learned strengths follow frequency: the laws fitted to them (Fig. 3)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kgem.errors import InputError

__all__ = ["ProportionalFit", "fit_strengths"]


class ProportionalFit(NamedTuple):
    """Least squares in log space: lambda = c * n (Eq. 6), and lambda = scale * n^slope."""

    c: float
    slope: float  # NaN where all counts are equal
    scale: float


def fit_strengths(strengths: npt.ArrayLike, counts: npt.ArrayLike) -> ProportionalFit:
    """How strengths follow frequency; a symbol that training never shows counts once, as in Eq. 6."""
    lam, n = np.asarray(strengths, dtype=np.float64), np.asarray(counts, dtype=np.float64)
    if lam.shape != n.shape or lam.ndim != 1 or not len(lam):
        raise InputError(
            f"strengths of shape {lam.shape} do not belong to counts of shape {n.shape}",
            remedy="give one strength and one count per symbol",
        )
    if not bool((np.isfinite(lam) & (lam > 0)).all()):
        raise InputError("a strength is not a positive number", remedy="strengths are above zero and finite")
    x, y = np.log(np.maximum(n, 1)), np.log(lam)
    distance = x - x.mean()
    spread = float(distance @ distance)
    slope = float(distance @ y) / spread if spread > 0 else math.nan
    return ProportionalFit(
        c=math.exp(float((y - x).mean())), slope=slope, scale=math.exp(float(y.mean() - slope * x.mean()))
    )
