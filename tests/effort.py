"""How much Python itself does, counted instead of timed: a loop over all rows shows on any machine, busy or not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


def count_steps(do: Callable[[], T]) -> tuple[T, int]:
    """What it gives, and how many lines of Python ran for it, each turn of a loop or comprehension counted."""
    steps = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal steps
        steps += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        result = do()
    finally:
        sys.settrace(before)
    return result, steps
