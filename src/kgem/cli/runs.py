"""`kgem runs`: the runs in a folder, how far each has come and how good it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kgem.cli.arguments import AsJson
from kgem.cli.console import emit, emit_json, paragraph, plain, say, table
from kgem.cli.progress import Progress
from kgem.cli.tables import size
from kgem.errors import InputError
from kgem.report.formatting import pluralise

if TYPE_CHECKING:
    from kgem.runs.listing import RunSummary


def runs(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to look, up to three folders down.")] = Path(
        "runs"
    ),
    as_json: AsJson = False,
) -> None:
    """List the runs in a folder: graph, model, state, MRR and size.

    A run that was stopped goes on with 'kgem resume', also if a model was made of what was there ('unfinished'). Only
    small files are read: that a finished run is whole is seen by the sizes of its files, and checked when it is opened.
    """
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "there is no such folder"
        raise InputError(what, where=str(folder), remedy="name the folder that has your runs, as kgem runs .")
    with Progress(f"looking through {folder}"):
        from kgem.runs.listing import list_runs

        found = list_runs(folder)
    if as_json:
        emit_json([each.to_dict() for each in found])
        return
    if not found:
        raise InputError("there are no runs in it", where=str(folder), remedy="begin one: kgem fit GRAPH --out FOLDER")
    rows = [
        (
            each.folder,
            each.graph or "",
            "" if each.model is None else f"{each.model}, K = {each.dim}",
            _describe_state(each),
            "" if each.mrr is None else f"{each.mrr:.3f}",
            size(each.bytes),
        )
        for each in found
    ]
    emit(table(["run", "graph", "model", "state", "MRR", "size"], rows, left=4))
    if any(each.split == "valid" for each in found):
        say("MRR: on test, or on validation where there is no test")
    for each in found:
        if each.reason is not None:
            say(paragraph(f"{plain(each.folder)} is broken: {plain(each.reason)}"))
    stopped = [each for each in found if each.state == "stopped" or (each.state == "unfinished" and each.origin)]
    if stopped:
        say(f"go on with {'it' if len(stopped) == 1 else 'one'}: kgem resume {plain(stopped[0].folder)}")


def _describe_state(each: RunSummary) -> str:
    if each.state not in ("running", "stopped", "unfinished"):
        return each.state
    if each.phase is None:
        return f"{each.state} before its first epoch"
    return f"{each.state} in {each.phase}, after {pluralise(each.epochs or 0, 'epoch')}"
