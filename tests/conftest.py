"""What many tests need: the benchmark graphs where they are, a cache folder of their own, a way to run a command."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from driving import run_command

# The graphs of the tests are tiny: a second thread would cost more than it gives, also in the processes they start.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slow ones first: no worker is left alone with one of them at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    """What is imported stays: collections of garbage, also those that a fit asks for, look at what came since."""
    gc.freeze()


@pytest.fixture(scope="session")
def benchmark_graphs() -> Path:
    """The folder of benchmark graphs: KGEM_DATA, or ../shared/data beside the project."""
    given = os.environ.get("KGEM_DATA")
    folder = Path(given) if given else Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"needs the benchmark graphs: {folder} is not there; set KGEM_DATA to their folder")
    return folder.resolve()


@pytest.fixture(scope="session", autouse=True)
def no_cache_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """For what is made once for many tests: two workers, or a worker and a person, never share a cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KGEM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or writes the user's cache, or fits tables into a terminal that a parallel worker made up."""
    monkeypatch.delenv("COLUMNS", raising=False)
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("KGEM_CACHE", str(folder))
    return folder


@pytest.fixture
def kgem(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command of kgem in this process: exit code, stdout, stderr."""
    from kgem.cli import main

    return lambda *words: run_command(main, capsys, words)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Whatever a test sets, or a run that it starts: the number of threads is as before."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
