"""The page's files, read once: a request names one of them or none, and never a path."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

__all__ = ["File", "make_router", "read_files"]

TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True)
class File:
    """A file of the page."""

    content: bytes
    type: str
    tag: str  # changes when the content does

    @classmethod
    def of(cls, name: str, content: bytes) -> File:
        return cls(content, TYPES[name.rpartition(".")[2]], f'"{hashlib.sha256(content).hexdigest()[:20]}"')

    def response(self, request: Request) -> Response:
        """The content, or word that the browser has it already."""
        headers = {"Cache-Control": "no-cache", "ETag": self.tag}
        if self.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(self.content, headers=headers, media_type=self.type)


def read_files(folder: Traversable | None = None, under: str = "") -> dict[str, File]:
    """All files of a known type in the package's folder, by their name below it."""
    place = folder or resources.files("kgem.serve") / "static"
    found: dict[str, File] = {}
    for each in place.iterdir() if place.is_dir() else ():
        if each.is_dir():
            found |= read_files(each, f"{under}{each.name}/")
        elif each.name.rpartition(".")[2] in TYPES:
            found[under + each.name] = File.of(each.name, each.read_bytes())
    return found


def make_router(files: dict[str, File]) -> APIRouter:
    """`index.html` at `/`, everything under `/static/`."""
    made = APIRouter(include_in_schema=False)

    def send(request: Request, name: str) -> Response:
        if name not in files:
            raise HTTPException(404)
        return files[name].response(request)

    @made.api_route("/", methods=["GET", "HEAD"])
    async def index(request: Request) -> Response:
        return send(request, "index.html")

    @made.api_route("/static/{name:path}", methods=["GET", "HEAD"])
    async def static(request: Request, name: str) -> Response:
        return send(request, name)

    return made
