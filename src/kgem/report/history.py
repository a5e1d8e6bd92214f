"""What a run folder tells beyond its model: the log, the settings, versions and hashes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kgem.answer.artifact import find_model
from kgem.errors import ArtifactError
from kgem.files.store import MANIFEST
from kgem.runs.run import is_run, read_log


@dataclass(frozen=True)
class RunHistory:
    """How a model came about."""

    records: Sequence[Mapping[str, Any]] = ()  # one per epoch
    config: str | None = None  # config.toml
    versions: Mapping[str, str] | None = None
    hashes: Mapping[str, str] | None = None  # sha256 by file


def find_run(folder: Path) -> Path | None:
    """The run folder, if it or the model inside it is given; None for a model that stands alone."""
    place = find_model(folder)
    return place.parent if place != folder or is_run(place.parent) else None


def read_history(folder: Path) -> RunHistory:
    """The log, the settings and the hashes beside a model; what is not there is left out."""
    place, run = find_model(folder), find_run(folder)
    try:
        manifest = json.loads((place / MANIFEST).read_bytes())
        versions = json.loads((place / "model.json").read_bytes()).get("versions", {})
        hashes = {name: record["sha256"] for name, record in manifest["files"].items()}
        records = [record for record in read_log(run) if "phase" in record] if run else []
        return RunHistory(records, _read_config(run), {"kgem": str(manifest["kgem"]), **versions}, hashes)
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = f"log, settings or manifest are not what kgem writes: {error}"
        raise ArtifactError(what, where=str(folder), remedy="restore them from a copy, or fit again") from error


def _read_config(run: Path | None) -> str | None:
    path = None if run is None else run / "config.toml"
    return path.read_text(encoding="utf-8") if path is not None and path.is_file() else None
