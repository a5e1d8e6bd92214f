"""`kgem search` when trials fail; what it shows otherwise is in test_models.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kgem.errors import Diverged
from kgem.train.driver import Fit
from obvious import random_graph

Kgem = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("failing", [1, 2])
def test_trials_that_fail_are_told_and_the_best_is_one_that_did_not(
    failing: int, kgem: Kgem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "graph").mkdir()
    for split in ("train", "valid", "test"):
        random_graph().frame(split).write_csv(tmp_path / "graph" / f"{split}.tsv", separator="\t", include_header=False)
    real, calls = Fit.epochs, iter(range(1, 3))

    def sometimes(self: Fit, *given: Any) -> Any:
        if next(calls) <= failing:
            raise Diverged("no number")
        return real(self, *given)

    monkeypatch.setattr(Fit, "epochs", sometimes)
    code, out, err = kgem("search", tmp_path / "graph", "--trials", 2, "--dim", 2, "--epochs", 1)
    assert "trial 1: " in err and "failed" in err
    if failing == 1:
        assert code == 0 and "best: strength" in out, err
    else:
        assert code == 1 and not out and "no trial of the search came to a result" in err
