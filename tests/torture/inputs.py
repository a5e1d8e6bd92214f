"""Generated inputs to all readers: read with every row accounted for, or refused; no crash, no hang."""

from __future__ import annotations

import contextlib
import csv
import io
import random
import resource
import signal
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from torture import tracing
from torture.pieces import SOUND, TOKENS

__all__ = ["READERS", "Inputs", "generate_inputs"]

BATCH = 1000  # inputs in one process: one that dies is found by its number
CPU_SECONDS = 20.0  # that one input may take
MEMORY = 1 << 30  # bytes that a batch may take on top of what it starts with
VALUES: list[Callable[[random.Random], Any]] = [
    lambda rng: rng.choice(["a", "b", "é", "a\tb", "x" * 50, "1.0"]),
    lambda rng: rng.choice(["a", "", "\0", "\ud800", None]),
    lambda rng: None,
    lambda rng: rng.randrange(-3, 5),
    lambda rng: rng.choice([0.5, float("nan"), float("inf"), -0.0]),
    lambda rng: rng.choice([True, b"a", b"\xff", ("a",), [1], {"a": 1}, object()]),
]


@dataclass
class Inputs:
    """How many inputs ended how, and how much memory they took on top."""

    ends: Counter[str] = field(default_factory=Counter)
    megabytes: int = 0
    problems: list[str] = field(default_factory=list)


def generate_inputs(base: Path, reader: str, count: int, seed: int = 0) -> Inputs:
    """Give a reader so many inputs."""
    found, notes, done = Inputs(), base / "inputs", 0
    notes.unlink(missing_ok=True)
    while done < count:
        outcome = tracing.run(partial(_read_some, reader, notes, range(done, min(done + BATCH, count)), seed))
        lines = notes.read_text().splitlines() if notes.exists() else []
        done = sum(not line.startswith("#") for line in lines)
        if outcome.code:
            how = "takes too long" if outcome.code == -signal.SIGPROF else f"ends the process ({outcome.code})"
            found.problems.append(f"{reader} {seed} {done}: {how}: {outcome.output[-300:]}")
            with notes.open("a") as file:
                file.write("ended\n")
            done += 1
    for line in notes.read_text().splitlines():
        end, _, what = line.partition("\t")
        if end == "#":
            found.megabytes = max(found.megabytes, int(what))
        else:
            found.ends[end] += 1
            found.problems += [f"{reader} {seed} {what}"] if end == "wrong" else []
    return found


def _read_some(reader: str, notes: Path, numbers: range, seed: int) -> None:
    """In a process of its own, with so much time and memory for each and no more."""
    from kgem.data.formats import parquet_trial

    signal.alarm(0)  # its time is counted in CPU seconds, input by input
    try_one = READERS[reader]
    try_one(random.Random(0))  # what is loaded late is loaded now
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, taken + MEMORY))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # The batch is a process that may die, so that Parquet needs none of its own for each file.
    with notes.open("a", buffering=1) as out, patch.object(parquet_trial, "_trial", lambda content: None):
        for number in numbers:
            signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
            try:
                end = try_one(random.Random(f"{reader} {seed} {number}"))
            except BaseException as error:
                end = f"wrong\t{number}: {type(error).__name__}: {error}".replace("\n", " ")
            out.write(end + "\n")
        signal.setitimer(signal.ITIMER_PROF, 0)
        out.write(f"#\t{(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024}\n")


# what is read, and what must come of it


def _content(rng: random.Random, form: str) -> bytes:
    """Facts, or pieces of the format in any order, or both; sometimes cut, or with a byte changed."""
    begin, facts, end = SOUND[form]
    pieces = TOKENS[form if rng.random() < 0.9 else rng.choice(list(TOKENS))]
    broken = rng.choice([0.0, 0.0, 0.05, 0.3, 1.0])  # share of the pieces
    chosen = (rng.choice(pieces if rng.random() < broken else facts) for _ in range(rng.choice([0, 1, 3, 10, 30])))
    content = b"".join(chosen) if broken == 1.0 and rng.random() < 0.7 else begin + b"".join(chosen) + end
    if content and rng.random() < 0.1:
        content = content[: rng.randrange(len(content))]
    if content and rng.random() < 0.15:
        place = rng.randrange(len(content))
        content = content[:place] + rng.randbytes(1) + content[place + 1 :]
    return content


