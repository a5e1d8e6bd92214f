"""The embedded graph: large enough, clean, true in what everyone knows, and split without leaks."""

from __future__ import annotations

from collections import Counter
from importlib.resources import files

import pytest

from kgem.data.dataset import SPLITS

Row = tuple[str, str, str, str]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    text = files("kgem.data").joinpath("world.tsv").read_text("utf-8")
    head, relation, tail, split = zip(*(line.split("\t") for line in text.splitlines()), strict=True)
    assert (head[0], relation[0], tail[0], split[0]) == ("head", "relation", "tail", "split")
    return list(zip(head[1:], relation[1:], tail[1:], split[1:], strict=True))


@pytest.fixture(scope="module")
def facts(rows: list[Row]) -> set[tuple[str, str, str]]:
    return {(h, r, t) for h, r, t, _ in rows}


def test_sizes(rows: list[Row], facts: set[tuple[str, str, str]]) -> None:
    assert len(rows) == len(facts) >= 3000
    assert len({h for h, r, _ in facts if r == "in region"}) >= 200
    assert len({r for _, r, _ in facts}) >= 8


def test_labels_are_clean(rows: list[Row]) -> None:
    for label in {symbol for row in rows for symbol in row}:
        assert label == label.strip() and label and label.isprintable() and '"' not in label, repr(label)


def test_splits_cover_every_symbol_in_train(rows: list[Row]) -> None:
    count = Counter(split for *_, split in rows)
    assert set(count) == set(SPLITS)
    assert 0.07 < count["valid"] / len(rows) < 0.09 and 0.07 < count["test"] / len(rows) < 0.09
    train = [row for row in rows if row[3] == "train"]
    assert {e for h, _, t, _ in train for e in (h, t)} == {e for h, _, t, _ in rows for e in (h, t)}
    assert {r for _, r, _, _ in train} == {r for _, r, _, _ in rows}


def test_borders_are_symmetric_and_kept_in_one_split(rows: list[Row]) -> None:
    split = {(h, t): s for h, r, t, s in rows if r == "borders"}
    assert len(split) > 500
    for (head, tail), where in split.items():
        assert head != tail
        assert split[tail, head] == where, f"{head} / {tail}"


def test_no_relation_repeats_or_inverts_another(facts: set[tuple[str, str, str]]) -> None:
    pairs: dict[str, set[tuple[str, str]]] = {}
    for head, relation, tail in facts:
        pairs.setdefault(relation, set()).add((head, tail))
    for a, ours in pairs.items():
        for b, theirs in pairs.items():
            flipped = {(t, h) for h, t in theirs}
            assert a == b or len(ours & theirs) < 0.5 * len(ours), (a, b)
            assert a == b or len(ours & flipped) < 0.5 * len(ours), (a, b, "inverse")


@pytest.mark.parametrize(
    "fact",
    [
        ("France", "borders", "Spain"),
        ("France", "has capital", "Paris"),
        ("France", "uses currency", "Euro"),
        ("France", "member of", "European Union"),
        ("Kazakhstan", "has capital", "Astana"),
        ("India", "borders", "Myanmar"),
        ("Kosovo", "borders", "Albania"),
        ("French Guiana", "borders", "Brazil"),
        ("Brazil", "official language", "Portuguese"),
        ("Senegal", "uses currency", "West African CFA Franc"),
        ("Latvia", "formerly used currency", "Soviet Ruble"),
        ("Kenya", "in region", "Eastern Africa"),
        ("Nepal", "has time zone", "UTC+05:45"),
        ("Serbian", "written in", "Cyrillic script"),
        ("Swahili", "of language family", "Bantu languages"),
        ("São Paulo", "located in", "Brazil"),
        ("Canadian Dollar", "is a kind of", "dollar"),
    ],
)
def test_knows(fact: tuple[str, str, str], facts: set[tuple[str, str, str]]) -> None:
    assert fact in facts


@pytest.mark.parametrize(
    "fact",
    [
        ("India", "borders", "Sri Lanka"),
        ("Suriname", "borders", "France"),
        ("Serbia", "borders", "Albania"),
        ("Ukraine", "official language", "Russian"),
        ("Croatia", "uses currency", "Croatian Kuna"),
    ],
)
def test_does_not_claim(fact: tuple[str, str, str], facts: set[tuple[str, str, str]]) -> None:
    assert fact not in facts


def test_one_capital_and_one_continent_each(facts: set[tuple[str, str, str]]) -> None:
    for relation in ("has capital", "in continent", "in region", "in calling-code zone"):
        heads = Counter(h for h, r, _ in facts if r == relation)
        assert max(heads.values()) == 1, relation
    capitals = Counter(t for _, r, t in facts if r == "has capital")
    assert max(capitals.values()) == 1
