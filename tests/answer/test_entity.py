"""One entity: against looking at every fact and every question."""

from __future__ import annotations

import pytest

from kgem.answer.entity import entity_view, facts_of
from kgem.data.dataset import SPLITS
from kgem.errors import InputError, UnknownLabel
from small_models import random_model


def test_the_facts_of_an_entity_are_all_those_that_name_it() -> None:
    data = random_model().data
    for entity in data.entities:
        wanted = {
            (*row, split)
            for split in SPLITS
            for row in data.frame(split).select("head", "relation", "tail").iter_rows()
            if entity in (row[0], row[2])
        }
        found, total = facts_of(data, entity, 10**6)
        assert {(f.head, f.relation, f.tail, f.split) for f in found} == wanted and len(found) == total == len(wanted)
        relations = [fact.relation for fact in found]
        assert relations == sorted(relations, key=data.relations.id)


def test_fewer_facts_are_the_first_of_all() -> None:
    data = random_model().data
    every, total = facts_of(data, data.entities[0], 10**6)
    assert facts_of(data, data.entities[0], 2) == (every[:2], total) and facts_of(data, data.entities[0], 0)[0] == []
    with pytest.raises(InputError, match="none or more"):
        facts_of(data, data.entities[0], -1)


def test_a_view_has_what_the_parts_say() -> None:
    model = random_model()
    label = model.data.entities[2]
    strengths = model.strengths.entities.array
    view = entity_view(model.mode_scorer(), strengths, label, facts=3, expected=5, neighbours=4)
    assert view.frequency == model.data.entity_counts[2] and view.strength == model.strengths.entities[label]
    below = [each for _, each in model.strengths.entities.items() if each <= view.strength]
    assert view.strength_quantile == len(below) / model.data.n_entities
    assert list(view.expected) == model.missing_facts(5, about=[label]) and len(view.expected) == 5
    assert list(view.similar) == model.similar(label, 4)
    assert len(view.facts) == 3 and view.to_dict()["facts"][0].keys() == {"head", "relation", "tail", "split"}


def test_an_unknown_entity_is_an_error() -> None:
    model = random_model()
    with pytest.raises(UnknownLabel):
        entity_view(model.mode_scorer(), model.strengths.entities.array, "nobody")
