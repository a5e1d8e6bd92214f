"""How far probabilities can be trusted: reliability curves, ECE, and the temperature that mends them.

The probability of a tail is softmax(scores / T) over all entities, with one T for all or the question's own. It answers
"which tail, given that there is one", not "is there such a fact". As in filtered ranks, the *other* known answers of
the query are left out: each fact's tail competes with the entities that are not known to be right. Scores must be
logits or logarithms of probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kgem.data.index import QueryIndex
from kgem.errors import FitError, InputError
from kgem.evaluate.blocks import MEMORY, Ints, Scorer
from kgem.evaluate.softmax import Temperatures, first_answers, log_losses, split_competitions
from kgem.model.embeddings import Embeddings

__all__ = [
    "Calibration",
    "ReliabilityCurve",
    "ece",
    "fact_losses",
    "fit_temperature",
    "log_loss",
    "measure",
    "reliability",
    "top_answers",
]

COLDEST, HOTTEST = 0.01, 100.0  # a temperature beyond says only that the scores are perfect, or worthless
TOLERANCE = 1e-3  # the last relative step of Newton's method; the error it leaves is about its square
SAMPLE = 4096  # facts that find the neighbourhood of the temperature, before all are asked

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """Predictions gathered by confidence; in an empty bin both means are NaN."""

    edges: Floats  # (bins + 1,); a bin has its upper edge, not its lower one
    counts: npt.NDArray[np.int64]  # (bins,)
    confidence: Floats  # (bins,), mean confidence
    accuracy: Floats  # (bins,), share that is right

    def to_dict(self) -> dict[str, Any]:
        """For JSON: lists, and None for the means of an empty bin."""
        return {
            "edges": self.edges.tolist(),
            "counts": self.counts.tolist(),
            "confidence": [None if math.isnan(value) else value for value in self.confidence.tolist()],
            "accuracy": [None if math.isnan(value) else value for value in self.accuracy.tolist()],
        }


@dataclass(frozen=True, eq=False)
class Calibration:
    """How well calibrated a model is on held-out facts, as it came and with the fitted temperature."""

    temperature: float  # fitted on validation; the geometric mean, if each question has its own
    n: int  # facts it was measured on
    top: int  # answers per fact in the curve of pairs
    log_loss: float  # mean negative log-probability of the right tail, nats
    log_loss_before: float  # at T = 1
    ece: float  # of the first answer
    ece_before: float
    ece_pairs: float  # of all (probability, whether true) pairs among the `top` first answers
    ece_pairs_before: float
    curve: ReliabilityCurve  # of the first answer
    curve_before: ReliabilityCurve
    curve_pairs: ReliabilityCurve

    def to_dict(self) -> dict[str, Any]:
        """For JSON; a figure that nothing was measured for is None."""
        return {name: _plain(value) for name, value in vars(self).items()}


def measure(
    scorer: Scorer | Embeddings, test: Ints, known: QueryIndex | None, temperatures: Temperatures, *, top: int = 10
) -> Calibration:
    """How well calibrated a model is on `test`, with temperatures that were fitted before."""
    at: tuple[Temperatures, Temperatures] = (1.0, temperatures)
    (before, right_before), (after, right) = (top_answers(scorer, test, known, t, top=top) for t in at)
    loss_before, loss = (log_loss(scorer, test, known, t) for t in at)
    first_before = reliability(before[:, 0], right_before[:, 0])
    first = reliability(after[:, 0], right[:, 0])
    pairs = reliability(after, right)
    return Calibration(
        temperature=_typical(temperatures),
        n=len(after),
        top=after.shape[1],
        log_loss=loss,
        log_loss_before=loss_before,
        ece=ece(first),
        ece_before=ece(first_before),
        ece_pairs=ece(pairs),
        ece_pairs_before=ece(reliability(before, right_before)),
        curve=first,
        curve_before=first_before,
        curve_pairs=pairs,
    )


def reliability(confidences: npt.ArrayLike, correct: npt.ArrayLike, bins: int = 15) -> ReliabilityCurve:
    """Gather predictions, of any shape, into bins of equal width."""
    values = np.asarray(confidences, dtype=np.float64).ravel()
    right = np.asarray(correct, dtype=np.float64).ravel()
    if bins < 1:
        raise InputError(f"cannot make {bins} bins", remedy="at least one")
    if len(values) != len(right) or not bool(((values >= 0) & (values <= 1 + 1e-6)).all()):
        raise InputError(
            "confidences are not probabilities, one for each prediction",
            remedy="give as many numbers in 0 ... 1 as there are predictions",
        )
    edges = np.linspace(0.0, 1.0, bins + 1)
    place = np.searchsorted(edges[1:-1], values, side="left")
    n = np.bincount(place, minlength=len(edges) - 1)

    def mean(what: Floats) -> Floats:
        total = np.bincount(place, weights=what, minlength=len(n))
        return np.where(n > 0, total / np.maximum(n, 1), np.nan)

    return ReliabilityCurve(edges, n.astype(np.int64), mean(values), mean(right))


def ece(curve: ReliabilityCurve) -> float:
    """Expected calibration error: the mean gap of confidence and accuracy over predictions; NaN for none."""
    n = curve.counts.sum()
    return float(np.nansum(curve.counts * np.abs(curve.confidence - curve.accuracy)) / n) if n else math.nan


def fit_temperature(
    scorer: Scorer | Embeddings, facts: Ints, known: QueryIndex | None, *, memory: int = MEMORY
) -> float:
    """The T that minimises the mean negative log-probability of the facts' tails; 1 without facts.

    The loss is convex in 1/T: Newton's method inside a bracket, one pass over the scores per step. A sample
    of the facts finds the neighbourhood, so that all of them are usually asked only twice.
    """
    facts = np.asarray(facts).reshape(-1, 3)
    if not len(facts):
        return 1.0

    def slope(part: Ints) -> Callable[[float], tuple[float, float]]:
        def at(beta: float) -> tuple[float, float]:
            _, first, second = fact_losses(scorer, part, known, 1 / beta, memory=memory).mean(1).tolist()
            return first, second

        return at

    beta = 1.0
    if len(facts) > 2 * SAMPLE:
        few = facts[np.linspace(0, len(facts) - 1, SAMPLE).astype(np.int64)]
        beta = _find_root(slope(few), beta)
    return 1 / _find_root(slope(facts), beta)


def log_loss(
    scorer: Scorer | Embeddings,
    facts: Ints,
    known: QueryIndex | None,
    temperatures: Temperatures = 1.0,
    *,
    memory: int = MEMORY,
) -> float:
    """The mean negative log-probability of the facts' tails, in nats; NaN without facts."""
    losses = fact_losses(scorer, facts, known, temperatures, memory=memory)[0]
    return float(losses.mean()) if len(losses) else math.nan


