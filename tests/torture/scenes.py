"""What is disturbed: commands on a graph of 14 entities, how a user goes on after each, and what must come out."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

from kgem.files.run_folder import read_log

__all__ = ["SCENES", "Scene", "build_commands", "command", "fingerprint", "make_run", "write_graph"]

SETTINGS = """\
[model]
dim = 3
[pretrain]
epochs = 1
candidates = [1.0]
[em]
epochs = 1
[retrain]
epochs = 1
candidates = [[1.0, 0.0]]
[companions]
epochs = 1
mixes = [[1.0, 0.3]]
[distil]
epochs = 1
[run]
checkpoint_seconds = 0.0
threads = 1
"""
SHORT = ("--set", "em.epochs=1", "--set", "retrain.epochs=1", "--set", "distil.epochs=1")
FORMATS = ("parquet", "npz", "word2vec", "pykeen", "vectors", "huggingface")
DECIDED = [  # fact, decision: one is changed later, one taken back
    (("e1", "r0", "e2"), "accept"),
    (("e\t3", "r1", "e4"), "reject"),
    (("e1", "r0", "e2"), "skip"),
    (("e5", "r2", "é\n"), "accept"),
    (("e\t3", "r1", "e4"), "undo"),
    (("e7", "r0", "e8"), "accept"),
]
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Scene:
    """A command that may be disturbed at any moment."""

    name: str
    prepare: Callable[[Path], object]  # into an empty folder, what is there before
    act: Callable[[Path], object]
    go_on: Callable[[Path], object]  # what a user does after it was cut off
    result: Callable[[Path], Any]  # what must be the same in the end, for JSON
    check: Callable[[Path, bool], None] = lambda root, told: None  # right after a fault; told: it ended with an error


@cache
def build_commands() -> Any:
    """All commands, as typer makes them of their functions: a third of the time of a small fit."""
    from typer.main import get_command

    from kgem.cli import app

    return get_command(app)


def command(*words: object) -> None:
    """A command of kgem in this process; SystemExit if it fails."""
    from kgem.cli.console import report_errors

    try:
        with report_errors():
            build_commands()([str(word) for word in words], prog_name="kgem")
    except SystemExit as end:
        if end.code:
            raise


def write_graph(root: Path, n: int = 90) -> None:
    """graph.tsv, tiny.toml, and new.tsv with further facts."""
    rng = random.Random(1)
    facts = {(f"e{rng.randrange(14)}", f"r{rng.randrange(3)}", f"e{rng.randrange(14)}") for _ in range(n)}
    (root / "graph.tsv").write_text("".join("\t".join(fact) + "\n" for fact in sorted(facts)), encoding="utf-8")
    (root / "new.tsv").write_text("e0\tr0\tfresh\nfresh\tr1\te1\ne2\tr2\te0\n", encoding="utf-8")
    (root / "tiny.toml").write_text(SETTINGS, encoding="utf-8")


def make_run(root: Path) -> None:
    """A finished run beside the graph."""
    write_graph(root)
    _fit(root)


def fingerprint(run: Path) -> dict[str, Any]:
    """A model with its tables to the bit, the log and the settings of a run; without times and versions."""
    model = run / "model"
    tables = {path.name: _hash(path) for path in sorted(model.glob("*.safetensors"))}
    document = json.loads((model / "model.json").read_bytes())
    document["provenance"]["seconds"] = 0
    document.pop("versions")
    log = [record | {"seconds": 0} for record in read_log(run)]
    return {"tables": tables, "model": document, "log": log, "config": _hash(run / "config.toml")}


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _contents(folder: Path) -> dict[str, str]:
    """Files by name, without those that are hidden."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {str(path.relative_to(folder)): _hash(path) for path in found}


# runs


def _fit(root: Path, *more: str) -> None:
    place = ("--config", root / "tiny.toml", "--out", root / "run")
    command("fit", root / "graph.tsv", *place, "--valid", "0", "--test", "0", "--quiet", *more)  # quick: no calibration


def _fit_or_resume(root: Path) -> None:
    from kgem.runs.run import is_run

    if is_run(root / "run"):
        command("resume", root / "run", "--quiet")
    else:
        _fit(root)


def _stop_early(root: Path) -> None:
    """A run of two epochs that was killed while a checkpoint took the place of another."""
    from kgem.runs.run import Run

    write_graph(root)
    with patch.object(Run, "finish", side_effect=SystemExit(0)), patch.object(Run, "epochs", _two_epochs(Run.epochs)):
        _fit(root)
    newest = root / "run" / "checkpoints" / "000002"
    newest.rename(newest.with_name(".000002.kgem-old"))
    (newest.with_name(".000002.kgem-tmp")).mkdir()


