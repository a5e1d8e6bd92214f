"""`kgem data`, as a person uses them: right and wrong input, what is printed, what is written."""

from __future__ import annotations

import inspect
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgem.cli import main, reading
from kgem.data.catalog import CATALOG
from kgem.data.dataset import Dataset
from kgem.data.triples import FORMATS

Kgem = Callable[..., tuple[int, str, str]]

GRAPH = "alice\tknows\tbob\nbob\tknows\tcarol\ncarol\tknows\talice\nalice\tlikes\tcarol\nbob\tlikes\talice\n"
BAD = "alice\tknows\tbob\nalice\tknows\nbob\tknows\tcarol\n\tknows\tbob\nalice\tknows\tbob\n"
BENCHMARKS = ["wn18rr", "umls", "codex-s", "nations"]  # tests/data/test_dataset.py has the counts of the larger ones


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own to work in, with a good graph and a bad one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KGEM_DATA", raising=False)
    Path("graph.tsv").write_text(GRAPH)
    Path("bad.tsv").write_text(BAD)
    return tmp_path


def json_of(kgem: Kgem, *words: object) -> Any:
    code, out, err = kgem(*words, "--json")
    assert code == 0, err
    return json.loads(out)


def facts_of(source: str, **options: Any) -> dict[str, set[tuple[str, ...]]]:
    data = Dataset.load(source, **options)
    return {split: set(data.frame(split).iter_rows()) for split in ("train", "valid", "test")}


# check


def test_check_reports_the_graph_and_reading(kgem: Kgem) -> None:
    report = json_of(kgem, "data", "check", "graph.tsv")
    assert (report["entities"], report["relations"], report["facts"]["train"]) == (3, 2, 5)
    assert report["reading"][0]["rows_read"] == 5
    code, out, err = kgem("data", "check", "graph.tsv")
    assert (code, err) == (0, "") and "3 entities, 2 relations, 5 facts" in out and "Findings: none" in out


def test_check_lists_all_bad_rows_and_fails(kgem: Kgem) -> None:
    code, out, err = kgem("data", "check", "bad.tsv")
    assert code == 2
    assert "2 columns where 3 are expected" in out and "the head is empty" in out
    assert err.startswith("error: bad.tsv:2: 2 of 5 rows") and "--skip-bad" in err
    assert "2 of 5 rows of bad.tsv are no facts" in out


def test_check_that_skips_bad_rows_succeeds(kgem: Kgem) -> None:
    report = json_of(kgem, "data", "check", "bad.tsv", "--skip-bad")
    (read,) = report["reading"]
    assert [problem["line"] for problem in read["problems"]] == [2, 4]
    assert read["rows_read"] == read["kept"] + read["duplicates"] + read["skipped"] == 5


def test_check_notes_duplicates_with_another_extra_value(kgem: Kgem) -> None:
    Path("w.tsv").write_text("a\tr\tb\t1\na\tr\tb\t1\na\tr\tb\t2\nb\tr\ta\t3\nb\tr\ta\t\n")
    report = json_of(kgem, "data", "check", "w.tsv", "--extra", "weight")
    assert (report["reading"][0]["duplicates"], report["reading"][0]["conflicts"]) == (3, 2)
    assert any("2 facts are given again with another value" in note for note in report["notes"])
    assert "another value" not in kgem("data", "check", "bad.tsv", "--skip-bad")[1]


def test_check_names_inverse_relations_and_says_what_they_do(kgem: Kgem) -> None:
    Path("leaky").mkdir()
    pairs = [(f"a{i}", f"b{i}") for i in range(20)]
    train = [f"{a}\tparent of\t{b}\n" for a, b in pairs] + [f"{b}\tchild of\t{a}\n" for a, b in pairs[:18]]
    Path("leaky/train.tsv").write_text("".join(train))
    Path("leaky/test.tsv").write_text("".join(f"{b}\tchild of\t{a}\n" for a, b in pairs[18:]))
    code, out, _ = kgem("data", "check", "leaky")
    assert code == 0
    assert "inverse" in out and "child of" in out and "parent of" in out
    assert "test is easy: 2 of its 2 facts" in out


def test_check_reads_standard_input(kgem: Kgem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"<urn:a> <urn:r> <urn:b> .\n")))
    assert json_of(kgem, "data", "check", "-", "--format", "nt")["facts"]["train"] == 1


