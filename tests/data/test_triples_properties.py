"""Whatever the labels, writing and reading gives them back; whatever the bytes, no row is lost unreported."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import polars as pl
import pyoxigraph as ox
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kgem.data.formats import pages
from kgem.data.options import ReadOptions
from kgem.data.triples import FORMATS, Triples, read_triples, write_triples
from kgem.errors import TriplesError

TEXT_FORMATS = ["tsv", "csv", "nt", "nq", "ttl", "rdf"]
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
ANY = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
TRICKY = [
    *("http://x/é", "http://x/123", "http://x/a&b", "a:b", "_:n1", "_:0", "_:kgem1", "_:" + "ab" * 16),
    *("urn:kgem:%20", "urn:kgem:~r", "~r", "a~r", '"', '"a"@en', "'", " ", "#", "-", "<a>", "]]>"),
    *("\ufeffx", "null", "NaN", "x" * 40, "xml:lang", "http://www.w3.org/2000/xmlns/x"),
    *(RDF + name for name in ("type", "li", "Description", "_1")),
]
LABELS = st.one_of(st.text(ANY, min_size=1, max_size=8), st.sampled_from(TRICKY))
LINE_LABELS = LABELS.filter(lambda label: not set("\t\n\r") & set(label))


def frames(labels: st.SearchStrategy[str]) -> st.SearchStrategy[pl.DataFrame]:
    rows = st.lists(st.tuples(labels, labels, labels), min_size=1, max_size=6, unique=True)
    return rows.map(
        lambda r: pl.DataFrame(r, schema=dict.fromkeys(("head", "relation", "tail"), pl.String), orient="row")
    )


def there_and_back(frame: pl.DataFrame, form: str, suffix: str = "") -> Triples:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"g.{form}{suffix}"
        write_triples(frame, path)
        return read_triples(path)


@pytest.fixture(autouse=True, scope="module")
def without_trial_processes() -> Iterator[None]:
    """Parquet files of our own are decoded here at once: test_parquet.py has the processes that try others first."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("kgem.data.formats.parquet_trial._trial", lambda content: None)
        patched.setattr("os.fsync", lambda handle: None)  # that all is on disk is tested elsewhere, and slow
        yield


@pytest.mark.parametrize("form", FORMATS)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_written_facts_come_back(form: str, data: st.DataObject) -> None:
    frame = data.draw(frames(LINE_LABELS if form in ("tsv", "openke") else LABELS))
    read = there_and_back(frame, form)
    assert set(read.frame.rows()) == set(frame.rows())
    if form not in ("ttl", "rdf"):
        assert read.frame.equals(frame)  # in the same order, too
    assert (read.report.kept, read.report.rows_read) == (len(frame), len(frame))


QUOTED = st.one_of(
    st.sampled_from(
        ['"a"', '"a"@en', '"a"@EN', '"a" . # b', '"1"^^<http://www.w3.org/2001/XMLSchema#integer>', '"\\r"']
    ),
    st.sampled_from(
        ['"a"@en--ltr', '"<b>"^^<http://www.w3.org/1999/02/22-rdf-syntax-ns#XMLLiteral>', '""', '" "', '"']
    ),
    st.sampled_from(['"true"^^<http://www.w3.org/2001/XMLSchema#boolean>', '"x"^^<a>', '"x"^^<http://www.w3.org/a b>']),
    st.text(ANY, max_size=6).map(lambda text: f'"{text}"'),
    st.text(ANY, max_size=6).map(lambda text: str(ox.Literal(text))),
    st.text(ANY, max_size=6).map(lambda text: str(ox.Literal(text, language="de"))),
)


@pytest.mark.parametrize("form", ["nt", "nq", "ttl", "rdf"])
@given(frame=frames(st.one_of(QUOTED, LABELS)))
@settings(max_examples=60, deadline=None)
def test_literals_come_back_as_the_same_labels(form: str, frame: pl.DataFrame) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"g.{form}"
        write_triples(frame, path, literals=True)
        kept = read_triples(path, ReadOptions(literals="keep"))
        assert set(kept.frame.rows()) == set(frame.rows())
        assert kept.report.kept == kept.report.rows_read == len(frame)


@given(
    frame=frames(LABELS), suffix=st.sampled_from([".gz", ".xz", ".zst"]), form=st.sampled_from(["csv", "nt", "parquet"])
)
@settings(max_examples=20, deadline=None)
def test_compressed_facts_come_back(frame: pl.DataFrame, suffix: str, form: str) -> None:
    assert there_and_back(frame, form, suffix).frame.equals(frame)


@given(frame=frames(LABELS))
@settings(max_examples=40, deadline=None)
def test_tsv_holds_a_label_or_refuses_it(frame: pl.DataFrame) -> None:
    fits = not any(set("\t\n\r") & set(label) for row in frame.rows() for label in row)
    if fits:
        assert there_and_back(frame, "tsv").frame.equals(frame)
    else:
        with pytest.raises(TriplesError, match="CSV or Parquet"):
            there_and_back(frame, "tsv")


def balanced(read: Triples) -> bool:
    report = read.report
    parts = report.kept + report.duplicates + report.skipped + report.literals_dropped + report.names
    return report.rows_read == parts and report.kept == len(read.frame)


def strung(*pieces: bytes) -> st.SearchStrategy[bytes]:
    return st.lists(st.sampled_from(pieces)).map(b"".join)


