"""A fitted model on disk: safetensors, JSON and a manifest with hashes (docs/files.md)."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import safetensors
import torch
from pydantic import ValidationError
from torch import Tensor

from kgem.answer.fitted import MODES, Fitted
from kgem.config import Config
from kgem.data.dataset import SPLITS, Dataset, Vocabulary
from kgem.errors import ArtifactError, Damaged, InputError
from kgem.files.store import MANIFEST, Store, is_store, read_store, write_store
from kgem.model.embeddings import Embeddings
from kgem.model.posterior import Gaussian, Posterior
from kgem.model.prior import Strengths
from kgem.model.scores import SCORES, Score

__all__ = [
    "KIND",
    "VERSION",
    "find_model",
    "graph_documents",
    "graph_tensors",
    "read_graph",
    "read_model",
    "write_model",
]

KIND, VERSION = "kgem-model", 1
SIDES = ("entities", "relations")
_ANEW = "restore the folder from a copy, or fit again"

F = TypeVar("F", bound=Fitted)


def write_model(model: Fitted, folder: Path, *, force: bool = False) -> None:
    """Write a model, whole or not at all. Only an older model gives way, and only with `force`."""
    occupied = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    if occupied and not force:
        raise ArtifactError(
            "is there already; it is not overwritten", where=str(folder), remedy="--force, or force=True"
        )
    if occupied and is_store(folder) and _kind(folder) != KIND:
        remedy = "choose another folder"
        raise ArtifactError("is not a model; it is not overwritten", where=str(folder), remedy=remedy)
    write_store(folder, _tensors(model), _documents(model), kind=KIND, version=VERSION)


def find_model(folder: Path) -> Path:
    """The folder itself, or `model/` in it if it is a run folder."""
    if is_store(folder):
        return folder
    if (folder / "model").is_dir():
        return folder / "model"
    if (folder / "config.toml").is_file():
        what = "this run has no model yet: its fit has not come to its end"
        raise ArtifactError(what, where=str(folder), remedy=f"kgem resume {folder}")
    if folder.is_file():
        raise ArtifactError("is a file, not a folder", where=str(folder), remedy="give the folder of a model or a run")
    return folder


def read_model(folder: Path, make: type[F], device: str | torch.device = "cpu") -> F:
    """The model in this folder, or in this run folder; everything is checked before anything is used."""
    place = find_model(folder)
    store = read_store(place, kind=KIND, version=VERSION)
    try:
        return _model(store, place, make, torch.device(device))
    except (KeyError, TypeError, ValueError, AttributeError, ValidationError, InputError) as error:
        what = f"its files do not make a model: {_said(error)}"
        raise Damaged(what, where=str(place), remedy=_ANEW) from error


def _kind(folder: Path) -> str | None:
    try:
        return str(json.loads((folder / MANIFEST).read_bytes())["kind"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _tensors(model: Fitted) -> dict[str, Tensor]:
    """All tables by "file/name"."""
    q = model.posterior
    groups: dict[str, dict[str, Tensor]] = {
        "point": dict(zip(SIDES, model.point.tables(), strict=True)),
        "mean": {"entities": q.entities.mean, "relations": q.relations.mean},
        "log_std": {"entities": q.entities.log_std, "relations": q.relations.log_std},
        "strengths": dict(zip(SIDES, model.learned, strict=True)),
    }
    named = {f"{group}/{name}": tensor for group, tables in groups.items() for name, tensor in tables.items()}
    return named | graph_tensors(model.data)


def graph_tensors(data: Dataset) -> dict[str, Tensor]:
    """The facts of each split, (n, 3) int32, by "file/name"."""
    return {f"facts/{split}": torch.from_numpy(np.array(data.split(split))) for split in SPLITS}


def graph_documents(data: Dataset) -> dict[str, Any]:
    """What `read_graph` needs beside the facts: the labels, and what the graph is called and must be."""
    return {
        "dataset": {"name": data.name, "sha256": data.content_hash},
        "vocabulary": {"entities": list(data.entities), "relations": list(data.relations)},
    }


def _documents(model: Fitted) -> dict[str, Any]:
    graph = graph_documents(model.data)
    return {
        "model": {
            "config": model.config.model_dump(mode="json"),
            "mode": model.mode,
            "validation": dict(model.validation),
            "temperatures": dict(model.temperatures),
            "n_samples": model.n_samples,
            "metrics": dict(model.metrics),
            "provenance": dict(model.provenance),
            "dataset": graph["dataset"],
            "versions": {
                "python": platform.python_version(),
                "torch": str(torch.__version__),
                "numpy": np.__version__,
                "safetensors": safetensors.__version__,
            },
        },
        "vocabulary": graph["vocabulary"],
    }


def _model(store: Store, place: Path, make: type[F], device: torch.device) -> F:
    document, tensors = store.documents["model"], store.tensors
    config = Config.model_validate_json(json.dumps(document["config"]))
    data = read_graph(store, document["dataset"])
    pairs = {group: _pair(tensors, group, device) for group in ("point", "mean", "log_std", "strengths")}
    score = _score(config.model.score, place)
    _check_shapes(pairs, data, config, score)
    if document["mode"] not in MODES or int(document["n_samples"]) < 1:
        raise ValueError(f"mode {document['mode']!r}, {document['n_samples']} samples")
    q = Posterior(*(Gaussian(m, s) for m, s in zip(pairs["mean"], pairs["log_std"], strict=True)))
    return make(
        data=data,
        config=config,
        point=Embeddings(score, *pairs["point"], n_relations=data.n_relations),
        posterior=q,
        learned=Strengths(*pairs["strengths"]),
        mode=document["mode"],
        validation={str(mode): float(mrr) for mode, mrr in document["validation"].items()},
        temperatures={str(mode): float(t) for mode, t in document["temperatures"].items()},
        n_samples=int(document["n_samples"]),
        metrics=dict(document["metrics"]),
        provenance=dict(document["provenance"]),
    )


def read_graph(store: Store, recorded: Mapping[str, str]) -> Dataset:
    """The graph of a store that has its facts and labels; a ValueError if it is not the one that was recorded."""
    labels = store.documents["vocabulary"]
    train, valid, test = (store.tensors[f"facts/{split}"].numpy() for split in SPLITS)
    data = Dataset(
        name=recorded["name"],
        entities=Vocabulary(tuple(labels["entities"]), "entity"),
        relations=Vocabulary(tuple(labels["relations"]), "relation"),
        train=train,
        valid=valid,
        test=test,
    )
    if data.content_hash != recorded["sha256"]:
        raise ValueError("facts and labels are not those of the graph that is recorded")
    return data


def _score(name: str, place: Path) -> Score:
    if name not in SCORES:
        remedy = "put it into kgem.model.scores.SCORES before loading; commands do with kgem --import MODULE"
        raise ArtifactError(f"its score function {name!r} is not known here", where=str(place), remedy=remedy)
    return SCORES[name]


def _pair(tensors: Mapping[str, Tensor], group: str, device: torch.device) -> tuple[Tensor, Tensor]:
    entities, relations = (tensors[f"{group}/{side}"].to(device) for side in SIDES)
    return entities, relations


def _check_shapes(pairs: Mapping[str, tuple[Tensor, Tensor]], data: Dataset, config: Config, score: Score) -> None:
    rows = (data.n_entities, data.n_relations * (2 if config.model.reciprocal else 1))
    widths = (score.entity_width(config.model.dim), score.relation_width(config.model.dim))
    for group, pair in pairs.items():
        for side, tensor, n, width in zip(SIDES, pair, rows, widths, strict=True):
            wanted = (n,) if group == "strengths" else (n, width)
            if tuple(tensor.shape) != wanted:
                raise ValueError(f"{group}/{side} has the shape {tuple(tensor.shape)} instead of {wanted}")


def _said(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{error.args[0]} is missing"
    return error.what if isinstance(error, InputError) else str(error).splitlines()[0]
