"""Writing the facts of a graph for a command: to one file, to a folder of splits, or to standard output."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kgem.cli.console import emit_bytes, say
from kgem.cli.output import fill_folder
from kgem.errors import ConfigError, InputError

if TYPE_CHECKING:
    import polars as pl

STDOUT = "-"
SPLITS_IN_FILE = ("tsv", "csv", "parquet", "nq")  # formats whose rows have room for a fourth column


def check_format(name: str) -> None:
    """An error if no format is called so."""
    from kgem.data.triples import FORMATS

    if name not in FORMATS:
        raise ConfigError(f"no format is called {name!r}", where="--to", remedy=f"one of {', '.join(FORMATS)}")


def choose_target(out: str, to: str | None) -> tuple[str, bool]:
    """The format to write, and whether OUT is a folder."""
    from kgem.data.triples import FORMATS, guess_format

    if to is not None:
        check_format(to)
    if out == STDOUT:
        name, is_folder = to or "tsv", False
        if FORMATS[name].is_folder:
            raise ConfigError(f"{name} is a folder, not one file", remedy="name a folder instead of -")
        return name, is_folder
    by_name = out.endswith("/") or Path(out).is_dir() or not Path(out).suffix
    name = to or ("tsv" if by_name else guess_format(out))
    return name, by_name or FORMATS[name].is_folder


def write_folder(frames: Mapping[str, pl.DataFrame], out: Path, name: str, literals: bool) -> list[str]:
    """One file per split, or an OpenKE folder; the files' names."""
    from kgem.data.triples import FORMATS, write_triples

    form = FORMATS[name]
    with fill_folder(out) as fresh:
        for part, frame in frames.items():
            target = fresh if form.is_folder else fresh / f"{part}{form.extensions[0]}"
            write_triples(frame, target, format=name, split=part, literals=literals)
        written = {path.name for path in fresh.iterdir()}
    first = [name for part in frames for name in sorted(written) if name.startswith(part)]  # train, valid, test
    return [str(out / name) for name in (*first, *sorted(written - set(first)))]


def write_stdout(frames: Mapping[str, pl.DataFrame], name: str, literals: bool) -> list[str]:
    """All facts to standard output, once all of them could be written."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "facts"
        write_one_file(frames, file, name, literals)
        emit_bytes(file)
    return ["standard output"]


def write_one_file(frames: Mapping[str, pl.DataFrame], out: Path, name: str, literals: bool) -> list[str]:
    """All facts in one file; with several splits a fourth column says which."""
    import polars as pl

    from kgem.data.triples import write_triples

    if len(frames) == 1:
        facts = next(iter(frames.values()))
    elif any(frame.width > 3 for frame in frames.values()):
        raise InputError("one file cannot hold both splits and an extra column", where=str(out), remedy="name a folder")
    elif name not in SPLITS_IN_FILE:
        raise InputError(
            f"one {name} file cannot hold a graph with splits",
            where=str(out),
            remedy=f"name a folder (a name without extension) and --to {name}",
        )
    else:
        facts = pl.concat([frame.with_columns(pl.lit(part).alias("split")) for part, frame in frames.items()])
        if name != "parquet":
            say("the fourth column is the split; to read it: --extra split")
    write_triples(facts, out, format=name, literals=literals)
    return [str(out)]
