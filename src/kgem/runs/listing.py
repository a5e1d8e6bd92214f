"""The runs in a folder at a glance: graph, model, how far each has come, MRR, size; nothing large is read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kgem.errors import ArtifactError, KgemError
from kgem.files.locks import is_locked
from kgem.files.run_folder import (
    CONFIG,
    GRAPH,
    MODEL,
    MODEL_KIND,
    MODEL_VERSION,
    RUN_KIND,
    RUN_VERSION,
    read_log,
)
from kgem.files.store import is_store, read_document, read_kind

__all__ = ["RunSummary", "list_runs", "summarise"]

DEEPEST = 3  # folders below the one that is looked through


@dataclass(frozen=True)
class RunSummary:
    """A run, or a model that stands alone, without what is large."""

    folder: str
    state: str  # finished, unfinished (a model of what was there), running, stopped or broken
    phase: str | None = None  # of a run that is not finished: where it is; None before its first epoch
    epochs: int | None = None  # so far
    reason: str | None = None  # of a broken one
    graph: str | None = None
    model: str | None = None
    dim: int | None = None
    origin: str | None = None  # the command that began it
    split: str | None = None  # that the MRR is of
    mrr: float | None = None
    bytes: int = 0
    changed: float = 0.0  # when, in seconds since 1970

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def list_runs(folder: Path) -> list[RunSummary]:
    """All runs and models in a folder and below it, or the one that it is, by name."""
    return [summarise(each) for each in _find(folder, DEEPEST)]


def summarise(folder: Path) -> RunSummary:
    """One run, or one model, in short. What is wrong with it is its `reason`, and no error."""
    size, changed = _measure(folder)
    where: dict[str, Any] = {"folder": str(folder), "bytes": size, "changed": changed}
    try:
        return RunSummary(**where, **(_read_run(folder) if _is_run(folder) else _read_model(folder)))
    except KgemError as error:
        place = error.where or str(folder)
        return RunSummary(**where, state="broken", reason=f"{os.path.relpath(place, folder)}: {error.what}")
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        return RunSummary(**where, state="broken", reason=f"its files make no sense: {error}")


def _is_run(folder: Path) -> bool:
    return is_store(folder / GRAPH) or (folder / CONFIG).is_file()


def _find(folder: Path, depth: int) -> Iterator[Path]:
    """Folders that are runs or models; what is inside one belongs to it."""
    if _is_run(folder) or read_kind(folder) == MODEL_KIND:
        yield folder
    elif depth:
        try:
            inside = sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))
        except PermissionError:
            return
        for each in inside:
            yield from _find(each, depth - 1)


def _read_run(folder: Path) -> dict[str, Any]:
    busy = is_locked(folder)
    if is_store(folder / MODEL) and not busy:
        try:
            return _read_model(folder / MODEL) | {"origin": _read_graph(folder)[1].get("origin")}
        except ArtifactError as error:
            raise ArtifactError(f"{error.what}; to make it anew: kgem resume {folder}", where=error.where) from error
    dataset, begun = _read_graph(folder)
    records = read_log(folder)
    settings = begun["config"]["model"]
    return {
        "state": "running" if busy else "stopped",
        "phase": str(records[-1]["phase"]) if records else None,
        "epochs": len(records),
        "graph": str(dataset["name"]),
        "origin": begun.get("origin"),
        "model": str(settings["score"]),
        "dim": int(settings["dim"]),
    }


def _read_graph(folder: Path) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """What a run began with: which graph, and how."""
    dataset, run = (
        read_document(folder / GRAPH, name, kind=RUN_KIND, version=RUN_VERSION) for name in ("dataset", "run")
    )
    return dataset, run


def _read_model(folder: Path) -> dict[str, Any]:
    document = read_document(folder, "model", kind=MODEL_KIND, version=MODEL_VERSION)
    measured, settings = document["metrics"], document["config"]["model"]
    split = next((name for name in ("test", "valid") if "overall" in measured.get(name, {})), None)
    spent = document["provenance"].get("epochs")
    return {
        "state": "unfinished" if document["provenance"].get("unfinished") else "finished",
        "epochs": sum(spent.values()) if isinstance(spent, Mapping) else None,
        "graph": str(document["dataset"]["name"]),
        "model": str(settings["score"]),
        "dim": int(settings["dim"]),
        "split": split,
        "mrr": None if split is None else float(measured[split]["overall"]["mrr"]),
    }


def _measure(folder: Path) -> tuple[int, float]:
    """Bytes of all files, and when the newest was written."""
    size, changed = 0, 0.0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                found = Path(place, name).lstat()
            except OSError:  # gone since it was listed
                continue
            size, changed = size + found.st_size, max(changed, found.st_mtime)
    return size, changed
