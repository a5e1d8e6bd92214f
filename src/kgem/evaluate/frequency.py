"""The baseline that asks nothing of a model: the answers that a relation has most often in training."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from kgem.data.dataset import Dataset

__all__ = ["FrequencyScorer"]

NEVER = 1e-3  # what an answer counts that a relation never has


class FrequencyScorer:
    """Scores an answer by the logarithm of how often training has it with the relation, whoever is asked about."""

    def __init__(self, data: Dataset) -> None:
        facts = data.reciprocal(data.train).astype(np.int64)
        keys, counts = np.unique(facts[:, 1] * data.n_entities + facts[:, 2], return_counts=True)
        relations, tails = np.divmod(keys, data.n_entities)
        self._starts = np.searchsorted(relations, np.arange(2 * data.n_relations + 1))
        self._tails, self._logs = torch.from_numpy(tails), torch.from_numpy(np.log(counts + NEVER)).float()
        self.n_entities, self.like = data.n_entities, torch.empty(0)
        self.bytes_per_query = self.bytes_per_entity = 0

    def prepare(self, heads: Tensor, relations: Tensor) -> Callable[[int, int, Tensor], None]:
        asked = relations.tolist()

        def write(start: int, stop: int, block: Tensor) -> None:
            block.fill_(float(np.log(NEVER)))
            for row, relation in enumerate(asked):
                found = slice(*self._starts[relation : relation + 2].tolist())
                tails, logs = self._tails[found], self._logs[found]
                inside = (tails >= start) & (tails < stop)
                block[row, tails[inside] - start] = logs[inside]

        return write
