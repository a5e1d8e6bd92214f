"""A classifier by cases: a fact is as right as the right and wrong facts that it is like.

It is logistic regression in the space of a kernel, that is, a Gaussian process classifier at its mode (Rasmussen and
Williams 2006, Algorithm 3.1), where an example may have a weight. The logits are a_1 k(x, x_1) + ... + a_n k(x, x_n).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg

from kgem.answer.logistic import sigmoid

__all__ = ["Cases"]

FAR = 4.0  # features are kept within so many standard deviations
LINEAR, ALIKE = 1 / 30, 4.0  # prior variances: of the weight of each feature, of a smooth function of all of them
RELATION, ALIKE_IN_RELATION, ANSWER = 1 / 3, 1.0, 1.0  # of a relation's effect and function, of an answer's effect
STEPS = 50
ENOUGH = 1e-5  # what a step may still gain, for each example
BLOCK = 1024  # facts whose kernel is made at a time

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Cases:
    """Facts that were right or wrong, and how much each speaks for or against those that are like it."""

    centre: Floats  # (F,)
    scale: Floats  # (F,)
    rows: Singles  # (n, F), standardised
    facts: Longs  # (n, 3)
    weights: Floats  # (n,), a

    @classmethod
    def fit(cls, features: Floats, facts: Longs, right: Bools, weight: Floats) -> Cases:
        """From examples (n, F) of facts (n, 3), each with a label and a weight (n,); n cubed operations a step."""
        centre, scale = features.mean(0), features.std(0) + 1e-9
        rows = _standardise(features, centre, scale)
        return cls(centre, scale, rows, facts, _fit(_kernel(rows, facts, rows, facts), right, weight))

    def logit(self, features: Floats, facts: Longs) -> Floats:
        """Of facts (m, 3) with features (m, F): (m,)."""
        rows, weights = _standardise(features, self.centre, self.scale), self.weights.astype(np.float32)
        logits = np.empty(len(rows))
        for start in range(0, len(rows), BLOCK):
            part = slice(start, start + BLOCK)
            logits[part] = _kernel(rows[part], facts[part], self.rows, self.facts) @ weights
        return logits

    def chance(self, features: Floats, facts: Longs) -> Floats:
        """(m,)"""
        return sigmoid(self.logit(features, facts))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {name: getattr(self, name).tolist() for name in self.__dataclass_fields__}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], n_features: int) -> Cases:
        kinds = dict.fromkeys(cls.__dataclass_fields__, "f8") | {"rows": "f4", "facts": "i8"}
        arrays = {name: np.array(document[name], dtype=kind) for name, kind in kinds.items()}
        n = len(arrays["weights"])
        shapes = {"centre": (n_features,), "scale": (n_features,), "rows": (n, n_features), "facts": (n, 3)}
        for name, shape in (shapes | {"weights": (n,)}).items():
            if arrays[name].shape != shape or not np.isfinite(arrays[name]).all():
                raise ValueError(f"{name} of cases: {arrays[name].shape} instead of {shape} finite numbers")
        return cls(**arrays)


def _standardise(features: Floats, centre: Floats, scale: Floats) -> Singles:
    return np.clip((features - centre) / scale, -FAR, FAR).astype(np.float32)


def _kernel(rows: Singles, facts: Longs, others: Singles, other_facts: Longs) -> Singles:
    """How much one fact tells about another: (n, m) of n facts and m others.

    Facts are alike by their features; more so those of one relation, and those that also have the same tail.
    """
    product = rows @ others.T
    near = product - (rows**2).sum(1)[:, None] / 2
    near -= (others**2).sum(1) / 2
    near /= rows.shape[1]
    alike: Singles = np.exp(near, out=near)
    same = facts[:, 1, None] == other_facts[:, 1]
    both = same & (facts[:, 2, None] == other_facts[:, 2])
    product *= np.float32(LINEAR)
    product += np.float32(ALIKE) * alike + 1
    alike *= np.float32(ALIKE_IN_RELATION)
    alike += np.float32(RELATION)
    alike *= same
    product += alike
    product += np.float32(ANSWER) * both
    return product


def _fit(kernel: Singles, right: Bools, weight: Floats) -> Floats:
    """The a with the least weighted log loss of K a, and a K a / 2: Newton's method, (n,)."""
    sign = np.where(right, 1.0, -1.0)

    def loss(a: Floats, logits: Floats) -> float:
        return float(a @ logits / 2 + weight @ np.logaddexp(0.0, -sign * logits))

    a = logits = np.zeros(len(right))
    now = loss(a, logits)
    for _ in range(STEPS):
        chance = sigmoid(logits)
        root = np.sqrt(weight * chance * (1 - chance)).astype(np.float32)
        inner = kernel * root
        inner *= root[:, None]
        inner[np.diag_indices_from(inner)] += 1
        factor = scipy.linalg.cho_factor(inner, lower=True, overwrite_a=True, check_finite=False)
        b = root.astype(np.float64) ** 2 * logits + weight * (right - chance)
        towards = b - root * scipy.linalg.cho_solve(factor, root * (kernel @ b.astype(np.float32)))
        size, then = 1.0, np.inf
        while size > 1e-3:
            mixed = a + size * (towards - a)
            mixed_logits = (kernel @ mixed.astype(np.float32)).astype(np.float64)
            if (then := loss(mixed, mixed_logits)) <= now:
                break
            size /= 2
        if then > now:
            break
        a, logits, gained, now = mixed, mixed_logits, now - then, then
        if gained < ENOUGH * len(right):
            break
    return a
