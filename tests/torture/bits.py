"""One flipped bit in any file that kgem reads: refused, told, or the same answers."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from torture import tracing
from torture.scenes import SCENES, command, write_graph

__all__ = ["KINDS", "Flips", "flip_bits"]

BATCH = 250  # flips in one process: one that dies is found by its number
GRAPHS = ("g.tsv", "g.csv", "g.nt", "g.nq", "g.ttl", "g.rdf")
PACKED = ("g.tsv.gz", "g.csv.xz", "g.nt.zst")


@dataclass(frozen=True)
class Kind:
    """Files of one kind: how they come to be, and what kgem says when it reads them."""

    make: Callable[[Path], object]
    files: tuple[str, ...]  # patterns below the folder
    ask: Callable[[Path], Any]
    flips: int  # of 10,000
    sealed: bool = True  # whether they carry a checksum; else a flip may be an edit that nobody can tell from one


@dataclass
class Flips:
    """How many flips ended how."""

    ends: Counter[str] = field(default_factory=Counter)  # refused, told, same, other (allowed where there is no seal)
    problems: list[str] = field(default_factory=list)


# what kgem says


def _digest(parts: Iterable[Any]) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part if isinstance(part, bytes) else repr(part).encode())
    return whole.hexdigest()


def _tensors(named: Mapping[str, Any]) -> str:
    return _digest(part for name in sorted(named) for part in (name, named[name].contiguous().numpy().tobytes()))


def _ask_model(root: Path) -> Any:
    from kgem.answer.artifact import table_tensors
    from kgem.answer.model import load

    model = load(root / "run")
    tables = _tensors(table_tensors(model.point, model.posterior, model.learned))
    return [tables, model.data.content_hash, repr((model.config, model.mode, model.temperatures, model.provenance))]


def _ask_run(root: Path) -> Any:
    """What a run would go on from; the older checkpoint is as good, and told."""
    from kgem.runs.run import Run

    with Run.open(root / "run") as run:
        saved = run._saved
        assert saved is not None
        state = _digest([_tensors(saved.tensors), json.dumps(saved.documents, sort_keys=True)])
        return [run.prepared.data.content_hash, repr(run.config), state]


def _ask_history(root: Path) -> Any:
    from kgem.report.history import read_history

    return repr(read_history(root / "run").records)


def _ask_review(root: Path) -> Any:
    from kgem.runs.review import Review

    review = Review(root)
    for problem in review.problems:
        logging.getLogger("kgem").warning(problem)
    return [[*each.fact, each.decision] for each in review.decisions]


def _ask_settings(root: Path) -> Any:
    from kgem.runs.configure import configure
    from kgem.settings import read_toml

    return repr(configure(None, read_toml(root / "tiny.toml")))


def _ask_graph(root: Path, name: str) -> Any:
    from kgem.data.triples import read_triples

    triples = read_triples(root / name)
    report = triples.report
    parts = report.kept + report.duplicates + report.skipped + report.literals_dropped
    assert report.rows_read == parts and report.kept == triples.frame.height, report
    return _digest(triples.frame.rows())


def _ask_names(root: Path) -> Any:
    from kgem.data.options import ReadOptions
    from kgem.data.sources import load_names

    return dict(load_names(ReadOptions(labels=str(root / "names.tsv"))).by_label)


def _ask_questions(root: Path) -> Any:
    from kgem.cli.predict import _read_queries

    return _read_queries(root / "questions.tsv")


# how the files come to be


def _finished(root: Path) -> None:
    SCENES["update"].prepare(root)


def _stopped(root: Path) -> None:
    """A run with two checkpoints."""
    SCENES["resume"].prepare(root)
    shutil.rmtree(root / "run/checkpoints/.000002.kgem-tmp")
    (root / "run/checkpoints/.000002.kgem-old").rename(root / "run/checkpoints/000002")


def _graph_as(root: Path, name: str) -> None:
    write_graph(root)
    command("data", "convert", root / "graph.tsv", root / name, "--force")
    (root / "graph.tsv").unlink()


def _cached(root: Path) -> None:
    write_graph(root)
    SCENES["cache"].act(root)


def _beside(root: Path) -> None:
    """What may be given beside a graph or a model."""
    (root / "names.tsv").write_text("".join(f"e{i}\tNamé {i}\n" for i in range(20)), encoding="utf-8")
    (root / "questions.tsv").write_text("".join(f"e{i}\tr\t?\n" for i in range(20)), encoding="utf-8")


def _graph_kind(name: str, flips: int, sealed: bool = False) -> Kind:
    files = (f"{name}/*2id.txt",) if name == "g.openke" else (name,)
    return Kind(partial(_graph_as, name=name), files, partial(_ask_graph, name=name), flips, sealed)


KINDS = {
    "model": Kind(_finished, ("run/model/*",), _ask_model, 2500),
    "graph of a run": Kind(_stopped, ("run/graph/*",), _ask_run, 1200),
    "checkpoints": Kind(_stopped, ("run/checkpoints/*/*",), _ask_run, 1800),
    "cache": Kind(_cached, ("cache/parsed/*",), SCENES["cache"].act, 1000),
    "settings of a run": Kind(_stopped, ("run/config.toml",), _ask_run, 600),
    "log": Kind(_finished, ("run/log.jsonl",), _ask_history, 400),
    "review": Kind(SCENES["review"].act, ("review.tsv",), _ask_review, 600),
    "settings": Kind(write_graph, ("tiny.toml",), _ask_settings, 400, sealed=False),
    "names": Kind(_beside, ("names.tsv",), _ask_names, 100, sealed=False),
    "questions": Kind(_beside, ("questions.tsv",), _ask_questions, 100, sealed=False),
    **{name: _graph_kind(name, 200) for name in GRAPHS},
    **{name: _graph_kind(name, 150, sealed=True) for name in PACKED},
    "g.openke": _graph_kind("g.openke", 100),
    "g.parquet": _graph_kind("g.parquet", 50),  # each is decoded in a process of its own first
}


def flip_bits(base: Path, name: str, flips: int, seed: int = 0) -> Flips:
    """Flip bits of the files of a kind, one at a time, each put back before the next."""
    kind, root, notes = KINDS[name], base / "root", base / "flips"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    (base / "acknowledged").unlink(missing_ok=True)
    made = tracing.run(lambda: kind.make(root))
    if made.code:
        raise RuntimeError(f"{name} cannot be made:\n{made.output}")
    notes.unlink(missing_ok=True)
    found, done = Flips(), 0
    while done < flips:
        first, last = done, min(done + BATCH, flips)
        outcome = tracing.run(partial(_flip_some, kind, root, notes, range(first, last), seed))
        lines = notes.read_text().splitlines() if notes.exists() else []
        done = len(lines)
        if outcome.code:
            found.problems.append(f"{name}, flip {done}: the process ended ({outcome.code}): {outcome.output[-300:]}")
            with notes.open("a") as file:
                file.write("ended\n")
            done += 1
    for line in notes.read_text().splitlines():
        end, _, where = line.partition("\t")
        found.ends[end] += 1
        if end == "crashed" or (end == "other" and kind.sealed):
            found.problems.append(f"{name}, {end}: {where}")
    return found


def _flip_some(kind: Kind, root: Path, notes: Path, numbers: range, seed: int) -> None:
    """In a process of its own: a line for each flip, as soon as it is known how it ended."""
    fine = kind.ask(root)
    files = sorted(path for pattern in kind.files for path in root.glob(pattern) if path.stat().st_size)
    warnings = _Warnings()
    logging.getLogger("kgem").addHandler(warnings)
    with notes.open("a", buffering=1) as out, patch.object(os, "fsync", lambda handle: None):
        for number in numbers:
            rng = random.Random(f"{seed} {number}")
            path = files[number % len(files)]
            before = path.read_bytes()
            bit = rng.randrange(8 * len(before))
            changed = bytearray(before)
            changed[bit // 8] ^= 1 << bit % 8
            path.write_bytes(changed)
            warnings.said.clear()
            signal.alarm(tracing.SECONDS)
            end = _end(kind, root, fine, warnings)
            out.write(f"{end}\t{path.relative_to(root)}, bit {bit}\n".replace("\n", " ").strip() + "\n")
            path.write_bytes(before)


class _Warnings(logging.Handler):
    """What kgem told while it read."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def _end(kind: Kind, root: Path, fine: Any, warnings: _Warnings) -> str:
    from kgem.errors import KgemError

    try:
        answer = kind.ask(root)
    except KgemError:
        return "refused"
    except BaseException as error:
        return f"crashed\t{type(error).__name__}: {error}"
    if answer == fine:
        return "same"
    return "told" if warnings.said else "other"
