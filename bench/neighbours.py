"""Several fits on one machine: how much longer each of three at once takes than one alone.

Before: as many threads as torch wants, which wait for each other as OpenMP does by itself. After: what kgem chooses.
Products are exact in both, so that nothing else differs. A share that is fair takes three times as long.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

__all__ = ["AT_ONCE", "neighbours"]

AT_ONCE = 3
SHORT = {  # phases of a few epochs: their pace is what counts
    "pretrain.epochs": "6",
    "pretrain.candidates": "[1.0]",
    "em.epochs": "3",
    "retrain.epochs": "3",
    "retrain.candidates": "[[1.0, 0.0]]",
    "distil.epochs": "3",
    "run.products": "exact",
}
FOLDER = Path(__file__).resolve().parent.parent
OPENMP = {"GOMP_SPINCOUNT": "300000"}  # what libgomp does where nobody says anything
PATIENCE = 600.0  # seconds for the fits of one turn; those that need longer are told as such


def neighbours(graphs: tuple[str, ...], dim: int, rounds: int) -> dict[str, Any]:
    """Seconds of the epochs of a fit alone and beside two others, before and after, in turns."""
    return {graph: _graph(graph, dim, rounds) for graph in graphs}


def _graph(graph: str, dim: int, rounds: int) -> dict[str, Any]:
    cores = os.cpu_count() or 1
    ways: dict[str, tuple[list[str], dict[str, str]]] = {
        "before": (["--threads", str(cores)], OPENMP),
        "after": ([], {}),
    }
    taken: dict[str, dict[str, list[float]]] = {way: {"alone": [], "together": []} for way in ways}
    threads: dict[str, int] = {}
    for _ in range(rounds):
        for way, (words, environment) in ways.items():
            for name, number in (("alone", 1), ("together", AT_ONCE)):
                fits = _fit_at_once(graph, dim, words, environment, number)
                taken[way][name] += [each["seconds"] for each in fits]
                threads[way] = fits[0]["threads"]
    result: dict[str, Any] = {"dim": dim, "at_once": AT_ONCE, "cores": cores}
    for way, by_name in taken.items():
        alone, together = (statistics.median(by_name[name]) for name in ("alone", "together"))
        result[way] = {"alone": alone, "together": together, "ratio": together / alone, "threads": threads[way]}
    result["alone_ratio"] = result["after"]["alone"] / result["before"]["alone"]
    return result


def _fit_at_once(
    graph: str, dim: int, words: list[str], environment: dict[str, str], number: int
) -> list[dict[str, Any]]:
    """So many fits that begin together: seconds of the epochs of each, and its threads."""
    settings = [word for name, value in SHORT.items() for word in ("--set", f"{name}={value}")]
    command = [sys.executable, "-m", "kgem", "fit", graph, "--dim", str(dim), "--quiet", *settings, *words]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "MKL_", "GOMP_"))}
    with tempfile.TemporaryDirectory(prefix="kgem-bench-") as scratch:
        folders = [Path(scratch) / str(i) for i in range(number)]
        processes = [
            subprocess.Popen(
                [*command, "--out", str(folder), "--seed", str(i)],
                cwd=FOLDER,
                env=inherited | environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for i, folder in enumerate(folders)
        ]
        begun = time.monotonic()
        for process in processes:
            try:
                process.wait(max(PATIENCE - (time.monotonic() - begun), 1.0))
            except subprocess.TimeoutExpired:
                process.kill()  # what it has done so far still tells its pace
                process.wait()
        return [_read(folder) for folder in folders]


def _read(folder: Path) -> dict[str, Any]:
    """Seconds that its epochs would take at the pace of those that it had."""
    records = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    wanted = sum(int(SHORT[name]) for name in SHORT if name.endswith(".epochs"))
    seconds = sum(record["seconds"] for record in records)
    threads = tomllib.loads((folder / "config.toml").read_text())["run"]["threads"]
    return {"seconds": seconds * wanted / max(len(records), 1), "threads": threads}
