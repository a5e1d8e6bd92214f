"""`kgem update`, as a person uses it."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from driving import complete
from kgem.cli.watch import Watch
from kgem.files.store import read_store
from kgem.runs.configure import configure
from kgem.runs.fitting import Prepared
from kgem.runs.review import Review
from kgem.runs.run import Run, read_log
from obvious import random_graph

Kgem = Callable[..., tuple[int, str, str]]
GRAPH = random_graph()
SMALL: dict[str, Any] = {
    f"{phase}.{name}": value
    for phase in ("pretrain", "em", "retrain", "companions", "distil")
    for name, value in {"epochs": 2, "patience": 50, "batch_size": 40}.items()
} | {"model.dim": 3, "pretrain.candidates": [1.0], "retrain.candidates": [[1.0, 0.0]], "run.threads": 1}
QUICK = ["--set", "em.epochs=2", "--set", "retrain.epochs=2", "--set", "distil.epochs=2"]
NEW = "n1\tr0\te1\ne2\tr1\tn1\nn2\tnew\te3\n"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that others are made from; nobody may change it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("finished") / "a"
    with Run.create(folder, Prepared(GRAPH, None), configure(None, SMALL)) as run:
        complete(run)
    torch.set_num_threads(threads)
    return folder


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished: Path) -> Any:
    """A folder of its own, with the run `a` and new facts."""
    monkeypatch.chdir(tmp_path)
    Path("a").symlink_to(finished, target_is_directory=True)
    known, held_out = GRAPH.frame("train").row(0), GRAPH.frame("test").row(0)
    Path("new.tsv").write_text(NEW + "".join("\t".join(fact) + "\n" for fact in (known, held_out)))
    Path("gone.tsv").write_text("\t".join(GRAPH.frame("train").row(1)) + "\nnobody\tr0\te1\n")
    threads, before = torch.get_num_threads(), everything(finished)
    yield tmp_path
    torch.set_num_threads(threads)
    assert everything(finished) == before


def everything(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def tables(folder: str) -> dict[str, torch.Tensor]:
    return read_store(Path(folder) / "model", kind="kgem-model", version=1).tensors


def test_new_facts_into_a_run_of_its_own(kgem: Kgem) -> None:
    code, out, err = kgem("update", "a", "new.tsv", "--remove", "gone.tsv", *QUICK)
    assert code == 0, err
    for told in (
        "new: 3 facts (3 in train)",
        "new: 2 entities: n1, n2",
        "new: 1 relation: new",
        "known already: 1 fact",
        "removed: 1 fact (1 in train)",
        "warning: 1 fact in test already: left there",
        "warning: 1 fact to remove that the graph does not have",
        "in all, for 6 epochs",
        "run folder: a-2",
        "next: kgem predict a-2",
    ):
        assert told in err, told
    assert "before" in out and "after" in out and "MRR" in out
    assert [record["phase"] for record in read_log(Path("a-2"))] == ["em"] * 2 + ["retrain"] * 2 + ["distil"] * 2
    assert kgem("predict", "a-2", "--head", "n1", "--relation", "r0")[0] == 0
    code, _, err = kgem("resume", "a-2")
    assert code == 0 and "this run is finished" in err


def test_a_run_and_its_update_are_compared_from_inside_its_folder(
    kgem: Kgem, here: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("a").unlink()
    shutil.copytree(finished, "a")
    Path("names.tsv").write_text("n1\tNew One\n")
    monkeypatch.chdir("a")
    code, _, err = kgem("update", ".", "../new.tsv", "--labels", "../names.tsv", *QUICK)
    assert code == 0 and (here / "a-2" / "model").is_dir(), err
    monkeypatch.chdir(here)
    assert "New One (n1)" in kgem("find", "a-2", "new one")[1]
    code, out, err = kgem("compare", "a", "a-2", "--json")
    found = json.loads(out)
    assert code == 0 and found["facts"] == len(GRAPH.test) and found["runs"][1]["gain"]["n"] == len(GRAPH.test)
    own = kgem("evaluate", "a-2", "--json")[1]
    assert found["runs"][1]["mrr"] == pytest.approx(json.loads(own)["overall"]["mrr"])
    code, out, err = kgem("compare", "a", "a-2")
    assert code == 0 and "each ranks among its own entities" in err and "gain" in out


def test_json_and_quiet(kgem: Kgem) -> None:
    code, out, err = kgem("update", "a", "new.tsv", "--out", "b", "-q", "--json", *QUICK)
    assert code == 0 and err == "warning: 1 fact in test already: left there\n"
    result = json.loads(out)
    assert result["run"] == "b" and result["epochs"] == {"pretrain": 0, "em": 2, "retrain": 2, "distil": 2}
    assert result["update"]["new"] == {"train": 3, "valid": 0, "test": 0} and result["update"]["new_entities"] == 2
    assert result["update"]["same_facts"]["test"]["n"] == 2 * len(GRAPH.test)
    assert 0 < result["update"]["same_facts"]["test"]["after"] <= 1


def test_a_review_is_recognised(kgem: Kgem) -> None:
    review = Review(Path())
    review.decide("e21", "r3", "e0", "accept", "missing")
    review.decide(*GRAPH.frame("train").row(4), "reject", "doubtful")
    review.decide("e0", "r3", "e19", "skip", "missing")
    code, _, err = kgem("update", "a", "review.tsv", *QUICK)
    assert code == 0, err
    assert "review: 1 proposals accepted, 0 rejected, 1 facts dropped, 1 further decisions" in err
    assert "new: 1 fact (1 in train)" in err and "removed: 1 fact (1 in train)" in err


@pytest.mark.parametrize("epoch", [1, 3, 5])
def test_ctrl_c_saves_and_resume_ends_the_same(kgem: Kgem, monkeypatch: pytest.MonkeyPatch, epoch: int) -> None:
    assert kgem("update", "a", "new.tsv", "--out", "whole", "-q", *QUICK)[0] == 0
    real = Watch.show

    def call(self: Watch, record: Any) -> None:
        real(self, record)
        if len(self._run.records) == epoch:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as pressed:
        pressed.setattr(Watch, "show", call)
        code, _, err = kgem("update", "a", "new.tsv", "--out", "b", *QUICK)
    assert code == 130 and "kgem resume b" in err
    Path("a").unlink()  # the old run is no longer needed
    assert kgem("resume", "b", "-q")[0] == 0
    assert all(torch.equal(table, tables("whole")[name]) for name, table in tables("b").items())
    code, out, _ = kgem("resume", "b")
    assert code == 0 and "before" in out


def test_the_old_run_never_gives_way_and_others_only_by_force(kgem: Kgem) -> None:
    for out in ("a", "a/b"):
        code, _, err = kgem("update", "a", "new.tsv", "--out", out, "--force", *QUICK)
        assert code == 2 and "is the run that is updated" in err
    Run.create(Path("b"), Prepared(GRAPH, None), configure(None, SMALL)).close()
    code, _, err = kgem("update", "a", "new.tsv", "--out", "b", *QUICK)
    assert code == 2 and "--force" in err
    assert kgem("update", "a", "new.tsv", "--out", "b", "--force", "-q", *QUICK)[0] == 0


WRONG: dict[str, list[Any]] = {
    "no facts": ["update", "a"],
    "no such run": ["update", "nowhere", "new.tsv"],
    "a file as run": ["update", "new.tsv", "new.tsv"],
    "a run that is not finished": ["update", "begun", "new.tsv"],
    "a damaged run": ["update", "damaged", "new.tsv"],
    "no such file": ["update", "a", "nowhere.tsv"],
    "nothing new": ["update", "a", "known.tsv"],
    "nothing to remove": ["update", "a", "--remove", "absent.tsv"],
    "an empty file": ["update", "a", "empty.tsv"],
    "a bad row": ["update", "a", "bad.tsv"],
    "added and removed": ["update", "a", "new.tsv", "--remove", "new.tsv"],
    "an unknown format": ["update", "a", "new.tsv", "--format", "xls"],
    "an unknown setting": ["update", "a", "new.tsv", "--set", "em.betta=1"],
    "a setting that cannot change": ["update", "a", "new.tsv", "--set", "model.dim=9"],
    "a time that is none": ["update", "a", "new.tsv", "--time-budget", "soon"],
    "a device that is none": ["update", "a", "new.tsv", "--device", "abacus"],
    "a folder of others": ["update", "a", "new.tsv", "--out", "mine", "--force"],
}


@pytest.mark.parametrize("words", WRONG.values(), ids=WRONG.keys())
def test_wrong_input_is_one_message_and_nothing_is_written(
    words: list[Any], kgem: Kgem, here: Path, finished: Path
) -> None:
    import shutil

    Run.create(Path("begun"), Prepared(GRAPH, None), configure(None, SMALL)).close()
    shutil.copytree(finished, "damaged")
    content = bytearray(Path("damaged/model/mean.safetensors").read_bytes())
    content[-1] ^= 1
    Path("damaged/model/mean.safetensors").write_bytes(content)
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("years of work")
    GRAPH.frame("train").head(3).write_csv("known.tsv", separator="\t", include_header=False)
    Path("absent.tsv").write_text("nobody\tr0\te1\n")
    Path("empty.tsv").write_text("")
    Path("bad.tsv").write_text("only\ttwo\n")
    before = everything(here)
    code, out, err = kgem(*words)
    assert code == 2 and out == "", err
    assert everything(here) == before and not Path("a-2").exists()
    if not err.startswith("Usage"):
        first, remedy = err.strip().splitlines()[-2:]
        assert first.startswith("error: ") and remedy.startswith("  "), err
