"""The log of a run: checksums, and logs that have none."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from kgem.files.run_folder import LOG_FILE, read_log, to_log_line

RECORDS = [
    {"phase": "pretrain", "epoch": 1, "loss": 2.625e-3, "mrr": None},
    {"phase": "em", "epoch": 1, "loss": 0.1 + 0.2, "extra": {"elbo": -math.inf}},
]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / LOG_FILE
    assert read_log(tmp_path) == []
    path.write_text("".join(map(to_log_line, RECORDS)))
    assert read_log(tmp_path) == RECORDS
    path.write_text(path.read_text()[:-1])  # killed while it wrote the last line
    assert read_log(tmp_path) == RECORDS[:1]


def test_a_log_of_before_has_no_checksums_and_is_read(tmp_path: Path) -> None:
    (tmp_path / LOG_FILE).write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    assert read_log(tmp_path) == RECORDS


def test_no_flipped_bit_changes_a_figure_without_a_word(tmp_path: Path) -> None:
    path = tmp_path / LOG_FILE
    path.write_text("".join(map(to_log_line, RECORDS)))
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        with pytest.raises(ValueError):
            read_log(tmp_path)
