"""Which mode of prediction a model answers in, by validation, and the temperature that calibrates each.

One set of tables answers at half the cost of two, and at a fraction of that of samples. So the better of `point` and
`mean` is taken, unless another mode is ahead of it by more than two standard errors of the paired difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kgem.answer.model import Model
from kgem.answer.modes import MODES
from kgem.data.dataset import IntArray, QueryIndex
from kgem.evaluate.blocks import Blocks, Scorer
from kgem.evaluate.metrics import Evaluation, breakdown
from kgem.evaluate.ranking import rank
from kgem.evaluate.temperature import Temperature, fit_temperatures
from kgem.evaluate.validation import affordable_questions, pick_facts

__all__ = ["ModeChoice", "choose_mode"]

MODE_QUERIES, MODE_CELLS, FEWEST = 4096, 2**26, 256  # of a huge validation split: scores are kept
LEAST = 64  # of more than two million entities, so that the scores can still be kept
KEPT_CELLS = 2**29  # questions times entities up to which scores are kept; beyond, they are made when asked for
RANKED_CELLS = 2**30  # questions times entities up to which samples of q rank all of it
EACH_CELLS = 2**32  # questions times entities that each of the other modes ranks at most
ONE_MODEL = ("point", "mean")
TABLES = ("point", "mean", "blend")  # modes that need no samples
NOISE = 2.0  # standard errors by which a mode must be ahead that costs more than one model

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ModeChoice:
    """What validation says about the modes."""

    mode: str
    validation: dict[str, float]  # filtered MRR by mode, of the whole split or of as many questions as are affordable;
    # none for bayes where that takes too long
    temperatures: dict[str, Temperature]
    evaluation: Evaluation | None = None  # of the chosen mode, where it was made: the ranks behind `validation`


def choose_mode(model: Model) -> ModeChoice:
    """The mode to answer in, the MRR of each, and the temperatures of each, on the same sample of questions."""
    data = model.data
    if not len(data.valid):
        return ModeChoice("point", {}, {})
    affordable = _affordable(data.n_entities)
    every = data.reciprocal(data.valid)
    facts = pick_facts(every, affordable, model.config.seed)
    reciprocal_ranks, temperatures = {}, {}
    for mode in MODES:
        scorer = model.scorer(mode)
        if len(facts) * data.n_entities <= KEPT_CELLS:
            scorer = _KeptScores(scorer, facts, 2 * data.n_relations)
        reciprocal_ranks[mode] = 1.0 / rank(scorer, facts, data.filter_index).of("pessimistic")
        temperatures[mode] = fit_temperatures(scorer, facts, data.filter_index, data.query_index)
    if len(facts) == len(every):
        validation = {mode: float(values.mean()) for mode, values in reciprocal_ranks.items()}
        return ModeChoice(_choose(reciprocal_ranks), validation, temperatures)
    asked = pick_facts(every, affordable_questions(data.n_entities, EACH_CELLS), model.config.seed)
    samples_too = len(every) * data.n_entities <= RANKED_CELLS
    ranked = MODES if samples_too else TABLES
    ranks = {mode: rank(model.scorer(mode), asked, data.filter_index) for mode in ranked}
    chosen = _choose({mode: 1.0 / each.of("pessimistic") for mode, each in ranks.items()})
    if not samples_too:  # these are compared on the few questions, and ranked on the others only where they win
        chosen = _choose({mode: reciprocal_ranks[mode] for mode in (chosen, "bayes")}, single=chosen)
    if chosen not in ranks:
        ranks[chosen] = rank(model.scorer(chosen), asked, data.filter_index)
    found = {mode: breakdown(ranks[mode], data, len(every)) for mode in MODES if mode in ranks}
    return ModeChoice(chosen, {mode: each.mrr for mode, each in found.items()}, temperatures, found[chosen])


def _affordable(n_entities: int) -> int:
    """How many questions temperatures are fitted on: their scores are passed over some thirty times for each mode."""
    wanted = max(FEWEST, min(MODE_QUERIES, MODE_CELLS // n_entities))
    return min(wanted, max(LEAST, KEPT_CELLS // n_entities))


def _choose(reciprocal_ranks: Mapping[str, Floats], single: str | None = None) -> str:
    """The best single model, or the one that is given, or the best of all modes where that is clearly ahead of it."""

    def mean(mode: str) -> float:
        return float(reciprocal_ranks[mode].mean())

    single, best = single or max(ONE_MODEL, key=mean), max(reciprocal_ranks, key=mean)
    gain = reciprocal_ranks[best] - reciprocal_ranks[single]
    return best if gain.mean() > NOISE * gain.std() / math.sqrt(len(gain)) else single


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
