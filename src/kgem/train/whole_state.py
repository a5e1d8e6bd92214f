"""The state of a fit beyond one process: with all rows of entities, or in parts, and back to what each has of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from kgem.model.shards import Shards
from kgem.train.on_demand import OnDemand
from kgem.train.phases import ThreePhases

__all__ = ["collect_state", "has_entity_rows", "is_needed", "name_part", "own_state", "restore_state", "take_part"]

_OF_ENTITIES = re.compile(r"(^|\.)entities$|(optimizer|table)\.0(\.|$)")
_PART = re.compile(r"rows-(\d+)-of-(\d+)")


def has_entity_rows(name: str, tensor: Tensor) -> bool:
    """Whether a tensor of a state has a row, or a number, for each entity."""
    return tensor.dim() > 0 and _OF_ENTITIES.search(name) is not None


def collect_state(phases: ThreePhases) -> dict[str, Tensor]:
    """Everything in the fit that is a tensor, as it stands, with all rows in the first process; all must call it."""
    shards = phases.shards
    return {
        name: shards.collect(t) if has_entity_rows(name, t) else t for name, t in phases.tensors(copies=False).items()
    }


def name_part(shards: Shards) -> str:
    """What the rows of this process are called among those of all."""
    return f"rows-{shards.processes.rank}-of-{shards.processes.count}"


def take_part(phases: ThreePhases) -> dict[str, Tensor]:
    """What this process has of the fit's tensors, as they stand: the rows of its part, "part/name".

    What all have alike is with the first.
    """
    part, first = name_part(phases.shards), phases.shards.processes.rank == 0
    named = {(name, has_entity_rows(name, t)): t for name, t in phases.tensors(copies=False).items()}
    return {f"{part}/{name}" if of_rows else name: t for (name, of_rows), t in named.items() if of_rows or first}


def is_needed(shards: Shards, part: str) -> bool:
    """Whether this process has rows of a part of that name; what is not called like a part is for all."""
    found = _PART.fullmatch(part)
    return found is None or bool(_overlap(shards, int(found[1]), int(found[2])))


def restore_state(phases: ThreePhases, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
    """Mutates: back to where state and numbers were taken, by however many processes."""
    phases.restore(own_state(phases.shards, tensors), numbers)


def own_state(shards: Shards, tensors: Mapping[str, Tensor]) -> OnDemand:
    """What this process has of a state, of which the parts that it needs are there."""
    parts: dict[str, dict[tuple[int, int], Tensor]] = {}
    plain: dict[str, Tensor] = {}
    for full_name, tensor in tensors.items():
        part, slash, name = full_name.partition("/")
        found = _PART.fullmatch(part) if slash else None
        if found:
            parts.setdefault(name, {})[int(found[1]), int(found[2])] = tensor
        else:
            plain[full_name] = tensor
    whole = {name: partial(_own, shards, name, tensor) for name, tensor in plain.items()}
    return OnDemand({**whole, **{name: partial(_join, shards, rows) for name, rows in parts.items()}})


def _own(shards: Shards, name: str, tensor: Tensor) -> Tensor:
    return shards.own(tensor) if has_entity_rows(name, tensor) else tensor


def _join(shards: Shards, parts: Mapping[tuple[int, int], Tensor]) -> Tensor:
    """The rows of this process, of parts by their place and how many there are."""
    pieces = [parts[place][_overlap(shards, *place) or slice(0, 0)] for place in sorted(parts)]
    pieces = [piece for piece in pieces if len(piece)]
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


def _overlap(shards: Shards, place: int, count: int) -> slice | None:
    """Which rows of that part this process has."""
    if shards.n_rows is None:
        return slice(None)
    first, end = (shards.n_rows * each // count for each in (place, place + 1))
    low, high = shards.clip(first, end)
    return slice(low - first, high - first) if low < high else None
