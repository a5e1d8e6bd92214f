"""Exports: read back with the programs they are for, or with the obvious reader of the format."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from unittest.mock import Mock, patch

import numpy as np
import polars as pl
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

import kgem
from kgem.data.dataset import Dataset
from kgem.errors import InputError
from kgem.runs.export import FORMATS, HOW, PYKEEN, export
from small_models import random_model

SCORES = [(score, reciprocal) for score in PYKEEN for reciprocal in (True, False)]
OTHER_PYTHON = Path(__file__).parents[2] / ".venv-pykeen" / "bin" / "python"


@pytest.mark.parametrize("reciprocal", [True, False])
def test_parquet_has_labels_frequencies_strengths_and_vectors(tmp_path: Path, reciprocal: bool) -> None:
    model = random_model(reciprocal=reciprocal)
    export(model, tmp_path, "parquet", "mean")
    entities, relations = (pl.read_parquet(tmp_path / f"{name}.parquet") for name in ("entities", "relations"))
    assert entities["label"].to_list() == list(model.data.entities)
    assert entities["frequency"].to_list() == model.data.entity_counts.tolist()
    np.testing.assert_array_equal(entities["vector"].to_numpy(), model.mean.entities.numpy())
    np.testing.assert_allclose(entities["std"].to_numpy(), 0.3)
    times = 2 if reciprocal else 1
    assert relations["label"].to_list() == list(model.data.relations) * times
    assert relations["reciprocal"].sum() == model.data.n_relations * (times - 1)
    np.testing.assert_array_equal(relations["strength"].to_numpy(), model.learned.relations.numpy())


def test_npz_opens_without_pickle(tmp_path: Path) -> None:
    model = random_model()
    export(model, tmp_path, "npz")
    with np.load(tmp_path / "tables.npz", allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["entities"], model.point.entities.numpy())
        np.testing.assert_array_equal(arrays["relations"], model.point.relations.numpy())
        assert arrays["entity_labels"].tolist() == list(model.data.entities)
        assert arrays["relation_is_reciprocal"].sum() == model.data.n_relations


def test_vectors_have_the_cosines_of_similar_entities(tmp_path: Path) -> None:
    model = random_model(dtype="float32")
    export(model, tmp_path, "vectors")
    rows = pl.read_parquet(tmp_path / "vectors.parquet")
    vectors, labels = rows["vector"].to_numpy(), rows["label"].to_list()
    assert rows["id"].to_list() == list(range(model.data.n_entities)) and labels == list(model.data.entities)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-6)
    for place in (0, 3):
        for other in model.similar(labels[place], top=5):
            cosine = vectors[place] @ vectors[labels.index(other.label)]
            assert cosine == pytest.approx(other.cosine, abs=1e-6)


def test_faiss_finds_the_similar_entities(tmp_path: Path) -> None:
    faiss = pytest.importorskip("faiss")
    model = random_model(dtype="float32")
    export(model, tmp_path, "vectors")
    index = faiss.read_index(str(tmp_path / "vectors.faiss"))
    vectors = np.stack(pl.read_parquet(tmp_path / "vectors.parquet")["vector"].to_numpy())
    cosines, ids = index.search(vectors[:4], 6)
    for place in range(4):
        similar = model.similar(model.data.entities[place], top=5)
        assert [model.data.entities[i] for i in ids[place].tolist() if i != place] == [s.label for s in similar]
        np.testing.assert_allclose(cosines[place, 1:], [s.cosine for s in similar], atol=1e-5)


def test_what_all_facts_share_is_no_relation_in_any_format(tmp_path: Path) -> None:
    model, dim = random_model(score="tucker"), 4
    n = 2 * model.data.n_relations
    core, strengths = model.point.relations[n:].numpy(), model.learned.relations[n:].numpy()
    for to in FORMATS:
        export(model, tmp_path / to, to)
    for name, rows in (("relations", n), ("shared", dim * dim)):
        assert len(pl.read_parquet(tmp_path / "parquet" / f"{name}.parquet")) == rows
    shared = pl.read_parquet(tmp_path / "parquet" / "shared.parquet")
    np.testing.assert_array_equal(shared["vector"].to_numpy(), core)
    np.testing.assert_array_equal(shared["strength"].to_numpy(), strengths)
    with np.load(tmp_path / "npz" / "tables.npz", allow_pickle=False) as arrays:
        assert len(arrays["relations"]) == len(arrays["relation_labels"]) == len(arrays["relation_strengths"]) == n
        np.testing.assert_array_equal(arrays["shared"], core)
    lines = (tmp_path / "word2vec" / "relations.txt").read_text(encoding="utf-8").splitlines()
    assert lines[0] == f"{n} {dim}" and len(lines) == n + 1
    with np.load(tmp_path / "pykeen" / "weights.npz", allow_pickle=False) as weights:
        theirs = weights["interaction.core_tensor"]  # (head, relation, tail)
    assert theirs[1, 2, 3] == core[1 * dim + 3, 2]
    tensors = load_file(tmp_path / "huggingface" / "model.safetensors")
    assert len(tensors["relations"]) == len(tensors["relation_strengths"]) == n
    assert torch.equal(tensors["shared"], model.point.relations[n:])
    card = (tmp_path / "huggingface" / "README.md").read_text(encoding="utf-8")
    assert f"`relations`\n({n}, 4)" in card and "16 more rows, which all facts use" in card


def labelled(*labels: str) -> Dataset:
    rows = [(a, "is near", b) for a, b in pairwise(labels)]
    return Dataset.from_frames(pl.DataFrame(rows, schema=["head", "relation", "tail"], orient="row"))


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (("New  Zealand", "Fiji", "a\tb"), {"New_Zealand", "Fiji", "a_b"}),
        (("a b", "a_b", "50%\n"), {"a%20b", "a_b", "50%25%0A"}),  # underscores would make one of two
    ],
)
def test_word2vec_has_a_line_per_symbol_and_no_space_in_it(
    tmp_path: Path, labels: tuple[str, ...], words: set[str]
) -> None:
    model = random_model(labelled(*labels), dtype="float32")
    export(model, tmp_path, "word2vec")
    first, *lines = (tmp_path / "entities.txt").read_text(encoding="utf-8").split("\n")[:-1]
    rows = [line.split(" ") for line in lines]
    assert first == f"{len(labels)} {model.point.entities.shape[1]}" == f"{len(rows)} {len(rows[0]) - 1}"
    assert {row[0] for row in rows} == words
    np.testing.assert_array_equal(np.array([row[1:] for row in rows], dtype=np.float32), model.point.entities.numpy())
    assert (tmp_path / "relations.txt").read_text(encoding="utf-8").split("\n")[2].startswith("is_near⁻¹ ")


def test_pykeen_has_relations_beside_their_inverses_and_parts_beside_each_other(tmp_path: Path) -> None:
    model = random_model()
    export(model, tmp_path, "pykeen")
    with np.load(tmp_path / "weights.npz", allow_pickle=False) as weights:
        entities = weights["entity_representations.0._embeddings.weight"]
        relations = weights["relation_representations.0._embeddings.weight"]
    for ours, theirs in ((model.point.entities[5], entities[5]), (model.point.relations[2], relations[4])):
        np.testing.assert_array_equal(theirs[0::2], ours[:4])
        np.testing.assert_array_equal(theirs[1::2], ours[4:])
    np.testing.assert_array_equal(relations[5][0::2], model.point.relations[2 + model.data.n_relations][:4])
    told = json.loads((tmp_path / "model.json").read_text())
    assert (told["class"], told["arguments"], told["create_inverse_triples"]) == ("ComplEx", {"embedding_dim": 4}, True)
    assert json.loads((tmp_path / "entity_to_id.json").read_text())[model.data.entities[3]] == 3


@pytest.mark.slow
@pytest.mark.skipif(not OTHER_PYTHON.is_file(), reason="needs an environment with PyKEEN, as the benchmarks make it")
def test_pykeen_gives_the_same_scores(tmp_path: Path) -> None:
    for score, reciprocal in SCORES:
        model = random_model(score=score, reciprocal=reciprocal)
        folder = tmp_path / f"{score}-{reciprocal}"
        folder.mkdir()
        export(model, folder, "pykeen")
        heads, relations = torch.tensor([3, 5]), torch.tensor([1, 2])
        backwards = model.point.scores(heads, relations + model.data.n_relations)
        np.savez(folder / "wanted.npz", tails=model.point.scores(heads, relations).numpy(), heads=backwards.numpy())
    indented = "\n".join(f"    {line}" for line in HOW.splitlines())
    program = f"""import os, sys
