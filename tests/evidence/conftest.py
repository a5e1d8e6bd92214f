"""What tests of the evidence share: a way to run one of its commands in this process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from evidence.commands import main


@pytest.fixture
def evidence(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs `python -m evidence` with some words: exit code, stdout, stderr."""

    def run(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return int(stop.value.code or 0), out, err

    return run
