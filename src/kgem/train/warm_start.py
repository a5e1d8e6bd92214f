"""What an earlier fit knew, in tables with room for new symbols, and how a fit goes on from there.

An old row stays what it was. A new one begins as the prior of a strength that symbols with as many facts have learned:
mean zero, and the standard deviation that Eq. 17 asks for. Adagrad's accumulators, which no model keeps, are measured:
an epoch at rate zero says how large gradients are, times the epochs of the earlier fit how large their sums were.
Without them the first step would move every number by the full rate (docs/method.md, "shock"); new rows begin so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kgem.config import EMConfig, TrainConfig
from kgem.data.dataset import Dataset
from kgem.model.embeddings import Embeddings
from kgem.model.objective import Objective
from kgem.model.posterior import Gaussian, Posterior
from kgem.model.prior import Prior, Strengths, similar_strengths
from kgem.model.shards import Shards
from kgem.train.optimizer import Optimizer
from kgem.train.point_estimate import PointState, compute_gradients, default_batch_size
from kgem.train.stopping import Asked, never
from kgem.train.variational_em import EMState, e_step, estimate_gradients

__all__ = ["WarmStart", "grown_start", "measure_em", "measure_point"]

SIDES = ("entities", "relations")
Pair = tuple[Tensor, Tensor]  # of entities, of relations


@dataclass(frozen=True, eq=False)
class WarmStart:
    """An earlier fit in larger tables."""

    point: Pair  # the tables that it ended with, (n_entities, width) and (relation rows, width); zero in new rows
    posterior: Posterior
    strengths: Strengths
    new: Pair  # (n_entities,) and (relation rows,) bool: the rows that the earlier fit had not
    epochs: int  # of the earlier fit, as far as its accumulators would remember them

    def tensors(self) -> dict[str, Tensor]:
        """All of it that is a tensor, by name; `from_tensors` undoes it."""
        q = self.posterior
        groups: dict[str, Sequence[Tensor]] = {
            "point": self.point,
            "mean": (q.entities.mean, q.relations.mean),
            "log_std": (q.entities.log_std, q.relations.log_std),
            "strengths": self.strengths,
            "new": self.new,
        }
        return {f"{group}.{side}": t for group, pair in groups.items() for side, t in zip(SIDES, pair, strict=True)}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], epochs: int, device: torch.device | str) -> WarmStart:
        """The start whose tensors these are."""

        def pair(group: str) -> Pair:
            entities, relations = (tensors[f"{group}.{side}"].to(device) for side in SIDES)
            return entities, relations

        q = Posterior(*(Gaussian(*both) for both in zip(pair("mean"), pair("log_std"), strict=True)))
        return cls(pair("point"), q, Strengths(*pair("strengths")), pair("new"), epochs)

    def own(self, shards: Shards) -> WarmStart:
        """What this process has of it."""
        tensors = {name: shards.own(t) if name.endswith(".entities") else t for name, t in self.tensors().items()}
        return self.from_tensors(tensors, self.epochs, self.new[0].device)


def grown_start(
    old: Dataset, new: Dataset, point: Embeddings, posterior: Posterior, strengths: Strengths, prior: Prior, epochs: int
) -> WarmStart:
    """What was fitted to the old graph, for the new one, whose symbols are those of the old one and then more."""
    blocks, n_shared = point.n_own // old.n_relations, point.n_shared  # reciprocal relations come after the others
    counts = (old.entity_counts, new.entity_counts, 1, 0), (old.relation_counts, new.relation_counts, blocks, n_shared)
    tables = zip(counts, point.tables(), (posterior.entities, posterior.relations), strengths, strict=True)
    entities, relations = (_grown(_Side(*rows, table, q, lam), prior) for rows, table, q, lam in tables)
    return WarmStart(
        point=(entities.point, relations.point),
        posterior=Posterior(entities.q, relations.q),
        strengths=Strengths(entities.strengths, relations.strengths),
        new=(entities.new, relations.new),
        epochs=epochs,
    )


@dataclass(frozen=True, eq=False)
class _Side:
    """Entities or relations of the earlier fit, and how often they occur."""

    counts: np.ndarray  # (n,) in the old graph
    new_counts: np.ndarray  # (n and more,) in the new one
    blocks: int  # of rows for each symbol: 2 with reciprocal relations
    n_shared: int  # further rows, which are of no symbol
    point: Tensor
    q: Gaussian
    strengths: Tensor


@dataclass(frozen=True, eq=False)
class _Grown:
    point: Tensor
    q: Gaussian
    strengths: Tensor
    new: Tensor


def _grown(side: _Side, prior: Prior) -> _Grown:
    """Eq. 17: new rows are their prior."""
    device, width = side.strengths.device, side.point.shape[1]
    is_new = np.tile(np.arange(len(side.new_counts)) >= len(side.counts), side.blocks)
    counts, more = np.tile(side.counts, side.blocks), np.tile(side.new_counts, side.blocks)[is_new]
    strengths = similar_strengths(counts, side.strengths[: len(counts)], more)
    new = torch.from_numpy(np.append(is_new, np.zeros(side.n_shared, dtype=bool))).to(device)
    q = Gaussian.of_prior(prior, strengths, width)
    return _Grown(
        point=_placed(new, side.point, torch.zeros_like(q.mean)),
        q=Gaussian(_placed(new, side.q.mean, q.mean), _placed(new, side.q.log_std, q.log_std)),
        strengths=_placed(new, side.strengths, strengths),
        new=new,
    )


def _placed(new: Tensor, old_rows: Tensor, new_rows: Tensor) -> Tensor:
    """One table of old rows, as they are, and new ones."""
    table = old_rows.new_empty(len(new), *old_rows.shape[1:])
    table[~new], table[new] = old_rows, new_rows
    return table


def measure_em(
    state: EMState, objective: Objective, prior: Prior, config: EMConfig, start: WarmStart, stop: Asked = never
) -> None:
    """Mutates the accumulators of EM: as if the earlier fit had left them; nothing else moves. A stop leaves a part."""
    for batch in objective.batches(config.batch_size or default_batch_size(objective.n_items), state.generator):
        if stop():
            return
        estimate = estimate_gradients(state, objective, prior, batch, config, with_norms=False)
        e_step(state, estimate, 0.0, 0.0, objective.touched(batch))
    for optimizer in (state.mean_optimizer, state.std_optimizer):
        _age(optimizer, start)


def measure_point(
    state: PointState,
    objective: Objective,
    strengths: Strengths,
    config: TrainConfig,
    start: WarmStart,
    stop: Asked = never,
) -> None:
    """Mutates the accumulators of a point estimate: as if the earlier fit had left them; a stop leaves a part."""
    for batch in objective.batches(config.batch_size or default_batch_size(objective.n_items), state.generator):
        if stop():
            return
        _, gradients, rows = compute_gradients(objective, state.embeddings, strengths, batch)
        state.optimizer.step(gradients, 0.0, objective.touched(batch), rows)
    _age(state.optimizer, start)


def _age(optimizer: Optimizer, start: WarmStart) -> None:
    """Sums of squares over one epoch become those of as many as the earlier fit had; of new rows there are none."""
    state = optimizer.state()
    for place, new in enumerate(start.new):
        if f"{place}.sum" in state:  # Adagrad's; Adam's averages need no such thing, and SGD has none
            state[f"{place}.sum"].mul_(start.epochs).masked_fill_(new[:, None], 0.0)
    optimizer.restore(state)
