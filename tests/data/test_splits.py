"""Splits that are made, and faults of splits that are found."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import count_steps
from kgem.data import leakage as leakage_module
from kgem.data.dataset import SPLITS, Dataset
from kgem.data.splits import GROUPS, _first_of_each_symbol, check, make_split
from kgem.errors import ConfigError

Fact = tuple[str, str, str]
facts_of = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("rst"), st.sampled_from("abcdefgh")), min_size=1
)


def frame(facts: Iterable[Fact]) -> pl.DataFrame:
    return pl.DataFrame(list(facts), schema={c: pl.String for c in ("head", "relation", "tail")}, orient="row")


def graph(train: Iterable[Fact], valid: Iterable[Fact] = (), test: Iterable[Fact] = ()) -> Dataset:
    return Dataset.from_frames(frame(train), frame(valid), frame(test))


def labelled(data: Dataset, split: str) -> set[Fact]:
    return set(data.frame(split).iter_rows())


def random_facts(seed: int, n: int, entities: int, relations: int) -> list[Fact]:
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, [entities, relations, entities], (n, 3))
    return [(f"e{h}", f"r{r}", f"e{t}") for h, r, t in rows]


def symbols(facts: Iterable[Fact]) -> set[tuple[str, str]]:
    return {pair for h, r, t in facts for pair in (("entity", h), ("relation", r), ("entity", t))}


@settings(max_examples=60, deadline=None)
@given(facts_of, st.floats(0, 0.49), st.floats(0, 0.49), st.integers(0, 5), st.sampled_from(list(GROUPS)))
def test_any_graph_is_divided_so_that_train_knows_all(
    facts: list[Fact], valid: float, test: float, seed: int, group: str
) -> None:
    if round(valid * len(set(facts))) + round(test * len(set(facts))) >= len(set(facts)):
        return
    data, report = make_split(graph(facts), valid, test, seed, group=group)
    parts = [labelled(data, s) for s in SPLITS]
    assert set.union(*parts) == set(facts)
    assert sum(map(len, parts)) == len(set(facts)) == report.facts
    assert symbols(parts[0]) == symbols(facts)
    assert report.got == {s: len(part) for s, part in zip(SPLITS, parts, strict=True)}
    for split in ("valid", "test"):
        assert report.got[split] <= report.wanted[split]
        assert (report.got[split] < report.wanted[split]) == any(split in note for note in report.notes)


def test_a_dense_graph_gets_exactly_what_was_asked() -> None:
    data, report = make_split(graph(random_facts(0, 3000, 40, 5)), 0.1, 250, seed=3)
    n = report.facts
    assert report.got == {"train": n - 250 - round(0.1 * n), "valid": round(0.1 * n), "test": 250}
    assert report.notes == ()
    again, _ = make_split(graph(random_facts(0, 3000, 40, 5)), 0.1, 250, seed=3)
    other, _ = make_split(graph(random_facts(0, 3000, 40, 5)), 0.1, 250, seed=4)
    assert again.content_hash == data.content_hash != other.content_hash


def test_the_reserved_facts_are_those_of_a_walk_in_random_order() -> None:
    """The vectorised cover against the loop it stands for."""
    facts = np.unique(np.random.default_rng(5).integers(0, 30, (60, 3)), axis=0)
    table = facts + np.array([0, 60, 0])  # heads and tails share their numbers, relations have others
    rank = np.random.default_rng(6).permutation(len(facts))
    seen: set[int] = set()
    expected = np.zeros(len(facts), dtype=bool)
    for place in np.argsort(rank):
        expected[rank[place]] = bool(set(table[place]) - seen)
        seen |= set(table[place])
    np.testing.assert_array_equal(_first_of_each_symbol(table, rank), expected)


def test_a_star_can_spare_nothing_and_says_so() -> None:
    data, report = make_split(graph([("hub", "r", f"leaf{i}") for i in range(50)]), 0.1, 0.2, seed=0)
    assert report.got == {"train": 50, "valid": 0, "test": 0}
    assert report.reserved == 50
    assert len(report.notes) == 2 and "test has 0 facts instead of 10" in report.notes[1]
    assert len(data.train) == 50


def test_a_sparse_graph_gives_what_it_can() -> None:
    """A ring of n entities: every second fact suffices as cover, and a first guess reserves more."""
    ring = [(f"e{i}", "r", f"e{(i + 1) % 100}") for i in range(100)]
    data, report = make_split(graph(ring), 0.0, 0.45, seed=0)
    assert symbols(labelled(data, "train")) == symbols(ring)
    kept = {(int(h[1:])) for h, _, _ in labelled(data, "train")}
    # Nothing more could be released: of the facts beside each kept one, at most one is redundant.
    assert not any({i - 1, i, i + 1} <= kept for i in range(1, 99))
    assert report.got["test"] == 45 or report.got["test"] == 100 - report.reserved
    assert report.reserved <= 67


def test_groups_are_not_divided() -> None:
    facts = random_facts(1, 2500, 30, 4)
    facts += [(t, r, h) for h, r, t in facts[:800]]
    for group, key in (
        ("symmetric", lambda f: (frozenset((f[0], f[2])), f[1])),
        ("pair", lambda f: frozenset((f[0], f[2]))),
    ):
        data, report = make_split(graph(facts), 0.1, 0.1, seed=0, group=group)
        found = [{key(fact) for fact in labelled(data, s)} for s in SPLITS]
        assert not (found[0] & found[1] or found[0] & found[2] or found[1] & found[2])
        assert report.got["test"] > 0.05 * report.facts
    data, _ = make_split(graph(facts), 0.1, 0.1, seed=0)
    assert any((t, r, h) in labelled(data, "train") for h, r, t in labelled(data, "test") if h != t)


def test_frames_and_arrays_are_divided_too() -> None:
    facts = list(dict.fromkeys(random_facts(4, 200, 8, 2)))
    for table in (frame(facts), np.array(facts)):
        data, report = make_split(table, 0.1, 0.1, np.random.default_rng(0))
        assert report.facts == len(facts) and len(data.test) == round(0.1 * len(facts))


def test_existing_splits_are_pooled_and_repeats_counted() -> None:
    facts = random_facts(2, 300, 10, 2)
    distinct = list(dict.fromkeys(facts))
    data, report = make_split(graph(distinct, distinct[:5], distinct[3:6]), 0.1, 0.1)
    assert report.repeated == 8 and report.facts == len(distinct)
    assert set.union(*(labelled(data, s) for s in SPLITS)) == set(facts)


def test_a_fourth_column_goes_with_its_facts() -> None:
    facts = list(dict.fromkeys(random_facts(3, 200, 8, 2)))
    weights = pl.Series("weight", [float(i) for i in range(len(facts))])
    weighted = Dataset.from_frames(frame(facts).with_columns(weights), frame([("e0", "r0", "fresh")]))
    data, _ = make_split(weighted, 0.1, 0.1)
    assert len(data.test)
    for split in SPLITS:
        for *fact, weight in data.frame(split).iter_rows():
            assert fact[2] == "fresh" if weight is None else facts[int(weight)] == tuple(fact)


@pytest.mark.parametrize(("valid", "test"), [(-0.1, 0.1), (1.5, 0.1), (0.5, 0.5), (10, 0)])
def test_impossible_shares(valid: float, test: float) -> None:
    with pytest.raises(ConfigError):
        make_split(graph(random_facts(0, 10, 3, 1)), valid, test)


def test_unknown_group() -> None:
    with pytest.raises(ConfigError, match="symmetric"):
        make_split(graph(random_facts(0, 10, 3, 1)), group="families")


def test_check_counts_what_is_wrong() -> None:
    train = [("a", "r", "b"), ("a", "r", "b"), ("b", "r", "b"), ("c", "s", "a")]
    valid = [("a", "r", "b"), ("a", "r", "new"), ("new", "r", "newer")]
    test = [("a", "other", "b"), ("a", "r", "new")]
    report = check(graph(train, valid, test))
    assert (report.entities, report.relations) == (5, 3)
    assert (report.entities_in_train, report.relations_in_train) == (3, 2)
    assert report.facts == {"train": 3, "valid": 3, "test": 2}
    assert report.duplicates == {"train": 1, "valid": 0, "test": 0}
    assert report.in_two_splits == {"train/valid": 1, "train/test": 0, "valid/test": 1}
    assert report.self_loops == {"train": 1, "valid": 0, "test": 0}
    assert (report.unseen["valid"].entities, report.unseen["valid"].facts_by_entity) == (2, 2)
    assert (report.unseen["test"].relations, report.unseen["test"].facts_by_relation) == (1, 1)
    assert len(report.notes) == 6
    assert json.loads(json.dumps(asdict(report)))["unseen"]["valid"]["entities"] == 2


def test_a_clean_graph_has_no_findings() -> None:
    assert check(graph([("a", "r", "b"), ("b", "r", "c"), ("c", "s", "a")])).notes == ()


def mirrored_graph() -> Dataset:
    pairs = [(f"e{i}", f"e{(7 * i + 3) % 101}") for i in range(101)]
    parent = [(h, "parent of", t) for h, t in pairs]
    child = [(t, "child of", h) for h, t in pairs]
    copy = [(h, "begetter of", t) for h, t in pairs[:-2]]
    alone = [(f"e{i}", "knows", f"e{(i + 13) % 101}") for i in range(101)]
    married = [(f"e{i}", "married", f"e{i ^ 1}") for i in range(100)]
    return graph(
        [*parent[10:], *child, *copy, *alone, *married[4:]],
        valid=[*parent[:2], married[0]],
        test=[*parent[2:10], *married[1:4]],
    )


def test_leakage_is_named_and_counted() -> None:
    report = check(mirrored_graph())
    found = report.leakage
    assert [(p.first, p.second) for p in found.inverse] == [("child of", "parent of"), ("begetter of", "child of")]
    assert [(p.first, p.second) for p in found.duplicate] == [("begetter of", "parent of")]
    assert found.duplicate[0].shared == 99 and found.duplicate[0].share == pytest.approx(99 / 101)
    assert [p.first for p in found.symmetric] == ["married"]
    # All parents are children in train; of the marriages (0,1) is not, as both halves are held out.
    assert found.answerable == {"valid": 2, "test": 8}
    [sentence] = [note for note in report.notes if note.startswith("test is easy")]
    assert "8 of its 11 facts" in sentence and "inverse" in sentence


def test_the_threshold_is_a_setting() -> None:
    assert check(mirrored_graph(), threshold=0.99).leakage.duplicate == ()


def obvious_leakage(data: Dataset, threshold: float, least: int) -> tuple[set[Fact], set[Fact], int]:
    """Pairs (first, second, shared) by sets, and the answerable test facts."""
    pairs: dict[str, set[tuple[str, str]]] = {}
    for split in SPLITS:
        for h, r, t in labelled(data, split):
            pairs.setdefault(r, set()).add((h, t))
    proper = {r: {p for p in found if p[0] != p[1]} for r, found in pairs.items()}
    same, mirror = set(), set()
    for a in pairs:
        for b in pairs:
            if a < b and min(len(pairs[a]), len(pairs[b])) >= least:
                shared = len(pairs[a] & pairs[b])
                if shared >= threshold * max(len(pairs[a]), len(pairs[b])):
                    same.add((a, b, shared))
            if a <= b and min(len(proper[a]), len(proper[b])) >= least:
                shared = len(proper[a] & {(t, h) for h, t in proper[b]})
                if shared >= threshold * max(len(proper[a]), len(proper[b])):
                    mirror.add((a, b, shared))
    train = labelled(data, "train")
    easy = 0
    for h, r, t in labelled(data, "test"):
        along = {b if a == r else a for a, b, _ in same if r in (a, b)}
        back = {b if a == r else a for a, b, _ in mirror if r in (a, b)}
        easy += any((h, x, t) in train for x in along) or any((t, x, h) in train for x in back)
    return same, mirror, easy


@pytest.mark.parametrize("chunk", [7, 10**6])
@pytest.mark.parametrize("seed", range(4))
def test_leakage_equals_the_obvious_version(seed: int, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leakage_module, "_CHUNK", chunk)
    facts = list(dict.fromkeys(random_facts(seed, 500, 9, 6)))
    data = graph(facts[60:], facts[:20], facts[20:60])
    found = leakage_module.find_leakage(data, threshold=0.5, min_pairs=3)
    same, mirror, easy = obvious_leakage(data, 0.5, 3)
    assert {(p.first, p.second, p.shared) for p in found.duplicate} == same
    assert {(p.first, p.second, p.shared) for p in (*found.inverse, *found.symmetric)} == mirror
    assert found.answerable["test"] == easy
    assert same and mirror and easy


# Benchmark graphs


def benchmark(folder: Path, name: str) -> Dataset:
    return Dataset.load(folder / name, cache=False)


def test_wn18_is_known_to_be_easy(benchmark_graphs: Path) -> None:
    report = check(benchmark(benchmark_graphs, "wn18"))
    assert {(p.first, p.second) for p in report.leakage.inverse} == {
        ("_hypernym", "_hyponym"),
        ("_instance_hypernym", "_instance_hyponym"),
        ("_member_holonym", "_member_meronym"),
        ("_has_part", "_part_of"),
        ("_member_of_domain_topic", "_synset_domain_topic_of"),
        ("_member_of_domain_region", "_synset_domain_region_of"),
        ("_member_of_domain_usage", "_synset_domain_usage_of"),
    }
    assert {p.first for p in report.leakage.symmetric} == {
        "_derivationally_related_form",
        "_similar_to",
        "_verb_group",
    }
    assert report.leakage.answerable["test"] == 4_658
    assert any(note.startswith("test is easy: 4,658 of its 5,000") and "_hyponym" in note for note in report.notes)


@pytest.mark.parametrize(
    ("name", "in_train", "valid", "test"), [("fb15k-237", 14_505, 9, 28), ("wn18rr", 40_559, 210, 210)]
)
def test_unseen_entities(benchmark_graphs: Path, name: str, in_train: int, valid: int, test: int) -> None:
    report = check(benchmark(benchmark_graphs, name))
    assert report.entities_in_train == in_train
    assert report.unseen["valid"].facts_by_entity == valid
    assert report.unseen["test"].facts_by_entity == test
    assert report.leakage.inverse == report.leakage.duplicate == ()


def test_fb15k_is_checked_and_divided_without_a_loop_over_its_facts(benchmark_graphs: Path) -> None:
    data = benchmark(benchmark_graphs, "fb15k")
    report, steps = count_steps(lambda: check(data))
    assert report.leakage.answerable["test"] > 0.7 * len(data.test)
    assert steps < len(data.train) / 10
    (divided, made), steps = count_steps(lambda: make_split(data, 50_000, 59_071, seed=1))
    assert steps < len(data.train) / 10
    assert made.got == {"train": 483_142, "valid": 50_000, "test": 59_071}
    assert (divided.entity_counts > 0).all() and (divided.relation_counts > 0).all()
