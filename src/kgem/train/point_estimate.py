"""Algorithm 1: a point estimate of the embeddings for given strengths, by stochastic gradient descent."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from kgem.config import TrainConfig
from kgem.errors import Diverged
from kgem.model.embeddings import Embeddings
from kgem.model.joint import Gradients
from kgem.model.objective import Objective
from kgem.model.prior import Strengths
from kgem.model.rows import ALL, Touched
from kgem.train.averaging import Averaging
from kgem.train.on_demand import OnDemand
from kgem.train.optimizer import Optimizer, Schedule
from kgem.train.stopping import Asked, EarlyStopping, Part, never

__all__ = ["EpochRecord", "PointState", "point_estimate"]

Validate = Callable[[Embeddings], float]
MAX_ROLLBACKS = 2


@dataclass(frozen=True)
class EpochRecord:
    """What one epoch amounted to."""

    epoch: int
    loss: float  # the data term of L / N', averaged over the epoch's steps
    rate: float
    seconds: float
    mrr: float | None = None  # filtered, on validation, where it was measured
    best: float | None = None
    extra: dict[str, float] = field(default_factory=dict)


@dataclass
class PointState:
    """Everything Algorithm 1 needs to go on; the tables change in place."""

    embeddings: Embeddings
    optimizer: Optimizer
    generator: torch.Generator  # of the order of queries
    stopping: EarlyStopping
    best: Embeddings
    average: Embeddings  # of the tables over the last steps: what is validated and kept
    steps: int = 0
    epoch: int = 0
    slower: float = 1.0  # factor on the rate after a rollback
    rollbacks: int = 0
    good: Snapshot | None = None  # where to fall back on
    part: Part = field(default_factory=Part)  # of the epoch that it stands in
    pending: dict[str, Tensor] = field(default_factory=dict)  # and what its averages still lack, if it was left

    @classmethod
    def start(cls, embeddings: Embeddings, config: TrainConfig, generator: torch.Generator) -> PointState:
        return cls(
            embeddings=embeddings,
            optimizer=Optimizer(config.optimizer, embeddings.tables()),
            generator=generator,
            stopping=EarlyStopping(config.patience, config.min_gain),
            best=embeddings.clone(),
            average=embeddings.clone(),
        )

    def release(self) -> None:
        """Mutates: from here on only the best tables are needed, and the accumulators; the others give way."""
        self.embeddings = self.average = self.best
        self.optimizer = self.optimizer.moved_to(self.best.tables())
        self.good = None

    def tensors(self, *, copies: bool = True) -> dict[str, Tensor]:
        """Everything in the state that is a tensor, in copies or as it stands: with `numbers`, all `restore` needs."""
        accumulators = {f"optimizer.{name}": t for name, t in self.optimizer.state(copies=copies).items()}
        tables = {name: tensor.clone() if copies else tensor for name, tensor in self._tables().items()}
        inside = {} if self.good is None or not self.part.steps else self.good.tensors()
        inside |= {f"pending.{name}": t for name, t in self.pending.items()}
        return tables | accumulators | inside | {"generator": self.generator.get_state()}

    def numbers(self) -> dict[str, Any]:
        """Everything else in the state, for JSON."""
        plain = {name: getattr(self, name) for name in ("epoch", "steps", "slower", "rollbacks")}
        return plain | {"stopping": asdict(self.stopping), "part": asdict(self.part)}

    def restore(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Mutates: back to where `tensors` and `numbers` were taken; what follows is the same, bit for bit."""
        if "now.entities" not in tensors:
            self.release()
        for name, table in self._tables().items():
            table.copy_(tensors[name])
        self.optimizer.restore(strip_prefix("optimizer.", tensors))
        self.generator.set_state(tensors["generator"].cpu())
        for name in ("epoch", "steps", "slower", "rollbacks"):
            setattr(self, name, numbers[name])
        self.stopping = EarlyStopping(**numbers["stopping"])
        self.part = Part(**numbers.get("part", {}))
        self.pending = copy_prefixed("pending.", tensors)
        self.good = Snapshot.from_tensors(tensors, self.best) if self.part.steps else None

    def _tables(self) -> dict[str, Tensor]:
        """The live tables, by name; of a state that was released, the best."""
        groups = {"now": self.embeddings, "best": self.best, "average": self.average}
        if self.embeddings is self.best:
            groups = {"best": self.best}
        return {
            f"{group}.{side}": table
            for group, embeddings in groups.items()
            for side, table in zip(("entities", "relations"), embeddings.tables(), strict=True)
        }


