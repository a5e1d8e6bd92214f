"""`kgem export`: a model for other programs to use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from kgem.cli.arguments import AsJson, Force, Mode, RunFolder
from kgem.cli.console import emit, emit_json, say
from kgem.cli.opening import open_model
from kgem.cli.output import fill_folder, refuse_taken
from kgem.cli.progress import Progress


def export(
    run: RunFolder,
    to: Annotated[
        Literal["parquet", "npz", "word2vec", "vectors", "pykeen", "huggingface"],
        typer.Option(help="For which programs."),
    ],
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Without it: export/ in the run folder.")] = None,
    mode: Mode = "auto",
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write the tables of a model with their labels for other programs.

    parquet: label, frequency, strength and vector per row. npz: NumPy arrays. word2vec: text, as gensim reads it.
    vectors: ids and vectors of length 1 for a vector store, and an index where faiss is installed.
    pykeen: the weights of a PyKEEN model, its ids, and how to load them. huggingface: a folder to push, with a model
    card; kgem.load opens it, too. No file is a pickle.
    """
    model = open_model(run)
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
        emit_json({"format": to, "mode": model.resolve(mode), "files": files})
    else:
        emit(*files)
