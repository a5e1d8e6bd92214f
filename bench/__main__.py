"""`python -m bench`: runs the suites, writes results.json and results.md; the only module that prints."""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import report
from bench.peers import BIGGRAPH, PYKEEN, Peer, biggraph, pykeen
from bench.protocol import THREADS
from bench.suites import SUITES, Plan
from bench.workers import ROOT, WorkerFailed

PAGE = ROOT / "docs" / "benchmarks.md"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Speed and memory of kgem against its peers.")
    parser.add_argument("--long", action="store_true", help="whole epochs and whole test sets: about an hour")
    parser.add_argument("--only", nargs="+", choices=SUITES, metavar="NAME", help=f"some of: {', '.join(SUITES)}")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contestant")
    parser.add_argument("--turn", type=float, default=1.0, help="seconds of a turn in the short version")
    parser.add_argument(
        "--minutes", type=float, default=20.0, help="of each contestant in the suite of time to quality"
    )
    parser.add_argument("--out", type=Path, default=Path("bench/out"), help="folder for results and plots")
    parser.add_argument("--no-peers", action="store_true", help="leave PyKEEN and PyTorch-BigGraph out")
    parser.add_argument("--table", type=Path, metavar="JSON", help="only write the table of a results file into docs")
    given = parser.parse_args()
    if given.table:
        report.write_into(PAGE, report.table(json.loads(given.table.read_text())))
        return 0
    shared = ROOT.parent / "shared" / "data"
    if shared.is_dir():
        os.environ.setdefault("KGEM_DATA", str(shared))
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kgem-bench-") as folder:
        for results in run(given, Path(folder)):
            write(results, given.out, Path(folder))
    print((given.out / "results.md").read_text(), end="")
    return 0


def write(results: dict[str, Any], out: Path, folder: Path) -> None:
    """results.json, results.md, and what the suites left in their folder."""
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (out / "results.md").write_text(report.table(results))
    for made in (*folder.glob("growth.*"), *folder.glob("quality.*"), *folder.glob("*.log")):
        (out / made.name).write_bytes(made.read_bytes())


def run(given: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """The results after each suite: an interrupted run keeps what it has, a suite that fails stops no other."""
    everyday = [name for name in SUITES if given.long or name not in ("growth", "neighbours", "quality", "scale")]
    chosen = given.only or everyday
    peers: dict[str, Peer] = {}
    for name, make, suites_of in (
        (PYKEEN, pykeen, {"epoch", "evaluation", "quality"}),
        (BIGGRAPH, biggraph, {"scale"}),
    ):
        wanted = not given.no_peers and suites_of & set(chosen)
        peers[name] = make(say) if wanted else Peer(None, "left out")
    skipped = {name: peer.reason for name, peer in peers.items() if not peer.python}
    plan = Plan(
        given.long,
        folder,
        peers[PYKEEN],
        peers[BIGGRAPH],
        say,
        rounds=given.rounds,
        turn=given.turn,
        minutes=given.minutes,
    )
    plan.log.touch()
    suites: dict[str, Any] = {}
    about = {"machine": machine(), "ours": our_version()}
    took: dict[str, float] = {}  # seconds of each suite
    begun = time.perf_counter()
    for name in chosen:
        say(f"{name} ...")
        started = time.perf_counter()
        try:
            suites[name] = SUITES[name](plan)
        except WorkerFailed as failed:
            skipped[name] = str(failed)
        took[name] = round(time.perf_counter() - started, 1)
        say(f"{name}: {took[name]:.0f} s")
        yield gather(given, about, suites, skipped) | {"took": took, "seconds": time.perf_counter() - begun}


def gather(
    given: argparse.Namespace, about: dict[str, Any], suites: dict[str, Any], skipped: dict[str, str]
) -> dict[str, Any]:
    """All that a reader of the numbers must know."""
    return {
        "when": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "mode": "long" if given.long else "short",
        "command": ["python", "-m", "bench", *sys.argv[1:]],
        "threads": THREADS,
        "rounds": given.rounds,
        "machine": about["machine"],
        "versions": versions(about["ours"], suites),
        "claims": report.claims(suites),
        "suites": suites,
        "skipped": skipped,
    }


def machine() -> dict[str, Any]:
    """What the numbers depend on; no names of hosts."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    about: dict[str, Any] = {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "memory_bytes": memory,
    }
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        fields = dict(line.partition(":")[::2] for line in cpuinfo.read_text().splitlines() if ":" in line)
        by_name = {key.strip(): value.strip() for key, value in fields.items()}
        about["processor"] = by_name.get("model name", about["processor"])
        flags = by_name.get("flags", "").split()
        about["vector_units"] = [flag for flag in ("avx2", "avx512f", "amx_tile") if flag in flags]
    return about | {"system": f"{platform.system()} {platform.release()}", "load_before": os.getloadavg()[0]}


def our_version() -> dict[str, str]:
    """Taken before anything runs; a tree with changes that no commit has says so."""

    def git(*command: str) -> str:
        return subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    changed = " with changes" if git("status", "--porcelain", "--", "src", "bench") else ""
    return {
        "kgem": importlib.metadata.version("kgem"),
        "commit": (git("rev-parse", "--short", "HEAD") or "unknown") + changed,
        "python": platform.python_version(),
    }


def versions(ours: dict[str, str], suites: dict[str, Any]) -> dict[str, str]:
    """Ours, and those of what the workers said they run."""
    found = dict(ours)
    for graphs in (suites.get("epoch", {}), suites.get("evaluation", {})):
        for result in graphs.values():
            for each in result.values():
                found |= each.get("versions", {}) if isinstance(each, dict) else {}
    return found


if __name__ == "__main__":
    sys.exit(main())