def fact_losses(
    scorer: Scorer | Embeddings,
    facts: Ints,
    known: QueryIndex | None,
    temperatures: Temperatures = 1.0,
    *,
    memory: int = MEMORY,
) -> Floats:
    """Of each fact -log softmax(beta * scores)[tail], beta = 1/T, and its first two derivatives by beta: (3, n)."""
    _check_temperatures(temperatures)
    facts = np.asarray(facts).reshape(-1, 3)
    losses = np.empty((3, len(facts)))
    for part in split_competitions(scorer, facts, known, memory):
        losses[:, part.places] = log_losses(part, temperatures).cpu().numpy()
    if not np.isfinite(losses).all():
        raise FitError("some facts have a score that is not a finite number", remedy="fit the model anew")
    return losses


def top_answers(
    scorer: Scorer | Embeddings,
    facts: Ints,
    known: QueryIndex | None,
    temperatures: Temperatures = 1.0,
    *,
    top: int = 10,
    memory: int = MEMORY,
) -> tuple[Floats, Bools]:
    """The probabilities of the first answers, best first, and which of them is the fact's tail: (n, top) each.

    A known tail that ties with others is behind them, as in the paper's ranks. Where there are fewer answers
    than asked for, the rest have probability zero.
    """
    _check_temperatures(temperatures)
    facts = np.asarray(facts).reshape(-1, 3)
    top = max(1, min(top, scorer.n_entities))
    confidence = np.zeros((len(facts), top))
    correct = np.zeros((len(facts), top), dtype=bool)
    for part in split_competitions(scorer, facts, known, memory):
        share, right = first_answers(part, temperatures, top)
        confidence[part.places], correct[part.places] = share.cpu().numpy(), right.cpu().numpy()
    return confidence, correct


def _find_root(slope: Callable[[float], tuple[float, float]], beta: float) -> float:
    """Where a rising function is zero, from its value and derivative: Newton's steps, halving where they fail."""
    low, high = 1 / HOTTEST, 1 / COLDEST
    last = math.log(high / low)  # the step before, relative
    while True:
        value, derivative = slope(beta)
        if value == 0:  # also where no tail has a competitor
            return beta
        low, high = (low, beta) if value > 0 else (beta, high)
        guess = beta - value / derivative if derivative > 0 else 0.0
        # Newton's method creeps where the minimum is at infinity: it must halve its steps or be replaced.
        if not low <= guess <= high or abs(math.log(guess / beta)) > last / 2:
            guess = math.sqrt(low * high)
        last = abs(math.log(guess / beta))
        beta = guess
        if last < TOLERANCE:
            return beta


def _check_temperatures(temperatures: Temperatures) -> None:
    if not bool(np.all(np.isfinite(temperatures) & (np.asarray(temperatures) > 0))):
        raise InputError(f"a temperature of {temperatures} makes no distribution", remedy="give a positive number")


def _typical(temperatures: Temperatures) -> float:
    """The geometric mean, which is that of equal ones to the last digit."""
    if not isinstance(temperatures, np.ndarray):
        return temperatures
    if not len(temperatures):
        return 1.0
    first = float(temperatures[0])
    return first * float(np.exp(np.log(temperatures / first).mean()))


def _plain(value: Any) -> Any:
    if isinstance(value, ReliabilityCurve):
        return value.to_dict()
    return None if isinstance(value, float) and math.isnan(value) else value
