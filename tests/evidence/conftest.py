"""What tests of the evidence share: a way to run one of its commands in this process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from driving import run_command
from evidence.commands import main


@pytest.fixture
def evidence(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs `python -m evidence` with some words: exit code, stdout, stderr."""
    return lambda *words: run_command(main, capsys, words)
