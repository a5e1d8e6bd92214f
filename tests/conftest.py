"""What many tests need: the benchmark graphs where they are, and a cache folder of their own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# The graphs of the tests are tiny: a second thread would cost more than it gives, also in the processes they start.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def benchmark_graphs() -> Path:
    """The folder of benchmark graphs: KGEM_DATA, or ../shared/data beside the project."""
    given = os.environ.get("KGEM_DATA")
    folder = Path(given) if given else Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"needs the benchmark graphs: {folder} is not there; set KGEM_DATA to their folder")
    return folder.resolve()


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or writes the user's cache."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("KGEM_CACHE", str(folder))
    return folder
