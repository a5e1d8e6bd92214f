"""Graphs that a program holds: tuples, iterators, dicts of splits, RDF terms, PyKEEN's factories and folders."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyoxigraph as ox
import pytest

from kgem.data.dataset import SPLITS, Dataset
from kgem.data.formats import facts as reading
from kgem.data.triples import read_triples
from kgem.errors import DatasetError, TriplesError

FACTS = [("a", "r", "b"), ("b", "r", "a"), ("a", "s", "c"), ("c", "s", "d")]


class Term(str):
    """As rdflib's terms are: text that knows how it is written."""

    def n3(self) -> str:
        return f"<{self}>"


class BNode(Term):
    pass


class Literal(Term):
    def __new__(cls, text: str, datatype: str | None = None, language: str | None = None) -> Literal:
        made = super().__new__(cls, text)
        made.datatype, made.language = datatype, language  # type: ignore[attr-defined]
        return made


class Named:
    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return self.name


def labelled(data: Dataset, split: str = "train") -> list[tuple[Any, ...]]:
    return list(data.frame(split).iter_rows())


@pytest.mark.parametrize(
    "source",
    [
        FACTS,
        tuple(FACTS),
        iter(FACTS),
        (fact for fact in FACTS),
        [list(fact) for fact in FACTS],
        [np.array(fact) for fact in FACTS],
        [tuple(map(Term, fact)) for fact in FACTS],
        [tuple(map(Named, fact)) for fact in FACTS],
        dict.fromkeys(FACTS).keys(),
        zip(*zip(*FACTS, strict=True), strict=True),
        dict(zip(("head", "relation", "tail"), map(list, zip(*FACTS, strict=True)), strict=True)),
        pd.DataFrame(FACTS),
        pl.DataFrame(FACTS, orient="row"),
    ],
    ids=lambda source: type(source).__name__,
)
def test_whatever_gives_triples_is_a_graph(source: Any) -> None:
    data = Dataset.load(source)
    assert labelled(data) == FACTS and data.reports[0].rows_read == 4


def test_a_long_iterator_is_taken_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BLOCK", 7)
    taken: list[int] = []

    def count() -> Iterator[tuple[int, str, int]]:
        for i in range(50):
            taken.append(i)
            yield i, "r", i + 1

    triples = read_triples(count())
    assert triples.frame.rows() == [(str(i), "r", str(i + 1)) for i in range(50)] and len(taken) == 50


def test_a_dict_has_a_graph_for_each_split(tmp_path: Path) -> None:
    (tmp_path / "test.tsv").write_text("c\ts\td\n")
    given = {"train": FACTS[:2], "validation": iter(FACTS[2:3]), "test": tmp_path / "test.tsv"}
    data = Dataset.load(given)
    assert [labelled(data, split) for split in SPLITS] == [FACTS[:2], FACTS[2:3], FACTS[3:]]
    assert not len(Dataset.load({"train": FACTS, "valid": [], "test": []}).valid)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ([], "it is empty"),
        (("a", "r", "b"), "'a' is str, not a fact.*\n.*list of tuples"),
        (["a\tr\tb"], "row 1: .* is str"),
        ([("a", "r", "b"), 5], "row 2: 5 is int"),
        ([{"head": "a"}], "dict, not a fact"),
        ([("a", "r", "b"), ("a", "r")], "row 2: 2 columns where 3"),
        ([("a", "r", "b", "0.5")], "4 columns where 3.*\n.*extra="),
        ([("a", "r", None)], "row 1: the tail is empty"),
        ([("a", "", "b")], "row 1: the relation is empty"),
        ([("a", "r", float("nan"))], "row 1: the tail is empty"),
        ([("a", "r", "b\0")], "NUL"),
        ([("a", "r", ("b", "c"))], "is tuple, not a label"),
        ([("a", "r", "\ud800")], "not text"),
        ({"train": FACTS, "held out": FACTS}, "a split is called 'held out'"),
        ({"train": FACTS, "valid": FACTS, "dev": FACTS}, "valid is given twice"),
        ({"valid": FACTS}, "no training facts"),
        ({"head": ["a", "b"], "relation": ["r"], "tail": ["b", "c", "d"]}, r"do not make a table.*\n.*one length"),
        (5, "cannot read facts from int.*\n.*list of tuples"),
    ],
)
def test_what_is_no_graph_is_told(source: Any, told: str) -> None:
    with pytest.raises((TriplesError, DatasetError), match=told):
        Dataset.load(source)


def test_bad_rows_can_be_left_out_and_a_fourth_column_kept() -> None:
    rows = [("a", "r", "b", 1), ("a", "r", 2), ("a", None, "b", 2), ("b", "r", "a", 3)]
    data = Dataset.load(rows, extra="weight", skip_bad=True)
    (report,) = data.reports
    assert (report.rows_read, report.kept, report.skipped) == (4, 2, 2)
    assert [problem.line for problem in report.problems] == [2, 3]
    assert data.extra["train"].to_list() == ["1", "3"]


