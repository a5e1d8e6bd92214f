"""The explorer as an ASGI application: routes, errors and the guard around an explorer."""

from __future__ import annotations

import inspect
import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib import metadata
from typing import Any

from fastapi import FastAPI

from kgem.serve import page, routes
from kgem.serve.explorer import Explorer
from kgem.serve.guard import Guard, may_host
from kgem.serve.replies import HANDLERS

__all__ = ["count_workers", "create_app"]

MOST_WORKERS = 4


def count_workers() -> int:
    """How many answers are computed at the same time."""
    return max(1, min(MOST_WORKERS, os.cpu_count() or 1))


def create_app(explorer: Explorer, may: Callable[[str], bool] | None = None, origin: str | None = None) -> FastAPI:
    """The application; `may` says which names it answers to, those of this machine by default.

    `origin` is where a proxy shows the page, if there is one.
    """
    pool = ThreadPoolExecutor(count_workers(), thread_name_prefix="kgem-answers")

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        explorer.look_ahead()
        yield
        explorer.jobs.stop()
        pool.shutdown(wait=False, cancel_futures=True)

    app = FastAPI(
        title="kgem explorer",
        summary="Questions to a fitted knowledge graph, and the review of its missing facts.",
        version=metadata.version("kgem"),
        docs_url=None,  # these pages would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        lifespan=life,
        exception_handlers=HANDLERS,
        **_disable_telemetry(),
    )
    app.state.desk = routes.Desk(explorer, pool)
    app.include_router(routes.router)
    app.include_router(page.make_router(page.read_files()))
    app.add_middleware(Guard, may=may or may_host(), origin=origin)
    return app


def _disable_telemetry() -> dict[str, Any]:
    """Newer versions of fastapi can report to elsewhere if the environment says so; the explorer never does."""
    if "telemetry" not in inspect.signature(FastAPI).parameters:
        return {}
    return {"telemetry": {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}}
