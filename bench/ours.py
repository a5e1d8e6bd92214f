"""A contestant: kgem itself; also writes the graph files that the others read."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bench import equal
from bench.graph_file import GraphFile
from bench.protocol import THREADS, Channel, current_bytes, peak_bytes, reset_peak, serve
from kgem.config import Config, EMConfig, TrainConfig
from kgem.data.dataset import Dataset
from kgem.data.index import QueryIndex, reciprocal
from kgem.evaluate.averaging import BlendScorer
from kgem.evaluate.blocks import MEMORY, Scorer
from kgem.evaluate.ranking import rank
from kgem.evaluate.validation import filtered_mrr
from kgem.model.embeddings import Embeddings
from kgem.model.objective import Gradients, Objective, SoftmaxObjective
from kgem.model.pieces import Batch, Batches
from kgem.model.prior import Prior, Strengths
from kgem.model.scores import get_score
from kgem.train.driver import Fit
from kgem.train.machine import settle
from kgem.train.optimizer import Schedule
from kgem.train.point_estimate import PointState, run_epoch
from kgem.train.stopping import Part
from kgem.train.variational_em import EMState
from kgem.train.variational_em import run_epoch as run_em_epoch

COMPLEX = get_score("complex")
PRIOR = Prior(3, complex=True)
STRENGTH = 0.05  # conventional; any value costs the same


def export(graph: str, path: str, dim: int) -> dict[str, Any]:
    """Write a graph of the catalogue and a random start for everybody to read."""
    data = Dataset.load(graph)
    start = random_tables(data.n_entities, data.n_relations, dim)
    splits = {split: data.split(split).astype(np.int64) for split in ("train", "valid", "test")}
    train, valid, test = splits.values()
    entities, relations = (table.numpy() for table in start.tables())
    GraphFile(data.n_entities, data.n_relations, train, valid, test, entities, relations).write(path)
    return {
        "entities": data.n_entities,
        "relations": data.n_relations,
        "facts": {split: len(facts) for split, facts in splits.items()},
        "queries": len(data.query_index),
    }


def random_tables(n_entities: int, n_relations: int, dim: int) -> Embeddings:
    generator = torch.Generator().manual_seed(0)
    return Embeddings.random(COMPLEX, n_entities, n_relations, dim, generator=generator)


class Ours:
    """Algorithm 1 and the filtered evaluation, paused and resumed by requests."""

    def load(self, path: str, batch: int) -> dict[str, Any]:
        self.graph = graph = GraphFile.read(path)
        facts = graph.train.astype(np.int32)
        index = QueryIndex.build(reciprocal(facts, graph.n_relations), graph.n_entities, 2 * graph.n_relations)
        tables = torch.from_numpy(graph.entities), torch.from_numpy(graph.relations)
        self._start(Embeddings(COMPLEX, *tables, graph.n_relations), index, batch)
        return {"items": len(index), "torch": torch.__version__}

    def _start(self, embeddings: Embeddings, index: QueryIndex, batch: int) -> None:
        self.embeddings = embeddings
        self.strengths = Strengths(*(torch.full((len(table),), STRENGTH) for table in embeddings.tables()))
        self.index = index
        self.objective = SoftmaxObjective(index, embeddings, PRIOR)
        self.config = config = TrainConfig.model_validate({"batch_size": batch})
        self.state = PointState.start(embeddings, config, torch.Generator().manual_seed(1))
        self.schedule = Schedule(config.learning_rate, config.half_life)
        self.em_config = EMConfig.model_validate({"batch_size": batch})
        self.em: EMState | None = None
        self.fit: TimedFit | None = None

    def round_products(self) -> dict[str, Any]:
        """From now on with products in bfloat16."""
        self.objective = SoftmaxObjective(self.index, self.embeddings, PRIOR, products=torch.bfloat16)
        return {}

    def steps(self, steps: int) -> dict[str, Any]:
        """The library's own epoch, cut off after some steps."""
        part = FirstBatches(self.objective, steps)
        begun = time.perf_counter()
        loss = run_epoch(self.state, part, self.strengths, self.config, self.schedule)
        seconds, self.state.part = time.perf_counter() - begun, Part()  # the next turn is an epoch of its own
        return {"seconds": seconds, "items": part.n_items, "loss": loss}

    def em_steps(self, steps: int) -> dict[str, Any]:
        """Algorithm 2's own epoch, M-steps included, cut off after some steps."""
        if self.em is None:
            generators = (torch.Generator().manual_seed(seed) for seed in (2, 3))
            strengths = Strengths(*(lam.clone() for lam in self.strengths))
            self.em = EMState.start(self.embeddings.clone(), strengths, self.em_config, *generators)
        part = FirstBatches(self.objective, steps)
        begun = time.perf_counter()
        loss = run_em_epoch(self.em, part, PRIOR, self.em_config)
        seconds, self.em.part = time.perf_counter() - begun, Part()
        return {"seconds": seconds, "items": part.n_items, "loss": loss}

    def save(self, path: str) -> dict[str, Any]:
        """Write the graph file anew, with the tables as they are now."""
        tables = {"entities": self.embeddings.entities.numpy(), "relations": self.embeddings.relations.numpy()}
        GraphFile(**{**vars(self.graph), **tables}).write(path)
        return {}

    def evaluate(self, facts: int, batch: int, memory: int = MEMORY) -> dict[str, Any]:
        """Filtered ranks of some test facts, both sides; building the filter is part of it.

        The block size is the library's own choice under its limit: `batch` is what peers were told.
        """
        graph = self.graph
        sample = graph.reciprocal(graph.test_sample(facts)).astype(np.int32)
        could_reset, before = reset_peak(), current_bytes()
        begun = time.perf_counter()
        every = np.concatenate([graph.train, graph.valid, graph.test]).astype(np.int32)
        known = QueryIndex.build(reciprocal(every, graph.n_relations), graph.n_entities, 2 * graph.n_relations)
        ranks = rank(self.embeddings, sample, known, memory=memory)
        mrr = {ties: float((1 / ranks.of(ties)).mean()) for ties in ("realistic", "pessimistic", "optimistic")}
        seconds = time.perf_counter() - begun
        extra = peak_bytes() - before if could_reset and before is not None else None
        return {"seconds": seconds, "items": len(sample), "mrr": mrr, "extra_bytes": extra}

    def train_for(self, seconds: float, graph: str, facts: int) -> dict[str, Any]:
        """A fit as the library makes it, for about so many more seconds; what its epochs came to on some facts."""
        if self.fit is None:
            self.fit = TimedFit(
                Dataset.load(graph), self.embeddings.entities.shape[1] // 2, self.graph.valid_sample(facts)
            )
        return self.fit.go_on(seconds)

    def random_epoch(self, entities: int, dim: int, facts: int, relations: int, batch: int) -> dict[str, Any]:
        """The best of two whole epochs on facts drawn uniformly at random."""
        rng = np.random.default_rng(0)
        columns = [rng.integers(size, size=facts, dtype=np.int32) for size in (entities, relations, entities)]
        index = QueryIndex.build(reciprocal(np.stack(columns, axis=1), relations), entities, 2 * relations)
        self._start(random_tables(entities, relations, dim), index, batch)
        self.steps(2)
        seconds = min(self.steps(len(index))["seconds"] for _ in range(2))
        return {"seconds": seconds, "queries": len(index), "facts": len(index.tails)}


