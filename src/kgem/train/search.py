"""The baseline that the method replaces: a search for one shared strength (Eq. 6), each trial a run of Algorithm 1.

Every trial starts from the same random tables and sees the queries in the same order as pre-training of a fit with
this seed would; only the strength (and, if asked for, the learning rate) differs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kgem.config import Config
from kgem.data.dataset import Dataset
from kgem.errors import ConfigError, FitError
from kgem.model.embeddings import Embeddings
from kgem.train.phases import ThreePhases
from kgem.train.point_estimate import Validate, point_estimate

if TYPE_CHECKING:
    from optuna import Study

__all__ = ["RATES", "STRENGTHS", "Proposals", "Proposed", "SearchResult", "Trial", "check_range", "search"]

STRENGTHS = (1e-3, 1.0)  # the range of the shared strength, drawn from evenly in its logarithm
RATES = (0.03, 1.0)  # likewise for the learning rate, where it is searched too


@dataclass(frozen=True)
class Trial:
    """One run of Algorithm 1 and what it cost."""

    number: int
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
class SearchResult:
    """All trials, and the tables of the best one."""

    trials: tuple[Trial, ...]
    best: Trial
    embeddings: Embeddings

    @property
    def epochs(self) -> int:
        """What the search cost, in epochs."""
        return sum(trial.epochs for trial in self.trials)

    @property
    def seconds(self) -> float:
        return sum(trial.seconds for trial in self.trials)


@dataclass(frozen=True, eq=False)
class Proposed:
    """Settings to try next."""

    number: int  # from 1
    config: Config
    asked: Any  # Optuna's trial


def check_range(name: str, bounds: tuple[float, float]) -> None:
    """Refuse bounds that nothing can be drawn between evenly in its logarithm."""
    if not 0 < bounds[0] <= bounds[1] < math.inf:
        raise ConfigError(f"{name} between {bounds[0]:g} and {bounds[1]:g}", remedy="0 < low <= high")


class Proposals:
    """Optuna's choices, one after another: the same ones for the same seed, bounds and outcomes so far.

    A search can therefore go on after a stop: ask and tell what was tried, then go on asking.
    """

    def __init__(
        self,
        config: Config,
        strengths: tuple[float, float] = STRENGTHS,
        rates: tuple[float, float] | None = None,
        *,
        prune: bool = False,
    ) -> None:
        check_range("strengths", strengths)
        if rates is not None:
            check_range("rates", rates)
        self._config, self._strengths, self._rates = config, strengths, rates
        self._study = _study(config.seed, prune)

    def ask(self) -> Proposed:
        """The settings to try next."""
        asked = self._study.ask()
        chosen = {"strength": asked.suggest_float("strength", *self._strengths, log=True)}
        if self._rates is not None:
            chosen["learning_rate"] = asked.suggest_float("learning_rate", *self._rates, log=True)
        pretrain = self._config.pretrain.model_copy(update=chosen)
        return Proposed(asked.number + 1, self._config.model_copy(update={"pretrain": pretrain}), asked)

    def tell(self, proposed: Proposed, trial: Trial) -> None:
        """Mutates: what became of it."""
        _tell(self._study, proposed.asked, trial)


def search(
    data: Dataset,
    config: Config,
    validate: Validate,
    *,
    trials: int = 30,
    strengths: tuple[float, float] = STRENGTHS,
    rates: tuple[float, float] | None = None,
    prune: bool = False,
    on_trial: Callable[[Trial], None] | None = None,
) -> SearchResult:
    """Optuna's choice of `trials` strengths, log-uniform in a range; the section `pretrain` has the other settings.

    With `rates` the learning rate is searched as well. `prune` ends trials early that are behind the median.
    """
    if trials < 1:
        raise ConfigError(f"a search of {trials} trials finds nothing", remedy="allow at least one")
    proposals = Proposals(config, strengths, rates, prune=prune)
    done: list[Trial] = []
    best: tuple[Trial, Embeddings] | None = None
    for _ in range(trials):
        proposed = proposals.ask()
        trial, tables = _run(data, proposed, validate, prune)
        proposals.tell(proposed, trial)
        done.append(trial)
        if trial.mrr is not None and (best is None or best[0].mrr is None or trial.mrr > best[0].mrr):
            best = trial, tables
        if on_trial is not None:
            on_trial(trial)
    if best is None:
        raise FitError("no trial of the search came to a result", remedy="lower the learning rate")
    return SearchResult(tuple(done), *best)


def _run(data: Dataset, proposed: Proposed, validate: Validate, prune: bool) -> tuple[Trial, Embeddings]:
    """Algorithm 1 with these settings."""
    phases, settings, asked = ThreePhases(data, proposed.config), proposed.config.pretrain, proposed.asked
    state, begun, outcome = phases.pretraining, time.perf_counter(), "done"

    records = point_estimate(state, phases.pretraining_objective, phases.rule_strengths(), settings, validate)
    try:
        for record in records:
            if prune and record.mrr is not None:
                asked.report(record.mrr, record.epoch)
                if asked.should_prune():
                    outcome = "pruned"
                    break
    except FitError:
        outcome = "failed"
    trial = Trial(
        number=proposed.number,
        strength=settings.strength,
        learning_rate=settings.learning_rate,
        mrr=state.stopping.best if state.stopping.best_epoch else None,
        epochs=state.epoch,
        seconds=time.perf_counter() - begun,
        outcome=outcome,
    )
    return trial, state.best


def _study(seed: int, prune: bool) -> Study:
    try:
        import optuna
    except ImportError as error:
        remedy = "install it: pip install 'kgem[search]'"
        raise ConfigError("the search needs Optuna, which is not installed", remedy=remedy) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # a library does not print
    pruner = optuna.pruners.MedianPruner() if prune else optuna.pruners.NopPruner()
    return optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed), pruner=pruner)


def _tell(study: Study, asked: Any, trial: Trial) -> None:
    from optuna.trial import TrialState

    if trial.outcome == "pruned":
        study.tell(asked, state=TrialState.PRUNED)
    elif trial.mrr is None:
        study.tell(asked, state=TrialState.FAIL)
    else:
        study.tell(asked, trial.mrr)
