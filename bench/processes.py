"""Two processes with a thread each beside one process with two, and what 1, 2 and 4 of them send for a step."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from bench.workers import ROOT, WorkerFailed

__all__ = ["processes"]

CASES = {  # graph, K, softmax, steps of a turn, likewise in the long version
    "fb15k-237, exact": ("fb15k-237", 100, "exact", 12, 120),
    "100,000 entities, sampled": ("made/100000/500000", 50, "sampled", 40, 400),
}
MORE = (4,)  # processes whose traffic is counted, beside those that are timed
COUNTED = 4  # steps for that


def processes(long: bool, rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """For each case: seconds of a step in turns, their ratio, and the traffic of each number of processes."""
    results: dict[str, Any] = {}
    for name, (graph, dim, softmax, short, whole) in CASES.items():
        say(f"  {name}")
        steps = whole if long else short
        with ExitStack() as stack:
            groups = [stack.enter_context(_Group(n, 3 - n, graph, dim, softmax)) for n in (1, 2)]
            turns = [[group.ask(steps) for group in groups] for _ in range(rounds)]
        traffic = list(turns[-1])
        for n in MORE:
            with _Group(n, 1, graph, dim, softmax) as group:
                traffic.append(group.ask(COUNTED))
        one, two = ([turn[n]["seconds"] for turn in turns] for n in (0, 1))
        results[name] = {
            "dim": dim,
            "questions": turns[0][0]["questions"],
            "one": one,
            "two": two,
            "processor": [statistics.median(turn[n]["processor_seconds"] for turn in turns) for n in (0, 1)],
            "speed": statistics.median(one) / statistics.median(two),
            "traffic": [{key: each[key] for key in ("processes", "collectives", "bytes")} for each in traffic],
        }
    return results


class _Group:
    """Processes that fit one model together, and wait between turns."""

    def __init__(self, count: int, threads: int, graph: str, dim: int, softmax: str) -> None:
        words = ["bench.process_steps", graph, str(dim), softmax, str(threads)]
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count), "-m"]
        self._process = subprocess.Popen(
            [*command, *words],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, steps: int) -> dict[str, Any]:
        """What a turn of so many steps came to."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise WorkerFailed(f"bench.process_steps ended with code {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def __enter__(self) -> _Group:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._process.communicate()  # no more turns
