"""`kgem fit`, `kgem resume` and `kgem demo`, as a person uses them."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kgem.cli import demo, main, watch
from kgem.cli.watch import Watch
from kgem.config import Config
from kgem.errors import ArtifactError
from kgem.files.store import read_store
from kgem.report.formatting import pluralise
from kgem.runs.run import Run, read_log
from kgem.settings import read_toml
from obvious import random_graph

Kgem = Callable[..., tuple[int, str, str]]
PHASES = ("pretrain", "em", "retrain", "companions", "distil")

SMALL: dict[str, Any] = {
    f"{phase}.{name}": value
    for phase in PHASES
    for name, value in {"epochs": 2, "patience": 50, "batch_size": 40}.items()
} | {
    "model.dim": 3,
    "pretrain.candidates": [1.0],
    "retrain.trial_epochs": 1,
    "run.threads": 1,
    "companions.mixes": [[1.0, 0.3]],
    "distil.candidates": [[1.0, 0.0]],
}
SETTINGS = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]
EPOCHS = 2 + 2 + (4 + 2) + 2 + 2  # re-training has two finalists


def write_graph(folder: Path) -> Path:
    random_graph().frame("train").write_csv(folder / "graph.tsv", separator="\t", include_header=False)
    return folder / "graph.tsv"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """The tables of a fit that nobody stopped."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.raises(SystemExit) as stop:
        main(["fit", str(write_graph(folder)), "--out", str(folder / "run"), "-q", *SETTINGS])
    assert not stop.value.code
    return tables(folder / "run")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A folder of its own to work in, with a graph that has no splits."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KGEM_DATA", raising=False)
    write_graph(tmp_path)
    threads = torch.get_num_threads()
    yield tmp_path
    torch.set_num_threads(threads)


def tables(folder: str | Path) -> dict[str, torch.Tensor]:
    return read_store(Path(folder) / "model", kind="kgem-model", version=1).tensors


def config_of(folder: str) -> Config:
    return Config.model_validate(read_toml(Path(folder) / "config.toml"))


