"""What tests of run folders share: processes that die inside writes, and whether two runs came to the same."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from driving import complete
from kgem.answer import artifact
from kgem.files.store import read_store
from kgem.runs.run import Run, read_log


def tables(folder: Path) -> dict[str, torch.Tensor]:
    return read_store(folder / "model", kind=artifact.KIND, version=artifact.VERSION).tensors


def same(one: Path, other: Path) -> bool:
    """Whether models and logs are the same, but for the time that epochs took."""
    a, b = tables(one), tables(other)
    logs = [[record | {"seconds": 0} for record in read_log(folder)] for folder in (one, other)]
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a) and logs[0] == logs[1]


def work(folder: str, fsyncs: int) -> None:
    """In a process of its own: carry a run on, and die at an fsync, which is inside some write, if at all."""
    torch.set_num_threads(1)
    real, count = os.fsync, 0

    def fatal(handle: int) -> None:
        nonlocal count
        count += 1
        if count == fsyncs:
            os.kill(os.getpid(), signal.SIGKILL)
        real(handle)

    os.fsync = fatal
    with Run.open(Path(folder)) as run:
        complete(run)


def starter() -> Callable[..., Any]:
    """Starts processes that have torch, and what its optimisers import late, already: they begin at once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["kgem.runs.run", "torch._dynamo", __name__])

    def begin_process(folder: Path, fsyncs: int = 0) -> Any:
        process = context.Process(target=work, args=(str(folder), fsyncs))
        process.start()
        return process

    return begin_process
