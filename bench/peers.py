"""PyKEEN in an environment of its own, so that its requirements never meet kgem's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.workers import ROOT

__all__ = ["PYKEEN", "Peer", "pykeen"]

PYKEEN = "pykeen==1.11.1"
FOLDER = ROOT / ".venv-pykeen"


@dataclass(frozen=True)
class Peer:
    """Its interpreter, or the reason why there is none."""

    python: Path | None
    reason: str = ""


def pykeen(say: Callable[[str], None]) -> Peer:
    """The environment, made at first use."""
    python = FOLDER / "bin" / "python"
    stamp = FOLDER / f".{PYKEEN}"
    if stamp.exists():
        return Peer(python)
    say(f"making {FOLDER.name} with {PYKEEN}: once, a few minutes")
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", "constraints.txt"]
    for command in (
        [sys.executable, "-m", "venv", str(FOLDER)],
        [*install, "torch"],  # first, so that the constraint decides which build
        [*install, PYKEEN],
        [str(python), "-c", "import pykeen.training, pykeen.evaluation"],
    ):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            return Peer(None, f"{PYKEEN} cannot be installed here: {last}")
    stamp.touch()
    return Peer(python)
