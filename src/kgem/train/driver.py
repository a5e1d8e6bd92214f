"""The one way a fit is driven: epochs of all phases, their lengths within the time budget if there is one."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator
from statistics import median

import torch

from kgem.config import Config
from kgem.data.dataset import Dataset
from kgem.model.objective import Objective
from kgem.model.processes import ALONE, Processes
from kgem.train.budget import within_budget
from kgem.train.machine import Probe, choose_threads, record_threads, use_threads
from kgem.train.phases import PHASES, ThreePhases, ValidateBlend
from kgem.train.point_estimate import EpochRecord, Validate
from kgem.train.stopping import Asked, never
from kgem.train.warm_start import WarmStart

__all__ = ["Fit"]

SLOWER = 2.0  # times what epochs of the phase took: from there on the number of threads is measured again
SEEN = 3  # epochs of a phase before its pace is known

LOG = logging.getLogger(__name__)


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
        stop: Asked = never,
        processes: Processes = ALONE,
    ) -> None:
        """`spent` is what it has taken in earlier processes, in seconds. Asked to `stop`, epochs end within a step.

        Several `processes` fit it together, each with a part of the rows.
        """
        self._processes, self.stop = processes, stop
        self._spent, self._begun = spent, time.perf_counter()
        self._pace: tuple[tuple[str, bool] | None, list[float]] = (None, [])  # seconds of epochs of one kind
        self.phases = ThreePhases(data, config, validate, warm, validate_blend, stop, processes)

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
                    self._look_at_pace(phase, record)
                    yield phase, record
                    if going_on:
                        break  # and go on from the same state with the lengths that are there now

    def _fit_lengths(self, phase: str, record: EpochRecord) -> bool:
        """Mutates the settings after the first epoch of a phase; whether the lengths have changed."""
        config, budget = self.phases.config, self.phases.config.run.time_budget
        if budget is not None and self.phases.epochs_spent[phase] == 1:
            seconds, left = self._processes.agree([record.seconds, budget - self.seconds])
            self.phases.config = within_budget(config, phase, seconds, left)
        return self.phases.config is not config

    def _look_at_pace(self, phase: str, record: EpochRecord) -> None:
        """Mutates settings and torch's threads where two epochs were much slower than those before: a busy machine."""
        before, seconds = self._pace
        kind = phase, self.phases.is_sampling
        seconds = [*seconds, record.seconds] if before == kind else [record.seconds]
        self._pace = kind, seconds
        run, usual = self.phases.config.run, median(seconds[:-2] or [math.inf])
        if not run.remeasure or not run.threads or run.threads == 1 or len(seconds) < SEEN + 2:
            return
        if self._processes.count > 1:  # which would have to measure together
            return
        if min(seconds[-2:]) <= SLOWER * usual:
            return
        slower = min(seconds[-2:]) / usual
        self._pace = kind, []
        threads = choose_threads(self.probe(), run.threads)
        LOG.warning(
            "epochs became %.1f times slower; best is now: threads = %d (%d so far)", slower, threads, run.threads
        )
        if threads != run.threads:
            self.phases.config = record_threads(self.phases.config, threads)
            event = {"event": "threads", "phase": phase, "epoch": record.epoch, "threads": threads}
            self.phases.events.append(event)
            torch.set_num_threads(threads)

    def probe(self, objective: Objective | None = None) -> Probe:
        """Steps of this fit, or with another objective of it, whose results are thrown away."""
        phases = self.phases
        tables, size = phases.pretraining.embeddings, phases.config.pretrain.batch_size
        return Probe(objective or phases.objective, tables, phases.rule_strengths(), size)