def everything(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_fit_from_a_file_to_a_model(kgem: Kgem) -> None:
    code, out, err = kgem("fit", "graph.tsv", "--out", "runs/a", *SETTINGS)
    assert code == 0, err
    assert "test" in out and "MRR" in out and "Hits@10" in out
    for told in (
        "graph: 21 entities, 4 relations",
        "split at random with seed 0",
        "complex, K = 3",
        "of memory",
        "about 600 MB of memory",
        f"in all, for {EPOCHS} epochs",
        "run folder: runs/a",
        "pre-training: epoch 1 of at most 2",
        "variational EM: 2 epochs",
        "re-training: 6 epochs",
        "companions: 2 epochs",
        "distillation: 2 epochs",
        "best MRR 0.",
        "next: kgem predict runs/a",
    ):
        assert told in err, told
    assert config_of("runs/a").run.threads == 1
    with Run.open(Path("runs/a")) as run:
        assert run.prepared.split is not None and run.prepared.split["seed"] == 0
    Path("graph.tsv").unlink()  # nothing but the run folder is needed from here on
    code, _, err = kgem("resume", "runs/a")
    assert code == 0 and "this run is finished" in err


@pytest.mark.parametrize("wanted", [True, False])
def test_companions_and_distillation_follow_unless_they_are_left_out(kgem: Kgem, wanted: bool) -> None:
    less = () if wanted else ("--set", "distil.epochs=0")
    code, _, err = kgem("fit", "graph.tsv", "--out", "runs/a", *SETTINGS, *less)
    epochs = EPOCHS if wanted else EPOCHS - 4  # companions are there to teach
    assert code == 0 and f"in all, for {epochs} epochs" in err
    assert ("distillation: 2 epochs" in err) == ("distil" in err) == ("companions" in err) == wanted
    taught = ["companions"] * 2 + ["distil"] * 2
    assert [record["phase"] for record in read_log(Path("runs/a"))[EPOCHS - 4 :]] == (taught if wanted else [])
    code, out, _ = kgem("resume", "runs/a", "--json")
    spent = {"pretrain": 2, "em": 2, "retrain": 6} | ({"companions": 2, "distil": 2} if wanted else {})
    assert code == 0 and json.loads(out)["epochs"] == spent


def test_quiet_json_and_the_folder_that_is_chosen(kgem: Kgem) -> None:
    code, out, err = kgem("fit", "graph.tsv", "-q", "--json", "--seed", 3, "--model", "distmult", *SETTINGS)
    assert code == 0 and err == ""
    result = json.loads(out)
    assert result["run"] == "runs/graph" and result["mode"] in ("point", "mean", "bayes", "blend")
    assert 0 < result["metrics"]["test"]["mrr"] <= 1
    assert result["epochs"] == {"pretrain": 2, "em": 2, "retrain": 6, "companions": 2, "distil": 2}
    assert config_of("runs/graph").model.score == "distmult" and config_of("runs/graph").seed == 3
    code, again, _ = kgem("resume", "runs/graph", "--json")
    assert code == 0 and json.loads(again) == result


def test_what_is_not_used_is_said(kgem: Kgem) -> None:
    Path("weighted.tsv").write_text("".join(f"{line}\t0.5\n" for line in Path("graph.tsv").read_text().splitlines()))
    code, _, err = kgem("fit", "weighted.tsv", "--extra", "weight", "--valid", 0, "-q", *SETTINGS)
    assert code == 0
    assert err.count("the column weight is not used in training") == 1
    assert err.count("no validation facts") == 1
    code, _, err = kgem("fit", "graph.tsv", "-q", *SETTINGS)
    assert (code, err) == (0, "")


def test_what_is_said_later_counts(kgem: Kgem) -> None:
    Path("my.toml").write_text("seed = 5\n[em]\nbeta = 0.7\ninitial_std = 0.4\n[model]\ndim = 7\n")
    words = ["--recipe", "paper", "--config", "my.toml", "--dim", 4, "--set", "em.initial_std=0.3"]
    few = [word for name in SMALL if name != "model.dim" for word in ("--set", f"{name}={SMALL[name]}")]
    code, _, err = kgem("fit", "graph.tsv", "--out", "a", "-q", *few, "--set", "em.epochs=1", *words)
    assert code == 0, err
    config = config_of("a")
    assert (config.seed, config.em.beta, config.em.initial_std, config.model.dim) == (5, 0.7, 0.3, 4)
    assert config.em.e_epochs == 50  # from the recipe
    assert kgem("fit", "graph.tsv", "--out", "b", "-q", "--config", "a/config.toml")[0] == 0
    assert config_of("b") == config
    assert all(torch.equal(t, tables("b")[name]) for name, t in tables("a").items())


def interrupt(monkeypatch: pytest.MonkeyPatch, epoch: int, times: int = 1) -> None:
    """Ctrl-C is pressed after some epoch."""
    real = Watch.show

    def call(self: Watch, record: Any) -> None:
        real(self, record)
        if len(self._run.records) == epoch:
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Watch, "show", call)


@pytest.mark.parametrize("epoch", [1, 3, 6, 11])
def test_ctrl_c_saves_and_says_how_to_go_on(
    kgem: Kgem, monkeypatch: pytest.MonkeyPatch, whole: dict[str, torch.Tensor], epoch: int
) -> None:
    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as pressed:
        interrupt(pressed, epoch)
        code, out, err = kgem("fit", "graph.tsv", "--out", "a", *SETTINGS)
    assert code == 130 and out == ""
    assert f"stopped and saved after {pluralise(epoch, 'epoch')}\ngo on: kgem resume a" in err
    assert signal.getsignal(signal.SIGINT) is before
    code, _, err = kgem("resume", "a")
    assert code == 0 and f"goes on after {pluralise(epoch, 'epoch')}" in err
    assert tables("a").keys() == whole.keys()
    assert all(torch.equal(t, whole[name]) for name, t in tables("a").items())
    assert len(read_log(Path("a"))) == EPOCHS


