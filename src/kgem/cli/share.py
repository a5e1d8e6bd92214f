"""`kgem report`, `kgem export`: a run for people to read, a model for other programs to use."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kgem.cli.console import AsJson, emit, emit_json, say
from kgem.cli.output import Force, fill_folder, refuse_existing, refuse_taken
from kgem.cli.progress import Progress
from kgem.cli.results import Device, Mode, ModeChoice, Run, given_files, opened

__all__ = ["export", "report"]


class FormatChoice(StrEnum):
    """What other programs read."""

    parquet = "parquet"
    npz = "npz"
    word2vec = "word2vec"
    pykeen = "pykeen"


def report(
    run: Run,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Without it: report.html in the run folder.", show_default=False)
    ] = None,
    mode: Mode = ModeChoice.auto,
    device: Device = "cpu",
    force: Force = False,
) -> None:
    """Write one HTML page on a run: predictions, quality, calibration, strengths, curves, and how to repeat it.

    The page needs nothing but itself, and its path is printed.
    """
    model = opened(run, device)
    from kgem.report.report import check_target, default_target, write_report

    target = out or default_target(run)
    check_target(target)
    refuse_existing(target, force)
    with Progress("writing the report") as progress, given_files():

        def step(what: str) -> None:
            progress.label = f"report: {what}"

        write_report(run, target, mode, model=model, step=step)
    emit(str(target))


def export(
    run: Run,
    to: Annotated[FormatChoice, typer.Option(help="For which programs.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Without it: export/ in the run folder.", show_default=False)
    ] = None,
    mode: Mode = ModeChoice.auto,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write the tables of a model with their labels for other programs.

    parquet: label, frequency, strength and vector per row. npz: NumPy arrays. word2vec: text, as gensim reads it.
    pykeen: the weights of a PyKEEN model, its ids, and how to load them. No file is a pickle.
    """
    model = opened(run)
    from kgem.answer.artifact import find_model
    from kgem.runs.export import FORMATS
    from kgem.runs.export import export as write_tables

    place = find_model(run)
    target = out or (run / "export" / to if place != run else run.with_name(f"{run.absolute().name}-{to}"))
    refuse_taken(target, force)
    with Progress(f"writing {to}"), fill_folder(target) as fresh:
        write_tables(model, fresh, to, mode)
        names = sorted(path.name for path in fresh.iterdir())
    files = [str(target / name) for name in names]
    say(f"mode {model.resolve(mode)}; {FORMATS[to].about}")
    if as_json:
        emit_json({"format": str(to), "mode": model.resolve(mode), "files": files})
    else:
        emit(*files)
