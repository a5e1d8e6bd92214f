"""A logistic model of features, their products and a shrunken effect of each group, fitted by Newton's method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Logistic", "expand"]

RIDGE, GROUP_RIDGE = 30.0, 1.0  # on the squares of weights, and of the effects of groups, halved
FAR = 10.0  # features and products are kept within so many standard deviations
STEPS = 30
ENOUGH = 1e-8  # what a step may still gain, for each example

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Logistic:
    """sigmoid(w . expand(x) + b_g): how probable an example with features x of group g is a right one."""

    centre: Floats  # (F,)
    scale: Floats  # (F,)
    weights: Floats  # (W,): of each feature, of each product of two, and a constant
    effects: Floats  # (G,)

    @classmethod
    def fit(cls, features: Floats, groups: Longs, n_groups: int, right: npt.NDArray[np.bool_]) -> Logistic:
        """From examples (n, F) with groups (n,); right ones and wrong ones weigh the same in all."""
        centre, scale = features.mean(0), features.std(0) + 1e-9
        rows = expand((features - centre) / scale)
        weight = np.where(right, 0.5 / max(right.sum(), 1), 0.5 / max((~right).sum(), 1)) * len(right)
        return cls(centre, scale, *_fit(rows, groups, n_groups, right.astype(np.float64), weight))

    def logit(self, features: Floats, groups: Longs) -> Floats:
        """(n,)"""
        return expand((features - self.centre) / self.scale) @ self.weights + self.effects[groups]

    def chance(self, features: Floats, groups: Longs) -> Floats:
        """(n,)"""
        return _sigmoid(self.logit(features, groups))

    def to_dict(self) -> dict[str, list[float]]:
        """For JSON."""
        return {name: getattr(self, name).tolist() for name in ("centre", "scale", "weights", "effects")}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], n_features: int, n_groups: int) -> Logistic:
        arrays = {name: np.array(document[name], dtype=np.float64) for name in cls.__dataclass_fields__}
        n = n_features
        sizes = {"centre": n, "scale": n, "weights": n + n * (n + 1) // 2 + 1, "effects": n_groups}
        for name, size in sizes.items():
            if arrays[name].shape != (size,) or not np.isfinite(arrays[name]).all():
                raise ValueError(f"{name} of a logistic model: {arrays[name].shape} instead of {size} finite numbers")
        return cls(**arrays)


def expand(standard: Floats) -> Floats:
    """Features, their products two by two, and a one: (n, W)."""
    n = standard.shape[1]
    products = [standard[:, i : i + 1] * standard[:, i:] for i in range(n)]
    rows = np.clip(np.concatenate([standard, *products], axis=1), -FAR, FAR)
    return np.concatenate([rows, np.ones((len(rows), 1))], axis=1)


def _sigmoid(logits: Floats) -> Floats:
    chance: Floats = np.exp(-np.logaddexp(0.0, -logits))
    return chance


def _fit(x: Floats, groups: Longs, n_groups: int, y: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Weights (W,) and effects (G,) with the least weighted log loss and penalties; the constant has none.

    The Hessian is diagonal in the effects, which are eliminated first: a step solves W equations, however many groups.
    """
    penalty = np.append(np.full(x.shape[1] - 1, RIDGE), 1e-9)
    w, b = np.zeros(x.shape[1]), np.zeros(n_groups)

    def loss(w: Floats, b: Floats) -> float:
        logits = x @ w + b[groups]
        data = weight @ (np.logaddexp(0.0, logits) - y * logits)
        return float(data + penalty @ w**2 / 2 + GROUP_RIDGE * b @ b / 2)

    now = loss(w, b)
    for _ in range(STEPS):
        p = _sigmoid(x @ w + b[groups])
        error, curvature = weight * (p - y), weight * p * (1 - p)
        curved = x * curvature[:, None]
        mixed = np.zeros((n_groups, x.shape[1]))
        np.add.at(mixed, groups, curved)  # (G, W)
        diagonal = GROUP_RIDGE + np.bincount(groups, curvature, n_groups)
        slope_w = x.T @ error + penalty * w
        slope_b = np.bincount(groups, error, n_groups) + GROUP_RIDGE * b
        schur = x.T @ curved + np.diag(penalty) - mixed.T @ (mixed / diagonal[:, None])
        step_w = np.linalg.solve(schur, slope_w - mixed.T @ (slope_b / diagonal))
        step_b = (slope_b - mixed @ step_w) / diagonal
        size = 1.0
        while (then := loss(w - size * step_w, b - size * step_b)) > now and size > 1e-3:
            size /= 2
        if then > now - ENOUGH * len(y):
            break
        w, b, now = w - size * step_w, b - size * step_b, then
    return w, b
