"""Names of symbols: out of RDF and out of a file of labels, shown beside the label, never trained on."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from kgem.data import cache as caching
from kgem.data.dataset import Dataset
from kgem.data.growth import grow
from kgem.data.names import NO_NAMES, Names, read_names
from kgem.data.options import ReadOptions
from kgem.data.triples import read_triples
from kgem.errors import DatasetError, TriplesError

WD, WDT = "http://www.wikidata.org/entity/", "http://www.wikidata.org/prop/direct/"
TURTLE = """@prefix wd: <http://www.wikidata.org/entity/> .
@prefix p: <http://www.wikidata.org/prop/direct/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix schema: <http://schema.org/> .
wd:Q64 rdfs:label "Berlin (Stadt)"@de, "Berlin"@en ; schema:name "Spree-Athen" ; p:P17 wd:Q183 ; p:P1082 3700000 .
wd:Q183 skos:prefLabel "Allemagne"@fr ; schema:name "Germany"@en-GB ; p:P36 wd:Q64 .
wd:Q90 rdfs:label "Paris"@fr ; p:P17 wd:Q142 .
wd:Q142 p:P36 wd:Q90 ; rdfs:label wd:Q183 .
p:P17 rdfs:label "country" .
wd:Q1 rdfs:label "of nobody" .
"""


@pytest.fixture
def turtle(tmp_path: Path) -> Path:
    path = tmp_path / "capitals.ttl"
    path.write_text(TURTLE)
    return path


def test_names_are_taken_from_rdf_and_are_no_facts(turtle: Path) -> None:
    data = Dataset.load(turtle)
    by_name = {label.removeprefix(WD).removeprefix(WDT): name for label, name in data.names.by_label.items()}
    assert by_name == {"Q64": "Berlin", "Q183": "Germany", "Q90": "Paris", "P17": "country"}
    (report,) = data.reports
    assert (report.rows_read, report.kept, report.literals_dropped, report.names) == (14, 5, 1, 8)
    assert "http://www.w3.org/2000/01/rdf-schema#label" in data.relations  # with a resource it is a fact like any other
    assert [data.entities.show(WD + q) for q in ("Q64", "Q90", "Q142")] == [
        "Berlin (wd:Q64)",
        "Paris (wd:Q90)",
        "wd:Q142",
    ]
    assert [data.relations.show(WDT + p) for p in ("P17", "P36")] == ["country (p:P17)", "p:P36"]
    assert "skos" not in data.names.prefixes and "dbr" not in data.names.prefixes


def test_literals_that_are_kept_are_facts_and_no_names(turtle: Path) -> None:
    data = Dataset.load(turtle, literals="keep")
    assert not data.names.by_label and len(data.train) == 14 and '"Berlin"@en' in data.entities


@pytest.mark.parametrize("form", ["nt", "nq"])
def test_names_line_by_line_with_prefixes_that_everybody_knows(form: str) -> None:
    text = f'<{WD}Q64> <{WDT}P17> <{WD}Q183> .\n<{WD}Q64> <http://schema.org/name> "Berlin"@en .\nnonsense\n'
    read = read_triples(io.BytesIO(text.encode()), ReadOptions(format=form, skip_bad=True))
    assert read.names.by_label == {WD + "Q64": "Berlin"} and read.names.show(WD + "Q64") == "Berlin (wd:Q64)"
    assert (read.report.rows_read, read.report.kept, read.report.names, read.report.skipped) == (3, 1, 1, 1)


def test_a_file_of_names_alone_has_no_facts() -> None:
    text = b'<a:b> <http://www.w3.org/2000/01/rdf-schema#label> "x" .\n'
    with pytest.raises(TriplesError, match="all 1 statements have a literal"):
        read_triples(io.BytesIO(text), ReadOptions(format="nt"))


def test_labels_from_a_file(tmp_path: Path) -> None:
    graph, labels = tmp_path / "g.tsv", tmp_path / "names.tsv"
    graph.write_text("Q64\tP17\tQ183\nQ90\tP17\tQ142\n")
    labels.write_text("Q64\tBerlin\r\nP17\tcountry\nQ5\tsomebody  else\n\n")
    data = Dataset.load(graph, labels=labels)
    assert data.names.by_label == {"Q64": "Berlin", "P17": "country"}
    assert data.show(("Q64", "P17", "Q90")) == ("Berlin (Q64)", "country (P17)", "Q90")
    assert data.content_hash == Dataset.load(graph).content_hash
    labels.write_text("Q5\tsomebody else\n")
    with pytest.raises(DatasetError, match="names no symbol of g; its first id is 'Q5'"):
        Dataset.load(graph, labels=labels)


def test_labels_from_a_dict() -> None:
    facts = [("Q64", "P17", "Q183")]
    data = Dataset.load(facts, labels={"Q64": "Berlin", "Q5": "somebody else"})
    assert data.names.by_label == {"Q64": "Berlin"} and data.show(facts[0])[0] == "Berlin (Q64)"
    assert Dataset.load(facts, labels={}).names.by_label == {}
    with pytest.raises(DatasetError, match="names no symbol"):
        Dataset.load(facts, labels={"Q5": "somebody else"})


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        ("Q64\tBerlin\nQ90 Paris\n", "not id<TAB>name", ":2"),
        ("Q64\t \n", "not id<TAB>name", ":1"),
        ("Q64\tBerlin\t\nQ64\tP17\tQ183\n", "not id<TAB>name", ":2"),
        ("Q64\tBerlin\nQ64\tPotsdam\n", "a second name of 'Q64'", ":2"),
        ("\n", "no names", ""),
    ],
)
def test_wrong_files_of_labels_are_told(text: str, what: str, line: str) -> None:
    with pytest.raises(TriplesError, match=what) as caught:
        read_names(text, "names.tsv")
    assert caught.value.where == f"names.tsv{line}" and caught.value.remedy


def test_names_are_cached_with_the_graph(turtle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching, "WORTH_BYTES", 0)
    first = Dataset.load(turtle)
    monkeypatch.setattr("kgem.data.sources.read", lambda found: pytest.fail("was not in the cache"))
    again = Dataset.load(turtle)
    assert again.names.by_label == first.names.by_label and again.names.prefixes == first.names.prefixes
    assert again.reports == first.reports


def test_names_stay_when_a_graph_grows(turtle: Path) -> None:
    data = Dataset.load(turtle)
    more = Dataset.load(io.BytesIO(f"{WD}Q64\t{WDT}P17\t{WD}Q9\n".encode())).frame("train")
    grown, _ = grow(data, {"train": more})
    grown = grown.with_names(Names({WD + "Q9": "nine"}))
    assert grown.entities.show(WD + "Q64") == "Berlin (wd:Q64)" and grown.entities.show(WD + "Q9") == "nine (wd:Q9)"


def test_a_label_that_is_its_own_name_is_shown_once() -> None:
    assert Names({"a": "a", "b": "B"}).show("a") == "a" and not NO_NAMES
    assert NO_NAMES.show("http://x/y") == "http://x/y"
