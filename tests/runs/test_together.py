"""`kgem fit` in two real processes that meet over gloo, as torchrun starts them: the same model, kills, silence."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from kgem.files.run_folder import read_log
from killing import same, tables

PATIENCE = 300  # seconds, on a busy machine
SETTINGS = """
dtype = "float64"
model = { dim = 3 }
pretrain = { epochs = 3, candidates = [1.0] }
em = { epochs = 3, e_epochs = 1 }
retrain = { epochs = 3, candidates = [[1.0, 0.0]] }
companions = { epochs = 2, mixes = [[1.0, 0.3]] }
distil = { epochs = 2, candidates = [[1.0, 0.0]] }
run = { checkpoint_seconds = 0, threads = 1, products = "exact" }
"""


def work(words: Sequence[str], environment: dict[str, str], output: str) -> None:
    """In a process of its own: a command of kgem, with what torchrun would set."""
    os.environ.update(environment)
    handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    torch.set_num_threads(1)
    from kgem.cli import main

    try:
        main(list(words))
    finally:
        sys.stdout.flush()


class Group:
    """Processes of one start of torchrun."""

    def __init__(self, context: Any, folder: Path, words: Sequence[str], count: int, **environment: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.outputs = [folder / f"{time.monotonic_ns()}-{rank}.txt" for rank in range(count)]
        self.processes = []
        for rank, output in enumerate(self.outputs):
            said = {"RANK": rank, "WORLD_SIZE": count, "LOCAL_RANK": rank, "MASTER_PORT": port}
            whole = {name: str(value) for name, value in said.items()} | {"MASTER_ADDR": "127.0.0.1"} | environment
            process = context.Process(target=work, args=(words, whole, str(output)))
            process.start()
            self.processes.append(process)

    def wait(self) -> list[int | None]:
        """The exit codes."""
        until = time.monotonic() + PATIENCE
        for process in self.processes:
            process.join(max(0.1, until - time.monotonic()))
        return [process.exitcode for process in self.processes]

    def said(self, rank: int) -> str:
        return self.outputs[rank].read_text()

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()


Start = Callable[..., Group]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["kgem.runs.run", "kgem.train.joining", "torch._dynamo", "killing", __name__])
    groups: list[Group] = []

    def begin(*words: object, count: int = 2, **environment: str) -> Group:
        group = Group(context, tmp_path_factory.mktemp("said"), [*map(str, words)], count, **environment)
        groups.append(group)
        return group

    yield begin
    for group in groups:
        group.end()


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small graph with a rule in it, and settings that every run of it has."""
    folder = tmp_path_factory.mktemp("graph")
    facts = [(f"e{i}", f"r{j}", f"e{(i * (j + 2) + j) % 29}") for i in range(29) for j in range(5)]
    (folder / "graph.tsv").write_text("".join("\t".join(fact) + "\n" for fact in facts))
    (folder / "settings.toml").write_text(SETTINGS)
    return folder


def fit(graph: Path, out: Path) -> list[object]:
    return ["fit", graph / "graph.tsv", "--config", graph / "settings.toml", "--out", out, "--quiet"]


@pytest.fixture(scope="module")
def undisturbed(start: Start, graph: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes come to."""
    out = tmp_path_factory.mktemp("runs") / "two"
    group = start(*fit(graph, out))
    assert group.wait() == [0, 0], group.said(0) + group.said(1)
    assert "MRR" in group.said(0) and group.said(1) == ""  # the first alone speaks
    return out


def wait_for_epochs(folder: Path, n: int) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and len(read_log(folder) if (folder / "log.jsonl").exists() else []) < n:
        time.sleep(0.02)


def test_two_processes_leave_the_run_that_one_leaves(undisturbed: Path, start: Start, graph: Path) -> None:
    alone = undisturbed.parent / "one"
    group = start(*fit(graph, alone), count=1)
    assert group.wait() == [0], group.said(0)
    assert {path.name for path in alone.iterdir()} == {path.name for path in undisturbed.iterdir()}
    for name, tensor in tables(alone).items():
        torch.testing.assert_close(tables(undisturbed)[name], tensor, rtol=1e-6, atol=1e-8)


def test_a_killed_process_is_told_of_and_the_run_goes_on(undisturbed: Path, start: Start, graph: Path) -> None:
    """By torchrun's restart to the same bits; with one process, or three, to nearly the same."""
    out = undisturbed.parent / "killed"
    job = {"TORCHELASTIC_RUN_ID": "test"}
    group = start(*fit(graph, out), **job)
    wait_for_epochs(out, 4)
    group.processes[1].kill()
    assert group.wait() == [1, -signal.SIGKILL]
    assert "process 1 of 2 does not answer" in group.said(0) and "kgem resume" in group.said(0)
    assert not (out / "model").exists() and len(read_log(out)) >= 4
    newest = sorted(path for path in (out / "checkpoints").iterdir() if path.name.isdigit())[-1]
    assert {f"rows-{rank}-of-2.safetensors" for rank in (0, 1)} < {path.name for path in newest.iterdir()}
    copies = {1: out.parent / "by one", 3: out.parent / "by three"}
    for copy in copies.values():
        shutil.copytree(out, copy)

    again = start(*fit(graph, out), TORCHELASTIC_RESTART_COUNT="1", **job)
    assert again.wait() == [0, 0], again.said(0)
    assert "goes on" in again.said(0) and same(out, undisturbed)
    for count, copy in copies.items():
        group = start("resume", copy, "--quiet", count=count)
        assert group.wait() == [0] * count, group.said(0)
        for name, tensor in tables(undisturbed).items():
            torch.testing.assert_close(tables(copy)[name], tensor, rtol=1e-6, atol=1e-8)


def test_a_process_that_hangs_ends_in_an_error_within_the_time_out(start: Start, graph: Path, tmp_path: Path) -> None:
    group = start(*fit(graph, tmp_path / "run"), "--set", "pretrain.epochs=100000", KGEM_TIMEOUT="10")
    wait_for_epochs(tmp_path / "run", 2)
    os.kill(group.processes[1].pid, signal.SIGSTOP)
    group.processes[0].join(PATIENCE)
    assert group.processes[0].exitcode == 1
    assert "process 1 of 2 does not answer" in group.said(0) and "KGEM_TIMEOUT" in group.said(0)


def test_a_finished_run_and_a_wrong_time_out(undisturbed: Path, graph: Path, start: Start) -> None:
    group = start("resume", undisturbed)
    assert group.wait() == [0, 0] and "this run is finished" in group.said(0)
    wrong = start("resume", undisturbed, KGEM_TIMEOUT="soon")
    assert wrong.wait() == [2, 2] and "no number of seconds" in wrong.said(0)
    other = start(*fit(graph, undisturbed), count=1, TORCHELASTIC_RESTART_COUNT="1")
    assert other.wait() == [2] and "there is a run in this folder already" in other.said(0)