def test_terms_of_rdf_are_called_as_in_files(tmp_path: Path) -> None:
    text = (
        '<http://x/a> <http://x/r> <http://x/b> .\n<http://x/a> <http://x/says> "it\\n\\"is\\""@en .\n'
        "_:n1 <http://x/r> <http://x/a> .\n"
        '<http://x/b> <http://x/n> "5"^^<http://www.w3.org/2001/XMLSchema#integer> .\n'
    )
    (tmp_path / "graph.nt").write_text(text)
    a, b, r, says, n = (Term(f"http://x/{name}") for name in ("a", "b", "r", "says", "n"))
    integer = Term("http://www.w3.org/2001/XMLSchema#integer")
    terms = [
        (a, r, b),
        (a, says, Literal('it\n"is"', language="en")),
        (BNode("n1"), r, a),
        (b, n, Literal("5", datatype=integer)),
    ]
    store = ox.Store()
    store.bulk_load(path=str(tmp_path / "graph.nt"))
    for literals in ("drop", "keep"):
        wanted = Dataset.load(tmp_path / "graph.nt", literals=literals)
        for given in (terms, store):
            data = Dataset.load(given, literals=literals)
            assert data.relations.labels == wanted.relations.labels
            assert data.reports[0].literals_dropped == wanted.reports[0].literals_dropped
            known = [label for label in data.entities if not label.startswith("_:")]
            assert known == [label for label in wanted.entities if not label.startswith("_:")]
    assert Dataset.load(terms, literals="keep").content_hash == wanted.content_hash


def factory(facts: list[list[int]], **more: Any) -> Any:
    ids = {"entity_to_id": {"a": 0, "b": 1, "c": 2, "d": 3}, "relation_to_id": {"r": 0, "s": 1}}
    return SimpleNamespace(mapped_triples=np.array(facts), **(ids | more))


IDS = [[0, 0, 1], [1, 0, 0], [0, 1, 2], [2, 1, 3]]


def test_factories_of_pykeen_are_graphs() -> None:
    import torch

    assert labelled(Dataset.load(factory(IDS))) == FACTS
    on_torch = factory(IDS)
    on_torch.mapped_triples = torch.tensor(IDS)
    assert labelled(Dataset.load({"train": on_torch, "test": factory(IDS[:1])}), "test") == FACTS[:1]
    whole = SimpleNamespace(training=factory(IDS[1:]), validation=factory(IDS[:1]), testing=None)
    assert labelled(Dataset.load(whole), "valid") == FACTS[:1]
    with pytest.raises(TriplesError, match=r"no labels.*\n.*numpy"):
        Dataset.load(factory(IDS, entity_to_id=None))
    with pytest.raises(TriplesError, match="row 2: no relation has the id 7"):
        Dataset.load(factory([*IDS[:1], [0, 7, 1]]))


def write_result(folder: Path, label: str = "d") -> Path:
    """A result as PyKEEN writes it: tables with a header, labels quoted where they must be."""
    place = folder / "training_triples"
    place.mkdir(parents=True)
    tables = {
        "numeric_triples": pd.DataFrame(IDS, columns=["head", "relation", "tail"]),
        "entity_to_id": pd.DataFrame({"id": range(4), "label": ["a", "b", "c", label]}),
        "relation_to_id": pd.DataFrame({"id": range(2), "label": ["r", "s"]}),
    }
    for name, table in tables.items():
        table.to_csv(place / f"{name}.tsv.gz", sep="\t", index=False)
    (place / "base.pth").write_bytes(b"a pickle that nobody opens")
    return folder


@pytest.mark.parametrize("label", ["d", 'with "quotes"', "NA", "a\ttab", "12"])
def test_results_of_pykeen_are_graphs(tmp_path: Path, label: str) -> None:
    folder = write_result(tmp_path / "result", label)
    data = Dataset.load(folder)
    assert data.name == "result" and labelled(data) == [*FACTS[:3], ("c", "s", label)]
    assert Dataset.load(folder / "training_triples").content_hash == data.content_hash
    assert Dataset.load({"train": folder}).content_hash == data.content_hash


def test_a_result_that_is_damaged_is_told(tmp_path: Path) -> None:
    folder = write_result(tmp_path / "result")
    facts = folder / "training_triples" / "numeric_triples.tsv.gz"
    with pytest.raises(TriplesError, match="neither header"):
        Dataset.load(folder, header=True)
    facts.write_bytes(facts.read_bytes()[:-9])
    with pytest.raises(TriplesError, match="damaged or cut short"):
        Dataset.load(folder)
    facts.write_bytes(gzip.compress(b"head\trelation\n0\t1\n"))
    with pytest.raises(TriplesError, match=r"is not PyKEEN's.*\n.*head, relation, tail"):
        Dataset.load(folder)
