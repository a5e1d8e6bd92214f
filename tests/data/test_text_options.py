"""Text files as people have them: other delimiters and encodings, blank lines at the end, columns mixed up."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgem.data.columns import find_mixed_columns
from kgem.data.dataset import Dataset
from kgem.data.formats import pages, recoding
from kgem.data.options import ReadOptions
from kgem.data.triples import read_triples
from kgem.errors import TriplesError

FACTS = [("a", "r", "b"), ("c", "r", "d")]


def facts(text: bytes, **options: object) -> list[tuple[str, ...]]:
    return read_triples(io.BytesIO(text), ReadOptions(**options)).frame.rows()  # type: ignore[arg-type]


@pytest.mark.parametrize("delimiter", [";", "|", " ", "::", ","])
def test_another_delimiter(delimiter: str) -> None:
    text = "\n".join(delimiter.join(fact) for fact in FACTS).encode()
    assert facts(text, delimiter=delimiter) == FACTS


def test_csv_with_semicolons_keeps_its_quotes() -> None:
    text = b'"a;b";r;"c\n""d"""\n"e, f";r;g\n'
    assert facts(text, format="csv", delimiter=";") == [("a;b", "r", 'c\n"d"'), ("e, f", "r", "g")]
    with pytest.raises(TriplesError, match="stray double quote"):
        facts(b'a;"r"x;b\n', format="csv", delimiter=";")
    with pytest.raises(TriplesError, match="cannot have '::'"):
        facts(b"a::r::b\n", format="csv", delimiter="::")


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-8", "UTF8", "utf-8-sig"])
@pytest.mark.parametrize("piece", [1, 3, 1 << 20])
def test_another_encoding(encoding: str, piece: int) -> None:
    text = "Zürich\tin\tSchweiz\nGenève\tin\tSchweiz\n"
    with patch.object(recoding, "PIECE", piece):
        read = facts(text.encode(encoding), encoding=encoding)
    assert read == [("Zürich", "in", "Schweiz"), ("Genève", "in", "Schweiz")]


def test_what_is_compressed_has_an_encoding_too(tmp_path: Path) -> None:
    path = tmp_path / "g.tsv.gz"
    path.write_bytes(gzip.compress("ä\tr\tö\n".encode("cp1252")))
    assert read_triples(path, ReadOptions(encoding="cp1252")).frame.rows() == [("ä", "r", "ö")]


def test_a_wrong_encoding_is_told_with_its_line() -> None:
    with pytest.raises(TriplesError, match=r"not text in ascii \(0xfc\)") as caught:
        facts(b"a\tr\tb\nZ\xfcrich\tin\tb\n", encoding="ascii")
    assert caught.value.where == "<stream>:2"
    with pytest.raises(TriplesError, match="not UTF-8") as caught:
        facts(b"Z\xfcrich\tin\tb\n")
    assert "--encoding" in str(caught.value.remedy)


@pytest.mark.parametrize("wrong", [{"delimiter": ""}, {"delimiter": '"'}, {"delimiter": "\n"}, {"encoding": "klingon"}])
def test_options_that_make_no_sense(wrong: dict[str, str]) -> None:
    with pytest.raises(TriplesError) as caught:
        ReadOptions(**wrong)
    assert caught.value.remedy


@pytest.mark.parametrize("given", [{"delimiter": ";"}, {"encoding": "latin-1"}])
def test_only_text_has_these_options(given: dict[str, str]) -> None:
    frame = pl.DataFrame(FACTS, schema=["head", "relation", "tail"], orient="row")
    with pytest.raises(TriplesError, match="has no"):
        read_triples(frame, ReadOptions(**given))
    with pytest.raises(TriplesError, match="has no"):
        facts(b"<a:b> <c:d> <e:f> .", format="nt", **given)


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\r\n\r\n", "\n \n  \n", "\n\n\n\r\n"])
@pytest.mark.parametrize("size", [1, 3, 1 << 20])
@pytest.mark.parametrize("form", ["tsv", "csv"])
def test_blank_lines_at_the_end_are_no_rows(end: str, size: int, form: str) -> None:
    text = "\n".join(("\t" if form == "tsv" else ",").join(fact) for fact in FACTS) + end
    with patch.object(pages, "BLOCK", size):
        read = read_triples(io.BytesIO(text.encode()), ReadOptions(format=form))
    assert read.frame.rows() == FACTS and read.report.rows_read == 2


