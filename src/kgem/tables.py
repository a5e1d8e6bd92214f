"""What is a table, as other programs have it: frames of polars and pandas, and a small HTML table for notebooks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from kgem.errors import KgemError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

__all__ = ["SHOWN", "Bar", "Rows", "Table", "draw_table", "format_number"]

SHOWN = 20  # rows of a table that a notebook shows
WIDTH = 120  # pixels of a bar
_CELL = "padding:1px 8px;text-align:{};border:0"
_LEFT, _RIGHT = (_CELL.format(side) for side in ("left", "right"))

T = TypeVar("T")
Cell = Any  # text, a number, None, or a Bar


class Bar:
    """A number between 0 and 1 as a bar, perhaps with a range around it, drawn to the scale of `full`."""

    def __init__(
        self, value: float | None, low: float | None = None, high: float | None = None, full: float = 1
    ) -> None:
        self.value, self.low, self.high, self.full = value, low, high, full

    def draw(self) -> str:
        if self.value is None or not math.isfinite(self.value):
            return ""
        place, start, stop = (self._pixels(x) for x in (self.value, self.low, self.high))
        parts = [_block(0, place, "#4c78a8", 4, 6)]
        if self.low is not None and self.high is not None:
            parts.append(_block(start, max(stop - start, 1), "#e08a3c", 10, 2))
        return f'<div style="position:relative;width:{WIDTH}px;height:14px">{"".join(parts)}</div>'

    def _pixels(self, x: float | None) -> int:
        return round(WIDTH * min(max((x or 0.0) / (self.full or 1.0), 0.0), 1.0))


class Table:
    """Rows with the names of their columns; a class with `to_polars` has all of it."""

    def to_polars(self) -> pl.DataFrame:
        """The table as a frame of polars."""
        raise NotImplementedError

    def to_pandas(self) -> pd.DataFrame:
        """The table as a frame of pandas, which has to be installed."""
        try:
            import pandas as pd
        except ImportError as error:
            remedy = "pip install pandas; or take polars, which is there: .to_polars()"
            raise KgemError("pandas is not installed", remedy=remedy) from error
        return pd.DataFrame({column.name: _to_pandas(column) for column in self.to_polars()})


class Rows(list[T], Table, Generic[T]):
    """A list of results that is a table, too: one row for each."""

    item: ClassVar[str] = "rows"  # what there are several of
    one: ClassVar[str] = "row"  # what each is
    schema: ClassVar[Mapping[str, str]] = {}  # the columns, with types of polars by name, so that no rows are a table

    def to_rows(self) -> Iterable[Mapping[str, Any]]:
        """Each result by the names of the columns."""
        raise NotImplementedError

    def draw_rows(self) -> tuple[Sequence[str], Callable[[T], Sequence[Cell]]]:
        """The columns of the HTML table, and the cells of a result."""
        raise NotImplementedError

    def to_polars(self) -> pl.DataFrame:
        """The table as a frame of polars."""
        import polars as pl

        types = {name: _type(kind) for name, kind in self.schema.items()}
        return pl.DataFrame([[row[name] for name in types] for row in self.to_rows()], schema=types, orient="row")

    def _repr_html_(self) -> str:
        columns, cells = self.draw_rows()
        return draw_table(self._count(), columns, map(cells, self), total=len(self))

    def _count(self) -> str:
        return f"{len(self):,} {self.one if len(self) == 1 else self.item}"

    def __repr__(self) -> str:
        first = ", ".join(map(repr, self[:2]))
        return f"<{self._count()}{': ' if self else ''}{first}{', ...' if len(self) > 2 else ''}>"


def draw_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]], total: int = 0, note: str = ""
) -> str:
    """A small HTML table; all text is escaped. Of more than SHOWN rows the first are shown, of `total`.

    Columns with nothing in them are left out.
    """
    kept = list(islice(rows, SHOWN))
    filled = [i for i in range(len(columns)) if not kept or any(row[i] not in (None, "") for row in kept)]
    sides = [_RIGHT if any(_is_number(row[i]) for row in kept) else _LEFT for i in filled]
    head = "".join(f'<th style="{side}">{escape(columns[i])}</th>' for i, side in zip(filled, sides, strict=True))
    body = "".join(f"<tr>{''.join(_draw_cell(row[i]) for i in filled)}</tr>" for row in kept)
    more = f"{total - len(kept):,} more" if total > len(kept) else ""
    below = "; ".join(part for part in (more, note) if part)
    return (
        f'<div><b>{escape(title)}</b><table style="border-collapse:collapse;margin:4px 0">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"{f'<small>{escape(below)}</small>' if below else ''}</div>"
    )


def format_number(value: float) -> str:
    """With three digits that count, so that numbers below each other have as many."""
    if not math.isfinite(value):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:#.3g}".rstrip(".")


def _is_number(cell: Cell) -> bool:
    return not isinstance(cell, Bar | bool | str) and cell is not None


def _draw_cell(cell: Cell) -> str:
    if isinstance(cell, Bar):
        return f'<td style="{_LEFT}">{cell.draw()}</td>'
    if cell is None:
        return f'<td style="{_LEFT}"></td>'
    if isinstance(cell, bool | str):
        return f'<td style="{_LEFT}">{escape(str(cell))}</td>'
    text = f"{cell:,}" if isinstance(cell, int) else format_number(float(cell))
    return f'<td style="{_RIGHT}">{text}</td>'


def _block(left: int, width: int, colour: str, top: int, height: int) -> str:
    place = f"left:{left}px;width:{width}px;top:{top}px;height:{height}px"
    return f'<div style="position:absolute;{place};background:{colour}"></div>'


def _type(kind: str) -> Any:
    import polars as pl

    if kind.endswith("s"):  # texts: a list of them
        return pl.List(_type(kind[:-1]))
    return {"text": pl.String, "number": pl.Float64, "count": pl.Int64, "fact": pl.List(pl.String)}[kind]


def _to_pandas(column: pl.Series) -> Any:
    """Numbers as an array, all else as a list; polars' own way would need pyarrow."""
    import pandas as pd

    if column.dtype.is_float() or (column.dtype.is_integer() and not column.null_count()):
        return column.to_numpy()
    if column.dtype.is_integer():
        return pd.array(column.to_list(), dtype="Int64")
    return pd.Series(column.to_list(), dtype=object) if column.dtype.is_nested() else column.to_list()
