"""How long a fit will take: a few steps of each kind, measured, times the epochs that fits have."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from kgem.config import Config
from kgem.data.dataset import Dataset
from kgem.evaluate.validation import filtered_mrr, pick_facts, validation_facts
from kgem.runs.fitting import Prepared, start_fit
from kgem.train.averaging import Averaging
from kgem.train.budget import longest
from kgem.train.driver import Fit
from kgem.train.machine import settle, use_threads
from kgem.train.phases import PHASES, ThreePhases
from kgem.train.point_estimate import PointState, default_batch_size
from kgem.train.variational_em import EMState, e_step, estimate_gradients, m_step

__all__ = ["Estimate", "estimate_fit", "estimate_graph"]

USUAL = {"pretrain": 40, "em": 19, "retrain": 32, "companions": 25, "distil": 25}  # epochs of fits, in the middle
RACED = {"pretrain": 0.8, "retrain": 0.8}  # of these epochs, the share that candidates have before somebody has won
TAUGHT = 1.6  # steps of distillation: what a step takes more than one without a teacher
TARGETS = 0.5  # epochs: what it takes once to make the teacher's targets
UPDATED, NOISY = 1.3, 1.8  # a step of a sampled softmax with its updates, and with noise, beside its gradient
BLEND = 3.0  # validations: what one takes that asks two models together
LAST, AT_LEAST = 1.1, 2.0  # the choice of the mode, the judge, the evaluation, the files: times all, and seconds more
STEPS, LEAST = 3, 0.1  # measured of each kind: at least so many, and at least so many seconds
ASKED = 512  # validation facts


@dataclass(frozen=True)
class Estimate:
    """Seconds of an epoch in each phase, and how many of them there are to come."""

    epochs: dict[str, float]  # seconds of one, validation included
    usual: dict[str, int]  # epochs that fits have, by phase
    most: dict[str, int]  # and if no phase ends early
    targets: float  # seconds for the teacher's targets
    exact: dict[str, float] = field(default_factory=dict)  # seconds of an epoch after a race that is cheaper than it

    @property
    def seconds_per_epoch(self) -> float:
        """Of those to come, on average."""
        return self._sum(self.usual) / max(sum(self.usual.values()), 1)

    @property
    def seconds(self) -> float:
        """Of all that is to come, if it has as many epochs as fits usually have."""
        return LAST * (self._sum(self.usual) + self.targets) + AT_LEAST

    @property
    def most_seconds(self) -> float:
        """If no phase ends early."""
        longest = sum((self.epochs | self.exact)[phase] * n for phase, n in self.most.items())
        return LAST * (longest + self.targets) + AT_LEAST

    def _sum(self, counts: dict[str, int]) -> float:
        return sum(self.epochs[phase] * n for phase, n in counts.items())

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "seconds": self.seconds,
            "most_seconds": self.most_seconds,
            "seconds_per_epoch": self.seconds_per_epoch,
            "epochs": self.usual,
            "most_epochs": self.most,
            "seconds_by_phase": self.epochs,
        }


def estimate_graph(prepared: Prepared, config: Config) -> tuple[Estimate, Config]:
    """Of a fit that is not to be begun, with the settings that it would have on this machine."""
    chosen = settle(prepared.data, config)
    return estimate_fit(start_fit(prepared, chosen), prepared), chosen


def estimate_fit(fit: Fit, prepared: Prepared) -> Estimate:
    """Of what is left of a fit; its state and its random numbers stay as they are."""
    phases, config = fit.phases, fit.phases.config
    with use_threads(config.run.threads):
        steps = _measure_steps(fit)
        asked = _measure_validation(phases, prepared.data, config)
    epochs, exact = {}, {}
    for phase in PHASES:
        section = getattr(config, phase)
        n = -(-phases.objective.n_items // (section.batch_size or default_batch_size(phases.objective.n_items)))
        step = steps["em" if phase == "em" else "point"] * (TAUGHT if phase == "distil" else 1.0)
        validations = BLEND if phase == "retrain" and section.judge == "blend" else 1.0
        validation = validations * asked / section.validate_every
        epochs[phase] = n * step + validation
        if "raced" in steps and phase in RACED and phases.will_race(phase):
            exact[phase] = epochs[phase]
            epochs[phase] = n * (RACED[phase] * steps["raced"] + (1 - RACED[phase]) * step) + validation
    most = _epochs_left(phases, config)
    usual = most if prepared.warm else {p: min(n, max(USUAL[p] - _done(phases, p), 1)) for p, n in most.items()}
    targets = TARGETS * epochs["distil"] if most.get("distil") else 0.0
    return Estimate(epochs, usual, most, targets, exact)


def _epochs_left(phases: ThreePhases, config: Config) -> dict[str, int]:
    coming = () if phases.phase == "done" else PHASES[PHASES.index(phases.phase) :]
    left = {phase: longest(config, phase) - _done(phases, phase) for phase in coming}
    return {phase: n for phase, n in left.items() if n > 0}


def _done(phases: ThreePhases, phase: str) -> int:
    return phases.epochs_spent.get(phase, 0)


def _measure_steps(fit: Fit) -> dict[str, float]:
    """Seconds of a step of either algorithm; where tables may be huge, without copies of them."""
    phases = fit.phases
    if phases.softmax.is_sampled:
        probe = fit.probe()
        seconds = _measure(lambda number: probe.step())
        return {"point": UPDATED * seconds, "em": NOISY * seconds}
    steps = {"point": _measure(_point_steps(phases)), "em": _measure(_em_steps(phases))}
    if not phases.softmax.samples_races:
        return steps
    raced = fit.probe(phases.softmax.sampled)
    return steps | {"raced": UPDATED * _measure(lambda number: raced.step())}


def _point_steps(phases: ThreePhases) -> Callable[[int], None]:
    """Steps of Algorithm 1 on tables that are thrown away."""
    config, objective, strengths = phases.config.pretrain, phases.softmax.exact, phases.rule_strengths()
    state = PointState.start(phases.pretraining.embeddings.clone(), config, torch.Generator().manual_seed(0))
    batches = objective.batches(config.batch_size or default_batch_size(objective.n_items), state.generator)
    averaging = Averaging(state.embeddings, state.average, 2, len(batches))

    def step(number: int) -> None:
        _, gradients = objective(state.embeddings, strengths, batches[number % len(batches)])
        averaging.before_step()
        state.optimizer.step(gradients, 0.0)

    return step


def _em_steps(phases: ThreePhases) -> Callable[[int], None]:
    """Steps of Algorithm 2 on a posterior that is thrown away."""
    config, objective, prior = phases.config.em, phases.softmax.exact, phases.prior
    generators = (torch.Generator().manual_seed(seed) for seed in (0, 1))
    state = EMState.start(phases.pretraining.embeddings.clone(), phases.rule_strengths(), config, *generators)
    batches = objective.batches(config.batch_size or default_batch_size(objective.n_items), state.generator)
    averaging = Averaging(state.means, state.average, 2, len(batches))

    def step(number: int) -> None:
        batch = batches[number % len(batches)]
        found = estimate_gradients(state, objective, prior, batch, config, with_norms=True)
        averaging.before_step()
        e_step(state, found, 0.0, 0.0)
        m_step(state, prior, found.norms, 0.0)

    return step


def _measure(step: Callable[[int], None]) -> float:
    """Seconds of a step, without the first, which is slower."""
    step(0)
    begun, done = time.perf_counter(), 0
    while done < STEPS or time.perf_counter() - begun < LEAST:
        done += 1
        step(done)
    return (time.perf_counter() - begun) / done


def _measure_validation(phases: ThreePhases, data: Dataset, config: Config) -> float:
    """Seconds of a validation, from a part of its questions."""
    if not len(data.valid):
        return 0.0
    facts = validation_facts(data, config.seed, config.train.validation)
    sample, tables = pick_facts(facts, ASKED, config.seed), phases.pretraining.embeddings
    filtered_mrr(tables, sample[:16], data)  # makes the index of known facts
    begun = time.perf_counter()
    filtered_mrr(tables, sample, data)
    return (time.perf_counter() - begun) * len(facts) / len(sample)
