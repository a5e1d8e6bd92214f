"""A part of `make torture` that takes seconds: every crash point of a review, and some of all else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def torture(*words: str) -> str:
    """The lines that the command prints; nothing may be wrong."""
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent / "src")])
    command = [sys.executable, "-m", "torture", *words]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False)
    if done.returncode == 2:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_review_survives_every_moment() -> None:
    lines = torture("crashes", "--scene", "review").splitlines()
    tried = {
        line.split(",")[1].split()[0]: int(line.split(" tried")[0].split()[-1]) for line in lines if " tried" in line
    }
    assert tried["killed"] == tried["EIO"] >= 13  # open, sync of the folder; a write and a sync for each decision
    assert tried["torn"] == tried["short"] == 6


KILLS = """
import tempfile
from pathlib import Path
from torture import crashes, tracing
from torture.scenes import SCENES

with tempfile.TemporaryDirectory() as folder:
    base, scene = Path(folder), SCENES["review"]
    rehearsal = crashes.rehearse(base, scene)
    for at, kept in enumerate(rehearsal.moments, start=1):
        root = crashes._restore(base, rehearsal.template)
        assert tracing.run(lambda: scene.act(root), root, tracing.KILL, at).code == -9
        left = crashes._keep(root, base / "moments", {})
        assert left == kept[False], at
    print(at, len({kept[False] for kept in rehearsal.moments}))
"""


def test_a_copy_before_a_call_is_what_a_kill_leaves() -> None:
    """Where nothing that is written depends on the time: a review with given times."""
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent / "src")])
    words = [sys.executable, "-c", KILLS]
    done = subprocess.run(words, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    calls, states = map(int, done.stdout.split())
    assert calls > states > 6  # a sync changes nothing, each decision does


@pytest.mark.slow
def test_some_moments_of_other_commands() -> None:
    scenes = [word for name in ("fit", "export npz", "cache") for word in ("--scene", name)]
    assert torture("crashes", *scenes, "--every", "40").endswith(" s\n")


@pytest.mark.slow
def test_some_flips_inputs_and_processes_at_once() -> None:
    lines = torture("bits", "inputs", "sharing", "--share", "0.01")
    assert "model" in lines and "parquet" in lines and "run folder" in lines
