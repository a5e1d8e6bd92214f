"""Equal results: one pass of the engine beside one pass of the obvious version, from the same start and order."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from kgem.data.dataset import Dataset
from kgem.data.index import QueryIndex
from kgem.model.embeddings import Embeddings
from kgem.model.objective import SoftmaxObjective
from kgem.model.prior import Prior, Strengths
from kgem.model.scores import get_score
from kgem.train.optimizer import Optimizer

__all__ = ["one_pass"]

RATE = 0.1
STRENGTH = 0.05


def one_pass(graph: str, dim: int, batch: int, dtype: str) -> dict[str, Any]:
    """Loss of L / N' over all facts after one epoch, ours and the obvious one, and how far they are apart."""
    data = Dataset.load(graph)
    kind: torch.dtype = getattr(torch, dtype)
    index, prior = data.query_index, Prior(3, complex=True)
    ours = Embeddings.random(
        get_score("complex"),
        data.n_entities,
        data.n_relations,
        dim,
        generator=torch.Generator().manual_seed(0),
        scale=0.1,
        dtype=kind,
    )
    obvious = [table.clone().requires_grad_() for table in ours.tables()]
    strengths = Strengths(*(torch.full((len(table),), STRENGTH, dtype=kind) for table in ours.tables()))
    objective = SoftmaxObjective(index, ours, prior)
    optimizer = Optimizer("adagrad", ours.tables())
    plain = torch.optim.Adagrad(obvious, lr=RATE, eps=1e-12)
    facts = _facts_by_query(index)
    losses: list[tuple[float, float]] = []
    for queries in objective.batches(batch, torch.Generator().manual_seed(1)):
        loss, gradients = objective(ours, strengths, queries)
        optimizer.step(gradients, RATE)
        some = torch.cat([facts[int(query)] for query in queries.items])
        data_term = _cross_entropy(obvious[0], obvious[1], some) * len(index) / (len(queries) * len(index.tails))
        penalty = sum(prior.penalty(t, lam) for t, lam in zip(obvious, strengths, strict=True)) / len(index.tails)
        plain.zero_grad()
        torch.autograd.backward(data_term + penalty)
        plain.step()
        losses.append((loss, float(data_term)))
    every = torch.cat(facts)
    with torch.no_grad():
        after = [float(_total(e, r, every)) / len(every) for e, r in (ours.tables(), obvious)]
    pass_losses = np.mean(losses, axis=0)
    return {
        "steps": len(losses),
        "during": {"ours": float(pass_losses[0]), "obvious": float(pass_losses[1])},
        "after": {"ours": after[0], "obvious": after[1]},
        "relative_difference": abs(after[0] - after[1]) / abs(after[1]),
    }


def _facts_by_query(index: QueryIndex) -> list[Tensor]:
    """The facts (n_q, 3) of each query: the obvious version does not gather."""
    owner = np.repeat(np.arange(len(index)), index.counts)
    facts = np.stack([index.heads[owner], index.relations[owner], index.tails], axis=1).astype(np.int64)
    return list(torch.split(torch.from_numpy(facts), index.counts.tolist()))


def _cross_entropy(entities: Tensor, relations: Tensor, facts: Tensor) -> Tensor:
    """Eq. 10 fact by fact, in complex numbers: Re(h r conj(t)) for all t."""
    h, r, table = (_complex(x) for x in (entities[facts[:, 0]], relations[facts[:, 1]], entities))
    return functional.cross_entropy((h * r @ table.conj().T).real, facts[:, 2], reduction="sum")


def _total(entities: Tensor, relations: Tensor, facts: Tensor) -> Tensor:
    parts = [_cross_entropy(entities, relations, part).double() for part in torch.split(facts, 4096)]
    return torch.stack(parts).sum()


def _complex(x: Tensor) -> Tensor:
    return torch.complex(*x.chunk(2, dim=1))
