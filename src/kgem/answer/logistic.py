"""A logistic model of features, their products and a shrunken effect of each group, fitted by Fisher scoring.

An example of which only a part of the right ones can be seen to be right has that part c as its ceiling: it is labelled
right with probability c sigmoid(z). With a ceiling of one this is logistic regression, and scoring is Newton's method.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.optimize
import scipy.sparse

__all__ = ["Logistic", "expand", "weigh_alike"]

RIDGE, GROUP_RIDGE = 30.0, 3.0  # on the squares of weights, and of the effects of groups, halved
FAR = 10.0  # features and products are kept within so many standard deviations
FOLDS = 5
DOUBT = 16.0  # prior precision of the slope that examples which were left out ask for, around one
STEPS = 50
ENOUGH = 1e-8  # what a step may still gain, for each example

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Logistic:
    """sigmoid(w . expand(x) + b_g): how probable an example with features x of group g is a right one; b_-1 is 0."""

    centre: Floats  # (F,)
    scale: Floats  # (F,)
    weights: Floats  # (W,): of each feature, of each product of two, and a constant
    effects: Floats  # (G,)

    @classmethod
    def fit(
        cls,
        features: Floats,
        right: Bools,
        groups: Longs | None = None,
        n_groups: int = 0,
        *,
        weight: Floats | None = None,
        ceilings: Floats | None = None,
        start: Logistic | None = None,
    ) -> Logistic:
        """From examples (n, F), each with a label, a group or -1, a weight and a ceiling (n,); the last two are 1.

        From `start` on, if that is a model of nearly the same examples, it takes fewer steps to the same end.
        """
        centre, scale = features.mean(0), features.std(0) + 1e-9
        examples = _Examples(
            expand((features - centre) / scale),
            right,
            np.full(len(right), -1) if groups is None else groups,
            np.ones(len(right)) if weight is None else weight,
            np.ones(len(right)) if ceilings is None else ceilings,
        )
        return cls(centre, scale, *_fit(examples, n_groups, start))

    @classmethod
    def fit_in_folds(
        cls, features: Floats, right: Bools, groups: Longs, n_groups: int, *, ceilings: Floats, seed: int = 0
    ) -> Logistic:
        """As `fit`, with logits a z + b: what is right for examples that were left out, a fold at a time.

        A model is too sure of the examples that it was fitted to, and its ridge makes it too cautious. Both are small
        in the mean, but proposals are the highest of many, where each is at its largest. The order stays.
        """
        folds = np.random.default_rng(seed).permutation(len(right)) % FOLDS
        whole = cls.fit(features, right, groups, n_groups, ceilings=ceilings)
        left_out = np.empty(len(right))
        for fold in range(FOLDS):
            inside, outside = folds != fold, folds == fold
            given = features[inside], right[inside], groups[inside], n_groups
            part = cls.fit(*given, ceilings=ceilings[inside], start=whole)
            left_out[outside] = part.logit(features[outside], groups[outside])
        slope, shift = _fit_line(left_out, right, ceilings)
        weights = slope * whole.weights
        weights[-1] += shift
        return cls(whole.centre, whole.scale, weights, slope * whole.effects)

    def logit(self, features: Floats, groups: Longs | int = -1) -> Floats:
        """(n,)"""
        effects = np.append(self.effects, 0.0)[groups]
        logits: Floats = expand((features - self.centre) / self.scale) @ self.weights + effects
        return logits

    def chance(self, features: Floats, groups: Longs | int = -1) -> Floats:
        """(n,)"""
        return sigmoid(self.logit(features, groups))

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


def weigh_alike(right: Bools) -> Floats:
    """Weights with which right and wrong examples count the same in all, one each on average: (n,)."""
    weights: Floats = np.where(right, 0.5 / max(right.sum(), 1), 0.5 / max((~right).sum(), 1)) * len(right)
    return weights


def expand(standard: Floats) -> Floats:
    """Features, their products two by two, and a one: (n, W)."""
    n = standard.shape[1]
    products = [standard[:, i : i + 1] * standard[:, i:] for i in range(n)]
    rows = np.clip(np.concatenate([standard, *products], axis=1), -FAR, FAR)
    return np.concatenate([rows, np.ones((len(rows), 1))], axis=1)


def sigmoid(logits: Floats) -> Floats:
    chance: Floats = np.exp(-np.logaddexp(0.0, -logits))
    return chance


@dataclass(frozen=True, eq=False)
class _Examples:
    """What a model is fitted to; z are its logits, (n,)."""

    rows: Floats  # (n, W)
    right: Bools  # (n,)
    groups: Longs  # (n,), -1 for none
    weight: Floats  # (n,)
    ceilings: Floats  # (n,), c

    def loss(self, z: Floats) -> float:
        """-log(c sigmoid) of the right ones and -log(1 - c sigmoid) of the others, weighted."""
        of_right = np.log(self.ceilings) - np.logaddexp(0.0, -z)
        of_wrong = self._log_rest(z) - np.logaddexp(0.0, -z)
        return float(-self.weight @ np.where(self.right, of_right, of_wrong))

    def slopes(self, z: Floats) -> tuple[Floats, Floats]:
        """The loss's slope in z and its expected curvature, (n,) each."""
        chance = sigmoid(z)
        kept = np.exp(-z - self._log_rest(z))  # (1 - sigmoid) / (1 - c sigmoid)
        error = (self.ceilings * chance - self.right) * kept
        return self.weight * error, self.weight * self.ceilings * chance * (1 - chance) * kept

    def _log_rest(self, z: Floats) -> Floats:
        """log(1 - c + exp(-z)), so that 1 - c sigmoid(z) is exp of it times sigmoid(z)."""
        with np.errstate(divide="ignore"):
            rest: Floats = np.logaddexp(np.log1p(-self.ceilings), -z)
        return rest


