"""Work that takes its time: one thread does it, piece after piece, and tells how far it is; results are kept."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from kgem.evaluate.blocks import OnProgress

__all__ = ["Busy", "Job", "Jobs"]

WAITING = 32  # pieces of work that may wait
KEPT = 64  # results
NICER = 5  # than the threads that answer

LOG = logging.getLogger(__name__)

Work = Callable[[OnProgress], Any]


class Busy(Exception):
    """Too much work is waiting already."""


class _Stopped(Exception):
    """The server is going down."""


@dataclass(eq=False)
class Job:
    """A piece of work and what became of it."""

    work: Work
    patient: bool = False  # lets what is asked for later go first
    done: int = 0
    of: int = 0
    result: Any = None
    error: Exception | None = None
    finished: threading.Event = field(default_factory=threading.Event)

    def value(self) -> Any:
        """The result of finished work; what it raised, if it failed."""
        if self.error is not None:
            raise self.error
        return self.result


class Jobs:
    """Each piece of work is known by a key; one that is asked for again is not done again."""

    def __init__(self, waiting: int = WAITING, kept: int = KEPT) -> None:
        self._most_waiting, self._most_kept = waiting, kept
        self._queue: list[Hashable] = []
        self._jobs: OrderedDict[Hashable, Job] = OrderedDict()  # the least recently asked for first
        self._changed = threading.Condition()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def ask(self, key: Hashable, work: Work, *, patient: bool = False) -> Job:
        """The job of this key, begun if there is none or if the last one failed; `Busy` if too many wait.

        A `patient` one is for work that nobody waits for yet: whenever it tells how far it is, others go first.
        """
        with self._changed:
            job = self._jobs.get(key)
            if job is None or job.error is not None:
                if len(self._queue) >= self._most_waiting:
                    raise Busy
                job = self._jobs[key] = Job(work, patient)
                self._queue.append(key)
                if self._thread is None:
                    # A daemon: work that gives no sign of progress must not keep the process from ending.
                    self._thread = threading.Thread(target=self._do_all, name="kgem-jobs", daemon=True)
                    self._thread.start()
                self._changed.notify_all()
            self._jobs.move_to_end(key)
            self._forget_old()
            return job

    def find(self, key: Hashable) -> Any:
        """The result under this key, None if there is none (yet)."""
        with self._changed:
            job = self._jobs.get(key)
            return job.result if job is not None and job.finished.is_set() else None

    def stop(self, patience: float = 2.0) -> None:
        """Give up what is being done, at its next sign of progress, and what is waiting."""
        with self._changed:
            self._stopping = True
            self._queue.clear()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(patience)

    def _forget_old(self) -> None:
        done = [key for key, job in self._jobs.items() if job.finished.is_set()]
        for key in done[: max(0, len(done) - self._most_kept)]:
            del self._jobs[key]

    def _do_all(self) -> None:
        _lower_priority()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._stopping)
                if self._stopping:
                    return
            self._do_next()

    def _do_next(self) -> None:
        with self._changed:
            if self._stopping:
                return
            job = self._jobs[self._queue.pop(0)]
        self._do(job)

    def _do(self, job: Job) -> None:
        def on_progress(done: int, of: int) -> None:
            job.done, job.of = done, of
            while job.patient and self._queue:  # nobody else takes from it
                self._do_next()
            if self._stopping:
                raise _Stopped

        try:
            job.result = job.work(on_progress)
        except Exception as error:  # told to whoever asks for the result
            job.error = error
        finally:
            job.finished.set()


def _lower_priority() -> None:
    """Those who wait for an answer come first: on Linux each thread has a priority of its own."""
    if sys.platform == "linux":
        with suppress(OSError):
            mine = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, mine, os.getpriority(os.PRIO_PROCESS, mine) + NICER)
