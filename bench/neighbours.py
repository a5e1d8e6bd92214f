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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.workers import WorkerFailed

__all__ = ["AT_ONCE", "compare", "neighbours"]

AT_ONCE = 3
SHORT = {  # phases of a few epochs: their pace is what counts
    "pretrain.epochs": "6",
    "pretrain.candidates": "[1.0]",
    "em.epochs": "3",
    "retrain.epochs": "3",
    "retrain.candidates": "[[1.0, 0.0]]",
    "companions.mixes": "[]",
    "distil.epochs": "3",
    "run.products": "exact",
}
FOLDER = Path(__file__).resolve().parent.parent
OPENMP = {"GOMP_SPINCOUNT": "300000"}  # what libgomp does where nobody says anything
PATIENCE = 240.0  # seconds for the fits of one turn; of those that need longer, the epochs that they had count


def neighbours(graphs: tuple[str, ...], dim: int, rounds: int) -> dict[str, Any]:
    """Seconds of the epochs of a fit alone and beside two others, before and after, in turns."""
    return {graph: _graph(graph, dim, rounds) for graph in graphs}


def _graph(graph: str, dim: int, rounds: int) -> dict[str, Any]:
    cores = os.cpu_count() or 1
    ways: dict[str, tuple[list[str], dict[str, str]]] = {
        "before": (["--threads", str(cores)], OPENMP),
        "after": ([], {}),
    }
    taken: dict[str, dict[str, list[list[float]]]] = {way: {"alone": [], "together": []} for way in ways}
    threads: dict[str, dict[str, list[int]]] = {way: {"alone": [], "together": []} for way in ways}
    for _ in range(rounds):
        for way, (words, environment) in ways.items():
            for name, number in (("alone", 1), ("together", AT_ONCE)):
                fits = _fit_at_once(graph, dim, words, environment, number)
                taken[way][name] += [each["epochs"] for each in fits]
                threads[way][name] += [each["threads"] for each in fits]
    return {"dim": dim, "at_once": AT_ONCE, "cores": cores, **compare(taken, threads)}


def compare(
    taken: Mapping[str, Mapping[str, list[list[float]]]], threads: Mapping[str, Mapping[str, list[int]]]
) -> dict[str, Any]:
    """Medians and ratios of the seconds of the epochs that all of the fits had: phases differ in their pace."""
    common = min(len(epochs) for fits in taken.values() for each in fits.values() for epochs in each)
    if not common:
        raise WorkerFailed(f"a fit had no epoch within {PATIENCE:g} s")
    result: dict[str, Any] = {"epochs": common}
    for way, fits in taken.items():
        alone, together = (
            statistics.median(sum(each[:common]) for each in fits[name]) for name in ("alone", "together")
        )
        result[way] = {"alone": alone, "together": together, "ratio": together / alone, "threads": threads[way]}
    result["alone_ratio"] = result["after"]["alone"] / result["before"]["alone"]
    return result


def _fit_at_once(
    graph: str, dim: int, words: list[str], environment: dict[str, str], number: int
) -> list[dict[str, Any]]:
    """So many fits that begin together: seconds of each epoch of each, and its threads."""
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
    """Seconds of each of its epochs; none if it had not come so far."""
    log, config = folder / "log.jsonl", folder / "config.toml"
    if not log.exists() or not config.exists():
        return {"epochs": [], "threads": 0}
    epochs = [json.loads(line)["seconds"] for line in log.read_text().splitlines()]
    return {"epochs": epochs, "threads": tomllib.loads(config.read_text())["run"]["threads"]}
