"""What the commands on models share: opening one, its options, and answers as table, JSON, CSV or a file."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kgem.cli.console import emit_json, emit_text, plain, say
from kgem.cli.output import refuse_existing
from kgem.cli.progress import Progress
from kgem.errors import ArtifactError, ConfigError, InputError

if TYPE_CHECKING:
    import polars as pl

    from kgem.answer.model import Model

__all__ = [
    "AsCsv",
    "Device",
    "Figure",
    "Mode",
    "ModeChoice",
    "Out",
    "Run",
    "Split",
    "SplitChoice",
    "Target",
    "counting",
    "given_files",
    "opened",
    "percent",
    "percent_range",
    "save_figure",
]

EXTENSIONS = (".csv", ".json", ".parquet")


class ModeChoice(StrEnum):
    """Which of a model's tables answer."""

    auto = "auto"
    point = "point"
    mean = "mean"
    bayes = "bayes"
    blend = "blend"


class SplitChoice(StrEnum):
    """A part of the graph."""

    train = "train"
    valid = "valid"
    test = "test"


Run = Annotated[
    Path, typer.Argument(metavar="RUN", help="The folder of a run or of a saved model.", show_default=False)
]
Mode = Annotated[
    ModeChoice,
    typer.Option(help="point: re-trained tables; mean: means of q; bayes: average over q; auto: best on validation."),
]
Split = Annotated[SplitChoice, typer.Option(help="Whose facts are ranked.")]
Device = Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print the result as CSV.")]
Out = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the result to a .parquet, .csv or .json file.", show_default=False),
]
Figure = Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw it (.svg or .png).", show_default=False)]


def opened(run: Path, device: str = "cpu") -> Model:
    """The model in a folder; one that is not there, or cannot be used, is wrong input."""
    if not run.is_dir():
        what = "is a file, not a folder" if run.exists() else "there is no such folder"
        raise InputError(what, where=str(run), remedy="give the folder of a run or of a saved model")
    with Progress(f"loading {run}"), given_files():
        from kgem.answer.model import load
        from kgem.runs.fitting import check_device

        try:
            check_device(device)
        except ConfigError as error:
            raise ConfigError(error.what, where="--device", remedy=error.remedy) from error
        return load(run, device)


@contextmanager
def given_files() -> Iterator[None]:
    """Inside, files of kgem's own that cannot be used are what the user gave: wrong input."""
    try:
        yield
    except ArtifactError as error:
        raise InputError(error.what, where=error.where, remedy=error.remedy) from error


def counting(progress: Progress) -> Callable[[int, int], None]:
    """What hears (done, of all) and shows it."""

    def hear(done: int, total: int) -> None:
        progress.done, progress.total = done, total

    return hear


def percent(share: float) -> str:
    """A probability as people read it; what is small is not rounded to nothing."""
    if share >= 0.0995:
        return f"{share:.0%}"
    return f"{share:.1%}" if share >= 0.0005 else "< 0.1%"


def percent_range(low: float, high: float) -> str:
    """An interval of a probability."""
    ends = percent(low), percent(high)
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


class Target:
    """Where a result goes: a table unless JSON, CSV or a file is asked for. Made before anything is computed."""

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
    def table(self) -> bool:
        """Whether people are to read it."""
        return not (self.as_json or self.as_csv or self.out)

    def put(self, document: Any, rows: Sequence[Mapping[str, Any]], schema: Mapping[str, str]) -> None:
        """Write the document as JSON, or its rows as a table of these columns."""
        if self.as_json:
            emit_json(document)
        elif self.as_csv:
            emit_text(_frame(rows, schema).write_csv())
        elif self.out is not None:
            self._write(self.out, document, rows, schema)
            say(f"{len(rows):,} rows -> {plain(self.out)}")

    @staticmethod
    def _write(out: Path, document: Any, rows: Sequence[Mapping[str, Any]], schema: Mapping[str, str]) -> None:
        from kgem.data.streams import write_to

        suffix = out.suffix.lower()
        buffer = io.BytesIO()
        if suffix == ".json":
            buffer.write((json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False) + "\n").encode())
        elif suffix == ".csv":
            _frame(rows, schema).write_csv(buffer)
        else:
            _frame(rows, schema).write_parquet(buffer)
        with write_to(out) as file:
            file.write(buffer.getvalue())


def save_figure(draw: Callable[[], Any], path: Path) -> None:
    """Draw and write a figure, and say where it is."""
    from kgem.report import figures

    figures.save_figure(draw(), path)
    say(f"figure: {plain(path)}")


def _frame(rows: Sequence[Mapping[str, Any]], schema: Mapping[str, str]) -> pl.DataFrame:
    """Rows as a frame; the schema says str, int or float for each column."""
    import polars as pl

    types = {"str": pl.String, "int": pl.Int64, "float": pl.Float64}
    return pl.DataFrame(
        [[row[name] for name in schema] for row in rows], {n: types[t] for n, t in schema.items()}, orient="row"
    )
