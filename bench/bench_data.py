"""How long a graph takes from text to a ready Dataset, and from the cache, with its peak memory."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

FACTS, ENTITIES, RELATIONS = 10_000_000, 1_000_000, 1_000


def run(facts: int = FACTS, entities: int = ENTITIES, relations: int = RELATIONS) -> dict[str, Any]:
    """FB15K where it is, and a made-up graph of the given size: seconds and peak memory, text then cache."""
    results: dict[str, Any] = {}
    fb15k = Path(os.environ.get("KGEM_DATA", "../shared/data")) / "fb15k"
    with tempfile.TemporaryDirectory(prefix="kgem-bench-") as scratch:
        if fb15k.is_dir():
            results["fb15k"] = _twice(fb15k, Path(scratch) / "cache")
        made_up = Path(scratch) / "graph.tsv"
        # In a process of its own: a child's peak memory counts from its parent's.
        writer = multiprocessing.get_context("spawn").Process(
            target=write_graph, args=(made_up, facts, entities, relations)
        )
        writer.start()
        writer.join()
        results["made up"] = {"megabytes": made_up.stat().st_size / 1e6, **_twice(made_up, Path(scratch) / "cache")}
    return results


def write_graph(path: Path, facts: int, entities: int, relations: int, seed: int = 0) -> None:
    """A TSV with entities of very different frequencies, as in Fig. 1."""
    rng = np.random.default_rng(seed)
    pl.DataFrame(
        {
            "head": pl.Series((entities * rng.random(facts) ** 2).astype(np.int64)),
            "relation": pl.Series((relations * rng.random(facts) ** 3).astype(np.int64)),
            "tail": pl.Series((entities * rng.random(facts)).astype(np.int64)),
        }
    ).select(
        pl.format("entity/{}", "head"), pl.format("relation/{}", "relation"), pl.format("entity/{}", "tail").alias("t")
    ).write_csv(path, separator="\t", include_header=False, quote_style="never")


def measure(source: str) -> dict[str, Any]:
    """In this process: load a graph, build both indexes; seconds and peak memory."""
    from kgem.data.dataset import Dataset
    from kgem.data.sources import find  # noqa: F401  # so that imports are not timed

    idle = _peak_gigabytes()
    started = time.perf_counter()
    dataset = Dataset.load(source)
    loaded = time.perf_counter()
    queries = len(dataset.query_index)
    known = len(dataset.filter_index)
    indexed = time.perf_counter()
    return {
        "facts": sum(len(dataset.split(s)) for s in ("train", "valid", "test")),
        "entities": dataset.n_entities,
        "queries": queries,
        "known_queries": known,
        "load_seconds": round(loaded - started, 3),
        "index_seconds": round(indexed - loaded, 3),
        "total_seconds": round(indexed - started, 3),
        "peak_gigabytes": round(_peak_gigabytes(), 3),
        "peak_gigabytes_before": round(idle, 3),
    }


def _twice(source: Path, cache: Path) -> dict[str, Any]:
    """Each in a process of its own: parsed (and kept), then from the cache."""
    return {"text": _apart(source, cache), "cache": _apart(source, cache)}


def _apart(source: Path, cache: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.bench_data", "--measure", str(source)]
    environment = {**os.environ, "KGEM_CACHE": str(cache)}
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _peak_gigabytes() -> float:
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kilobytes elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def main() -> None:
    """Print the results as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--facts", type=int, default=FACTS)
    parser.add_argument("--entities", type=int, default=ENTITIES)
    parser.add_argument("--relations", type=int, default=RELATIONS)
    parser.add_argument("--measure", metavar="PATH", help="load this graph here and now")
    given = parser.parse_args()
    result = measure(given.measure) if given.measure else run(given.facts, given.entities, given.relations)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
