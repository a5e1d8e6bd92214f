"""What suits this machine, by a few measured steps: how many threads, and which products."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from kgem.config import Config
from kgem.data.dataset import Dataset
from kgem.model.embeddings import Embeddings
from kgem.model.objective import Objective
from kgem.model.prior import Prior, Strengths
from kgem.model.scores import get_score
from kgem.model.teacher import multiplies_bfloat16
from kgem.train.point_estimate import compute_gradients, default_batch_size
from kgem.train.softmax import Softmax

__all__ = ["Probe", "choose_threads", "measure", "record_threads", "settle", "time_turn", "use_threads"]

SLACK = 1.1  # the fewest threads are taken that are within it of the fastest
PAYS = 0.95  # of the time of exact products: rounded ones are taken below it
ROUNDS = 6  # turns of each: other work on the machine can spoil a few
TURN = 0.05  # seconds of a turn, but at least one step
SMALL_STEP = 1e8  # operations, about a millisecond
HOPELESS = 2.0  # times the fastest: no further turns
SAID_BY_USER = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")

Which = TypeVar("Which", bound=Hashable)


class Probe:
    """Steps of a fit whose results are thrown away; nothing of it changes, nor its random numbers."""

    def __init__(self, objective: Objective, tables: Embeddings, strengths: Strengths, batch_size: int | None) -> None:
        size = batch_size or default_batch_size(objective.n_items)
        self._batches = objective.batches(size, torch.Generator().manual_seed(0))
        self._objective, self._tables, self._strengths = objective, tables, strengths
        self._next = 0

    @property
    def steps_per_epoch(self) -> int:
        return len(self._batches)

    def step(self) -> None:
        """One step up to its gradient, which is nearly all of its time."""
        batch: Any = self._batches[self._next % len(self._batches)]
        self._next += 1
        compute_gradients(self._objective, self._tables, self._strengths, batch)

    @classmethod
    def start(cls, data: Dataset, config: Config, products: str) -> Probe:
        """The first steps of a fit that is still to begin."""
        score = get_score(config.model.score)
        tables = Embeddings.random(
            score,
            data.n_entities,
            data.n_relations,
            config.model.dim,
            generator=torch.Generator().manual_seed(config.seed),
            reciprocal=config.model.reciprocal,
            scale=config.model.init_scale,
            dtype=getattr(torch, config.dtype),
            device=config.device,
        )
        chosen = config.model_copy(update={"run": config.run.model_copy(update={"products": products})})
        objective = Softmax(data, chosen, tables, Prior(config.model.p, score.complex)).objective
        strengths = Strengths(*(table.new_ones(len(table)) for table in tables.tables()))
        return cls(objective, tables, strengths, config.pretrain.batch_size)


def settle(data: Dataset, config: Config) -> Config:
    """The settings with threads and products that hold for the whole fit: what they leave open is measured.

    Threads are as many as torch has where its user or the environment said so, and otherwise never more. Where a step
    is small neither a second thread nor rounding brings anything, and nothing is measured.
    """
    counts, kinds = _open_threads(config), _open_products(config)
    threads, products = counts[0], kinds[0]
    if len(counts) * len(kinds) > 1 and _operations(data, config) > SMALL_STEP:
        probes = {kind: Probe.start(data, config, kind) for kind in kinds}
        seconds = measure({(kind, n): time_turn(probes[kind], n) for kind in kinds for n in counts})
        fastest = {kind: min(seconds[kind, n] for n in counts) for kind in kinds}
        products = next((kind for kind in kinds[1:] if fastest[kind] < PAYS * fastest[kinds[0]]), kinds[0])
        threads = _fewest({n: seconds[products, n] for n in counts})
    chosen = {"threads": threads, "products": products, "remeasure": config.run.remeasure or len(counts) > 1}
    return config.model_copy(update={"run": config.run.model_copy(update=chosen)})


def _operations(data: Dataset, config: Config) -> int:
    """Of the three products of a step."""
    size = config.pretrain.batch_size or default_batch_size(len(data.query_index))
    width = get_score(config.model.score).entity_width(config.model.dim)
    sampled = config.train.is_sampled(len(data.query_index), data.n_entities, width)
    return 6 * size * (config.train.candidates if sampled else data.n_entities) * width


def choose_threads(probe: Probe, most: int) -> int:
    """The fewest threads, of at most so many, that are nearly as fast as any."""
    return _fewest(measure({n: time_turn(probe, n) for n in _powers(most)}))


def measure(turns: Mapping[Which, Callable[[], float]], rounds: int = ROUNDS) -> dict[Which, float]:
    """The least seconds of each over some rounds; they take turns, so that whatever else runs meets all of them."""
    best = dict.fromkeys(turns, float("inf"))
    for _ in range(rounds):
        limit = HOPELESS * min(best.values())
        for name, turn in turns.items():
            if best[name] <= limit:
                best[name] = min(best[name], turn())
    return best


def time_turn(probe: Probe, threads: int) -> Callable[[], float]:
    """A turn of steps with so many threads: the seconds of one step."""

    def turn() -> float:
        with use_threads(threads):
            probe.step()  # the first after a change of threads is slower
            begun, steps = time.perf_counter(), 0
            while steps == 0 or time.perf_counter() - begun < TURN:
                probe.step()
                steps += 1
            return (time.perf_counter() - begun) / steps

    return turn


def _fewest(seconds: Mapping[int, float]) -> int:
    fastest = min(seconds.values())
    return min(n for n, each in seconds.items() if each <= SLACK * fastest)


def _powers(most: int) -> list[int]:
    """1, 2, 4, ... and the most itself."""
    return [*(2**i for i in range(most.bit_length()) if 2**i < most), most]


def _open_threads(config: Config) -> list[int]:
    """The numbers of threads that may be used."""
    if config.run.threads is not None:
        return [config.run.threads]
    now = torch.get_num_threads()
    cores = os.cpu_count() or 1
    by_user = any(os.environ.get(name) for name in SAID_BY_USER) or now not in (cores, cores // 2, _usable_cores())
    return [now] if by_user or config.device != "cpu" else _powers(now)


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _open_products(config: Config) -> list[str]:
    """The kinds of products that may be used, exact ones first."""
    if config.run.products != "auto":
        return [config.run.products]
    rounds = config.device == "cpu" and config.dtype == "float32" and get_score(config.model.score).bilinear
    return ["exact", "bfloat16"] if rounds and multiplies_bfloat16() else ["exact"]


def record_threads(config: Config, threads: int | None = None) -> Config:
    """The settings with the number of threads in them, so that a fit can be repeated to the bit."""
    wanted = threads or config.run.threads or torch.get_num_threads()
    return config.model_copy(update={"run": config.run.model_copy(update={"threads": wanted})})


@contextmanager
def use_threads(wanted: int | None) -> Iterator[None]:
    """Inside, torch has so many threads, or as many as it had."""
    before = torch.get_num_threads()
    torch.set_num_threads(wanted or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
