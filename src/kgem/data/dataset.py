"""A graph ready for training: vocabularies, splits, counts, reciprocal facts (Eq. 7), the two indexes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from kgem.errors import DatasetError, UnknownLabel

__all__ = ["SPLITS", "Dataset", "QueryIndex", "Vocabulary"]

SPLITS = ("train", "valid", "test")

IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
A = TypeVar("A", bound=npt.NDArray[Any])


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The labels of entities or relations; a label's place is its id."""

    labels: tuple[str, ...]
    kind: str = "entity"

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {label: i for i, label in enumerate(self.labels)}

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[str]:
        return iter(self.labels)

    def __contains__(self, label: object) -> bool:
        return label in self._ids

    def __getitem__(self, index: int) -> str:
        return self.labels[index]

    def id(self, label: str) -> int:
        """The id of a label; an unknown one is an error that suggests its neighbours."""
        try:
            return self._ids[label]
        except KeyError:
            near = self.suggest(label)
            remedy = f"did you mean {', '.join(map(repr, near))}?" if near else "labels are compared exactly"
            raise UnknownLabel(f"no {self.kind} is called {label!r}", remedy=remedy) from None

    def ids(self, labels: Sequence[str]) -> IntArray:
        """The ids of many labels."""
        return np.fromiter((self.id(label) for label in labels), dtype=np.int32, count=len(labels))

    def suggest(self, label: str, most: int = 3) -> list[str]:
        """Labels that look like the given one, best first."""
        import difflib

        folded = {known.casefold(): known for known in self.labels}
        wanted = label.casefold()
        if wanted in folded:
            return [folded[wanted]]
        inside = sorted((known for known in folded if wanted and wanted in known), key=len)[:most]
        near = difflib.get_close_matches(wanted, folded, n=most, cutoff=0.6) if len(folded) < 100_000 else []
        return [folded[known] for known in dict.fromkeys([*near, *inside])][:most]


@dataclass(frozen=True, eq=False)
class QueryIndex:
    """Distinct queries (h, r) with their tails in compressed rows.

    The tails of query i are tails[offsets[i] : offsets[i + 1]].
    """

    heads: IntArray  # (Q,)
    relations: IntArray  # (Q,), reciprocal relations included
    offsets: LongArray  # (Q + 1,)
    tails: IntArray  # (N',), ascending within a query
    n_relations: int  # how many relation ids there are, reciprocal ones included

    @classmethod
    def build(cls, facts: IntArray, n_entities: int, n_relations: int) -> QueryIndex:
        """Gather facts (n, 3) by equal (h, r); a fact given twice counts once."""
        if n_entities * n_relations * n_entities >= 2**62:
            raise DatasetError(
                f"{n_entities:,} entities with {n_relations:,} relations are more than the index can number",
                remedy="split the graph into parts",
            )
        h, r, t = (facts[:, i].astype(np.int64) for i in range(3))
        keys = (h * n_relations + r) * n_entities + t
        keys.sort()
        if keys.size:
            keys = keys[np.concatenate(([True], keys[1:] != keys[:-1]))]
        queries, tails = np.divmod(keys, n_entities)
        starts = np.flatnonzero(np.concatenate(([True], queries[1:] != queries[:-1]))) if keys.size else keys
        distinct = queries[starts]
        return cls(
            heads=_frozen((distinct // n_relations).astype(np.int32)),
            relations=_frozen((distinct % n_relations).astype(np.int32)),
            offsets=_frozen(np.append(starts, keys.size).astype(np.int64)),
            tails=_frozen(tails.astype(np.int32)),
            n_relations=n_relations,
        )

    def __len__(self) -> int:
        return len(self.heads)

    @cached_property
    def counts(self) -> LongArray:
        """n_q: how many tails each query has, (Q,)."""
        return _frozen(np.diff(self.offsets))

    @cached_property
    def _keys(self) -> LongArray:
        return self.heads.astype(np.int64) * self.n_relations + self.relations

    def find(self, heads: npt.ArrayLike, relations: npt.ArrayLike) -> LongArray:
        """The place of each query, or -1 where it has no known tail."""
        wanted = np.asarray(heads, dtype=np.int64) * self.n_relations + np.asarray(relations, dtype=np.int64)
        places = np.searchsorted(self._keys, wanted)
        found = places < len(self._keys)
        found[found] = self._keys[places[found]] == wanted[found]
        return np.where(found, places, -1).astype(np.int64)

    def tails_of(self, place: int) -> IntArray:
        """The known tails of one query by its place (none for -1)."""
        if place < 0:
            return self.tails[:0]
        return self.tails[self.offsets[place] : self.offsets[place + 1]]

    def gather(self, places: npt.NDArray[np.integer[Any]]) -> tuple[LongArray, IntArray]:
        """All (row, tail) pairs of the queries at these places; row counts within `places`; -1 has none."""
        places = np.asarray(places, dtype=np.int64)
        known = places >= 0
        starts = np.where(known, self.offsets[places], 0)
        lengths = np.where(known, self.offsets[np.where(known, places + 1, 0)] - starts, 0)
        rows = np.repeat(np.arange(len(places)), lengths)
        first = np.cumsum(lengths) - lengths
        take = np.arange(rows.size) - first[rows] + starts[rows]
        return rows, self.tails[take]


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
            object.__setattr__(self, split, _frozen(facts))
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
        return _frozen(np.bincount(self.train[:, [0, 2]].ravel(), minlength=self.n_entities))

    @cached_property
    def relation_counts(self) -> LongArray:
        """n^R: how often each relation occurs in training, (N_r,)."""
        return _frozen(np.bincount(self.train[:, 1], minlength=self.n_relations))

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


def reciprocal(facts: IntArray, n_relations: int) -> IntArray:
    """Eq. 7: S and, below it, {(t, r^-1, h)}, where r^-1 has the id r + n_relations."""
    flipped = facts[:, [2, 1, 0]] + np.array([0, n_relations, 0], dtype=np.int32)
    return np.concatenate([facts, flipped])


def _encode(frame: pl.DataFrame, entities: pl.Series, relations: pl.Series) -> IntArray:
    """Labels to ids by hash look-up, (n, 3)."""
    entity, relation = pl.Enum(entities), pl.Enum(relations)
    ids = frame.select(
        pl.col("head").cast(entity).to_physical(),
        pl.col("relation").cast(relation).to_physical(),
        pl.col("tail").cast(entity).to_physical(),
    )
    return ids.to_numpy().astype(np.int32)


def _frozen(array: A) -> A:
    array.setflags(write=False)
    return array