def test_check_takes_all_reading_options(kgem: Kgem) -> None:
    Path("table.csv").write_text("id,subject,object,predicate,weight\n1,a,b,r,0.5\n2,b,c,r,0.7\n")
    columns = ("--columns", "subject, predicate, object")
    assert json_of(kgem, "data", "check", "table.csv", "--header", *columns)["entities"] == 3
    assert json_of(kgem, "data", "check", "table.csv", "--header", *columns, "--extra", "weight")["entities"] == 3
    Path("literal.nt").write_text('<urn:a> <urn:r> <urn:b> .\n<urn:a> <urn:r> "text" .\n')
    assert json_of(kgem, "data", "check", "literal.nt")["facts"]["train"] == 1
    assert json_of(kgem, "data", "check", "literal.nt", "--literals", "keep")["facts"]["train"] == 2


@pytest.mark.parametrize("names", ["head\trelation\ttail", "Subject\tPredicate\tObject", "SOURCE\tkind\ttarget"])
def test_check_notes_a_first_row_of_names(kgem: Kgem, names: str) -> None:
    Path("named.tsv").write_text(f"{names}\n{GRAPH}")
    code, out, _ = kgem("data", "check", "named.tsv")
    assert code == 0 and "train: the first row" in out and "--header" in out
    assert "--header" not in kgem("data", "check", "named.tsv", "--header")[1]
    assert "--header" not in kgem("data", "check", "graph.tsv")[1]
    Path("anatomy.tsv").write_text("head\tknows\ttail\n" + GRAPH)  # a fact: other rows have the relation, too
    assert "--header" not in kgem("data", "check", "anatomy.tsv")[1]


def test_columns_by_name_imply_a_header(kgem: Kgem) -> None:
    Path("table.csv").write_text("subject,object,predicate\na,b,r\nb,c,r\n")
    report = json_of(kgem, "data", "check", "table.csv", "--columns", "subject,predicate,object")
    assert (report["entities"], report["facts"]["train"]) == (3, 2)


def test_help_names_every_format(kgem: Kgem) -> None:
    option = inspect.signature(reading.make_options, eval_str=True).parameters["format"].annotation
    names = option.__metadata__[0].help
    assert all(name in names for name in FORMATS)
    assert "--format" in kgem("data", "check", "--help")[1]


