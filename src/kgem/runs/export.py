"""A model's tables for other programs: Parquet, npz, word2vec, vectors for a vector store, PyKEEN, Hugging Face.

All are folders of files, without pickle.

Rows are in the order of ids. With reciprocal facts (Eq. 7) the relations come twice, first as they are, then reversed.
A complex vector is [real parts | imaginary parts]. What all facts share, as TuckER's core, is a table of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import polars as pl
import torch
from torch import Tensor

from kgem.answer.model import Model
from kgem.errors import InputError
from kgem.files.store import system_error
from kgem.runs.hugging_face import write_hugging_face

__all__ = ["FORMATS", "Format", "export"]

ENTITIES, RELATIONS = "entity_representations.{}._embeddings.weight", "relation_representations.{}._embeddings.weight"
CORE = "interaction.core_tensor"
PYKEEN: dict[str, tuple[str, dict[str, Any]]] = {  # our score: PyKEEN's class and what its constructor must be told
    "complex": ("ComplEx", {}),
    "cp": ("CP", {"rank": 1}),
    "distmult": ("DistMult", {}),
    "hole": ("HolE", {}),
    "quate": ("QuatE", {"relation_normalizer": None}),
    "rescal": ("RESCAL", {}),
    "tucker": ("TuckER", {"apply_batch_normalization": False, "dropout_0": 0.0, "dropout_1": 0.0, "dropout_2": 0.0}),
    "transe-l1": ("TransE", {"scoring_fct_norm": 1}),
    "transe-l2": ("TransE", {"scoring_fct_norm": 2}),
}
HOW = """\
import json, numpy, pykeen.models, torch
from pykeen.triples import TriplesFactory
told = json.load(open("model.json"))
ids = {f"{kind}_to_id": json.load(open(f"{kind}_to_id.json")) for kind in ("entity", "relation")}
inverse = {"create_inverse_triples": told["create_inverse_triples"]}
factory = TriplesFactory.from_labeled_triples(numpy.array([told["fact"]]), **ids, **inverse)
model = getattr(pykeen.models, told["class"])(triples_factory=factory, **told["arguments"])
weights = {name: torch.from_numpy(table) for name, table in numpy.load("weights.npz").items()}
model.load_state_dict(weights, strict=False)
"""

Table = npt.NDArray[Any]


@dataclass(frozen=True)
class Format:
    """A way to write tables: into an empty folder."""

    write: Callable[[Model, str, Path], None]
    about: str


def export(model: Model, folder: str | Path, to: str, mode: str = "auto") -> None:
    """Write the tables of a mode into a folder, which must be empty or not there. Mode bayes has q's means for tables.

    `to` is parquet, npz, word2vec, vectors, pykeen or huggingface.
    """
    if to not in FORMATS:
        raise InputError(f"no export format is called {to!r}", remedy=f"one of {', '.join(FORMATS)}")
    chosen, place = model.resolve(mode), Path(folder)
    if place.is_file() or (place.is_dir() and any(place.iterdir())):
        raise InputError("is a file, or has files in it", where=str(place), remedy="name an empty folder, or a new one")
    from safetensors import SafetensorError

    try:
        place.mkdir(parents=True, exist_ok=True)
        FORMATS[to].write(model, chosen, place)
    except (OSError, SafetensorError, pl.exceptions.PolarsError) as error:
        number, remedy = system_error(error), "choose a folder that you can write to, on a disk with room"
        reason = os.strerror(number) if number else str(error)
        raise InputError(f"cannot be written: {reason}", where=str(place), remedy=remedy) from error


def _write_parquet(model: Model, mode: str, folder: Path) -> None:
    """entities.parquet and relations.parquet: label, frequency, strength, vector, and q's standard deviations."""
    q, n_own = model.posterior, model.point.n_own
    tables = zip(model.tables(mode).tables(), (q.entities.log_std, q.relations.log_std), model.learned, strict=True)
    (entities, relations), labelled = ([_to_numpy(t) for t in each] for each in tables), _label_rows(model)
    parts = {
        "entities": entities,
        "relations": [t[:n_own] for t in relations],
        "shared": [t[n_own:] for t in relations],
    }
    for name, (table, log_std, lam) in parts.items():
        columns: dict[str, Any] = {}
        if name in labelled:
            labels, reverse, counts = labelled[name]
            columns = {"label": labels, **({"reciprocal": reverse} if name == "relations" else {}), "frequency": counts}
        columns |= {"strength": lam, "vector": table}
        if mode != "point":
            columns["std"] = np.exp(log_std)
        if name in labelled or len(table):
            pl.DataFrame(columns).write_parquet(folder / f"{name}.parquet")


