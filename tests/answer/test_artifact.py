"""Models on disk: bit for bit the same when read, every kind of damage one error, nothing overwritten."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import kgem
from kgem.answer.artifact import KIND, VERSION
from kgem.answer.model import Model
from kgem.answer.modes import MODES
from kgem.data.dataset import Dataset
from kgem.data.index import Vocabulary
from kgem.data.names import Names
from kgem.errors import ArtifactError, Damaged
from kgem.evaluate.temperature import EntropyEffect, Temperature
from kgem.files.store import Store, read_store, write_store
from kgem.model.scores import SCORES
from obvious import ALL_SCORES
from small_models import random_model


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    random_model().save(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("reciprocal", [True, False])
def test_what_is_loaded_is_what_was_saved(tmp_path: Path, dtype: str, reciprocal: bool) -> None:
    effects = {"point": Temperature(0.7, 0.2, -0.1, 0.8, (0.3, -0.2, 0.1, 0.0, 0.0, -0.1, 0.2, 0.4))}
    undecided = EntropyEffect(0.9, 0.2, 1.5, (0.1, 0.0, 0.0, 0.3, 0.0, 0.0, -0.1, 0.0))
    effects["mean"] = replace(effects["point"], entropy=undecided, without=Temperature(1.2))
    model = random_model(dtype=dtype, reciprocal=reciprocal)
    model = replace(model, temperatures=model.temperatures | effects)  # type: ignore[operator]
    model.save(tmp_path / "m")
    again = kgem.load(tmp_path / "m")
    assert type(again) is Model
    for name in ("mode", "validation", "temperatures", "n_samples", "metrics", "provenance", "config"):
        assert getattr(again, name) == getattr(model, name), name
    pairs = [
        *zip(model.point.tables(), again.point.tables(), strict=True),
        *zip(model.learned, again.learned, strict=True),
        (model.posterior.entities.mean, again.posterior.entities.mean),
        (model.posterior.entities.log_std, again.posterior.entities.log_std),
        (model.posterior.relations.mean, again.posterior.relations.mean),
        (model.posterior.relations.log_std, again.posterior.relations.log_std),
    ]
    assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in pairs)
    assert again.data.content_hash == model.data.content_hash and again.data.name == model.data.name
    for mode in MODES:
        for query in ({"head": "e1", "relation": "r1"}, {"relation": "r2", "tail": "e3"}, {"head": "e1", "tail": "e2"}):
            assert again.predict(**query, mode=mode) == model.predict(**query, mode=mode)
    assert again.missing_facts(20) == model.missing_facts(20)
    assert again.evaluate() == model.evaluate()
    assert again.strengths.entities["e3"] == model.strengths.entities["e3"]


def test_models_of_old_have_one_temperature_for_each_mode(saved: Path, tmp_path: Path) -> None:
    store = read_store(saved, kind=KIND, version=VERSION)
    document = store.documents["model"] | {"temperatures": {"point": 0.7, "mean": 1.3}}
    write_store(tmp_path / "old", store.tensors, store.documents | {"model": document}, kind=KIND, version=VERSION)
    old = kgem.load(tmp_path / "old")
    assert old.temperatures == {"point": Temperature(0.7), "mean": Temperature(1.3)}
    assert old.predict("e1", "r1", mode="point") == random_model().predict("e1", "r1", mode="point")


def test_equal_models_give_equal_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        random_model().save(tmp_path / name)
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()


def test_labels_of_every_kind_come_back(tmp_path: Path) -> None:
    odd = ("", " ", "\t", '"', "é", "é", "東京", "a/b", "\U0001f30d", "null")
    facts = np.array([[i, 0, (i + 1) % len(odd)] for i in range(len(odd))])
    data = Dataset("odd", Vocabulary(odd, "entity"), Vocabulary(("\n",), "relation"), facts, facts[:0], facts[:0])
    random_model(data).save(tmp_path / "m")
    again = kgem.load(tmp_path / "m")
    assert again.data.entities.labels == odd and again.data.relations.labels == ("\n",)


def test_names_come_back_and_files_without_them_are_as_they_were(tmp_path: Path) -> None:
    names = Names({"e1": "Berlin\n", "r0": "東京"}, {"x": "http://x.org/"})
    data = random_model().data.with_names(names)
    assert not data.names.prefixes  # none that shortens a label
    named = replace(data, entities=replace(data.entities, names=names), relations=replace(data.relations, names=names))
    random_model(named).save(tmp_path / "named")
    again = kgem.load(tmp_path / "named").data
    assert again.names.by_label == names.by_label and again.names.prefixes == names.prefixes
    assert again.relations.names.by_label == names.by_label and again.content_hash == data.content_hash
    random_model().save(tmp_path / "plain")
    vocabulary = json.loads((tmp_path / "plain" / "vocabulary.json").read_text())
    assert set(vocabulary) == {"entities", "relations"} and not kgem.load(tmp_path / "plain").data.names


def test_provenance_and_versions_are_in_the_files(saved: Path) -> None:
    told = json.loads((saved / "model.json").read_bytes())
    assert told["dataset"] == {"name": "random", "sha256": random_model().data.content_hash}
    assert {"python", "torch", "numpy", "safetensors"} == set(told["versions"])
    manifest = json.loads((saved / "manifest.json").read_bytes())
    assert (manifest["kind"], manifest["version"]) == ("kgem-model", 1) and manifest["kgem"]


def test_a_run_folder_will_do(saved: Path) -> None:
    run = saved.parent
    (run / "config.toml").touch()
    assert kgem.load(run).predict("e1", "r1") == kgem.load(saved).predict("e1", "r1")
    assert kgem.load(str(run)).data.name == "random"
    shutil.rmtree(saved)
    for path in (run / "config.toml", run / ".lock"):  # a run that just begins has its lock first
        path.touch()
        with pytest.raises(ArtifactError, match=r"no model yet.*\n.*kgem resume"):
            kgem.load(run)
        path.unlink()


def test_what_is_no_model_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    write_store(tmp_path / "other", {"x": torch.ones(2)}, {}, kind="checkpoint", version=1)
    for name, told in [
        ("nowhere", "no kgem-model here"),
        ("file", "a file"),
        ("empty", "neither a run nor a saved model"),
        ("other", "not a"),
    ]:
        with pytest.raises(ArtifactError, match=told) as caught:
            kgem.load(tmp_path / name)
        assert caught.value.remedy and str(tmp_path / name) in str(caught.value.where)


FILES = sorted([*(f"{g}.safetensors" for g in ("facts", "log_std", "mean", "point", "strengths")), "model.json"])
FILES += ["vocabulary.json", "manifest.json", "manifest.sha256"]
DAMAGES: dict[str, Callable[[Path], Any]] = {
    "flipped": lambda f: f.write_bytes(bytes(b ^ (4 if i == f.stat().st_size // 2 else 0) for i, b in _each(f))),
    "first": lambda f: f.write_bytes(bytes(b ^ (1 if i == 0 else 0) for i, b in _each(f))),
    "last": lambda f: f.write_bytes(bytes(b ^ (128 if i == f.stat().st_size - 1 else 0) for i, b in _each(f))),
    "short": lambda f: f.write_bytes(f.read_bytes()[:-1]),
    "long": lambda f: f.write_bytes(f.read_bytes() + b"\0"),
    "empty": lambda f: f.write_bytes(b""),
    "gone": lambda f: f.unlink(),
}


def _each(file: Path) -> list[tuple[int, int]]:
    return list(enumerate(file.read_bytes()))


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_damage_to_every_file_is_found(saved: Path, damage: str) -> None:
    assert sorted(f.name for f in saved.iterdir()) == sorted(FILES)
    good = {name: (saved / name).read_bytes() for name in FILES}
    for name in FILES:
        DAMAGES[damage](saved / name)
        with pytest.raises(Damaged) as caught:
            kgem.load(saved)
        assert str(saved) in str(caught.value.where) and caught.value.remedy
        (saved / name).write_bytes(good[name])
    kgem.load(saved)


def _rewritten(folder: Path, change: Callable[[Store], Any], version: int = VERSION) -> None:
    """The same store with some of its content changed, its hashes right."""
    store = read_store(folder, kind=KIND, version=VERSION)
    change(store)
    write_store(folder, store.tensors, store.documents, kind=KIND, version=version)


WRONG: dict[str, tuple[Callable[[Store], Any], str]] = {
    "no table": (lambda s: s.tensors.pop("mean/entities"), "mean/entities is missing"),
    "no document": (lambda s: s.documents.pop("vocabulary"), "vocabulary is missing"),
    "no mode": (lambda s: s.documents["model"].pop("mode"), "mode is missing"),
    "another mode": (lambda s: s.documents["model"].update(mode="median"), "median"),
    "short table": (lambda s: s.tensors.update({"point/entities": torch.ones(3, 8)}), r"point/entities has the shape"),
    "narrow q": (lambda s: s.tensors.update({"log_std/relations": torch.ones(8, 2)}), "log_std/relations has"),
    "few strengths": (lambda s: s.tensors.update({"strengths/entities": torch.ones(2)}), "strengths/entities has"),
    "another fact": (lambda s: s.tensors["facts/train"][0].zero_(), "not those of the graph"),
    "id too high": (lambda s: s.tensors["facts/train"][0].fill_(999), "an id in column 0"),
    "another label": (lambda s: s.documents["vocabulary"]["entities"].__setitem__(0, "x"), "not those of the graph"),
    "no such setting": (lambda s: s.documents["model"]["config"].update(extra=1), "1 validation error"),
    "list for a dict": (lambda s: s.documents.update(model=[]), "do not make a model"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_sound_files_that_make_no_model(saved: Path, wrong: str) -> None:
    change, told = WRONG[wrong]
    _rewritten(saved, change)
    with pytest.raises(Damaged, match=told) as caught:
        kgem.load(saved)
    assert caught.value.where == str(saved)


def test_a_newer_format_and_an_unknown_score_are_not_damage(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCORES, "simple", ALL_SCORES["simple"])
    random_model(score="simple").save(saved.parent / "simple")
    assert kgem.load(saved.parent / "simple").predict("e1", "r1")
    monkeypatch.delitem(SCORES, "simple")
    with pytest.raises(ArtifactError, match="'simple' is not known here") as caught:
        kgem.load(saved.parent / "simple")
    assert not isinstance(caught.value, Damaged)
    _rewritten(saved, lambda store: None, version=VERSION + 1)
    with pytest.raises(ArtifactError, match="newer kgem") as caught:
        kgem.load(saved)
    assert not isinstance(caught.value, Damaged)


def test_nothing_is_overwritten_without_force(saved: Path) -> None:
    other = replace(random_model(), mode="bayes")
    before = {f.name: f.read_bytes() for f in saved.iterdir()}
    with pytest.raises(ArtifactError, match="not overwritten"):
        other.save(saved)
    assert {f.name: f.read_bytes() for f in saved.iterdir()} == before
    other.save(saved, force=True)
    assert kgem.load(saved).mode == "bayes"


def test_force_replaces_models_only(tmp_path: Path) -> None:
    model = random_model()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.txt").write_text("mine")
    write_store(tmp_path / "checkpoint", {"x": torch.ones(2)}, {}, kind="checkpoint", version=1)
    for name in ("file", "folder", "checkpoint"):
        for force in (False, True):
            with pytest.raises(ArtifactError):
                model.save(tmp_path / name, force=force)
    assert (tmp_path / "folder" / "thesis.txt").read_text() == (tmp_path / "file").read_text() == "mine"
    read_store(tmp_path / "checkpoint", kind="checkpoint", version=1)
    (tmp_path / "empty").mkdir()
    model.save(tmp_path / "empty")
