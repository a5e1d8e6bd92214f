"""`make torture`: everything that may happen to files and readers, counted; ends with code 1 if anything was lost.

python -m torture [PART ...] [--every N] [--share X]    PART: crashes, bits, inputs, sharing, clocks; without any: all
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS")
FLIPS, INPUTS = 10_000, 100_000
Line = tuple[str, str, list[str]]  # what was tried, what came of it, what was wrong


def main() -> int:
    """Run the parts that are asked for, a line for each thing that is tried."""
    parser = argparse.ArgumentParser(prog="torture", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one of {', '.join(PARTS)}")
    parser.add_argument("--every", type=int, default=1, help="of the crash points only each N-th")
    parser.add_argument("--share", type=float, default=1.0, help="of flips, inputs and rounds only this part")
    parser.add_argument("--scene", action="append", help="of the crashes only these commands")
    parser.add_argument("--fault", action="append", help="of the crashes only these faults, as EIO")
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"no part is called {unknown.pop()}")
    from torture.tracing import why_not

    if reason := why_not():
        print(f"not tried: {reason}", file=sys.stderr)
        return 2
    wrong, begun = 0, time.monotonic()
    home = "/dev/shm" if Path("/dev/shm").is_dir() else None  # quick to sync; what is lost is lost by ourselves
    with tempfile.TemporaryDirectory(prefix="kgem-torture-", dir=home) as folder:
        os.environ["KGEM_CACHE"] = f"{folder}/cache"
        for part in given.parts or PARTS:
            print(f"{part}: {PARTS[part].__doc__}")
            for tried, came, problems in PARTS[part](Path(folder), given):
                wrong += len(problems)
                print(f"  {tried:18} {came}", *(f"\n      WRONG: {problem}" for problem in problems), flush=True)
    print(f"{wrong} wrong; {time.monotonic() - begun:,.0f} s")
    return int(wrong > 0)


def crashes(base: Path, given: argparse.Namespace) -> Iterator[Line]:
    """the n-th change of a file, for every n: killed, torn, power lost, disk full, I/O error, cut short"""
    from torture.crashes import FAULTS, enumerate_faults, rehearse, warm_up
    from torture.scenes import SCENES

    scenes = [SCENES[name] for name in given.scene or SCENES]
    warm_up(base, scenes)
    for scene in scenes:
        rehearsal = rehearse(base, scene)
        for name, fault in FAULTS.items():
            if given.fault and name not in given.fault:
                continue
            found = enumerate_faults(base, rehearsal, fault, given.every)
            states = f" ({found.states} states)" if found.states else ""
            ends = f"{found.killed} killed{states}, {found.told} told, {found.same_at_once} went on"
            left = f"; files left: {dict(found.left)}" if found.left else ""
            yield f"{scene.name}, {name}", f"{found.tried:5} tried: {ends}{left}", found.problems


def bits(base: Path, given: argparse.Namespace) -> Iterator[Line]:
    """a flipped bit in a file that kgem reads"""
    from torture.bits import KINDS, flip_bits

    total = sum(kind.flips for kind in KINDS.values())
    for name, kind in KINDS.items():
        found = flip_bits(base, name, max(2, round(kind.flips * FLIPS / total * given.share)))
        ends = ", ".join(f"{n} {end}" for end, n in sorted(found.ends.items()))
        yield name, f"{found.ends.total():5} flips: {ends}{'' if kind.sealed else ' (no checksum)'}", found.problems


def inputs(base: Path, given: argparse.Namespace) -> Iterator[Line]:
    """generated inputs to the readers"""
    from torture.inputs import READERS, generate_inputs

    for reader in READERS:
        found = generate_inputs(base, reader, max(2, -(-round(INPUTS * given.share) // len(READERS))))
        ends = ", ".join(f"{n} {end}" for end, n in sorted(found.ends.items()))
        yield reader, f"{found.ends.total():6} inputs: {ends}; {found.megabytes} MB on top", found.problems


def sharing(base: Path, given: argparse.Namespace) -> Iterator[Line]:
    """several processes at one run folder, one review log, one cache"""
    import kgem.cli.fit  # before processes are forked, so that they begin at once
    import kgem.runs.run  # noqa: F401
    from torture.sharing import share_cache, share_review, share_run

    for name, share, rounds in (
        ("review", share_review, 40),
        ("cache", share_cache, 20),
        ("run folder", share_run, 40),
    ):
        ends, problems = share(base, max(1, round(rounds * given.share)))
        yield name, ", ".join(f"{n} {end}" for end, n in sorted(ends.items())), problems


def clocks(base: Path, given: argparse.Namespace) -> Iterator[Line]:
    """a wrong clock: fit, review, exports, cache, report, conversion against the right one"""
    from torture.clocks import CLOCKS, try_clock

    for name in list(CLOCKS)[: None if given.share == 1 else 1]:
        problems = try_clock(base, name)
        yield name, "the same" if not problems else "not the same", problems


PARTS: dict[str, Callable[[Path, argparse.Namespace], Iterator[Line]]] = {
    part.__name__: part for part in (crashes, bits, inputs, sharing, clocks)
}

if __name__ == "__main__":
    if any(os.environ.get(name) != "1" for name in THREADS):  # before anything counts the processors
        os.execve(sys.executable, sys.orig_argv, os.environ | dict.fromkeys(THREADS, "1"))
    sys.exit(main())
