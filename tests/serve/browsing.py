"""A server with a small graph, hostile labels among them, and a browser that notes whatever goes wrong on a page."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import uvicorn

from kgem.answer.model import Model
from kgem.data.dataset import Dataset
from kgem.serve.app import create_app
from kgem.serve.explorer import Explorer
from kgem.serve.server import address_of, bind_socket
from small_models import random_model

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

SCRIPT = "<script>alert(1)</script>"
HOSTILE = (
    SCRIPT,
    '"><img src=x onerror=alert(1)>',
    "both ' and \" and \\ and &amp; and ${1}",
    "مدينة القدس",
    "🦊 fox 👩‍👩‍👧",
    "W" * 300,
    "many words " * 40,
    "a?b=c&d#e%20f/g",
    "__proto__",
    "constructor",
)
TOWNS = tuple(f"Town {number:02d}" for number in range(24))
RELATIONS = ("near", "twin of", "<b>bold</b> & co", "__proto__")


def small_graph() -> Dataset:
    """Every entity has a few facts; towns 1, 2, 3 have held-out ones."""
    entities = [*TOWNS, *HOSTILE]
    n = len(entities)
    facts = [
        (entities[i], RELATIONS[(i + step) % len(RELATIONS)], entities[(i * step + 3 * step + 1) % n])
        for i in range(n)
        for step in (1, 5)
    ]
    frame = pl.DataFrame(sorted(set(facts)), schema=["head", "relation", "tail"], orient="row")
    held = pl.DataFrame(
        [(TOWNS[i], "near", TOWNS[i + 9]) for i in (1, 2, 3)], schema=["head", "relation", "tail"], orient="row"
    )
    return Dataset.from_frames(frame, held.head(1), held.tail(2), name="towns")


def small_run(folder: Path) -> Model:
    """A model with random tables in a folder that also has a log."""
    model = random_model(small_graph(), dim=6, dtype="float32")
    examples = replace(model, data=replace(model.data, valid=model.data.train))  # one validation fact teaches nothing
    model = replace(model, learned_judge=examples.learn_judge())
    model.save(folder)
    phases = (("pretrain", 4, 0.1), ("em", 5, 0.2), ("retrain", 3, 0.3))
    records: list[dict[str, Any]] = [
        {"phase": phase, "candidate": 0, "epoch": epoch, "loss": 5 / epoch, "mrr": start + 0.02 * epoch, "seconds": 0.1}
        for phase, epochs, start in phases
        for epoch in range(1, epochs + 1)
    ]
    lines = [
        json.dumps(record | ({"elbo": -1e5 / record["epoch"]} if record["phase"] == "em" else {})) for record in records
    ]
    (folder / "log.jsonl").write_text("".join(line + "\n" for line in lines))
    return model


class Served:
    """The explorer of a folder, answering on a thread until it is stopped; it can be started again at its address."""

    def __init__(self, model: Model, folder: Path) -> None:
        self.model, self.folder, self.port = model, folder, 0
        self.start()

    def start(self) -> None:
        listening = bind_socket("127.0.0.1", self.port)
        self.port, self.address = listening.getsockname()[1], address_of(listening)
        config = uvicorn.Config(
            create_app(Explorer(self.model, self.folder)),
            log_config=None,
            log_level="critical",
            ws="none",
            timeout_graceful_shutdown=1,
        )
        listening.listen(64)  # what comes before the server is there waits
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listening]})
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(10)
        assert not self._thread.is_alive()


@contextmanager
def watched(browser: Browser, served: Served, may_fail: tuple[str, ...] = (), **options: Any) -> Iterator[Page]:
    """A page of a fresh profile; an error if it complains, opens a dialog or asks anybody but its own server.

    `may_fail` has parts of the messages that are expected.
    """
    wrong: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not any(part in message.text for part in may_fail):
            wrong.append(f"console: {message.text}")

    context = browser.new_context(base_url=served.address, viewport={"width": 1280, "height": 800}, **options)
    context.set_default_timeout(10_000)
    page = context.new_page()
    page.on("console", heard)
    page.on("pageerror", lambda error: wrong.append(f"script: {error}"))
    page.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on(
        "request", lambda request: request.url.startswith(served.address) or wrong.append(f"foreign: {request.url}")
    )
    try:
        yield page
    finally:
        context.close()
    assert not wrong