@given(st.text(" \r\nab", max_size=12))
@settings(max_examples=60, deadline=None)
def test_where_the_blank_end_begins(text: str) -> None:
    """Against looking at each line."""
    start, blank = pages._split_blank_end(text.encode())
    lines = text.split("\n")
    while lines and not lines[-1].strip(" \r"):
        lines.pop()
    assert start + blank == text.encode()
    assert start.decode().split("\n")[: len(lines)] == lines and not blank.strip(b" \r\n")


@pytest.mark.parametrize(
    ("text", "form", "remedy"),
    [
        (b"a,r,b\n", "tsv", "--format csv"),
        (b"a\tr\tb\n", "csv", "--format tsv"),
        (b"a;r;b\n", "csv", "--delimiter ';'"),
        (b"a r b\n", "tsv", "--delimiter ' '"),
        (b"a|r|b\n", "tsv", r"--delimiter '|'"),
        (b"abc\n", "tsv", "a tab between them"),
    ],
)
def test_a_file_with_another_delimiter_is_told_so(text: bytes, form: str, remedy: str) -> None:
    for options in ({}, {"header": True}):
        with pytest.raises(TriplesError, match="1 column") as caught:
            facts(text, format=form, **options)
        assert remedy in str(caught.value.remedy)


def mixed(n: int = 249) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "head": [f"p{i}" for i in range(n)],
            "relation": [f"r{i}" for i in rng.integers(0, 3, n)],
            "tail": [f"q{i}" for i in rng.integers(0, 60, n)],
        }
    )


def test_columns_that_are_mixed_up_are_a_finding() -> None:
    frame = mixed()
    assert find_mixed_columns(Dataset.from_frames(frame)) is None
    first = Dataset.from_frames(frame.rename({"head": "relation", "relation": "head"}))
    assert "249 relations for 249 facts" in str(find_mixed_columns(first))
    assert str(find_mixed_columns(first)).endswith("--columns 2,1,3")
    last = Dataset.from_frames(frame.rename({"tail": "relation", "relation": "tail"}))
    assert str(find_mixed_columns(last, ["s", "p", "o"])).endswith("--columns s,o,p")
    lone = Dataset.from_frames(frame.with_columns(relation=frame["head"], tail=frame["head"]))
    assert "has the file a column for it" in str(find_mixed_columns(lone))
    assert (
        find_mixed_columns(Dataset.from_frames(frame.rename({"head": "relation", "relation": "head"}).head(10))) is None
    )


def test_graphs_that_are_as_they_should_be_have_no_such_finding() -> None:
    assert find_mixed_columns(Dataset.load("world")) is None


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_page_has_few_lines_however_short_they_are(most: int) -> None:
    text = b"a\tr\tb\n" + b"\n" * 20 + b"c\tr\td\n\n\n"
    sizes = []
    with patch.object(pages, "MOST_LINES", most):
        for piece in pages._cut_lines(text):
            sizes.append(piece.count(b"\n"))
        assert b"".join(pages._cut_lines(text)) == text
        read = read_triples(io.BytesIO(text), ReadOptions(skip_bad=True))
    assert max(sizes) <= most and read.frame.rows() == [("a", "r", "b"), ("c", "r", "d")]
    assert read.report.skipped == 20 and [p.line for p in read.report.problems] == list(range(2, 22))


def test_blank_lines_without_end_are_bad_rows() -> None:
    """They cannot be held back for ever to see whether anything follows."""
    text = b"a\tr\tb\n" + b"\n" * 1000
    with patch.object(pages, "BLOCK", 64), patch.object(pages, "LONGEST", 100):
        with pytest.raises(TriplesError, match="a blank line"):
            read_triples(io.BytesIO(text), ReadOptions())
        assert read_triples(io.BytesIO(text), ReadOptions(skip_bad=True)).frame.rows() == [("a", "r", "b")]
