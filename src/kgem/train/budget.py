"""Lengths of phases: how many epochs may come, and how many fit into the time that there is."""

from __future__ import annotations

from collections.abc import Mapping

from kgem.config import CompanionsConfig, Config, PretrainConfig, RaceConfig, TrainConfig
from kgem.train.phases import PHASES

__all__ = ["epochs_left", "longest", "within_budget"]

SHARES = {"pretrain": 0.3, "em": 0.4, "retrain": 0.3, "companions": 0.3, "distil": 0.3}
RESERVE = 0.1  # of what is left, for the choice of the mode, the evaluation and the files


def longest(config: Config, phase: str) -> int:
    """Epochs that a phase takes if nothing stops it early, the trials of its race among them."""
    section = getattr(config, phase)
    if phase == "companions":
        return config.n_companions * int(section.epochs)
    if not isinstance(section, RaceConfig) or len(section.candidates) == 1:
        return int(section.epochs)
    others = len(section.candidates) - 1 + (section.extensions if isinstance(section, PretrainConfig) else 0)
    trials = others * min(section.trial_epochs, section.epochs)
    return section.epochs + trials + max(min(section.final_epochs, section.epochs) - section.trial_epochs, 0)


def epochs_left(config: Config, phase: str, done: Mapping[str, int]) -> int:
    """Epochs that can still come, in this phase and those after it."""
    coming = PHASES[PHASES.index(phase) :]
    return sum(max(longest(config, each) - done.get(each, 0), 0) for each in coming)


def within_budget(config: Config, phase: str, seconds: float, left: float) -> Config:
    """The settings with a length for this phase that leaves the later ones their share.

    `seconds` is what its first epoch took, `left` what remains of the budget after it. At least that epoch stays.
    """
    coming = [each for each in PHASES[PHASES.index(phase) :] if longest(config, each)]
    share = SHARES[phase] / sum(SHARES[each] for each in coming)
    more = int(max(left, 0.0) * (1 - RESERVE) * share / max(seconds, 1e-9))
    if 1 + more >= longest(config, phase):
        return config
    section = getattr(config, phase)
    if isinstance(section, RaceConfig):
        changed: TrainConfig = _shorter_race(section, 1 + more)
    elif isinstance(section, CompanionsConfig):
        mixes = section.mixes[: 1 + more]
        changed = section.model_copy(update={"mixes": mixes, "epochs": (1 + more) // len(mixes)})
    else:
        changed = section.model_copy(update={"epochs": 1 + more})
    return config.model_copy(update={phase: changed})


def _shorter_race(config: RaceConfig, epochs: int) -> RaceConfig:
    """Half of the epochs for the trials; without time for one each, the first candidate is taken."""
    n, nobody = len(config.candidates), {"extensions": 0} if isinstance(config, PretrainConfig) else {}
    trial = min(config.trial_epochs, epochs // (2 * n))
    if n == 1 or trial < 1:
        return config.model_copy(update={"candidates": config.candidates[:1], "epochs": epochs} | nobody)
    return config.model_copy(
        update={"trial_epochs": trial, "final_epochs": trial, "epochs": epochs - (n - 1) * trial} | nobody
    )