@pytest.mark.parametrize("name", BENCHMARKS)
def test_check_and_stats_give_the_counts_of_the_benchmarks(
    kgem: Kgem, name: str, benchmark_graphs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KGEM_DATA", str(benchmark_graphs))
    counts = CATALOG[name].counts
    for command in ("check", "stats"):
        found = json_of(kgem, "data", command, name)
        assert (found["entities"], found["relations"]) == (counts.entities, counts.relations)
        assert found["facts"] == {"train": counts.train, "valid": counts.valid, "test": counts.test}


# stats


def test_stats_shows_what_matters_before_training(kgem: Kgem) -> None:
    found = json_of(kgem, "data", "stats", "graph.tsv", "--dim", 7)
    assert found["cost"]["dim"] == 7 and found["relation_frequency"]["max"] == 3
    code, out, err = kgem("data", "stats", "graph.tsv", "--top", 1)
    assert (code, err) == (0, "")
    assert "knows" in out and "and 1 more" in out and "What a fit would cost" in out
    assert "about 600 MB of memory" in out and "epochs that fits usually have" in " ".join(out.split())


def test_stats_draws_the_figure(kgem: Kgem) -> None:
    code, _, err = kgem("data", "stats", "world", "--figure", "counts.svg")
    assert code == 0 and "counts.svg" in err
    before = Path("counts.svg").read_text()
    assert "<svg" in before
    code, out, err = kgem("data", "stats", "graph.tsv", "--figure", "counts.svg")
    assert (code, out) == (2, "") and "--force" in err and Path("counts.svg").read_text() == before
    assert kgem("data", "stats", "graph.tsv", "--figure", "counts.svg", "--force")[0] == 0
    assert Path("counts.svg").read_text() != before
    code, out, _ = kgem("data", "stats", "graph.tsv", "--figure", "counts.xyz")
    assert (code, out) == (2, "") and not Path("counts.xyz").exists()
    assert "counts.xyz" in kgem("data", "stats", "missing.tsv", "--figure", "counts.xyz")[2]  # told before any reading


# convert


@pytest.mark.parametrize("target", ["out.csv", "out.parquet", "out.nt.gz", "out.nq", "out.ttl", "out.rdf", "o.openke"])
def test_convert_there_and_back(kgem: Kgem, target: str) -> None:
    assert kgem("data", "convert", "graph.tsv", target)[0] == 0
    assert facts_of(target) == facts_of("graph.tsv")
    code, _, err = kgem("data", "convert", target, "back.tsv")
    assert code == 0 and "5 facts -> back.tsv" in err
    assert facts_of("back.tsv") == facts_of("graph.tsv")


@pytest.mark.parametrize("form", list(FORMATS))
def test_convert_a_graph_with_splits_to_a_folder(kgem: Kgem, form: str) -> None:
    written = json_of(kgem, "data", "convert", "world", "folder", "--to", form)
    assert all(Path(file).is_file() for file in written["files"])
    assert written["facts"] == {"train": 4055, "valid": 386, "test": 386}
    assert facts_of("folder") == facts_of("world")


def test_convert_a_graph_with_splits_to_one_file(kgem: Kgem) -> None:
    code, _, err = kgem("data", "convert", "world", "world.csv")
    assert code == 0 and "--extra split" in err
    assert facts_of("world.csv", extra="split") == facts_of("world")
    assert kgem("data", "convert", "world", "world.parquet")[0] == 0
    assert facts_of("world.parquet") == facts_of("world")
    code, _, err = kgem("data", "convert", "world", "world.ttl")
    assert code == 2 and "name a folder" in err and not Path("world.ttl").exists()


def test_convert_to_standard_output(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["data", "convert", "graph.tsv", "-"])
    assert not stop.value.code and capfdbinary.readouterr().out == GRAPH.encode()


@pytest.mark.parametrize("form", ["nt", "nq", "ttl", "rdf"])
def test_convert_keeps_literals_as_literals(kgem: Kgem, form: str) -> None:
    Path("lit.ttl").write_text('<urn:a> <urn:r> "hello"@en, 1, "x", <urn:b> .\n')
    code, _, err = kgem("data", "convert", "lit.ttl", f"new.{form}", "--literals", "keep")
    assert code == 0, err
    assert "urn:kgem:" not in Path(f"new.{form}").read_text()
    assert facts_of(f"new.{form}", literals="keep") == facts_of("lit.ttl", literals="keep")
    report = json_of(kgem, "data", "check", f"new.{form}")
    assert report["reading"][0]["literals_dropped"] == 3 and report["facts"]["train"] == 1


def test_convert_keeps_an_extra_column(kgem: Kgem) -> None:
    Path("weighted.tsv").write_text("a\tr\tb\t0.5\nb\tr\tc\t0.25\n")
    assert kgem("data", "convert", "weighted.tsv", "out.csv")[0] == 2
    assert kgem("data", "convert", "weighted.tsv", "out.csv", "--extra", "weight")[0] == 0
    assert facts_of("out.csv", extra="weight")["train"] == {("a", "r", "b", "0.5"), ("b", "r", "c", "0.25")}


# split


def test_split_writes_three_files_that_train_knows(kgem: Kgem) -> None:
    words = ("data", "split", "world", "--valid", 0.1, "--test", 300, "--seed", 3)
    report = json_of(kgem, *words, "--out", "one")
    assert report["files"] == ["one/train.tsv", "one/valid.tsv", "one/test.tsv"]
    assert report["got"]["test"] == 300 and sum(report["got"].values()) == 4827
    checked = json_of(kgem, "data", "check", "one")
    assert checked["unseen"]["test"]["entities"] == checked["unseen"]["valid"]["entities"] == 0
    assert checked["in_two_splits"] == {"train/valid": 0, "train/test": 0, "valid/test": 0}
    json_of(kgem, *words, "--out", "two")
    assert facts_of("one") == facts_of("two")


def test_split_keeps_groups_together_and_reports_what_it_could_not_arrange(kgem: Kgem) -> None:
    json_of(kgem, "data", "split", "world", "--out", "whole", "--group", "symmetric")
    assert json_of(kgem, "data", "check", "whole")["leakage"]["answerable"] == {"valid": 0, "test": 0}
    code, _, err = kgem("data", "split", "graph.tsv", "--out", "small", "--valid", 2, "--test", 2)
    assert code == 0 and "note: " in err and "instead of" in err


def test_split_into_the_current_folder(kgem: Kgem) -> None:
    code, _, err = kgem("data", "split", "graph.tsv", "--out", ".", "--test", 1, "--valid", 1, "--force")
    assert code == 0, err
    assert {path.name for path in Path().iterdir()} == {"graph.tsv", "bad.tsv", "train.tsv", "valid.tsv", "test.tsv"}


def test_split_never_mixes_two_graphs(kgem: Kgem) -> None:
    json_of(kgem, "data", "split", "world", "--out", "folder", "--to", "csv")
    before = facts_of("folder")
    code, _, err = kgem("data", "split", "world", "--out", "folder", "--seed", 1, "--force")
    assert code == 2 and "test.csv, train.csv, valid.csv" in err
    assert facts_of("folder") == before and len(list(Path("folder").iterdir())) == 3
    json_of(kgem, "data", "split", "world", "--out", "folder", "--to", "csv", "--seed", 1, "--force")
    assert facts_of("folder") != before


# generate


def test_generate_writes_a_graph_and_what_was_planted(kgem: Kgem) -> None:
    words = ("data", "generate", "--entities", 60, "--relations", 3, "--facts", 400, "--dim", 4)
    written = json_of(kgem, *words, "--out", "planted")
    assert sum(written["facts"].values()) == 400
    assert json_of(kgem, "data", "check", "planted")["entities"] == 60
    with np.load("planted/planted.npz") as planted:
        assert planted["entities"].shape == (60, 8) and planted["entity_strengths"].shape == (60,)
    json_of(kgem, *words, "--out", "again")
    assert facts_of("again") == facts_of("planted")
    json_of(kgem, *words, "--out", "again", "--seed", 1, "--force")
    assert facts_of("again") != facts_of("planted")


# fetch


def test_fetch_lists_the_catalogue(kgem: Kgem) -> None:
    listed = json_of(kgem, "data", "fetch")
    assert [row["name"] for row in listed] == list(CATALOG)
    assert {row["name"] for row in listed if row["here"]} == {"world"}
    code, out, _ = kgem("data", "fetch")
    assert code == 0 and all(name in out for name in CATALOG)


def test_fetch_prints_where_the_files_are(kgem: Kgem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "graphs" / "umls"
    folder.mkdir(parents=True)
    for split in ("train", "valid", "test"):
        (folder / f"{split}.txt").write_text(GRAPH)
    monkeypatch.setenv("KGEM_DATA", str(tmp_path / "graphs"))
    code, out, err = kgem("data", "fetch", "umls")
    assert code == 0 and "licence" in err
    assert out.splitlines() == [str(folder / f"{split}.txt") for split in ("train", "valid", "test")]


def test_fetch_without_a_network_says_what_to_put_where(kgem: Kgem) -> None:
    code, out, err = kgem("data", "fetch", "umls", "--mirror", "http://127.0.0.1:9/")
    assert (code, out) == (2, "") and "KGEM_DATA" in err and "train.txt" in err


def test_fetch_verifies_what_a_mirror_gives(kgem: Kgem, monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
    import pooch

    def wrong(self: object, url: str, file: str, *rest: object) -> None:
        Path(file).write_bytes(b"not the archive")

    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", wrong)
    code, _, err = kgem("data", "check", "umls")
    assert code == 2 and "damaged or has changed" in err
    assert not list(own_cache.rglob("*.txt"))


# wrong input to every command: exit code 2, one message, nothing written

WRONG = {
    "a missing file": ["data", "check", "nowhere.tsv"],
    "a misspelt name": ["data", "stats", "wrld"],
    "an empty name": ["data", "stats", ""],
    "a name too long": ["data", "check", "x" * 5000],
    "a name too long, converting": ["data", "convert", "x" * 5000, "new.csv"],
    "a folder without train": ["data", "check", "."],
    "a bad row": ["data", "stats", "bad.tsv"],
    "a bad row, converting": ["data", "convert", "bad.tsv", "new.csv"],
    "a bad row, splitting": ["data", "split", "bad.tsv", "--out", "new"],
    "an unknown format": ["data", "check", "graph.tsv", "--format", "foo"],
    "an unknown format of a known graph": ["data", "check", "world", "--format", "nonsense"],
    "an unknown format, converting": ["data", "convert", "world", "new.nq", "--format", "nonsense"],
    "a format of a known graph": ["data", "check", "world", "--format", "csv"],
    "a header of a known graph": ["data", "stats", "world", "--header"],
    "literals of a known graph": ["data", "stats", "world", "--literals", "keep"],
    "a wrong format": ["data", "check", "graph.tsv", "--format", "parquet"],
    "two columns": ["data", "check", "graph.tsv", "--columns", "1,2"],
    "a column by a name that is not there": ["data", "check", "graph.tsv", "--columns", "a,b,c"],
    "an unknown treatment of literals": ["data", "check", "graph.tsv", "--literals", "eat"],
    "a threshold above 1": ["data", "check", "graph.tsv", "--threshold", "2"],
    "a negative dimension": ["data", "stats", "graph.tsv", "--dim", "-1"],
    "a figure in no folder": ["data", "stats", "graph.tsv", "--figure", "nowhere/x.svg"],
    "a file that exists": ["data", "convert", "bad.tsv", "graph.tsv", "--skip-bad"],
    "an unknown extension": ["data", "convert", "graph.tsv", "new.foo"],
    "an unknown target format": ["data", "convert", "graph.tsv", "new.csv", "--to", "foo"],
    "a file in no folder": ["data", "convert", "graph.tsv", "nowhere/new.csv"],
    "facts and JSON": ["data", "convert", "graph.tsv", "-", "--json"],
    "a folder to standard output": ["data", "convert", "graph.tsv", "-", "--to", "openke"],
    "no --out": ["data", "split", "graph.tsv"],
    "a file as folder": ["data", "split", "graph.tsv", "--out", "graph.tsv"],
    "a folder in a file": ["data", "split", "graph.tsv", "--out", "graph.tsv/new"],
    "a folder in use": ["data", "split", "graph.tsv", "--out", "."],
    "a share above 1": ["data", "split", "graph.tsv", "--out", "new", "--test", "1.5"],
    "more than there is": ["data", "split", "graph.tsv", "--out", "new", "--test", "50"],
    "an unknown group": ["data", "split", "graph.tsv", "--out", "new", "--group", "foo"],
    "an unknown split format": ["data", "split", "graph.tsv", "--out", "new", "--to", "foo"],
    "too few facts": ["data", "generate", "--out", "new", "--entities", "100", "--facts", "10"],
    "strengths upside down": ["data", "generate", "--out", "new", "--entity-strengths", "5", "1"],
    "an unknown model": ["data", "generate", "--out", "new", "--model", "foo"],
    "a generated graph in use": ["data", "generate", "--out", "."],
    "an unknown graph": ["data", "fetch", "no-such-graph"],
    "an argument too many": ["demo", "now"],
}


@pytest.mark.parametrize("words", WRONG.values(), ids=WRONG.keys())
def test_wrong_input_is_told_and_changes_nothing(kgem: Kgem, words: list[str], here: Path) -> None:
    def content() -> dict[str, bytes | None]:
        return {str(path): path.read_bytes() if path.is_file() else None for path in here.rglob("*")}

    before = content()
    code, out, err = kgem(*words)
    assert (code, out) == (2, ""), err
    assert err.strip()
    assert content() == before


def test_reading_options_of_a_known_graph_are_named(kgem: Kgem) -> None:
    _, _, err = kgem("data", "check", "world", "--extra", "weight", "--header")
    assert err.startswith("error: world: ") and "leave out --header, --extra" in err
    assert kgem("data", "stats", "world", "--skip-bad")[0] == 0


def test_rows_left_out_are_told(kgem: Kgem) -> None:
    code, _, err = kgem("data", "convert", "bad.tsv", "new.csv", "--skip-bad")
    assert code == 0
    assert "bad.tsv: 5 rows, 2 facts kept; left out: 1 given twice, 2 no facts" in err
    assert "  2: 2 columns where 3 are expected" in err
