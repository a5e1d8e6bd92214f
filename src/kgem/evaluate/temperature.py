"""What the scores of a question are divided by: a common temperature, and how it depends on the question.

log T_q = log T + side + slope (log(1 + n_q) - centre) + effect, where effect and slope are those of the relation in its
direction, and n_q is the number of answers that *training* has: the same for a question of validation, of test, or of a
user. One number divides all scores of a question, so that ranks stay as they are.

Where it pays, the temperature also depends on how undecided the scores are themselves, by the entropy of their softmax
at one temperature for all: a slope times (entropy - centre), in common and of the relation in its direction. It has to
be better by two standard errors, on facts that were left out, than without: it makes answers take longer. Proposals and
judgements look at facts at the temperatures without it: theirs are right as often as claimed without, and not with it.

The loss of a fact depends on its question's temperature alone, -log softmax(scores / T_q)[tail]. So it is tabulated
once, with its slope, at a few temperatures around the common one; all fits and folds are then made from the table.
The effects are shrunk to nothing by a ridge: the strongest whose loss on validation facts that were left out is within
a standard error of the least.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.optimize

from kgem.data.index import QueryIndex
from kgem.evaluate.blocks import MEMORY, Ints, Scorer
from kgem.evaluate.calibration import fact_losses, fit_temperature
from kgem.evaluate.softmax import entropies, split_competitions
from kgem.model.embeddings import Embeddings

__all__ = ["EntropyEffect", "Temperature", "fit_temperatures", "query_entropies"]

FARTHEST = 1.5  # |log(T_q / T)|: a question's temperature is at most 4.5 times the common one, or its inverse
SHIFT = 0.5  # by which the common one may move in its logarithm once questions differ
REACH, STEPS = FARTHEST + SHIFT, 12  # of the table: to either side, over all
RIDGES = (3.0, 10.0, 30.0, 100.0, 300.0)  # prior precision of a relation's effect
WEAK = 1.0  # that of side and slope
FOLDS = 5
SURE = 2.0  # standard errors by which the entropy has to be worth its while

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class EntropyEffect:
    """How the temperature of a question depends on the entropy of its scores."""

    reference: float  # the temperature at which the entropy is taken
    slope: float  # by entropy, in nats
    centre: float  # where it has no effect
    slopes: tuple[float, ...]  # that relations add to the slope, those of the reversed ones after the others

    def __post_init__(self) -> None:
        if not (0 < self.reference < math.inf and all(map(math.isfinite, (self.slope, self.centre, *self.slopes)))):
            raise ValueError(f"an entropy at a temperature of {self.reference} with slopes {self.slope}, {self.slopes}")

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> EntropyEffect:
        return cls(**{**document, "slopes": tuple(map(float, document["slopes"]))})


@dataclass(frozen=True)
class Temperature:
    """The temperatures of a mode's questions."""

    common: float = 1.0
    side: float = 0.0  # of questions for heads over those for tails, log ratio
    slope: float = 0.0  # by log(1 + known answers)
    centre: float = 0.0  # where the slope has no effect
    relations: tuple[float, ...] = ()  # log effects, those of the reversed relations after the others; or none
    slopes: tuple[float, ...] = ()  # that they add to the slope, likewise
    entropy: EntropyEffect | None = None
    without: Temperature | None = None  # as fitted without the entropy, if that has an effect

    @property
    def plain(self) -> Temperature:
        """Temperatures without the entropy, by which proposals and judgements look at facts."""
        return self.without or replace(self, entropy=None)

    def __post_init__(self) -> None:
        numbers = (self.side, self.slope, self.centre, *self.relations, *self.slopes)
        if not (0 < self.common < math.inf and all(map(math.isfinite, numbers))):
            raise ValueError(f"a temperature of {self.common} with effects {self.side}, {self.slope}, {self.relations}")

    def of(self, queries: Ints, train: QueryIndex, entropies: Floats | None = None) -> Floats:
        """T_q of questions (b, 2 or more) that begin with head and relation, reciprocal ids included: (b,).

        `entropies` (b,) are those of `query_entropies`, without which a temperature that depends on them is unknown.
        """
        none, own = (0.0,) * train.n_relations, self.entropy
        effects = [self.side, self.slope, *(self.relations or none), *(self.slopes or none)]
        if own is None:
            design = _Design.of(queries, train, self.centre)
        else:
            if entropies is None:
                raise ValueError("these temperatures depend on the entropies of the questions")
            design = _Design.of(queries, train, self.centre, entropies - own.centre)
            effects = [*effects[:2], own.slope, *effects[2:], *own.slopes]
        return self.common * np.exp(_clip(design.times(np.array(effects))))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        document = asdict(self) | {"relations": list(self.relations), "slopes": list(self.slopes)}
        del document["entropy"], document["without"]
        if self.entropy is not None:
            document["entropy"] = asdict(self.entropy) | {"slopes": list(self.entropy.slopes)}
        if self.without is not None:
            document["without"] = self.without.to_dict()
        return document

    @classmethod
    def from_dict(cls, document: Any) -> Temperature:
        """What to_dict made, or a mere number: one temperature for all."""
        if isinstance(document, dict):
            lists = {name: tuple(map(float, document.get(name, ()))) for name in ("relations", "slopes")}
            made: dict[str, Any] = {}
            if "entropy" in document:
                made = {"entropy": EntropyEffect.from_dict(document["entropy"])}
            if "without" in document:
                made["without"] = cls.from_dict(document["without"])
            return cls(**document | lists | made)
        return cls(float(document))


