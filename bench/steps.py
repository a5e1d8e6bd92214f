"""Processor time of a step of each phase, and of a validation, in one thread: what small graphs pay for.

Run as `python -m bench.steps GRAPH:DIM ...`. Processor time hardly depends on what else the machine does; turns of the
phases alternate, and the median counts.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch

from bench.ours import COMPLEX, PRIOR, STRENGTH, FirstBatches
from kgem.config import Config
from kgem.data.dataset import Dataset
from kgem.evaluate.validation import make_validator
from kgem.model.embeddings import Embeddings
from kgem.model.objective import SoftmaxObjective
from kgem.model.prior import Strengths
from kgem.model.teacher import Teacher
from kgem.train import point_estimate, variational_em
from kgem.train.optimizer import Schedule
from kgem.train.stopping import Part

STEPS, TURNS = 60, 9  # of a turn, of each phase
BETA = 0.05


def measure(graph: str, dim: int) -> dict[str, float]:
    """Milliseconds of a step of pre-training, EM and distillation, and of a validation."""
    data = Dataset.load(graph)
    generator = torch.Generator().manual_seed(0)
    tables = Embeddings.random(COMPLEX, data.n_entities, data.n_relations, dim, generator=generator, scale=0.1)
    turns = make_turns(data, tables)
    taken: dict[str, list[float]] = {name: [] for name in turns}
    for turn in range(TURNS + 1):
        for name, run in turns.items():
            begun = time.process_time()
            parts = run()
            if turn:  # the first is slower
                taken[name].append(1000 * (time.process_time() - begun) / parts)
    return {name: statistics.median(each) for name, each in taken.items()}


def make_turns(data: Dataset, tables: Embeddings) -> dict[str, Callable[[], int]]:
    """What takes a turn of each: it returns how many steps, or validations, that was."""
    config = Config.model_validate({"em": {"beta": BETA}})
    objective = SoftmaxObjective(data.query_index, tables, PRIOR)
    strengths = Strengths(*(torch.full((len(table),), STRENGTH) for table in tables.tables()))
    order = torch.Generator().manual_seed(1)
    em = variational_em.EMState.start(tables.clone(), strengths, config.em, order, torch.Generator().manual_seed(2))

    def point_turn(objective: SoftmaxObjective) -> Callable[[], int]:
        state = point_estimate.PointState.start(tables.clone(), config.retrain, order)
        schedule = Schedule(config.retrain.learning_rate, config.retrain.half_life)

        def run() -> int:
            part = FirstBatches(objective, STEPS)
            point_estimate.run_epoch(state, part, strengths, config.retrain, schedule)
            steps, state.part = state.part.steps, Part()
            return steps

        return run

    def em_turn() -> int:
        variational_em.run_epoch(em, FirstBatches(objective, STEPS), PRIOR, config.em)
        steps, em.part = em.part.steps, Part()
        return steps

    turns = {
        "point": point_turn(objective),
        "em": em_turn,
        "distil": point_turn(objective.taught_by(Teacher([tables, tables], config.distil.weight))),
    }
    validate = make_validator(data)
    if validate is not None:
        turns["validation"] = lambda: 1 if validate(tables) >= 0 else 0
    return turns


if __name__ == "__main__":
    torch.set_num_threads(1)
    for graph, _, dim in (word.partition(":") for word in sys.argv[1:] or ("umls:50", "world:50", "codex-s:50")):
        found = measure(graph, int(dim or 50))
        print(graph, dim, ", ".join(f"{name} {each:.3f} ms" for name, each in found.items()), flush=True)