for folder in sys.argv[1:]:
    os.chdir(folder)
{indented}
    model = model.double()
    model.load_state_dict(weights, strict=False)
    wanted = numpy.load("wanted.npz")
    tails = model.predict_t(torch.tensor([[3, 1], [5, 2]])).detach().numpy()
    heads = model.predict_h(torch.tensor([[1, 3], [2, 5]])).detach().numpy()
    assert abs(tails - wanted["tails"]).max() < 1e-12 and abs(heads - wanted["heads"]).max() < 1e-12, folder
"""
    folders = [str(path) for path in sorted(tmp_path.iterdir())]
    done = subprocess.run([str(OTHER_PYTHON), "-c", program, *folders], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_what_cannot_be_exported_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no export format"):
        export(random_model(), tmp_path, "pickle")
    with pytest.raises(InputError, match="no prediction mode"):
        export(random_model(), tmp_path, "npz", "median")
    from kgem.model.scores import SCORES as KNOWN

    assert set(PYKEEN) == set(KNOWN)
    assert set(FORMATS) == {"parquet", "npz", "word2vec", "vectors", "pykeen", "huggingface"}
    (tmp_path / "mine.txt").touch()
    with pytest.raises(InputError, match=r"has files in it\n.*empty folder"):
        export(random_model(), tmp_path, "npz")


@pytest.mark.parametrize("to", FORMATS)
def test_a_disk_that_is_full_is_told_of_whoever_writes(to: str, tmp_path: Path) -> None:
    """Polars and safetensors have errors of their own, with the system's in their text."""
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    native = {"parquet": pl.exceptions.ComputeError, "huggingface": SafetensorError}
    error = native[to](f"File out of specification: {full.strerror} (os error 28)") if to in native else full
    with (
        patch.dict(FORMATS, {to: replace(FORMATS[to], write=Mock(side_effect=error))}),
        pytest.raises(InputError, match=r"cannot be written: No space left on device\n.*a disk with room"),
    ):
        export(random_model(), tmp_path, to)


