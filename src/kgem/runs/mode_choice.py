"""Which mode of prediction is best on validation, and the temperature that calibrates each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kgem.answer.model import Model
from kgem.answer.modes import MODES
from kgem.data.dataset import IntArray, LongArray
from kgem.evaluate.calibration import fit_temperature
from kgem.evaluate.ranking import Scorer
from kgem.evaluate.validation import filtered_mrr, pick_facts

__all__ = ["choose_mode"]

MODE_QUERIES, MODE_CELLS, FEWEST = 4096, 2**26, 256  # of a huge validation split: scores are kept
BLOCK_CELLS = 2**21  # scores that are made at a time: few enough for the cache


def choose_mode(model: Model) -> tuple[dict[str, float], dict[str, float]]:
    """Filtered validation MRR and fitted temperature of each mode, on the same sample of questions."""
    data = model.data
    if not len(data.valid):
        return {}, {}
    affordable = max(FEWEST, min(MODE_QUERIES, MODE_CELLS // data.n_entities))
    facts = pick_facts(data.reciprocal(data.valid), affordable, model.config.seed)
    validation, temperatures = {}, {}
    for mode in MODES:
        scorer = _KeptScores(model.scorer(mode), facts, 2 * data.n_relations)
        validation[mode] = filtered_mrr(scorer, facts, data)
        temperatures[mode] = fit_temperature(scorer, facts, data.filter_index)
    return validation, temperatures


class _KeptScores:
    """A scorer that has the scores of some facts' queries ready: they are asked for again and again."""

    def __init__(self, scorer: Scorer, facts: IntArray, n_relations: int) -> None:
        self.n_entities, self.like = scorer.n_entities, scorer.like
        self.bytes_per_query = self.bytes_per_entity = 0
        self._n_relations = n_relations
        self._keys = np.unique(self._key(facts[:, 0], facts[:, 1]))
        self._scores = self.like.new_empty(len(self._keys), self.n_entities)
        step = max(1, BLOCK_CELLS // self.n_entities)
        for start in range(0, len(self._keys), step):
            part = self._keys[start : start + step]
            heads, relations = (torch.from_numpy(ids).to(self.like.device) for ids in np.divmod(part, n_relations))
            write = scorer.prepare(heads, relations)
            write(0, self.n_entities, self._scores[start : start + step])

    def _key(self, heads: Any, relations: Any) -> LongArray:
        return np.asarray(heads, dtype=np.int64) * self._n_relations + np.asarray(relations, dtype=np.int64)

    def prepare(self, heads: Tensor, relations: Tensor) -> Callable[[int, int, Tensor], None]:
        rows = np.searchsorted(self._keys, self._key(heads.cpu().numpy(), relations.cpu().numpy()))
        places = torch.from_numpy(rows).to(self.like.device)

        def write(start: int, stop: int, block: Tensor) -> None:
            block.copy_(self._scores[places, start:stop])

        return write
