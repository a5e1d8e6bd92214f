"""Steps of pre-training by as many processes as torchrun started; the first prints seconds and traffic of a step.

`GRAPH DIM SOFTMAX THREADS STEPS` is one turn; without STEPS each line of its input is a turn of so many.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from kgem.config import Config
from kgem.data.dataset import Dataset
from kgem.data.index import Vocabulary
from kgem.model.processes import Processes, Traffic
from kgem.train.driver import Fit
from kgem.train.joining import join_processes
from kgem.train.point_estimate import compute_gradients, default_batch_size

MADE = "made"  # a graph of as many entities and facts as follow: made/100000/500000
WARM = 2  # steps before the clock starts


def load(graph: str) -> Dataset:
    """A graph of the catalogue, or one of random facts, heads and tails by a power law."""
    if not graph.startswith(MADE):
        return Dataset.load(graph)
    n_entities, n_facts = map(int, graph.split("/")[1:])
    rng = np.random.default_rng(0)
    ends = (rng.random((n_facts, 2)) ** 2 * n_entities).astype(np.int32)
    facts = np.stack([ends[:, 0], rng.integers(10, size=n_facts, dtype=np.int32), ends[:, 1]], axis=1)
    return Dataset(
        name=graph,
        entities=Vocabulary(tuple(map(str, range(n_entities))), "entity"),
        relations=Vocabulary(tuple(map(str, range(10))), "relation"),
        train=facts[:-10],
        valid=facts[-10:],
        test=facts[:0],
    )


class Run:
    """Pre-training that stands still between turns."""

    def __init__(self, processes: Processes, graph: str, dim: int, softmax: str, threads: int) -> None:
        torch.set_num_threads(threads)
        settings = {"model": {"dim": dim}, "train": {"softmax": softmax}}
        config = Config.model_validate(settings | {"run": {"products": "exact", "threads": threads}})
        phases = Fit(load(graph), config, processes=processes).phases
        self._processes, self._threads = processes, threads
        self._state, self._objective, self._strengths = phases.pretraining, phases.objective, phases.rule_strengths()
        self._size = default_batch_size(self._objective.n_items)
        self._batches: Sequence[Any] = self._objective.batches(self._size, self._state.generator)
        self._next = 0

    def turn(self, steps: int) -> dict[str, Any]:
        """A step, up to and with the change of the tables: seconds, and what each process sends for it."""
        processes = self._processes
        self._go_on(WARM)
        processes.sum(torch.zeros(1))  # all begin together
        processes.traffic = Traffic()
        begun, processor = time.perf_counter(), time.process_time()
        self._go_on(steps)
        seconds, processor = time.perf_counter() - begun, time.process_time() - processor
        traffic, processes.traffic = processes.traffic, Traffic()
        totals = processes.sum(torch.tensor([processor, traffic.bytes], dtype=torch.float64)).tolist()
        return {
            "processes": processes.count,
            "threads": self._threads,
            "questions": self._size,
            "steps": steps,
            "seconds": seconds / steps,
            "processor_seconds": totals[0] / steps,  # of all processes together
            "collectives": traffic.collectives / steps,
            "bytes": totals[1] / processes.count / steps,  # that each sends, on average
        }

    def _go_on(self, steps: int) -> None:
        state = self._state
        for _ in range(steps):
            batch = self._batches[self._next % len(self._batches)]
            self._next += 1
            _, gradients, rows = compute_gradients(self._objective, state.embeddings, self._strengths, batch)
            state.optimizer.step(gradients, 0.1, self._objective.touched(batch), rows)


def hear(processes: Processes) -> Iterator[int]:
    """How many steps each turn is to have, from the first process's input, until it ends."""
    while True:
        line = sys.stdin.readline() if processes.rank == 0 else ""
        steps = int(processes.sum(torch.tensor([float(line.strip() or 0)])))
        if not steps:
            return
        yield steps


def main() -> None:
    graph, dim, softmax, threads, *steps = sys.argv[1:]
    with join_processes() as processes:
        run = Run(processes, graph, int(dim), softmax, int(threads))
        for wanted in map(int, steps) if steps else hear(processes):
            found = run.turn(wanted)
            if processes.rank == 0:
                print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
