"""The command line: arguments to calls; the only package that prints."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated

import typer

from kgem.cli import (
    compare,
    console,
    data,
    demo,
    evaluate,
    export,
    find,
    fit,
    judge,
    predict,
    report,
    resume,
    runs,
    search,
    serve,
    similar,
    strengths,
    update,
)
from kgem.errors import ConfigError

__all__ = ["app", "main"]

app = typer.Typer(
    name="kgem",
    help="Knowledge graph embeddings whose regularisers tune themselves.",
    epilog="Start here: kgem demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        console.emit(f"kgem {metadata.version('kgem')}")
        raise typer.Exit


def _import(names: Sequence[str]) -> None:
    """Import modules of the user's, which add their own scores; the current folder is searched last."""
    if names and "" not in sys.path:
        sys.path.append("")
    for name in names:
        try:
            import_module(name)
        except Exception as error:  # whatever the module does wrong
            raise ConfigError(
                f"the module {name!r} cannot be imported: {type(error).__name__}: {error}",
                remedy="--import and KGEM_IMPORT take modules that are installed or in the current folder, without .py",
            ) from error


@app.callback()
def _start(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True)
    ] = False,
    modules: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            help="Import a module first, one with score functions of yours; may be given again. "
            "So are those in KGEM_IMPORT, with commas between them.",
        ),
    ] = None,
) -> None:
    named = os.environ.get("KGEM_IMPORT", "").split(",")
    _import([name.strip() for name in [*named, *(modules or [])] if name.strip()])


app.command("demo", epilog="Example: kgem demo")(demo.demo)
_EXAMPLES: dict[Callable[..., None], str] = {
    fit.fit: "kgem fit graph.tsv --model complex --dim 100 --out runs/a",
    resume.resume: "kgem resume runs/a",
    runs.runs: "kgem runs",
    update.update: "kgem update runs/a new.tsv --out runs/b",
    predict.predict: "kgem predict runs/a --head France --relation borders --top 5",
    judge.judge: "kgem judge runs/a facts.tsv --worst 100",
    find.find: "kgem find runs/a fran",
    similar.similar: "kgem similar runs/a France",
    strengths.strengths: "kgem strengths runs/a --top 20 --figure strengths.svg",
    evaluate.evaluate: "kgem evaluate runs/a --by relation --calibration",
    compare.compare: "kgem compare runs/a runs/b",
    search.search: "kgem search graph.tsv --trials 30 --dim 50",
    report.report: "kgem report runs/a",
    export.export: "kgem export runs/a --to parquet",
    serve.serve: "kgem serve runs/a --open",
}
for _command, _example in _EXAMPLES.items():
    app.command(_command.__name__, epilog=f"Example: {_example}")(_command)
app.add_typer(data.app, name="data")


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script: runs a command and ends the process with its exit code."""
    with console.report_errors():
        app(args=arguments, prog_name="kgem")
