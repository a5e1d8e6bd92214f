"""A contestant: kgem with a sampled softmax; also makes the graphs, and ranks for everybody."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from bench.graph_file import GraphFile
from bench.protocol import THREADS, Channel, Handler, serve
from kgem.config import Config
from kgem.data.dataset import Dataset
from kgem.data.index import QueryIndex, reciprocal
from kgem.evaluate.metrics import summarise
from kgem.evaluate.ranking import rank
from kgem.model.embeddings import Embeddings
from kgem.model.prior import Prior, Strengths, conventional_strengths
from kgem.model.sampled import SampledObjective
from kgem.model.sampling import Candidates
from kgem.model.scores import get_score
from kgem.model.teacher import multiplies_bfloat16
from kgem.train.machine import Probe, measure, time_turn
from kgem.train.optimizer import Schedule
from kgem.train.point_estimate import PointState, default_batch_size, run_epoch

STRENGTH = 0.03
KINDS = 1000  # of entities in a made graph
RELATIONS = 50
ASKED = 1000  # test facts that are ranked


def export(path: str, source: str) -> dict[str, Any]:
    """A graph in a file or folder, without tables."""
    data = Dataset.load(source)
    splits = [data.split(name).astype(np.int64) for name in ("train", "valid", "test")]
    return _write(path, data.n_entities, data.n_relations, splits)


def make(path: str, entities: int, facts: int) -> dict[str, Any]:
    """A graph with something to learn: a relation leads from each kind of entities to another one.

    Within a kind the n-th entity is the head or the tail of a fact about as often as 1 / sqrt(n).
    """
    rng = np.random.default_rng(0)
    kinds = min(KINDS, entities // 10)
    size = entities // kinds
    relations = (RELATIONS * rng.random(facts) ** 2).astype(np.int64)
    factors, shifts = 2 * rng.integers(kinds // 2, size=RELATIONS) + 1, rng.integers(kinds, size=RELATIONS)
    kind = rng.integers(kinds, size=facts)
    heads = kind * size + (size * rng.random(facts) ** 2).astype(np.int64)
    tails = (kind * factors[relations] + shifts[relations]) % kinds * size + (size * rng.random(facts) ** 2).astype(int)
    made = np.unique(np.stack([heads, relations, tails], axis=1), axis=0)
    made = made[rng.permutation(len(made))]
    return _write(path, entities, RELATIONS, np.split(made, [len(made) - 2 * ASKED, len(made) - ASKED]))


def _write(path: str, n_entities: int, n_relations: int, splits: list[Any]) -> dict[str, Any]:
    nothing = np.empty((0, 0), dtype=np.float32)
    train, valid, test = splits
    GraphFile(n_entities, n_relations, train, valid, test, nothing, nothing).write(path)
    return {"entities": n_entities, "relations": n_relations, "facts": len(train)}


class Ours:
    """Pre-training as the library runs it, for as long as requests want."""

    def load(self, path: str, dim: int, negatives: int, batch: int | None = None) -> dict[str, Any]:
        torch.set_num_threads(THREADS)
        self.graph = graph = GraphFile.read(path)
        index = QueryIndex.build(
            reciprocal(graph.train.astype(np.int32), graph.n_relations), graph.n_entities, 2 * graph.n_relations
        )
        score = get_score("complex")
        self.tables = Embeddings.random(
            score, graph.n_entities, graph.n_relations, dim, generator=torch.Generator().manual_seed(0)
        )
        counts = np.bincount(graph.train[:, [0, 2]].ravel(), minlength=graph.n_entities)
        relation_counts = np.tile(np.bincount(graph.train[:, 1], minlength=graph.n_relations), 2)
        self.strengths = Strengths(*(conventional_strengths(n, STRENGTH) for n in (counts, relation_counts)))
        prior, candidates = Prior(3, complex=True), Candidates(torch.tensor(counts), negatives, 0.5)
        kinds = [None, torch.bfloat16] if multiplies_bfloat16() else [None]
        objectives = {k: SampledObjective(index, self.tables, prior, candidates, products=k) for k in kinds}
        self.batch = batch or default_batch_size(objectives[None].n_items)
        self.objective = objectives[self._faster(objectives)]
        changes = {"optimizer": "row-adagrad", "batch_size": self.batch}
        self.config = Config().pretrain.model_copy(update=changes)
        self.state = PointState.start(self.tables, self.config, torch.Generator().manual_seed(1))
        products = "exact" if self.objective is objectives[None] else "bfloat16"
        return {"torch": torch.__version__, "queries": self.objective.n_items, "products": products}

    def _faster(self, objectives: dict[torch.dtype | None, SampledObjective]) -> torch.dtype | None:
        """The kind of products whose steps are faster, as a fit chooses it."""
        probes = {k: Probe(objective, self.tables, self.strengths, self.batch) for k, objective in objectives.items()}
        seconds = measure({k: time_turn(probe, THREADS) for k, probe in probes.items()})
        return min(seconds, key=lambda kind: seconds[kind])

    def train(self, seconds: float) -> dict[str, Any]:
        """Steps until so many seconds have gone by, at least one."""
        begun, steps = time.perf_counter(), 0
        while not steps or time.perf_counter() - begun < seconds:
            steps += self._run(lambda: time.perf_counter() - begun > seconds)
        facts = steps * self.batch * self.objective.n_facts / 2 / self.objective.n_items
        return {"seconds": time.perf_counter() - begun, "facts": facts}

    def epoch(self, steps: int) -> dict[str, Any]:
        """Seconds of an epoch, by the clock and of processor time, from some of its steps; the first is not timed."""
        self._run(_after(1))
        begun, begun_processor = time.perf_counter(), time.process_time()
        done = self._run(_after(steps))
        each = self.objective.n_items / self.batch / done
        seconds, processor = time.perf_counter() - begun, time.process_time() - begun_processor
        whole = {"seconds": seconds * each, "processor_seconds": processor * each}
        return {**whole, "steps": done, "questions": self.objective.n_items}

    def _run(self, stop: Any) -> int:
        """Steps of the epoch that the state stands in, from its generator's state; how many there have been."""
        before, order = self.state.part.steps, self.state.generator.get_state()
        loss = run_epoch(self.state, self.objective, self.strengths, self.config, Schedule(0.3), stop)
        done = self.state.part.steps - before
        if self.state.pending:
            self.state.generator.set_state(order)  # the same batches, without those that have been
        else:
            self.state.epoch, self.state.part = self.state.epoch + 1, type(self.state.part)()
        assert np.isfinite(loss)
        return done

    def mrr(self, tables: str | None = None) -> dict[str, Any]:
        """Filtered, of test facts from both sides against all entities; of given tables, or of ours as they stand."""
        graph, found = self.graph, self.tables
        if tables is not None:
            with np.load(tables) as file:
                found = found.with_tables(*(torch.from_numpy(file[name]) for name in ("entities", "relations")))
        every = np.concatenate([graph.train, graph.valid, graph.test]).astype(np.int32)
        known = QueryIndex.build(reciprocal(every, graph.n_relations), graph.n_entities, 2 * graph.n_relations)
        asked = reciprocal(graph.test_sample(ASKED).astype(np.int32), graph.n_relations)
        return {"mrr": summarise(rank(found, asked, known).of("pessimistic")).mrr}


def _after(steps: int) -> Any:
    """A stop that lets so many steps be."""
    left = iter(range(steps))
    return lambda: next(left, None) is None


if __name__ == "__main__":
    ours = Ours()
    handlers: dict[str, Handler] = {
        "export": export,
        "make": make,
        "load": ours.load,
        "train": ours.train,
        "epoch": ours.epoch,
    }
    serve(Channel(), {**handlers, "mrr": ours.mrr})
