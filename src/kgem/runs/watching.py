"""How a fit is watched from a program: a bar in a notebook, a line of text if asked for, a function, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from kgem.config import Config
from kgem.files.run_folder import PHASE_NAMES as NAMES
from kgem.runs.fitting import OnEpoch
from kgem.tables import Bar, draw_table
from kgem.train.budget import longest
from kgem.train.phases import PHASES
from kgem.train.point_estimate import EpochRecord

__all__ = ["Progress", "in_notebook", "watch_epochs"]

Progress = OnEpoch | bool | None  # a function, whether to show a bar, or None: a bar in notebooks alone
BETWEEN = 0.2  # seconds between two pictures


def in_notebook() -> bool:
    """Whether a notebook shows what this program displays."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython  # type: ignore[attr-defined,unused-ignore]

    return getattr(get_ipython(), "kernel", None) is not None  # type: ignore[no-untyped-call,unused-ignore]


@contextmanager
def watch_epochs(progress: Progress, config: Config) -> Iterator[OnEpoch | None]:
    """Who is to hear of the epochs; a bar stays as it is at the end, with whether the fit came to it."""
    if callable(progress):
        yield progress
    elif progress is False or (progress is None and not in_notebook()):
        yield None
    else:
        bars = Bars(config, NotebookScreen() if in_notebook() else TextScreen())
        try:
            yield bars
        except BaseException:
            bars.end("stopped")
            raise
        bars.end("done")


class Screen(Protocol):
    """Where bars are drawn, again and again at the same place."""

    def show(self, bars: Bars, last: bool) -> None: ...


class Bars:
    """One bar for each phase; hears of epochs."""

    def __init__(self, config: Config, screen: Screen, clock: Callable[[], float] = time.monotonic) -> None:
        self.config = config
        self.phases = [phase for phase in PHASES if longest(config, phase)]
        self.done = dict.fromkeys(self.phases, 0)
        self.best: dict[str, float] = {}
        self.phase, self.state = "", "fitting"
        self._screen, self._clock = screen, clock
        self._begun, self._shown = clock(), -BETWEEN

    @property
    def seconds(self) -> float:
        return self._clock() - self._begun

    def __call__(self, phase: str, record: EpochRecord) -> None:
        new = phase != self.phase
        self.phase = phase
        self.done[phase] = self.done.get(phase, 0) + 1
        if record.mrr is not None:
            self.best[phase] = max(record.mrr, self.best.get(phase, 0.0))
        if new or self.seconds - self._shown >= BETWEEN:
            self._shown = self.seconds
            self._screen.show(self, last=False)

    def end(self, state: str) -> None:
        """The last picture."""
        self.state = state
        self._screen.show(self, last=True)

    def share(self, phase: str) -> float:
        """How much of a phase is over; one that others followed is over whenever it ended."""
        over = self.state == "done" or phase in self.phases[: self.phases.index(self.phase or self.phases[0])]
        return 1.0 if over and self.done[phase] else min(self.done[phase] / longest(self.config, phase), 1.0)

    def describe(self, phase: str) -> str:
        best = f", best MRR {self.best[phase]:.3f}" if phase in self.best else ""
        bound = "" if self.share(phase) == 1 else f" of at most {longest(self.config, phase)}"
        return f"{self.done[phase]}{bound}{best}" if self.done[phase] else ""


class NotebookScreen:
    """An output of the cell that is updated."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, bars: Bars, last: bool) -> None:
        from IPython.display import HTML, display

        rows = [(NAMES[phase], Bar(bars.share(phase)), bars.describe(phase)) for phase in bars.phases]
        model = bars.config.model
        title = f"{model.score}, K = {model.dim}: {bars.state}, {bars.seconds:.0f} s"
        picture = HTML(draw_table(title, ("phase", "", "epochs"), rows))  # type: ignore[no-untyped-call,unused-ignore]
        if self._handle is None:
            self._handle = display(picture, display_id=True)  # type: ignore[no-untyped-call,unused-ignore]
        else:
            self._handle.update(picture)


class TextScreen:
    """A line on standard error that is written over."""

    def __init__(self) -> None:
        self._width = 0

    def show(self, bars: Bars, last: bool) -> None:
        phase = bars.phase or bars.phases[0]
        filled = round(20 * bars.share(phase))
        text = f"{NAMES[phase]:<14} [{'#' * filled}{'.' * (20 - filled)}] {bars.describe(phase)}, {bars.seconds:.0f} s"
        text += f", {bars.state}" if last else ""
        sys.stderr.write(f"\r{text:<{self._width}}" + ("\n" if last else ""))
        sys.stderr.flush()
        self._width = len(text)
