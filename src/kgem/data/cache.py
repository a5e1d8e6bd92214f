"""A binary cache of parsed graphs, keyed by what the files hold and how they are read; safe to load."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load as _from_bytes
from safetensors.numpy import save as _to_bytes

from kgem.files.atomic import write_file
from kgem.files.store import hash_file, kgem_version

__all__ = ["LIMIT_BYTES", "WORTH_BYTES", "Parsed", "cache_folder", "cache_key", "load", "store", "worth"]

FORMAT = 1  # of the cache files; older ones are not found and in time removed
WORTH_BYTES = 5_000_000  # below this, parsing is as quick as the cache
LIMIT_BYTES = 2_000_000_000  # of all cached graphs together
_JOIN = "\0"  # between labels; a label that has it is not cached


@dataclass(frozen=True, eq=False)
class Parsed:
    """A graph as the cache keeps it: labels per vocabulary, facts per split, and JSON beside them."""

    labels: Mapping[str, tuple[str, ...]]
    facts: Mapping[str, npt.NDArray[np.int32]]  # (n, 3) each
    notes: Mapping[str, Any] = field(default_factory=dict)


def cache_folder() -> Path:
    """Where parsed graphs are kept: KGEM_CACHE, or the user's cache folder."""
    given = os.environ.get("KGEM_CACHE")
    if given:
        return Path(given).expanduser() / "parsed"
    import pooch

    return Path(pooch.os_cache("kgem")) / "parsed"


def worth(files: Mapping[str, Path]) -> bool:
    """Whether the files are large enough for the cache to pay."""
    return sum(path.stat().st_size for path in files.values()) > WORTH_BYTES


def cache_key(files: Mapping[str, Path], options: Mapping[str, Any]) -> str:
    """sha256 over the files' content, their extensions, the reading options and the version that reads."""
    parts: dict[str, Any] = {"format": FORMAT, "kgem": kgem_version(), "options": dict(options)}
    for split, path in files.items():
        parts[f"file:{split}"] = [path.suffixes, hash_file(path)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def load(key: str) -> Parsed | None:
    """The graph kept under this key; None where there is none or it is damaged."""
    path = _path(key)
    try:
        content = path.read_bytes()
        if path.with_suffix(".sha256").read_text() != hashlib.sha256(content).hexdigest():
            return None
        arrays = _from_bytes(content)
    except (OSError, UnicodeDecodeError, SafetensorError):
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # used last: removed last
    notes = json.loads(arrays.pop("notes").tobytes())
    labels = {name: tuple(_text(arrays.pop(f"labels:{name}")).split(_JOIN)) for name in notes.pop("labels")}
    return Parsed(labels, {name.removeprefix("facts:"): facts for name, facts in arrays.items()}, notes)


def store(key: str, parsed: Parsed, *, limit: int = LIMIT_BYTES) -> bool:
    """Keep a graph and remove the least recently used ones over the limit; False if it could not be kept."""
    arrays: dict[str, npt.NDArray[Any]] = {f"facts:{name}": facts for name, facts in parsed.facts.items()}
    for name, labels in parsed.labels.items():
        joined = _JOIN.join(labels)
        if not labels or joined.count(_JOIN) != len(labels) - 1:
            return False
        arrays[f"labels:{name}"] = np.frombuffer(joined.encode(), dtype=np.uint8)
    notes = {**parsed.notes, "labels": list(parsed.labels)}
    arrays["notes"] = np.frombuffer(json.dumps(notes).encode(), dtype=np.uint8)
    content = _to_bytes(arrays)
    if len(content) > limit:
        return False
    path = _path(key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(content).hexdigest().encode()
        for target, held in ((path, content), (path.with_suffix(".sha256"), digest)):
            with write_file(target) as file:
                file.write(held)
        _trim(path.parent, limit)
    except OSError:  # a full or read-only disk: the graph is simply parsed again next time
        return False
    return True


def _path(key: str) -> Path:
    return cache_folder() / f"{key}.safetensors"


def _text(array: npt.NDArray[np.uint8]) -> str:
    return array.tobytes().decode()


def _trim(folder: Path, limit: int) -> None:
    """Remove the least recently used graphs until the rest fit."""
    kept = [(path.stat().st_mtime_ns, path.stat().st_size, path) for path in folder.glob("*.safetensors")]
    total = sum(size for _, size, _ in kept)
    for _, size, path in sorted(kept, key=lambda item: item[0]):
        if total <= limit:
            return
        path.unlink(missing_ok=True)
        path.with_suffix(".sha256").unlink(missing_ok=True)
        total -= size
