"""Whether what was read as relations looks like them, or like another column of the file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kgem.data.dataset import SPLITS, Dataset

__all__ = ["find_mixed_columns"]

FEWEST = 20  # facts, from which on it can be told
MANY = 10  # times as many relations as heads, or as tails


def find_mixed_columns(dataset: Dataset, columns: Sequence[str | int] | None = None) -> str | None:
    """A finding and its remedy if relations are nearly as many as facts, or many times as many as heads or tails.

    `columns` are those that were chosen for head, relation and tail.
    """
    facts = np.concatenate([dataset.split(split) for split in SPLITS])
    heads, relations, tails = (len(np.unique(column)) for column in facts.T)
    fewest = min(heads, tails)
    if len(facts) < FEWEST or (relations <= len(facts) / 2 and relations <= MANY * fewest):
        return None
    what = f"{relations:,} relations for {len(facts):,} facts, though a relation should be that of many facts"
    if fewest >= relations:
        return f"{what}: has the file a column for it? Columns are chosen with columns (--columns)"
    head, relation, tail = (columns or (1, 2, 3))[:3]
    order = (relation, head, tail) if heads < tails else (head, tail, relation)
    side, chosen = ("heads", "first") if heads < tails else ("tails", "third")
    listed = ",".join(map(str, order))
    return f"{what}: the {chosen} column has {fewest:,} different {side}; if they are the relations: --columns {listed}"
