"""The one way a fit is driven: epochs of all phases, their lengths within the time budget if there is one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from kgem.config import Config
from kgem.data.dataset import Dataset
from kgem.model.prior import Strengths
from kgem.train.budget import within_budget
from kgem.train.phases import PHASES, ThreePhases, ValidateBlend
from kgem.train.point_estimate import EpochRecord, Validate, default_batch_size
from kgem.train.warm_start import WarmStart

__all__ = ["Fit", "use_threads"]


class Fit:
    """The phases of a graph, and how long they have taken.

    Lengths are chosen after the first epoch of each phase, when its speed is known, and are in `phases.config` before
    that epoch is told of, so that a checkpoint has them.
    """

    def __init__(
        self,
        data: Dataset,
        config: Config,
        validate: Validate | None = None,
        validate_blend: ValidateBlend | None = None,
        warm: WarmStart | None = None,
        spent: float = 0.0,
    ) -> None:
        """`spent` is what it has taken in other processes, in seconds."""
        self._spent, self._begun = spent, time.perf_counter()
        self.phases = ThreePhases(data, config, validate, warm, validate_blend)

    @property
    def seconds(self) -> float:
        """What the fit has taken so far, in all processes that worked on it."""
        return self._spent + time.perf_counter() - self._begun

    def epochs(self, last: str = PHASES[-1]) -> Iterator[tuple[str, EpochRecord]]:
        """Mutates: epoch after epoch, each with its phase; whoever drives it may stop after any, and go on later."""
        going_on = True
        with use_threads(self.phases.config.run.threads):
            while going_on:
                going_on = False
                for phase, record in self.phases.epochs(last):
                    going_on = self._fit_lengths(phase, record)
                    yield phase, record
                    if going_on:
                        break  # and go on from the same state with the lengths that are there now

    def _fit_lengths(self, phase: str, record: EpochRecord) -> bool:
        """Mutates the settings after the first epoch of a phase; whether the lengths have changed."""
        config, budget = self.phases.config, self.phases.config.run.time_budget
        if budget is not None and self.phases.epochs_spent[phase] == 1:
            self.phases.config = within_budget(config, phase, record.seconds, budget - self.seconds)
        return self.phases.config is not config

    def seconds_per_epoch(self, steps: int = 3) -> float:
        """An estimate from a few steps whose results are thrown away."""
        phases, config = self.phases, self.phases.config.pretrain
        size = config.batch_size or default_batch_size(phases.objective.n_items)
        batches = phases.objective.batches(size, torch.Generator().manual_seed(0))
        every, strengths = phases.pretraining.embeddings, phases.rule_strengths()

        def compute(batch: Any) -> None:
            touched = phases.objective.touched(batch)
            tables = every.with_tables(*touched.of(every.tables()))
            phases.objective(tables, Strengths(*touched.of(strengths)), batch)

        with use_threads(self.phases.config.run.threads):
            compute(batches[0])  # the first is slower
            begun = time.perf_counter()
            for batch in batches[:steps]:
                compute(batch)
            return (time.perf_counter() - begun) / len(batches[:steps]) * len(batches)


@contextmanager
def use_threads(wanted: int | None) -> Iterator[None]:
    """Inside, torch has so many threads, or as many as it had."""
    before = torch.get_num_threads()
    torch.set_num_threads(wanted or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
