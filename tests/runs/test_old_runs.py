"""A run folder of the first kgem that had run folders (commit 79003b0, formats 1): what it says is still understood.

It is `kgem fit` of a random graph of 14 entities and 84 facts, K = 4, one epoch in each of the three phases there were.
"""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kgem.answer.model import load
from kgem.errors import ArtifactError
from kgem.runs.run import Run, read_log
from kgem.runs.update import plan_update, read_delta

Kgem = Callable[..., tuple[int, str, str]]
ANSWERS = [("e10", 0.071524203), ("e2", 0.07148961), ("e9", 0.071489014)]  # what that kgem said of (e1, r1, ?)
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    with tarfile.open(Path(__file__).with_name("run-0.1.tar.xz")) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "run"


def test_its_model_answers_as_it_did(old: Path) -> None:
    model = load(old)
    assert (model.data.n_entities, len(model.data.train), model.mode) == (14, 68, "mean")
    found = model.predict(head="e1", relation="r1", top=3)
    assert [answer.label for answer in found] == [label for label, _ in ANSWERS]
    assert [answer.probability for answer in found] == pytest.approx([chance for _, chance in ANSWERS], abs=1e-7)
    assert model.evaluate("test").mrr == pytest.approx(model.metrics["test"]["overall"]["mrr"])
    assert len(read_log(old)) == 3


def test_it_is_finished_and_says_so(old: Path, kgem: Kgem) -> None:
    code, _, err = kgem("resume", old)
    assert code == 0 and "this run is finished" in err


def test_it_can_learn_further_facts(old: Path, tmp_path: Path) -> None:
    (tmp_path / "new.tsv").write_text("e0\tr0\tfresh\nfresh\tr1\te1\n")
    planned = plan_update(load(old), read_delta(tmp_path / "new.tsv"), folder=old)
    assert planned.changes.total_new == 2
    assert planned.config.pretrain.candidates == (1.0,) and planned.config.em.beta == 0.1


def test_a_fit_that_was_cut_off_then_is_not_gone_on_with_by_guessing(old: Path, kgem: Kgem) -> None:
    shutil.rmtree(old / "model")
    with Run.open(old) as run, pytest.raises(ArtifactError, match="this kgem does not know") as told:
        _ = run.fit
    assert "the kgem that began the run" in (told.value.remedy or "")
    code, _, err = kgem("resume", old)
    assert code == 1 and "did not expect" not in err
    assert torch.get_num_threads() == 1
