"""The baseline that the method replaces: a search for one shared strength (Eq. 6), each trial a run of Algorithm 1.

Every trial starts from the same random tables and sees the queries in the same order as pre-training of a fit with
this seed would; only the strength (and, if asked for, the learning rate) differs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kgem.config import Config
from kgem.data.dataset import Dataset
from kgem.errors import ConfigError, FitError
from kgem.fit.phases import ThreePhases
from kgem.fit.point_estimate import EpochRecord, PointState, Validate, point_estimate
from kgem.model.embeddings import Embeddings

if TYPE_CHECKING:
    from optuna import Study

__all__ = ["RATES", "STRENGTHS", "SearchResult", "Trial", "search"]

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
    for name, bounds in {"strengths": strengths, "rates": rates}.items():
        if bounds is not None and not 0 < bounds[0] <= bounds[1]:
            raise ConfigError(f"{name} between {bounds[0]:g} and {bounds[1]:g}", remedy="0 < low <= high")
    study = _study(config.seed, prune)
    done: list[Trial] = []
    best: tuple[Trial, Embeddings] | None = None
    for _ in range(trials):
        asked = study.ask()
        chosen = {"strength": asked.suggest_float("strength", *strengths, log=True)}
        if rates is not None:
            chosen["learning_rate"] = asked.suggest_float("learning_rate", *rates, log=True)
        settings = config.model_copy(update={"pretrain": config.pretrain.model_copy(update=chosen)})
        trial, tables = _run(data, settings, validate, asked, prune)
        _tell(study, asked, trial)
        done.append(trial)
        if trial.mrr is not None and (best is None or best[0].mrr is None or trial.mrr > best[0].mrr):
            best = trial, tables
        if on_trial is not None:
            on_trial(trial)
    if best is None:
        raise FitError("no trial of the search came to a result", remedy="lower the learning rate")
    return SearchResult(tuple(done), *best)


class _Pruned(Exception):
    """This trial is behind and need not go on."""


def _run(data: Dataset, config: Config, validate: Validate, asked: Any, prune: bool) -> tuple[Trial, Embeddings]:
    """Algorithm 1 with these settings."""
    phases, settings = ThreePhases(data, config), config.pretrain
    state, begun, outcome = phases.pretraining, time.perf_counter(), "done"

    def on_epoch(_: PointState, record: EpochRecord) -> None:
        if prune and record.mrr is not None:
            asked.report(record.mrr, record.epoch)
            if asked.should_prune():
                raise _Pruned

    try:
        point_estimate(state, phases.pretraining_objective, phases.rule_strengths(), settings, validate, on_epoch)
    except _Pruned:
        outcome = "pruned"
    except FitError:
        outcome = "failed"
    trial = Trial(
        number=asked.number + 1,
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
