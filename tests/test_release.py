"""What an empty environment needs: every package that kgem imports is one that pyproject.toml asks for."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
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
