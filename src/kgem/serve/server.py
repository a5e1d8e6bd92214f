"""Starts the explorer on a port of this machine and stops it on Ctrl-C."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from kgem.answer.model import Model
from kgem.errors import ConfigError, InputError
from kgem.serve.app import count_workers, create_app
from kgem.serve.explorer import Explorer
from kgem.serve.guard import is_loopback, may_host

__all__ = ["address_of", "answer", "bind_socket", "check_host", "prepare_explorer", "split_origin"]

_ORIGIN = re.compile(r"https?://(\[[0-9a-f:.]+\]|[^\[\]:@/?#\\\s]+)(?::[0-9]{1,5})?", re.IGNORECASE)
PATIENCE = 3  # seconds that open requests get when the server stops


def check_host(host: str, remote: bool) -> None:
    """An error if other machines could reach the explorer, which asks nobody for a password, without it being meant."""
    if not is_loopback(host) and not remote:
        remedy = (
            "leave --host out, reach it through `ssh -L`, or add --allow-remote if everybody there may see and decide"
        )
        raise ConfigError(f"{host} can be reached from other machines", where="--host", remedy=remedy)


def split_origin(origin: str) -> str:
    """The name in the address at which a proxy shows the page; an error if it is not one of a whole site."""
    found = _ORIGIN.fullmatch(origin)
    if found is None:
        remedy = "give scheme and name as the browser shows them, as https://graph.example.org, and no path"
        raise ConfigError(f"{origin!r} is not the address of a site", where="--origin", remedy=remedy)
    return found[1]


def bind_socket(host: str, port: int) -> socket.socket:
    """A socket at this address; port 0 takes one that is free."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise InputError(f"no such address: {host}", where="--host", remedy="leave --host out") from error
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except (OSError, OverflowError) as error:
        made.close()
        what = f"cannot listen on port {port} of {host}: {getattr(error, 'strerror', None) or error}"
        raise InputError(what, remedy="give another --port, or none to take a free one") from error
    return made


def address_of(listening: socket.socket) -> str:
    """What to open in a browser on this machine."""
    host, port = listening.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def prepare_explorer(model: Model, folder: Path) -> Explorer:
    """An explorer with all that answers need; mutates: each thread of this process computes with its share of cores."""
    import torch

    # Before anything is computed: on a busy machine threads that wait for each other take ten times as long.
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // count_workers()))
    return Explorer(model, folder)


def answer(
    explorer: Explorer,
    listening: socket.socket,
    *,
    names: tuple[str, ...] = (),
    remote: bool = False,
    origin: str | None = None,
    on_start: Callable[[str], None] | None = None,
) -> None:
    """Answer until interrupted; `on_start` hears the address once it can be opened."""
    import uvicorn

    if origin is not None:
        names = (*names, split_origin(origin))
    app = create_app(explorer, may_host(names, remote=remote), origin)

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started and on_start is not None:
                on_start(address_of(listening))

    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=PATIENCE,
    )
    with suppress(KeyboardInterrupt):
        Server(config).run(sockets=[listening])
