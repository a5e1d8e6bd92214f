"""Hooks of mkdocs.yml: pages made from code, changes and notebooks; a check that the site asks no other host."""

from __future__ import annotations

import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args, get_type_hints

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbclient import NotebookClient
from nbconvert import MarkdownExporter

import kgem
from cli_page import cli_page
from outside_requests import outside_requests

ROOT = Path(__file__).parents[1]

INNER_WORKS = {"Scorer", "ModeScorer", "Candidates", "Judge", "Logistic"}  # of a Model: not on the page of the API
SECONDS_PER_CELL = 300


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not files of docs/: commands, API, changes, notebooks."""
    for path, text in {"commands.md": cli_page(), "api.md": _api_page(), "changes.md": _changes()}.items():
        files.append(File.generated(config, path, content=text))
    notebooks = [file for file in files if file.src_uri.endswith(".ipynb")]
    with ThreadPoolExecutor() as pool:  # each has a process of its own
        for pages in pool.map(_run_notebook, notebooks):
            for path, content in pages.items():
                files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to notebooks, which are files for whoever reads docs/ as it is, lead to their pages."""
    return re.sub(r"(\]\([^)\s]+)\.ipynb\)(?!\{)", r"\1.md)", markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """No page or style may ask another host for anything (links that a reader follows are fine)."""
    pages = sorted(Path(config.site_dir).rglob("*.*"))
    wrong = [f"{page}: {each}" for page in pages for each in outside_requests(page)]
    if wrong:
        raise PluginError("the site would ask other hosts:\n" + "\n".join(wrong))


def _api_page() -> str:
    """The public names in the order of kgem.__all__, each from its docstring and signature."""
    names = [f"kgem.{name}" for name in kgem.__all__ if not name.startswith("_") and name != "errors"]
    parts = ["# API", "The public names of `kgem`, from the code. [The library](library.md) shows how to use them."]
    parts += [f"::: {name}" for name in sorted(names, key=lambda name: (name.split(".")[1][0].isupper(), name))]
    parts += ["## What they return", *(f"::: {name}" for name in _returned())]
    parts += ["## Errors", f"```text\n{(kgem.errors.__doc__ or '').strip()}\n```"]
    return "\n\n".join(parts) + "\n"


def _returned() -> list[str]:
    """The classes that a Model's methods return, with those of their fields, but for its inner works."""
    found: dict[str, type] = {}

    def look_at(hint: Any) -> None:
        for part in get_args(hint):
            look_at(part)
        if isinstance(hint, type) and hint.__module__.startswith(("kgem.answer", "kgem.evaluate")):
            name = f"{hint.__module__}.{hint.__name__}"
            if name not in found and hint.__name__ not in {*kgem.__all__, *INNER_WORKS}:
                found[name] = hint
                for field in get_type_hints(hint).values():
                    look_at(field)

    for name, member in vars(kgem.Model).items():
        function = getattr(member, "func", member)  # of a cached property
        if not name.startswith("_") and callable(function):
            look_at(get_type_hints(function).get("return"))
    return list(found)


def _changes() -> str:
    """CHANGELOG.md, its mentions of pages as links."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    return re.sub(r"(?<![`\w(/])docs/(\w+)\.md", r"[\1](\1.md)", text)


def _run_notebook(file: File) -> dict[str, str | bytes]:
    """Run a notebook (a cell that fails is an error): its page and pictures, by their places in the site."""
    notebook = nbformat.read(file.abs_src_path, as_version=4)
    here, path = str(ROOT / "src"), f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=SECONDS_PER_CELL,
            resources={"metadata": {"path": folder}},
            extra_arguments=["--IPKernelApp.log_level=40"],  # errors alone
        )
        client.execute(env={**os.environ, "PYTHONPATH": here, "PATH": path})
    stem = file.src_uri.removesuffix(".ipynb")
    text, resources = MarkdownExporter().from_notebook_node(notebook, {"unique_key": Path(stem).name})
    link = f"\n\n[Download this notebook]({Path(stem).name}.ipynb){{ download }}\n"
    pictures = {f"{Path(stem).parent}/{name}": content for name, content in resources.get("outputs", {}).items()}
    return {f"{stem}.md": text + link, **pictures}
