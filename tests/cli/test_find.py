"""kgem find and kgem runs, and symbols by their names wherever a command shows them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kgem.data.dataset import Dataset
from kgem.data.names import Names
from obvious import random_graph
from small_models import random_model

Kgem = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a model whose symbols e1, e2 and r0 have names."""
    monkeypatch.chdir(tmp_path)
    named = random_graph().with_names(
        Names({"e1": "Berlin", "e2": "West Berlin", "e3": "Paris", "e4": "Paris", "r0": "knows"})
    )
    random_model(named, dtype="float32").save(Path("m"))
    random_model(dtype="float32").save(Path("plain"))
    return tmp_path


def by_frequency(data: Dataset, text: str) -> list[str]:
    found = [label for label in data.entities if text in label]
    return sorted(found, key=lambda label: (label != text, -data.entity_counts[data.entities.id(label)]))


def test_labels_are_found_by_a_part_of_them(kgem: Kgem) -> None:
    code, out, _ = kgem("find", "plain", "E1", "--json")
    found = json.loads(out)
    data = random_graph()
    assert code == 0 and [each["label"] for each in found["entities"]["found"]] == by_frequency(data, "e1")
    assert found["entities"]["total"] == len(by_frequency(data, "e1")) and not found["relations"]["found"]
    code, out, err = kgem("find", "plain", "e1", "--top", 2)
    assert code == 0 and "e1" in out and "--top" in err
    assert "r0" in kgem("find", "plain", "r")[1]


def test_what_is_not_there_has_neighbours(kgem: Kgem) -> None:
    code, out, err = kgem("find", "m", "berlni")
    assert code == 2 and not out and "did you mean 'Berlin (e1)'" in err
    assert kgem("find", "nowhere", "x")[0] == 2


def test_a_graph_can_be_looked_through_as_well(kgem: Kgem) -> None:
    Path("g.tsv").write_text("numpy\tneeds\tblas\nscipy\tneeds\tnumpy\nnumpy-core\tneeds\tblas\n")
    code, out, _ = kgem("find", "g.tsv", "NUMPY", "--csv")
    assert code == 0 and out.splitlines()[1:] == ["entity,numpy,,2", "entity,numpy-core,,1"]
    Path("folder").mkdir()
    Path("folder/train.tsv").write_text("a\tr\tb\n")
    assert "a" in kgem("find", "folder", "a")[1]
    assert "France" in kgem("find", "world", "franc", "--top", 3)[1]


def test_names_are_asked_and_shown(kgem: Kgem) -> None:
    code, out, err = kgem("predict", "m", "--head", "Berlin", "--relation", "knows", "--top", 30)
    assert code == 0 and "Berlin (e1) · knows (r0) · ?" in out and "West Berlin (e2)" in out and " e5 " in out
    document = json.loads(kgem("predict", "m", "--head", "Berlin (e1)", "--relation", "r0", "--json")[1])
    assert (document["head"], document["relation"]) == ("e1", "r0")
    assert "Similar to Berlin (e1)" in kgem("similar", "m", "Berlin")[1]
    assert "knows (r0)" in kgem("strengths", "m", "--of", "relations")[1]
    assert "knows (r0)" in kgem("evaluate", "m", "--by", "relation")[1]
    assert "knows (r0)" in kgem("predict", "m", "--all", "--relation", "knows", "--top", 3)[1]
    code, out, err = kgem("predict", "m", "--head", "Paris", "--relation", "r0")
    assert code == 2 and "2 entities are called 'Paris'" in err and "'e3', 'e4'" in err
    assert "did you mean 'Berlin (e1)'" in kgem("similar", "m", "berlin")[2]


def test_labels_of_a_graph_by_option(kgem: Kgem) -> None:
    Path("g.tsv").write_text("Q1\tP1\tQ2\nQ2\tP1\tQ1\n")
    Path("names.tsv").write_text("Q1\tBerlin\nP1\tborders\n")
    _, out, err = kgem("data", "stats", "g.tsv", "--labels", "names.tsv")
    assert "names of 1 of 2 entities" in kgem("data", "check", "g.tsv", "--labels", "names.tsv")[2]
    assert "borders (P1)" in out and "names.tsv: names of 1 of 2 entities and 1 of 1 relations" in err
    assert "Berlin (Q1)" in kgem("find", "g.tsv", "berl", "--labels", "names.tsv")[1]
    Path("names.tsv").write_text("Q1 Berlin\n")
    code, _, err = kgem("data", "stats", "g.tsv", "--labels", "names.tsv")
    assert code == 2 and "names.tsv:1: is not id<TAB>name" in err
    code, _, err = kgem("data", "stats", "g.tsv", "--labels", "nothing.tsv")
    assert code == 2 and "no such file" in err


def test_runs_are_listed(kgem: Kgem) -> None:
    code, out, _ = kgem("runs", ".")
    assert code == 0 and [line.split()[0] for line in out.splitlines()[2:]] == ["m", "plain"] and "finished" in out
    found = json.loads(kgem("runs", ".", "--json")[1])
    assert [each["state"] for each in found] == ["finished"] * 2 and found[0]["graph"] == "random"
    Path("m/model.json").write_text("{}")
    code, out, err = kgem("runs", ".")
    assert code == 0 and "broken" in out and "m is broken: model.json" in err
    assert kgem("runs")[0] == 2 and "no such folder" in kgem("runs")[2]
    Path("empty").mkdir()
    assert "there are no runs in it" in kgem("runs", "empty")[2]
