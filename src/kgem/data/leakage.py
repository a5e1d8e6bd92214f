"""Finds relations that repeat or mirror each other, and the held-out facts that train thereby gives away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kgem.data.dataset import SPLITS, Dataset, IntArray, LongArray
from kgem.data.index import distinct, fact_keys

__all__ = ["Leakage", "RelationPair", "find_leakage"]

_CHUNK = 4_000_000  # coincidences looked at at a time, to bound memory


@dataclass(frozen=True)
class RelationPair:
    """Two relations (one, if symmetric) that hold between the same entities."""

    first: str
    second: str
    shared: int  # entity pairs that both have
    share: float  # of the pairs of the larger relation


@dataclass(frozen=True)
class Leakage:
    """Relations that give each other away, and how many held-out facts they give away."""

    threshold: float
    inverse: tuple[RelationPair, ...]  # (h, first, t) goes with (t, second, h)
    duplicate: tuple[RelationPair, ...]  # (h, first, t) goes with (h, second, t)
    symmetric: tuple[RelationPair, ...]  # (h, r, t) goes with (t, r, h)
    answerable: dict[str, int]  # facts of valid and test whose counterpart is in train

    def sentence(self, split: str, n_facts: int) -> str | None:
        """Why the split is easier than it looks; None if no fact of it is given away."""
        count = self.answerable[split]
        if not count:
            return None
        ease = "easy" if count > 0.2 * n_facts else "a little easier than it looks"
        return (
            f"{split} is {ease}: {count:,} of its {n_facts:,} facts ({count / n_facts:.1%}) can be read off "
            f"train, where the same two entities are linked by {self._causes()}. A model that only learns which "
            "relations go together answers them, so scores here say little about facts that must be inferred."
        )

    def _causes(self) -> str:
        said = []
        if self.inverse:
            said.append(f"an inverse relation (such as {_describe(self.inverse[0])})")
        if self.duplicate:
            said.append(f"a near-duplicate relation (such as {_describe(self.duplicate[0])})")
        if self.symmetric:
            said.append(f"the same relation the other way round (such as {self.symmetric[0].first})")
        return " or ".join(said)


def find_leakage(dataset: Dataset, threshold: float = 0.97, min_pairs: int = 5) -> Leakage:
    """Relations that share at least `threshold` of the larger one's entity pairs, over all splits.

    Relations with fewer than `min_pairs` pairs are left out: they coincide by chance.
    """
    facts = _distinct(np.concatenate([dataset.split(s) for s in SPLITS]), dataset)
    n = dataset.n_relations
    sizes = np.bincount(facts[:, 1], minlength=n)
    # A loop (h, r, h) is its own mirror image: it says nothing about inverses.
    proper = facts[facts[:, 0] != facts[:, 2]]
    proper_sizes = np.bincount(proper[:, 1], minlength=n)
    same = _find_coincidences(facts, sizes, dataset.n_entities, threshold, min_pairs, mirrored=False)
    mirror = _find_coincidences(proper, proper_sizes, dataset.n_entities, threshold, min_pairs, mirrored=True)
    itself = mirror[:, 0] == mirror[:, 1]
    inverse, symmetric = mirror[~itself], mirror[itself]
    counts = {split: _count_answerable(dataset, split, same, mirror) for split in SPLITS[1:]}
    return Leakage(
        threshold=threshold,
        inverse=_name_pairs(inverse, proper_sizes, dataset),
        duplicate=_name_pairs(same, sizes, dataset),
        symmetric=_name_pairs(symmetric, proper_sizes, dataset),
        answerable=counts,
    )


def _find_coincidences(
    facts: IntArray, sizes: LongArray, n_entities: int, threshold: float, min_pairs: int, *, mirrored: bool
) -> LongArray:
    """Rows (first, second, shared pairs) of the relations that coincide, first <= second, (m, 3)."""
    facts = facts[sizes[facts[:, 1]] >= min_pairs]
    n = len(sizes)
    h, r, t = (facts[:, i].astype(np.int64) for i in range(3))
    pair, r = np.divmod(np.sort((h * n_entities + t) * n + r), n)  # by pair, then by relation
    starts = np.flatnonzero(np.diff(pair, prepend=-1))
    ends = np.append(starts, pair.size)[1:]
    if mirrored:  # the partners of a fact are all facts on the swapped pair
        swapped = pair % n_entities * n_entities + pair // n_entities
        group = np.minimum(np.searchsorted(pair[starts], swapped), max(len(starts) - 1, 0))
        known = pair[starts][group] == swapped
        first = starts[group]
        lengths = np.where(known, ends[group] - first, 0)
    else:  # the partners of a fact are those after it on the same pair, whose relations are larger
        first = np.arange(pair.size) + 1
        lengths = np.repeat(ends, ends - starts) - first
    codes, counts = [], []
    for left, right in _chunks(first, lengths):
        a, b = r[left], r[right]
        smaller, larger = np.minimum(sizes[a], sizes[b]), np.maximum(sizes[a], sizes[b])
        possible = (a <= b) & (smaller >= threshold * larger)
        found, count = np.unique(a[possible] * n + b[possible], return_counts=True)
        codes.append(found)
        counts.append(count)
    if not codes:
        return np.empty((0, 3), dtype=np.int64)
    found, back = np.unique(np.concatenate(codes), return_inverse=True)
    shared = np.bincount(back, weights=np.concatenate(counts), minlength=len(found)).astype(np.int64)
    a, b = np.divmod(found, n)
    enough = shared >= threshold * np.maximum(sizes[a], sizes[b])
    return np.stack([a, b, shared], axis=1)[enough]


def _chunks(first: LongArray, lengths: LongArray) -> Iterator[tuple[LongArray, LongArray]]:
    """All (row, partner) with partner in first[row] : first[row] + lengths[row], some rows at a time."""
    total = np.cumsum(lengths)
    cuts = np.searchsorted(total, np.arange(_CHUNK, lengths.sum() + _CHUNK, _CHUNK)) + 1
    begin = 0
    for end in np.minimum(cuts, len(lengths)):
        size = lengths[begin:end]
        left = np.repeat(np.arange(begin, end), size)
        within = np.arange(left.size) - np.repeat(np.cumsum(size) - size, size)
        yield left, first[left] + within
        begin = int(end)


def _count_answerable(dataset: Dataset, split: str, same: LongArray, mirror: LongArray) -> int:
    """How many facts of a split have a counterpart in train by one of these pairs of relations."""
    facts = dataset.split(split)
    swaps = np.repeat([False, True], [2 * len(same), 2 * len(mirror)])
    source = np.concatenate([same[:, 0], same[:, 1], mirror[:, 0], mirror[:, 1]])
    target = np.concatenate([same[:, 1], same[:, 0], mirror[:, 1], mirror[:, 0]])
    order = np.argsort(source, kind="stable")
    source, target, swaps = source[order], target[order], swaps[order]
    first = np.searchsorted(source, facts[:, 1])
    lengths = np.searchsorted(source, facts[:, 1], side="right") - first
    train = np.sort(fact_keys(dataset.train, dataset.n_entities, dataset.n_relations))
    given_away = np.zeros(len(facts), dtype=bool)
    for row, partner in _chunks(first, lengths):
        swap = swaps[partner]
        head = np.where(swap, facts[row, 2], facts[row, 0])
        tail = np.where(swap, facts[row, 0], facts[row, 2])
        wanted = np.stack([head, target[partner], tail], axis=1).astype(np.int32)
        keys = fact_keys(wanted, dataset.n_entities, dataset.n_relations)
        given_away[row[_contains(train, keys)]] = True
    return int(given_away.sum())


def _contains(ordered: LongArray, wanted: LongArray) -> npt.NDArray[np.bool_]:
    places = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return np.equal(ordered[places], wanted)


def _distinct(facts: IntArray, dataset: Dataset) -> IntArray:
    """Each fact once, (n, 3)."""
    keys = distinct(fact_keys(facts, dataset.n_entities, dataset.n_relations))
    queries, t = np.divmod(keys, dataset.n_entities)
    return np.stack([*np.divmod(queries, dataset.n_relations), t], axis=1).astype(np.int32)


def _name_pairs(rows: LongArray, sizes: LongArray, dataset: Dataset) -> tuple[RelationPair, ...]:
    """Pairs with their labels, the largest first."""
    rows = rows[np.argsort(-rows[:, 2], kind="stable")]
    share = rows[:, 2] / np.maximum(sizes[rows[:, 0]], sizes[rows[:, 1]])
    label = dataset.relations.labels
    return tuple(
        RelationPair(label[a], label[b], shared, part)
        for (a, b, shared), part in zip(rows.tolist(), share.tolist(), strict=True)
    )


def _describe(pair: RelationPair) -> str:
    return f"{pair.first} / {pair.second}, which share {pair.share:.1%} of their pairs"
