"""Where the result of a command goes: a table, JSON, CSV, a file, a figure."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgem.cli.console import emit_json, emit_text, plain, say
from kgem.cli.output import refuse_existing
from kgem.errors import ConfigError

if TYPE_CHECKING:
    import polars as pl
    from matplotlib import figure

EXTENSIONS = (".csv", ".json", ".parquet")
INTEGERS = ("epochs", "frequency", "number", "place", "rank_low", "rank_high")
TEXTS = ("asked", "head", "kind", "known", "label", "outcome", "relation", "side", "tail")


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


def _to_frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pl.DataFrame:
    """Rows as a frame; what is neither an integer nor text is a float."""
    import polars as pl

    types = dict.fromkeys(INTEGERS, pl.Int64) | dict.fromkeys(TEXTS, pl.String)
    schema = {name: types.get(name, pl.Float64) for name in columns}
    return pl.DataFrame([[row[name] for name in columns] for row in rows], schema, orient="row")
