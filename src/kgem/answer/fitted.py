"""What a fit leaves behind, ready to answer questions: graph, tables, posterior, strengths, and the mode to use.

Modes of prediction (end of Section 3.2): `point` asks the re-trained tables, `mean` the means of q, `bayes` averages
softmax probabilities over samples of q. `blend` asks `point` and `mean` together: the geometric mean of their
probabilities, two models that one fit leaves behind. `auto` is the one that was best on validation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kgem.config import Config
from kgem.data.dataset import SPLITS, Dataset, LongArray, QueryIndex, Vocabulary
from kgem.errors import InputError
from kgem.evaluate.averaging import AverageScorer, BlendScorer
from kgem.evaluate.ranking import Scorer, TableScorer
from kgem.model.embeddings import Embeddings
from kgem.model.posterior import Posterior
from kgem.model.prior import Strengths

__all__ = ["MODES", "Fitted", "SymbolStrengths", "SymbolValues", "affordable_samples"]

MODES = ("point", "mean", "bayes", "blend")
SAMPLES, FEWEST = 20, 4  # of q that answers are averaged over
SAMPLE_BYTES = 2**30  # what they may take together, unless that were fewer than FEWEST
LOOPS = 0.05  # of a relation's facts: fewer from an entity to itself are taken for slips
STREAM = 2**40  # keeps the seeds of these samples apart from those of fits


def affordable_samples(posterior: Posterior) -> int:
    """How many samples of q are kept: 20, or fewer where the tables are large."""
    means = (posterior.entities.mean, posterior.relations.mean)
    each = sum(table.numel() * table.element_size() for table in means)
    return max(FEWEST, min(SAMPLES, SAMPLE_BYTES // each))


@dataclass(frozen=True, eq=False)
class SymbolValues:
    """One number per label; `array` has them in the order of ids."""

    vocabulary: Vocabulary
    array: npt.NDArray[np.float64]  # (n,)

    def __getitem__(self, label: str) -> float:
        return float(self.array[self.vocabulary.id(label)])

    def __contains__(self, label: object) -> bool:
        return label in self.vocabulary

    def __len__(self) -> int:
        return len(self.vocabulary)

    def __iter__(self) -> Iterator[str]:
        return iter(self.vocabulary)

    def items(self) -> Iterator[tuple[str, float]]:
        return zip(self.vocabulary, self.array.tolist(), strict=True)


@dataclass(frozen=True, eq=False)
class SymbolStrengths:
    """The learned regulariser strengths lambda by label; reciprocal relations have their own."""

    entities: SymbolValues
    relations: SymbolValues
    reciprocals: SymbolValues  # of r^-1, under the label of r; those of r itself in the two-sided mode


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted model and the graph that it was fitted to."""

    data: Dataset
    config: Config
    point: Embeddings
    posterior: Posterior
    learned: Strengths
    mode: str  # what `auto` stands for
    validation: Mapping[str, float] = field(default_factory=dict)  # filtered MRR by mode; none without validation
    temperatures: Mapping[str, float] = field(default_factory=dict)  # by mode, fitted on validation
    n_samples: int = SAMPLES
    metrics: Mapping[str, Any] = field(default_factory=dict)  # whatever was measured, for JSON
    provenance: Mapping[str, Any] = field(default_factory=dict)  # of data and fit, for JSON

    def resolve(self, mode: str) -> str:
        """The mode that is meant, `auto` among them."""
        if mode == "auto":
            return self.mode
        if mode not in MODES:
            raise InputError(f"no prediction mode is called {mode!r}", remedy=f"one of auto, {', '.join(MODES)}")
        return mode

    def temperature(self, mode: str = "auto") -> float:
        """What scores of a mode are divided by, so that their softmax is calibrated."""
        return self.temperatures.get(self.resolve(mode), 1.0)

    def tables(self, mode: str = "auto") -> Embeddings:
        """The tables of a mode; `bayes` and `blend` have none: q's means stand for the one, `point` for the other."""
        return self.point if self.resolve(mode) in ("point", "blend") else self.mean

    def scorer(self, mode: str = "auto") -> Scorer:
        """What ranks and calibrates: logits, or log probabilities in mode bayes."""
        chosen = self.resolve(mode)
        if chosen == "bayes":
            return AverageScorer(self.samples)
        return BlendScorer([self.point, self.mean]) if chosen == "blend" else TableScorer(self.tables(chosen))

    @cached_property
    def mean(self) -> Embeddings:
        """The means of q as a model."""
        return self.point.with_tables(self.posterior.entities.mean, self.posterior.relations.mean)

    @cached_property
    def samples(self) -> list[Embeddings]:
        """Draws from q, the same ones for every answer: made once, when first needed."""
        generator = torch.Generator(self.point.entities.device).manual_seed(STREAM + self.config.seed)
        tables = (self.posterior.sample(generator) for _ in range(self.n_samples))
        # Column by column in memory: one query against all entities is then nearly three times as fast.
        return [self.point.with_tables(entities.T.contiguous().T, relations) for entities, relations in tables]

    @cached_property
    def strengths(self) -> SymbolStrengths:
        entities, relations = (_array(lam) for lam in self.learned)
        n, labels = self.data.n_relations, self.data.relations
        return SymbolStrengths(
            SymbolValues(self.data.entities, entities),
            SymbolValues(labels, relations[:n]),
            SymbolValues(labels, relations[-n:]),
        )

    @cached_property
    def loops(self) -> npt.NDArray[np.bool_]:
        """The relations of which at least one training fact in twenty goes from an entity to itself, (N_r,)."""
        heads, relations, tails = self.data.train.T
        loops = np.bincount(relations[heads == tails], minlength=self.data.n_relations)
        enough: npt.NDArray[np.bool_] = loops >= np.maximum(LOOPS * self.data.relation_counts, 1)
        return enough

    def self_answers(self, queries: LongArray) -> tuple[LongArray, LongArray]:
        """Cells of (b, N_e) that answer a query (b, 2) with its own entity, where that is no candidate.

        "France borders France" scores high, because France is like its neighbours; nothing in the loss speaks
        against it but that it is not among the facts. It is a candidate where `loops` says so, or training has it.
        """
        n = self.data.n_relations
        facts = self.data.train[self.data.train[:, 0] == self.data.train[:, 2]].astype(np.int64)
        heads, relations = queries[:, 0].astype(np.int64), queries[:, 1].astype(np.int64) % n  # same from either side
        known = np.isin(heads * n + relations, facts[:, 0] * n + facts[:, 1])
        rows = np.flatnonzero(~self.loops[relations] & ~known)
        return rows, heads[rows]

    @cached_property
    def split_indexes(self) -> dict[str, QueryIndex]:
        """The known answers of each split that has any."""
        data, n = self.data, 2 * self.data.n_relations
        held_out = {
            split: QueryIndex.build(data.reciprocal(data.split(split)), data.n_entities, n)
            for split in SPLITS[1:]
            if len(data.split(split))
        }
        return {"train": data.query_index, **held_out}


def _array(values: Tensor) -> npt.NDArray[np.float64]:
    return values.detach().cpu().double().numpy()