def _options(rng: random.Random, form: str) -> dict[str, Any]:
    given: dict[str, Any] = {"format": form, "skip_bad": rng.random() < 0.7}
    if rng.random() < 0.2:
        given["header"] = True
    if rng.random() < 0.1:
        given["columns"] = rng.choice([(1, 2, 3), (3, 2, 1), ("a", "r", "b"), (1, 1, 2), (1, 2, 9)])
    if rng.random() < 0.1:
        given["extra"] = "more"
    if rng.random() < 0.3:
        given["literals"] = "keep"
    return given


def _check(read: Any) -> None:
    """No row lost unreported."""
    report = read.report
    parts = report.kept + report.duplicates + report.skipped + report.literals_dropped
    assert report.rows_read == parts, f"{report.rows_read} rows, but {parts} are accounted for"
    assert report.kept == read.frame.height == len(set(read.frame.select("head", "relation", "tail").rows()))
    assert report.skipped >= len(report.problems)


def _text(rng: random.Random, form: str) -> str:
    from kgem.data.formats import pages
    from kgem.data.options import ReadOptions
    from kgem.data.triples import read_triples
    from kgem.errors import TriplesError

    content, options = _content(rng, form), _options(rng, form)
    plain = not options.keys() & {"header", "columns", "extra"}
    good = ORACLES[form](content) if form in ORACLES and plain and options["skip_bad"] else None
    with patch.object(pages, "BLOCK", rng.choice([1, 3, 10, 1 << 20])):
        try:
            read = read_triples(io.BytesIO(content), ReadOptions(**options))
        except TriplesError as error:
            assert error.what and error.where, "an error that does not say what and where"
            assert not good, f"{len(good or ())} facts are refused: {content!r}"
            return "refused"
    _check(read)
    assert options["skip_bad"] or not read.report.skipped
    assert good is None or list(dict.fromkeys(good)) == read.frame.rows(), f"other facts: {content!r}"
    return "read"


def _tsv_rows(content: bytes) -> list[tuple[str, ...]]:
    """Line by line, the obvious way."""
    rows = []
    for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        try:
            fields = line.removesuffix(b"\r").decode().split("\t")
        except UnicodeDecodeError:
            continue
        if len(fields) == 3 and all(fields) and b"\0" not in line:
            rows.append(tuple(fields))
    return rows


