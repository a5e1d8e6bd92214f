"""Ids for labels, and facts gathered by equal query (h, r) with their tails in compressed rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from kgem.data.names import NO_NAMES, Names
from kgem.errors import DatasetError, UnknownLabel

__all__ = ["IntArray", "LongArray", "QueryIndex", "Vocabulary", "distinct", "fact_keys", "freeze", "reciprocal"]

IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
A = TypeVar("A", bound=npt.NDArray[Any])


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The labels of entities or relations; a label's place is its id."""

    labels: tuple[str, ...]
    kind: str = "entity"
    names: Names = NO_NAMES  # what people call them

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

    def show(self, label: str) -> str:
        """A label for people: by its name, with the label beside it; one without a name as it is."""
        return self.names.show(label)

    @cached_property
    def by_name(self) -> dict[str, list[int]]:
        """The ids of the symbols that have each name."""
        found: dict[str, list[int]] = {}
        for i, label in enumerate(self.labels) if self.names.by_label else ():
            if label in self.names.by_label:
                found.setdefault(self.names.by_label[label], []).append(i)
        return found

    def ids(self, labels: Sequence[str]) -> IntArray:
        """The ids of many labels."""
        return np.fromiter((self.id(label) for label in labels), dtype=np.int32, count=len(labels))

    def suggest(self, label: str, most: int = 3, counts: npt.NDArray[np.integer[Any]] | None = None) -> list[str]:
        """Labels that may have been meant: with the text inside, by counts (n,) or the shortest first, and alike.

        The one that is most alike has a place among them, also where many have the text inside.
        """
        import difflib

        folded = {known.casefold(): i for i, known in enumerate(self.labels)}
        wanted = label.casefold()
        if wanted in folded:
            return [self.labels[folded[wanted]]]

        def place(known: str) -> tuple[int, int]:
            return (0 if counts is None else -int(counts[folded[known]])), len(known)

        inside = sorted((known for known in folded if wanted and wanted in known), key=place)[:most]
        near = difflib.get_close_matches(wanted, folded, n=most, cutoff=0.6) if len(folded) < 100_000 else []
        return [self.labels[folded[known]] for known in dict.fromkeys([*inside[: most - 1], *near, *inside])][:most]


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
        keys = distinct(fact_keys(facts, n_entities, n_relations))
        queries, tails = np.divmod(keys, n_entities)
        starts = np.flatnonzero(np.concatenate(([True], queries[1:] != queries[:-1]))) if keys.size else keys
        first = queries[starts]
        return cls(
            heads=freeze((first // n_relations).astype(np.int32)),
            relations=freeze((first % n_relations).astype(np.int32)),
            offsets=freeze(np.append(starts, keys.size).astype(np.int64)),
            tails=freeze(tails.astype(np.int32)),
            n_relations=n_relations,
        )

    def __len__(self) -> int:
        return len(self.heads)

    @cached_property
    def counts(self) -> LongArray:
        """n_q: how many tails each query has, (Q,)."""
        return freeze(np.diff(self.offsets))

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


def reciprocal(facts: IntArray, n_relations: int) -> IntArray:
    """Eq. 7: S and, below it, {(t, r^-1, h)}, where r^-1 has the id r + n_relations."""
    flipped = facts[:, [2, 1, 0]] + np.array([0, n_relations, 0], dtype=np.int32)
    return np.concatenate([facts, flipped])


def fact_keys(facts: IntArray | LongArray, n_entities: int, n_relations: int) -> LongArray:
    """One number per fact, ordered like (h, r, t), (n,)."""
    if n_entities * n_relations * n_entities >= 2**62:
        raise DatasetError(
            f"{n_entities:,} entities with {n_relations:,} relations are more than the index can number",
            remedy="split the graph into parts",
        )
    keys = facts[:, 0].astype(np.int64)
    for column, base in ((1, n_relations), (2, n_entities)):
        keys *= base
        keys += facts[:, column]
    return keys


def distinct(keys: LongArray) -> LongArray:
    """The different keys, ascending; sorts the given array. (np.unique hashes, which is far slower here.)"""
    keys.sort()
    first = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    return keys[first]


def freeze(array: A) -> A:
    """The same array, no longer writable."""
    array.setflags(write=False)
    return array
