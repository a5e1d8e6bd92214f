"""A run folder from outside: what its parts and the stores in it are called, and its log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
]

RUN_KIND, RUN_VERSION = "kgem-run", 2  # 2: a run may go on from an earlier one
MODEL_KIND, MODEL_VERSION = "kgem-model", 1
CONFIG, GRAPH, LOG_FILE, CHECKPOINTS = "config.toml", "graph", "log.jsonl", "checkpoints"
MODEL, REPORT, BOARD = "model", "report.html", "tensorboard"
PHASE_NAMES = {  # of those in its log, as people read them
    "pretrain": "pre-training",
    "em": "variational EM",
    "retrain": "re-training",
    "distil": "distillation",
}


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The records of a run's log, without a last line that was not written to its end."""
    try:
        text = (folder / LOG_FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