def query_entropies(
    scorer: Scorer | Embeddings, queries: Ints, train: QueryIndex, temperature: float, *, memory: int = MEMORY
) -> Floats:
    """The entropy of softmax(scores / T) over the entities that training does not have as answers, nats: (b,)."""
    facts = np.concatenate([np.asarray(queries)[:, :2], np.zeros((len(queries), 1), dtype=np.int64)], axis=1)
    found = np.empty(len(facts))
    for part in split_competitions(scorer, facts, train, memory):
        found[part.places] = entropies(part, temperature).cpu().numpy()
    return found


def fit_temperatures(
    scorer: Scorer | Embeddings,
    facts: Ints,
    known: QueryIndex | None,
    train: QueryIndex,
    *,
    seed: int = 0,
    memory: int = MEMORY,
) -> Temperature:
    """The temperatures that minimise the loss of validation facts, as far as that holds for facts that are left out."""
    facts = np.asarray(facts).reshape(-1, 3)
    common = fit_temperature(scorer, facts, known, memory=memory)
    if len(facts) < FOLDS:
        return Temperature(common)
    centre = float(_log_counts(facts, train).mean())
    table = _Table.of(scorer, facts, known, common, memory)
    folds = np.random.default_rng(seed).permutation(len(facts)) % FOLDS
    one = table.at(np.zeros(len(facts)))[0]
    plain = _choose_ridge(table, _Design.of(facts, train, centre), folds, one)
    found = query_entropies(scorer, facts, train, common, memory=memory)
    middle = float(found.mean())
    entropic = _choose_ridge(table, _Design.of(facts, train, centre, found - middle), folds, one)
    gain = plain.losses - entropic.losses
    without = Temperature(common)
    if plain.ridge != math.inf:
        shift, (side, slope), (relations, slopes) = plain.fit(table)
        without = Temperature(common * math.exp(shift), side, slope, centre, relations, slopes)
    if gain.mean() <= SURE * gain.std() / math.sqrt(len(gain)):
        return without
    shift, (side, slope, by_entropy), (relations, slopes, by_relation) = entropic.fit(table)
    effect = EntropyEffect(common, by_entropy, middle, by_relation)
    return Temperature(common * math.exp(shift), side, slope, centre, relations, slopes, effect, without)


