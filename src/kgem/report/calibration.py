"""How far the probabilities of a model can be trusted on a split."""

from __future__ import annotations

from kgem.answer.model import Model
from kgem.evaluate.calibration import Calibration, measure
from kgem.evaluate.validation import pick_facts

ENOUGH_FACTS = 10_000  # for a curve that nobody could tell from that of all


def measure_calibration(model: Model, split: str, mode: str, *, most: int | None = None) -> Calibration:
    """Calibration on the facts of a split from both sides, or on at most so many of them, drawn at random."""
    data = model.data
    facts = data.reciprocal(data.split(split))
    facts = facts if most is None else pick_facts(facts, most, seed=0)
    scorer = model.mode_scorer(mode)
    return measure(scorer.scorer, facts, data.filter_index, scorer.temperatures(facts))
