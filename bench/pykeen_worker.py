"""A contestant: PyKEEN, run in its own environment; its LCWA training loop and its rank-based evaluator."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import torch
from pykeen.evaluation import RankBasedEvaluator
from pykeen.losses import CrossEntropyLoss
from pykeen.models import ComplEx
from pykeen.training import LCWATrainingLoop, TrainingCallback
from pykeen.triples import CoreTriplesFactory
from pykeen.version import get_version

from bench.graph_file import GraphFile
from bench.protocol import THREADS, Channel, peak_bytes, serve


class Stopped(Exception):
    """No more requests: leave the training loop."""


class Pace(TrainingCallback):  # type: ignore[misc]
    """Lets the training loop run for as many steps as a request wants, then answers and waits for the next."""

    def __init__(self, channel: Channel, steps: int) -> None:
        super().__init__()
        self._channel = channel
        self._begin(steps)

    def _begin(self, steps: int) -> None:
        self._left = steps
        self._items = 0
        self._begun = time.perf_counter()

    def post_batch(self, epoch: int, batch: Any, **kwargs: Any) -> None:
        self._left -= 1
        self._items += len(batch["pairs"])
        if self._left:
            return
        seconds = time.perf_counter() - self._begun
        self._channel.reply({"seconds": seconds, "items": self._items, "peak_bytes": peak_bytes()})
        request = self._channel.receive()
        if request is None:
            raise Stopped
        self._begin(int(request["steps"]))


class Pykeen:
    """The same model on the same facts: ComplEx, inverse triples, softmax cross-entropy, Adagrad, no regulariser."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def load(self, path: str, batch: int) -> dict[str, Any]:
        self.graph = graph = GraphFile.read(path)
        self.batch = batch
        self.factory = CoreTriplesFactory(
            mapped_triples=torch.from_numpy(graph.train),
            num_entities=graph.n_entities,
            num_relations=graph.n_relations,
            create_inverse_triples=True,
        )
        self.model = ComplEx(
            triples_factory=self.factory,
            embedding_dim=graph.entities.shape[1] // 2,
            regularizer=None,
            loss=CrossEntropyLoss(),
            random_seed=0,
        )
        return {"torch": torch.__version__, "pykeen": get_version()}

    def steps(self, steps: int) -> dict[str, Any]:
        """Starts the training loop, which answers this and all later requests itself until there are no more."""
        loop = LCWATrainingLoop(
            model=self.model,
            triples_factory=self.factory,
            optimizer=torch.optim.Adagrad(self.model.parameters(), lr=0.1),
            automatic_memory_optimization=False,
        )
        loop.train(
            triples_factory=self.factory,
            num_epochs=1_000_000,
            batch_size=self.batch,
            callbacks=Pace(self._channel, steps),
            use_tqdm=False,
        )
        raise AssertionError("the training loop ends by Stopped")

    def evaluate(self, facts: int, batch: int) -> dict[str, Any]:
        """Filtered ranks of some test facts, both sides, with the tables of the graph file."""
        graph = self.graph
        self._put_tables()
        sample = torch.from_numpy(graph.test_sample(facts))
        known = [torch.from_numpy(split) for split in (graph.train, graph.valid, graph.test)]
        begun = time.perf_counter()
        evaluator = RankBasedEvaluator(filtered=True, metrics=["mrr"], add_defaults=False)
        results = evaluator.evaluate(
            self.model, sample, batch_size=batch, additional_filter_triples=known, use_tqdm=False
        )
        mrr = {ties: results.get_metric(f"both.{ties}.mrr") for ties in ("realistic", "pessimistic", "optimistic")}
        return {"seconds": time.perf_counter() - begun, "items": 2 * len(sample), "mrr": mrr}

    @torch.no_grad()
    def _put_tables(self) -> None:
        """PyKEEN numbers relation r as 2 r and its inverse as 2 r + 1, and pairs real with imaginary parts."""
        graph = self.graph
        entities, relations = (_interleave(torch.from_numpy(t)) for t in (graph.entities, graph.relations))
        turned = relations.view(2, graph.n_relations, -1).transpose(0, 1).reshape(2 * graph.n_relations, -1)
        for representation, table in zip(
            (self.model.entity_representations[0], self.model.relation_representations[0]),
            (entities, turned),
            strict=True,
        ):
            (parameter,) = representation.parameters()
            parameter.copy_(table.view(parameter.shape))


def _interleave(table: torch.Tensor) -> torch.Tensor:
    """[real | imaginary] to pairs, (n, 2K)."""
    return torch.stack(table.chunk(2, dim=1), dim=-1).flatten(1)


if __name__ == "__main__":
    torch.set_num_threads(THREADS)
    channel = Channel()
    pykeen = Pykeen(channel)
    with contextlib.suppress(Stopped):
        serve(channel, {"load": pykeen.load, "steps": pykeen.steps, "evaluate": pykeen.evaluate})
