"""Peers in environments of their own, so that their requirements never meet kgem's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.workers import ROOT

__all__ = ["BIGGRAPH", "PYKEEN", "Peer", "biggraph", "pykeen"]

PYKEEN = "pykeen==1.11.1"
BIGGRAPH = "torchbiggraph==1.0.0"


@dataclass(frozen=True)
class Peer:
    """Its interpreter, or the reason why there is none."""

    python: Path | None
    reason: str = ""


def pykeen(say: Callable[[str], None]) -> Peer:
    """PyKEEN's environment, made at first use."""
    return _prepare([PYKEEN], "import pykeen.training, pykeen.evaluation", say)


def biggraph(say: Callable[[str], None]) -> Peer:
    """PyTorch-BigGraph's environment, made at first use."""
    return _prepare([BIGGRAPH, "setuptools<81"], "import torchbiggraph.train", say)  # it asks for pkg_resources


def _prepare(requirements: Sequence[str], trial: str, say: Callable[[str], None]) -> Peer:
    requirement = requirements[0]
    folder = ROOT / f".venv-{requirement.partition('==')[0]}"
    python, stamp = folder / "bin" / "python", folder / f".{requirement}"
    if stamp.exists():
        return Peer(python)
    say(f"making {folder.name} with {requirement}: once, a few minutes")
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", "constraints.txt"]
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [*install, "torch"],  # first, so that the constraint decides which build
        [*install, *requirements],
        [str(python), "-c", trial],
    ):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            return Peer(None, f"{requirement} cannot be installed here: {last}")
    stamp.touch()
    return Peer(python)
