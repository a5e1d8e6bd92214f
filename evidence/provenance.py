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
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    commit = _commit()
    return found | ({"commit": commit} if commit else {})


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
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def _commit() -> str | None:
    """Of the repository that this file is in; a tree with changes says so."""
    here = Path(__file__).parent

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=False, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    if git("ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None
    commit = git("rev-parse", "--short", "HEAD")
    return commit and commit + (" with changes" if git("status", "--porcelain", "--", ":(top,glob)**/*.py") else "")
