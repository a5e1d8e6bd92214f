"""Algorithm 2: variational EM, which fits a posterior and tunes every strength at once.

Beside Algorithm 1 there are three differences: noise is injected into the tables, its scale is learned
with the gradient of the entropy, and the strengths are updated after T_E epochs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kgem.config import EMConfig
from kgem.errors import Diverged
from kgem.fit.optimizer import Optimizer, Schedule
from kgem.fit.point_estimate import EpochRecord, Validate, below, copy_tables
from kgem.fit.stopping import EarlyStopping
from kgem.model.embeddings import Embeddings
from kgem.model.objective import Gradients, Objective
from kgem.model.posterior import Gaussian
from kgem.model.prior import Prior, Strengths

__all__ = ["Bound", "EMState", "elbo", "variational_em"]

SIDES = ("entities", "relations")
Norms = list[Tensor]  # ||x||_p^p of each row, one tensor per table


@dataclass
class EMState:
    """Everything Algorithm 2 needs to go on; posterior and strengths change in place."""

    means: Embeddings
    log_stds: Gradients  # xi, one tensor per table
    strengths: Strengths
    mean_optimizer: Optimizer
    std_optimizer: Optimizer
    generator: torch.Generator  # of the order of queries
    noise: torch.Generator
    stopping: EarlyStopping
    best: Embeddings
    best_log_stds: Gradients
    sample: Embeddings  # scratch: one draw of both tables
    epoch: int = 0

    @classmethod
    def start(
        cls,
        means: Embeddings,
        strengths: Strengths,
        config: EMConfig,
        generator: torch.Generator,
        noise: torch.Generator,
    ) -> EMState:
        """Line 1: q around a pre-trained model."""
        log_stds = Gradients(*(Gaussian.around(table, config.initial_std).log_std for table in means.tables()))
        return cls(
            means=means,
            log_stds=log_stds,
            strengths=strengths,
            mean_optimizer=Optimizer(config.optimizer, means.tables()),
            std_optimizer=Optimizer(config.optimizer, log_stds),
            generator=generator,
            noise=noise,
            stopping=EarlyStopping(config.patience, config.min_gain),
            best=means.clone(),
            best_log_stds=Gradients(*(t.clone() for t in log_stds)),
            sample=means.clone(),
        )

    @property
    def posterior(self) -> tuple[Gaussian, Gaussian]:
        """q as it stands (Eqs. 12-13): of E, and of R."""
        entities, relations = self.means.tables()
        return Gaussian(entities, self.log_stds.entities), Gaussian(relations, self.log_stds.relations)

    def tensors(self) -> dict[str, Tensor]:
        """Copies of everything in the state that is a tensor: with `numbers`, all that `restore` needs."""
        groups = {
            "mean_optimizer": self.mean_optimizer.state(),
            "std_optimizer": self.std_optimizer.state(),
            "generator": {"order": self.generator.get_state(), "noise": self.noise.get_state()},
        }
        copies = {name: tensor.clone() for name, tensor in self._tables().items()}
        return copies | {f"{group}.{name}": t for group, named in groups.items() for name, t in named.items()}

    def numbers(self) -> dict[str, Any]:
        """Everything else in the state, for JSON."""
        return {"epoch": self.epoch, "stopping": asdict(self.stopping)}

    def restore(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Mutates: back to where `tensors` and `numbers` were taken; what follows is the same, bit for bit."""
        for name, table in self._tables().items():
            table.copy_(tensors[name])
        self.mean_optimizer.restore(below("mean_optimizer.", tensors))
        self.std_optimizer.restore(below("std_optimizer.", tensors))
        self.generator.set_state(tensors["generator.order"].cpu())
        self.noise.set_state(tensors["generator.noise"].cpu())
        self.epoch = numbers["epoch"]
        self.stopping = EarlyStopping(**numbers["stopping"])

    def _tables(self) -> dict[str, Tensor]:
        """The live tensors, by name."""
        groups = {
            "mean": self.means.tables(),
            "log_std": self.log_stds,
            "strengths": self.strengths,
            "best_mean": self.best.tables(),
            "best_log_std": self.best_log_stds,
        }
        return {f"{group}.{side}": t for group, pair in groups.items() for side, t in zip(SIDES, pair, strict=True)}


