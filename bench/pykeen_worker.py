"""A contestant: PyKEEN, run in its own environment; its LCWA training loop and its rank-based evaluator."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
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

PUBLISHED = {"lr": 0.003442653313243005, "batch_size": 512, "label_smoothing": 0.011161012837964961, "epochs": 1000}
OURS = {"lr": 0.3, "batch_size": 1000, "label_smoothing": 0.0, "epochs": 1000}  # of pre-training, and its small start
OUR_STD = 1e-3
VALIDATED = 256  # facts at once


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


class Clock(TrainingCallback):  # type: ignore[misc]
    """Lets the training loop run for as many seconds as a request wants; stands still while it validates and waits."""

    def __init__(self, channel: Channel, seconds: float, validate: Callable[[], float]) -> None:
        super().__init__()
        self._channel, self._validate = channel, validate
        self._trained = 0.0
        self._begin(seconds)

    def _begin(self, seconds: float) -> None:
        self._seconds, self._points = seconds, list[tuple[float, float]]()
        self._turn = self._running = time.perf_counter()

    @property
    def rest(self) -> list[tuple[float, float]]:
        """Of a training that came to its end."""
        return self._points

    def post_epoch(self, epoch: int, epoch_loss: float, **kwargs: Any) -> None:
        self._trained += time.perf_counter() - self._running
        self._points.append((self._trained, self._validate()))
        if time.perf_counter() - self._turn < self._seconds:
            self._running = time.perf_counter()
            return
        self._channel.reply({"points": self._points, "done": False, "peak_bytes": peak_bytes()})
        request = self._channel.receive()
        if request is None:
            raise Stopped
        self._begin(float(request["seconds"]))


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

    def train_for(self, seconds: float, graph: str, facts: int, alike: bool = False) -> dict[str, Any]:
        """Starts training, with the published settings or our own, which answers all requests until it ends.

        PyKEEN comes with no settings for ComplEx on FB15k-237. The published ones are those of its own benchmarking
        study (arXiv 2006.13365) for this graph, LCWA and cross-entropy, as `pykeen.experiments` has them for RESCAL.
        """
        settings = OURS if alike else PUBLISHED
        if alike:
            for parameter in self.model.parameters():
                torch.nn.init.normal_(parameter, std=OUR_STD)
        optimizer = torch.optim.Adagrad if alike else torch.optim.Adam
        loop = LCWATrainingLoop(
            model=self.model,
            triples_factory=self.factory,
            optimizer=optimizer(self.model.parameters(), lr=settings["lr"]),
            automatic_memory_optimization=False,
        )
        sample = torch.from_numpy(self.graph.valid_sample(facts))

        def validate() -> float:
            mrr = self._rank(sample, VALIDATED).get_metric("both.pessimistic.mrr")
            self.model.train()
            return float(mrr)

        loop.train(
            triples_factory=self.factory,
            num_epochs=settings["epochs"],
            batch_size=settings["batch_size"],
            label_smoothing=settings["label_smoothing"],
            callbacks=(clock := Clock(self._channel, seconds, validate)),
            use_tqdm=False,
        )
        return {"points": clock.rest, "done": True}

    def _rank(self, facts: torch.Tensor, batch: int) -> Any:
        known = [torch.from_numpy(split) for split in (self.graph.train, self.graph.valid, self.graph.test)]
        evaluator = RankBasedEvaluator(filtered=True, metrics=["mrr"], add_defaults=False)
        return evaluator.evaluate(self.model, facts, batch_size=batch, additional_filter_triples=known, use_tqdm=False)

    def evaluate(self, facts: int, batch: int) -> dict[str, Any]:
        """Filtered ranks of some test facts, both sides, with the tables of the graph file."""
        graph = self.graph
        self._put_tables()
        sample = torch.from_numpy(graph.test_sample(facts))
        begun = time.perf_counter()
        results = self._rank(sample, batch)
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
        serve(
            channel,
            {"load": pykeen.load, "steps": pykeen.steps, "evaluate": pykeen.evaluate, "train_for": pykeen.train_for},
        )
