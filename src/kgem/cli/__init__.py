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
    layout,
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
from kgem.cli.progress import want_progress
from kgem.errors import ConfigError

__all__ = ["app", "main"]

app = typer.Typer(
    name="kgem",
    cls=layout.PlainGroup,
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
    want_progress(quiet=False)
    named = os.environ.get("KGEM_IMPORT", "").split(",")
    _import([name.strip() for name in [*named, *(modules or [])] if name.strip()])


_EXAMPLES: dict[Callable[..., None], str] = {  # one a line, to be pasted as they are
    demo.demo: "kgem demo",
    fit.fit: """
        kgem fit world --dim 32 --out runs/world
        kgem fit graph.csv --columns subject,predicate,object --time-budget 20m
        kgem fit graph.tsv --labels names.tsv --out runs/a""",
    resume.resume: "kgem resume runs/world",
    runs.runs: """
        kgem runs
        kgem runs /data/experiments --json""",
    update.update: """
        kgem update runs/world new.tsv
        kgem update runs/world runs/world/review.tsv --out runs/reviewed""",
    predict.predict: """
        kgem predict runs/world --head France --relation borders --top 5
        kgem predict runs/world --relation borders --tail Italy --new-only
        kgem predict runs/world --all --top 20""",
    judge.judge: """
        kgem judge runs/world --head France --relation borders --tail Japan
        kgem judge runs/world facts.tsv --worst 100""",
    find.find: """
        kgem find runs/world fran
        kgem find world 'united' --top 5""",
    similar.similar: "kgem similar runs/world France",
    strengths.strengths: """
        kgem strengths runs/world --top 20
        kgem strengths runs/world --of entities --figure strengths.svg""",
    evaluate.evaluate: """
        kgem evaluate runs/world --by relation --calibration
        kgem evaluate runs/world --proposals""",
    compare.compare: "kgem compare runs/world runs/world-2",
    search.search: "kgem search world --trials 30 --dim 32",
    report.report: "kgem report runs/world",
    export.export: "kgem export runs/world --to parquet",
    serve.serve: "kgem serve runs/world --open",
}
for _command, _examples in _EXAMPLES.items():
    app.command(_command.__name__, epilog=layout.list_examples(_examples), help=layout.unwrap(_command.__doc__))(
        _command
    )
for _each in data.app.registered_commands:
    _each.help = layout.unwrap(_each.callback.__doc__ if _each.callback else None)
for _each in (*app.registered_commands, *data.app.registered_commands):
    _each.cls = layout.PlainCommand
app.add_typer(data.app, name="data")


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script: runs a command and ends the process with its exit code."""
    # numpy's products are small here; a second thread of theirs would only wait, and beside other work for long.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with console.report_errors():
        app(args=arguments, prog_name="kgem")