def _fit(examples: _Examples, n_groups: int, start: Logistic | None = None) -> tuple[Floats, Floats]:
    """Weights (W,) and effects (G,) with the least weighted log loss and penalties; the constant has none.

    The Hessian is diagonal in the effects, which are eliminated first: a step solves W equations, however many groups.
    """
    x, groups = examples.rows, examples.groups % (n_groups + 1)  # the last is no group, and has no effect
    penalty = np.append(np.full(x.shape[1] - 1, RIDGE), 1e-9)
    w, b = np.zeros(x.shape[1]), np.zeros(n_groups + 1)
    rate = np.average(examples.right / examples.ceilings, weights=examples.weight)
    w[-1] = np.log(max(rate, 1e-6) / max(1 - rate, 1e-6))
    if start is not None:
        w, b = start.weights, np.append(start.effects, 0.0)
    places = scipy.sparse.csr_matrix((np.ones(len(x)), (groups, np.arange(len(x)))), shape=(n_groups + 1, len(x)))

    def loss(w: Floats, b: Floats) -> float:
        return examples.loss(x @ w + b[groups]) + float(penalty @ w**2 / 2 + GROUP_RIDGE * b @ b / 2)

    now = loss(w, b)
    for _ in range(STEPS):
        error, curvature = examples.slopes(x @ w + b[groups])
        curved = x * curvature[:, None]
        mixed = places @ curved  # (G + 1, W)
        diagonal = GROUP_RIDGE + np.bincount(groups, curvature, n_groups + 1)
        diagonal[n_groups] = np.inf
        slope_w = x.T @ error + penalty * w
        slope_b = np.bincount(groups, error, n_groups + 1) + GROUP_RIDGE * b
        schur = x.T @ curved + np.diag(penalty) - mixed.T @ (mixed / diagonal[:, None])
        step_w = np.linalg.solve(schur, slope_w - mixed.T @ (slope_b / diagonal))
        step_b = (slope_b - mixed @ step_w) / diagonal
        size = 1.0
        while (then := loss(w - size * step_w, b - size * step_b)) > now and size > 1e-3:
            size /= 2
        if then > now:
            break
        w, b, gained, now = w - size * step_w, b - size * step_b, now - then, then
        if gained < ENOUGH * len(x):
            break
    return w, b[:n_groups]


def _fit_line(logits: Floats, right: Bools, ceilings: Floats) -> tuple[float, float]:
    """Slope and shift of logits (n,) that make the labels most probable, the slope shrunk to one (Platt, 1999)."""
    rows = np.stack([logits, np.ones(len(logits))], axis=1)
    examples = _Examples(rows, right, np.full(len(right), -1), np.ones(len(right)), ceilings)

    def objective(line: Floats) -> tuple[float, Floats]:
        z, off = rows @ line, line[0] - 1
        slopes = rows.T @ examples.slopes(z)[0] + [DOUBT * off, 0.0]
        return examples.loss(z) + DOUBT / 2 * off**2, slopes

    bounds = [(1e-3, None), (None, None)]  # a slope of zero or less would undo the order
    found = scipy.optimize.minimize(objective, np.array([1.0, 0.0]), jac=True, method="L-BFGS-B", bounds=bounds)
    return float(found.x[0]), float(found.x[1])