def _two_epochs(epochs: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
    def first(run: Any) -> Iterator[Any]:
        yield from islice(epochs(run), 2)
        run.save()

    return first


def _replace(root: Path) -> None:
    _fit(root, "--force", "--seed", "1")


def _go_on_replacing(root: Path) -> None:
    """Whoever replaces a run and is cut off finds the old one, a new one to go on with, or none."""
    from kgem.runs.run import Run, is_run

    if not is_run(root / "run"):
        return _fit(root, "--seed", "1")
    with Run.open(root / "run") as run:
        old = run.config.seed == 0
    return _replace(root) if old else command("resume", root / "run", "--quiet")


def _update(root: Path) -> None:
    command("update", root / "run", root / "new.tsv", "--out", root / "next", "--quiet", *SHORT)


def _update_or_resume(root: Path) -> None:
    from kgem.runs.run import is_run

    if is_run(root / "next"):
        command("resume", root / "next", "--quiet")
    else:
        _update(root)


def _both_runs(root: Path) -> Any:
    return [fingerprint(root / "run"), fingerprint(root / "next")]


# reviews


def _decide(root: Path) -> None:
    """The decisions that were not acknowledged yet; the acknowledged ones are noted beside the folder."""
    from kgem.cli.console import report_errors
    from kgem.runs.review import Review

    review, done = Review(root), _acknowledged(root)
    with report_errors():
        for fact, decision in DECIDED[done:]:
            review.decide(*fact, decision, "missing", NOON)
            with _acks(root).open("a") as file:
                file.write("1")


def _acks(root: Path) -> Path:
    return root.with_name("acknowledged")


def _acknowledged(root: Path) -> int:
    return _acks(root).stat().st_size if _acks(root).exists() else 0


def _decisions(root: Path) -> Any:
    from kgem.runs.review import Review

    return [[*each.fact, each.decision] for each in Review(root).decisions]


def _expected(n: int) -> list[list[str]]:
    made: dict[Any, str] = {}
    for fact, decision in DECIDED[:n]:
        made.pop(fact, None)
        if decision != "undo":
            made[fact] = decision
    return [[*fact, decision] for fact, decision in reversed(made.items())]


def _check_review(root: Path, told: bool) -> None:
    """All that was acknowledged is there; what was told to have failed is not, what was under way may be."""
    done = _acknowledged(root)
    allowed = [_expected(done)] if told else [_expected(done), _expected(done + 1)]
    assert _decisions(root) in allowed, f"after {done} decisions: {_decisions(root)}"


# exports, files, caches


def _export(to: str) -> Scene:
    def write(root: Path, *more: str, out: str = "out") -> None:
        command("export", root / "run", "--to", to, "--out", root / out, *more)

    def check(root: Path, told: bool) -> None:
        """There is none, or a whole one: that its name may not be on disk yet is what was told."""
        if (root / "out").exists():
            write(root, out="again")
            assert _contents(root / "out") == _contents(root / "again"), "half an export is in place"
            shutil.rmtree(root / "again")

    again = lambda root: write(root, "--force")  # noqa: E731
    return Scene(f"export {to}", make_run, write, again, lambda root: _contents(root / "out"), check)


def _overwrite(root: Path) -> None:
    command("export", root / "run", "--to", "word2vec", "--out", root / "out", "--mode", "mean", "--force")


def _exported_before(root: Path) -> None:
    make_run(root)
    command("export", root / "run", "--to", "word2vec", "--out", root / "out", "--mode", "point")


def _whole_files(root: Path, told: bool) -> None:
    for path in (root / "out").glob("[!.]*"):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert len(lines) == int(lines[0].split()[0]) + 1, f"{path.name} is not whole"


def _report(root: Path) -> None:
    command("report", root / "run", "--force")


def _convert(root: Path) -> None:
    command("data", "convert", root / "graph.tsv", root / "graph.nt.gz", "--force")


def _split(root: Path) -> None:
    command("data", "split", root / "graph.tsv", "--out", root / "parts", "--force")


def _load(root: Path) -> str:
    """The graph by way of the cache, small as it is."""
    from kgem.data import cache
    from kgem.data.dataset import Dataset

    with patch.object(cache, "WORTH_BYTES", 0), patch.dict(os.environ, KGEM_CACHE=str(root / "cache")):
        return Dataset.load(root / "graph.tsv").content_hash


SCENES = {
    scene.name: scene
    for scene in (
        Scene("fit", write_graph, _fit, _fit_or_resume, lambda root: fingerprint(root / "run")),
        Scene("resume", _stop_early, _fit_or_resume, _fit_or_resume, lambda root: fingerprint(root / "run")),
        Scene("fit --force", make_run, _replace, _go_on_replacing, lambda root: fingerprint(root / "run")),
        Scene("update", make_run, _update, _update_or_resume, _both_runs),
        Scene("review", lambda root: None, _decide, _decide, _decisions, _check_review),
        *map(_export, FORMATS),
        Scene("export --force", _exported_before, _overwrite, _overwrite, lambda r: _contents(r / "out"), _whole_files),
        Scene("report", make_run, _report, _report, lambda root: _contents(root)["run/report.html"]),
        Scene("convert", write_graph, _convert, _convert, lambda root: _hash(root / "graph.nt.gz")),
        Scene("split", write_graph, _split, _split, lambda root: _contents(root / "parts")),
        Scene("cache", write_graph, _load, _load, _load),
    )
}
