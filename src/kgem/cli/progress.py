"""A bar with the time left for work that takes over two seconds; plain lines where there is no terminal."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any

from kgem.cli.console import can_draw, plain, say

PATIENCE = 2.0  # seconds before anything is shown
BETWEEN_LINES = 10.0  # seconds, where there is no terminal
_TICK = 0.2
_NEARLY = 0.99  # an estimate that has run out never claims to be done


def duration(seconds: float) -> str:
    """Seconds as people say them: 3 s, 4 min 10 s, 2 h 5 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s" if seconds >= 1 else "under a second"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} min"


def pace(seconds: float) -> str:
    """A short time as people say it: 4 ms, 0.3 s, 2.5 s, 3 min 20 s."""
    if seconds < 0.1:
        return f"{max(seconds * 1000, 0.1):.1f} ms" if seconds < 0.01 else f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 10 else duration(seconds)


def want_progress(quiet: bool) -> bool:
    """Mutates: whether commands show how far they are; what `--quiet` says, as it was said."""
    Progress.is_wanted = not quiet
    return quiet


class Progress:
    """Shows how far a piece of work is, while in its `with` block.

    With `total` the work is counted by `advance`; without, `expected` is a guess of the seconds it takes, and
    without either only the time so far is shown. Where `is_wanted` is false nothing is shown at all.
    """

    is_wanted = True  # of all of them; `--quiet` says no

    def __init__(self, label: str, *, total: float | None = None, expected: float | None = None) -> None:
        self.label = plain(label)
        self.total = total
        self.expected = expected
        self.done = 0.0
        self._begin = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def advance(self, amount: float = 1) -> None:
        """So much more of `total` is done."""
        self.done += amount

    def count(self, done: int, total: int) -> None:
        """So much of `total` is done; hears it from work that counts itself."""
        self.done, self.total = done, total

    def __enter__(self) -> Progress:
        self._begin = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def share(self) -> float | None:
        """Between 0 and 1; None if unknown."""
        if self.total:
            return min(self.done / self.total, 1.0)
        if self.expected:
            return min(self._elapsed / self.expected, _NEARLY)
        return None

    @property
    def line(self) -> str:
        """How far it is, in words."""
        share = self.share
        if not share or (share == _NEARLY and not self.total):
            return f"{self.label}: {duration(self._elapsed)} so far"
        left = max(1.0, self._elapsed * (1 - share) / share)
        return f"{self.label}: {share:.0%}, about {duration(left)} left"

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._begin

    def _watch(self) -> None:
        if self._stop.wait(PATIENCE) or not self.is_wanted:
            return
        if can_draw():
            self._show_bar()
        else:
            self._show_lines()

    def _show_lines(self) -> None:
        say(self.line)
        while not self._stop.wait(BETWEEN_LINES):
            say(self.line)

    def _show_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        console = Console(stderr=True)
        text = TextColumn("{task.description}", markup=False)
        columns = (BarColumn(bar_width=min(30, console.width // 3)), text)
        with Bar(*columns, console=console, transient=True) as bar:
            task = bar.add_task(self.line, total=None)
            while not self._stop.wait(_TICK):
                share = self.share
                bar.update(task, description=self.line, total=None if share is None else 1.0, completed=share or 0.0)


class Download:
    """Progress of downloads as pooch reports it: `total` bytes, `update`, `reset` and `close` per file."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    @property
    def total(self) -> Any:
        """Bytes of the present file."""
        return self._progress.total

    @total.setter
    def total(self, size: Any) -> None:
        self._progress.total, self._progress.done = size, 0.0

    def update(self, size: int) -> None:
        """So many more bytes are here."""
        self._progress.advance(size)

    def reset(self) -> None:
        """Count from the start again."""
        self._progress.done = 0.0

    def close(self) -> None:
        """The file is complete."""
