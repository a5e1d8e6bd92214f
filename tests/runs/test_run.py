"""Run folders: killed, stopped, damaged or full, a run ends as if nothing had happened; nothing is overwritten."""

from __future__ import annotations

import json
import logging
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from driving import complete, exhaust, stop_after
from kgem.config import Config
from kgem.errors import ArtifactError, ConfigError, Damaged, InputError, RunBusy
from kgem.files import checkpoints as checkpoint
from kgem.files import store
from kgem.runs import run as running
from kgem.runs.configure import configure
from kgem.runs.fit import fit
from kgem.runs.fitting import Prepared
from kgem.runs.run import Run, check_free, find_origin, is_run, read_log
from kgem.settings import to_toml
from kgem.train import driver
from kgem.train.budget import epochs_left, longest, within_budget
from killing import same, starter, tables
from obvious import random_graph

PHASES = {"epochs": 3, "patience": 50, "batch_size": 40}
SMALL: dict[str, Any] = {
    "model": {"dim": 3},
    "pretrain": {**PHASES, "candidates": (1.0,)},
    "em": {**PHASES, "settled": 0.0},
    "retrain": {**PHASES, "candidates": ((1.0, 0.0), (1.0, 2.0)), "trial_epochs": 2},
    "companions": {"mixes": ()},  # tests/train/test_phases.py has them
    "distil": {**PHASES, "candidates": ((1.0, 0.0),)},
    "run": {"checkpoint_seconds": 0.0, "threads": 1},
}
EPOCHS = 3 + 3 + 2 * 2 + 2 + 3  # both finalists of re-training go on to the third epoch
GRAPH = random_graph()
pytestmark = pytest.mark.usefixtures("one_thread")


def small(**more: Any) -> Config:
    return configure(configure(None, SMALL), more)


def begin(folder: Path, **more: Any) -> Run:
    return Run.create(folder, Prepared(GRAPH, None), small(**more))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("whole") / "run"
    with begin(folder) as run:
        complete(run)
    torch.set_num_threads(threads)
    return folder


def resume(folder: Path) -> None:
    with Run.open(folder) as run:
        complete(run)


# killed


@pytest.fixture(scope="module")
def start() -> Callable[..., Any]:
    return starter()


@pytest.mark.parametrize("seed", [0, 1])
def test_killed_inside_writes_and_resumed_it_ends_the_same_to_the_bit(
    seed: int, whole: Path, tmp_path: Path, start: Callable[..., Any]
) -> None:
    begin(tmp_path / "run").close()
    rng = random.Random(seed)
    for _ in range(4):
        process = start(tmp_path / "run", rng.randrange(5, 60))
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
    process = start(tmp_path / "run")
    process.join()
    assert process.exitcode == 0
    assert same(tmp_path / "run", whole)


def test_killed_at_random_moments_and_resumed_it_ends_the_same_to_the_bit(
    whole: Path, tmp_path: Path, start: Callable[..., Any]
) -> None:
    begin(tmp_path / "run").close()
    rng, killed = random.Random(2), 0
    for _ in range(5):
        process = start(tmp_path / "run")
        process.join(rng.uniform(0.02, 0.3))
        killed += process.is_alive()
        process.kill()
        process.join()
    assert killed
    process = start(tmp_path / "run")
    process.join()
    assert process.exitcode == 0 and same(tmp_path / "run", whole)


def test_what_was_left_of_a_checkpoint_that_was_being_removed_goes_when_the_run_is_opened(tmp_path: Path) -> None:
    with begin(tmp_path / "run") as run:
        stop_after(run, 1)
    left = tmp_path / "run" / "checkpoints" / ".000000.kgem-tmp"
    left.mkdir()
    (left / "tensors.safetensors").write_bytes(b"large")
    Run.open(tmp_path / "run").close()
    assert [path.name for path in left.parent.iterdir()] == ["000001"]


def test_a_last_epoch_that_could_not_be_noted_is_in_the_log_in_the_end(whole: Path, tmp_path: Path) -> None:
    with begin(tmp_path / "run") as run:
        exhaust(run.epochs())
        run._log_is_whole = False  # as after an error of the disk
        (tmp_path / "run" / "log.jsonl").unlink()
        run.finish()
    assert same(tmp_path / "run", whole)


# stopped