def strip_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The tensors whose names begin with the prefix, under the rest of their names."""
    if isinstance(tensors, OnDemand):
        return tensors.under(prefix)
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}


def copy_prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Likewise, in memory of their own."""
    return {name: t.clone() for name, t in strip_prefix(prefix, tensors).items()}


def point_estimate(
    state: PointState,
    objective: Objective,
    strengths: Strengths,
    config: TrainConfig,
    validate: Validate | None = None,
    stop: Asked = never,
) -> Iterator[EpochRecord]:
    """Algorithm 1, epoch after epoch from wherever the state stands; mutates it. `state.best` is what it comes to.

    Asked to stop it ends after the step, or without the end of a validation; the state can go on from there.
    """
    schedule = Schedule(config.learning_rate, config.half_life)
    while state.epoch < config.epochs and not state.stopping.done and not stop():
        begun, order = time.perf_counter() - state.part.seconds, state.generator.get_state()
        loss = run_epoch(state, objective, strengths, config, schedule, stop)
        if not math.isfinite(loss):
            roll_back(state)
            continue
        ended, mrr = end_epoch(state, config, validate, stop, order, begun)
        if not ended:
            return
        if validate is None or (mrr is not None and state.stopping.update(mrr, state.epoch)):
            copy_tables(state.average, state.best)
        rate = state.slower * schedule.at(state.epoch)
        best = state.stopping.best if state.stopping.best_epoch else None
        yield EpochRecord(state.epoch, loss, rate, time.perf_counter() - begun, mrr, best)


class InEpoch(Protocol):
    """A state of either algorithm, as far as epochs go."""

    epoch: int
    generator: torch.Generator
    part: Part
    average: Embeddings


def end_epoch(
    state: InEpoch, config: TrainConfig, validate: Validate | None, stop: Asked, order: Tensor, begun: float
) -> tuple[bool, float | None]:
    """Mutates: the epoch has been, with its figure on validation if that is due. False after a stop: it is left there.

    `order` is what its generator began with, `begun` when it would have begun had it never been left.
    """
    state.epoch += 1
    due = state.epoch % config.validate_every == 0 or state.epoch == config.epochs
    mrr = validate(state.average) if validate is not None and due and not stop() else None
    if stop():
        state.epoch -= 1
        state.generator.set_state(order)  # the same batches again, without those that have been
        state.part.seconds = time.perf_counter() - begun
        return False, None
    state.part = Part()
    return True, mrr


def run_epoch(
    state: PointState,
    objective: Objective,
    strengths: Strengths,
    config: TrainConfig,
    schedule: Schedule,
    stop: Asked = never,
) -> float:
    """Lines 3-5 for every query once; mutates the tables. Returns the data term; not finite if it or a table is not."""
    batches = objective.batches(config.batch_size or default_batch_size(objective.n_items), state.generator)
    averaging = Averaging(state.embeddings, state.average, state.steps, config.averaging * len(batches), state.pending)
    for step in range(state.part.steps, len(batches)):
        if stop():
            state.pending = averaging.pause() if config.averaging else {}
            return state.part.loss
        batch = batches[step]
        touched = objective.touched(batch)
        loss, gradients, rows = compute_gradients(objective, state.embeddings, strengths, batch)
        if not math.isfinite(loss):
            return loss
        if step == 0:  # only now are the tables that the last epoch left known to be good
            state.good = Snapshot.take(state, touched)
        rate = state.slower * schedule.at(state.epoch + step / len(batches))
        if config.averaging:
            averaging.before_step(touched, rows)
        state.optimizer.step(gradients, rate, touched, rows)
        state.steps += 1
        state.part.loss += loss * len(batch)
        state.part.steps = step + 1
    averaging.finish() if config.averaging else copy_tables(state.embeddings, state.average)
    state.pending = {}
    finite = state.embeddings.shards.all(all(map(is_finite, state.embeddings.tables())))
    return state.part.loss / objective.n_items if finite else math.nan


