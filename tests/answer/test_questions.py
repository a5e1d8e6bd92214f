"""Questions to begin with: of held-out facts, different, of many relations, answered well if any are."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from kgem.answer.questions import WELL, good_questions
from kgem.data.dataset import Dataset
from small_models import random_model


def test_questions_are_different_and_of_held_out_facts() -> None:
    model = random_model()
    asked = good_questions(model.scorer(), model.data, 6)
    assert len(asked) == len(set(asked)) == 6
    held_out = model.data.frame("test")
    for query in asked:
        given = {name: label for name, label in query._asdict().items() if label is not None}
        rows = held_out.filter(*[pl.col(name) == label for name, label in given.items()])
        assert len(rows), query
    assert (
        asked == good_questions(model.scorer(), model.data, 6)
        and len(good_questions(model.scorer(), model.data, 10**6)) >= 6
    )
    relations = [query.relation for query in asked]
    assert len(set(relations)) == min(6, held_out["relation"].n_unique())


def test_the_first_are_answered_well_if_any_are() -> None:
    model = random_model()
    data = model.data
    first = good_questions(model.scorer(), model.data, 1)[0]
    ranks = []
    for row in data.frame("test").iter_rows(named=True):
        for side, given in (("tail", "head"), ("head", "tail")):
            query = {given: row[given], "relation": row["relation"]}
            answers = [a for a in model.predict(**query, top=99) if a.known is None or a.label == row[side]]
            ranks.append((query, [a.label for a in answers].index(row[side]) + 1))
    well = [query for query, place in ranks if place <= WELL]
    assert well and {k: v for k, v in first._asdict().items() if v is not None} in well


@pytest.mark.parametrize("split", ["valid", "train"])
def test_a_graph_without_test_facts_has_questions_too(split: str) -> None:
    facts = np.array([[0, 0, 1], [1, 0, 2], [2, 0, 0]], dtype=np.int32)
    base = random_model().data
    more = {"valid": facts[:1]} if split == "valid" else {"valid": facts[:0]}
    data = Dataset("tiny", base.entities, base.relations, facts, more["valid"], facts[:0])
    assert 1 <= len(good_questions(random_model(data).scorer(), data, 4)) <= 4
