"""JSON files under results/: written whole or not at all, with a kind and a version that are checked when read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kgem.data.streams import write_to
from kgem.errors import InputError

VERSION = 1  # of all kinds
_NESTED = (dict, list, tuple)

Document = Mapping[str, Any]


def write_json(path: Path, document: Document) -> None:
    """Write a document whole or not at all; its folder is made."""
    write_text(path, _pretty(document, "") + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text whole or not at all; its folder is made."""
    make_folder(path.parent)
    with write_to(path) as file:
        file.write(text.encode())


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, unless it is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        remedy = "choose a folder that you can write to"
        raise InputError(f"cannot be made: {error.strerror}", where=str(folder), remedy=remedy) from error


def read_document(path: Path, kind: str) -> dict[str, Any]:
    """A document of this kind."""
    remedy = f"remove it and give the command that writes it again: {path}"
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path), remedy="check the folder") from error
    except ValueError as error:
        raise InputError(f"is not JSON: {error}", where=str(path), remedy=remedy) from error
    if not isinstance(document, dict) or document.get("kind") != kind:
        raise InputError(f"is not a document of kind {kind}", where=str(path), remedy=remedy)
    if document.get("version") != VERSION:
        raise InputError("was written by another version of kgem", where=str(path), remedy=remedy)
    return document


def read_folder(folder: Path, kind: str) -> list[dict[str, Any]]:
    """All documents in a folder, by name; none if there is no such folder."""
    if folder.exists() and not folder.is_dir():
        raise InputError("is a file, not a folder", where=str(folder), remedy="name the folder of the JSON files")
    return [read_document(path, kind) for path in sorted(folder.glob("*.json"))]


def _pretty(value: Any, indent: str) -> str:
    """JSON with a line per entry, but lists of plain values on one line: columns of numbers stay short."""
    inner = indent + " "
    if isinstance(value, Mapping) and value:
        lines = (f"{inner}{json.dumps(str(key))}: {_pretty(each, inner)}" for key, each in value.items())
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list | tuple) and any(isinstance(each, _NESTED) for each in value):
        return "[\n" + ",\n".join(inner + _pretty(each, inner) for each in value) + f"\n{indent}]"
    return json.dumps(value, allow_nan=False)