@pytest.mark.parametrize("epoch", range(1, EPOCHS + 1, 2))
def test_stopped_in_any_phase_and_resumed_it_ends_the_same(epoch: int, whole: Path, tmp_path: Path) -> None:
    with begin(tmp_path / "run", **{"run.checkpoint_seconds": 1e9}) as run:
        stop_after(run, epoch)
    resume(tmp_path / "run")
    assert same(tmp_path / "run", whole)


def test_without_any_checkpoint_it_begins_again(whole: Path, tmp_path: Path) -> None:
    begin(tmp_path / "run").close()
    (tmp_path / "run" / "log.jsonl").write_text('{"phase": "pretrain", "ep')  # killed while it wrote
    assert read_log(tmp_path / "run") == []
    resume(tmp_path / "run")
    assert same(tmp_path / "run", whole)


def test_a_run_and_the_library_come_to_the_same(whole: Path) -> None:
    model = fit(GRAPH, config=small())
    found = tables(whole)
    assert torch.equal(model.point.entities, found["point/entities"])
    assert torch.equal(model.posterior.entities.log_std, found["log_std/entities"])


# what is in the folder


def test_the_folder_has_everything(whole: Path) -> None:
    assert {path.name for path in whole.iterdir()} == {
        ".lock",
        "config.toml",
        "graph",
        "log.jsonl",
        "checkpoints",
        "model",
    }
    assert [path.name for path in (whole / "checkpoints").iterdir()] == [f"{EPOCHS:06d}"]
    records = read_log(whole)
    assert [record["phase"] for record in records] == ["pretrain"] * 3 + ["em"] * 3 + ["retrain"] * 6 + ["distil"] * 3
    assert [record["candidate"] for record in records[6:10]] == [0, 0, 1, 1]
    assert {record["candidate"] for record in records[10:12]} == {0, 1}
    assert [record["epoch"] for record in records[10:]] == [3, 3, 1, 2, 3]
    assert [record["candidate"] for record in records[12:]] == [0] * 3
    plain = {"phase", "candidate", "epoch", "loss", "mrr", "best", "rate", "seconds"}
    assert set(records[0]) == plain
    assert {"log_likelihood", "prior", "entropy", "elbo"} <= set(records[4])
    assert (whole / "config.toml").read_text() == to_toml(small())
    with Run.open(whole) as run:
        assert run.prepared.data.content_hash == GRAPH.content_hash
        model = run.model()
        assert model is not None and model.metrics["test"]["overall"]["n"] == 2 * len(GRAPH.test)
        assert model.provenance["seconds"] > 0 and model.provenance["epochs"]["retrain"] == 6
        assert model.provenance["epochs"]["distil"] == 3


def test_checkpoints_wait_for_their_turn(tmp_path: Path) -> None:
    with begin(tmp_path / "run", **{"run.checkpoint_seconds": 1e9}) as run:
        seen = [len(run._checkpoints.steps()) for _ in run.epochs()]
        run.finish()
    assert seen == [0] * EPOCHS and run._checkpoints.steps() == [EPOCHS]


