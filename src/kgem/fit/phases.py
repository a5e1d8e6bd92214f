"""Section 3.2: pre-train, variational EM, re-train; a machine of three phases that can stop and go on anywhere.

Re-training fits a point estimate with the learned strengths. The mean of q was trained under noise, which
acts like a further regulariser that grows with how often a symbol occurs (docs/method.md); a point estimate
misses it. So the re-training strengths are

    lambda = a * learned + b * n,        b = c * mean(learned) / mean(n) over entities,

and (a, c) is settled by a short race on validation MRR: every candidate re-trains a few epochs from the EM
means, and the one that leads goes on. a = 1, c = 0 is the paper's recipe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kgem.config import Config, TrainConfig
from kgem.data.dataset import Dataset
from kgem.fit.point_estimate import EpochRecord, PointState, Validate, point_estimate
from kgem.fit.variational_em import EMState, variational_em
from kgem.model.embeddings import Embeddings
from kgem.model.objective import SoftmaxObjective
from kgem.model.posterior import Gaussian, Posterior
from kgem.model.prior import Prior, Strengths, conventional_strengths, uniform_strengths
from kgem.model.scores import get_score

__all__ = ["PHASES", "FitResult", "ThreePhases"]

PHASES = ("pretrain", "em", "retrain")
RULES = {"conventional": conventional_strengths, "uniform": uniform_strengths}

OnEpoch = Callable[["ThreePhases", str, EpochRecord], None]


@dataclass
class Race:
    """Phase 3: candidates for the re-training strengths, tried one after the other; the leader goes on."""

    state: PointState
    candidate: int = 0
    leader: int = -1
    best: float = float("-inf")
    leading: dict[str, Tensor] = field(default_factory=dict)  # the leader's state, to go on from
    leading_numbers: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class FitResult:
    """What a fit leaves behind."""

    point: Embeddings  # re-trained tables
    posterior: Posterior  # q after EM, at its best on validation
    strengths: Strengths  # learned by EM
    mix: tuple[float, float]  # the (a, c) that re-training settled on
    epochs: dict[str, int]  # spent in each phase, trials included


class ThreePhases:
    """A fit in progress. `run` carries it to its end; `tensors` and `numbers` are all that a checkpoint needs."""

    def __init__(
        self, data: Dataset, config: Config, validate: Validate | None = None, on_epoch: OnEpoch | None = None
    ) -> None:
        self.config = config
        self.phase = "pretrain"
        self._validate = validate
        self._on_epoch = on_epoch
        score = get_score(config.model.score)
        self.prior = Prior(config.model.p, score.complex)
        self._start = Embeddings.random(
            score,
            data.n_entities,
            data.n_relations,
            config.model.dim,
            generator=self._generator("init"),
            reciprocal=config.model.reciprocal,
            scale=config.model.init_scale,
            dtype=getattr(torch, config.dtype),
            device=config.device,
        )
        self.objective = SoftmaxObjective(data.query_index, self._start, self.prior)
        relations = np.tile(data.relation_counts, 2 if config.model.reciprocal else 1)
        self._counts = (data.entity_counts, relations)
        self.pretraining = PointState.start(self._start.clone(), config.pretrain, self._generator("pretrain"))
        self.epochs = dict.fromkeys(PHASES, 0)
        self.em: EMState | None = None
        self.race: Race | None = None

    def _generator(self, purpose: str) -> torch.Generator:
        """A stream of its own for each purpose, so that phases do not depend on each other's lengths."""
        purposes = ("init", "pretrain", "em", "noise", "retrain", "fresh", "predict")
        return torch.Generator().manual_seed(self.config.seed * len(purposes) + purposes.index(purpose))

    def rule_strengths(self) -> Strengths:
        """Eq. 6, or its uniform variant, for both tables."""
        config = self.config.pretrain
        like = self._start.entities
        rule = RULES[config.rule]
        return Strengths(*(rule(n, config.strength, like.dtype).to(like.device) for n in self._counts))

    def run(self) -> None:
        """Mutates: from wherever the fit stands to its end."""
        if self.phase == "pretrain":
            self._pretrain()
        if self.phase == "em":
            self._variational_em()
        if self.phase == "retrain":
            self._retrain()

    def result(self) -> FitResult:
        """Tables, posterior and strengths of a fit that is done."""
        assert self.em is not None and self.race is not None
        means, log_stds = self.em.best, self.em.best_log_stds
        q = Posterior(Gaussian(means.entities, log_stds.entities), Gaussian(means.relations, log_stds.relations))
        mix = self.config.retrain.candidates[self.race.leader]
        return FitResult(self.race.state.best, q, self.em.strengths, mix, dict(self.epochs))

    def _pretrain(self) -> None:
        config = self.config.pretrain
        self._point_estimate(self.pretraining, self.rule_strengths(), config)
        self.em = self._start_em()
        self.phase = "em"

    def _start_em(self) -> EMState:
        config, means = self.config.em, self.pretraining.best.clone()
        strengths = self.rule_strengths()
        if config.initial_strengths == "optimal":
            optima = (
                self.prior.optimal_inverse_strengths(self.prior.expected_norm(q.mean, q.log_std), q.mean.shape[1])
                for q in (Gaussian.around(table, config.initial_std) for table in means.tables())
            )
            strengths = Strengths(*(optimum.reciprocal() for optimum in optima))
        state = EMState.start(means, strengths, config, self._generator("em"), self._generator("noise"))
        if config.carry_accumulators:
            state.mean_optimizer.restore(self.pretraining.optimizer.state())
        return state

    def _variational_em(self) -> None:
        assert self.em is not None
        variational_em(
            self.em, self.objective, self.prior, self.config.em, self._validate, lambda _, record: self._tell(record)
        )
        self.race = Race(self._start_retraining())
        self.phase = "retrain"

    def _start_retraining(self) -> PointState:
        assert self.em is not None
        config = self.config.retrain
        start = self.em.best.clone() if config.start == "warm" else self._start.clone()
        return PointState.start(start, config, self._generator("retrain"))

    def retraining_strengths(self, a: float, c: float) -> Strengths:
        """a * learned + b * n with b = c * mean(learned) / mean(n)."""
        assert self.em is not None
        learned = self.em.strengths
        counts = [torch.from_numpy(np.maximum(n, 1)).to(learned.entities) for n in self._counts]
        b = c * learned.entities.mean() / counts[0].mean()
        return Strengths(*(a * lam + b * n for lam, n in zip(learned, counts, strict=True)))

    def _retrain(self) -> None:
        assert self.race is not None
        config, race = self.config.retrain, self.race
        trial = config.model_copy(update={"epochs": config.trial_epochs})
        if len(config.candidates) == 1:
            race.candidate, race.leader = 1, 0
        while race.candidate < len(config.candidates):
            self._point_estimate(race.state, self.retraining_strengths(*config.candidates[race.candidate]), trial)
            if race.leader < 0 or race.state.stopping.best > race.best:
                race.leader, race.best = race.candidate, race.state.stopping.best
                race.leading, race.leading_numbers = race.state.tensors(), race.state.numbers()
            race.candidate += 1
            if race.candidate < len(config.candidates):
                race.state = self._start_retraining()
            else:
                race.state.restore(race.leading, race.leading_numbers)
        self._point_estimate(race.state, self.retraining_strengths(*config.candidates[race.leader]), config)
        self.phase = "done"

    def _point_estimate(self, state: PointState, strengths: Strengths, config: TrainConfig) -> None:
        point_estimate(state, self.objective, strengths, config, self._validate, lambda _, record: self._tell(record))

    def _tell(self, record: EpochRecord) -> None:
        self.epochs[self.phase] += 1
        if self._on_epoch is not None:
            self._on_epoch(self, self.phase, record)
