"""Text cut into rows: at every newline, or for CSV at those that RFC 4180's quotes leave outside."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

__all__ = ["NUL_MARK", "Page", "quoted_page"]

Positions = npt.NDArray[np.int64]

NUL_MARK = b"\xfd"  # stands for a NUL in a quoted page, where NUL itself separates fields
_ROW_END = b"\xff"  # like NUL_MARK a byte that UTF-8 never has
# 0xff and 0xfd of the input itself become 0xfe: not UTF-8 either, so the row stays as bad as it is.
_FREE_MARKS = bytes.maketrans(b"\x00\xfd\xff", NUL_MARK + b"\xfe\xfe")


@lru_cache
def _row_patterns(separator: bytes) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """A whole row, and one whose quote may still be closed; the separator is one byte."""
    end = re.escape(separator)
    bare = rb'[^"\n' + end + rb"]*+"
    field = rb'(?:"(?:[^"]++|"")*+"|' + bare + rb")"
    before = rb"(?:" + field + end + rb")*+"
    begun = before + rb'(?:"(?:[^"]++|"")*+"?+\r?+|' + bare + rb")\Z"
    return re.compile(before + field + rb"(?:\r?\n|\r?\Z)"), re.compile(begun)


@dataclass(frozen=True)
class Page:
    """Rows of text that were read together."""

    rows: list[bytes]
    n_lines: int  # newlines in the text they came from
    first_line: int
    lines: Positions | None = None  # (n_rows,) newlines before each row; None: one line, one row
    quoted: bool = False  # then NUL separates the fields, and fields still have their quotes
    has_cr: bool = False
    has_nul: bool = False
    stray: dict[int, str] = field(default_factory=dict)  # rows (left blank) whose quotes are wrong, and why

    @classmethod
    def of_lines(cls, text: bytes, first_line: int) -> Page:
        """Each line is a row; what follows the last newline is one if there is anything."""
        rows = text.split(b"\n")
        n_lines = len(rows) - 1
        if not rows[-1]:
            rows.pop()
        return cls(rows, n_lines, first_line, has_cr=b"\r" in text, has_nul=b"\0" in text)

    def line(self, row: int) -> int:
        """The line a row begins on."""
        return self.first_line + (row if self.lines is None else int(self.lines[row]))

    def without_first(self) -> Page:
        """The same page without its first row, the header."""
        lines = np.arange(len(self.rows)) if self.lines is None else self.lines
        stray = {row - 1: why for row, why in self.stray.items() if row}
        return replace(self, rows=self.rows[1:], lines=lines[1:], stray=stray)


def quoted_page(
    text: bytes, first_line: int, final: bool, give_up: bool = False, separator: bytes = b","
) -> tuple[Page, int]:
    """The complete rows at the start of a text with quotes, and where they end; at the end all are complete.

    `give_up` takes a quote that the first row opened and did not close so far as a stray one.
    """
    quotes = np.flatnonzero(_bytes(text) == ord('"'))
    if _is_well_quoted(text, quotes, separator) and not ((final or give_up) and len(quotes) % 2):
        end = len(text) if final else _last_row_end(text, quotes)
        return _cut(text[:end], quotes[quotes < end], first_line, {}, separator), end
    repaired, stray, end = _repair(text, final, give_up, separator)
    quotes = np.flatnonzero(_bytes(repaired) == ord('"'))
    return _cut(repaired, quotes, first_line, stray, separator), end


def _bytes(text: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(text, dtype=np.uint8)


def _is_well_quoted(text: bytes, quotes: Positions, separator: bytes) -> bool:
    """Every other quote opens a field, or doubles the quote before it; the others close one, or are doubled."""
    padded = np.concatenate([_bytes(b"\n"), _bytes(text), _bytes(b"\n\n")])
    before = padded[quotes[0::2]]
    after, next_after = padded[quotes[1::2] + 2], padded[quotes[1::2] + 3]
    edges = _bytes(separator + b'\n"')
    opens = np.isin(before, edges)
    closes = np.isin(after, edges) | ((after == ord("\r")) & (next_after == ord("\n")))
    return bool(opens.all() and closes.all())


def _outside(positions: Positions, quotes: Positions) -> Positions:
    """Those with an even number of quotes before them."""
    outside: Positions = positions[np.searchsorted(quotes, positions) % 2 == 0]
    return outside


def _last_row_end(text: bytes, quotes: Positions) -> int:
    ends = _outside(np.flatnonzero(_bytes(text) == ord("\n")), quotes)
    return int(ends[-1]) + 1 if len(ends) else 0


def _cut(text: bytes, quotes: Positions, first_line: int, stray: dict[int, str], separator: bytes) -> Page:
    """Well quoted text into rows, with NUL between their fields."""
    newlines = np.flatnonzero(_bytes(text) == ord("\n"))
    ends = _outside(newlines, quotes)
    between = _outside(np.flatnonzero(_bytes(text) == ord(separator)), quotes)
    marked = bytearray(text.translate(_FREE_MARKS))
    view = np.frombuffer(marked, dtype=np.uint8)
    view[between] = 0
    view[ends] = _ROW_END[0]
    rows = bytes(marked).split(_ROW_END)
    starts = np.concatenate([[0], ends + 1])
    if not rows[-1]:
        rows.pop()
        starts = starts[:-1]
    lines = np.searchsorted(newlines, starts)
    return Page(rows, len(newlines), first_line, lines, quoted=True, has_cr=b"\r" in text, stray=stray)


def _repair(text: bytes, final: bool, give_up: bool, separator: bytes) -> tuple[bytes, dict[int, str], int]:
    """Row by row, the obvious way: a line whose quotes are wrong becomes blank, and reading goes on after it."""
    rows: list[bytes] = []
    stray: dict[int, str] = {}
    whole, open_ended = _row_patterns(separator)
    at = 0
    while at < len(text):
        row = whole.match(text, at)
        if row and (final or row.group().endswith(b"\n")):
            rows.append(row.group())
            at = row.end()
            continue
        begun = bool(open_ended.match(text, at))
        newline = text.find(b"\n", at)
        may_go_on = (begun and not (give_up and at == 0)) or newline < 0
        if may_go_on and not final:
            break
        stray[len(rows)] = "a quote is opened and never closed" if begun else "a stray double quote"
        rows.append(b"\n")
        at = newline + 1 if newline >= 0 else len(text)
    return b"".join(rows), stray, at