# damage


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_a_damaged_checkpoint_is_passed_over_and_told(
    whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with begin(tmp_path / "run") as run:
        stop_after(run, 5)
    newest = tmp_path / "run" / "checkpoints" / "000005"
    files = sorted(path.name for path in newest.iterdir())
    assert len(files) >= 5
    for name in files:
        copy = tmp_path / name
        shutil.copytree(tmp_path / "run", copy)
        flip(copy / "checkpoints" / "000005" / name)
        caplog.clear()
        with caplog.at_level(logging.WARNING), Run.open(copy) as run:
            assert len(run.records) == 4
        assert "passed over a damaged checkpoint" in caplog.text and "an older one is used" in caplog.text
    resume(copy)
    assert same(copy, whole)


def test_all_checkpoints_damaged_is_an_error(tmp_path: Path) -> None:
    with begin(tmp_path / "run") as run:
        stop_after(run, 3)
    for path in (tmp_path / "run" / "checkpoints").glob("*/fit.json"):
        flip(path)
    with pytest.raises(ArtifactError, match="all checkpoints are damaged"):
        Run.open(tmp_path / "run")


@pytest.mark.parametrize("name", ["facts.safetensors", "vocabulary.json", "run.json", "dataset.json", "manifest.json"])
def test_a_damaged_graph_is_found(name: str, tmp_path: Path) -> None:
    begin(tmp_path / "run").close()
    flip(tmp_path / "run" / "graph" / name)
    with pytest.raises(Damaged):
        Run.open(tmp_path / "run")
    (tmp_path / "run" / "graph" / name).unlink()
    with pytest.raises((Damaged, InputError)):
        Run.open(tmp_path / "run")


def test_a_damaged_model_is_made_again(whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copytree(whole, tmp_path / "run")
    flip(tmp_path / "run" / "model" / "point.safetensors")
    with Run.open(tmp_path / "run") as run:
        assert run.model() is None and "made again" in caplog.text
        complete(run)
    assert same(tmp_path / "run", whole)


def test_a_full_disk_is_told_and_the_last_good_checkpoint_stays(
    whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with begin(tmp_path / "run") as run:
        with monkeypatch.context() as full:
            steps = 0

            def fill(*args: Any) -> None:
                nonlocal steps
                steps += 1
                if steps > 2:
                    raise OSError(28, "No space left on device")
                real(*args)

            real = store._fill
            full.setattr(store, "_fill", fill)
            with pytest.raises(ArtifactError, match="the disk is full"):
                stop_after(run, 4)  # who asks to stop must hear that it was not saved
        assert "no checkpoint of epoch 3" in caplog.text and run._checkpoints.steps() == [1, 2]
    resume(tmp_path / "run")
    assert same(tmp_path / "run", whole)


def test_a_log_that_cannot_be_written_is_made_good(
    whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with begin(tmp_path / "run") as run:
        log = run.folder / "log.jsonl"
        for _ in run.epochs():
            if len(run.records) == 2:  # a folder in its place: the third record cannot be written
                log.unlink()
                log.mkdir()
            if len(run.records) == 4:
                log.rmdir()
        run.finish()
    assert "cannot be written" in caplog.text and same(tmp_path / "run", whole)


# others' files and processes


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    with begin(tmp_path / "run"):
        with pytest.raises(RunBusy, match="is working in this run folder"):
            Run.open(tmp_path / "run")
        with pytest.raises(RunBusy):
            Run.create(tmp_path / "run", Prepared(GRAPH, None), small(), force=True)
    Run.open(tmp_path / "run").close()


def test_a_run_gives_way_only_by_force_and_other_files_never(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="there is a run in this folder already"):
        begin(folder)
    assert same(folder, whole)
    with Run.create(folder, Prepared(GRAPH, None), small(seed=1), force=True, origin="demo") as run:
        assert run.model() is None
    assert (folder / "notes.txt").read_text() == "mine" and find_origin(folder) == "demo"
    assert not (folder / "model").exists() and not list((folder / "checkpoints").glob("*"))


def test_a_folder_with_other_files_is_never_used(tmp_path: Path) -> None:
    for name in ("config.toml", "graph", "model"):
        (tmp_path / name).mkdir()
    with pytest.raises(InputError, match="of no run"):
        check_free(tmp_path, force=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        begin(tmp_path / "file")
    with pytest.raises(InputError, match="cannot be made"):
        begin(tmp_path / "file" / "run")
    for folder in (tmp_path, tmp_path / "file", tmp_path / "none"):
        with pytest.raises(InputError, match="run"):
            Run.open(folder)
        assert not is_run(folder) and find_origin(folder) is None


def test_a_run_that_was_killed_while_it_was_made_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    (tmp_path / ".graph.kgem-tmp").mkdir()
    begin(tmp_path).close()
    assert is_run(tmp_path) and not (tmp_path / ".graph.kgem-tmp").exists()


def test_changed_settings_are_not_passed_over_in_silence(tmp_path: Path) -> None:
    begin(tmp_path / "run").close()
    path = tmp_path / "run" / "config.toml"
    text = path.read_text()
    for changed in (text.replace("dim = 3", "dim = 4"), text.replace("dim = 3", "dim ="), "[model]\nsize = 3\n"):
        path.write_text(changed)
        with pytest.raises(ConfigError, match=r"was changed"):
            Run.open(tmp_path / "run")
    path.unlink()
    Run.open(tmp_path / "run").close()
    assert path.read_text() == text


# time budget


def test_lengths_that_fit_into_a_budget() -> None:
    config = Config()
    assert within_budget(config, "em", 1.0, 1e6) is config
    assert longest(within_budget(config, "pretrain", 1.0, 100.0), "pretrain") == 1 + int(90 * 3 / 16)
    assert within_budget(config, "em", 1.0, 100.0).em.epochs == 1 + int(90 * 4 / 13)
    for left, mixes, epochs in ((50.0, 2, 11), (3.0, 2, 1), (0.0, 1, 1)):  # as many companions as have an epoch
        companions = within_budget(config, "companions", 1.0, left).companions
        assert (len(companions.mixes), companions.epochs) == (mixes, epochs)
    assert longest(within_budget(config, "distil", 1.0, 50.0), "distil") == 1 + 45
    three = configure(None, {"distil.epochs": 0})  # no share for a phase without epochs
    assert longest(within_budget(three, "pretrain", 1.0, 100.0), "pretrain") == 1 + 27
    assert within_budget(three, "em", 1.0, 100.0).em.epochs == 1 + int(90 * 4 / 7)
    assert within_budget(config, "em", 1.0, -5.0).em.epochs == 1
    for seconds in (0.01, 0.1, 0.5, 1.0, 3.0, 20.0, 99.0):
        race = within_budget(config, "retrain", seconds, 100.0)
        assert 1 <= longest(race, "retrain") <= max(1, 1 + 30 / seconds)
        assert race.retrain.trial_epochs <= config.retrain.trial_epochs
    assert within_budget(config, "retrain", 20.0, 100.0).retrain.candidates == config.retrain.candidates[:1]


def test_epochs_that_can_still_come() -> None:
    config = small()
    assert sum(longest(config, phase) for phase in ("pretrain", "em", "retrain", "distil")) == EPOCHS
    assert epochs_left(config, "em", {"pretrain": 1, "em": 2, "retrain": 0}) == 1 + 6 + 3
    assert epochs_left(config, "distil", {"pretrain": 3, "em": 3, "retrain": 6, "distil": 1}) == 2
    assert epochs_left(small(**{"distil.epochs": 0}), "em", {"pretrain": 1, "em": 2, "retrain": 0}) == 1 + 6


def test_a_budget_shortens_and_is_kept_through_a_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def shorter(config: Config, phase: str, seconds: float, left: float) -> Config:
        calls.append(phase)
        assert seconds > 0 and 0 < left < 3600
        return configure(config, {f"{phase}.epochs": 2})

    monkeypatch.setattr(driver, "within_budget", shorter)
    more = {"run.time_budget": 3600.0, "run.checkpoint_seconds": 1e9, "retrain.candidates": ((1.0, 0.0),)}
    for name, stops in (("a", (1, 4, 7)), ("b", ())):
        begin(tmp_path / name, **more).close()
        for epochs in stops:
            with Run.open(tmp_path / name) as run:
                stop_after(run, epochs)
        resume(tmp_path / name)
        config = Config.model_validate(running.read_toml(tmp_path / name / "config.toml"))
        assert [getattr(config, phase).epochs for phase in ("pretrain", "em", "retrain", "distil")] == [2, 2, 2, 2]
    assert calls == ["pretrain", "em", "retrain", "distil"] * 2
    assert same(tmp_path / "a", tmp_path / "b") and len(read_log(tmp_path / "a")) == 8


def test_lengths_are_in_the_checkpoint_that_follows_their_choice(tmp_path: Path) -> None:
    with begin(tmp_path / "run", **{"run.time_budget": 1e-3, "run.checkpoint_seconds": 1e9}) as run:
        stop_after(run, 2)
        assert [record["phase"] for record in run.records] == ["pretrain", "em"]
    found = checkpoint.Checkpoints(tmp_path / "run" / "checkpoints").load_newest()
    assert found is not None and found[0].documents["run"]["config"]["em"]["epochs"] == 1
    config = tmp_path / "run" / "config.toml"
    config.write_text(to_toml(small(**{"run.time_budget": 1e-3, "run.checkpoint_seconds": 1e9})))  # killed before
    resume(tmp_path / "run")
    assert Config.model_validate(running.read_toml(config)).em.epochs == 1
    assert [json.loads(line)["phase"] for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()] == [
        "pretrain",
        "em",
        "retrain",
        "distil",
    ]


def test_threads_that_a_run_goes_on_with_hold_and_are_written_down(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    with begin(tmp_path / "run") as run:
        stop_after(run, 2)
    with Run.open(tmp_path / "run") as run:
        run.set_threads(before + 2)  # and killed before a checkpoint has it
    with Run.open(tmp_path / "run") as run:
        run.set_threads(before + 1)
        seen = {torch.get_num_threads() for _ in run.epochs()}
        model = run.finish()
    assert seen == {before + 1} and torch.get_num_threads() == before
    assert model.config.run.threads == before + 1
    assert f"threads = {before + 1}" in (tmp_path / "run" / "config.toml").read_text()
