"""Files of facts in every format: what comes in, what is refused and where, what is written."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import zstandard

from effort import count_steps
from kgem.data import streams as files
from kgem.data.formats import pages
from kgem.data.options import ReadOptions
from kgem.data.triples import FORMATS, ReadReport, guess_format, read_triples, write_triples
from kgem.errors import TriplesError

COMPRESS = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.ZstdCompressor(write_checksum=True).compress}
FRAME = pl.DataFrame({"head": ["a b", "ü:x", "é"], "relation": ["r 1", "r2", "_"], "tail": ["#c", "http://x/y", '"q"']})


def put(folder: Path, content: bytes, name: str = "g.tsv") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def facts(content: bytes, **options: object) -> list[tuple[str, ...]]:
    return read_triples(io.BytesIO(content), ReadOptions(**options)).frame.rows()  # type: ignore[arg-type]


def balanced(report: ReadReport) -> bool:
    parts = report.kept + report.duplicates + report.skipped + report.literals_dropped + report.names
    return report.rows_read == parts


def failure(content: bytes, **options: object) -> TriplesError:
    with pytest.raises(TriplesError) as caught:
        facts(content, **options)
    assert caught.value.exit_code == 2
    return caught.value


# ---------------------------------------------------------------- plain text


def test_tsv_takes_labels_as_they_are() -> None:
    text = ' a\tr"x\t#b \nü\t☃\t"\n'
    assert facts(text.encode()) == [(" a", 'r"x', "#b "), ("ü", "☃", '"')]


@pytest.mark.parametrize("text", [b"a\tr\tb\r\nc\tr\td\r\n", b"\xef\xbb\xbfa\tr\tb\nc\tr\td", b"a\tr\tb\r\nc\tr\td\r"])
def test_bom_crlf_and_a_missing_last_newline(text: bytes) -> None:
    assert facts(text) == [("a", "r", "b"), ("c", "r", "d")]


def test_duplicates_are_counted_and_the_first_stays() -> None:
    read = read_triples(io.BytesIO(b"a\tr\tb\t1\nc\tr\td\t2\na\tr\tb\t3\n"), ReadOptions(extra="weight"))
    assert read.frame.rows() == [("a", "r", "b", "1"), ("c", "r", "d", "2")]
    assert read.frame.columns == ["head", "relation", "tail", "weight"]
    assert (read.report.rows_read, read.report.kept, read.report.duplicates) == (3, 2, 1)


BAD_LINES = {
    b"a\tb": "2 columns where 3",
    b"a b c": "1 column where 3",
    b"a\tb\tc\td": "4 columns where 3",
    b"a\tb\tc\t": "4 columns where 3",
    b"a\t\tc": "the relation is empty",
    b"\tr\tc": "the head is empty",
    b"": "a blank line",
    b"a\tb\t\xff": "not UTF-8 (0xff)",
    b"a\tb\tc\0d": "a NUL byte",
}


@pytest.mark.parametrize("line", BAD_LINES)
@pytest.mark.parametrize("eol", [b"\n", b"\r\n"])
def test_a_bad_line_is_named(tmp_path: Path, line: bytes, eol: bytes) -> None:
    path = put(tmp_path, eol.join([b"a\tr\tb", b"c\tr\td", line, b"e\tr\tf", b""]))
    with pytest.raises(TriplesError) as caught:
        read_triples(path)
    assert caught.value.where == f"{path}:3"
    assert BAD_LINES[line] in caught.value.what
    assert caught.value.remedy
    read = read_triples(path, ReadOptions(skip_bad=True))
    assert read.frame["head"].to_list() == ["a", "c", "e"]
    assert [(p.line, p.reason) for p in read.report.problems] == [(3, caught.value.what)]
    assert balanced(read.report)
    assert read.report.rows_read == 4


def test_only_the_first_problems_are_kept_but_all_are_counted() -> None:
    read = read_triples(io.BytesIO(b"x\n" * 250 + b"a\tr\tb\n"), ReadOptions(skip_bad=True))
    assert len(read.report.problems) == 100
    assert (read.report.skipped, read.report.rows_read) == (250, 251)


def test_a_fourth_column_must_be_named() -> None:
    error = failure(b"a\tr\tb\t0.5\n")
    assert "extra" in str(error.remedy)
    assert facts(b"a\tr\tb\t0.5\n", extra="weight") == [("a", "r", "b", "0.5")]
    assert facts(b"a\tr\tb\t\n", extra="weight") == [("a", "r", "b", "")]
    assert "3 columns where 4" in failure(b"a\tr\tb\n", extra="weight").what
    assert "extra" in str(failure(b"a\tr\tb\t0.5\n", skip_bad=True).remedy)


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("form", [name for name in FORMATS if name not in ("parquet", "openke")])
def test_an_empty_file(content: bytes, form: str) -> None:
    assert "empty" in failure(content, format=form).what


def test_header_and_choice_of_columns() -> None:
    text = b"weight,object,subject,predicate\n1,b,a,r\n2,d,c,s\n"
    wanted = {"format": "csv", "header": True}
    assert facts(text, columns=["subject", "predicate", "object"], **wanted) == [("a", "r", "b"), ("c", "s", "d")]
    four = facts(text, columns=["subject", "predicate", "object"], extra="weight", **wanted)
    assert four == [("a", "r", "b", "1"), ("c", "s", "d", "2")]
    assert facts(b"1\tb\ta\tr\n", columns=[3, "4", 2]) == [("a", "r", "b")]
    assert "'weight'" in failure(text, **wanted).what
    assert "'subject'" in str(failure(text, columns=["s", "p", "o"], **wanted).remedy)
    assert facts(b"o\tp\ts\nb\tr\ta\n", columns=["s", "p", "o"]) == [("a", "r", "b")]  # names imply a header
    assert "'a', 'r', 'b'" in str(failure(b"a\tr\tb\n", columns=["s", "p", "o"]).remedy)
    assert "1 to 3" in str(failure(b"a\tr\tb\n", columns=[1, 2, 4]).remedy)
    assert failure(b"h,r,t\na,r\n", **wanted).where == "<stream>:2"
    assert facts(b"tail\thead\trelation\nb\ta\tr\n", header=True) == [("a", "r", "b")]
    assert "twice" in failure(b"a\tr\tb\n", columns=[1, 1, 2]).what


# ---------------------------------------------------------------- quotes


def test_csv_quotes() -> None:
    text = b'"a, b","say ""hi""","two\r\nlines"\r\nc,"",d\r\n'
    assert failure(text, format="csv").where == "<stream>:3"
    read = read_triples(io.BytesIO(text), ReadOptions(format="csv", skip_bad=True))
    assert read.frame.rows() == [("a, b", 'say "hi"', "two\r\nlines")]
    assert read.report.problems[0].reason == "the relation is empty"


