"""An explorer of random tables, and the promise that nothing in it fails in a way that was not expected."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from kgem.serve.explorer import Explorer
from serving import Client, client_of, write_run


@pytest.fixture
def explorer(tmp_path: Path) -> Iterator[Explorer]:
    model = write_run(tmp_path / "run")
    made = Explorer(model, tmp_path / "run")
    yield made
    made.jobs.stop()


@pytest.fixture
def client(explorer: Explorer) -> Client:
    return client_of(explorer)


@pytest.fixture(autouse=True)
def nothing_unexpected(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The answer with status 500 exists, and no test but its own may ever get it."""
    with caplog.at_level(logging.ERROR):
        yield
    if "unexpected_errors" not in request.fixturenames:
        assert not [record for record in caplog.records if "did not expect" in record.getMessage()]


@pytest.fixture
def unexpected_errors() -> None:
    """For the one test of such an error."""
