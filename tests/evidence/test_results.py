"""docs/results.md is what the generator makes of results/, and every picture in it is there."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from evidence.cells import read_cells
from evidence.readme import BEGIN, END, with_quality
from evidence.results_page import FOLDERS, results_page

ROOT = Path(__file__).parents[2]
TEMPLATE, PAGE = ROOT / "docs" / "results.md.in", ROOT / "docs" / "results.md"
AGAIN = "write it anew: kgem reproduce page"


def listed() -> set[str]:
    """The files that the page says it was made from."""
    return set(re.findall(r"^\| `((?:" + "|".join(FOLDERS) + r")/[^`]+\.json)`", PAGE.read_text("utf-8"), re.MULTILINE))


def test_the_page_is_what_the_results_say() -> None:
    """Of the files that it lists: a run that is still working may have written further ones.

    One that is older than the cells that it was made from ends this with the command that makes it again.
    """
    files = listed()
    made = results_page(TEMPLATE.read_text("utf-8"), ROOT / "results", only=files.__contains__)
    assert PAGE.read_text("utf-8") == made.text, AGAIN
    assert files and all((ROOT / "results" / file).is_file() for file in files)
    missing = [name for name in made.pictures if not (ROOT / "docs" / "images" / name).is_file()]
    assert not missing, AGAIN


def test_every_file_that_was_made_from_cells_says_from_which() -> None:
    derived = [file for file in listed() if not file.startswith("table1/")]
    for file in derived:
        made = json.loads((ROOT / "results" / file).read_bytes())
        assert made["sources"], f"make it again: {made['command']}"
        assert {f"table1/{each['cell']}.json" for each in made["sources"]} <= listed(), AGAIN


def test_no_result_that_is_kept_is_left_out_of_the_page() -> None:
    done = subprocess.run(["git", "ls-files", "results"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git repository")
    kept = {file.removeprefix("results/") for file in done.stdout.split() if file.endswith(".json")}
    assert kept, "git lists the results"
    assert {file for file in kept if file.split("/")[0] in FOLDERS} <= listed(), AGAIN


def test_the_table_of_the_readme_is_what_the_results_say() -> None:
    text, files = (ROOT / "README.md").read_text("utf-8"), listed()
    cells = [each for each in read_cells(ROOT / "results" / "table1") if f"table1/{each['name']}.json" in files]
    assert with_quality(text, cells) == text, AGAIN
    lines = text.split(BEGIN)[1].split(END)[0].strip().splitlines()
    assert len(lines) >= 3
    paragraph = text.split(END)[1].split("\n\n")[1]
    assert "two models" in paragraph and not re.search(r"\d\.\d", paragraph), "figures are typed by no hand"


def test_no_figure_of_the_page_was_typed() -> None:
    """Figures stand in places that are filled from the JSON files; what has two decimals elsewhere is typed."""
    prose = re.sub(r"\{\{[^{}]*\}\}|`[^`]*`", "", TEMPLATE.read_text("utf-8"))
    assert not re.findall(r"\S*\.\d\d\S*", prose)
