"""Damaged Parquet files are refused; not one of them ends the process that reads them."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kgem.data.dataset import Dataset
from kgem.data.formats import parquet_trial
from kgem.data.options import ReadOptions
from kgem.data.triples import read_triples
from kgem.errors import TriplesError

ROWS = 50
FACTS = pl.DataFrame(
    {
        "head": [f"entity {i % 7}" for i in range(ROWS)],
        "relation": [f"r{i % 3}" for i in range(ROWS)],
        "tail": [f"t{i}" for i in range(ROWS)],
    }
)
NUMBERS = FACTS.with_columns(n=pl.int_range(ROWS), weight=pl.int_range(ROWS) * 0.5)
NULLS = FACTS.with_columns(
    note=pl.when(pl.int_range(ROWS) % 3 == 0).then(None).otherwise(pl.lit("x")),
    both=pl.concat_list("head", "tail"),
    kind=pl.col("relation").cast(pl.Categorical),
)


def written(frame: pl.DataFrame, **options: object) -> bytes:
    stream = io.BytesIO()
    frame.write_parquet(stream, **options)  # type: ignore[arg-type]
    return stream.getvalue()


SHAPES = {
    "plain": written(FACTS, compression="uncompressed"),
    "zstd": written(FACTS),
    "snappy": written(FACTS, compression="snappy"),
    "parts": written(FACTS, row_group_size=10, data_page_size=64),
    "numbers": written(NUMBERS, compression="lz4"),
    "nulls": written(NULLS, compression="gzip"),
}

# A byte of a file, counted from either end (what a file says about itself is at its end), and what it becomes.
FLIP = st.tuples(st.integers(-1600, 1600), st.integers(0, 255))
DAMAGE = st.tuples(st.sampled_from(sorted(SHAPES)), st.lists(FLIP, min_size=1, max_size=4))


def damaged(damage: tuple[str, list[tuple[int, int]]]) -> bytes:
    shape, flips = damage
    content = bytearray(SHAPES[shape])
    for place, byte in flips:
        content[place % len(content)] = byte
    return bytes(content)


DECODE = """
import base64, json, sys
from kgem.data.formats.parquet_trial import Unreadable, decode
for line in sys.stdin:
    print("begun", flush=True)
    try:
        said = len(decode(base64.b64decode(line)))
    except Unreadable as error:
        said = str(error)
    print(json.dumps(said), flush=True)
"""


def decoded_apart(contents: list[bytes]) -> Iterator[int | str | None]:
    """What `decode` makes of each, in processes of their own: rows, what is wrong, or None where one was killed."""
    left = contents
    while left:
        lines = b"".join(base64.b64encode(content) + b"\n" for content in left)
        done = subprocess.run([sys.executable, "-c", DECODE], input=lines, capture_output=True, check=False)
        assert done.returncode <= 0, done.stderr.decode()  # an exception of another kind came out
        said = done.stdout.decode().splitlines()
        yield from (json.loads(line) for line in said if line != "begun")
        if done.returncode < 0:
            yield None
        left = left[said.count("begun") :]


@given(damages=st.lists(DAMAGE, min_size=20, max_size=80))
@settings(max_examples=6, deadline=None)
def test_damaged_files_are_decoded_whole_or_refused(damages: list[tuple[str, list[tuple[int, int]]]]) -> None:
    contents = [damaged(damage) for damage in damages]
    for content, said in zip(contents, decoded_apart(contents), strict=True):
        if said is None:
            with pytest.raises(parquet_trial.Unreadable):
                parquet_trial.read(content)
        else:
            assert said in (0, ROWS) or isinstance(said, str)  # 0 is told as an empty file


@given(damage=DAMAGE, skip_bad=st.booleans())
@settings(max_examples=4, deadline=None)
@example(damage=("snappy", [(72, 101), (1247, 73)]), skip_bad=False)  # 2 EiB, asked for by polars 2.1
@example(damage=("parts", [(1155, 7), (4312, 36)]), skip_bad=False)  # likewise
@example(damage=("parts", [(3756, 4)]), skip_bad=True)  # a part that has lost eight rows
def test_no_damage_ends_the_reader(damage: tuple[str, list[tuple[int, int]]], skip_bad: bool) -> None:
    code = f"""
import sys
from kgem.data.options import ReadOptions
from kgem.data.triples import read_triples
from kgem.errors import TriplesError
try:
    print(read_triples(sys.stdin.buffer, ReadOptions(format="parquet", skip_bad={skip_bad})).report.rows_read)
except TriplesError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], input=damaged(damage), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    said = done.stdout.decode()
    assert said == f"{ROWS}\n" or "<stdin>" in said


@pytest.mark.parametrize("shape", SHAPES)
def test_whole_files_are_read(shape: str) -> None:
    assert parquet_trial.read(SHAPES[shape]).height == ROWS
    columns = ("head", "relation", "tail")
    assert read_triples(io.BytesIO(SHAPES[shape]), ReadOptions(format="parquet", columns=columns)).frame.equals(FACTS)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1PAR1", b"a\tr\tb\n", SHAPES["zstd"][:-1]])
def test_what_is_no_parquet_at_all(content: bytes) -> None:
    with pytest.raises(TriplesError, match="Parquet"):
        read_triples(io.BytesIO(content), ReadOptions(format="parquet"))


def trial(monkeypatch: pytest.MonkeyPatch, folder: Path, code: str) -> None:
    """Another program in place of the trial process."""
    (folder / "trial.py").write_text(code)
    monkeypatch.setattr(parquet_trial, "__file__", str(folder / "trial.py"))


def test_a_trial_that_dies_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trial(monkeypatch, tmp_path, "import os; print('ready', flush=True); os.abort()")
    with pytest.raises(parquet_trial.Unreadable, match="memory"):
        parquet_trial.read(SHAPES["zstd"])


@pytest.mark.parametrize("code", ["raise ImportError", "", "import os; os.abort()"])
def test_a_trial_that_cannot_begin_is_done_without(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str) -> None:
    trial(monkeypatch, tmp_path, code)
    assert parquet_trial.read(SHAPES["zstd"]).equals(FACTS)


@pytest.mark.parametrize("program", ["", "/nowhere/python"])
def test_without_a_python_to_start(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(sys, "executable", program)
    assert parquet_trial.read(SHAPES["zstd"]).equals(FACTS)


def test_the_trial_finds_what_this_process_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Modules beside the trial's own file, or in the current folder, do not come in its way."""
    (tmp_path / "polars.py").write_text("raise SystemExit('the wrong one')")
    monkeypatch.chdir(tmp_path)
    content = damaged(("parts", [(3756, 4)]))
    assert parquet_trial._trial(content) is not None


def test_a_split_column_is_found_in_every_kind_of_source(tmp_path: Path) -> None:
    parts = ["train"] * 48 + ["valid", "test"]
    frame = FACTS.with_columns(split=pl.Series(parts))
    (tmp_path / "g.parquet").write_bytes(written(frame))
    frame.write_csv(tmp_path / "g.csv")
    for source, header in ((tmp_path / "g.parquet", False), (tmp_path / "g.csv", True), (frame, False)):
        graph = Dataset.load(source, header=header)
        assert [len(graph.split(s)) for s in ("train", "valid", "test")] == [48, 1, 1]
    with (tmp_path / "g.csv").open("rb") as stream:
        assert len(Dataset.load(stream, format="csv", header=True).test) == 1
