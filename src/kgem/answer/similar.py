"""Entities whose vectors point the same way."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kgem.answer.labels import entity_id
from kgem.answer.modes import ModeScorer
from kgem.errors import InputError

__all__ = ["Similar", "find_similar"]


@dataclass(frozen=True)
class Similar:
    """An entity whose vector points the same way."""

    label: str
    cosine: float
    frequency: int


@torch.no_grad()
def find_similar(mode: ModeScorer, entity: str, top: int = 10) -> list[Similar]:
    """The entities whose vectors have the highest cosine with that of this one."""
    if top < 1:
        raise InputError(f"cannot list {top} entities", remedy="ask for at least one")
    data, table = mode.data, mode.tables.entities
    place = entity_id(data, entity)
    sizes = torch.linalg.vector_norm(table, dim=1)  # (N_e,)
    # As one product: torch's cosine_similarity takes ten times as long.
    cosines = torch.mv(table, table[place]) / (sizes * sizes[place]).clamp_min(torch.finfo(table.dtype).tiny)
    cosines[place] = -torch.inf
    values, ids = cosines.topk(min(top, len(table) - 1))
    return [
        Similar(data.entities[i], value, int(data.entity_counts[i]))
        for i, value in zip(ids.tolist(), values.tolist(), strict=True)
    ]
