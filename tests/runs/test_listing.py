"""What a list of runs says of each: finished, running, stopped, broken."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from driving import complete, stop_after
from kgem.files.locks import is_locked, lock_run
from kgem.files.store import read_document
from kgem.runs.configure import configure
from kgem.runs.fitting import prepare
from kgem.runs.listing import list_runs, summarise
from kgem.runs.run import Run
from obvious import random_graph
from small_models import random_model

SHORT = {"model.dim": 3, "pretrain.epochs": 2, "pretrain.candidates": [1.0], "em.epochs": 2, "retrain.epochs": 1}
SHORT |= {"retrain.candidates": [[1.0, 0.0]], "distil.epochs": 0, "run.threads": 1}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is finished, one that was stopped, and one that has not begun."""
    folder = tmp_path_factory.mktemp("runs")
    config = configure(None, SHORT)
    with Run.create(folder / "a", prepare(random_graph(n_facts=200), 0), config) as run:
        complete(run)
    with Run.create(folder / "deep" / "b", prepare(random_graph(n_facts=200), 0), config) as run:
        stop_after(run, 3)
    with Run.create(folder / "c", prepare(random_graph(n_facts=200), 0), config):
        pass
    return folder


@pytest.fixture
def runs(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "runs"))


def test_each_run_says_how_far_it_is(runs: Path) -> None:
    finished, unbegun, stopped = list_runs(runs)
    assert finished.folder == str(runs / "a") and finished.state == "finished" and finished.phase is None
    document = read_document(runs / "a" / "model", "model", kind="kgem-model", version=1)
    assert finished.mrr == document["metrics"]["test"]["overall"]["mrr"] and finished.split == "test"
    assert (finished.graph, finished.model, finished.dim, finished.origin) == ("random", "complex", 3, "fit")
    assert finished.bytes == sum(path.stat().st_size for path in (runs / "a").rglob("*") if path.is_file())
    assert (stopped.state, stopped.phase, stopped.epochs, stopped.dim) == ("stopped", "em", 3, 3)
    assert (unbegun.state, unbegun.epochs, unbegun.mrr) == ("stopped", 0, None)


def test_a_run_at_work_is_told(runs: Path) -> None:
    assert not is_locked(runs / "a") and not is_locked(runs)
    with lock_run(runs / "deep" / "b"):
        assert is_locked(runs / "deep" / "b")
        assert summarise(runs / "deep" / "b").state == "running"


@pytest.mark.parametrize(
    ("part", "harm", "reason"),
    [
        ("a/model/point.safetensors", "cut", "point.safetensors: is cut short"),
        ("a/model/point.safetensors", "gone", "is missing"),
        ("a/model/model.json", "change", "sha256"),
        ("a/model/manifest.json", "change", "does not agree"),
        ("deep/b/graph/run.json", "change", "sha256"),
        ("c/graph/manifest.json", "gone", "is missing"),
        ("deep/b/log.jsonl", "change", "make no sense"),
    ],
)
def test_a_broken_run_is_told_and_no_error(runs: Path, part: str, harm: str, reason: str) -> None:
    path = runs / part
    content = path.read_bytes()
    path.unlink() if harm == "gone" else path.write_bytes(content[:-9] if harm == "cut" else b"#" + content[1:])
    found = {Path(each.folder).name: each for each in list_runs(runs)}
    broken = [each for each in found.values() if each.state == "broken"]
    assert len(found) == 3 and [Path(each.folder).name for each in broken] == [
        Path(part).parts[-3 if "/graph/" in part or "/model/" in part else -2]
    ]
    assert reason in str(broken[0].reason)


def test_a_model_that_stands_alone_is_listed(tmp_path: Path) -> None:
    random_model().save(tmp_path / "models" / "m")
    (tmp_path / "models" / "notes").mkdir()
    (found,) = list_runs(tmp_path)
    assert found.state == "finished" and found.folder.endswith("m") and found.mrr is None and found.epochs == 3
    random_model(provenance={"unfinished": ["retrain", "distil"]}).save(tmp_path / "models" / "m", force=True)
    assert summarise(tmp_path / "models" / "m").state == "unfinished"
