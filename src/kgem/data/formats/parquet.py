"""Facts as Parquet files, columns by name."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from kgem.data.formats import parquet_trial
from kgem.data.formats.frames import take_frame
from kgem.data.rows import Intake
from kgem.data.streams import Source, write_to
from kgem.errors import TriplesError

__all__ = ["read_parquet", "write_parquet"]


def read_parquet(source: Source, intake: Intake) -> None:
    """Numbers as labels become their decimal text."""
    with source.open() as stream:
        content = stream.read()
    try:
        frame = parquet_trial.read(content)
    except parquet_trial.Unreadable as error:
        what, remedy = f"not a Parquet file, or a damaged one: {error}", "get the file anew, or give its format"
        raise TriplesError(what, where=source.name, remedy=remedy) from error
    take_frame(frame, frame.columns, intake)


def write_parquet(frame: pl.DataFrame, target: Path) -> None:
    """One file."""
    with write_to(target) as stream:
        frame.write_parquet(stream)
