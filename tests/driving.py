"""Drives what yields epochs to its end, where a test does not look at them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Any

from kgem.runs.run import Run


def exhaust(steps: Iterable[Any]) -> None:
    """To the end."""
    deque(steps, maxlen=0)


def stop_after(run: Run, epochs: int) -> None:
    """So many epochs of a run in all, saved as when the user stops it."""
    exhaust(islice(run.epochs(), epochs - len(run.records)))
    run.save()
