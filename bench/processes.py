"""Two processes with a thread each beside one process with two, and what 1, 2 and 4 of them send for a step."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from bench.workers import ROOT, WorkerFailed

__all__ = ["processes"]

CASES = {  # graph, K, softmax, steps of a turn, likewise in the long version
    "fb15k-237, exact": ("fb15k-237", 100, "exact", 12, 120),
    "100,000 entities, sampled": ("made/100000/500000", 50, "sampled", 40, 400),
}
MORE = (4,)  # processes whose traffic is counted, beside those that are timed


def processes(long: bool, rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """For each case: seconds of a step in turns, their ratio, and the traffic of each number of processes."""
    results: dict[str, Any] = {}
    for name, (graph, dim, softmax, short, whole) in CASES.items():
        say(f"  {name}")
        steps = whole if long else short
        turns = [[_run(n, 3 - n, graph, dim, softmax, steps) for n in (1, 2)] for _ in range(rounds)]
        one, two = ([turn[n]["seconds"] for turn in turns] for n in (0, 1))
        traffic = [*turns[-1], *(_run(n, 1, graph, dim, softmax, 4) for n in MORE)]
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


def _run(count: int, threads: int, graph: str, dim: int, softmax: str, steps: int) -> dict[str, Any]:
    words = ["bench.process_steps", graph, str(dim), softmax, str(threads), str(steps)]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count), "-m"]
    done = subprocess.run(
        [*command, *words],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise WorkerFailed(f"bench.process_steps ended with code {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
