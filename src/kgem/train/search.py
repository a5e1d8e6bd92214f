"""The baseline that the method replaces: a search for one shared strength (Eq. 6), each trial a run of Algorithm 1.

Every trial starts from the same random tables and sees the queries in the same order as pre-training of a fit with
this seed would; only the strength (and, if asked for, the learning rate) differs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from kgem.config import Config
from kgem.data.dataset import Dataset
from kgem.errors import ConfigError, FitError
from kgem.model.embeddings import Embeddings
from kgem.train.driver import Fit
from kgem.train.point_estimate import Validate

if TYPE_CHECKING:
    from optuna import Study

__all__ = ["RATES", "STRENGTHS", "Proposal", "Trial", "check_range", "search", "train_in_memory"]

STRENGTHS = (1e-3, 1.0)  # the range of the shared strength, drawn from evenly in its logarithm
RATES = (0.03, 1.0)  # likewise for the learning rate, where it is searched too

Left = TypeVar("Left")  # what a trial leaves behind: its tables, its files


@dataclass(frozen=True)
class Trial:
    """One run of Algorithm 1 and what it cost."""

    number: int  # from 1
    strength: float
    learning_rate: float
    mrr: float | None  # the best on validation; None if the run failed
    epochs: int
    seconds: float
    outcome: str  # done, pruned or failed

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Proposal:
    """Settings to try next."""

    number: int  # from 1
    config: Config
    asked: Any  # Optuna's trial

    def is_behind(self, mrr: float, epoch: int) -> bool:
        """Mutates Optuna's record of the trial: whether it is behind the median and need not go on."""
        self.asked.report(mrr, epoch)
        return bool(self.asked.should_prune())


def check_range(name: str, bounds: tuple[float, float]) -> None:
    """Refuse bounds that nothing can be drawn between evenly in its logarithm."""
    if not 0 < bounds[0] <= bounds[1] < math.inf:
        raise ConfigError(f"{name} between {bounds[0]:g} and {bounds[1]:g}", remedy="0 < low <= high")


def search(
    config: Config,
    run_trial: Callable[[Proposal], tuple[Trial, Left]],
    *,
    trials: int = 30,
    strengths: tuple[float, float] = STRENGTHS,
    rates: tuple[float, float] | None = None,
    prune: bool = False,
    done: Sequence[Trial] = (),
) -> Iterator[tuple[Trial, Left]]:
    """Optuna's choice of `trials` strengths, log-uniform in a range: each trial, and what `run_trial` left of it.

    The section `pretrain` has the other settings. With `rates` the learning rate is searched as well. `prune` lets
    trials end early that are behind the median. Choices are the same for the same seed, bounds and outcomes so far, so
    a search goes on after a stop: `done` are its trials until then, and only those after them are run and yielded.
    """
    if trials < 1:
        raise ConfigError(f"a search of {trials} trials finds nothing", remedy="allow at least one")
    check_range("strengths", strengths)
    if rates is not None:
        check_range("rates", rates)
    study = _study(config.seed, prune)
    for trial in done:
        proposal = _ask(study, config, strengths, rates)
        if not math.isclose(proposal.config.pretrain.strength, trial.strength, rel_tol=1e-9):
            what = f"trial {trial.number} is not of this search: its range of strengths, or its Optuna, was another"
            raise ConfigError(what, remedy="give the range that it had, or begin the search anew")
        _tell(study, proposal, trial)
    for _ in range(len(done), trials):
        proposal = _ask(study, config, strengths, rates)
        trial, left = run_trial(proposal)
        _tell(study, proposal, trial)
        yield trial, left


def train_in_memory(data: Dataset, validate: Validate, proposal: Proposal) -> tuple[Trial, Embeddings]:
    """Algorithm 1 with these settings, and its best tables; where the search prunes, it may end early."""
    settings = proposal.config.pretrain.model_copy(update={"candidates": (1.0,)})  # no race
    fit = Fit(data, proposal.config.model_copy(update={"pretrain": settings}), validate)
    state, outcome = fit.phases.pretraining, "done"
    try:
        for _, record in fit.epochs("pretrain"):
            if record.mrr is not None and proposal.is_behind(record.mrr, record.epoch):
                outcome = "pruned"
                break
    except FitError:
        outcome = "failed"
    trial = Trial(
        number=proposal.number,
        strength=settings.strength,
        learning_rate=settings.learning_rate,
        mrr=state.stopping.best if state.stopping.best_epoch else None,
        epochs=state.epoch,
        seconds=fit.seconds,
        outcome=outcome,
    )
    return trial, state.best


def _ask(study: Study, config: Config, strengths: tuple[float, float], rates: tuple[float, float] | None) -> Proposal:
    """Mutates the study: the settings to try next."""
    asked = study.ask()
    chosen = {"strength": asked.suggest_float("strength", *strengths, log=True)}
    if rates is not None:
        chosen["learning_rate"] = asked.suggest_float("learning_rate", *rates, log=True)
    pretrain = config.pretrain.model_copy(update=chosen)
    return Proposal(asked.number + 1, config.model_copy(update={"pretrain": pretrain}), asked)


def _tell(study: Study, proposal: Proposal, trial: Trial) -> None:
    """Mutates the study: what became of a proposal."""
    from optuna.trial import TrialState

    if trial.outcome == "pruned":
        study.tell(proposal.asked, state=TrialState.PRUNED)
    elif trial.mrr is None:
        study.tell(proposal.asked, state=TrialState.FAIL)
    else:
        study.tell(proposal.asked, trial.mrr)


def _study(seed: int, prune: bool) -> Study:
    try:
        import optuna
    except ImportError as error:
        remedy = "install it: pip install 'kgem[search]'"
        raise ConfigError("the search needs Optuna, which is not installed", remedy=remedy) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # a library does not print
    pruner = optuna.pruners.MedianPruner() if prune else optuna.pruners.NopPruner()
    return optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed), pruner=pruner)
