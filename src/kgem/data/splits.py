"""Makes splits in which train knows every symbol, and checks the splits a graph came with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from kgem.data.columns import find_mixed_columns
from kgem.data.dataset import SPLITS, Dataset, IntArray, LongArray, first_places
from kgem.data.index import distinct, fact_keys
from kgem.data.leakage import Leakage, find_leakage
from kgem.errors import ConfigError

__all__ = ["GROUPS", "CheckReport", "SplitReport", "Unseen", "check", "make_split"]

# What the columns of heads and tails are called where a file names them.
HEADERS = {
    *(("head", "tail"), ("subject", "object"), ("source", "target"), ("from", "to"), ("start", "end"), ("src", "dst")),
    *(("h", "t"), ("s", "o"), ("subj", "obj"), ("head_id", "tail_id"), ("source_id", "target_id")),
    *(("subject_id", "object_id"), ("head_entity", "tail_entity"), ("entity1", "entity2"), ("x_name", "y_name")),
}
BoolArray = npt.NDArray[np.bool_]


def _by_ends(facts: IntArray, relations: IntArray) -> LongArray:
    """Number the facts (n, 3) by their two entities, whichever way round, and these relations (n,)."""
    ends = np.sort(facts[:, [0, 2]], axis=1)
    alike = np.stack([ends[:, 0], relations, ends[:, 1]], axis=1)
    keys = fact_keys(alike, int(ends.max()) + 1, int(relations.max()) + 1)
    return np.unique(keys, return_inverse=True)[1]


# What stays together in one split: facts (n, 3) -> the number of each fact's group (n,).
GROUPS: Mapping[str, Callable[[IntArray], LongArray]] = {
    "none": lambda facts: np.arange(len(facts)),
    "symmetric": lambda facts: _by_ends(facts, facts[:, 1]),  # (h, r, t) with (t, r, h)
    "pair": lambda facts: _by_ends(facts, np.zeros_like(facts[:, 1])),  # all facts between two entities
}


@dataclass(frozen=True)
class SplitReport:
    """What was asked of a split, what it became, and what could not be arranged."""

    facts: int  # to divide
    repeated: int  # facts that were in several splits and now are in one
    wanted: dict[str, int]  # valid and test
    got: dict[str, int]  # train, valid and test
    reserved: int  # facts that train must have, so that it knows every symbol
    group: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Unseen:
    """Symbols of a split that train never shows, and the facts they are in."""

    entities: int
    relations: int
    facts_by_entity: int
    facts_by_relation: int


@dataclass(frozen=True)
class CheckReport:
    """What is in a graph's splits, and what is wrong with them."""

    name: str
    entities: int
    relations: int
    entities_in_train: int
    relations_in_train: int
    facts: dict[str, int]
    duplicates: dict[str, int]  # facts given again within a split
    in_two_splits: dict[str, int]  # by "train/valid", "train/test", "valid/test"
    self_loops: dict[str, int]
    unseen: dict[str, Unseen]  # of valid and test
    leakage: Leakage
    notes: tuple[str, ...]


def make_split(
    graph: Any,
    valid: float = 0.1,
    test: float = 0.1,
    seed: int | np.random.Generator = 0,
    *,
    group: str = "none",
) -> tuple[Dataset, SplitReport]:
    """Divide all facts of a graph (or frame, or array) anew; train gets a fact of every symbol first.

    `valid` and `test` are shares below 1 or numbers of facts. `group` names in GROUPS what stays together.
    """
    dataset = graph if isinstance(graph, Dataset) else Dataset.load(graph)
    if group not in GROUPS:
        raise ConfigError(f"no grouping is called {group!r}", remedy=f"one of {', '.join(GROUPS)}")
    pooled = np.concatenate([dataset.split(s) for s in SPLITS])
    once = first_places(pooled, dataset.n_entities, dataset.n_relations)
    facts = pooled[once]
    wanted = _count_wanted({"valid": valid, "test": test}, len(facts))

    # A group's rank is its place in a random order; everything below works on ranks.
    groups = GROUPS[group](facts)
    rank = np.random.default_rng(seed).permutation(int(groups.max()) + 1)[groups]  # (n,)
    symbols = np.stack([facts[:, 0], facts[:, 2], facts[:, 1] + dataset.n_entities], axis=1)  # (n, 3)
    reserved = _first_of_each_symbol(symbols, rank)
    free = int((~reserved[rank]).sum())
    if free < sum(wanted.values()):
        reserved = _slim(reserved, symbols, rank)
        free = int((~reserved[rank]).sum())
    part = _deal(reserved, rank, _within(wanted, free))

    rows = {split: once[part == i] for i, split in enumerate(SPLITS)}
    made = replace(
        dataset,
        **{split: pooled[chosen] for split, chosen in rows.items()},
        duplicates={},
        extra=_deal_extra(dataset, rows),
    )
    got = {split: len(chosen) for split, chosen in rows.items()}
    report = SplitReport(
        facts=len(facts),
        repeated=len(pooled) - len(facts),
        wanted=wanted,
        got=got,
        reserved=len(facts) - free,
        group=group,
        notes=_shortages(wanted, got, len(facts) - free),
    )
    return made, report


