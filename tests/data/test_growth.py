"""Graphs that grow: ids that stay, facts that are counted, splits that do not leak into each other."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgem.data.dataset import SPLITS, Dataset
from kgem.data.growth import grow
from kgem.errors import DatasetError
from obvious import random_graph

GRAPH = random_graph()
Fact = tuple[str, str, str]


def frame(*facts: Fact) -> pl.DataFrame:
    return pl.DataFrame(facts, dict.fromkeys(("head", "relation", "tail"), pl.String), orient="row")


def facts_of(data: Dataset, split: str) -> list[Fact]:
    return data.frame(split).rows()


def test_old_ids_stay_and_new_labels_follow_them() -> None:
    grown, changes = grow(GRAPH, {"train": frame(("zoe", "likes", "e1"), ("adam", "r0", "zoe"))})
    assert grown.entities.labels == (*GRAPH.entities.labels, "adam", "zoe")
    assert grown.relations.labels == (*GRAPH.relations.labels, "likes")
    assert (changes.entities, changes.relations) == (("adam", "zoe"), ("likes",))
    for split in SPLITS:
        assert np.array_equal(grown.split(split)[: len(GRAPH.split(split))], GRAPH.split(split))
    assert facts_of(grown, "train")[-2:] == [("zoe", "likes", "e1"), ("adam", "r0", "zoe")]
    assert grown.name == GRAPH.name and changes.new == {"train": 2, "valid": 0, "test": 0}


def test_what_is_known_or_held_out_stays_where_it_is() -> None:
    known, tested = facts_of(GRAPH, "train")[0], facts_of(GRAPH, "test")[0]
    validated, new = facts_of(GRAPH, "valid")[0], ("e0", "r0", "new")
    grown, changes = grow(GRAPH, {"train": frame(known, tested, new, validated), "test": frame(new, known, tested)})
    assert changes.new == {"train": 1, "valid": 0, "test": 0} and changes.given == 7
    assert changes.known == 1 and changes.repeated == 3  # all that test is given, train was given before
    assert changes.held_out == {"train": 0, "valid": 1, "test": 1}
    assert grow(GRAPH, {"test": frame(known)})[1].held_out == {"train": 1, "valid": 0, "test": 0}
    assert [len(grown.split(s)) for s in SPLITS] == [len(GRAPH.train) + 1, len(GRAPH.valid), len(GRAPH.test)]
    assert changes.to_dict()["new_entities"] == 1 and "entities" not in changes.to_dict()


def test_facts_go_from_whichever_split_has_them() -> None:
    gone = [facts_of(GRAPH, split)[1] for split in SPLITS]
    absent = [("e0", "r0", "nobody"), ("e0", "unheard of", "e1")]
    grown, changes = grow(GRAPH, {}, frame(*gone, *absent))
    assert changes.removed == {"train": 1, "valid": 1, "test": 1}
    assert changes.to_remove == 5 and changes.absent == 2 and changes.total_new == 0
    for split, fact in zip(SPLITS, gone, strict=True):
        assert fact not in facts_of(grown, split)
        assert changes.kept[split] == len(grown.split(split)) == len(GRAPH.split(split)) - 1
    assert grown.entities is GRAPH.entities or grown.entities.labels == GRAPH.entities.labels


def test_a_label_is_not_forgotten_with_its_last_fact() -> None:
    last = [fact for fact in facts_of(GRAPH, "train") if "e20" in (fact[0], fact[2])]
    grown, _ = grow(GRAPH, {}, frame(*last))
    assert grown.entity_counts[grown.entities.id("e20")] == 0


def test_a_fact_to_add_and_to_remove_is_refused() -> None:
    fact = facts_of(GRAPH, "train")[0]
    with pytest.raises(DatasetError, match="to be added and to be removed"):
        grow(GRAPH, {"train": frame(fact)}, frame(fact))
    with pytest.raises(DatasetError, match="no facts"):
        grow(GRAPH, {}, GRAPH.frame("train"))


labels = st.sampled_from([f"e{i}" for i in range(0, 30, 3)])
some_facts = st.lists(st.tuples(labels, st.sampled_from(["r0", "r1", "s"]), labels), max_size=12)


@settings(max_examples=60, deadline=None)
@given(some_facts, some_facts, some_facts)
def test_every_fact_is_accounted_for(train: list[Fact], test: list[Fact], gone: list[Fact]) -> None:
    gone = [fact for fact in gone if fact not in {*train, *test}]
    grown, changes = grow(GRAPH, {"train": frame(*train), "test": frame(*test)}, frame(*gone))
    parts = (changes.total_new, changes.known, sum(changes.held_out.values()), changes.repeated)
    assert changes.given == len(set(train)) + len(set(test)) == sum(parts)
    assert (
        changes.to_remove
        == len(set(gone))
        == changes.absent + len({f for s in SPLITS for f in facts_of(GRAPH, s)} & set(gone))
    )
    every = [fact for split in SPLITS for fact in facts_of(grown, split)]
    assert set(every) == ({f for s in SPLITS for f in facts_of(GRAPH, s)} | set(train) | set(test)) - set(gone)
    for split in SPLITS:
        assert len(set(facts_of(grown, split))) == len(grown.split(split)) == changes.kept[split] + changes.new[split]
