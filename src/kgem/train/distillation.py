"""Phase 5: students learn what re-trained tables, the means of q and companions say together; the best takes the
tables' place.

A student is one model of the same size, trained towards all of them (model/teacher.py, docs/method.md section 8); the
pre-trained tables are among them where they are better on validation than the re-trained ones. Its
strengths, a part of the learned ones or these with a count term, are settled by a race like those before. It starts at
the better of the two on validation, and takes the place of the re-trained tables where it beats these. In an update,
which validation cannot judge, it starts at the re-trained tables and takes their place always.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kgem.config import Config, TrainConfig
from kgem.model.embeddings import Embeddings
from kgem.model.objective import Objective, SoftmaxObjective
from kgem.model.prior import Strengths
from kgem.model.sampled import SampledObjective
from kgem.model.teacher import Teacher
from kgem.train.point_estimate import EpochRecord, PointState, Validate, point_estimate, strip_prefix
from kgem.train.race import Race
from kgem.train.softmax import Softmax
from kgem.train.stopping import Asked
from kgem.train.variational_em import EMState

__all__ = ["Distillation", "Mix"]

Mix = tuple[float, float]  # (a, c) of strengths a * learned + c * shared * n


@dataclass(eq=False)
class Distillation:
    """What students learn from and how they are judged; and their race, once it has begun."""

    retrained: PointState
    em: EMState
    pretrained: Embeddings  # which teach, too, where they are better than the re-trained tables
    companions: Sequence[Embeddings]  # further teachers
    strengths: Callable[[float, float], Strengths]  # of a mix
    config: Config  # of the whole fit, as its phases use it
    softmax: Softmax
    generator: Callable[[], torch.Generator]  # of a student, the same for each
    validate: Validate | None
    stop: Asked
    is_update: bool
    events: list[dict[str, Any]]  # of the whole fit: where students start, and since when they are trained exactly
    race: Race[Mix] | None = None

    def epochs(self) -> Iterator[EpochRecord]:
        """Mutates: epoch after epoch, from wherever the race stands, until a winner is trained or a stop asked for."""
        if self.race is None:
            if not self._choose_start():
                return
            self.race = Race(self._start(), self.config.distil.candidates)
        self.race.limit_to(self.config.distil.candidates)
        teacher = Teacher(self._teachers, self.config.distil.weight)
        if self._exact_since is None:
            yield from self._race_students(self.race, self._taught(self.softmax.objective, teacher))
        if not self.stop() and self.softmax.is_sampled and self.config.train.exact_epochs:
            yield from self._train_exactly(self.race, teacher)

    @property
    def best(self) -> Embeddings:
        """The tables of the student if it beats the re-trained ones; else these.

        It counts as better where validation does not judge. One that began at the means of q and does not beat them may
        still beat the re-trained tables: the means are there beside it.
        """
        if self.race is None:
            return self.retrained.best
        stopping, began = self.race.state.stopping, self._beginning
        is_better = self.validate is None or stopping.latest or stopping.best > began.get("retrained", began["mrr"])
        return self.race.state.best if is_better else self.retrained.best

    def restore(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Mutates: back to where the race stood when a checkpoint took all of its `tensors` and `numbers`."""
        self.race = Race(self._start(), self.config.distil.candidates)
        if "students" in numbers:
            self.race.restore(strip_prefix("students.", tensors), numbers["students"])
        else:  # of 0.1, without a race
            self.race.state.restore(strip_prefix("student.", tensors), numbers["student"])

    def _race_students(self, race: Race[Mix], taught: Objective) -> Iterator[EpochRecord]:
        def train(state: PointState, mix: Mix, config: TrainConfig) -> Iterator[EpochRecord]:
            return point_estimate(state, taught, self.strengths(*mix), config, self.validate, self.stop)

        return race.epochs(self.config.distil, self._start, train, stop=self.stop)

    def _train_exactly(self, race: Race[Mix], teacher: Teacher) -> Iterator[EpochRecord]:
        """Mutates: after a sampled softmax the winner has some epochs with the exact one."""
        state, mix, since = race.state, race.candidates[race.leader], self._exact_since
        if since is None:
            since = state.epoch
            self.events.append({"event": "exact", "phase": "distil", "epoch": since})
            state.stopping.waited = 0
        longer = self.config.distil.model_copy(update={"epochs": since + self.config.train.exact_epochs})
        taught = self._taught(self.softmax.exact, teacher)
        yield from point_estimate(state, taught, self.strengths(*mix), longer, self.validate, self.stop)

    @property
    def _exact_since(self) -> int | None:
        """The epoch of the student after which its softmax was exact instead of sampled."""
        return next((event["epoch"] for event in self.events if event["event"] == "exact"), None)

    def _taught(self, objective: SoftmaxObjective | SampledObjective, teacher: Teacher) -> Objective:
        return objective.taught_by(teacher, int(self.config.distil.memory * 2**30), self.stop)

    def _choose_start(self) -> bool:
        """Mutates the events: students start at the better of the two models on validation.

        An update has re-trained tables for its student, as for its re-training. False if a stop was asked for.
        """
        judged = {"point": self.retrained.best}
        if not self.is_update:
            judged |= {"mean": self.em.best, "pretrained": self.pretrained}
        mrrs = {name: 0.0 if self.validate is None else self.validate(tables) for name, tables in judged.items()}
        if self.stop():
            return False
        name = max(("point", "mean"), key=lambda each: mrrs.get(each, -1.0))
        event = {"event": "distil", "phase": "distil", "start": name, "mrr": mrrs[name]}
        if name != "point":
            event["retrained"] = mrrs["point"]
        if mrrs.get("pretrained", 0.0) > mrrs["point"]:
            event["pretrained"] = mrrs["pretrained"]
        self.events.append(event)
        return True

    @property
    def _teachers(self) -> list[Embeddings]:
        """Whose scores are averaged."""
        pretrained = [self.pretrained] if "pretrained" in self._beginning else []
        return [self.retrained.best, self.em.best, *pretrained, *self.companions]

    @property
    def _beginning(self) -> dict[str, Any]:
        """The event that says where students start."""
        return next(event for event in self.events if event["event"] == "distil")

    def _start(self) -> PointState:
        """A student, with the accumulators of the model that it starts as; in an update the latest counts.

        Adagrad's are sums over all steps of that model, too large for one that is to move on: a part of them is taken.
        In an update they are those of a few steps, and stay whole.
        """
        config, before = self.config.distil, self.config.retrain.optimizer
        tables, optimizer = self.retrained.best, self.retrained.optimizer
        if self._beginning["start"] == "mean":
            tables, optimizer, before = self.em.best, self.em.mean_optimizer, self.config.em.optimizer
        state = PointState.start(tables.clone(), config, self.generator())
        if config.optimizer == before:
            state.optimizer.restore(optimizer.state(copies=False))
            if "adagrad" in config.optimizer and not self.is_update:
                state.optimizer.scale(config.accumulators)
        state.stopping.latest = self.is_update
        return state