def check(dataset: Dataset, threshold: float = 0.97) -> CheckReport:
    """Counts, facts given twice, symbols train never shows, and leakage between splits."""
    keys = {s: fact_keys(dataset.split(s), dataset.n_entities, dataset.n_relations) for s in SPLITS}
    once = {s: distinct(k) for s, k in keys.items()}
    overlap = {
        f"{a}/{b}": len(np.intersect1d(once[a], once[b], assume_unique=True)) for a, b in combinations(SPLITS, 2)
    }
    repeated = dict.fromkeys(SPLITS, 0) | dict(dataset.duplicates)  # a file of all splits counts as a whole
    repeated |= {s: repeated[s] + len(keys[s]) - len(once[s]) for s in SPLITS}
    facts = {s: len(dataset.split(s)) for s in SPLITS}
    unseen = {s: _count_unseen(dataset, s) for s in SPLITS[1:]}
    leakage = find_leakage(dataset, threshold)
    return CheckReport(
        name=dataset.name,
        entities=dataset.n_entities,
        relations=dataset.n_relations,
        entities_in_train=int(np.count_nonzero(dataset.entity_counts)),
        relations_in_train=int(np.count_nonzero(dataset.relation_counts)),
        facts=facts,
        duplicates=repeated,
        in_two_splits=overlap,
        self_loops={s: int((dataset.split(s)[:, 0] == dataset.split(s)[:, 2]).sum()) for s in SPLITS},
        unseen=unseen,
        leakage=leakage,
        notes=(
            *_reading_findings(dataset),
            *_column_findings(dataset),
            *_findings(facts, repeated, overlap, unseen, leakage),
        ),
    )


def _count_wanted(asked: Mapping[str, float], n_facts: int) -> dict[str, int]:
    """Shares or numbers of facts to numbers of facts."""
    for split, amount in asked.items():
        if amount < 0 or (amount >= 1 and amount != int(amount)):
            raise ConfigError(
                f"{split}={amount} is neither a share nor a number of facts",
                remedy="a share from 0 up to 1, or a whole number",
            )
    wanted = {s: round(amount * n_facts) if amount < 1 else int(amount) for s, amount in asked.items()}
    if sum(wanted.values()) >= n_facts:
        raise ConfigError(
            f"{' and '.join(f'{n:,} for {s}' for s, n in wanted.items())} leave nothing of {n_facts:,} facts for train",
            remedy="ask for less",
        )
    return wanted


def _first_of_each_symbol(symbols: LongArray, rank: LongArray) -> BoolArray:
    """Per rank: whether a symbol occurs there for the first time, as when walking the ranks upwards."""
    n_ranks = int(rank.max()) + 1
    backwards = np.argsort(-rank, kind="stable")
    first = np.full(int(symbols.max()) + 1, n_ranks)
    for column in symbols.T:
        here = np.full_like(first, n_ranks)
        here[column[backwards]] = rank[backwards]  # the last assignment, of the lowest rank, stays
        np.minimum(first, here, out=first)
    reserved = np.zeros(n_ranks + 1, dtype=bool)
    reserved[first] = True  # the place at the end takes the numbers that no symbol has
    return reserved[:-1]


def _slim(reserved: BoolArray, symbols: LongArray, rank: LongArray) -> BoolArray:
    """Release reserved groups whose symbols other reserved groups show as well, until none is left."""
    reserved = reserved.copy()
    width = int(symbols.max()) + 1
    inside = reserved[rank]
    rank_of, symbol = np.divmod(
        distinct((rank[inside, None].astype(np.int64) * width + symbols[inside]).ravel()), width
    )  # which reserved group shows which symbol, each once
    while True:
        shown = np.bincount(symbol, minlength=width)  # by how many groups
        sole = np.zeros(len(reserved), dtype=bool)
        sole[rank_of[shown[symbol] == 1]] = True
        spare = ~sole[rank_of]
        if not spare.any():
            return reserved
        # Of a symbol's groups all but one may go at once; a group goes if all its symbols can spare it.
        order = np.lexsort((rank_of[spare], symbol[spare]))
        who, what = rank_of[spare][order], symbol[spare][order]
        starts = np.flatnonzero(np.diff(what, prepend=-1))
        turn = np.arange(what.size) - np.repeat(starts, np.diff(np.append(starts, what.size)))
        stays = np.zeros(len(reserved), dtype=bool)
        stays[who[turn >= shown[what] - 1]] = True
        released = np.zeros(len(reserved), dtype=bool)
        released[who] = True
        released &= ~stays
        reserved &= ~released
        keep = ~released[rank_of]
        rank_of, symbol = rank_of[keep], symbol[keep]


