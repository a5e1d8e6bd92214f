"""Between a fitted model and its files: the tensors and documents of a graph and of tables (docs/files.md)."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
from pydantic import ValidationError
from torch import Tensor

from kgem.config import Config
from kgem.data.dataset import SPLITS, Dataset, Vocabulary
from kgem.data.names import NO_NAMES, Names
from kgem.errors import ArtifactError, Damaged, InputError
from kgem.files.run_folder import MODEL_KIND, MODEL_VERSION
from kgem.files.store import SEAL, Store, is_store, read_kind
from kgem.model.embeddings import Embeddings
from kgem.model.posterior import Gaussian, Posterior
from kgem.model.prior import Strengths
from kgem.model.scores import SCORES, Score

__all__ = [
    "KIND",
    "VERSION",
    "check_overwriting",
    "explain_damage",
    "find_model",
    "graph_documents",
    "graph_tensors",
    "make_graph",
    "read_graph",
    "read_tables",
    "table_tensors",
    "versions",
]

KIND, VERSION = MODEL_KIND, MODEL_VERSION
SIDES = ("entities", "relations")


def check_overwriting(folder: Path, force: bool) -> None:
    """An error if a model may not be written there: only an older model gives way, and only with `force`."""
    occupied = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    if occupied and not force:
        raise ArtifactError(
            "is there already; it is not overwritten", where=str(folder), remedy="--force, or force=True"
        )
    if occupied and is_store(folder) and read_kind(folder) != KIND:
        remedy = "choose another folder"
        raise ArtifactError("is not a model; it is not overwritten", where=str(folder), remedy=remedy)


def find_model(folder: Path) -> Path:
    """The folder itself, or `model/` in it if it is a run folder."""
    if is_store(folder):
        return folder
    if (folder / "model").is_dir():
        return folder / "model"
    if any(
        (folder / name).exists() for name in ("config.toml", "graph", ".lock")
    ):  # one that begins has its lock first
        what = "this run has no model yet: its fit has not come to its end"
        remedy = f"kgem resume {folder}; or make a model of what is there: kgem resume {folder} --finish"
        raise ArtifactError(what, where=str(folder), remedy=remedy)
    if folder.is_file():
        raise ArtifactError("is a file, not a folder", where=str(folder), remedy="give the folder of a model or a run")
    if folder.is_dir() and not (folder / SEAL).exists():
        raise ArtifactError("is neither a run nor a saved model", where=str(folder), remedy="give the folder of one")
    return folder


@contextmanager
def explain_damage(place: Path, kind: str = "model") -> Iterator[None]:
    """Whatever goes wrong while sound files are made into a model, or a run, is told as damage to its folder."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, ValidationError, InputError) as error:
        what = f"its files do not make a {kind}: {_describe(error)}"
        raise Damaged(what, where=str(place), remedy="restore the folder from a copy, or fit again") from error


def graph_tensors(data: Dataset) -> dict[str, Tensor]:
    """The facts of each split, (n, 3) int32, by "file/name"."""
    return {f"facts/{split}": torch.from_numpy(np.array(data.split(split))) for split in SPLITS}


def graph_documents(data: Dataset) -> dict[str, Any]:
    """What `read_graph` needs beside the facts: the labels, and what the graph is called and must be."""
    return {
        "dataset": {"name": data.name, "sha256": data.content_hash},
        "vocabulary": {"entities": list(data.entities), "relations": list(data.relations), **_write_names(data)},
    }


def read_graph(store: Store, recorded: Mapping[str, str]) -> Dataset:
    """The graph of a store that has its facts and labels; a ValueError if it is not the one that was recorded."""
    return make_graph(store.tensors, store.documents, recorded)


