"""Large graphs: kgem's sampled softmax beside PyTorch-BigGraph, and how an epoch grows with the number of entities."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.peers import Peer
from bench.workers import Worker

__all__ = ["scale"]

DIM, NEGATIVES, BATCH = 50, 1000, 1000
MADE = {
    True: (1_000_000, 10_000_000),
    False: (100_000, 500_000),
}  # entities and facts, in the long version or the short
SECONDS = {True: 120.0, False: 10.0}  # of training, after which ranks are compared
PARTS = {True: 10, False: 20}  # of an epoch, between which the peer can be stopped
ENTITIES = {True: (100_000, 300_000, 1_000_000, 3_000_000), False: (30_000, 100_000, 300_000)}
FACTS = {True: 2_000_000, False: 200_000}  # of the graphs that grow in entities
STEPS = {True: 500, False: 100}  # so many that what is done once an epoch, and in each turn, counts little

Start = Callable[[str], Worker]


def scale(start: Start, peer: Peer, folder: Path, long: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """`start` makes a worker of a module of ours or of the peer's."""
    result: dict[str, Any] = {"graphs": {}, "growth": _growth(start, folder, long, say)}
    sources: dict[str, str | None] = {"made": None}
    crates = Path(os.environ.get("KGEM_DATA", "../shared/data")) / "crates"
    if crates.is_dir():
        sources["crates"] = str(crates)
    for name, source in sources.items():
        say(f"  {name}")
        path = str(folder / f"{name}.npz")
        with start("scale_worker") as ours:
            about = ours.ask("export", path=path, source=source) if source else _make(ours, path, *MADE[long])
        result["graphs"][name] = {"graph": about, **_contest(start, peer, path, long)}
    return {"dim": DIM, "negatives": NEGATIVES, "batch": BATCH, **result}


def _make(worker: Worker, path: str, entities: int, facts: int) -> dict[str, Any]:
    about = worker.ask("make", path=path, entities=entities, facts=facts)
    about.pop("peak_bytes")
    return about


def _contest(start: Start, peer: Peer, path: str, long: bool) -> dict[str, Any]:
    """The peer first, because it stops only between parts of its epochs; ours for as long as that took."""
    settings = {"path": path, "dim": DIM, "negatives": NEGATIVES, "batch": BATCH}
    found: dict[str, Any] = {}
    seconds, tables = SECONDS[long], f"{path}.biggraph.npz"
    if peer.python:
        with start("biggraph_worker") as other:
            other.ask("load", **settings, parts=PARTS[long])
            found["biggraph"] = other.ask("train", seconds=seconds)
            other.ask("save", path=tables)
        seconds = found["biggraph"]["seconds"]
    with start("scale_worker") as ours:
        ours.ask("load", **settings)
        found["ours"] = ours.ask("train", seconds=seconds)
        found["ours"]["mrr"] = ours.ask("mrr")["mrr"]
        if peer.python:
            found["biggraph"]["mrr"] = ours.ask("mrr", tables=tables)["mrr"]
    for each in found.values():
        each["facts_per_second"] = each["facts"] / each["seconds"]
    return found


def _growth(start: Start, folder: Path, long: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """Seconds of an epoch of as many facts, by the number of entities.

    The more entities, the fewer facts share a question, and an epoch has more of them.
    """
    points = []
    for entities in ENTITIES[long]:
        say(f"  {entities:,} entities")
        path = str(folder / "grown.npz")
        with start("scale_worker") as ours:
            about = _make(ours, path, entities, FACTS[long])
        with start("scale_worker") as ours:
            ours.ask("load", path=path, dim=DIM, negatives=NEGATIVES)
            answer = ours.ask("epoch", steps=STEPS[long])
            told = ("questions", "seconds", "processor_seconds", "peak_bytes")
            points.append({**about, **{name: answer[name] for name in told}})
    # Of processor time, which other work on the machine changes less than that of the clock.
    ratios = {}
    for each in ("facts", "questions"):
        seconds = [point["processor_seconds"] / point[each] for point in points]
        ratios[each] = max(seconds) / min(seconds)
    return {"points": points, "ratios": ratios}
