"""Steps of pre-training by as many processes as torchrun started; the first prints seconds and traffic of a step."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
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


def measure(processes: Processes, graph: str, dim: int, softmax: str, threads: int, steps: int) -> dict[str, Any]:
    """A step of pre-training, up to and with the change of the tables: seconds, and what each process sends for it."""
    torch.set_num_threads(threads)
    settings = {"model": {"dim": dim}, "train": {"softmax": softmax}, "run": {"products": "exact", "threads": threads}}
    fit = Fit(load(graph), Config.model_validate(settings), processes=processes)
    phases = fit.phases
    state, objective, strengths = phases.pretraining, phases.objective, phases.rule_strengths()
    size = default_batch_size(objective.n_items)
    batches: Sequence[Any] = objective.batches(size, state.generator)

    def step(place: int) -> None:
        batch = batches[place]
        _, gradients, rows = compute_gradients(objective, state.embeddings, strengths, batch)
        state.optimizer.step(gradients, 0.1, objective.touched(batch), rows)

    for place in range(WARM):
        step(place)
    processes.sum(torch.zeros(1))  # all begin together
    processes.traffic = Traffic()
    begun, processor = time.perf_counter(), time.process_time()
    for place in range(WARM, WARM + steps):
        step(place)
    seconds, processor = time.perf_counter() - begun, time.process_time() - processor
    traffic, processes.traffic = processes.traffic, Traffic()
    totals = processes.sum(torch.tensor([processor, traffic.bytes], dtype=torch.float64)).tolist()
    return {
        "processes": processes.count,
        "threads": threads,
        "questions": size,
        "steps": steps,
        "seconds": seconds / steps,
        "processor_seconds": totals[0] / steps,  # of all processes together
        "collectives": traffic.collectives / steps,
        "bytes": totals[1] / processes.count / steps,  # that each sends, on average
    }


def main() -> None:
    graph, dim, softmax, threads, steps = sys.argv[1:]
    with join_processes() as processes:
        found = measure(processes, graph, int(dim), softmax, int(threads), int(steps))
        if processes.rank == 0:
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