def compute_gradients(
    objective: Objective, embeddings: Embeddings, strengths: Strengths, batch: Any
) -> tuple[float, Gradients, tuple[Tensor, Tensor]]:
    """The objective of a batch and its gradients, for the rows that the batch touches; and these rows as they are."""
    touched = objective.touched(batch)
    if touched is ALL:
        return *objective(embeddings, strengths, batch), embeddings.tables()
    rows = touched.of(embeddings.tables())
    return *objective(embeddings.with_tables(*rows), Strengths(*touched.of(strengths)), batch), rows


def default_batch_size(n_items: int) -> int:
    """About 250 steps an epoch: many enough on a small graph, large enough on a large one to be fast."""
    return min(max(round(n_items / 250), 64), 1024)


def is_finite(table: Tensor) -> bool:
    """Whether all entries are finite, without a table of truth values."""
    return bool(torch.stack(torch.aminmax(table)).isfinite().all())


@dataclass(frozen=True)
class Snapshot:
    """Tables that had a finite loss, to fall back on when it stops being a number."""

    tables: tuple[Tensor, ...]
    accumulators: dict[str, Tensor]

    @classmethod
    def take(cls, state: PointState, touched: Touched = ALL) -> Snapshot:
        """Copies of them; where steps touch few of many rows, the best so far, which need no further memory."""
        if touched is not ALL:
            return cls(state.best.tables(), {})
        return cls(tuple(t.clone() for t in state.embeddings.tables()), state.optimizer.state())

    def tensors(self) -> dict[str, Tensor]:
        """All of it, by name; `from_tensors` undoes it."""
        if not self.accumulators:
            return {}  # the tables are the best so far
        tables = {f"good.table.{i}": table for i, table in enumerate(self.tables)}
        return tables | {f"good.optimizer.{name}": t for name, t in self.accumulators.items()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], best: Embeddings) -> Snapshot:
        tables, accumulators = (copy_prefixed(f"good.{part}.", tensors) for part in ("table", "optimizer"))
        if not tables:
            return cls(best.tables(), {})
        return cls(tuple(tables[str(i)] for i in range(len(tables))), accumulators)


def roll_back(state: PointState) -> None:
    """Mutates the state: last good tables, a quarter of the rate; raises when that has been tried enough."""
    if state.good is None:
        raise Diverged(
            "the loss is not a number before the first step",
            remedy="start from finite tables, or from smaller ones",
        )
    state.rollbacks += 1
    if state.rollbacks > MAX_ROLLBACKS:
        raise Diverged(
            f"the loss is not a number in epoch {state.epoch + 1}, "
            f"also after {MAX_ROLLBACKS} restarts of the epoch with a smaller rate",
            remedy="lower the learning rate, or raise the initial strength",
        )
    for table, mean, good in zip(state.embeddings.tables(), state.average.tables(), state.good.tables, strict=True):
        table.copy_(good)
        mean.copy_(good)
    finite = {name: t.nan_to_num(0.0, 0.0, 0.0) for name, t in state.optimizer.state().items()}
    state.optimizer.restore(state.good.accumulators or finite)
    state.slower /= 4
    state.part = Part()


def copy_tables(source: Embeddings, target: Embeddings) -> None:
    """Mutates the target: its tables become those of the source."""
    for new, old in zip(source.tables(), target.tables(), strict=True):
        old.copy_(new)