def _write_npz(model: Model, mode: str, folder: Path) -> None:
    """tables.npz: tables, labels, strengths and frequencies, all plain arrays."""
    entities, relations = (_to_numpy(table) for table in model.tables(mode).tables())
    strengths = {name: _to_numpy(lam) for name, lam in zip(("entity", "relation"), model.learned, strict=True)}
    sides, n_own = _label_rows(model), model.point.n_own
    shared = {"shared": relations[n_own:], "shared_strengths": strengths["relation"][n_own:]}
    np.savez(
        folder / "tables.npz",
        allow_pickle=False,
        entities=entities,
        relations=relations[:n_own],
        entity_labels=np.array(sides["entities"][0], dtype=np.str_),
        relation_labels=np.array(sides["relations"][0], dtype=np.str_),
        relation_is_reciprocal=np.array(sides["relations"][1]),
        entity_strengths=strengths["entity"],
        relation_strengths=strengths["relation"][:n_own],
        entity_counts=sides["entities"][2],
        relation_counts=sides["relations"][2],
        **(shared if model.point.n_shared else {}),
    )


def _write_word2vec(model: Model, mode: str, folder: Path) -> None:
    """entities.txt and relations.txt as word2vec's text files are: size, then a label and its numbers per line."""
    for name, table in zip(("entities", "relations"), model.tables(mode).tables(), strict=True):
        labels, reverse, _ = _label_rows(model)[name]
        words = _without_spaces([f"{label}⁻¹" if back else label for label, back in zip(labels, reverse, strict=True)])
        rows = _to_numpy(table)[: len(words)]
        with (folder / f"{name}.txt").open("w", encoding="utf-8", newline="\n") as file:
            file.write(f"{rows.shape[0]} {rows.shape[1]}\n")
            file.writelines(f"{word} {' '.join(map(str, row))}\n" for word, row in zip(words, rows, strict=True))


def _write_vectors(model: Model, mode: str, folder: Path) -> None:
    """vectors.parquet as vector stores read it: id, label, and the entity's vector at length 1, so that inner products
    are the cosines of `similar`. Where faiss is installed also vectors.faiss, an index of the same ids.
    """
    table = model.tables(mode).entities
    sizes = torch.linalg.vector_norm(table, dim=1, keepdim=True).clamp_min_(torch.finfo(table.dtype).tiny)
    vectors = np.ascontiguousarray(_to_numpy(table / sizes), dtype=np.float32)
    columns = {"id": np.arange(len(vectors)), "label": model.data.entities.labels, "vector": vectors}
    pl.DataFrame(columns).write_parquet(folder / "vectors.parquet")
    if find_spec("faiss") is not None:
        faiss = import_module("faiss")
        index = faiss.IndexFlatIP(vectors.shape[1])
        index.add(vectors)  # the n-th has the id n
        faiss.write_index(index, str(folder / "vectors.faiss"))


