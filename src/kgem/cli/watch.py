"""Shows a fit while it runs: phase, epoch, speed, best MRR, time left; and stops it softly when asked to."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from kgem.cli.console import can_draw, plain, say
from kgem.cli.progress import BETWEEN_LINES, duration, pace
from kgem.files.run_folder import PHASE_NAMES as NAMES
from kgem.report.formatting import pluralise

if TYPE_CHECKING:
    from kgem.runs.run import Run

STOPPING = "stopping, to save what is there; once more to stop without"
NARROW = 72  # columns of a terminal that leave no room for bars
_SPEED = 0.3  # weight of the newest epoch in the speed that is shown


class Watch(logging.Handler):
    """Shows the epochs of a run while in its `with` block: bars on a terminal, elsewhere a line now and then.

    Warnings of the library go above the bars. `quiet` shows them alone. That a `stop` was asked for stands below them.
    """

    def __init__(self, run: Run, stop: Stop | None = None, *, quiet: bool = False) -> None:
        super().__init__(logging.WARNING)
        self._run = run
        self._stop = stop or Stop()
        self._quiet = quiet
        self._done = dict.fromkeys(NAMES, 0)
        for record in run.records:
            self._done[record["phase"]] += 1
        self._phase = ""
        self._best: float | None = None
        self._seconds: float | None = None  # of an epoch
        self._sampled = run.fit.phases.is_sampling  # and of which kind they are
        self._said, self._phase_began = 0.0, time.monotonic()
        self._bars: Any = None
        self._narrow = False
        self._tasks: dict[str, Any] = {}

    def show(self, record: Mapping[str, Any]) -> None:
        """Take note of an epoch."""
        phase, seconds = record["phase"], record["seconds"]
        new = phase != self._phase
        if new:
            self._end_phase()
            self._phase, self._seconds, self._phase_began = phase, None, time.monotonic() - seconds
        if self._sampled != self._run.fit.phases.is_sampling:
            self._sampled, self._seconds = not self._sampled, None
        self._done[phase] += 1
        self._best = record["best"]
        self._seconds = seconds if self._seconds is None else self._seconds + _SPEED * (seconds - self._seconds)
        if self._bars is not None:
            self._show_bar(record)
        elif not self._quiet and (new or time.monotonic() - self._said >= BETWEEN_LINES):
            self._said = time.monotonic()
            mrr = "" if record["mrr"] is None else f", MRR {record['mrr']:.3f}"
            told = ", ".join(self._describe(record, "at most"))
            say(f"{NAMES[phase]}: epoch {self._done[phase]} of at most {self._longest(phase)}{mrr}, {told}")

    def emit(self, record: logging.LogRecord) -> None:
        """A warning of the library."""
        text = f"warning: {plain(record.getMessage())}"
        if self._bars is None:
            say(text)
        else:
            self._bars.console.print(text, markup=False, highlight=False)

    def __enter__(self) -> Watch:
        logging.getLogger("kgem").addHandler(self)
        if can_draw() and not self._quiet:
            self._start_bars()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end_phase()
        if self._bars is not None:
            self._stop.shown = False
            self._bars.stop()
            self._bars = None
        logging.getLogger("kgem").removeHandler(self)

    def _longest(self, phase: str) -> int:
        from kgem.train.budget import longest

        return longest(self._run.fit.phases.config, phase)

    def _describe(self, record: Mapping[str, Any], bound: str) -> list[str]:
        """Speed, best MRR, time left."""
        from kgem.train.budget import epochs_left

        seconds = self._seconds or 0.0
        best = [] if record["best"] is None else [f"best MRR {record['best']:.3f}"]
        fit = self._run.fit
        config = fit.phases.config
        if self._sampled and fit.phases.softmax.samples_races:  # later epochs take longer
            return [_speed(seconds), *best, "sampled until the race is won"]
        left = epochs_left(config, record["phase"], self._done) * seconds
        if config.run.time_budget is not None:  # which also decides on the phases to come
            left = min(left, config.run.time_budget - fit.seconds)
        return [_speed(seconds), *best, f"{bound} {duration(max(left, 1.0))} left"]

    def _end_phase(self) -> None:
        if not self._phase or self._quiet:
            return
        best = "" if self._best is None else f", best MRR {self._best:.3f}"
        took = duration(time.monotonic() - self._phase_began)
        epochs = pluralise(self._done[self._phase], "epoch")
        if self._bars is None:
            say(f"{NAMES[self._phase]}: {epochs}, {took}{best}")
        else:
            text = f"{epochs}{best}" if self._narrow else f"{epochs}, {took}{best}"
            full = {} if self._stop.asked else {"completed": 1, "total": 1}
            self._bars.update(self._tasks[self._phase], told=text, **full)

    def _start_bars(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.text import Text

        stop = self._stop

        class Bars(Progress):
            """With a line below, for what a signal handler cannot write without tearing the bars.

            It is there from the start, so that the terminal's ^C does not stand in a line that is full.
            """

            def get_renderables(self) -> Iterator[Any]:
                yield from super().get_renderables()
                if stop.shown:
                    yield Text(STOPPING if stop.asked else "")

        console = Console(stderr=True)
        self._narrow = console.width < NARROW
        columns: Sequence[Any] = (
            TextColumn("{task.description:<14}", markup=False),
            *(() if self._narrow else (BarColumn(bar_width=20),)),
            TextColumn("{task.fields[told]}", markup=False),
        )
        self._bars = Bars(*columns, console=console)
        self._stop.shown = True
        for phase, name in NAMES.items():
            if not self._longest(phase) and phase in ("companions", "distil"):
                continue  # unless it is wanted, nothing is said of it
            before = self._done[phase]  # by a process that was stopped
            over = before and phase != self._run.fit.phases.phase
            told = pluralise(before, "epoch") if over else ""
            self._tasks[phase] = self._bars.add_task(name, total=1, completed=int(over), told=told)
        self._bars.start()

    def _show_bar(self, record: Mapping[str, Any]) -> None:
        phase = record["phase"]
        longest = self._longest(phase)
        so_far = f"{self._done[phase]}/{longest}"
        parts = self._describe(record, "≤")
        told = " · ".join([so_far, *(parts[-1:] if self._narrow else parts)])
        self._bars.update(self._tasks[phase], completed=self._done[phase], total=longest, told=told)


class Stop:
    """Whether the user, or the system, asked for an end."""

    def __init__(self) -> None:
        self.asked = False
        self.shown = False  # whether somebody else shows that it was
        self.waits = False  # whether there is something to save first; otherwise the first wish is a KeyboardInterrupt


@contextmanager
def asked_to_stop() -> Iterator[Stop]:
    """Ctrl-C or SIGTERM inside asks for a stop; a second one, or one where nothing waits, is a KeyboardInterrupt."""
    stop = Stop()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.asked or not stop.waits:
            raise KeyboardInterrupt
        stop.asked = True
        if not stop.shown:
            with suppress(RuntimeError):  # of a write that the signal interrupted
                say(f"\n{STOPPING}")

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _speed(seconds: float) -> str:
    return f"{pace(seconds)} each"