def make_graph(tensors: Mapping[str, Tensor], documents: Mapping[str, Any], recorded: Mapping[str, str]) -> Dataset:
    """The graph of `graph_tensors` and `graph_documents`; a ValueError if it is not the one that was recorded."""
    labels = documents["vocabulary"]
    train, valid, test = (tensors[f"facts/{split}"].numpy() for split in SPLITS)
    names = _read_names(labels)
    data = Dataset(
        name=recorded["name"],
        entities=Vocabulary(tuple(labels["entities"]), "entity", names),
        relations=Vocabulary(tuple(labels["relations"]), "relation", names),
        train=train,
        valid=valid,
        test=test,
    )
    if data.content_hash != recorded["sha256"]:
        raise ValueError("facts and labels are not those of the graph that is recorded")
    return data


def _write_names(data: Dataset) -> dict[str, Any]:
    """Names in the order of the labels, none where there is none; nothing at all for a graph without."""
    if not data.names:
        return {}
    both = {"entities": data.entities, "relations": data.relations}
    names = {side: [data.names.by_label.get(label) for label in labels] for side, labels in both.items()}
    return {"names": names, "prefixes": dict(data.names.prefixes)}


def _read_names(labels: Mapping[str, Any]) -> Names:
    if "names" not in labels:  # as in all models of version 0.1
        return NO_NAMES
    pairs = ((label, name) for side in SIDES for label, name in zip(labels[side], labels["names"][side], strict=True))
    return Names({label: str(name) for label, name in pairs if name is not None}, dict(labels["prefixes"]))


def table_tensors(point: Embeddings, posterior: Posterior, learned: Strengths) -> dict[str, Tensor]:
    """All tables by "file/name"."""
    q = posterior
    groups = {
        "point": point.tables(),
        "mean": (q.entities.mean, q.relations.mean),
        "log_std": (q.entities.log_std, q.relations.log_std),
        "strengths": learned,
    }
    return {
        f"{group}/{side}": tensor for group, pair in groups.items() for side, tensor in zip(SIDES, pair, strict=True)
    }


def read_tables(
    store: Store, place: Path, data: Dataset, config: Config, device: torch.device
) -> tuple[Embeddings, Posterior, Strengths]:
    """What `table_tensors` wrote; a ValueError if the shapes are not those of this graph and these settings."""
    pairs = {
        group: (store.tensors[f"{group}/entities"].to(device), store.tensors[f"{group}/relations"].to(device))
        for group in ("point", "mean", "log_std", "strengths")
    }
    score = _score(config.model.score, place)
    _check_shapes(pairs, data, config, score)
    q = Posterior(*(Gaussian(m, s) for m, s in zip(pairs["mean"], pairs["log_std"], strict=True)))
    point = Embeddings(score, *pairs["point"], data.n_relations, score.shared_rows(config.model.dim))
    return point, q, Strengths(*pairs["strengths"])


def versions() -> dict[str, str]:
    """Of what a model was made with."""
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "safetensors": safetensors.__version__,
    }


def _score(name: str, place: Path) -> Score:
    if name not in SCORES:
        remedy = "put it into kgem.model.scores.SCORES before loading; commands do with kgem --import MODULE"
        raise ArtifactError(f"its score function {name!r} is not known here", where=str(place), remedy=remedy)
    return SCORES[name]


def _check_shapes(pairs: Mapping[str, tuple[Tensor, Tensor]], data: Dataset, config: Config, score: Score) -> None:
    own = data.n_relations * (2 if config.model.reciprocal else 1)
    rows = (data.n_entities, own + score.shared_rows(config.model.dim))
    widths = (score.entity_width(config.model.dim), score.relation_width(config.model.dim))
    for group, pair in pairs.items():
        for side, tensor, n, width in zip(SIDES, pair, rows, widths, strict=True):
            wanted = (n,) if group == "strengths" else (n, width)
            if tuple(tensor.shape) != wanted:
                raise ValueError(f"{group}/{side} has the shape {tuple(tensor.shape)} instead of {wanted}")


def _describe(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{error.args[0]} is missing"
    return error.what if isinstance(error, InputError) else str(error).splitlines()[0]