@dataclass(frozen=True, eq=False)
class _Design:
    """What the temperature of each question depends on: columns with one effect, and with one for each relation."""

    common: Floats  # (c, n): -1/2 for a tail and 1/2 for a head; log(1 + n_q) - centre; the entropy beside its centre
    own: Floats  # (g, n): one; log(1 + n_q) - centre; the entropy beside its centre
    relations: npt.NDArray[np.int64]  # (n,), reciprocal ids included
    n_relations: int

    @classmethod
    def of(cls, queries: Ints, train: QueryIndex, centre: float, entropies: Floats | None = None) -> _Design:
        relations = np.asarray(queries)[:, 1].astype(np.int64)
        side = np.where(relations < train.n_relations // 2, -0.5, 0.5)
        columns = [_log_counts(queries, train) - centre, *([] if entropies is None else [entropies])]
        own = np.stack([np.ones(len(side)), *columns])
        return cls(np.stack([side, *columns]), own, relations, train.n_relations)

    def of_facts(self, kept: npt.NDArray[np.bool_]) -> _Design:
        return _Design(self.common[:, kept], self.own[:, kept], self.relations[kept], self.n_relations)

    @property
    def weights(self) -> tuple[int, int]:
        """How many effects there are: common ones, and those of relations."""
        return len(self.common), len(self.own) * self.n_relations

    def times(self, effects: Floats) -> Floats:
        """The sum of each question's effects (c + g n_relations,): (n,)."""
        n = len(self.common)
        of_relations = effects[n:].reshape(len(self.own), -1)[:, self.relations]
        total: Floats = effects[:n] @ self.common + (of_relations * self.own).sum(0)
        return total

    def transposed_times(self, values: Floats) -> Floats:
        """The sum over questions of values (n,) that each effect has a part in: (c + g n_relations,)."""
        own = [np.bincount(self.relations, weights=values * each, minlength=self.n_relations) for each in self.own]
        return np.concatenate([self.common @ values, *own])


@dataclass(frozen=True, eq=False)
class _Table:
    """The loss of each fact and its slope, at points of log(T_q / T): cubic between them."""

    losses: Floats  # (points, n)
    slopes: Floats  # (points, n)

    @classmethod
    def of(
        cls, scorer: Scorer | Embeddings, facts: Ints, known: QueryIndex | None, common: float, memory: int
    ) -> _Table:
        points = common * np.exp(np.linspace(-REACH, REACH, STEPS + 1))
        losses = np.stack([fact_losses(scorer, facts, known, float(t), memory=memory)[:2] for t in points])
        return cls(losses[:, 0], -losses[:, 1] / points[:, None])  # d / d log T = -beta d / d beta

    def of_facts(self, kept: npt.NDArray[np.bool_]) -> _Table:
        return _Table(self.losses[:, kept], self.slopes[:, kept])

    def at(self, logs: Floats) -> tuple[Floats, Floats]:
        """Loss and slope of each fact at its own log(T_q / T), within the table: (n,) each. Hermite's cubic."""
        h = 2 * REACH / STEPS
        place = (logs + REACH) / h
        left = np.clip(place.astype(np.int64), 0, STEPS - 1)
        s = place - left
        every = np.arange(len(logs))
        y0, y1 = self.losses[left, every], self.losses[left + 1, every]
        m0, m1 = h * self.slopes[left, every], h * self.slopes[left + 1, every]
        a, b = 2 * (y0 - y1) + m0 + m1, 3 * (y1 - y0) - 2 * m0 - m1
        return y0 + s * (m0 + s * (b + s * a)), (m0 + s * (2 * b + 3 * s * a)) / h


@dataclass(frozen=True, eq=False)
class _Form:
    """Effects with the ridge that suits them, infinite for none, and what facts that are left out lose with it."""

    design: _Design
    ridge: float
    losses: Floats  # (n,)

    def fit(self, table: _Table) -> tuple[float, tuple[float, ...], list[tuple[float, ...]]]:
        """Shift of the common log temperature, common effects, and those of relations, column by column."""
        n, _ = self.design.weights
        effects = _fit_effects(table, self.design, self.ridge)
        common, own = effects[1 : n + 1], effects[n + 1 :].reshape(len(self.design.own), -1)
        return float(effects[0]), tuple(common.tolist()), [tuple(each) for each in own.tolist()]


def _fit_effects(table: _Table, design: _Design, ridge: float) -> Floats:
    """Shift of the common log temperature, common effects, those of relations: least loss plus ridge / 2 squares."""
    common, own = design.weights
    weights = np.concatenate([[0.0], np.full(common, WEAK), np.full(own, ridge)])

    def objective(effects: Floats) -> tuple[float, Floats]:
        logs = design.times(effects[1:])
        losses, slopes = table.at(effects[0] + _clip(logs))
        inside = np.where(np.abs(logs) < FARTHEST, slopes, 0.0)
        gradient = np.concatenate([[slopes.sum()], design.transposed_times(inside)]) + weights * effects
        return float(losses.sum() + 0.5 * (weights * effects**2).sum()), gradient

    bounds = [(-SHIFT, SHIFT), *[(None, None)] * (len(weights) - 1)]
    found = scipy.optimize.minimize(objective, np.zeros(len(weights)), jac=True, method="L-BFGS-B", bounds=bounds)
    effects: Floats = found.x
    return effects


def _left_out_losses(table: _Table, design: _Design, folds: npt.NDArray[np.int64], ridge: float) -> Floats:
    """The loss of each fact at effects that were fitted without its fold: (n,)."""
    losses = np.empty(len(folds))
    for fold in range(FOLDS):
        inside, outside = folds != fold, folds == fold
        shift, *effects = _fit_effects(table.of_facts(inside), design.of_facts(inside), ridge).tolist()
        logs = shift + _clip(design.of_facts(outside).times(np.array(effects)))
        losses[outside] = table.of_facts(outside).at(logs)[0]
    return losses


def _choose_ridge(table: _Table, design: _Design, folds: npt.NDArray[np.int64], one: Floats) -> _Form:
    """The strongest that is behind the best by no more than the standard error of the difference; `one` is without."""
    losses = {ridge: _left_out_losses(table, design, folds, ridge) for ridge in RIDGES} | {math.inf: one}
    best = losses[min(losses, key=lambda ridge: float(losses[ridge].mean()))]

    def is_close(ridge: float) -> bool:
        behind = losses[ridge] - best
        return bool(behind.mean() <= behind.std() / math.sqrt(len(behind)))

    ridge = max(filter(is_close, losses))
    return _Form(design, ridge, losses[ridge])


def _log_counts(queries: Ints, train: QueryIndex) -> Floats:
    """log(1 + n_q), n_q the answers that training has: (n,)."""
    queries = np.asarray(queries)
    places = train.find(queries[:, 0], queries[:, 1])
    counts: Floats = np.log1p(np.where(places >= 0, train.counts[places], 0))
    return counts


def _clip(logs: Floats) -> Floats:
    return np.clip(logs, -FARTHEST, FARTHEST)
