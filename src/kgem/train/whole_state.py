"""The state of a fit with all rows of entities, collected from its processes, and back to what each has of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from kgem.model.shards import Shards
from kgem.train.phases import ThreePhases

__all__ = ["collect_state", "has_entity_rows", "restore_state"]

_OF_ENTITIES = re.compile(r"(^|\.)entities$|(optimizer|table)\.0(\.|$)")


def has_entity_rows(name: str, tensor: Tensor) -> bool:
    """Whether a tensor of a state has a row, or a number, for each entity."""
    return tensor.dim() > 0 and _OF_ENTITIES.search(name) is not None


def collect_state(phases: ThreePhases) -> dict[str, Tensor]:
    """Everything in the fit that is a tensor, as it stands, with all rows in the first process; all must call it."""
    shards = phases.shards
    return {
        name: shards.collect(t) if has_entity_rows(name, t) else t for name, t in phases.tensors(copies=False).items()
    }


def restore_state(phases: ThreePhases, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
    """Mutates: back to where state and numbers were taken, by however many processes."""
    phases.restore(own_state(phases.shards, tensors), numbers)


def own_state(shards: Shards, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What this process has of a state."""
    return {name: shards.own(t) if has_entity_rows(name, t) else t for name, t in tensors.items()}
