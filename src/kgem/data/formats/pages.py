"""Reads text in large blocks and hands it on as pages of whole rows, for all formats that are made of lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

import polars as pl
from polars.exceptions import ComputeError

from kgem.data.formats.quoting import Page, quoted_page
from kgem.data.rows import Intake, Problem

__all__ = ["BOM", "decode_rows", "read_pages"]

BLOCK = 1 << 24  # bytes taken in at a time
LONGEST = 1 << 24  # bytes of one row; more is not a table of facts, and bounds the memory
MOST_LINES = 1 << 20  # of a page: short ones take far more memory as rows than as text
BOM = b"\xef\xbb\xbf"


def _buffers(stream: IO[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Blocks of a stream, without the byte order mark, and whether it was the last."""
    start = stream.read(BLOCK)
    while 0 < len(start) < len(BOM) and (more := stream.read(BLOCK)):
        start += more
    block = start.removeprefix(BOM)
    while following := stream.read(BLOCK):
        yield block, False
        block = following
    yield block, True


def read_pages(stream: IO[bytes], intake: Intake, *, quotes: bool = False, separator: bytes = b",") -> Iterator[Page]:
    """Each line is a row; with `quotes`, as in CSV, a row ends with a newline that is not between quotes."""
    rest, line = b"", 1
    for block, final in _buffers(stream):
        text = rest + block if rest else block
        text, blank = _split_blank_end(text)  # blank lines at the end of a file are no rows
        if len(blank) > LONGEST:  # too many to be held back until it is known whether that is the end
            text, blank = text + blank, b""
        if quotes and b'"' in text:
            page, end = quoted_page(text, line, final, len(text) > LONGEST + BLOCK, separator)
            line += page.n_lines
            yield page
        else:
            end = len(text) if final else text.rfind(b"\n") + 1
            for few in _cut_lines(text[:end]):
                page = Page.of_lines(few, line)
                line += page.n_lines
                yield page
        rest = text[end:] + blank
        if len(rest) > (LONGEST + BLOCK if quotes and b'"' in rest else LONGEST):
            problem = Problem(line, f"a line of more than {LONGEST >> 20} MiB", "this is not a text file of facts")
            raise intake.error(problem, may_skip=False)


def _cut_lines(text: bytes) -> Iterator[bytes]:
    """The text in pieces that end with a newline, none with more than so many."""
    if text.count(b"\n") <= MOST_LINES:
        yield text
        return
    half = len(text) // 2
    middle = text.rfind(b"\n", 0, half) + 1 or text.find(b"\n", half) + 1
    yield from _cut_lines(text[:middle])
    yield from _cut_lines(text[middle:])


def _split_blank_end(text: bytes) -> tuple[bytes, bytes]:
    """Text up to the end of its last line that is not blank, and the blank lines after it."""
    end = len(text.rstrip(b" \r\n"))
    if end:
        newline = text.find(b"\n", end)
        end = newline + 1 if newline >= 0 else len(text)
    return text[:end], text[end:]


def decode_rows(rows: list[bytes]) -> pl.Series:
    """Text, null where the bytes are not UTF-8."""
    try:
        return pl.Series("row", rows, dtype=pl.Binary).cast(pl.String)
    except ComputeError:
        return pl.Series("row", [_decode(row) for row in rows], dtype=pl.String)


def _decode(row: bytes) -> str | None:
    try:
        return row.decode()
    except UnicodeDecodeError:
        return None
