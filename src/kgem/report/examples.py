"""Answers to some held-out questions, as examples of what a model predicts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kgem.answer.model import Model
from kgem.answer.predict import Answer, Prediction, Query
from kgem.evaluate.ranking import rank

QUESTIONS, ANSWERS, ASKED = 4, 3, 60  # questions, answers shown, answers looked at


@dataclass(frozen=True)
class Example:
    """A held-out fact, asked for its tail."""

    prediction: Prediction
    answers: list[Answer]  # without those that training or validation has
    tail: str
    rank: int  # filtered

    @property
    def facts(self) -> list[tuple[str, str, str]]:
        """The question with each of its answers, and then with the one that was held out."""
        head, relation, _ = self.prediction.query
        return [(str(head), str(relation), tail) for tail in (*(answer.label for answer in self.answers), self.tail)]


def draw_examples(model: Model, split: str, mode: str) -> Iterator[Example]:
    """Facts drawn at random, of as many relations as there are."""
    data, facts = model.data, model.data.split(split)
    shuffled = facts[np.random.default_rng(0).permutation(len(facts))]
    _, first = np.unique(shuffled[:, 1], return_index=True)
    rest = np.setdiff1d(np.arange(len(shuffled)), first)
    places = np.concatenate([np.sort(first), rest])[:QUESTIONS]
    picked = shuffled[places]
    ranks = rank(model.scorer(mode), picked, data.filter_index).of("pessimistic")
    queries = [Query(data.entities[h], data.relations[r], None) for h, r, _ in picked.tolist()]
    seen = {s for s in ("train", "valid") if s != split}
    for fact, place, prediction in zip(
        picked.tolist(), ranks.tolist(), model.predict_many(queries, top=ASKED, mode=mode), strict=True
    ):
        answers = [answer for answer in prediction if answer.known not in seen][:ANSWERS]
        yield Example(prediction, answers, data.entities[fact[2]], int(place))
