"""What the docs tell people to type works: every shell and python block is run, each page in a folder of its own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Kgem = Callable[..., tuple[int, str, str]]

ROOT = Path(__file__).parents[1]
DOCS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
SHELL = ("sh", "bash", "shell", "console")
NEEDS_A_SHELL = re.compile(r"[|&;<>$`*]")
SPANS_LINES = re.compile(
    r"\\$|<<|^(cd|export|for|if|while)\b|^\s", re.MULTILINE
)  # what one line says counts in the next

# Beginnings of commands that are not run, and why.
NOT_RUN = {
    "make ": "sets up an environment, and `make test` is what runs this",
    "pip install": "changes the environment that the tests run in",
    "git clone": "needs the network",
    ". .venv/bin/activate": "the tests have an environment",
    "python -m bench": "takes minutes",
    "python -m evidence": "takes minutes; make evidence-check tests it",
    "kgem data fetch umls": "needs the network; tests/data/test_catalog.py covers it",
    "kgem serve": "does not end by itself",
    "kgem fit crates": "takes half an hour, and a graph that is no part of kgem",
    "apt-get install": "changes the machine",
    "python tools/build_files.py": "needs Debian's lists of files, and minutes; tests/test_tools.py covers it",
    "torchrun": "starts several processes; tests/runs/test_together.py covers it",
}


# Fits go to their end on the first page that anybody reads. On the others the commands are the same, but end soon.
READ_FIRST = "README.md"
UPDATED_SOON = ["--set", "em.epochs=3", "--set", "retrain.epochs=4", "--set", "distil.epochs=3"]
FEW_EPOCHS = {"fit": ["--set", "pretrain.epochs=4", *UPDATED_SOON], "update": UPDATED_SOON}

# Pages whose python blocks another test runs.
PYTHON_RUN_BY = {"scores.md": "tests/model/test_scores.py"}


def write_files_graph(path: Path) -> None:
    """A small graph in the place of the one that tools/build_files.py makes."""
    packages = ["python3-numpy", "python3-scipy", *(f"package-{n}" for n in range(1, 60))]
    rows = [f"{name}\tdepends\t{packages[n // 3]}" for n, name in enumerate(packages)]
    rows += [f"{name}\twrites to\tusr/{place}" for n, name in enumerate(packages) for place in {n % 5, n % 7}]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def blocks(path: Path) -> list[tuple[str, str, int]]:
    """The fenced blocks of a page: language, text, line of the fence."""
    text = path.read_text(encoding="utf-8")
    found = re.finditer(r"^```(\w*)[^\n]*\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    return [(each[1], each[2], text.count("\n", 0, each.start()) + 1) for each in found]


def script(shell: str) -> str:
    """A shell block without prompts and without the commands that are not run."""
    lines = [line.removeprefix("$ ") for line in shell.splitlines()]
    return "\n".join(line for line in lines if not line.startswith(tuple(NOT_RUN)))


def run(call: list[str], folder: Path, what: str) -> None:
    """In a process of its own, with the package of this project, whatever else is installed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(call, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{what} failed:\n{call[-1]}\n{done.stdout}\n{done.stderr}"


def run_shell(text: str, folder: Path, what: str, kgem: Kgem) -> None:
    """A block of commands; those of kgem without pipes and the like in this process, which has torch already."""
    lines = [line for line in script(text).splitlines() if line.strip()]
    if SPANS_LINES.search(text):
        lines = ["\n".join(lines)]
    for line in lines:
        if line.startswith("kgem ") and not NEEDS_A_SHELL.search(line):
            words = shlex.split(line, comments=True)[1:]
            few = [] if what.startswith(READ_FIRST) else FEW_EPOCHS.get(words[0], [])
            code, out, err = kgem(*words, *few)
            assert code == 0, f"{what} failed:\n{line}\n{out}\n{err}"
        else:
            run(["bash", "-euo", "pipefail", "-c", line], folder, what)


@pytest.mark.slow
@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_every_command_and_example_works(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kgem: Kgem
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files_graph(tmp_path / "files.tsv")
    for language, text, line in blocks(page):
        if language in SHELL:
            run_shell(text, tmp_path, f"{page.name}:{line}", kgem)
    python = "\n".join(text for language, text, _ in blocks(page) if language == "python")
    if python and page.name not in PYTHON_RUN_BY:  # as one program: the blocks of a page build upon each other
        run([sys.executable, "-c", python], tmp_path, page.name)


@pytest.mark.parametrize(("page", "test"), PYTHON_RUN_BY.items())
def test_pages_left_to_other_tests_are_run_there(page: str, test: str) -> None:
    assert (ROOT / "docs" / page).is_file() and f'"{page}"' in (ROOT / test).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_no_command_hides_in_a_block_that_is_not_run(page: Path) -> None:
    for language, text, line in blocks(page):
        if language not in (*SHELL, "python"):
            hidden = [each for each in script(text).splitlines() if each.startswith("kgem ")]
            assert not hidden, f"{page.name}:{line}: mark the block as sh: {hidden}"


def test_the_readme_begins_with_two_commands_and_a_picture() -> None:
    commands = [line for lang, text, _ in blocks(ROOT / "README.md") if lang in SHELL for line in text.splitlines()]
    ran = [line for line in script("\n".join(commands)).splitlines() if line.startswith("kgem ")]
    assert {"fit", "predict", "strengths", "evaluate", "report"} <= {line.split()[1] for line in ran}
    first_screen = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:16]
    assert any(line.startswith("make demo") for line in first_screen) and any(
        "images/" in line for line in first_screen
    )


def test_what_is_not_run_is_there_and_meant() -> None:
    lines = [line for page in DOCS for lang, text, _ in blocks(page) if lang in SHELL for line in text.splitlines()]
    skipped = [line for line in lines if line.startswith(tuple(NOT_RUN))]
    assert all(any(line.startswith(start) for line in skipped) for start in ("make demo", "kgem data fetch umls"))


def test_links_between_pages_lead_somewhere() -> None:
    for page in DOCS:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"
