"""Finding labels against the obvious way: look at each one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import count_steps
from kgem.answer.labels import LabelSearch, entity_id, explain, fold, means, relation_id
from kgem.data.dataset import Dataset
from kgem.data.index import Vocabulary
from kgem.data.names import Names
from kgem.errors import UnknownLabel

LABELS = ["France", "Île-de-France", "FRANCE 24", "Frankfurt", "Åland", "São_Tomé", "/m/0f8l9c", "of", "franc", "東京"]
COUNTS = np.array([5, 9, 9, 2, 1, 1, 0, 3, 7, 2])


def obvious(labels: list[str], counts: np.ndarray, text: str) -> list[int]:
    """Every label that has the text in it: by how it has, by frequency, by place."""

    def how(label: str) -> int | None:
        if label == wanted:
            return 0
        places = [i for i in range(len(label)) if label.startswith(wanted, i)]
        if not places:
            return 0 if not wanted else None
        if 0 in places:
            return 1
        word = any(label[i - 1].isascii() and not label[i - 1].isalnum() for i in places)
        return 2 if word else 3

    wanted = fold(text)
    kinds = {i: 0 if not wanted else how(fold(label)) for i, label in enumerate(labels)}
    return sorted((i for i, kind in kinds.items() if kind is not None), key=lambda i: (kinds[i], -counts[i], i))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("france", ["France", "FRANCE 24", "Île-de-France"]),
        ("FRANC", ["franc", "FRANCE 24", "France", "Île-de-France"]),
        ("aland", ["Åland"]),
        ("ile de", []),
        ("ile-de", ["Île-de-France"]),
        ("sao tome", ["São_Tomé"]),
        ("  Sao   TOME ", ["São_Tomé"]),
        ("tome", ["São_Tomé"]),
        ("0f8", ["/m/0f8l9c"]),
        ("rank", ["Frankfurt"]),
        ("京", ["東京"]),
        ("24", ["FRANCE 24"]),
        ("nothing like it", []),
    ],
)
def test_what_a_person_would_expect(text: str, wanted: list[str]) -> None:
    total, ids = LabelSearch(LABELS, COUNTS).find(text, 20)
    assert [LABELS[i] for i in ids] == wanted and total == len(wanted)


def test_nothing_typed_lists_the_most_frequent() -> None:
    total, ids = LabelSearch(LABELS, COUNTS).find(" ", 3)
    assert total == len(LABELS) and [LABELS[i] for i in ids] == ["Île-de-France", "FRANCE 24", "franc"]


TEXT = st.text(st.sampled_from("aAbé_ -/1\u0301\n\x00ßŁ京"), max_size=6)


@settings(max_examples=150, deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=12), TEXT, st.integers(1, 5))
def test_against_looking_at_each_label(labels: list[str], text: str, limit: int) -> None:
    counts = np.array([len(label) % 3 for label in labels])
    total, ids = LabelSearch(labels, counts).find(text, limit)
    wanted = obvious(labels, counts, text)
    assert total == len(wanted) and ids.tolist() == wanted[:limit]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Frnace", "France"),
        ("francee", "France"),
        ("rance", "France"),
        ("Grankfurt", "Frankfurt"),
        ("alnd", "Åland"),
        ("sao tmoe", "São_Tomé"),
        ("m/0f8", "/m/0f8l9c"),
        ("Tokyo", None),
        ("", None),
    ],
)
def test_a_mistyped_label_has_neighbours(text: str, first: str | None) -> None:
    near = LabelSearch(LABELS, COUNTS).near(text)
    assert near[:1] == ([first] if first else []) and len(near) == len(set(near)) <= 3


def test_a_label_that_has_the_text_as_a_word_is_meant_before_one_that_is_merely_alike() -> None:
    labels = ["snimpy", "numpydocumentation", "python3-numpy", "numpy_abi", "q1", "python3-numpyx"]
    near = LabelSearch(labels, np.array([1, 900, 300, 5, 7, 2]), {"q1": "NumPy for all"}).near("numpy", 6)
    assert near == ["python3-numpy", "q1", "numpy_abi", "snimpy", "numpydocumentation", "python3-numpyx"]
    assert LabelSearch(["a+b c", "a+bc"], np.array([1, 9])).near("a+b", 1) == ["a+b c"]  # no pattern
    assert LabelSearch(["snimpy", "numpydocumentation"], np.array([1, 900])).near("numpy")[0] == "snimpy"


def test_ten_times_the_labels_take_no_more_steps() -> None:
    """They are looked through as one row of bytes: nothing loops over the labels, of which there may be many."""
    rng = np.random.default_rng(0)
    parts = np.array(["anna", "karl", "maria", "von", "de", "smith", "jørgen", "müller", "ball", "stone"])
    labels = [" ".join(words) + f" {i}" for i, words in enumerate(parts[rng.integers(0, 10, (75_000, 3))].tolist())]
    counts = rng.integers(0, 50, len(labels))
    few, many = LabelSearch(labels[:7_500], counts[:7_500]), LabelSearch(labels, counts)
    for text in ("a", "an", "anna", "müller", "stone 7", "smith jorgen", "zzz", ""):
        assert count_steps(lambda text=text: many.find(text, 20))[1] < 1_000
    meant = labels[4711]
    (near, steps), (_, before) = (count_steps(lambda s=s: s.near(meant.replace("a", "e"))) for s in (many, few))
    assert near[0] == meant
    assert steps < 2 * before


def test_the_most_frequent_first_after_a_whole_match() -> None:
    total, ids = LabelSearch(LABELS, COUNTS).find("france", 20, by_frequency=True)
    assert total == 3 and [LABELS[i] for i in ids] == ["France", "Île-de-France", "FRANCE 24"]
    _, ids = LabelSearch(LABELS, COUNTS).find("fran", 2, by_frequency=True)
    assert [LABELS[i] for i in ids] == ["Île-de-France", "FRANCE 24"]


# Names

BASE = "http://x.org/"
NAMES = Names({BASE + "1": "Berlin", BASE + "2": "Paris", BASE + "3": "Paris", BASE + "p": "borders"}, {"x": BASE})


def named() -> Dataset:
    entities = Vocabulary(tuple(BASE + each for each in "1234"), "entity", NAMES)
    facts = np.array([[0, 0, 1], [2, 0, 3], [0, 0, 3]])
    return Dataset("g", entities, Vocabulary((BASE + "p",), "relation", NAMES), facts, facts[:0], facts[:0])


@pytest.mark.parametrize("text", [BASE + "1", "Berlin", "x:1", "Berlin (x:1)"])
def test_a_symbol_is_found_by_label_name_and_as_it_is_shown(text: str) -> None:
    assert entity_id(named(), text) == 0


def test_what_is_shown_can_be_asked() -> None:
    data = named()
    assert [entity_id(data, data.entities.show(label)) for label in data.entities] == [0, 1, 2, 3]
    assert relation_id(data, "borders") == relation_id(data, "borders (x:p)") == 0
    brackets = Vocabulary(("a (b)", "b"), names=Names({"b": "a"}))
    assert means(brackets, "a (b)") == [0] and means(brackets, "a") == [1]  # a label comes before what is shown


def test_a_name_of_two_is_an_error_that_lists_them() -> None:
    with pytest.raises(UnknownLabel, match="2 entities are called 'Paris'") as caught:
        entity_id(named(), "Paris")
    assert f"'{BASE}2', '{BASE}3'" in str(caught.value.remedy)
    assert entity_id(named(), "Paris (x:3)") == 2


def test_suggestions_are_by_name() -> None:
    data = named()
    with pytest.raises(UnknownLabel, match=r"did you mean 'Berlin \(x:1\)'"):
        entity_id(data, "berlin")
    assert "labels are compared exactly" in str(explain(data.entities, "zzz", data.entity_counts).remedy)
    search = LabelSearch.of(data.entities, data.entity_counts)
    assert search.find("paris", 5)[0] == 2 and search.find("x.org", 5)[0] == 4
    assert search.find("x.org/1", 5)[1].tolist() == [0] and search.near("berlni") == [BASE + "1"]
