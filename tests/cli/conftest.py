"""What tests of commands share: a way to run one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kgem.cli import main


@pytest.fixture
def kgem(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command: exit code, stdout, stderr."""

    def run(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return int(stop.value.code or 0), out, err

    return run
