"""Answers as JSON, and one clear error for each kind of bad request."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from kgem.data.index import Vocabulary
from kgem.errors import ArtifactError, InputError, KgemError, UnknownLabel
from kgem.serve.jobs import Busy

__all__ = ["HANDLERS", "Refused", "UnknownHere", "reply", "reply_error"]

LOG = logging.getLogger(__name__)
BUSY_SECONDS = 5  # after which one may ask again

Handler = Callable[[Request, Exception], Coroutine[Any, Any, Response]]


class Refused(Exception):
    """A request that cannot be answered, with the status and the kind of error to tell."""

    def __init__(self, status: int, kind: str, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.status, self.kind, self.message, self.remedy = status, kind, message, remedy


class UnknownHere(UnknownLabel):
    """A label that the graph does not have, with some that may have been meant."""

    def __init__(self, vocabulary: Vocabulary, label: str, suggestions: Sequence[str], *, several: int = 0) -> None:
        shown = label if len(label) <= 80 else f"{label[:80]}…"
        near = " or ".join(map(vocabulary.show, suggestions))
        remedy = f"did you mean {near}?" if suggestions else "labels are compared exactly"
        what = f"no {vocabulary.kind} is" if not several else f"more than one {vocabulary.kind} is"
        super().__init__(f"{what} called {shown!r}", remedy=remedy)
        self.suggestions = list(suggestions)


def reply(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer; numbers that JSON does not have become null."""
    text = json.dumps(_drop_infinite(content), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Half a surrogate pair, which only a request can bring in, is written as the escape that it is in JSON.
    body = text.encode("utf-8", "backslashreplace")
    return Response(body, status, dict(headers or {}), media_type="application/json")


def reply_error(
    status: int,
    kind: str,
    message: str,
    remedy: str | None = None,
    suggestions: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The one form that all errors have."""
    error = {"kind": kind, "message": message, "remedy": remedy, "suggestions": list(suggestions)}
    return reply({"error": error}, status, headers)


def _drop_infinite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _drop_infinite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_drop_infinite(each) for each in value]
    return value


async def _handle_refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return reply_error(error.status, error.kind, error.message, error.remedy)


async def _handle_unknown_label(request: Request, error: Exception) -> Response:
    assert isinstance(error, UnknownLabel)
    near = error.suggestions if isinstance(error, UnknownHere) else []
    told = {"kind": "unknown-label", "message": error.what, "remedy": error.remedy, "suggestions": near}
    return reply(request.app.state.desk.explorer.add_names({"error": told}), 404)


def _handle_as(status: int, kind: str) -> Handler:
    """A handler that tells an error of kgem's own; one that is not the client's is logged as well."""

    async def handle(request: Request, error: Exception) -> Response:
        assert isinstance(error, KgemError)
        if status >= 500:
            LOG.error("%s", error.message)
        return reply_error(status, kind, error.what, error.remedy)

    return handle


async def _handle_busy(request: Request, error: Exception) -> Response:
    remedy = "ask again in a moment"
    return reply_error(429, "busy", "too much work is waiting", remedy, headers={"Retry-After": str(BUSY_SECONDS)})


async def _handle_bad_parameter(request: Request, error: Exception) -> Response:
    """The first thing that is wrong with parameters or body; what was given is not repeated, it may be anything."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return reply_error(400, "bad-request", "the body is not JSON", "send a JSON object")
    place, *names = (str(part) for part in first["loc"])
    name = (".".join(names) or place)[:80]
    said = str(first["msg"]).removeprefix("Value error, ")
    what, allowed = f"{name}: {said[0].lower()}{said[1:]}", "what is allowed"
    if first["type"] == "extra_forbidden":
        what, allowed = f"there is no parameter {name!r}", "those there are"
    return reply_error(422, "bad-parameter", what, f"see /openapi.json for {allowed}")


async def _handle_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    addresses = "see /openapi.json for all addresses"
    kind, message, remedy = {
        404: ("not-found", "there is nothing at this address", addresses),
        405: ("wrong-method", f"{request.method} is not possible here", addresses),
    }.get(error.status_code, ("bad-request", "the request makes no sense", None))
    return reply_error(error.status_code, kind, message, remedy, headers=error.headers)


HANDLERS: dict[int | type[Exception], Handler] = {
    Refused: _handle_refused,
    UnknownLabel: _handle_unknown_label,
    InputError: _handle_as(422, "bad-parameter"),
    ArtifactError: _handle_as(503, "not-saved"),
    KgemError: _handle_as(503, "failed"),
    Busy: _handle_busy,
    RequestValidationError: _handle_bad_parameter,
    HTTPException: _handle_http,
}
