"""A wrong clock: 1970, 2100, or going backwards; nothing that is fitted, decided or written may depend on it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from torture.scenes import DECIDED, FORMATS, SCENES, command, fingerprint

__all__ = ["CLOCKS", "try_clock"]

CLOCKS = {  # seconds since 1970
    "1970": {"KGEM_CLOCK": "1000"},
    "2100": {"KGEM_CLOCK": "4102444800"},
    "backwards": {"KGEM_CLOCK": "1760000000", "KGEM_CLOCK_BACK": "1"},
}


def try_clock(base: Path, name: str) -> list[str]:
    """All scenes that matter under a clock and under the right one; what differs, or fails."""
    found = {}
    for clock in ("right", name):
        shutil.rmtree(base / "root", ignore_errors=True)
        (base / "root").mkdir(parents=True)
        (base / "acknowledged").unlink(missing_ok=True)
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with tempfile.TemporaryDirectory() as folder:
            if clock != "right":
                environment |= CLOCKS[clock] | {"LD_PRELOAD": str(_clock(Path(folder)))}
            code = f"from torture.clocks import live; live({str(base / 'root')!r})"
            done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        if done.returncode:
            return [f"clock {clock}: {done.stderr[-500:]}"]
        found[clock] = json.loads((base / "root" / "said.json").read_text())
    return [f"clock {name}: {what} differs" for what, said in found["right"].items() if said != found[name][what]]


def _clock(folder: Path) -> Path:
    library, source = folder / "clock.so", Path(__file__).with_name("clock.c")
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True, capture_output=True)
    return library


HAS_SECONDS = ("model/model.json", "model/manifest.json", "model/manifest.sha256")  # how long the fit took, and hashes


def live(folder: str) -> None:
    """Under whatever clock: fit, decide, export, cache; what came of it goes to said.json."""
    root = Path(folder)
    SCENES["update"].prepare(root)
    said = {"fit": fingerprint(root / "run")}
    for _ in DECIDED:
        SCENES["review"].act(root)
    said["review"] = SCENES["review"].result(root)
    for to in FORMATS:
        command("export", root / "run", "--to", to, "--out", root / to)
        exported = SCENES["export npz"].result(_as_out(root, to))
        said[f"export {to}"] = {name: content for name, content in exported.items() if name not in HAS_SECONDS}
    said["cache"] = [SCENES["cache"].act(root) for _ in range(2)]
    SCENES["report"].act(root)
    SCENES["convert"].act(root)
    said["convert"] = SCENES["convert"].result(root)
    (root / "said.json").write_text(json.dumps(said))


def _as_out(root: Path, to: str) -> Path:
    out = root / "out"
    shutil.rmtree(out, ignore_errors=True)
    (root / to).rename(out)
    return root
