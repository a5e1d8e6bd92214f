"""What a report measures itself: how well probabilities are calibrated, and answers to some held-out questions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kgem.answer.model import Model
from kgem.answer.predict import Answer, Prediction, Query
from kgem.evaluate.calibration import Calibration, measure
from kgem.evaluate.ranking import rank

__all__ = ["Sample", "calibrated", "samples"]

QUESTIONS, ANSWERS, ASKED = 8, 5, 60  # sample questions, answers shown, answers looked at
CALIBRATION_FACTS = 10_000  # of a huge split, as many are measured


def calibrated(model: Model, split: str, mode: str) -> Calibration:
    """How far the probabilities of a mode can be trusted on a split."""
    data = model.data
    facts = data.reciprocal(data.split(split))
    if len(facts) > CALIBRATION_FACTS:
        facts = facts[np.sort(np.random.default_rng(0).choice(len(facts), CALIBRATION_FACTS, replace=False))]
    return measure(model.scorer(mode), facts, data.filter_index, model.temperature(mode))


@dataclass(frozen=True)
class Sample:
    """A held-out fact, asked for its tail."""

    prediction: Prediction
    answers: list[Answer]  # without those that training or validation told
    tail: str
    rank: int  # filtered


def samples(model: Model, split: str, mode: str) -> Iterator[Sample]:
    """Facts drawn at random, of as many relations as there are."""
    data, facts = model.data, model.data.split(split)
    shuffled = facts[np.random.default_rng(0).permutation(len(facts))]
    _, first = np.unique(shuffled[:, 1], return_index=True)
    rest = np.setdiff1d(np.arange(len(shuffled)), first)
    places = np.concatenate([np.sort(first), rest])[:QUESTIONS]
    picked = shuffled[places]
    ranks = rank(model.scorer(mode), picked, data.filter_index).of("pessimistic")
    queries = [Query(data.entities[h], data.relations[r], None) for h, r, _ in picked.tolist()]
    told = {s for s in ("train", "valid") if s != split}
    for fact, place, prediction in zip(
        picked.tolist(), ranks.tolist(), model.predict_many(queries, top=ASKED, mode=mode), strict=True
    ):
        answers = [answer for answer in prediction if answer.known not in told][:ANSWERS]
        yield Sample(prediction, answers, data.entities[fact[2]], int(place))
