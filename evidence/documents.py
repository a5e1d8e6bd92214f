"""JSON files under results/: what they are of, where they come from; written whole or not at all, checked when read."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from kgem.data.streams import write_to
from kgem.errors import InputError

VERSION = 1  # of all kinds
MODELS = {"distmult": "DistMult", "complex": "ComplEx"}  # as the paper writes them
PACKAGES = ("kgem", "torch", "numpy", "optuna")

Document = Mapping[str, Any]
Key = tuple[str, str, int]  # graph, model, dimension


def key_of(document: Document) -> Key:
    """What a document is of."""
    return document["graph"], document["model"], document["dim"]


def subject(graph: str, model: str, dim: int) -> str:
    """The same for people."""
    return f"{graph}, {MODELS.get(model, model)}, K = {dim}"


def about(document: Document) -> str:
    """What a document is about: its graph, model and dimension, and its seed if it is of one."""
    return subject(*key_of(document)) + (f", seed {document['seed']}" if "seed" in document else "")


def stem(document: Document) -> str:
    """The same in names of files."""
    return "-".join(map(str, key_of(document)))


def describe(kind: str, command: str) -> dict[str, Any]:
    """What every document says of itself: kind, command, versions, machine and time."""
    cpuinfo = Path("/proc/cpuinfo")
    processor = re.search(r"^model name\s*: (.+)$", cpuinfo.read_text() if cpuinfo.exists() else "", re.MULTILINE)
    return {
        "kind": kind,
        "version": VERSION,
        "command": command,
        "versions": versions(),
        "machine": {
            "processor": processor[1] if processor else platform.machine(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
        },
        "finished": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
    }


@cache
def versions() -> dict[str, str]:
    """Of kgem, of the commit if it runs from its repository, and of what it computes with.

    As of the first call: what is on disk may change while a long command works with what it has read.
    """
    found = {"python": platform.python_version()} | {name: metadata.version(name) for name in PACKAGES}
    commit = _git("rev-parse", "--short", "HEAD")
    changes = _git("status", "--porcelain", "--", ":(top,glob)**/*.py")
    return found | ({"commit": commit + (" with changes" if changes else "")} if commit else {})


def _git(*words: str) -> str:
    """What git says of the repository that this file is in; nothing if it is in none."""
    done = subprocess.run(["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def write_json(path: Path, document: Document) -> None:
    """Write a document whole or not at all; its folder is made."""
    write_text(path, _pretty(document, "") + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text whole or not at all; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_to(path) as file:
        file.write(text.encode())


def read_document(path: Path, kind: str) -> dict[str, Any]:
    """A document of this kind."""
    remedy = f"remove it and give the command that writes it again: {path}"
    try:
        document = json.loads(path.read_bytes())
    except ValueError as error:
        raise InputError(f"is not JSON: {error}", where=str(path), remedy=remedy) from error
    if not isinstance(document, dict) or document.get("kind") != kind:
        raise InputError(f"is not a document of kind {kind}", where=str(path), remedy=remedy)
    if document.get("version") != VERSION:
        raise InputError("was written by another version of kgem", where=str(path), remedy=remedy)
    return document


def read_folder(folder: Path, kind: str) -> list[dict[str, Any]]:
    """All documents in a folder, by name; none if there is no such folder."""
    return [read_document(path, kind) for path in sorted(folder.glob("*.json"))]


def _pretty(value: Any, indent: str) -> str:
    """JSON with a line per entry, but lists of plain values on one line: columns of numbers stay short."""
    inner = indent + " "
    if isinstance(value, Mapping) and value:
        lines = (f"{inner}{json.dumps(str(key))}: {_pretty(each, inner)}" for key, each in value.items())
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list | tuple) and any(isinstance(each, dict | list | tuple) for each in value):
        return "[\n" + ",\n".join(inner + _pretty(each, inner) for each in value) + f"\n{indent}]"
    return json.dumps(value, allow_nan=False)
