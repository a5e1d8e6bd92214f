"""Entities whose vectors point the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch

from kgem.answer.labels import entity_id
from kgem.answer.modes import ModeScorer
from kgem.errors import InputError
from kgem.tables import Bar, Rows

__all__ = ["Neighbours", "Similar", "find_similar"]


@dataclass(frozen=True, repr=False)
class Similar:
    """An entity whose vector points the same way."""

    label: str
    cosine: float
    frequency: int

    def __repr__(self) -> str:
        return f"<Similar {self.label}: cosine {self.cosine:.3g}>"


class Neighbours(Rows[Similar]):
    """Similar entities, the most similar first."""

    item, one = "similar entities", "similar entity"
    schema: ClassVar[Mapping[str, str]] = {"label": "text", "cosine": "number", "frequency": "count"}

    def to_rows(self) -> Iterator[dict[str, Any]]:
        """One row for each entity."""
        return map(asdict, self)

    def draw_rows(self) -> tuple[Sequence[str], Callable[[Similar], Sequence[Any]]]:
        """The cosine as a bar."""
        return ("entity", "", "cosine", "frequency"), lambda s: (s.label, Bar(s.cosine), s.cosine, s.frequency)


@torch.no_grad()
def find_similar(mode: ModeScorer, entity: str, top: int = 10) -> Neighbours:
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
    return Neighbours(
        Similar(data.entities[i], value, int(data.entity_counts[i]))
        for i, value in zip(ids.tolist(), values.tolist(), strict=True)
    )
