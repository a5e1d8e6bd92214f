"""What a fit holds in memory, phase by phase: worked out before it starts."""

from __future__ import annotations

from dataclasses import dataclass

from kgem.config import Config, RaceConfig

__all__ = ["Memory", "fit_memory"]

BASE_BYTES = 600_000_000  # torch itself, blocks of scores, and what reading a graph leaves behind
FACT_BYTES, ENTITY_BYTES = 120, 550  # of the graph: facts and their indices; labels, counts and chances
POINT = 3  # sets of tables in a point estimate: as they stand, their average, the best
GRADIENTS = 1  # of all rows, in an exact step


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


def fit_memory(
    config: Config, n_entities: int, n_facts: int, n_questions: int, widths: tuple[int, int], relation_rows: int
) -> Memory:
    """The sum for a graph of such a size; `widths` are the numbers in a row of each table."""
    size = 8 if config.dtype == "float64" else 4
    set_bytes = size * (n_entities * widths[0] + relation_rows * widths[1])
    sampled = config.train.is_sampled(n_questions, n_entities, widths[0])
    sets = _sampled_sets(config, n_entities, widths[0]) if sampled else _exact_sets(config)
    targets = 0 if sampled else config.distil.kept_bytes(n_questions, n_entities)
    return Memory(set_bytes, BASE_BYTES + FACT_BYTES * n_facts + ENTITY_BYTES * n_entities + targets, sets)


def _sampled_sets(config: Config, n_entities: int, width: int) -> dict[str, float]:
    """Steps touch few rows; a phase that is done keeps its best tables and its accumulators."""
    accumulators = 1 / width if config.train.accumulates_rows(n_entities, width) else 1.0
    start = 1.0
    pretrained = start + 1 + accumulators  # what later phases keep of it
    learned = pretrained + 2 + 2 * accumulators
    return {
        "pretrain": start + _race(config.pretrain, accumulators),
        "em": pretrained + 5 + 2 * accumulators,
        "retrain": learned + _race(config.retrain, accumulators),
        "distil": learned + 1 + accumulators + (POINT + accumulators if config.distil.epochs else 0),
    }


def _exact_sets(config: Config) -> dict[str, float]:
    """Steps touch all rows. Phases stay as they end, with what they would fall back on: tables and accumulators."""
    before, point, fall_back = 1.0 + GRADIENTS, POINT + 1, 2
    sets = {"pretrain": before + fall_back + _race(config.pretrain, 1.0)}
    before += point + fall_back
    sets["em"] = before + 8  # means, xi, their best, the average, a sample, two of accumulators
    before += 8
    sets["retrain"] = before + fall_back + _race(config.retrain, 1.0)
    before += point + fall_back
    companions = config.n_companions
    sets["companions"] = before + (companions - 1 + 1 + point if companions else 0)  # and the start of one
    before += companions
    teacher = 2 + companions  # all models side by side
    sets["distil"] = before + (fall_back + teacher + _race(config.distil, 1.0) if config.distil.epochs else 0)
    return sets


def _race(config: RaceConfig, accumulators: float) -> float:
    """Sets of tables of a point estimate, and of the two at most that may go on beside it."""
    alone = POINT + accumulators
    return alone if len(config.candidates) == 1 else 3 * alone
