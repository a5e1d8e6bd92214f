"""Two tables one behind the other in memory: what is done to each of their numbers is then done in one call.

On a small graph a call costs more than its arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["Gradients", "clone_joint", "empty_joint", "join", "stack", "walk"]


class Pair(Protocol):
    """Two tables."""

    def tables(self) -> tuple[Tensor, Tensor]: ...

    @property
    def flat(self) -> Tensor | None:
        """All numbers of both, (n,), the same memory; None if one does not lie behind the other."""


class Gradients:
    """Two tensors of the shapes of E and R: gradients, or log standard deviations."""

    def __init__(self, entities: Tensor, relations: Tensor) -> None:
        self.entities = entities  # (n_entities, entity_width)
        self.relations = relations  # (relation rows, relation_width)

    def tables(self) -> tuple[Tensor, Tensor]:
        return self.entities, self.relations

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.tables())

    @cached_property
    def flat(self) -> Tensor | None:
        """All numbers of both, (n,), the same memory; None if one does not lie behind the other."""
        return join(self)


def empty_joint(like: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Memory for two tables of these shapes, one behind the other."""
    entities, relations = like
    flat = entities.new_empty(entities.numel() + relations.numel())
    return flat[: entities.numel()].view(entities.shape), flat[entities.numel() :].view(relations.shape)


def clone_joint(tables: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Copies of two tables, one behind the other."""
    originals = tuple(tables)
    copies = empty_joint(originals)
    for copy, original in zip(copies, originals, strict=True):
        copy.copy_(original)
    return copies


def join(tables: Iterable[Tensor]) -> Tensor | None:
    """All numbers of two tables, (n,), the same memory; None if one does not lie behind the other."""
    first, second = tables
    behind = (
        first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
        and second.storage_offset() == first.storage_offset() + first.numel()
        and first.dtype == second.dtype
        and first.is_contiguous()
        and second.is_contiguous()
    )
    return torch.as_strided(first, (first.numel() + second.numel(),), (1,)) if behind else None


def walk(*pairs: Pair) -> Iterator[tuple[Tensor, ...]]:
    """What belongs together of some pairs: all their numbers at once, or one table after the other."""
    flats = [pair.flat for pair in pairs]
    if any(flat is None for flat in flats):
        yield from zip(*(pair.tables() for pair in pairs), strict=True)
    else:
        yield tuple(flat for flat in flats if flat is not None)


def stack(pair: Pair) -> Tensor | None:
    """The rows of both tables as one, the same memory; None if that is impossible, as with different widths."""
    entities, relations = pair.tables()
    if pair.flat is None or entities.shape[1] != relations.shape[1]:
        return None
    return pair.flat.view(-1, entities.shape[1])
