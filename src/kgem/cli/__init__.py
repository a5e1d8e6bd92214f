"""The command line: arguments to calls; the only package that prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from kgem.cli import console, data, demo

__all__ = ["app", "main"]

app = typer.Typer(
    name="kgem",
    help="Knowledge graph embeddings whose regularisers tune themselves.",
    epilog="Start here: kgem demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        console.emit(f"kgem {metadata.version('kgem')}")
        raise typer.Exit


@app.callback()
def _start(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


app.command("demo", epilog="Example: kgem demo")(demo.demo)
app.add_typer(data.app, name="data")


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script: runs a command and ends the process with its exit code."""
    with console.errors_told():
        app(args=arguments, prog_name="kgem")
