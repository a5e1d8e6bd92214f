"""Where figures come from: versions, machine and time, as every JSON file under results/ says them."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("kgem", "torch", "numpy", "optuna")


@cache
def versions() -> dict[str, str]:
    """Of kgem, of the commit if it runs from its repository, and of what it computes with.

    As of the first call: what is on disk may change while a long command works with what it has read.
    """
    found = {"python": platform.python_version()} | {name: metadata.version(name) for name in PACKAGES}
    commit = _git("rev-parse", "--short", "HEAD")
    changes = _git("status", "--porcelain", "--", ":(top,glob)**/*.py")
    return found | ({"commit": commit + (" with changes" if changes else "")} if commit else {})


def _git(*words: str) -> str:
    """What git says of the repository that this file is in; nothing if it is in none."""
    done = subprocess.run(["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def machine() -> dict[str, Any]:
    """Processor, threads and load."""
    import torch

    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": platform.system(),
        "load": round(os.getloadavg()[0], 2),
    }


def now() -> str:
    """The time, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
