"""A graph with facts added and removed: old ids stay, new labels come after them, held-out facts stay held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from kgem.data.dataset import SPLITS, Dataset, IntArray, LongArray, Vocabulary, encode
from kgem.data.index import fact_keys
from kgem.data.options import FACT
from kgem.errors import DatasetError

__all__ = ["Changes", "grow"]

NOWHERE, REPEATED = -1, -2  # where a given fact is, beside the places of SPLITS


@dataclass(frozen=True)
class Changes:
    """What became of each given fact: given = new + known + held_out + repeated, and likewise for removals."""

    given: int  # facts to add
    new: Mapping[str, int]  # by the split that they went to
    known: int  # in the same split already
    held_out: Mapping[str, int]  # given for another split than this one, which has them and keeps them
    repeated: int  # given for two splits: the first one counts
    entities: tuple[str, ...]  # labels that the graph did not have
    relations: tuple[str, ...]
    to_remove: int
    removed: Mapping[str, int]  # by the split that had them
    absent: int  # to remove, but not there
    kept: Mapping[str, int] = field(default_factory=dict)  # facts of before, by split: the first ones of it

    @property
    def total_new(self) -> int:
        return sum(self.new.values())

    @property
    def total_removed(self) -> int:
        return sum(self.removed.values())

    def to_dict(self) -> dict[str, Any]:
        """For JSON; of the new labels their numbers."""
        numbers = {"new_entities": len(self.entities), "new_relations": len(self.relations)}
        return {k: v for k, v in asdict(self).items() if k not in ("entities", "relations")} | numbers


def grow(
    data: Dataset, added: Mapping[str, pl.DataFrame], removed: pl.DataFrame | None = None
) -> tuple[Dataset, Changes]:
    """The graph with labelled facts (columns head, relation, tail) more, by split, and others less, wherever they are.

    A fact that the graph has stays in its split. Labels are never forgotten, also when their last fact goes.
    """
    frames = {split: _facts(added[split]) for split in SPLITS if split in added}
    entities = _extend(data.entities, [frame[column] for frame in frames.values() for column in ("head", "tail")])
    relations = _extend(data.relations, [frame["relation"] for frame in frames.values()])
    facts = {split: _encode(frame, entities, relations) for split, frame in frames.items()}
    keys = {split: fact_keys(ids, len(entities), len(relations)) for split, ids in facts.items()}
    old = {split: fact_keys(data.split(split), len(entities), len(relations)) for split in SPLITS}
    leaving = pl.DataFrame(schema=dict.fromkeys(FACT, pl.String)) if removed is None else _facts(removed)
    gone = fact_keys(
        _encode(_with_known_labels(leaving, entities, relations), entities, relations), len(entities), len(relations)
    )
    _refuse_both(frames, keys, gone)
    homes = _find_homes(keys, old)
    stays = {split: ~np.isin(mine, gone) for split, mine in old.items()}
    splits: dict[str, Any] = {split: data.split(split)[stays[split]] for split in SPLITS}
    for split, home in homes.items():
        splits[split] = np.concatenate([splits[split], facts[split][home == NOWHERE]])
    changes = Changes(
        given=sum(map(len, keys.values())),
        new={split: _count(homes, {split: NOWHERE}) for split in SPLITS},
        known=_count(homes, {split: place for place, split in enumerate(SPLITS)}),
        held_out={
            split: _count(homes, {other: place for other in SPLITS if other != split})
            for place, split in enumerate(SPLITS)
        },
        repeated=_count(homes, dict.fromkeys(SPLITS, REPEATED)),
        entities=entities.labels[data.n_entities :],
        relations=relations.labels[data.n_relations :],
        to_remove=len(leaving),
        removed={split: int((~stay).sum()) for split, stay in stays.items()},
        absent=len(leaving) - int(np.isin(gone, np.concatenate(list(old.values()))).sum()),
        kept={split: int(stay.sum()) for split, stay in stays.items()},
    )
    grown = replace(data, entities=entities, relations=relations, **splits, duplicates={}, extra={}, reports=())
    return grown, changes


def _facts(frame: pl.DataFrame) -> pl.DataFrame:
    """Head, relation and tail as text, each fact once."""
    return frame.select(pl.col(FACT).cast(pl.String)).unique(maintain_order=True)


def _extend(vocabulary: Vocabulary, columns: Sequence[pl.Series]) -> Vocabulary:
    """The labels with those that are not among them after them, sorted."""
    if not columns:
        return vocabulary
    found = pl.concat([column.unique() for column in columns]).unique()
    new = found.filter(~found.is_in(_series(vocabulary).implode())).sort()
    return replace(vocabulary, labels=(*vocabulary.labels, *new.to_list()))


def _series(vocabulary: Vocabulary) -> pl.Series:
    return pl.Series(vocabulary.labels, dtype=pl.String)


def _encode(frame: pl.DataFrame, entities: Vocabulary, relations: Vocabulary) -> IntArray:
    return encode(frame, _series(entities), _series(relations))


def _with_known_labels(frame: pl.DataFrame, entities: Vocabulary, relations: Vocabulary) -> pl.DataFrame:
    """The facts all of whose labels are known."""
    kinds = {"head": entities, "relation": relations, "tail": entities}
    return frame.filter(*(pl.col(column).is_in(_series(each).implode()) for column, each in kinds.items()))


def _refuse_both(frames: Mapping[str, pl.DataFrame], keys: Mapping[str, LongArray], gone: LongArray) -> None:
    for split, mine in keys.items():
        both = np.flatnonzero(np.isin(mine, gone))
        if len(both):
            fact = " - ".join(frames[split].row(int(both[0])))
            raise DatasetError(
                f"{len(both):,} facts are to be added and to be removed, as {fact}",
                remedy="leave them out of one of the two",
            )


def _find_homes(keys: Mapping[str, LongArray], old: Mapping[str, LongArray]) -> dict[str, IntArray]:
    """Of the facts given for each split, which split has them already, by its place; NOWHERE, or REPEATED."""
    homes, before = {}, np.empty(0, dtype=np.int64)
    for split, mine in keys.items():
        home = np.full(len(mine), NOWHERE, dtype=np.int32)
        for other in sorted(SPLITS, key=lambda name: name == split):  # its own last: that one counts
            home[np.isin(mine, old[other])] = SPLITS.index(other)
        home[np.isin(mine, before)] = REPEATED
        homes[split], before = home, np.concatenate([before, mine])
    return homes


def _count(homes: Mapping[str, IntArray], wanted: Mapping[str, int]) -> int:
    """How many facts given for these splits are at these places."""
    return sum(int((home == wanted[split]).sum()) for split, home in homes.items() if split in wanted)
