"""Facts as tables in memory: polars and pandas frames by the names of their columns, numpy arrays by place."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from kgem.data.options import FACT
from kgem.data.rows import Intake, Problem, choose, find_sound
from kgem.errors import TriplesError

__all__ = ["is_table", "read_table", "take_frame"]


def is_table(given: Any) -> bool:
    """Whether read_table takes it; pandas is known by its shape, it need not be installed."""
    return isinstance(given, (pl.DataFrame, pl.LazyFrame, np.ndarray)) or (
        hasattr(given, "iloc") and hasattr(given, "columns")
    )


def read_table(table: Any, intake: Intake) -> None:
    """A polars or pandas frame by its column names, or an (n, 3) array by place."""
    if isinstance(table, pl.LazyFrame):
        table = table.collect()
    if isinstance(table, pl.DataFrame):
        take_frame(table, table.columns, intake)
    elif isinstance(table, np.ndarray):
        if table.ndim != 2:
            remedy = "give one row per fact: (n, 3)"
            raise TriplesError(f"an array of shape {table.shape}", where=intake.source, remedy=remedy)
        take_frame(_of_array(table, intake), None, intake)
    else:
        names = [str(name) for name in table.columns]
        series = [table.iloc[:, i] for i in range(len(names))]
        values = [column.astype(object).where(column.notna(), None).tolist() for column in series]
        take_frame(_frame(values, intake), names, intake)


def _of_array(table: npt.NDArray[Any], intake: Intake) -> pl.DataFrame:
    """Its columns; numbers stay numbers, bytes are UTF-8, a NaN among objects is a missing label."""
    if table.dtype.kind in "iufb":
        return pl.DataFrame({str(i): np.ascontiguousarray(table[:, i]) for i in range(table.shape[1])})
    try:
        if table.dtype.kind == "S":
            table = np.char.decode(table, "utf-8")
        if table.dtype.kind == "O":
            table = table.copy()
            table[np.not_equal(table, table).astype(bool)] = None
    except (UnicodeDecodeError, TypeError, ValueError) as error:
        raise _not_text(error, intake) from error
    return _frame([table[:, i].tolist() for i in range(table.shape[1])], intake)


def _frame(columns: list[list[Any]], intake: Intake) -> pl.DataFrame:
    try:
        frame = pl.DataFrame(
            [pl.Series(str(i), values, dtype=pl.String, strict=False) for i, values in enumerate(columns)]
        )
    except (ValueError, TypeError, pl.exceptions.PolarsError) as error:  # ValueError: also of what UTF-8 cannot hold
        raise _not_text(error, intake) from error
    for column, values in zip(frame, columns, strict=True):
        strange = next((values[row] for row in column.is_null().arg_true() if values[row] is not None), None)
        if strange is not None:
            raise _not_text(f"{strange!r} is of type {type(strange).__name__}", intake)
    return frame


def _not_text(why: object, intake: Intake) -> TriplesError:
    what, remedy = f"values that are not text: {why}", "give labels as strings or numbers"
    return TriplesError(what, where=intake.source, remedy=remedy)


def take_frame(table: pl.DataFrame, names: list[str] | None, intake: Intake) -> None:
    """Choose the columns, make them text, and hand over the rows whose labels are there."""
    layout = choose(table.width, names, intake, intake.source)
    wanted = zip(layout.names, layout.places, strict=True)
    frame = pl.DataFrame([_text(table.to_series(place), name, intake) for name, place in wanted])
    good = find_sound(frame)
    bad = (~good).arg_true()
    if len(bad):
        intake.reject((_problem(frame, int(row)) for row in bad), len(bad))
        frame = frame.filter(good)
    intake.keep(frame)


def _text(column: pl.Series, name: str, intake: Intake) -> pl.Series:
    if column.dtype.is_nested() or column.dtype == pl.Object:
        what = f"column {column.name!r} holds {column.dtype}, not labels"
        raise TriplesError(what, where=intake.source, remedy="choose other columns with columns (--columns)")
    if column.dtype.is_float() and name in FACT:
        column = column.fill_nan(None)  # the way tables of numbers say that there is none
    try:
        return column.cast(pl.String).alias(name)
    except pl.exceptions.PolarsError as error:
        what = f"column {column.name!r} ({column.dtype}) cannot be read as text: {error}"
        raise TriplesError(what, where=intake.source, remedy="make it text, in UTF-8") from error


def _problem(frame: pl.DataFrame, row: int) -> Problem:
    missing = [name for name in FACT if not frame[name][row]]
    if missing:
        return Problem(row + 1, f"the {missing[0]} is empty", "give it a label")
    return Problem(row + 1, "a label with a NUL character", "labels cannot hold one")
