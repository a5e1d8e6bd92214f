"""A run folder from outside: what its parts and the stores in it are called, and its log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

__all__ = [
    "BOARD",
    "CHECKPOINTS",
    "CONFIG",
    "GRAPH",
    "LOG_FILE",
    "MODEL",
    "MODEL_KIND",
    "MODEL_VERSION",
    "PHASE_NAMES",
    "REPORT",
    "RUN_KIND",
    "RUN_VERSION",
    "read_log",
    "to_log_line",
]

RUN_KIND, RUN_VERSION = "kgem-run", 2  # 2: a run may go on from an earlier one
MODEL_KIND, MODEL_VERSION = "kgem-model", 1
CONFIG, GRAPH, LOG_FILE, CHECKPOINTS = "config.toml", "graph", "log.jsonl", "checkpoints"
MODEL, REPORT, BOARD = "model", "report.html", "tensorboard"
PHASE_NAMES = {  # of those in its log, as people read them
    "pretrain": "pre-training",
    "em": "variational EM",
    "retrain": "re-training",
    "companions": "companions",
    "distil": "distillation",
}


CHECK = "crc32"  # the last key of a record in the log


def to_log_line(record: Mapping[str, Any]) -> str:
    """A record as it stands in the log, with a checksum of itself."""
    said = json.dumps(record)
    return f'{said[:-1]}, "{CHECK}": "{crc32(said.encode()):08x}"}}\n'


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The records of a run's log, without a last line that was not written to its end.

    A ValueError if one is not what was written; logs of version 0.1 have no checksums.
    """
    try:
        text = (folder / LOG_FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    *lines, rest = text.split("\n")
    if CHECK in rest and rest[-2:-1] == "}":  # a whole line, and what was its end
        raise ValueError(f"line {len(lines) + 1} has another end than what was written")
    records = [json.loads(line) for line in lines]
    if any(isinstance(record, dict) and CHECK in record for record in records):
        for place, (line, record) in enumerate(zip(lines, records, strict=True), start=1):
            if not isinstance(record, dict) or not record.pop(CHECK, None) or to_log_line(record) != f"{line}\n":
                raise ValueError(f"line {place} is not what was written")
    return records
