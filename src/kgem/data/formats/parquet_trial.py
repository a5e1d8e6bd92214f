"""Decodes Parquet in a trial process first: polars may ask for impossible memory and abort on a damaged file."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl

__all__ = ["Unreadable", "decode", "read"]

MAGIC = b"PAR1"
READY, GOOD = "ready", "good"
RESERVED = 2 << 30  # bytes of addresses that threads and the allocator take without using them


class Unreadable(Exception):
    """Why the bytes are no table."""


def read(content: bytes) -> pl.DataFrame:
    """The table in a Parquet file, or Unreadable; whatever the bytes, this process lives on.

    The trial process decodes the same bytes by the same call. What it survives, this one does, so that nothing
    has to be handed over, and its memory is free again before it is needed here.
    """
    if not (content.startswith(MAGIC) and content.endswith(MAGIC)):
        raise Unreadable("it does not begin and end with PAR1")
    fault = _trial(content)
    if fault:
        raise Unreadable(fault)
    return decode(content)


def decode(content: bytes) -> pl.DataFrame:
    """The table, with as many rows as the file says it has; to be called where an abort does no harm."""
    try:
        frame = pl.read_parquet(io.BytesIO(content))
        # From the file's own count, which a damaged count of one of its parts contradicts.
        stated = int(pl.scan_parquet(io.BytesIO(content)).select(pl.len()).collect().item())
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        raise Unreadable(str(error).partition("\n")[0]) from error
    if stated != len(frame):
        raise Unreadable(f"it says {stated:,} rows, but {len(frame):,} are in it")
    return frame


def _trial(content: bytes) -> str | None:
    """What is wrong with the bytes according to the trial process; None also where none can be started."""
    if not sys.executable or getattr(sys, "frozen", False):  # Python within another program
        return None
    # By its path and with our own search path: whatever way this process found polars, the trial finds it.
    command = [sys.executable, "-P", str(Path(__file__).resolve())]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(command, input=content, env=environment, capture_output=True, check=False)
    except OSError:
        return None
    said = done.stdout.decode(errors="replace").splitlines()
    if not said or said[0] != READY or said[1:] == [GOOD]:
        return None
    if len(said) == 1:
        return f"decoding it needs more memory than there is, or fails badly (code {done.returncode})"
    return str(json.loads(said[1]))


def _limit_memory() -> None:
    """At most the machine's memory on top of what is taken, and first to go when there is none left: no swapping."""
    try:
        import resource

        page = os.sysconf("SC_PAGE_SIZE")
        taken = page * int(Path("/proc/self/statm").read_text().split()[0])
        limit = taken + page * os.sysconf("SC_PHYS_PAGES") + RESERVED
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        Path("/proc/self/oom_score_adj").write_text("1000")
    except (ImportError, OSError, ValueError, AttributeError):  # other systems have other ways, or none
        return


def main() -> None:
    """The trial: decode standard input and say what came of it."""
    _limit_memory()
    print(READY, flush=True)
    try:
        decode(sys.stdin.buffer.read())
        verdict = GOOD
    except Unreadable as error:
        verdict = json.dumps(str(error))
    print(verdict, flush=True)
    os._exit(0)  # threads of a decoder that panicked must not hold it up


if __name__ == "__main__":
    main()