STRAY = {
    b'a,r,b\nc,r"x,d\ne,r,f\n': 2,
    b'a,r,b\nc,"r,d\ne,r,f\n': 2,
    b'a,r,b\nc,"r"x,d\n"e",r,f\n': 2,
    b'a,"r,b\nc,"r",d\ne,r,f\n': 1,
    b'"a\n",r,b\nc,r,"d\ne,r,f\n': 3,
    b'a,r,b\n"': 2,
    b'a,r,b\nc,r"\0\xff,d\n"e",r,f\n': 2,
}


@pytest.mark.parametrize("text", STRAY)
def test_a_stray_quote_swallows_no_row(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    error = failure(text, format="csv")
    assert error.where == f"<stream>:{STRAY[text]}"
    assert "quote" in error.what
    whole = read_triples(io.BytesIO(text), ReadOptions(format="csv", skip_bad=True))
    assert whole.report.skipped == 1
    assert balanced(whole.report)
    for size in (1, 2, 3, 7):
        monkeypatch.setattr(pages, "BLOCK", size)
        again = read_triples(io.BytesIO(text), ReadOptions(format="csv", skip_bad=True))
        assert again.frame.equals(whole.frame)
        assert again.report == whole.report


def test_a_quote_open_for_too_long_is_stray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "BLOCK", 64)
    monkeypatch.setattr(pages, "LONGEST", 100)
    text = b'a,"r,b\n' + b"".join(b"%d,r,x\n" % i for i in range(200)) + b'c,"r",d\n'
    read = read_triples(io.BytesIO(text), ReadOptions(format="csv", skip_bad=True))
    assert (read.report.kept, read.report.skipped) == (201, 1)
    assert failure(text, format="csv").where == "<stream>:1"
    for form in ("tsv", "csv"):
        assert "not a text file" in str(failure(b"x" * 1000, format=form, skip_bad=True).remedy)
    assert "not a text file" in str(failure(b'"' + b"x" * 1000, format="csv", skip_bad=True).remedy)


