"""What a fit with a sampled softmax holds in memory, phase by phase: worked out before it starts."""

from __future__ import annotations

from dataclasses import dataclass

from kgem.config import Config, RaceConfig

__all__ = ["Memory", "sampled_memory"]

BASE_BYTES = 400_000_000  # torch itself, and blocks of scores
FACT_BYTES, ENTITY_BYTES = 120, 200  # of the graph: facts and their indices; labels, counts and chances
POINT = 3  # sets of tables in a point estimate: as they stand, their average, the best
KEPT = 2 * POINT  # of a race: those that may go on


@dataclass(frozen=True)
class Memory:
    """Bytes: one set of tables, the graph, and how many sets each phase holds, with what it keeps of earlier ones."""

    set_bytes: int
    other_bytes: int
    sets: dict[str, float]

    @property
    def largest(self) -> str:
        """The phase that needs most."""
        return max(self.sets, key=lambda phase: self.sets[phase])

    @property
    def peak(self) -> int:
        """What it needs, in bytes."""
        return int(self.set_bytes * self.sets[self.largest]) + self.other_bytes


def sampled_memory(
    config: Config, n_entities: int, n_facts: int, widths: tuple[int, int], relation_rows: int
) -> Memory:
    """The sum for a graph of such a size; `widths` are the numbers in a row of each table."""
    size = 8 if config.dtype == "float64" else 4
    set_bytes = size * (n_entities * widths[0] + relation_rows * widths[1])
    accumulators = 1 / widths[0] if config.train.accumulates_rows(n_entities, widths[0]) else 1.0
    start = 1.0
    pretrained = start + 1 + accumulators  # what later phases keep of it
    learned = pretrained + 2 + 2 * accumulators
    sets = {
        "pretrain": start + _race(config.pretrain, accumulators),
        "em": pretrained + 5 + 2 * accumulators,
        "retrain": learned + _race(config.retrain, accumulators),
        "distil": learned + 1 + accumulators + (POINT + accumulators if config.distil.epochs else 0),
    }
    return Memory(set_bytes, BASE_BYTES + FACT_BYTES * n_facts + ENTITY_BYTES * n_entities, sets)


def _race(config: RaceConfig, accumulators: float) -> float:
    """Sets of tables of a point estimate, and of those that race with it."""
    alone = POINT + accumulators
    return alone if len(config.candidates) == 1 else alone + KEPT + 2 * accumulators
