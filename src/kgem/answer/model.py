"""The model that people hold in their hands: evaluate, predict, look into, save and load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from kgem.answer import predict as asking
from kgem.answer.artifact import read_model, write_model
from kgem.answer.fitted import Fitted
from kgem.answer.missing import ScoredFact, doubtful_facts, missing_facts
from kgem.answer.predict import Prediction, Query, Similar
from kgem.data.dataset import SPLITS
from kgem.errors import InputError
from kgem.evaluate.metrics import Evaluation, breakdown
from kgem.evaluate.ranking import MEMORY, rank

__all__ = ["Model", "load"]


class Model(Fitted):
    """A fitted model. Every `mode` is point, mean, bayes, or auto: the one that was best on validation."""

    def evaluate(
        self,
        split: str = "test",
        mode: str = "auto",
        *,
        filtered: bool = True,
        memory: int = MEMORY,
        progress: Callable[[int, int], None] | None = None,
    ) -> Evaluation:
        """Ranks of a split's facts, from both sides, as figures.

        Filtered ranks leave out the other known answers, raw ones do not. `memory` is the most that the ranking may
        use beside the model, in bytes.
        """
        facts = self.data.split(split)
        if not len(facts):
            raise InputError(
                f"{self.data.name} has no facts in {split}", remedy="evaluate another split, or fit a graph that has it"
            )
        scorer = self.scorer(mode)
        known = self.data.filter_index if filtered else None
        ranks = rank(scorer, self.data.reciprocal(facts), known, memory=memory, on_progress=progress)
        return breakdown(ranks, self.data)

    def predict(
        self,
        head: str | None = None,
        relation: str | None = None,
        tail: str | None = None,
        top: int = 10,
        new_only: bool = False,
        mode: str = "auto",
        uncertainty: bool = True,
    ) -> Prediction:
        """The most probable answers to the one of the three that is not given."""
        return asking.predict(
            self, head, relation, tail, top=top, new_only=new_only, mode=mode, uncertainty=uncertainty
        )

    def predict_many(
        self,
        queries: Sequence[Query],
        top: int = 10,
        new_only: bool = False,
        mode: str = "auto",
        uncertainty: bool = True,
    ) -> list[Prediction]:
        """The answers to many questions at once."""
        return asking.predict_many(self, queries, top=top, new_only=new_only, mode=mode, uncertainty=uncertainty)

    def similar(self, entity: str, top: int = 10, mode: str = "auto") -> list[Similar]:
        """The entities whose vectors point the same way."""
        return asking.similar(self, entity, top, mode)

    def missing_facts(
        self,
        top: int = 1000,
        relations: Sequence[str] | None = None,
        mode: str = "auto",
        *,
        about: Sequence[str] | None = None,
        memory: int = MEMORY,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[ScoredFact]:
        """The most probable facts that the graph does not have."""
        return missing_facts(self, top, relations, mode, about=about, memory=memory, progress=progress)

    def doubtful_facts(
        self,
        top: int = 100,
        splits: Sequence[str] = SPLITS,
        mode: str = "auto",
        *,
        relations: Sequence[str] | None = None,
        memory: int = MEMORY,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[ScoredFact]:
        """The least probable facts that the graph has."""
        return doubtful_facts(self, top, splits, mode, relations=relations, memory=memory, progress=progress)

    def save(self, folder: str | Path, force: bool = False) -> None:
        """Write the model into a folder; one that is there is replaced only with `force`."""
        write_model(self, Path(folder), force=force)

    def __repr__(self) -> str:
        model = self.config.model
        return f"<Model {model.score}, K={model.dim}, of {self.data.name}: mode {self.mode}>"


def load(folder: str | Path, device: str | torch.device = "cpu") -> Model:
    """The model in a folder that `save` wrote, or in a run folder; all of it is checked."""
    return read_model(Path(folder), Model, device)