# ---------------------------------------------------------------- files


def test_missing_file_folder_unknown_format(tmp_path: Path) -> None:
    for source, options, words in [
        (tmp_path / "none.tsv", {}, "no such file"),
        (tmp_path, {}, "is a folder"),
        (tmp_path, {"format": "tsv"}, "is a folder"),
        (tmp_path / "g.doc", {}, "extension '.doc' is unknown"),
        (put(tmp_path, b"a\tb\tc\n"), {"format": "xls"}, "no format is called 'xls'"),
        ("nul\0.tsv", {}, "cannot be read"),
        (io.StringIO("a\tb\tc"), {}, "cannot read facts from StringIO"),
        (42, {}, "cannot read facts from int"),
        (put(tmp_path, b"a\tb\tc\n"), {"literals": "maybe"}, "literals"),
        (put(tmp_path, b"a\tb\tc\n"), {"extra": "head"}, "cannot be called"),
        (put(tmp_path, b"a\tb\tc\n"), {"columns": [1, 2]}, "2 columns"),
    ]:
        with pytest.raises(TriplesError) as caught:
            read_triples(source, ReadOptions(**options))  # type: ignore[arg-type]
        assert words in caught.value.what
        assert caught.value.remedy
    with pytest.raises(TriplesError, match="no split"):
        read_triples(tmp_path / "g.tsv", split="dev")


