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
        pl.LazyFrame(FACTS, orient="row"),
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


NAMED = [
    ("http://a/fr", "http://a/borders", "http://a/es", None),
    ("http://a/fr", "http://www.w3.org/2000/01/rdf-schema#label", "Frankreich", "de"),
    ("http://a/fr", "http://www.w3.org/2000/01/rdf-schema#label", "France", "en"),
    ("http://a/es", "http://www.w3.org/2004/02/skos/core#prefLabel", "Spain", ""),
    ("http://a/borders", "https://schema.org/name", "is beside", ""),
    ("http://a/fr", "http://a/people", "67", ""),
]


class RdflibGraph:
    """As rdflib's graphs are: an iterable of terms that knows its prefixes."""

    def __iter__(self) -> Iterator[tuple[Term, Term, Term]]:
        for head, relation, tail, language in NAMED:
            last = Term(tail) if language is None else Literal(tail, language=language or None)
            yield Term(head), Term(relation), last

    def namespaces(self) -> Iterator[tuple[str, Term]]:
        yield from (("a", Term("http://a/")), ("", Term("http://b/")))


def oxigraph() -> ox.Store:
    store = ox.Store()
    for head, relation, tail, language in NAMED:
        last = ox.NamedNode(tail) if language is None else ox.Literal(tail, language=language or None)
        store.add(ox.Quad(ox.NamedNode(head), ox.NamedNode(relation), last))
    return store


@pytest.mark.parametrize("graph", [RdflibGraph(), oxigraph()], ids=["rdflib", "pyoxigraph"])
def test_graphs_of_rdf_name_their_symbols_as_files_do(graph: Any) -> None:
    data = Dataset.load(graph)
    assert labelled(data) == [("http://a/fr", "http://a/borders", "http://a/es")]
    names = data.names.by_label
    assert names == {"http://a/fr": "France", "http://a/es": "Spain", "http://a/borders": "is beside"}
    report = data.reports[0]
    assert (report.rows_read, report.kept, report.names, report.literals_dropped) == (6, 1, 4, 1)


def test_prefixes_of_a_graph_of_rdf_shorten_its_labels() -> None:
    assert Dataset.load(RdflibGraph()).names.prefixes == {"a": "http://a/"}


def test_kept_literals_of_a_graph_are_no_names() -> None:
    data = Dataset.load(RdflibGraph(), literals="keep")
    assert len(data.train) == 6 and not data.names.by_label


def test_a_dataset_is_a_graph_that_has_been_read() -> None:
    data = Dataset.load(FACTS)
    assert Dataset.load(data) is data
    assert Dataset.load(data, name="mine").name == "mine"
    with pytest.raises(DatasetError, match="has been read already"):
        Dataset.load(data, skip_bad=True)


def test_one_relation_is_one() -> None:
    assert repr(Dataset.load([("a", "r", "a")])) == "<Dataset graph: 1 entity, 1 relation, 1 / 0 / 0 facts>"


def test_the_names_of_a_dataset_can_be_added_later(tmp_path: Path) -> None:
    (tmp_path / "names.tsv").write_text("a\tAlpha\n")
    assert Dataset.load(Dataset.load(FACTS), labels=tmp_path / "names.tsv").names.by_label == {"a": "Alpha"}


def test_splits_may_be_called_as_pykeen_calls_them() -> None:
    data = Dataset.load({"training": FACTS[:2], "validation": FACTS[2:3], "testing": FACTS[3:]})
    assert [len(data.split(split)) for split in SPLITS] == [2, 1, 1]
