"""What is handed to a registry: requirements that an empty environment can go by, and a page without dead links."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = SETTINGS["project"]
EXTRAS = ("search", "serve", "tensorboard")
BROUGHT_BY = {"starlette": "fastapi"}  # a package that another one is built upon
BROUGHT_BY_USERS = {"pandas", "IPython"}  # imported only for whoever asks for its frames, or sits in a notebook
# Modules whose names are not those of their packages.
PACKAGES = {"tomli_w": "tomli-w"}


def requirements(extras: tuple[str, ...]) -> set[str]:
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in PROJECT["optional-dependencies"][extra])]
    return {re.split(r"[\[<>=!~; ]", line, maxsplit=1)[0] for line in lines}


def imports(node: ast.AST) -> Iterator[str]:
    """The modules that are imported when the code runs, not those for the type checker."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    if isinstance(node, ast.Import):
        yield from (name.name for name in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield node.module
    for child in ast.iter_child_nodes(node):
        yield from imports(child)


def imported_by(folder: Path) -> dict[str, str]:
    """Packages of others, and a file that imports each."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        for module in imports(ast.parse(path.read_text(encoding="utf-8"))):
            top = module.partition(".")[0]
            if top != "kgem" and top not in sys.stdlib_module_names:
                found[BROUGHT_BY.get(top, PACKAGES.get(top, top))] = str(path.relative_to(ROOT))
    return found


def test_every_import_is_asked_for() -> None:
    found, asked = imported_by(ROOT / "src" / "kgem"), requirements(EXTRAS)
    assert {"torch", "scipy", "fastapi"} <= set(found)
    missing = {package: path for package, path in found.items() if package not in asked | BROUGHT_BY_USERS}
    assert not missing, f"not in pyproject.toml: {missing}"


def test_what_is_asked_for_has_a_floor() -> None:
    lines = [*PROJECT["dependencies"], *(line for extra in EXTRAS for line in PROJECT["optional-dependencies"][extra])]
    assert all(re.fullmatch(r"[\w-]+>=[\d.]+", line) for line in lines), lines


def test_a_build_without_isolation_has_what_it_needs() -> None:
    assert set(SETTINGS["build-system"]["requires"]) <= set(PROJECT["optional-dependencies"]["dev"])


@pytest.fixture(scope="module")
def description() -> str:
    """README as the metadata of wheel and sdist have it."""
    call = [sys.executable, "-m", "hatchling", "metadata", "readme"]
    return subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_the_page_of_a_registry_has_no_pictures_and_no_dead_links(description: str) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "![" in readme and "](docs/tutorial.md)" in readme
    assert "![" not in description and "*The demo's answers." not in description
    assert not [link for link in re.findall(r"\]\(([^)]*)\)", description) if not link.startswith("https://")]
    links = re.findall(r"(?<!!)\[([^]]+)\]\([^)]*\)", readme)
    assert len(links) > 20 and all(text in description for text in links), "their words stay"


def test_the_page_of_a_registry_begins_with_what_can_be_done_there(description: str) -> None:
    first = re.findall(r"```sh\n(.*?)```", description, re.DOTALL)[0]
    assert [line.partition("  ")[0] for line in first.splitlines()] == ["pip install 'kgem[serve]'", "kgem demo"]
    assert "make demo" not in description and ".venv" not in description and "pip install ." not in description
    assert description.count("```") % 2 == 0 and "folder `docs` of the source distribution" in description


def test_all_but_commands_pictures_and_links_is_there(description: str) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^#+ .*", description, re.MULTILINE) == re.findall(r"^#+ .*", readme, re.MULTILINE)
    assert re.findall(r"^\| .*", description, re.MULTILINE) == re.findall(r"^\| .*", readme, re.MULTILINE)
