"""`kgem serve`: a local page to ask a graph questions and to review its missing facts."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

import typer

from kgem.cli.arguments import Device, RunFolder
from kgem.cli.console import plain, say
from kgem.cli.opening import open_model, treat_artifacts_as_input
from kgem.cli.progress import Progress
from kgem.errors import ConfigError

NEEDED = ("fastapi", "uvicorn")


def serve(
    run: RunFolder,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes one that is free.")] = 0,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    allow_remote: Annotated[
        bool, typer.Option("--allow-remote", help="Let --host be one that other machines reach: there is no password.")
    ] = False,
    origin: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Where a proxy shows the page: https:// and its name."),
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    device: Device = "cpu",
) -> None:
    """Explore a run in the browser: ask, look at entities, review missing and doubtful facts.

    The page is on this machine only and asks nothing of any other. Decisions are kept in review.tsv in the run folder,
    each on disk before the page shows it. Ctrl-C stops the server.
    """
    _check_extra()
    from kgem.serve.server import answer, bind_socket, check_host, prepare_explorer, split_origin

    check_host(host, allow_remote)
    if origin is not None:
        split_origin(origin)
    with bind_socket(host, port) as listening:
        model = open_model(run, device)
        with Progress("getting ready"), treat_artifacts_as_input():
            explorer = prepare_explorer(model, run)
        for problem in explorer.review.problems:
            say(f"warning: {plain(problem)}")

        def announce(address: str) -> None:
            say(f"{plain(model.data.name)} is at {address} (Ctrl-C stops it)")
            if open_page:
                _open(address)

        answer(explorer, listening, names=(host,), remote=allow_remote, origin=origin, on_start=announce)
    say("stopped")


def _check_extra() -> None:
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ConfigError(f"kgem serve needs {' and '.join(missing)}", remedy="pip install 'kgem[serve]'")


def _open(address: str) -> None:
    import webbrowser

    if not webbrowser.open(address):
        say("no browser could be opened: open the address yourself")
