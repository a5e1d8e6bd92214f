"""Events for TensorBoard: what is in them, what happens when a run goes on, and without the extra."""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kgem
from driving import complete, stop_after
from kgem.errors import ConfigError, InputError
from kgem.runs.configure import configure
from kgem.runs.fitting import prepare
from kgem.runs.run import Run, read_log
from kgem.runs.tensorboard import TensorBoard
from obvious import random_graph

PHASES = ("pretrain", "em", "retrain", "companions", "distil")
QUICK: dict[str, Any] = {
    "model.dim": 3,
    "pretrain.candidates": (1.0,),
    "retrain.candidates": ((1.0, 0.0),),
} | {f"{phase}.{name}": n for phase in PHASES for name, n in (("epochs", 2), ("batch_size", 40))}


def events_of(folder: Path) -> Any:
    """What TensorBoard itself reads from a folder."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its protobuf
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(folder), size_guidance={"histograms": 0, "scalars": 0})
        events.Reload()
    return events


def test_the_numbers_of_every_phase_and_the_strengths(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    heard = []
    model = kgem.fit(
        random_graph(), progress=lambda *epoch: heard.append(epoch), tensorboard=tmp_path / "board", **QUICK
    )
    events = events_of(tmp_path / "board")
    for step, (phase, record) in enumerate(heard, 1):
        for name, value in {"loss": record.loss, "mrr": record.mrr, **record.extra}.items():
            found = {event.step: event.value for event in events.Scalars(f"{phase}/{name}")}
            assert found[step] == pytest.approx(value, rel=1e-6)
    assert {"em/elbo", "em/log_likelihood", "em/prior", "em/entropy"} <= set(events.Tags()["scalars"])
    histograms = events.Histograms("em/log10 strengths of entities")
    assert [each.step for each in histograms] == [3, 4]
    drawn = histograms[-1].histogram_value
    assert drawn.num == model.data.n_entities
    lam = np.log10(model.strengths.entities.array)  # of the best epoch, or of the last
    assert drawn.min <= lam.max() and drawn.max >= lam.min()
    (text,) = events.Tensors("settings/text_summary")
    assert b"dim = 3" in text.tensor_proto.string_val[0]


def test_a_run_that_goes_on_continues_its_curves(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    prepared, config = prepare(random_graph()), configure(None, {**QUICK, "run.checkpoint_seconds": 0})
    with Run.create(tmp_path / "run", prepared, config) as run:
        run.show_in_tensorboard()
        stop_after(run, 3)
    with Run.open(tmp_path / "run") as run:
        assert run.is_in_tensorboard
        run.show_in_tensorboard()
        complete(run)
    events = events_of(tmp_path / "run" / "tensorboard")
    log = read_log(tmp_path / "run")
    for phase in PHASES:
        wanted = [(step, record["loss"]) for step, record in enumerate(log, 1) if record["phase"] == phase]
        found = [(event.step, event.value) for event in events.Scalars(f"{phase}/loss")]
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    with Run.create(tmp_path / "run", prepared, config, force=True) as run:
        assert not run.is_in_tensorboard  # another run's curves are not this one's


def test_a_full_disk_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SummaryWriter, "add_scalar", full)
    with caplog.at_level(logging.WARNING):
        model = kgem.fit(random_graph(), tensorboard=tmp_path / "board", **QUICK)
    assert model.mode and [r.getMessage() for r in caplog.records if "TensorBoard" in r.getMessage()] == [
        f"{tmp_path / 'board'}: no more events for TensorBoard: No space left on device"
    ]


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="cannot be written"):
        TensorBoard(tmp_path / "file" / "board")


def test_without_the_extra_there_is_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ConfigError, match=r"(?s)not installed.*pip install 'kgem\[tensorboard\]'"):
        kgem.fit(random_graph(), tensorboard=tmp_path / "board", **QUICK)
    assert not (tmp_path / "board").exists()
