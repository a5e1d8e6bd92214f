"""Starts a contestant in a process of its own, asks it things, and takes turns between several."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.protocol import THREADS

__all__ = ["ROOT", "Worker", "WorkerFailed", "summary", "take_turns"]

ROOT = Path(__file__).resolve().parent.parent
SET_BY_KGEM = ("GOMP_SPINCOUNT", "THP_MEM_ALLOC_ENABLE")  # where it is imported, here too; no others get them from it


class WorkerFailed(RuntimeError):
    """A contestant's process ended before it answered."""


class Worker:
    """A process that answers requests; see bench.protocol."""

    def __init__(self, module: str, log: Path, python: Path | None = None) -> None:
        self.module = module
        self._log = log
        self._errors = log.open("a")
        threads = str(THREADS)
        inherited = {name: value for name, value in os.environ.items() if name not in SET_BY_KGEM}
        self._process = subprocess.Popen(
            [str(python or sys.executable), "-m", module],
            cwd=ROOT,
            env={**inherited, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._greeted = False
        self.hello: dict[str, Any] = {}  # said at its start
        self.versions: dict[str, Any] = {}  # said once it has loaded a graph
        self.last: dict[str, Any] = {}  # its latest answer

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        self.send(do, **arguments)
        return self.answer()

    def send(self, do: str, **arguments: Any) -> None:
        """Send a request; `answer` fetches what comes of it."""
        if not self._greeted:
            self.hello = self._read()
            self._greeted = True
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._errors.flush()
            said = [line.strip() for line in self._log.read_text().splitlines() if line.strip()]
            last = said[-1] if said else "no message"
            raise WorkerFailed(f"{self.module} ended with code {self._process.wait()}: {last}; see {self._log.name}")
        self.last = json.loads(line)
        return self.last

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()


def take_turns(turns: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """A, B, C, A, B, C, ...: whatever disturbs the machine disturbs all of them."""
    taken: dict[str, list[float]] = {name: [] for name in turns}
    for _ in range(rounds):
        for name, turn in turns.items():
            taken[name].append(turn())
    return taken


def summary(seconds: list[float]) -> dict[str, Any]:
    """Best, median and every sample."""
    return {"best": min(seconds), "median": statistics.median(seconds), "samples": seconds}
