"""What tests of the explorer share: a run folder with random tables and labels that would do harm if they could."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from kgem.answer.model import Model
from kgem.data.dataset import Dataset
from kgem.data.index import Vocabulary
from kgem.serve.app import create_app
from kgem.serve.explorer import Explorer
from obvious import random_graph
from small_models import random_model

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "../../../etc/passwd",
    "a\tb\nc\\d\re",
    "100% & more?#x=1;--",
    "Île-de-France",
    "東京 \u202e\u0000",
    "🙂" * 20,
)
RECORDS = [
    {"phase": "pretrain", "candidate": 0, "epoch": 1, "loss": 4.0, "mrr": 0.2},
    {"phase": "em", "candidate": 0, "epoch": 1, "loss": 3.0, "mrr": None, "elbo": -20.0},
    {"phase": "em", "candidate": 0, "epoch": 2, "loss": 2.5, "mrr": 0.3, "elbo": -18.0},
]


def hostile_graph() -> Dataset:
    """A random graph, some of whose labels are hostile."""
    plain = random_graph()
    entities = (*HOSTILE, *plain.entities.labels[len(HOSTILE) :])
    relations = (*plain.relations.labels[:-1], "<b>r</b>\t/..")
    return replace(plain, entities=Vocabulary(entities, "entity"), relations=Vocabulary(relations, "relation"))


def write_run(folder: Path, **more: Any) -> Model:
    """A folder with a model and a log, as a run leaves them."""
    model = random_model(hostile_graph(), **more)
    model.save(folder / "model")
    (folder / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    return model


class Client:
    """Requests to an application without a server; an error that it lets through is raised here."""

    def __init__(self, app: Any) -> None:
        self.app = app

    def request(self, method: str, path: str, **given: Any) -> httpx.Response:
        async def go() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
                return await client.request(method, path, **given)

        return asyncio.run(go())

    def get(self, path: str, **given: Any) -> httpx.Response:
        return self.request("GET", path, **given)

    def post(self, path: str, **given: Any) -> httpx.Response:
        return self.request("POST", path, **given)


def client_of(explorer: Explorer) -> Client:
    return Client(create_app(explorer))
