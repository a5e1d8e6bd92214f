"""Stands before every request: who may ask, how much, and what every answer says to the browser."""

from __future__ import annotations

import ipaddress
import logging
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kgem.serve.replies import Refused, reply_error

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["BODY", "HEADERS", "QUERY", "Guard", "is_loopback", "may_host"]

BODY = 160 * 1024  # bytes: three of the longest labels, every letter escaped
QUERY = 16 * 1024  # bytes
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:@/?#\\\s]+)(?::[0-9]{1,5})?", re.IGNORECASE)
READING = ("GET", "HEAD")  # change nothing, and have no body that anybody would read
_FOREIGN = ("cross-site", "same-site")

LOG = logging.getLogger(__name__)


def is_loopback(host: str) -> bool:
    """Whether an address or name is this machine's own and reached by nobody else."""
    address = _parse_address(host)
    return host.casefold() == "localhost" if address is None else address.is_loopback


def may_host(names: Iterable[str] = (), *, remote: bool = False) -> Callable[[str], bool]:
    """Which names a request may have in its Host header: those of this machine.

    A page of another site can make its own name point to this machine, and would then be of the same origin as the
    explorer; but it cannot make an address its name. With `remote` any address is therefore as good as a given name.
    """
    known = {name.casefold() for name in names}

    def may(header: str) -> bool:
        found = _HOST.fullmatch(header)
        if not found:
            return False
        host = found[1].casefold()
        return is_loopback(host) or host in known or (remote and _parse_address(host) is not None)

    return may


def _parse_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


class Guard:
    """The outermost layer; what it lets pass has a body within limits and comes from the page itself or no page."""

    def __init__(self, app: ASGIApp, may: Callable[[str], bool], origin: str | None = None) -> None:
        """`may` says which names it answers to; `origin` is where a proxy shows the page, if there is one."""
        self.app, self._may = app, may
        self._origins = set() if origin is None else {origin.casefold()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        begun = False

        async def say(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message["headers"] = [*message.get("headers", ()), *_list_extra_headers(message)]
            await send(message)

        try:
            self._check(scope)
            await self.app(scope, receive if scope["method"] in READING else await _read_body(receive), say)
        except Refused as error:
            await reply_error(error.status, error.kind, error.message, error.remedy)(scope, receive, say)
        except Exception:
            LOG.exception("an error that kgem did not expect, at %s", scope["path"])
            if begun:
                raise
            answer = reply_error(500, "internal", "an error that kgem did not expect", "please report it")
            await answer(scope, receive, say)
        return None

    def _check(self, scope: Scope) -> None:
        """Refuse what must not be answered, by its headers alone."""
        headers = _collect_headers(scope)
        host = headers.get("host", [""])
        if len(host) != 1 or not self._may(host[0]):
            remedy = "open the address that kgem serve printed"
            raise Refused(403, "wrong-host", "the explorer does not answer under this name", remedy)
        if len(scope["query_string"]) > QUERY:
            raise Refused(414, "too-long", f"the query is longer than {QUERY:,} bytes", "ask for less at once")
        site = headers.get("sec-fetch-site", ["none"])[0]
        if site in _FOREIGN and scope["path"].startswith("/api/"):
            raise Refused(403, "wrong-origin", "pages of other sites may not ask", "use the explorer's own page")
        if scope["method"] not in READING:
            _check_writing(scope["method"], headers, {f"http://{host[0]}".casefold(), *self._origins})


def _check_writing(method: str, headers: dict[str, list[str]], ours: set[str]) -> None:
    """What changes something must come from our own page (an origin of ours), or from no page at all, and be JSON."""
    origins = {origin.casefold() for origin in headers.get("origin", [])}
    if origins - ours:
        raise Refused(403, "wrong-origin", "pages of other sites may not decide", "use the explorer's own page")
    kind = headers.get("content-type", [""])[0].partition(";")[0].strip().casefold()
    if method == "POST" and kind != "application/json":  # other methods are refused as such, at every address
        raise Refused(415, "wrong-type", "the body must be application/json", "say so in Content-Type")
    size = headers.get("content-length", ["0"])[0]
    if not size.isascii() or not size.isdigit() or int(size[:20]) > BODY:
        raise _too_large()


def _too_large() -> Refused:
    return Refused(413, "too-large", f"the body is larger than {BODY:,} bytes", "a decision is far smaller")


async def _read_body(receive: Receive) -> Receive:
    """Hears the body to its end, if that is within the limit whatever length was announced, and tells it again."""
    heard: list[Message] = []
    size = 0
    while not heard or heard[-1].get("more_body", False):
        heard.append(await receive())
        size += len(heard[-1].get("body", b""))
        if size > BODY:
            raise _too_large()

    async def tell() -> Message:
        return heard.pop(0) if heard else await receive()

    return tell


def _collect_headers(scope: Scope) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return found


def _list_extra_headers(message: Message) -> list[tuple[bytes, bytes]]:
    """The headers that every answer has; nothing is kept by the browser unless the answer says so."""
    there = {name.lower() for name, _ in message.get("headers", ())}
    extra = HEADERS if b"cache-control" in there else HEADERS | {"Cache-Control": "no-store"}
    return [(name.lower().encode(), value.encode()) for name, value in extra.items()]
