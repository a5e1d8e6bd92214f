"""Small models for tests, random tables without training, and the obvious way to ask them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kgem.answer.model import Model
from kgem.config import Config
from kgem.data.dataset import Dataset
from kgem.evaluate.temperature import Temperature
from kgem.model.embeddings import Embeddings
from kgem.model.posterior import Gaussian, Posterior
from kgem.model.prior import Strengths
from obvious import random_embeddings, random_graph, relation_vectors

TEMPERATURES = {"point": 0.7, "mean": 1.3, "bayes": 0.8, "blend": 0.9}


def random_model(
    data: Dataset | None = None,
    score: str = "complex",
    dim: int = 4,
    *,
    reciprocal: bool = True,
    std: float = 0.3,
    dtype: str = "float64",
    seed: int = 1,
    **more: Any,
) -> Model:
    """Point tables and q have nothing to do with each other, so that modes cannot be confused."""
    data = data or random_graph()
    kind = getattr(torch, dtype)
    point, mean = (
        random_embeddings(data, score, dim, reciprocal=reciprocal, dtype=kind, seed=s) for s in (seed, seed + 1)
    )
    config = Config.model_validate(
        {"model": {"score": score, "dim": dim, "reciprocal": reciprocal}, "seed": seed, "dtype": dtype}
    )
    generator = torch.Generator().manual_seed(seed)
    given: dict[str, Any] = {
        "data": data,
        "config": config,
        "point": point,
        "posterior": Posterior(*(Gaussian.around(table, std) for table in mean.tables())),
        "learned": Strengths(*(0.1 + torch.rand(len(t), generator=generator, dtype=kind) for t in point.tables())),
        "mode": "point",
        "validation": {"point": 0.3, "mean": 0.2, "bayes": 0.25, "blend": 0.28},
        "temperatures": {mode: Temperature(t) for mode, t in TEMPERATURES.items()},
        "n_samples": 7,
        "metrics": {"test": {"mrr": 0.1}},
        "provenance": {"epochs": {"em": 3}, "shared": 1.0, "beta": 0.1, "mix": [1.0, 0.0]},
    }
    return Model(**(given | more))


def loopless_graph() -> Dataset:
    """A random graph: r0 leads from no entity to itself, r1 from e7 alone, of many facts, r2 and r3 from several."""
    data = random_graph(n_facts=300)
    others = data.train[data.train[:, 0] != data.train[:, 2]]
    loops = [(7, 1, 7), *((e, r, e) for r in (2, 3) for e in range(8, 14))]
    return replace(data, train=np.concatenate([others, np.array(loops, dtype=np.int32)]))


def candidates(model: Model, head: int, relation: int) -> Tensor:
    """Who may answer: everyone; or everyone else, where few facts of training lead from an entity to itself."""
    data = model.data
    facts = [(h, t) for h, r, t in data.train.tolist() if r == relation % data.n_relations]
    loops = sum(h == t for h, t in facts)
    usual = loops > 0 and loops >= len(facts) / 20
    return torch.tensor([usual or e != head or (e, e) in facts for e in range(data.n_entities)])


def scores_of(tables: Embeddings, head: int, relation: int) -> Tensor:
    """f(h, r, t) of one question against every entity, one at a time."""
    entities, score, relations = tables.entities, tables.score, relation_vectors(tables)
    if relation < tables.n_relations or tables.reciprocal:
        return torch.stack([score.triple(entities[head], relations[relation], t) for t in entities])
    r = relations[relation - tables.n_relations]
    return torch.stack([score.triple(t, r, entities[head]) for t in entities])


def mode_scores(model: Model, mode: str, head: int, relation: int) -> Tensor:
    """What the mode scores; for bayes the logarithm of the explicit average."""
    if mode == "bayes":
        return torch.stack([scores_of(sample, head, relation).softmax(0) for sample in model.samples]).mean(0).log()
    if mode == "blend":
        return (scores_of(model.point, head, relation) + scores_of(model.mean, head, relation)) / 2
    return scores_of(model.point if mode == "point" else model.mean, head, relation)


def probabilities(model: Model, mode: str, head: int, relation: int, *, everyone: bool = False) -> Tensor:
    """What the mode says: softmax(scores / T)."""
    logits = mode_scores(model, mode, head, relation) / TEMPERATURES[mode]
    return logits.softmax(0) if everyone else _shares(model, logits, head, relation)


def sampled(model: Model, mode: str, head: int, relation: int) -> Tensor:
    """The mode's probabilities, each score moved by half of what a sample of q is off the mean of all: (S, N_e)."""
    own = mode_scores(model, mode, head, relation)
    each = torch.stack([scores_of(sample, head, relation) for sample in model.samples])
    moved = (own + (each - each.mean(0)) / 2) / TEMPERATURES[mode]
    return torch.stack([_shares(model, row, head, relation) for row in moved])


def _shares(model: Model, logits: Tensor, head: int, relation: int) -> Tensor:
    return logits.masked_fill(~candidates(model, head, relation), -torch.inf).softmax(0)
