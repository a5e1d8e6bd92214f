"""Installs the wheel of dist/ into an empty environment of each Python that is named, and runs `kgem demo` there.

    python tools/try_wheel.py 3.11 3.12 /usr/bin/python3.13     # after `make dist`

A Python is a version that uv finds, or a path. One that is not here is told, and fails the whole.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
UV = ["uv"]
LINES = 6  # of what a command that failed has said


def main(pythons: list[str]) -> int:
    """Try each; the number of those that failed."""
    wheels = sorted((ROOT / "dist").glob("*.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels or not pythons:
        print("no wheel in dist/: make dist" if not wheels else "name some Pythons, as 3.12", file=sys.stderr)
        return 2
    return sum(not try_wheel(wheels[-1], python) for python in pythons)


def try_wheel(wheel: Path, python: str) -> bool:
    """Whether the demo of the wheel ends well in a new environment; says how long it took, or what went wrong."""
    start = time.monotonic()
    with TemporaryDirectory() as place:
        home = Path(place)
        binaries = home / "venv" / "bin"
        install = [*UV, "pip", "install", "--quiet", "--python", str(binaries / "python")]
        steps = {
            "environment": [*UV, "venv", "--quiet", "--no-python-downloads", "--python", python, str(home / "venv")],
            "install": [*install, "--constraints", str(ROOT / "constraints.txt"), f"{wheel}[serve]"],
            "import": [str(binaries / "python"), "-c", "import kgem; print(kgem.__version__, kgem.__file__)"],
            "demo": [str(binaries / "kgem"), "demo", "--quiet", "--out", str(home / "demo-run")],
            "report": [str(binaries / "kgem"), "report", str(home / "demo-run"), "--force"],
        }
        for name, call in steps.items():
            done = subprocess.run(call, cwd=home, env=_environment(), capture_output=True, text=True)
            if done.returncode:
                said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-LINES:])
                print(f"Python {python}: {name} failed ({done.returncode})\n{said}")
                return False
        version = subprocess.run([str(binaries / "python"), "--version"], capture_output=True, text=True).stdout.strip()
    print(f"{version}: {wheel.name} installed, kgem demo and kgem report ran, {time.monotonic() - start:.0f} s")
    return True


def _environment() -> dict[str, str]:
    """Of this process, but without what would let the source folder stand in for the wheel."""
    own = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return {"PYENV_VERSION": pyenv_versions(), **own} if shutil.which("pyenv") else own


@cache
def pyenv_versions() -> str:
    """All that pyenv has; what it puts on the path runs only those that are named, and fails uv for the others."""
    listed = subprocess.run(["pyenv", "versions", "--bare"], capture_output=True, text=True).stdout
    return ":".join(listed.split())


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 2))
