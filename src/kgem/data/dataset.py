"""A graph ready for training: vocabularies, splits, counts, reciprocal facts (Eq. 7), the two indexes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import polars as pl

from kgem.data.index import IntArray, LongArray, QueryIndex, Vocabulary, frozen, reciprocal
from kgem.errors import DatasetError

__all__ = ["SPLITS", "Dataset", "IntArray", "LongArray", "QueryIndex", "Vocabulary", "reciprocal"]

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True, eq=False)
class Dataset:
    """An immutable graph: ids for labels, and facts (h, r, t) in three splits."""

    name: str
    entities: Vocabulary
    relations: Vocabulary
    train: IntArray  # (n, 3)
    valid: IntArray
    test: IntArray
    duplicates: Mapping[str, int] = field(default_factory=dict)  # facts dropped per split: given twice

    def __post_init__(self) -> None:
        for split in SPLITS:
            facts = np.ascontiguousarray(getattr(self, split), dtype=np.int32).reshape(-1, 3)
            object.__setattr__(self, split, frozen(facts))
        if not len(self.train):
            raise DatasetError(
                "the training split has no facts", where=self.name, remedy="give it at least one"
            )

    @classmethod
    def from_frames(
        cls,
        train: pl.DataFrame,
        valid: pl.DataFrame | None = None,
        test: pl.DataFrame | None = None,
        name: str = "graph",
    ) -> Dataset:
        """Labelled facts (columns head, relation, tail) to ids; labels are numbered in sorted order."""
        given = {"train": train, "valid": valid, "test": test}
        frames = {split: f.select("head", "relation", "tail") for split, f in given.items() if f is not None}
        unique = {split: f.unique(maintain_order=True) for split, f in frames.items()}
        every = pl.concat(unique.values())
        entities = pl.concat([every["head"].unique(), every["tail"].unique()]).unique().sort()
        relations = every["relation"].unique().sort()
        ids = {split: _encode(f, entities, relations) for split, f in unique.items()}
        none = np.empty((0, 3), dtype=np.int32)
        return cls(
            name=name,
            entities=Vocabulary(tuple(entities.to_list()), "entity"),
            relations=Vocabulary(tuple(relations.to_list()), "relation"),
            train=ids["train"],
            valid=ids.get("valid", none),
            test=ids.get("test", none),
            duplicates={split: len(frames[split]) - len(unique[split]) for split in frames},
        )

    @property
    def n_entities(self) -> int:
        return len(self.entities)

    @property
    def n_relations(self) -> int:
        """Relations of the graph itself; with reciprocal ones there are twice as many ids."""
        return len(self.relations)

    def split(self, name: str) -> IntArray:
        """The facts (n, 3) of train, valid or test."""
        if name not in SPLITS:
            raise DatasetError(f"no split is called {name!r}", remedy=f"one of {', '.join(SPLITS)}")
        facts: IntArray = getattr(self, name)
        return facts

    def reciprocal(self, facts: IntArray) -> IntArray:
        """Eq. 7: the facts and, below them, (t, r + n_relations, h) for each."""
        return reciprocal(facts, self.n_relations)

    @cached_property
    def entity_counts(self) -> LongArray:
        """n^E: how often each entity is head or tail of a training fact, (N_e,)."""
        return frozen(np.bincount(self.train[:, [0, 2]].ravel(), minlength=self.n_entities))

    @cached_property
    def relation_counts(self) -> LongArray:
        """n^R: how often each relation occurs in training, (N_r,)."""
        return frozen(np.bincount(self.train[:, 1], minlength=self.n_relations))

    @cached_property
    def query_index(self) -> QueryIndex:
        """The distinct queries of the augmented training set S'."""
        return self._index(self.train)

    @cached_property
    def filter_index(self) -> QueryIndex:
        """The known tails of every query, over all splits."""
        return self._index(np.concatenate([self.train, self.valid, self.test]))

    def _index(self, facts: IntArray) -> QueryIndex:
        return QueryIndex.build(self.reciprocal(facts), self.n_entities, 2 * self.n_relations)

    @cached_property
    def content_hash(self) -> str:
        """sha256 over labels and facts: equal for equal graphs, whatever files they came from."""
        digest = hashlib.sha256()
        for vocabulary in (self.entities, self.relations):
            digest.update("\0".join(vocabulary.labels).encode() + b"\0\0")
        for split in SPLITS:
            digest.update(np.ascontiguousarray(self.split(split), dtype="<i4").tobytes() + b"\0\0")
        return digest.hexdigest()

    def frame(self, split: str) -> pl.DataFrame:
        """The facts of a split with their labels."""
        facts = self.split(split)
        entities, relations = pl.Series(self.entities.labels), pl.Series(self.relations.labels)
        return pl.DataFrame(
            {
                "head": entities.gather(facts[:, 0]),
                "relation": relations.gather(facts[:, 1]),
                "tail": entities.gather(facts[:, 2]),
            }
        )

    def __repr__(self) -> str:
        sizes = " / ".join(f"{len(self.split(s)):,}" for s in SPLITS)
        symbols = f"{self.n_entities:,} entities, {self.n_relations:,} relations"
        return f"<Dataset {self.name}: {symbols}, {sizes} facts>"


def _encode(frame: pl.DataFrame, entities: pl.Series, relations: pl.Series) -> IntArray:
    """Labels to ids by hash look-up, (n, 3)."""
    entity, relation = pl.Enum(entities), pl.Enum(relations)
    ids = frame.select(
        pl.col("head").cast(entity).to_physical(),
        pl.col("relation").cast(relation).to_physical(),
        pl.col("tail").cast(entity).to_physical(),
    )
    return ids.to_numpy().astype(np.int32)
