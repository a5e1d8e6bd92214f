"""The peak memory of a whole `kgem fit`: all phases, checkpoints, the choice of the mode and the files.

Run as `python -m bench.whole_fit [GRAPH] [DIM]`; an epoch per phase and candidate is enough for the peak.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from typing import Any

ONE_EPOCH = {
    "pretrain.epochs": "1",
    "pretrain.candidates": "[1.0]",
    "em.epochs": "1",
    "retrain.epochs": "1",
    "retrain.candidates": "[[1.0, 0.0]]",
    "companions.mixes": "[]",
    "distil.epochs": "1",
    "run.checkpoint_seconds": "0",
}


def run(graph: str, dim: int) -> dict[str, Any]:
    """Fit in a process of its own and return its peak memory in bytes, and how long it took."""
    settings = [word for name, value in ONE_EPOCH.items() for word in ("--set", f"{name}={value}")]
    with tempfile.TemporaryDirectory(prefix="kgem-bench-") as scratch:
        command = [sys.executable, "-c", "from kgem.cli import main; main()", "fit", graph, "--dim", str(dim)]
        begun = time.perf_counter()
        subprocess.run([*command, "--out", f"{scratch}/run", "--quiet", *settings], check=True, capture_output=True)
        seconds = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return {"graph": graph, "dim": dim, "peak_bytes": peak, "seconds": seconds}


if __name__ == "__main__":
    graph, dim = sys.argv[1] if len(sys.argv) > 1 else "fb15k", int(sys.argv[2]) if len(sys.argv) > 2 else 100
    print(json.dumps(run(graph, dim)))
