"""One entity as a whole: its facts, what the model expects of it, its neighbours, how much the model trusts it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kgem.answer.labels import entity_id
from kgem.answer.missing import ScoredFact, missing_facts
from kgem.answer.modes import ModeScorer
from kgem.answer.similar import Similar, find_similar
from kgem.data.dataset import SPLITS, Dataset
from kgem.errors import InputError

__all__ = ["EntityView", "KnownFact", "entity_view", "facts_of"]


@dataclass(frozen=True)
class KnownFact:
    """A fact of the graph."""

    head: str
    relation: str
    tail: str
    split: str


@dataclass(frozen=True)
class EntityView:
    """All there is to say about an entity."""

    label: str
    frequency: int  # occurrences in training
    strength: float  # of its regulariser, learned
    strength_quantile: float  # the share of entities whose strength is at most its own
    facts: tuple[KnownFact, ...]
    total_facts: int
    expected: tuple[ScoredFact, ...]  # the best missing facts over all questions about it that training has
    similar: tuple[Similar, ...]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def entity_view(
    mode: ModeScorer,
    strengths: npt.NDArray[np.float64],
    entity: str,
    *,
    facts: int = 100,
    expected: int = 20,
    neighbours: int = 10,
) -> EntityView:
    """What is known and expected of an entity, at most as much of each as is asked for; strengths are (N_e,)."""
    data = mode.data
    place = entity_id(data, entity)
    known, total = facts_of(data, entity, facts)
    return EntityView(
        label=data.entities[place],
        frequency=int(data.entity_counts[place]),
        strength=float(strengths[place]),
        strength_quantile=float((strengths <= strengths[place]).mean()),
        facts=tuple(known),
        total_facts=total,
        expected=tuple(missing_facts(mode, expected, about=[entity])),
        similar=tuple(find_similar(mode, entity, neighbours)) if data.n_entities > 1 else (),
    )


def facts_of(data: Dataset, entity: str, most: int) -> tuple[list[KnownFact], int]:
    """The facts with an entity as head or tail, by relation and split, and how many there are in all."""
    if most < 0:
        raise InputError(f"cannot list {most} facts", remedy="ask for none or more")
    place = entity_id(data, entity)
    found = []
    for number, split in enumerate(SPLITS):
        facts = data.split(split)
        mine = facts[(facts[:, 0] == place) | (facts[:, 2] == place)]
        found.append(np.column_stack([mine, np.full(len(mine), number)]))
    every = np.concatenate(found)  # (n, 4): head, relation, tail, split
    order = np.lexsort((every[:, 3], every[:, 2], every[:, 0], every[:, 0] != place, every[:, 1]))
    return [
        KnownFact(data.entities[h], data.relations[r], data.entities[t], SPLITS[split])
        for h, r, t, split in every[order[:most]].tolist()
    ], len(every)
