"""Before phase 4: point estimates from other random tables, one after another, which only teach (docs/method.md, 8).

Re-trained tables and the means of q descend from the same random start and err together; a model from another one
errs elsewhere, and what all of them say together is worth more to a student than what two say. Their strengths are of
the learned kind, one mix for each. Where races have a sampled softmax their first epochs have it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from kgem.config import CompanionsConfig
from kgem.model.embeddings import Embeddings
from kgem.model.prior import Strengths
from kgem.train.point_estimate import EpochRecord, PointState, Validate, point_estimate, strip_prefix
from kgem.train.softmax import Softmax
from kgem.train.stopping import Asked

__all__ = ["Companions"]

ENDLESS = 10**9  # patience while a companion is trained with a sampled softmax


@dataclass(eq=False)
class Companions:
    """Those that have come to their end, by their tables; and the one that is being trained."""

    config: CompanionsConfig
    softmax: Softmax
    strengths: Callable[[float, float], Strengths]  # of a mix
    tables: Callable[[torch.Generator], Embeddings]  # random ones
    seed: int
    validate: Validate | None
    stop: Asked
    trained: list[Embeddings] = field(default_factory=list)
    state: PointState | None = None

    @property
    def turn(self) -> int:
        """Whose turn it is."""
        return len(self.trained)

    @property
    def is_sampling(self) -> bool:
        """Whether the epochs that are under way have a sampled softmax."""
        return self.softmax.is_sampled or (self.state is not None and self.state.epoch < self._sampled_epochs)

    @property
    def _sampled_epochs(self) -> int:
        """Of each companion, before those with the objective of all phases."""
        return min(self.config.sampled_epochs, self.config.epochs) if self.softmax.samples_races else 0

    def epochs(self) -> Iterator[EpochRecord]:
        """Mutates: epoch after epoch, from wherever they stand, until all are trained or a stop is asked for."""
        while self.turn < len(self.config.mixes):
            if self.state is None:
                self.state = self._start()
            yield from self._train(self.state)
            if self.stop():
                return
            self.trained.append(self.state.best)
            self.state = None

    def _train(self, state: PointState) -> Iterator[EpochRecord]:
        """Mutates: the companion whose turn it is, to its end."""
        strengths = self.strengths(*self.config.mixes[self.turn])
        if state.stopping.patience == ENDLESS:
            first = self.config.model_copy(update={"epochs": self._sampled_epochs})
            yield from point_estimate(state, self.softmax.sampled, strengths, first, self.validate, self.stop)
            if self.stop():
                return
            state.stopping.patience, state.stopping.waited = self.config.patience, 0
        yield from point_estimate(state, self.softmax.objective, strengths, self.config, self.validate, self.stop)

    def _start(self) -> PointState:
        """The companion whose turn it is, at random tables of its own."""
        generator = torch.Generator().manual_seed(self.seed + self.turn)
        state = PointState.start(self.tables(generator), self.config, generator)
        if self._sampled_epochs:
            state.stopping.patience = ENDLESS
        return state

    def tensors(self, *, copies: bool = True) -> dict[str, Tensor]:
        """Everything that is a tensor, in copies or as it stands."""
        found = {} if self.state is None else {f"state.{n}": t for n, t in self.state.tensors(copies=copies).items()}
        for i, model in enumerate(self.trained):
            for side, table in zip(("entities", "relations"), model.tables(), strict=True):
                found[f"trained{i}.{side}"] = table.clone() if copies else table
        return found

    def numbers(self) -> dict[str, Any]:
        """Everything else, for JSON."""
        return {"trained": self.turn, "state": None if self.state is None else self.state.numbers()}

    def restore(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Mutates: back to where `tensors` and `numbers` were taken."""
        like = self.tables(torch.Generator())
        self.trained = []
        for i in range(numbers["trained"]):
            model = like.clone()
            for side, table in zip(("entities", "relations"), model.tables(), strict=True):
                table.copy_(tensors[f"trained{i}.{side}"])
            self.trained.append(model)
        self.state = None
        if numbers["state"] is not None:
            self.state = self._start()
            self.state.restore(strip_prefix("state.", tensors), numbers["state"])