def test_ctrl_c_twice_stops_at_once(kgem: Kgem, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as pressed:
        interrupt(pressed, 2, times=2)
        code, _, err = kgem("fit", "graph.tsv", "--out", "a", *SETTINGS)
    assert code == 130 and "kgem resume a" in err
    assert kgem("resume", "a", "-q")[0] == 0


def test_warnings_of_the_library_are_shown(kgem: Kgem, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Run) -> None:
        raise ArtifactError("the disk is full", where="a")

    monkeypatch.setattr(Run, "save", full)
    code, _, err = kgem("fit", "graph.tsv", "--out", "a", "-q", "--set", "run.checkpoint_seconds=0", *SETTINGS)
    assert code == 0 and "warning: no checkpoint of epoch 1: a: the disk is full" in err


def test_a_time_budget_shortens_the_phases(kgem: Kgem) -> None:
    long = [word for phase in PHASES for word in ("--set", f"{phase}.epochs=90000")]
    code, _, err = kgem("fit", "graph.tsv", "--out", "a", *SETTINGS, *long, "--time-budget", "1s")
    assert code == 0 and "fit into 1 s" in err
    assert set(re.findall("at most ([^,]*) left", err)) <= {"1 s", "under a second"} and " min " not in err
    config = config_of("a")
    assert max(getattr(config, phase).epochs for phase in PHASES) < 90000
    assert config.run.time_budget == 1.0


class Terminal:
    """A stderr that says it is a terminal."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return True


def test_bars_on_a_terminal(kgem: Kgem, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setenv("TERM", "xterm")
    assert kgem("fit", "graph.tsv", "--out", "a", *SETTINGS)[0] == 0
    for told in ("pre-training", "variational EM", "re-training", "companions", "distillation", "best MRR"):
        assert told in terminal.text


WRONG: dict[str, list[Any]] = {
    "no such graph": ["fit", "nowhere.tsv"],
    "an unknown score": ["fit", "graph.tsv", "--model", "complx"],
    "no dimension": ["fit", "graph.tsv", "--dim", 0],
    "an unknown setting": ["fit", "graph.tsv", "--set", "em.betta=1"],
    "an unknown section": ["fit", "graph.tsv", "--set", "me.beta=1"],
    "a setting without value": ["fit", "graph.tsv", "--set", "em.beta"],
    "a setting out of bounds": ["fit", "graph.tsv", "--set", "em.beta=2"],
    "a setting of the wrong type": ["fit", "graph.tsv", "--set", "em.beta=much"],
    "an optimiser of a later phase": ["fit", "graph.tsv", "--set", "em.optimizer=lion"],
    "no settings file": ["fit", "graph.tsv", "--config", "no.toml"],
    "a settings file that is none": ["fit", "graph.tsv", "--config", "graph.tsv"],
    "a settings file with a wrong name": ["fit", "graph.tsv", "--config", "wrong.toml"],
    "an unknown recipe": ["fit", "graph.tsv", "--recipe", "soup"],
    "a time that is none": ["fit", "graph.tsv", "--time-budget", "soon"],
    "a device that is none": ["fit", "graph.tsv", "--device", "abacus"],
    "a device that computes nothing": ["fit", "graph.tsv", "--device", "meta"],
    "tables that cannot be": ["fit", "graph.tsv", "--dim", 10**12],
    "a multiple below zero": ["fit", "graph.tsv", "--set", "pretrain.candidates=[-1.0]"],
    "a mixture below zero": ["fit", "graph.tsv", "--set", "retrain.candidates=[[-1.0, 0.0]]"],
    "a name that is too long": ["fit", "graph.tsv", "--out", "x" * 300],
    "no threads": ["fit", "graph.tsv", "--threads", 0],
    "more validation than facts": ["fit", "graph.tsv", "--valid", 5000],
    "a run that is there": ["fit", "graph.tsv", "--out", "taken"],
    "a folder of others": ["fit", "graph.tsv", "--out", "mine", "--force"],
    "a file as folder": ["fit", "graph.tsv", "--out", "graph.tsv"],
    "a folder below a file": ["fit", "graph.tsv", "--out", "graph.tsv/run"],
    "nothing to resume": ["resume", "nowhere"],
    "a folder without a run": ["resume", "mine"],
    "a file to resume": ["resume", "graph.tsv"],
    "settings changed since": ["resume", "changed"],
    "a run that another works in": ["resume", "busy"],
    "a demo over a run": ["demo", "--out", "taken"],
    "a demo over others": ["demo", "--out", "mine"],
}


@pytest.mark.parametrize("words", WRONG.values(), ids=WRONG.keys())
def test_wrong_input_is_one_message_and_nothing_is_written(words: list[Any], kgem: Kgem, here: Path) -> None:
    from kgem.runs.configure import configure
    from kgem.runs.fitting import Prepared

    Path("wrong.toml").write_text("[em]\nbetta = 1\n")
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("years of work")
    for name in ("taken", "changed"):
        Run.create(Path(name), Prepared(random_graph(), None), configure(None, SMALL)).close()
    Path("changed/config.toml").write_text(Path("changed/config.toml").read_text().replace("dim = 3", "dim = 9"))
    with Run.create(Path("busy"), Prepared(random_graph(), None), configure(None, SMALL)):
        before = everything(here)
        code, out, err = kgem(*words)
        assert code == 2 and out == ""
        after = everything(here)
    assert {k: v for k, v in after.items() if k.name != ".lock"} == {
        k: v for k, v in before.items() if k.name != ".lock"
    }
    if not err.startswith("Usage"):
        first, *remedy = err.strip().splitlines()[-2:]
        assert first.startswith("error: ") and remedy and remedy[0].startswith("  "), err


def test_near_misses_are_suggested(kgem: Kgem) -> None:
    assert "did you mean em.beta" in kgem("fit", "graph.tsv", "--set", "em.betta=1")[2]
    Path("wrong.toml").write_text("[em]\nbetta = 1\n")
    assert "wrong.toml: there is no setting 'em.betta'" in kgem("fit", "graph.tsv", "--config", "wrong.toml")[2]


def test_force_replaces_a_run(kgem: Kgem) -> None:
    assert kgem("fit", "graph.tsv", "--out", "a", "-q", *SETTINGS)[0] == 0
    old = tables("a")["point/entities"]
    code, _, err = kgem("fit", "graph.tsv", "--out", "a", "-q", *SETTINGS)
    assert code == 2 and "kgem resume a" in err and "--force" in err
    assert kgem("fit", "graph.tsv", "--out", "a", "-q", "--seed", 1, "--force", *SETTINGS)[0] == 0
    assert not torch.equal(tables("a")["point/entities"], old)


def test_the_demo_asks_about_the_world_and_replaces_itself(kgem: Kgem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "SETTINGS", SMALL | {f"{phase}.batch_size": 500 for phase in PHASES})
    for _ in range(2):
        code, out, err = kgem("demo")
        assert code == 0, err
        assert "official language" in out and "in test" in out and "strength" in out
        assert "report: demo-run/report.html" in err and Path("demo-run/report.html").is_file()


def test_speeds_in_words() -> None:
    assert watch._speed(2.0) == "2.0 s each" and watch._speed(0.0012) == "1.2 ms each"


def test_tensorboard_and_a_run_that_goes_on_without_it(kgem: Kgem, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard")
    with monkeypatch.context() as pressed:
        interrupt(pressed, 3)
        code, _, err = kgem("fit", "graph.tsv", "--out", "a", "--tensorboard", *SETTINGS)
    assert code == 130 and "tensorboard --logdir a" in err and list(Path("a/tensorboard").glob("events.*"))
    for name in [name for name in sys.modules if name.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    code, _, err = kgem("resume", "a")
    assert code == 0 and "warning: TensorBoard is not installed: the run goes on without" in err
    code, out, err = kgem("fit", "graph.tsv", "--out", "b", "--tensorboard", *SETTINGS)
    assert (code, out) == (2, "") and "pip install 'kgem[tensorboard]'" in err and not Path("b").exists()