def _csv_rows(content: bytes) -> list[tuple[str, ...]] | None:
    """As the standard library reads it, where that is beyond dispute; None elsewhere."""
    if any(piece in content for piece in (b"\0", b"\r", b"\xef\xbb\xbf")):
        return None
    try:
        rows = list(csv.reader(io.StringIO(content.decode(), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error):
        return None
    text = content.decode()
    written = io.StringIO(newline="")
    csv.writer(written, lineterminator="\n").writerows(rows)
    if written.getvalue() != text:  # quotes where none are needed, or in the middle of a field
        return None
    return [tuple(row) for row in rows if len(row) == 3 and all(row)]


ORACLES: dict[str, Callable[[bytes], list[tuple[str, ...]] | None]] = {"tsv": _tsv_rows, "csv": _csv_rows}


def _openke(rng: random.Random) -> str:
    from kgem.data.options import ReadOptions
    from kgem.data.triples import read_triples
    from kgem.errors import TriplesError

    n = rng.choice([1, 2, 5])
    facts = b"".join(rng.choices(SOUND["openke"][1], k=n))
    files = {"entity2id.txt": b"2\na\t0\nb\t1\n", "relation2id.txt": b"1\nr\t0\n", "train2id.txt": b"%d\n" % n + facts}
    for name in rng.sample(list(files), rng.choice([0, 0, 1, 1, 2, 3])):
        files[name] = _content(rng, "openke")
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        try:
            read = read_triples(folder, ReadOptions(format="openke", skip_bad=rng.random() < 0.7))
        except TriplesError as error:
            assert error.what and error.where
            return "refused"
    _check(read)
    return "read"


def _table(rng: random.Random, pandas: bool = False) -> Any:
    """A frame with values of any kind."""
    table = None
    while table is None:
        table = _try_table(rng, pandas)
    return table


def _try_table(rng: random.Random, pandas: bool) -> Any:
    """A frame with values of any kind; None if there can be no such frame."""
    import polars as pl

    width, height = rng.choice([1, 2, 3, 3, 3, 3, 4, 5]), rng.choice([0, 1, 2, 5])
    names = (["head", "relation", "tail", "split", "x"] if rng.random() < 0.6 else ["a", "b", "c", "d", "e"])[:width]
    odd = 0 if rng.random() < 0.5 else 0.3
    make = [rng.choice(VALUES) if rng.random() < odd else VALUES[0] for _ in names]
    columns = {name: [value(rng) for _ in range(height)] for name, value in zip(names, make, strict=True)}
    if pandas:
        import pandas as pd

        return pd.DataFrame(columns)
    try:
        return pl.DataFrame(columns, strict=False)
    except (pl.exceptions.PolarsError, TypeError, ValueError, UnicodeEncodeError, OverflowError):
        return None


def _frame(rng: random.Random) -> str:
    import numpy as np

    kind = rng.choice(["polars", "pandas", "numpy", "array"])
    table = _table(rng, pandas=kind != "polars")
    if kind == "numpy":
        table = table.to_numpy()
    elif kind == "array":
        shape = rng.choice([(0, 3), (2, 3), (2, 2), (3,), (1, 3, 1), ()])
        table = np.zeros(shape, dtype=rng.choice(["i4", "f8", "U3", "S3", "O", "M8[D]", "c8", "?"]))
    return _read_table(rng, table, len(table) if getattr(table, "ndim", 2) == 2 else 0)


def _parquet(rng: random.Random) -> str:
    """Frames as Parquet, whole, cut, or with a byte changed."""
    buffer = io.BytesIO()
    while not buffer.tell():
        table = _table(rng)
        with contextlib.suppress(Exception):  # of values that Parquet has no type for
            table.write_parquet(buffer, compression=rng.choice(["zstd", "snappy", "uncompressed", "lz4", "gzip"]))
    content = buffer.getvalue()
    if rng.random() < 0.5:
        place = rng.randrange(len(content))
        content = content[:place] + (rng.randbytes(1) + content[place + 1 :] if rng.random() < 0.7 else b"")
        return _read_table(rng, io.BytesIO(content), None)
    return _read_table(rng, io.BytesIO(content), table.height)


def _read_table(rng: random.Random, table: Any, rows: int | None) -> str:
    from kgem.data.options import ReadOptions
    from kgem.data.triples import read_triples
    from kgem.errors import TriplesError

    form = "parquet" if isinstance(table, io.BytesIO) else None
    try:
        read = read_triples(table, ReadOptions(format=form, skip_bad=rng.random() < 0.7))
    except TriplesError as error:
        assert error.what and error.where
        return "refused"
    _check(read)
    assert rows is None or read.report.rows_read == rows, f"{read.report.rows_read} rows of {rows}"
    return "read"


def _by_line(content: bytes) -> list[str] | None:
    """The lines that say something, the obvious way; None if it is not text."""
    try:
        lines = content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError:
        return None
    return [row for line in lines if (row := line.removesuffix("\r")).strip()]


def _names(rng: random.Random) -> str:
    """What symbols are called (--labels)."""
    from kgem.data.names import Names
    from kgem.data.options import ReadOptions
    from kgem.data.sources import load_names
    from kgem.errors import TriplesError

    content = _content(rng, "names")
    with tempfile.NamedTemporaryFile(suffix=".tsv") as file:
        Path(file.name).write_bytes(content)
        try:
            found: Names = load_names(ReadOptions(labels=file.name))
        except TriplesError as error:
            assert error.what and error.where
            return "refused"
    pairs = [line.split("\t", 1) for line in _by_line(content) or []]
    assert pairs and found.by_label == {label: " ".join(name.split()) for label, name in pairs}, f"{content!r}"
    return "read"


def _questions(rng: random.Random) -> str:
    """Those of `kgem predict --queries`."""
    from kgem.cli.predict import _read_queries
    from kgem.errors import TriplesError

    content = _content(rng, "questions")
    with tempfile.NamedTemporaryFile(suffix=".tsv") as file:
        Path(file.name).write_bytes(content)
        try:
            found = _read_queries(Path(file.name))
        except TriplesError as error:
            assert error.what and error.where
            return "refused"
    rows = [tuple(None if each in ("", "?") else each for each in row.split("\t")) for row in _by_line(content) or []]
    assert [tuple(query) for query in found] == rows, f"{content!r}"
    return "read"


READERS: dict[str, Callable[[random.Random], str]] = {
    **{form: partial(_text, form=form) for form in ("tsv", "csv", "nt", "nq", "ttl", "rdf")},
    "openke": _openke,
    "parquet": _parquet,
    "frames": _frame,
    "names": _names,
    "questions": _questions,
}