class TimedFit:
    """A fit of the library with its own settings, whose clock stands still while it is validated."""

    def __init__(self, data: Dataset, dim: int, valid: npt.NDArray[np.int64]) -> None:
        config = settle(data, Config.model_validate({"model": {"dim": dim}, "run": {"threads": THREADS}}))
        facts = data.reciprocal(valid.astype(np.int32))
        self._begun, self._validating = time.perf_counter(), 0.0

        def validate(model: Scorer | Embeddings) -> float:
            begun = time.perf_counter()
            mrr = filtered_mrr(model, facts, data)
            self._validating += time.perf_counter() - begun
            return mrr

        fit = Fit(data, config, validate, lambda one, other: validate(BlendScorer([one, other])))
        self._epochs = fit.epochs()
        self._waiting = 0.0  # seconds between turns

    def go_on(self, seconds: float) -> dict[str, Any]:
        begun = time.perf_counter()
        if self._waiting:
            self._begun += begun - self._waiting
        points: list[tuple[float, float]] = []
        done = True
        for _, record in self._epochs:
            now = time.perf_counter()
            points.append((now - self._begun - self._validating, record.mrr or 0.0))
            if now - begun >= seconds:
                done = False
                break
        self._waiting = time.perf_counter()
        return {"points": points, "done": done}


class FirstBatches(Objective):
    """An objective whose epoch ends early."""

    def __init__(self, objective: SoftmaxObjective, steps: int) -> None:
        self._objective = objective
        self._steps = steps
        self.n_facts = objective.n_facts
        self.n_items = 0

    def batches(self, size: int, generator: torch.Generator) -> Batches:
        first = self._objective.batches(size, generator)[: self._steps]
        self.n_items = sum(map(len, first))
        return first

    def __call__(self, embeddings: Embeddings, strengths: Strengths, batch: Batch) -> tuple[float, Gradients]:
        return self._objective(embeddings, strengths, batch)


if __name__ == "__main__":
    torch.set_num_threads(THREADS)
    ours = Ours()
    handlers: dict[str, Callable[..., dict[str, Any]]] = {
        "export": export,
        "load": ours.load,
        "round_products": ours.round_products,
        "steps": ours.steps,
        "em_steps": ours.em_steps,
        "save": ours.save,
        "evaluate": ours.evaluate,
        "random_epoch": ours.random_epoch,
        "train_for": ours.train_for,
        "one_pass": equal.one_pass,
    }
    serve(Channel(), handlers)