METRICS = {"mrr": 0.25, "hits_at_1": 0.125, "hits_at_3": 0.2, "hits_at_10": 0.5, "mean_rank": 7.0, "n": 8}


def test_a_folder_for_hugging_face_is_read_by_kgem_and_by_anybody(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    evil = "a`b\n---\nx: <script>"
    model = random_model(labelled(evil, "b", "c"), metrics={"test": {"overall": METRICS}})
    folder = tmp_path / "new" / "pushed"
    kgem.export(model, folder, "huggingface", "mean")
    assert {path.name for path in folder.iterdir()} == {
        *("README.md", "config.json", "vocabulary.json", "model.safetensors", "model")
    }
    tensors = load_file(folder / "model.safetensors")
    assert torch.equal(tensors["entities"], model.mean.entities)
    assert torch.equal(tensors["relation_strengths"], model.learned.relations)
    told = json.loads((folder / "config.json").read_text())
    assert (told["model_type"], told["score"], told["dim"], told["mode"]) == ("kgem", "complex", 4, "mean")
    assert json.loads((folder / "vocabulary.json").read_text())["entities"] == list(model.data.entities)
    again = kgem.load(folder)
    assert again.predict(evil, "is near") == model.predict(evil, "is near")
    start, header, card = (folder / "README.md").read_text().split("---\n", 2)
    assert start == "" and "\n---\n" not in card and "<script>" not in card.replace("u0060b\\n---\\nx: <script>", "")
    metadata = yaml.safe_load(header)
    assert metadata["library_name"] == "kgem" and metadata["pipeline_tag"] == "graph-ml"
    (result,) = metadata["model-index"][0]["results"]
    assert {m["type"]: m["value"] for m in result["metrics"]} == {"mrr": 0.25, "hits_at_1": 0.125, "hits_at_10": 0.5}
    assert "| test | 0.2500 | 0.1250 | 0.5000 |" in card
