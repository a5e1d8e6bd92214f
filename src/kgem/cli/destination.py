"""Where the result of a command goes: a table, JSON, CSV, a file, a figure."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgem.cli.console import emit_json, emit_text, plain, say
from kgem.cli.output import refuse_existing
from kgem.errors import ConfigError

if TYPE_CHECKING:
    import polars as pl
    from matplotlib import figure

EXTENSIONS = (".csv", ".json", ".parquet")
INTEGERS = ("epochs", "frequency", "number", "place", "rank_head", "rank_low", "rank_high", "rank_tail")
TEXTS = (
    "against",
    "asked",
    "head",
    "head_name",
    "kind",
    "known",
    "label",
    "like",
    "name",
    "note",
    "outcome",
    "relation",
    "relation_name",
    "side",
    "tail",
    "tail_name",
)
ROWS = 10_000  # that are held while many are written


class Destination:
    """A table for people unless JSON, CSV or a file is asked for. Made before anything is computed."""

    def __init__(self, as_json: bool, as_csv: bool, out: Path | None, force: bool) -> None:
        if as_json + as_csv + (out is not None) > 1:
            raise ConfigError("--json, --csv and --out exclude each other", remedy="choose one")
        if out is not None:
            if out.suffix.lower() not in EXTENSIONS:
                what = f"no result can be written as {out.suffix or 'a file without extension'}"
                raise ConfigError(what, where=f"--out {out}", remedy=f"one of {', '.join(EXTENSIONS)}")
            refuse_existing(out, force)
        self.as_json, self.as_csv, self.out = as_json, as_csv, out

    @property
    def is_table(self) -> bool:
        """Whether people are to read it."""
        return not (self.as_json or self.as_csv or self.out)

    def write(self, document: Any, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
        """Write the document as JSON, or its rows as a table of these columns."""
        if self.as_json:
            emit_json(document)
        elif self.as_csv:
            emit_text(_to_frame(rows, columns).write_csv())
        elif self.out is not None:
            _write_file(self.out, document, rows, columns)
            say(f"{len(rows):,} rows -> {plain(self.out)}")

    @property
    def is_flat(self) -> bool:
        """Whether rows become lines of a table, whose cells are numbers and text."""
        return self.as_csv or (self.out is not None and self.out.suffix.lower() != ".json")

    def write_rows(self, rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
        """Write rows while they come: as a JSON list, or as a table of these columns."""
        counted = _Counted(rows)
        if self.as_json:
            for text in _json_pieces(counted):
                emit_text(text)
        elif self.as_csv:
            for text in _csv_pieces(counted, columns):
                emit_text(text)
        elif self.out is not None:
            _write_rows(self.out, counted, columns)
            say(f"{counted.count:,} rows -> {plain(self.out)}")


class _Counted:
    """Rows, and how many there have been."""

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self._rows, self.count = rows, 0

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        for row in self._rows:
            self.count += 1
            yield row


def refuse_figure(path: Path | None, force: bool) -> None:
    """An error if a figure that is asked for cannot be written there; before anything is computed."""
    if path is not None:
        from kgem.report.figures.drawing import figure_format

        refuse_existing(path, force)
        figure_format(path)


def save_figure(drawn: figure.Figure, path: Path) -> None:
    """Write a figure, and say where it is."""
    from kgem.report.figures import drawing

    drawing.save_figure(drawn, path)
    say(f"figure: {plain(path)}")


def _write_file(out: Path, document: Any, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    from kgem.data.streams import write_to

    suffix = out.suffix.lower()
    buffer = io.BytesIO()
    if suffix == ".json":
        buffer.write((json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False) + "\n").encode())
    elif suffix == ".csv":
        _to_frame(rows, columns).write_csv(buffer)
    else:
        _to_frame(rows, columns).write_parquet(buffer)
    with write_to(out) as file:
        file.write(buffer.getvalue())


def _write_rows(out: Path, rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    from kgem.data.streams import write_to

    with write_to(out) as file:
        if out.suffix.lower() == ".parquet":  # columns take a fraction of what rows would
            import polars as pl

            frames = [_to_frame(block, columns) for block in _blocks(rows)]
            pl.concat([_to_frame([], columns), *frames]).write_parquet(file)
            return
        pieces = _json_pieces(rows) if out.suffix.lower() == ".json" else _csv_pieces(rows, columns)
        for text in pieces:
            file.write(text.encode())


def _blocks(rows: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    left = iter(rows)
    while block := list(islice(left, ROWS)):
        yield block


def _csv_pieces(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> Iterator[str]:
    yield _to_frame([], columns).write_csv()
    for block in _blocks(rows):
        yield _to_frame(block, columns).write_csv(include_header=False)


def _json_pieces(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A list, one row per line."""
    yield "["
    for place, row in enumerate(rows):
        yield ("," if place else "") + "\n" + json.dumps(row, ensure_ascii=False, allow_nan=False)
    yield "\n]\n"


def _to_frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pl.DataFrame:
    """Rows as a frame; what is neither an integer nor text is a float."""
    import polars as pl

    types = dict.fromkeys(INTEGERS, pl.Int64) | dict.fromkeys(TEXTS, pl.String)
    schema = {name: types.get(name, pl.Float64) for name in columns}
    return pl.DataFrame([[row[name] for name in columns] for row in rows], schema, orient="row")
