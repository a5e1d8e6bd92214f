"""The explorer under load: answers to one client alone, then to fifty at once, from random tables of known sizes."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import torch

from bench.workers import ROOT, WorkerFailed
from kgem.answer.model import Model, affordable_samples
from kgem.config import Config
from kgem.data.dataset import Dataset, IntArray
from kgem.data.index import Vocabulary
from kgem.model.embeddings import Embeddings
from kgem.model.posterior import Gaussian, Posterior
from kgem.model.prior import Strengths
from kgem.model.scores import get_score

__all__ = ["CLIENTS", "SIZES", "load"]

CLIENTS = 50
DIM = 100
SIZES = {"fb15k-237": (14_541, 237, 272_115), "fb13": (75_043, 13, 316_232)}  # entities, relations, training facts
ALONE = 30  # requests of each kind by one client
KINDS = ("predict", "bayes", "typing", "entity")
MIXTURE = ("predict", "typing", "predict", "typing", "predict", "entity", "predict", "typing", "bayes", "predict")


def load(folder: Path, seconds: float) -> dict[str, Any]:
    """For each size: latencies of one client by kind of request, and of fifty clients with a mixture of them."""
    return {name: _measure(folder / f"serve-{name}", size, seconds) for name, size in SIZES.items()}


def _measure(folder: Path, size: tuple[int, int, int], seconds: float) -> dict[str, Any]:
    _random_model(*size).save(folder)
    with _server(folder) as port:
        alone = {}
        for kind in KINDS:
            client = _Client(port, size, seed=0)
            client.ask(kind)  # the first one fills caches of the machine
            client.taken.clear()
            for _ in range(ALONE):
                client.ask(kind)
            alone[kind] = _summary(client.taken[kind])
            if client.errors:
                raise WorkerFailed(f"the explorer answered {client.errors[0]}")
        together = _together(port, size, seconds)
    return {"entities": size[0], "relations": size[1], "dim": DIM, "alone": alone, "together": together}


def _together(port: int, size: tuple[int, int, int], seconds: float) -> dict[str, Any]:
    clients = [_Client(port, size, seed=1 + number) for number in range(CLIENTS)]
    until = time.perf_counter() + seconds
    threads = [threading.Thread(target=client.go_on, args=(until,)) for client in clients]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent = time.perf_counter() - begun
    taken = {kind: [each for client in clients for each in client.taken[kind]] for kind in KINDS}
    every = [each for some in taken.values() for each in some]
    return {
        "clients": CLIENTS,
        "seconds": spent,
        "requests": len(every),
        "errors": sum(len(client.errors) for client in clients),
        "requests_per_second": len(every) / spent,
        **_summary(every),
        "by_kind": {kind: _summary(some) for kind, some in taken.items() if some},
    }


@dataclass
class _Client:
    """One that asks a question after another, never the same."""

    port: int
    size: tuple[int, int, int]
    seed: int
    taken: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)
        self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def go_on(self, until: float) -> None:
        for kind in itertools.cycle(MIXTURE):
            self.ask(kind)
            if time.perf_counter() > until:
                break
        self._connection.close()

    def ask(self, kind: str) -> None:
        begun = time.perf_counter()
        try:
            self._connection.request("GET", self._address(kind))
            answer = self._connection.getresponse()
            answer.read()
            if answer.status != 200:
                self.errors.append(f"{answer.status}")
        except OSError as error:
            self.errors.append(str(error))
            self._connection.close()
        self.taken.setdefault(kind, []).append(time.perf_counter() - begun)

    def _address(self, kind: str) -> str:
        entity, relation = (int(self._random.integers(n)) for n in self.size[:2])
        if kind == "typing":
            return f"/api/entities?{urlencode({'q': _label(entity)[: 1 + entity % 9]})}"
        if kind == "entity":
            return f"/api/entity?{urlencode({'label': _label(entity)})}"
        mode = "bayes" if kind == "bayes" else "point"
        return f"/api/predict?{urlencode({'head': _label(entity), 'relation': f'relation {relation}', 'mode': mode})}"


def _label(entity: int) -> str:
    words = ("north", "lake", "saint", "river", "old", "union", "major", "valley")
    return f"{words[entity % 8]} {words[entity // 8 % 8]} {entity}"


def _random_model(n_entities: int, n_relations: int, n_facts: int) -> Model:
    """Tables drawn at random, and facts of which some entities have many, as in real graphs."""
    rng, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)

    def facts(n: int) -> IntArray:
        ends = (n_entities * rng.random((n, 2)) ** 2).astype(np.int32)
        drawn = np.stack([ends[:, 0], rng.integers(n_relations, size=n), ends[:, 1]], axis=1).astype(np.int32)
        return np.unique(drawn, axis=0)

    data = Dataset(
        name="random",
        entities=Vocabulary(tuple(_label(i) for i in range(n_entities))),
        relations=Vocabulary(tuple(f"relation {i}" for i in range(n_relations)), "relation"),
        train=facts(n_facts),
        valid=facts(1000),
        test=facts(1000),
    )
    point, mean = (
        Embeddings.random(get_score("complex"), n_entities, n_relations, DIM, generator=generator) for _ in range(2)
    )
    q = Posterior(*(Gaussian.around(table, 0.2) for table in mean.tables()))
    return Model(
        data=data,
        config=Config.model_validate({"model": {"score": "complex", "dim": DIM}}),
        point=point,
        posterior=q,
        learned=Strengths(*(0.1 + torch.rand(len(table), generator=generator) for table in point.tables())),
        mode="point",
        n_samples=affordable_samples(q),
    )


@contextmanager
def _server(folder: Path) -> Iterator[int]:
    """The port of `kgem serve` on this folder, while inside."""
    call = [sys.executable, "-c", "from kgem.cli import main; main()", "serve", str(folder)]
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    process = subprocess.Popen(call, cwd=ROOT, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    try:
        said = ""
        while not (found := re.search(r"http://127\.0\.0\.1:(\d+)/", said)):
            line = process.stderr.readline()
            if not line:
                raise WorkerFailed(f"kgem serve ended with code {process.wait()}: {said.strip()}")
            said += line
        yield int(found[1])
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stderr.close()


def _summary(taken: list[float]) -> dict[str, float]:
    """Milliseconds."""
    ordered = sorted(1000 * each for each in taken)
    return {
        "n": len(ordered),
        "best": ordered[0],
        "p50": statistics.median(ordered),
        "p99": ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))],
        "worst": ordered[-1],
    }


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory(prefix="kgem-bench-") as scratch:
        json.dump(load(Path(scratch), float(sys.argv[1]) if len(sys.argv) > 1 else 4.0), sys.stdout, indent=1)