def _write_pykeen(model: Model, mode: str, folder: Path) -> None:
    """weights.npz with the names of PyKEEN's state dict, its two maps of ids, and model.json: class and arguments."""
    score = model.config.model.score
    if score not in PYKEEN:
        raise InputError(f"PyKEEN has no model for the score {score!r}", remedy=f"it has {', '.join(PYKEEN)}")
    name, arguments = PYKEEN[score]
    tables, data = model.tables(mode), model.data
    entities, relations = (_to_numpy(table) for table in tables.tables())
    relations, shared = np.split(relations, [tables.n_own])
    if tables.reciprocal:  # PyKEEN has each relation beside its inverse
        relations = relations.reshape(2, data.n_relations, -1).swapaxes(0, 1).reshape(relations.shape)
    if score == "complex":  # and each real part beside its imaginary part
        entities, relations = (t.reshape(len(t), 2, -1).swapaxes(1, 2).reshape(t.shape) for t in (entities, relations))
    if score == "quate":  # and 1, i, j, k of a quaternion beside each other
        entities, relations = (
            t.reshape(len(t), 4, -1)[:, [0, 2, 1, 3]].swapaxes(1, 2).reshape(t.shape) for t in (entities, relations)
        )
        relations = -relations  # its score has the other sign
    halves = np.split(entities, 2, axis=1) if score == "cp" else [entities]  # of heads, of tails
    weights = {ENTITIES.format(place): table for place, table in enumerate(halves)} | {RELATIONS.format(0): relations}
    if score == "tucker":  # K x K rows are (head, tail, relation) here, (head, relation, tail) there
        dim = entities.shape[1]
        weights[CORE] = shared.reshape(dim, dim, -1).swapaxes(1, 2)
    np.savez(folder / "weights.npz", allow_pickle=False, **{key: np.ascontiguousarray(t) for key, t in weights.items()})
    for kind, vocabulary in (("entity", data.entities), ("relation", data.relations)):
        _write_json(folder / f"{kind}_to_id.json", {label: place for place, label in enumerate(vocabulary)})
    head, relation, tail = data.train[0].tolist()
    document = {
        "class": name,
        "arguments": {"embedding_dim": model.config.model.dim, **arguments},
        "create_inverse_triples": tables.reciprocal,
        "fact": [data.entities[head], data.relations[relation], data.entities[tail]],
        "temperature": model.temperature(mode).to_dict(),
        "how to load it, in this folder": HOW.splitlines(),
    }
    _write_json(folder / "model.json", document)


FORMATS = {
    "parquet": Format(_write_parquet, "entities.parquet, relations.parquet: label, frequency, strength, vector"),
    "npz": Format(_write_npz, "tables.npz: NumPy arrays of tables, labels, strengths, frequencies"),
    "word2vec": Format(_write_word2vec, "entities.txt, relations.txt: word2vec's text format"),
    "vectors": Format(
        _write_vectors, "vectors.parquet: id, label, vector of length 1; with faiss also vectors.faiss, an index"
    ),
    "pykeen": Format(_write_pykeen, "weights.npz, ids and model.json: a PyKEEN model's state dict and how to load it"),
    "huggingface": Format(
        write_hugging_face, "model.safetensors, config.json, README.md and kgem's own files: a folder to push"
    ),
}


def _label_rows(model: Model) -> dict[str, tuple[list[str], list[bool], npt.NDArray[np.int64]]]:
    """Label, whether reversed, and frequency of every row of the two tables."""
    data, times = model.data, 2 if model.point.reciprocal else 1
    backwards = [place >= data.n_relations for place in range(times * data.n_relations)]
    return {
        "entities": (list(data.entities), [False] * data.n_entities, data.entity_counts),
        "relations": (list(data.relations) * times, backwards, np.tile(data.relation_counts, times)),
    }


def _without_spaces(labels: Sequence[str]) -> list[str]:
    """Labels without white space: underscores for it, or percent signs where two labels would become one."""
    joined = ["_".join(label.split()) or "_" for label in labels]
    if len(set(joined)) == len(labels):
        return joined
    return ["".join(quote(c) if c.isspace() or c == "%" else c for c in label) for label in labels]


def _to_numpy(table: Tensor) -> Table:
    array: Table = table.detach().cpu().numpy()
    return array


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
