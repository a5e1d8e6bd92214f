"""`kgem report`: a run for people to read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kgem.cli.arguments import Device, Force, Mode, RunFolder
from kgem.cli.console import emit
from kgem.cli.opening import open_model, treat_artifacts_as_input
from kgem.cli.output import refuse_existing
from kgem.cli.progress import Progress


def report(
    run: RunFolder,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Without it: report.html in the run folder.")] = None,
    mode: Mode = "auto",
    device: Device = "cpu",
    force: Force = False,
) -> None:
    """Write one HTML page on a run: predictions, quality, calibration, strengths, curves, and how to repeat it.

    The page needs nothing but itself, and its path is printed.
    """
    model = open_model(run, device)
    from kgem.report.report import check_target, default_target, write_report

    target = out or default_target(run)
    check_target(target)
    refuse_existing(target, force)
    with Progress("writing the report") as progress, treat_artifacts_as_input():

        def step(what: str) -> None:
            progress.label = f"report: {what}"

        write_report(run, target, mode, model=model, step=step)
    emit(str(target))