@pytest.mark.parametrize(
    ("name", "form"),
    [("a.txt", "tsv"), ("a.TAB", "tsv"), ("a.csv.gz", "csv"), ("a.owl.xz", "rdf"), ("a.nq.zst", "nq"), ("-", "tsv")],
)
def test_format_by_extension(name: str, form: str) -> None:
    assert guess_format(name) == form


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_damaged_and_cut_short(tmp_path: Path, suffix: str) -> None:
    text = b"".join(b"%d\tr\t%d\n" % (i, i * i) for i in range(5000))
    packed = COMPRESS[suffix](text)
    assert read_triples(put(tmp_path, packed, f"a.tsv{suffix}")).report.kept == 5000
    assert len(facts(packed)) == 5000  # a stream has no name: known by how it begins
    assert len(facts(packed + COMPRESS[suffix](b"x\tr\ty\n"))) == 5001
    for damaged in (packed[:-1], packed[: len(packed) // 2], packed[:100] + b"\x55" * 50 + packed[150:], b"a\tb\tc\n"):
        path = put(tmp_path, damaged, f"b.tsv{suffix}")
        with pytest.raises(TriplesError, match=r"damaged or cut short"):
            read_triples(path)


def test_standard_input_and_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a,r,b\n")))
    assert read_triples("-", ReadOptions(format="csv")).report.source == "<stdin>"
    stream = io.BytesIO(b"a\tr\tb\n")
    assert read_triples(stream).report.source == "<stream>"
    assert not stream.closed
    stream.close()
    with pytest.raises(TriplesError, match="closed"):
        read_triples(stream)


def test_a_pipe_that_gives_little_at_a_time() -> None:
    reading, writing = os.pipe()

    def feed() -> None:
        with os.fdopen(writing, "wb", buffering=0) as pipe:
            for byte in gzip.compress(b"a\tr\tb\n"):
                pipe.write(bytes([byte]))
                time.sleep(0.0005)

    feeder = threading.Thread(target=feed)
    feeder.start()
    with os.fdopen(reading, "rb") as pipe:
        time.sleep(0.02)
        assert read_triples(pipe).frame.rows() == [("a", "r", "b")]
    feeder.join()


# ---------------------------------------------------------------- tables


def test_frames_and_arrays() -> None:
    rows = [("1", "r", "2"), ("3", "r", "4")]
    table = pl.DataFrame({"s": [1, 3], "p": ["r", "r"], "o": [2, 4]})
    assert read_triples(table).frame.rows() == rows
    assert read_triples(pd.DataFrame({"s": [1, 3], "p": ["r", "r"], "o": [2, 4]})).frame.rows() == rows
    assert read_triples(np.array(rows)).frame.rows() == rows
    assert read_triples(np.array(rows, dtype=object)).frame.rows() == rows
    assert read_triples(np.array([[1, 0, 2], [1, 0, 2]])).report.duplicates == 1
    assert read_triples(np.array([["é".encode(), b"r", b"b"]])).frame.rows() == [("é", "r", "b")]
    named = table.select(pl.col("o").alias("tail"), pl.col("p").alias("relation"), pl.col("s").alias("head"))
    assert read_triples(named).frame.rows() == rows
    assert read_triples(table, ReadOptions(columns=["o", "p", "s"])).frame.row(0) == ("2", "r", "1")


def test_bad_tables() -> None:
    holes = pd.DataFrame({"h": ["a", None, "c", "d"], "r": ["r", "r", "r", "r"], "t": ["b", "b", "", "e"]})
    with pytest.raises(TriplesError) as caught:
        read_triples(holes)
    assert (caught.value.where, caught.value.what) == ("<frame>, row 2", "the head is empty")
    read = read_triples(holes, ReadOptions(skip_bad=True))
    assert [p.line for p in read.report.problems] == [2, 3]
    assert balanced(read.report)
    for table, words in [
        (np.zeros(3), "shape (3,)"),
        (np.zeros((2, 2)), "2 columns"),
        (np.array([["a", "r", "b", "w"]]), "4 columns"),
        (pl.DataFrame({"h": [["a"]], "r": ["r"], "t": ["b"]}), "List"),
        (pl.DataFrame({"h": [b"\xff"], "r": ["r"], "t": ["b"]}), "cannot be read as text"),
        (pl.DataFrame({"h": ["\0"], "r": ["r"], "t": ["b"]}), "NUL"),
        (np.array([["\ud800", "r", "b"]], dtype=object), "not text"),
        (pl.DataFrame({"h": [], "r": [], "t": []}), "empty"),
        (np.array([["a", "r", float("nan")]], dtype=object), "row 1: the tail is empty"),
        (np.array([[1.0, 2.0, np.nan]]), "row 1: the tail is empty"),
        (pl.DataFrame({"h": [1.0, float("nan")], "r": ["r", "r"], "t": ["b", "c"]}), "row 2: the head is empty"),
        (np.array([["a", "r", b"b"]], dtype=object), "bytes"),
        (pd.DataFrame({"h": [b"a"], "r": ["r"], "t": ["b"]}), "bytes"),
        (np.array([[b"\xff", b"r", b"b"]]), "not text"),
        (np.array([["a", "r", pd.NA]], dtype=object), "not text"),
        (np.array([[1j, 2j, 3j]]), "not text"),
    ]:
        with pytest.raises(TriplesError) as caught:
            read_triples(table)
        assert words in str(caught.value)


def test_damaged_parquet(tmp_path: Path) -> None:
    write_triples(FRAME, tmp_path / "g.parquet")
    whole = (tmp_path / "g.parquet").read_bytes()
    for damaged in (b"", b"PAR1", whole[: len(whole) // 2], b"no" + whole, whole[:-1]):
        with pytest.raises(TriplesError, match="Parquet"):
            read_triples(put(tmp_path, damaged, "d.parquet"))


# ---------------------------------------------------------------- RDF

NT = (
    b'<a:b> <c:d> <e:f> .\n# comment\n_:x <c:d> "1"^^<x:int> .\n\n<a:b> <c:d> "\xc3\xbc\\n"@en .\n<a:b> <c:d> <e:f> .\n'
)


def test_literals_are_dropped_or_kept() -> None:
    read = read_triples(io.BytesIO(NT), ReadOptions(format="nt"))
    assert read.frame.rows() == [("a:b", "c:d", "e:f")]
    assert (read.report.literals_dropped, read.report.duplicates, read.report.rows_read) == (2, 1, 4)
    kept = read_triples(io.BytesIO(NT), ReadOptions(format="nt", literals="keep"))
    assert kept.frame["tail"].to_list() == ["e:f", '"1"^^<x:int>', '"ü\\n"@en']
    assert kept.frame["head"].to_list() == ["a:b", "_:x", "a:b"]
    assert "literals" in str(failure(b'<a:b> <c:d> "x" .\n', format="nt").remedy)


@pytest.mark.parametrize("form", ["nt", "nq", "ttl"])
def test_malformed_rdf_has_line_and_column(form: str) -> None:
    text = b"<a:b> <c:d> <e:f> .\n<a:b> foo <e:f> .\n<a:b> <c:d> <e:h> .\n"
    assert failure(text, format=form).where == "<stream>:2:7"
    if form == "ttl":  # no safe place to go on
        assert failure(text, format=form, skip_bad=True).where == "<stream>:2:7"
        return
    read = read_triples(io.BytesIO(text), ReadOptions(format=form, skip_bad=True))
    assert read.frame["tail"].to_list() == ["e:f", "e:h"]
    assert [(p.line, p.column) for p in read.report.problems] == [(2, 7)]
    assert balanced(read.report)


@pytest.mark.parametrize(
    "line",
    [b"<a:b> <c:d>", b'<a:b> <c:d> "open', b"\xff", b"<a:b> <c:d> \0 .", b"<a b> <c:d> <e:f> .", b"foo bar .", b"."],
)
def test_every_malformed_line_of_ntriples_is_one_row(line: bytes) -> None:
    lines = [b"<a:b> <c:d> <e:f> .", line, b"<a:b> <c:d> <e:g> .", line, b"<a:b> <c:d> <e:h> ."]
    read = read_triples(io.BytesIO(b"\n".join(lines)), ReadOptions(format="nt", skip_bad=True))
    assert read.frame["tail"].to_list() == ["e:f", "e:g", "e:h"]
    assert [p.line for p in read.report.problems] == [2, 4]


def test_named_graphs_are_a_fourth_column() -> None:
    text = b"<a:b> <c:d> <e:f> <g:1> .\n<a:b> <c:d> <e:f> <g:2> .\n<a:b> <c:d> <e:g> .\n"
    error = failure(text, format="nq")
    assert error.where == "<stream>:1"
    assert "extra='graph'" in str(error.remedy)
    read = read_triples(io.BytesIO(text), ReadOptions(format="nq", extra="graph"))
    assert read.frame.rows() == [("a:b", "c:d", "e:f", "g:1"), ("a:b", "c:d", "e:g", "")]
    assert read.report.duplicates == 1


def test_turtle_numbers_nodes_without_an_id() -> None:
    text = b"\xef\xbb\xbf@prefix e: <http://e/> .\ne:a e:p [ e:q e:b ] , [ e:q e:c ] , _:own ."
    wanted = {
        ("http://e/a", "_:kgem1"),
        ("_:kgem1", "http://e/b"),
        ("http://e/a", "_:kgem2"),
        ("_:kgem2", "http://e/c"),
    }
    for _ in range(2):
        rows = {(h, t) for h, _, t in facts(text, format="ttl")}
        assert rows == wanted | {("http://e/a", "_:own")}


XML = (
    b'<?xml version="1.0"?>\n<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="http://e/">\n'
    b'<rdf:Description rdf:about="http://a">\n <e:b rdf:resource="http://c"/><e:l>lit</e:l>\n</rdf:Description>\n</rdf:RDF>\n'
)


def test_rdf_xml_and_its_faults() -> None:
    read = read_triples(io.BytesIO(XML), ReadOptions(format="rdf"))
    assert read.frame.rows() == [("http://a", "http://e/b", "http://c")]
    assert read.report.literals_dropped == 1
    assert facts(b"\xef\xbb\xbf" + XML, format="rdf")
    for skip_bad in (False, True):
        options = {"format": "rdf", "skip_bad": skip_bad}
        assert failure(XML.replace(b'"http://c"', b'"no iri"'), **options).where == "<stream>:4:2"
        assert failure(XML.replace(b"</e:l>", b"</e:m>"), **options).where == "<stream>:4:42"
        assert "no element found" in failure(XML[:-12], **options).what  # cut short
        assert str(failure(XML.replace(b"lit", b"\xff"), **options).where).startswith("<stream>:4")


def test_rdf_has_no_columns_to_choose() -> None:
    assert "header" in failure(NT, format="nt", header=True).what
    assert "extra" in failure(NT, format="ttl", extra="weight").what
    assert "RDF 1.2" in failure(b"<a:b> <c:d> <<( <a:b> <c:d> <e:f> )>> .\n", format="nt").what
    for encoded in (b"", b"%00"):
        text = b"<urn:kgem:" + encoded + b"> <c:d> <e:f> .\n"
        assert "empty or has a NUL" in failure(text, format="nt").what
    assert facts(b"<urn:kgem:%FF> <c:d> <e:f> .\n", format="nt")[0][0] == "urn:kgem:%FF"


@pytest.mark.parametrize("form", ["nt", "nq", "ttl"])
def test_statements_nested_too_deep_for_the_parser(form: str) -> None:
    """It would overflow its stack, which ends the process."""
    deep = b"<a:b> <c:d> " + b"<<( <a:b> <c:d> " * 50_000 + b"<e:f>" + b" )>>" * 50_000 + b" ."
    assert "'<<'" in failure(b"<a:b> <c:d> <e:f> .\n" + deep, format=form).what
    if form != "ttl":
        read = read_triples(io.BytesIO(b"<a:b> <c:d> <e:f> .\n" + deep), ReadOptions(format=form, skip_bad=True))
        assert (read.report.kept, [problem.line for problem in read.report.problems]) == (1, [2])
    text = b"".join(b'<a:b> <c:d> "std::cout << %d << 1;" .\n' % i for i in range(2_000))
    assert read_triples(io.BytesIO(text), ReadOptions(format=form, literals="keep")).report.kept == 2_000


def test_entities_of_xml_cannot_grow_without_end() -> None:
    name = b"http://" + b"x" * 100
    declared = [b'<!ENTITY e0 "' + name + b'">']
    declared += [b'<!ENTITY e%d "%s">' % (i, b"&e%d;" % (i - 1) * 10) for i in range(1, 15)]
    bomb = XML.replace(b"<rdf:RDF", b"<!DOCTYPE rdf:RDF [" + b"\n".join(declared) + b"]>\n<rdf:RDF", 1)
    error = failure(bomb, format="rdf")
    assert "characters" in error.what
    assert str(error.where).startswith("<stream>:5:")
    modest = XML.replace(b"<rdf:RDF", b"<!DOCTYPE rdf:RDF [" + declared[0] + b"]>\n<rdf:RDF", 1)
    assert facts(modest.replace(b"http://c", b"&e0;"), format="rdf")[0][2] == name.decode()


# ---------------------------------------------------------------- OpenKE


def openke(folder: Path, train: bytes = b"2\n0 1 0\n1\t2 0\n") -> Path:
    put(folder, b"3\nParis\t0\nNew York\t1\nthe moon 2\n", "entity2id.txt")
    put(folder, b"1\r\ncapital of\t0\r\n", "relation2id.txt")
    put(folder, train, "train2id.txt")
    return folder


def test_openke_order_and_labels(tmp_path: Path) -> None:
    read = read_triples(openke(tmp_path))
    assert read.frame.rows() == [("Paris", "capital of", "New York"), ("New York", "capital of", "the moon")]
    assert guess_format(tmp_path) == "openke"
    with pytest.raises(TriplesError, match=r"no valid2id\.txt"):
        read_triples(tmp_path, split="valid")
    put(tmp_path, gzip.compress(b"1\n2 0 0\n"), "valid2id.txt.gz")
    assert read_triples(tmp_path, split="valid").frame.rows() == [("the moon", "capital of", "Paris")]


@pytest.mark.parametrize(
    ("train", "line", "words"),
    [
        (b"3\n0 1 0\n1 2 0\n", 1, "says 3 rows, but 2"),
        (b"0 1 0\n", 1, "number of rows"),
        (b"", 1, "number of rows"),
        (b"1\x1c\n0 1 0\n", 1, "number of rows"),
        (b"9" * 5000 + b"\n0 1 0\n", 1, "number of rows"),
        ("2\n0 1 0\n1 ٢ 0\n".encode(), 3, "not three ids"),
        (b"2\n0 1 0\n1 2\n", 3, "not three ids"),
        (b"2\n0 1 0\n1 2 x\n", 3, "not three ids"),
        (b"2\n0 1 0\n1 7 0\n", 3, "no entity has the id 7"),
        (b"2\n0 1 0\n1 2 5\n", 3, "no relation has the id 5"),
        (b"2\n0 1 0\n1 2 \xff\n", 3, "not UTF-8"),
        (b"2\n0 1 0\n1 2 \0\n", 3, "NUL"),
    ],
)
def test_bad_openke(tmp_path: Path, train: bytes, line: int, words: str) -> None:
    with pytest.raises(TriplesError, match=words) as caught:
        read_triples(openke(tmp_path, train))
    assert caught.value.where == f"{tmp_path / 'train2id.txt'}:{line}"
    if line > 1:
        report = read_triples(tmp_path, ReadOptions(skip_bad=True)).report
        assert (report.kept, report.skipped, report.rows_read) == (1, 1, 2)


@pytest.mark.parametrize(
    "entities", [b"1\nParis\n", b"2\nA\t0\nB\t0\n", b"2\nA\t0\nA\t1\n", b"1\n\t0\n", b"1\n\xff\t0\n"]
)
def test_bad_openke_vocabulary(tmp_path: Path, entities: bytes) -> None:
    put(openke(tmp_path), entities, "entity2id.txt")
    with pytest.raises(TriplesError, match=r"entity2id\.txt:[23]"):
        read_triples(tmp_path, ReadOptions(skip_bad=True))


def test_openke_splits_share_ids(tmp_path: Path) -> None:
    write_triples(FRAME, tmp_path, format="openke")
    more = pl.DataFrame({"head": ["é", "new"], "relation": ["_", "r9"], "tail": ["a b", "é"]})
    write_triples(more, tmp_path, format="openke", split="test")
    assert read_triples(tmp_path).frame.equals(FRAME)
    assert read_triples(tmp_path, split="test").frame.equals(more)


# ---------------------------------------------------------------- writing


@pytest.mark.parametrize("suffix", ["", *COMPRESS])
@pytest.mark.parametrize("form", FORMATS)
def test_what_is_written_comes_back(tmp_path: Path, form: str, suffix: str) -> None:
    path = tmp_path / f"g.{form}{suffix}"
    write_triples(FRAME, path)
    assert read_triples(path).frame.equals(FRAME)
    if suffix and form != "openke":
        assert path.read_bytes().startswith(files.CODECS[suffix].magic)
    assert [p.name for p in tmp_path.rglob(".*")] == []  # nothing temporary is left


@pytest.mark.parametrize("form", ["tsv", "csv", "parquet", "nq"])
def test_the_extra_column_comes_back(tmp_path: Path, form: str) -> None:
    frame = FRAME.with_columns(weight=pl.Series(["1", "", "x y"]))
    write_triples(frame, tmp_path / f"g.{form}")
    assert read_triples(tmp_path / f"g.{form}", ReadOptions(extra="weight")).frame.equals(frame)
    with pytest.raises(TriplesError, match=r"extra|4 columns|fourth"):
        read_triples(tmp_path / f"g.{form}")


def test_what_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "g.tsv"
    write_triples(FRAME, path)
    before = path.read_bytes()
    one = {"head": ["a", "b"], "relation": ["r", "r"], "tail": ["c", "d"]}
    for frame, name, words in [
        (pl.DataFrame(one | {"tail": ["c", "d\te"]}), "g.tsv", r"row 2 has a tab.*\n.*CSV or Parquet"),
        (pl.DataFrame(one | {"tail": ["c", "d\n"]}), "o.openke", r"line break.*\n.*CSV or Parquet"),
        (pl.DataFrame(one | {"tail": ["c", ""]}), "g.tsv", "row 2 has a label that is empty"),
        (pl.DataFrame(one | {"head": [None, "x"]}), "g.tsv", "row 1 has a label that is empty"),
        (pl.DataFrame(one | {"w": ["1", "2"]}), "g.nt", "cannot hold an extra column"),
        (pl.DataFrame(one | {"w": ["1", "2"]}), "g.openke", "cannot hold an extra column"),
        (pl.DataFrame(one | {"w": [1, 2], "v": [1, 2]}), "g.tsv", "at most one more"),
        (pl.DataFrame(one).drop("tail"), "g.tsv", "cannot write a frame"),
        (pl.DataFrame(one).head(0), "g.tsv", "no facts"),
        (pl.DataFrame(one), "none/g.tsv", "cannot be written"),
        (pl.DataFrame(one), "-", "'-'"),
        (pl.DataFrame(one), "g.tsv/x.openke", "cannot be made"),
    ]:
        with pytest.raises(TriplesError, match=words):
            write_triples(frame, name if name == "-" else tmp_path / name)
        assert path.read_bytes() == before
    with pytest.raises(TriplesError, match="is a folder"):
        write_triples(FRAME, tmp_path, format="tsv")


def test_an_interrupted_write_leaves_nothing(tmp_path: Path) -> None:
    for name in ("a.tsv", "a.tsv.gz", "a.tsv.xz", "a.tsv.zst"):
        with pytest.raises(KeyboardInterrupt), files.write_to(tmp_path / name) as stream:
            stream.write(b"half")
            raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_equal_facts_give_equal_files(tmp_path: Path) -> None:
    for suffix in ("", *COMPRESS):
        write_triples(FRAME, tmp_path / f"a.tsv{suffix}")
        write_triples(FRAME, tmp_path / f"b.tsv{suffix}")
        assert (tmp_path / f"a.tsv{suffix}").read_bytes() == (tmp_path / f"b.tsv{suffix}").read_bytes()


def test_fb15k_is_read_whole_without_a_loop_over_its_rows(benchmark_graphs: Path) -> None:
    read, steps = count_steps(lambda: read_triples(benchmark_graphs / "fb15k" / "train.txt"))
    assert (read.report.kept, read.report.duplicates) == (483_142, 0)
    assert read.frame["relation"].n_unique() == 1_345
    assert steps < read.report.kept / 10