BYTES = st.one_of(
    st.binary(max_size=60),
    strung(b"a", b"\t", b"\n", b"\r\n", b",", b'"', b"\0", b"\xff", b"\xc3\xbc", b" ", b"\xef\xbb\xbf"),
    strung(b"<a:b>", b" ", b".", b"\n", b'"', b"_:x", b"\\", b"@en", b"^^", b"[", b"]", b";", b"\xff"),
    strung(b"<a:b> <c:d> <e:f> .\n", b'<a:b> <c:d> "x" .\n', b"<a:b> <c:d> .\n", b"<a:b> ; <c:d>\n"),
    strung(b"a\tr\tb\n", b"a\tr\n", b"a\tr\tb\tc\n", b"\n", b"a\t\tb\r\n", b"c\tr\td\r\n"),
    strung(b"a,r,b\n", b'"a",r,b\n', b'a,"r\n",b\n', b'a"r,b\n', b'"a,r,b\n', b'c,r,"d"\r\n'),
    strung(b"<?xml?>", b"<rdf:RDF>", f'<r:RDF xmlns:r="{RDF}">'.encode(), b"<r:li/>", b"</r:RDF>", b"&x;"),
)
SIZES = st.sampled_from([1, 3, 10, 1 << 20])  # of the blocks that are read: no row may depend on them


@pytest.mark.parametrize("form", [*TEXT_FORMATS, "parquet"])
@pytest.mark.parametrize("skip_bad", [False, True])
@given(content=BYTES, size=SIZES)
@settings(max_examples=40, deadline=None)
@example(content=b'a,r,b\n"', size=1)
def test_any_bytes_are_read_or_refused(form: str, skip_bad: bool, content: bytes, size: int) -> None:
    with patch.object(pages, "BLOCK", size):
        try:
            read = read_triples(io.BytesIO(content), ReadOptions(format=form, skip_bad=skip_bad))
        except TriplesError as error:
            assert error.where
            assert error.what
            return
    assert balanced(read)
    assert skip_bad or not read.report.skipped


def slow_tsv(content: bytes) -> tuple[list[tuple[str, ...]], list[int]]:
    """Line by line, the obvious way: the facts, and the numbers of the lines that are none."""
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    while lines and not lines[-1].strip(b" \r"):  # blank lines at the end are no rows
        lines.pop()
    rows, bad = [], []
    for number, line in enumerate(lines, start=1):
        try:
            fields = line.removesuffix(b"\r").decode().split("\t")
        except UnicodeDecodeError:
            fields = []
        if len(fields) == 3 and all(fields) and b"\0" not in line:
            rows.append(tuple(fields))
        else:
            bad.append(number)
    return rows, bad


@given(content=BYTES, size=SIZES)
@settings(max_examples=200, deadline=None)
def test_tsv_agrees_with_reading_line_by_line(content: bytes, size: int) -> None:
    rows, bad = slow_tsv(content)
    with patch.object(pages, "BLOCK", size):
        if not rows:
            with pytest.raises(TriplesError):
                read_triples(io.BytesIO(content), ReadOptions(skip_bad=True))
            return
        read = read_triples(io.BytesIO(content), ReadOptions(skip_bad=True))
    assert read.frame.rows() == list(dict.fromkeys(rows))
    assert [problem.line for problem in read.report.problems] == bad[:100]
    assert read.report.rows_read == len(rows) + len(bad)
    assert read.report.duplicates == len(rows) - len(set(rows))


ROWS = st.lists(st.lists(st.text(ANY, max_size=5), min_size=1, max_size=5), min_size=1, max_size=6)


@given(rows=ROWS, quote_all=st.booleans(), size=SIZES)
@settings(max_examples=120, deadline=None)
def test_csv_agrees_with_the_standard_library(rows: list[list[str]], quote_all: bool, size: int) -> None:
    out = io.StringIO(newline="")
    csv.writer(out, quoting=csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL).writerows(rows)
    text = out.getvalue()
    good = [tuple(row) for row in csv.reader(io.StringIO(text, newline=""), strict=True) if len(row) == 3 and all(row)]
    if text.startswith("\ufeff"):
        return  # taken for a byte order mark
    with patch.object(pages, "BLOCK", size):
        try:
            read = read_triples(io.BytesIO(text.encode()), ReadOptions(format="csv", skip_bad=True))
        except TriplesError:
            assert not good
            return
    assert read.frame.rows() == list(dict.fromkeys(good))
    while not quote_all and len(rows[-1]) == 1 and rows[-1][0] and not rows[-1][0].strip(" "):
        rows = rows[:-1]  # a row of spaces alone, at the end, is a blank line
    assert read.report.rows_read == len(rows)
    assert balanced(read)


@given(content=BYTES)
@settings(max_examples=40, deadline=None)
def test_any_bytes_as_openke(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("entity2id.txt", "relation2id.txt"):
            (Path(folder) / name).write_bytes(b"1\na\t0\n")
        (Path(folder) / "train2id.txt").write_bytes(content)
        with pytest.raises(TriplesError):
            read_triples(folder, ReadOptions(skip_bad=True))
        (Path(folder) / "train2id.txt").write_bytes(b"1\n0 0 0\n")
        (Path(folder) / "entity2id.txt").write_bytes(content)
        with pytest.raises(TriplesError):
            read_triples(folder, ReadOptions(skip_bad=True))
