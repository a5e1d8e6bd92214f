"""A contestant: PyTorch-BigGraph, run in its own environment; its trainer, with ComplEx for each relation and side."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from torchbiggraph.config import ConfigSchema
from torchbiggraph.model import make_model
from torchbiggraph.train import train_and_report_stats
from torchbiggraph.util import set_logging_verbosity

from bench.graph_file import GraphFile
from bench.protocol import THREADS, Channel, serve

RATE = 0.1


class BigGraph:
    """Its operators on either side are our relations and their reciprocals, real parts first as in our rows."""

    def load(self, path: str, dim: int, negatives: int, batch: int, parts: int) -> dict[str, Any]:
        """`dim` is K; an epoch is trained in so many parts."""
        graph = GraphFile.read(path)
        self._folder = Path(tempfile.mkdtemp(dir=Path(path).parent))
        edges = self._folder / "edges"
        edges.mkdir()
        (self._folder / "entity_count_all_0.txt").write_text(f"{graph.n_entities}\n")
        (self._folder / "dynamic_rel_count.txt").write_text(f"{graph.n_relations}\n")
        with h5py.File(edges / "edges_0_0.h5", "w") as file:
            file.attrs["format_version"] = 1
            for name, column in zip(("lhs", "rel", "rhs"), graph.train.T, strict=True):
                file[name] = np.ascontiguousarray(column, dtype=np.int64)
        config = {
            "entity_path": str(self._folder),
            "edge_paths": [str(edges)],
            "checkpoint_path": str(self._folder / "model"),
            "entities": {"all": {"num_partitions": 1}},
            "relations": [{"name": "all", "lhs": "all", "rhs": "all", "operator": "complex_diagonal"}],
            "dynamic_relations": True,
            "dimension": 2 * dim,
            "global_emb": False,
            "comparator": "dot",
            "loss_fn": "softmax",
            "lr": RATE,
            "num_epochs": 10**6,
            "num_edge_chunks": parts,
            "batch_size": batch,
            "num_batch_negs": 0,
            "num_uniform_negs": negatives,
            "eval_fraction": 0.0,
            "workers": THREADS,
            "verbose": 0,
        }
        set_logging_verbosity(0)
        self._config = ConfigSchema.from_dict(config)
        self._model = make_model(self._config)
        self._parts: Iterator[Any] = train_and_report_stats(self._config, self._model)
        next(self._parts)  # not timed: it starts its processes
        return {"torchbiggraph": "1.0.0"}

    def train(self, seconds: float) -> dict[str, Any]:
        """Parts of epochs until so many seconds have gone by, at least one; files that it writes between them count."""
        begun, facts = time.perf_counter(), 0
        while not facts or time.perf_counter() - begun < seconds:
            facts += int(next(self._parts)[2].count)
        return {"seconds": time.perf_counter() - begun, "facts": facts}

    def save(self, path: str) -> dict[str, Any]:
        """The tables as we have them."""
        latest = max((self._folder / "model").glob("embeddings_all_0.v*.h5"), key=lambda file: file.stat().st_mtime)
        with h5py.File(latest) as file:
            entities = file["embeddings"][...]
        sides = (self._model.lhs_operators[0], self._model.rhs_operators[0])
        relations = [np.concatenate([o.real.detach().numpy(), o.imag.detach().numpy()], axis=1) for o in sides]
        np.savez(path, entities=entities, relations=np.concatenate(relations))
        return {}


if __name__ == "__main__":
    contestant = BigGraph()
    serve(Channel(), {"load": contestant.load, "train": contestant.train, "save": contestant.save})
