"""Facts as lines of text: TSV (no quoting at all) and CSV (quoted as in RFC 4180)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from kgem.data.formats.pages import BOM, decode_rows, read_pages
from kgem.data.formats.quoting import NUL_MARK, Page
from kgem.data.formats.recoding import open_text
from kgem.data.options import FACT
from kgem.data.rows import Intake, Layout, Problem, choose, width_reason, width_remedy
from kgem.data.streams import Source, write_to
from kgem.errors import TriplesError

__all__ = ["read_csv", "read_tsv", "write_csv", "write_tsv"]

SEPARATORS = {  # what may be between columns: its name, and how to say so
    "\t": ("a tab", "format='tsv' (--format tsv)"),
    ",": ("a comma", "format='csv' (--format csv)"),
    ";": ("a semicolon", "delimiter=';' (--delimiter ';')"),
    "|": ("a bar", "delimiter='|' (--delimiter '|')"),
    " ": ("a space", "delimiter=' ' (--delimiter ' ')"),
}


def read_tsv(source: Source, intake: Intake) -> None:
    """Rows end with a newline, fields with a tab; quotes and '#' are letters like any other."""
    with open_text(source, intake) as stream:
        _take_pages(read_pages(stream, intake), intake, separator=intake.options.delimiter or "\t")


def read_csv(source: Source, intake: Intake) -> None:
    """Fields end with a comma; a field in double quotes may hold commas, newlines and doubled quotes."""
    separator = intake.options.delimiter or ","
    if len(separator.encode()) > 1:
        what = f"CSV cannot have {separator!r} between its columns"
        raise TriplesError(what, where=intake.source, remedy="one ASCII character, or no quoting at all: --format tsv")
    with open_text(source, intake) as stream:
        _take_pages(read_pages(stream, intake, quotes=True, separator=separator.encode()), intake, separator)


def write_tsv(frame: pl.DataFrame, target: Path) -> None:
    """Labels as they are; a label with a tab or a line break is an error, for TSV cannot hold it."""
    for column in frame:
        broken = column.str.contains(r"[\t\n\r]").arg_true()
        if len(broken):
            row = int(broken[0])
            what = f"the {column.name} of row {row + 1} has a tab or a line break: {column[row]!r}"
            raise TriplesError(what, where=str(target), remedy="TSV cannot hold it: write CSV or Parquet instead")
    with write_to(target) as stream:
        if frame["head"][0].startswith("\ufeff"):
            stream.write(BOM)  # a reader takes the first one away
        frame.write_csv(stream, include_header=False, separator="\t", quote_style="never", null_value="")


def write_csv(frame: pl.DataFrame, target: Path) -> None:
    """Every field in quotes: nothing in a label can be taken for anything else."""
    with write_to(target) as stream:
        frame.with_columns(pl.all().fill_null("")).write_csv(stream, include_header=False, quote_style="always")


def _take_pages(pages: Iterator[Page], intake: Intake, separator: str) -> None:
    layout: Layout | None = None
    for page in pages:
        if layout is None and page.rows:
            layout = _layout(page, intake, separator)
            page = page.without_first() if intake.options.has_header else page
        if layout is not None and page.rows:
            _take(page, intake, layout, separator)


def _layout(page: Page, intake: Intake, separator: str) -> Layout:
    """From the header, from the first row if columns are chosen by number, else head, relation, tail."""
    options = intake.options
    n_names = len(options.names)
    if options.columns is None and not options.has_header:
        return Layout(n_names, tuple(range(n_names)), options.names)
    first = _slow_fields(page, 0, separator)
    if isinstance(first, Problem):
        raise intake.error(first, may_skip=False)
    if len(first) == 1:
        problem = Problem(page.line(0), "1 column in the first row", _other_separator(page.rows[0], None, separator))
        raise intake.error(problem, may_skip=False)
    names = first if options.has_header else None
    return choose(len(first), names, intake, f"{intake.source}:{page.line(0)}")


def _take(page: Page, intake: Intake, layout: Layout, separator: str) -> None:
    """Split, check and hand over all rows of a page at once."""
    text = decode_rows(page.rows)
    if page.has_cr:
        text = text.str.strip_suffix("\r")
    fields = text.str.split_exact("\0" if page.quoted else separator, layout.width).struct.unnest()
    if page.quoted:
        fields = fields.with_columns(_unquote(column) for column in fields.columns)
    chosen = [f"field_{place}" for place in layout.places]
    right_width = pl.col(f"field_{layout.width - 1}").is_not_null() & pl.col(f"field_{layout.width}").is_null()
    not_empty = pl.all_horizontal(pl.col(column) != "" for column in chosen[: len(FACT)])
    good = fields.select((right_width & not_empty).fill_null(False)).to_series()
    if page.has_nul:
        good &= ~text.str.contains("\0", literal=True).fill_null(True)
    bad = (~good).arg_true()
    if len(bad):
        problems = (_problem(page, int(row), layout, separator) for row in bad)
        intake.reject(problems, len(bad))
        fields = fields.filter(good)
    intake.keep(fields.select(pl.col(c).alias(n) for c, n in zip(chosen, layout.names, strict=True)))


def _unquote(column: str) -> pl.Expr:
    field = pl.col(column)
    inner = field.str.strip_prefix('"').str.strip_suffix('"').str.replace_all('""', '"', literal=True)
    return pl.when(field.str.starts_with('"')).then(inner).otherwise(field)


def _slow_fields(page: Page, row: int, separator: str) -> list[str] | Problem:
    """One row, the obvious way: its fields, or why it has none. For headers and for what is wrong."""
    line, raw = page.line(row), page.rows[row]
    if row in page.stray:
        return Problem(line, page.stray[row], 'write a quote inside a label as "" and put the label in quotes')
    if (NUL_MARK if page.quoted else b"\0") in raw:
        return Problem(line, "a NUL byte", "save the file as plain text in UTF-8; text in UTF-16: --encoding utf-16")
    try:
        text = raw.decode().removesuffix("\r")
    except UnicodeDecodeError as error:
        what = f"byte {error.start + 1} of the row is not UTF-8 (0x{raw[error.start]:02x})"
        return Problem(line, what, "save the file as UTF-8, or name its encoding, as in encoding='cp1252' (--encoding)")
    if not text:
        return Problem(line, "a blank line", "remove it")
    fields = text.split("\0" if page.quoted else separator)
    if page.quoted:
        fields = [f[1:-1].replace('""', '"') if f.startswith('"') else f for f in fields]
    return fields


def _problem(page: Page, row: int, layout: Layout, separator: str) -> Problem:
    fields = _slow_fields(page, row, separator)
    if isinstance(fields, Problem):
        return fields
    if len(fields) != layout.width:
        remedy = width_remedy(len(fields), layout.width)
        if len(fields) == 1:
            remedy = _other_separator(page.rows[row], layout.width, separator) or remedy
        return Problem(page.line(row), width_reason(len(fields), layout.width), remedy)
    empty = [name for name, place in zip(FACT, layout.places, strict=False) if not fields[place]]
    return Problem(page.line(row), f"the {empty[0]} is empty", "give it a label")


def _other_separator(row: bytes, width: int | None, separator: str) -> str:
    """What to do about a row in one piece: name what is between its columns, if that can be seen."""
    text = row.decode(errors="replace")
    for other, (one, remedy) in SEPARATORS.items():
        parts = len(text.split(other))
        if other != separator and (parts == width or (width is None and parts >= len(FACT))):
            return f"{one} seems to be between its columns: {remedy}"
    return f"each row needs its columns with {SEPARATORS.get(separator, (repr(separator), ''))[0]} between them"
