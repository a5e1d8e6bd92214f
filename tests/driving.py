"""Drives what tests look at only from outside: a command to its exit, and what yields epochs to its end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kgem.answer.model import Model
from kgem.runs.run import Run


def exhaust(steps: Iterable[Any]) -> None:
    """To the end."""
    deque(steps, maxlen=0)


def complete(run: Run) -> Model:
    """All epochs that are left, and the model."""
    exhaust(run.epochs())
    return run.finish()


def stop_after(run: Run, epochs: int) -> None:
    """So many epochs of a run in all, saved as when the user stops it."""
    exhaust(islice(run.epochs(), epochs - len(run.records)))
    run.save()


def run_command(
    main: Callable[[list[str]], object], capsys: pytest.CaptureFixture[str], words: Iterable[object]
) -> tuple[int, str, str]:
    """Runs a command line in this process: exit code, stdout, stderr."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return int(stop.value.code or 0), out, err
