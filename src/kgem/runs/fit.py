"""kgem.fit: a graph and settings to a model, in memory or in a run folder."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from kgem.answer.model import Model
from kgem.config import Config
from kgem.errors import ConfigError
from kgem.runs.configure import configure
from kgem.runs.fitting import fit_in_memory, prepare
from kgem.runs.run import Run, check_free
from kgem.runs.watching import Progress, watch_epochs
from kgem.settings import parse_duration
from kgem.train.machine import settle
from kgem.train.point_estimate import EpochRecord

__all__ = ["fit"]


def fit(
    data: Any,
    model: str | None = None,
    dim: int | None = None,
    seed: int | None = None,
    *,
    threads: int | None = None,
    time_budget: float | str | None = None,
    valid: float = 0.1,
    test: float = 0.1,
    out: str | Path | None = None,
    force: bool = False,
    config: Config | None = None,
    progress: Progress = None,
    tensorboard: str | Path | None = None,
    **settings: Any,
) -> Model:
    """Fit a graph: pre-training, variational EM, re-training, distillation. Returns the fitted model.

    data: a Dataset, or anything that Dataset.load takes: a path, a name, a frame, a list of tuples, a dict of splits.
    model: the score function, "complex" unless told otherwise. dim: the dimension K, 100. seed: of all randomness, 0.
    threads: of torch. time_budget: seconds, or "20m"; the phases are made to fit into it.
    valid, test: of a graph without validation facts, the shares, or numbers of facts, that are kept from training.
    out: a run folder, as `kgem fit --out` makes it: a fit that is killed goes on with `kgem resume`. One that is there
    gives way only with `force`.
    config: all settings at once; those above and `settings` go before it.
    progress: a function that hears the phase and a record after each epoch; True for a bar, False for none. Without it
    there is a bar in notebooks, and nothing is printed elsewhere.
    tensorboard: a folder for TensorBoard's events.
    settings: any other, as nested dicts (`em={"beta": 0.3}`) or dotted (`**{"em.beta": 0.3}`).
    """
    budget = parse_duration(time_budget) if isinstance(time_budget, str) else time_budget
    named = {"model.score": model, "model.dim": dim, "seed": seed, "run.threads": threads, "run.time_budget": budget}
    given = {name: value for name, value in named.items() if value is not None} | settings
    chosen = configure(config, given, arguments=ARGUMENTS)
    if out is None:
        prepared = prepare(data, chosen.seed, valid, test)
        with watch_epochs(progress, chosen) as heard:
            return fit_in_memory(prepared, chosen, heard, tensorboard)
    if tensorboard is not None:
        raise ConfigError("a run folder has its own place for TensorBoard", remedy="leave out either of the two")
    folder = Path(out).expanduser()
    check_free(folder, force)
    prepared = prepare(data, chosen.seed, valid, test)
    chosen = settle(prepared.data, chosen)
    with Run.create(folder, prepared, chosen, force=force) as run, watch_epochs(progress, chosen) as heard:
        for epoch in run.epochs():
            if heard is not None:
                heard(epoch["phase"], _to_record(epoch))
        return run.finish()


def _to_record(epoch: Mapping[str, Any]) -> EpochRecord:
    """An epoch of a run's log as those hear of it who watch a fit in memory."""
    own = {field.name: epoch[field.name] for field in fields(EpochRecord) if field.name in epoch}
    return EpochRecord(**own, extra={name: x for name, x in epoch.items() if name not in (*own, *LOGGED)})


LOGGED = ("phase", "candidate")  # of a run's log, beside the record
ARGUMENTS = tuple(name for name in inspect.signature(fit).parameters if name != "settings")