def variational_em(
    state: EMState,
    objective: Objective,
    prior: Prior,
    config: EMConfig,
    validate: Validate | None = None,
    on_epoch: Callable[[EMState, EpochRecord], None] | None = None,
) -> None:
    """Algorithm 2, from wherever the state stands; mutates it."""
    while state.epoch < config.epochs and not state.stopping.done:
        begun = time.perf_counter()
        loss = run_epoch(state, objective, prior, config)
        if not math.isfinite(loss):
            raise Diverged(f"the loss is not a number in EM epoch {state.epoch + 1}", remedy="lower em.learning_rate")
        state.epoch += 1
        mrr = None
        if validate is not None and (state.epoch % config.validate_every == 0 or state.epoch == config.epochs):
            mrr = validate(state.means)
            if state.stopping.update(mrr, state.epoch):
                copy_tables(state.means, state.best)
                for new, old in zip(state.log_stds, state.best_log_stds, strict=True):
                    old.copy_(new)
        if on_epoch is not None:
            bound = elbo(state, prior, loss * objective.n_facts)
            record = EpochRecord(
                state.epoch,
                loss,
                Schedule(config.learning_rate, config.half_life).at(state.epoch),
                time.perf_counter() - begun,
                mrr,
                state.stopping.best,
                bound._asdict() | {"elbo": bound.elbo},
            )
            on_epoch(state, record)


def run_epoch(state: EMState, objective: Objective, prior: Prior, config: EMConfig) -> float:
    """Lines 3-9 for every query once; mutates the state. Returns the expected data term of L / N'."""
    batches = objective.batches(config.batch_size, state.generator)
    mean_rate, std_rate, strength_rate = (
        Schedule(rate, config.half_life)
        for rate in (config.learning_rate, config.std_learning_rate, config.strength_rate)
    )
    total = 0.0
    for step, batch in enumerate(batches):
        now = state.epoch + step / len(batches)
        draw(state)
        norms = sampled_norms(state, prior) if config.m_step == "sample" else None
        loss = e_step(state, objective, batch, config.beta, mean_rate.at(now), std_rate.at(now))
        if not math.isfinite(loss):
            return loss
        total += loss * len(batch)
        if norms is not None and state.epoch >= config.e_epochs:
            m_step(state, prior, norms, strength_rate.at(now))
    if config.m_step == "exact" and state.epoch >= config.e_epochs:
        m_step(state, prior, exact_norms(state, prior), 1.0)
    return total / objective.n_items


def draw(state: EMState) -> None:
    """Line 4: one sample of both tables from q, into the state's scratch."""
    for gaussian, table in zip(state.posterior, state.sample.tables(), strict=True):
        gaussian.sample(state.noise, out=table)


def e_step(
    state: EMState, objective: Objective, batch: Tensor, beta: float, mean_rate: float, std_rate: float
) -> float:
    """Lines 5-7: a gradient step on means and log standard deviations; mutates both, and spends the sample."""
    tempered = Strengths(*(beta * lam for lam in state.strengths))
    loss, gradients = objective(state.sample, tempered, batch)
    # The sample differs from the mean by sigma * eps, just the factor that the gradient for xi needs.
    entropy = beta / objective.n_facts
    std_gradients = [
        table.sub_(mean).mul_(gradient).sub_(entropy)
        for table, mean, gradient in zip(state.sample.tables(), state.means.tables(), gradients, strict=True)
    ]
    state.mean_optimizer.step(gradients, mean_rate)
    state.std_optimizer.step(std_gradients, std_rate)
    return loss


def m_step(state: EMState, prior: Prior, norms: Norms, rate: float) -> None:
    """Line 9 with Eq. 17: 1/lambda moves by `rate` towards its optimum; mutates the strengths."""
    for norm, table, lam in zip(norms, state.means.tables(), state.strengths, strict=True):
        optimum = prior.optimal_inverse_strengths(norm, table.shape[1])
        lam.copy_((lam.reciprocal() * (1 - rate)).add_(optimum, alpha=rate).reciprocal_())


def sampled_norms(state: EMState, prior: Prior) -> Norms:
    """||x||_p^p of each row of the current sample: the estimate of Eq. 17's expectation that the paper uses."""
    return [prior.norm(table) for table in state.sample.tables()]


def exact_norms(state: EMState, prior: Prior) -> Norms:
    """E_q ||x||_p^p of each row, without sampling."""
    return [prior.expected_norm(gaussian.mean, gaussian.log_std) for gaussian in state.posterior]


class Bound(NamedTuple):
    """The evidence lower bound (Eq. 14) in its parts, every constant kept; nats over all of S'."""

    log_likelihood: float
    prior: float
    entropy: float

    @property
    def elbo(self) -> float:
        return self.log_likelihood + self.prior + self.entropy


def elbo(state: EMState, prior: Prior, expected_loss: float) -> Bound:
    """Eq. 14 for q as it stands, given the expected data term of L."""
    log_prior = 0.0
    for norm, table, lam in zip(exact_norms(state, prior), state.means.tables(), state.strengths, strict=True):
        log_prior += float(prior.log_normaliser(lam, table.shape[1]))
        log_prior -= float((lam * norm).sum(dtype=torch.float64)) / prior.p
    return Bound(-expected_loss, log_prior, float(sum(gaussian.entropy() for gaussian in state.posterior)))