def _within(wanted: Mapping[str, int], free: int) -> dict[str, int]:
    """What is wanted, or a proportional part of it where there is less."""
    total = sum(wanted.values())
    return {s: n if total <= free else n * free // total for s, n in wanted.items()}


def _deal(reserved: BoolArray, rank: LongArray, target: Mapping[str, int]) -> LongArray:
    """The split of each fact as its place in SPLITS, (n,): free groups go to test, then to valid."""
    sizes = np.where(reserved, 0, np.bincount(rank, minlength=len(reserved)))
    total = np.cumsum(sizes)
    split = np.zeros(len(reserved), dtype=np.int64)
    begin, taken = 0, 0
    for name in ("test", "valid"):
        end = int(np.searchsorted(total, taken + target[name], side="right"))
        split[begin:end] = SPLITS.index(name)
        begin, taken = end, int(total[end - 1]) if end else 0
    split[reserved] = 0
    return split[rank]


def _deal_extra(dataset: Dataset, rows: Mapping[str, LongArray]) -> dict[str, pl.Series]:
    if not dataset.extra:
        return {}
    some = next(iter(dataset.extra.values()))
    nothing = {s: pl.Series(some.name, [None] * len(dataset.split(s)), dtype=some.dtype) for s in SPLITS}
    pooled = pl.concat([dataset.extra.get(s, nothing[s]) for s in SPLITS])
    return {split: pooled.gather(chosen) for split, chosen in rows.items()}


def _shortages(wanted: Mapping[str, int], got: Mapping[str, int], reserved: int) -> tuple[str, ...]:
    return tuple(
        f"{split} has {got[split]:,} facts instead of {n:,}: train needs {reserved:,} facts to know every "
        "entity and relation, and what belongs together is not divided"
        for split, n in wanted.items()
        if got[split] < n
    )


def _count_unseen(dataset: Dataset, split: str) -> Unseen:
    facts = dataset.split(split)
    entity, relation = dataset.entity_counts == 0, dataset.relation_counts == 0
    ends = facts[:, [0, 2]]
    return Unseen(
        entities=len(np.unique(ends[entity[ends]])),
        relations=len(np.unique(facts[relation[facts[:, 1]], 1])),
        facts_by_entity=int(entity[ends].any(axis=1).sum()),
        facts_by_relation=int(relation[facts[:, 1]].sum()),
    )


def _column_findings(dataset: Dataset) -> Iterator[str]:
    found = find_mixed_columns(dataset)
    if found is not None:
        yield found


def _reading_findings(dataset: Dataset) -> Iterator[str]:
    """What looks as if the files were meant to be read otherwise."""
    for report in dataset.reports:
        if report.conflicts:
            yield (
                f"{report.source}: {report.conflicts:,} facts are given again with another value in the extra column; "
                "the first one is kept"
            )
    for split in SPLITS:
        if row := _column_names(dataset, split):
            yield (
                f"{split}: the first row ({', '.join(row)}) looks like the names of columns, yet is taken as a fact; "
                "if it names them: --header"
            )


def _column_names(dataset: Dataset, split: str) -> list[str]:
    """The first fact's labels if its ends are what such columns are called and its relation comes up once."""
    facts = dataset.split(split)
    if not len(facts):
        return []
    head, relation, tail = facts[0].tolist()
    row = [dataset.entities[head], dataset.relations[relation], dataset.entities[tail]]
    once = np.count_nonzero(facts[:, 1] == relation) == 1
    return row if once and (row[0].strip().casefold(), row[2].strip().casefold()) in HEADERS else []


def _findings(
    facts: Mapping[str, int],
    repeated: Mapping[str, int],
    overlap: Mapping[str, int],
    unseen: Mapping[str, Unseen],
    leakage: Leakage,
) -> list[str]:
    """One sentence for each thing a user should know."""
    said = [f"{split}: {n:,} facts are given more than once" for split, n in repeated.items() if n]
    said += [f"{n:,} facts are in both {pair.replace('/', ' and ')}" for pair, n in overlap.items() if n]
    for split, found in unseen.items():
        if found.facts_by_entity:
            said.append(
                f"{split}: {found.facts_by_entity:,} facts have one of {found.entities:,} entities that train "
                "never shows; nothing is learned about these"
            )
        if found.facts_by_relation:
            said.append(
                f"{split}: {found.facts_by_relation:,} facts have one of {found.relations:,} relations that "
                "train never shows; nothing is learned about these"
            )
    easy = [leakage.sentence(split, n) for split, n in facts.items() if split != "train"]
    return said + [sentence for sentence in easy if sentence]
