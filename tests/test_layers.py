"""The floors of the house: who may import whom read off the source."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "kgem"

# From the ground up, and within a floor from the first file to the last: a module imports only from modules
# before it. Folders below a floor (data/formats) count as one module of it. Names that do not exist yet keep a place.
FLOORS: dict[str, tuple[str, ...]] = {
    "": (
        "errors",
        "config",
        "settings",
        "tables",
    ),
    "files": (
        "locks",
        "atomic",
        "store",
        "run_folder",
        "checkpoints",
    ),
    "data": (
        "names",
        "options",
        "index",
        "streams",
        "rows",
        "formats",
        "triples",
        "cache",
        "catalog",
        "sources",
        "dataset",
        "growth",
        "columns",
        "leakage",
        "splits",
        "stats",
    ),
    "model": (
        "scores",
        "rows",
        "joint",
        "processes",
        "shards",
        "embeddings",
        "prior",
        "posterior",
        "exact_pass",
        "products",
        "teacher",
        "kernels",
        "pieces",
        "objective",
        "sampling",
        "sampled_kernel",
        "sampled",
        "sampled_shards",
        "generate",
    ),
    "train": (
        "optimizer",
        "averaging",
        "stopping",
        "joining",
        "on_demand",
        "point_estimate",
        "variational_em",
        "warm_start",
        "race",
        "softmax",
        "memory",
        "companions",
        "distillation",
        "phases",
        "whole_state",
        "budget",
        "machine",
        "driver",
        "search",
    ),
    "evaluate": (
        "blocks",
        "frequency",
        "averaging",
        "ranking",
        "metrics",
        "validation",
        "strength_laws",
        "comparison",
        "softmax",
        "calibration",
        "temperature",
    ),
    "answer": (
        "labels",
        "find",
        "candidates",
        "modes",
        "predict",
        "features",
        "logistic",
        "cases",
        "proposals",
        "proposal_quality",
        "judgement",
        "judge",
        "missing",
        "similar",
        "strengths",
        "entity",
        "questions",
        "artifact",
        "model",
        "unfinished",
    ),
    "runs": (
        "review",
        "tensorboard",
        "configure",
        "mode_choice",
        "fitting",
        "parts",
        "together",
        "watching",
        "estimate",
        "cross_fit",
        "run",
        "fit",
        "listing",
        "update",
        "hugging_face",
        "export",
    ),
    "report": (
        "formatting",
        "figures",
        "html",
        "history",
        "calibration",
        "examples",
        "naming",
        "reasons",
        "sections",
        "report",
    ),
    "serve": (
        "thinning",
        "jobs",
        "replies",
        "guard",
        "explorer",
        "schema",
        "routes",
        "page",
        "app",
        "server",
    ),
    "cli": (
        "console",
        "layout",
        "progress",
        "tables",
        "output",
        "writing",
        "reading",
        "arguments",
        "opening",
        "destination",
        "naming",
        "data",
        "watch",
        "together",
        "training",
        "fit",
        "resume",
        "runs",
        "update",
        "demo",
        "predict",
        "judge",
        "find",
        "similar",
        "strengths",
        "evaluate",
        "compare",
        "search",
        "report",
        "export",
        "serve",
    ),
}
ORDER = [f"{floor}.{name}" if floor else name for floor, names in FLOORS.items() for name in names]
PLACE = {module: i for i, module in enumerate(ORDER)}
ENTRY = {"", "cli", "__main__"}  # the package itself and the command line: they may use everything
AFTER_TRAIN = list(FLOORS)[list(FLOORS).index("train") + 1 :]
READERS = ("triples", "sources", "catalog", "streams", "formats", "cache")


def module_name(path: Path) -> str:
    """The name below kgem: data.index for data/index.py, data.formats for all of data/formats/."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(parts[:2])


def modules() -> dict[Path, str]:
    return {path: module_name(path) for path in sorted(SOURCE.rglob("*.py"))}


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Line and name below kgem of every import of our own, inside functions and TYPE_CHECKING too."""
    package = ["kgem", *path.relative_to(SOURCE).parent.parts]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{origin}.{alias.name}" for alias in node.names]
        for name in names:
            if name == "kgem" or name.startswith("kgem."):
                yield node.lineno, existing(name.split(".")[1:])


def existing(parts: list[str]) -> str:
    """The longest beginning of a dotted name that is a module or package, at most two deep."""
    for length in (2, 1):
        path = SOURCE.joinpath(*parts[:length])
        if len(parts) >= length and (path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()):
            return ".".join(parts[:length])
    return ""


def violations() -> Iterator[str]:
    for path, module in modules().items():
        for line, target in imported(path):
            if module not in PLACE or target == module:  # one without a place has a test of its own
                continue
            if target not in PLACE:
                yield f"{path.relative_to(SOURCE)}:{line} imports kgem.{target}, a package and not a module"
            elif PLACE[target] >= PLACE[module]:
                yield f"{path.relative_to(SOURCE)}:{line} imports kgem.{target}, which is above kgem.{module}"


def test_every_module_has_a_place() -> None:
    floors = {floor for floor in FLOORS if floor}
    missing = [m for m in modules().values() if m not in PLACE and m not in ENTRY | floors]
    assert not missing, f"give these a place in FLOORS of tests/test_layers.py: {', '.join(missing)}"


def test_imports_point_downwards() -> None:
    found = list(violations())
    assert not found, "\n".join(found)


def test_packages_of_the_floors_are_empty() -> None:
    """Importing a module must not bring in its neighbours by way of __init__."""
    for floor in FLOORS.keys() - {"", "cli"}:
        tree = ast.parse((SOURCE / floor / "__init__.py").read_text(encoding="utf-8"))
        assert not [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)], floor


def test_train_looks_neither_at_files_nor_at_evaluate() -> None:
    for path, module in modules().items():
        if module.startswith("train."):
            targets = {target for _, target in imported(path)}
            assert not {t for t in targets if t.split(".")[0] in AFTER_TRAIN}, module
            assert not targets & {f"data.{reader}" for reader in READERS}, module


def test_the_reader_of_imports_sees_them_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The test itself can fail: a wrong import is found wherever it hides."""
    for name in ("data/index.py", "data/__init__.py", "model/scores.py", "evaluate/ranking.py", "train/optimizer.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "data/index.py").write_text("def f():\n    from kgem.model.scores import Score\n")
    (tmp_path / "train/optimizer.py").write_text(
        "import kgem.evaluate.ranking\nfrom ..evaluate import ranking\nfrom kgem.data import index\n"
    )
    (tmp_path / "model/scores.py").write_text("if TYPE_CHECKING:\n    from kgem import data\n")
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path)
    assert [found.split(" imports")[0] for found in violations()] == [
        "data/index.py:2",
        "model/scores.py:2",
        "train/optimizer.py:1",
        "train/optimizer.py:2",
    ]


def loaded_by(module: str) -> set[str]:
    """What is in sys.modules after an import, in a process of its own."""
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_config_does_without_torch() -> None:
    assert "torch" not in loaded_by("kgem.config")


def test_the_command_line_starts_without_torch() -> None:
    assert not {"torch", "polars", "matplotlib"} & loaded_by("kgem.cli")


def test_runs_are_listed_without_torch() -> None:
    assert not {"torch", "polars"} & loaded_by("kgem.runs.listing")
