"""Which mode of prediction is best on validation, and the temperature that calibrates each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from kgem.answer.model import Model
from kgem.answer.modes import MODES
from kgem.data.dataset import IntArray, QueryIndex
from kgem.evaluate.blocks import Blocks, Scorer
from kgem.evaluate.calibration import fit_temperature
from kgem.evaluate.validation import filtered_mrr, pick_facts

__all__ = ["choose_mode"]

MODE_QUERIES, MODE_CELLS, FEWEST = 4096, 2**26, 256  # of a huge validation split: scores are kept


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
        self._index = QueryIndex.build(facts, self.n_entities, n_relations)
        self._scores = self.like.new_empty(len(self._index), self.n_entities)
        queries = np.stack([self._index.heads, self._index.relations], axis=1)
        for block in Blocks(scorer, queries, gather=False, whole=True):
            for _, scores in block.scores():
                self._scores[block.put(block.places)] = scores

    def prepare(self, heads: Tensor, relations: Tensor) -> Callable[[int, int, Tensor], None]:
        found = self._index.find(heads.cpu().numpy(), relations.cpu().numpy())
        places = torch.from_numpy(found.astype(np.int64)).to(self.like.device)

        def write(start: int, stop: int, block: Tensor) -> None:
            block.copy_(self._scores[places, start:stop])

        return write
