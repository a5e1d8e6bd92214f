"""How the bench and its worker processes talk: one JSON object per line; what a process knows of its memory.

Standard library only: it is imported in the peers' environments as well.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["THREADS", "Channel", "Handler", "current_bytes", "peak_bytes", "reset_peak", "serve"]

THREADS = 2  # of every contestant
Handler = Callable[..., dict[str, Any]]
STATUS = Path("/proc/self/status")


class Channel:
    """A worker's end: requests come in, replies go out; whatever else is printed goes to the log."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # a library that prints must not garble the replies
        self.reply({"peak_bytes": peak_bytes(), "python": sys.version.split()[0]})

    def receive(self) -> dict[str, Any] | None:
        """The next request, or None when there are no more."""
        line = sys.stdin.readline()
        request: dict[str, Any] | None = json.loads(line) if line.strip() else None
        return request

    def reply(self, answer: Mapping[str, Any]) -> None:
        self._out.write(json.dumps(answer) + "\n")
        self._out.flush()


def serve(channel: Channel, handlers: Mapping[str, Handler]) -> None:
    """Answer requests {"do": name, ...arguments} until there are no more; every answer tells the peak memory."""
    while (request := channel.receive()) is not None:
        answer = handlers[request.pop("do")](**request)
        channel.reply({**answer, "peak_bytes": peak_bytes()})


def peak_bytes() -> int:
    """The most memory this process has held.

    The kernel's own mark is preferred: ru_maxrss of a child can be that of the process that started it.
    """
    mark = _status("VmHWM")
    if mark is not None:
        return mark
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def current_bytes() -> int | None:
    """What this process holds now, where the system tells."""
    return _status("VmRSS")


def reset_peak() -> bool:
    """Forget the peak so far; whether that was possible."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _status(field: str) -> int | None:
    if not STATUS.exists():
        return None
    for line in STATUS.read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return None
