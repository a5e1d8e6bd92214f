"""docs/results.md, the pages below it and the README's table are what the JSON files under results/ give."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from evidence.page import BEGIN, END, Pages, between_marks, make_pages, read_results

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TEMPLATE = DOCS / "results.md.in"
AGAIN = "write it anew: make evidence"


@pytest.fixture(scope="module")
def pages() -> Pages:
    return make_pages(TEMPLATE.read_text("utf-8"), read_results(ROOT / "results"))


def test_the_pages_are_what_the_results_say(pages: Pages) -> None:
    for name, text in pages.texts.items():
        assert (DOCS / name).read_text("utf-8") == text, f"{name}: {AGAIN}"
    written = {f"results/{path.name}" for path in (DOCS / "results").iterdir()}
    assert written == pages.texts.keys() - {"results.md"}, AGAIN


def test_the_pictures_are_those_that_pages_show(pages: Pages) -> None:
    there = {path.name for path in (DOCS / "images").glob("results-*")}
    assert there == pages.pictures.keys(), AGAIN
    shown = set(re.findall(r"images/(results-[^)]+)\)", "".join(pages.texts.values())))
    assert shown == there


def test_what_was_made_from_cells_was_made_from_cells_that_are_there() -> None:
    found = read_results(ROOT / "results")
    cells = {cell["name"] for cell in found.pop("table1")}
    for documents in found.values():
        for document in documents:
            used = {each["cell"] for each in document["sources"]}
            assert used and used <= cells, f"{document['name']}: make it again: {document['command']}"


def test_the_table_of_the_readme_is_what_the_results_say(pages: Pages) -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert between_marks(text, pages.quality) == text, AGAIN
    rows = text.split(BEGIN)[1].split(END)[0].strip().splitlines()[2:]
    assert 0 < len(rows) <= 8
    below = text.split(END)[1].split("\n\n")[1]
    assert not re.search(r"\d\.\d", below), "figures are typed by no hand"


def test_the_page_is_short_and_has_one_table_and_at_most_one_picture_for_a_question(pages: Pages) -> None:
    text = pages.texts["results.md"]
    assert len(text.splitlines()) <= 150
    for question in text.split("\n## ")[1:6]:
        assert question.splitlines()[0].endswith("?")
        assert question.count("| :-- |") == 1 and question.count("![") <= 1


def test_no_figure_of_the_page_was_typed() -> None:
    """Figures stand in places that are filled from the JSON files; what has two decimals elsewhere is typed."""
    prose = re.sub(r"\{\{[^{}]*\}\}|`[^`]*`", "", TEMPLATE.read_text("utf-8"))
    assert not re.findall(r"\S*\.\d\d\S*", prose)


def test_links_to_the_page_and_from_it_lead_somewhere(pages: Pages) -> None:
    def anchors(text: str) -> set[str]:
        titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        plain = (re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles)
        return {*plain, *re.findall(r'<a id="([^"]+)">', text)}

    texts = {path: path.read_text("utf-8") for path in (*DOCS.glob("*.md"), *(DOCS / "results").glob("*.md"))}
    for page, text in texts.items():
        for target, anchor in re.findall(r"\]\(([^)#\s:]*)(?:#([^)]+))?\)", text):
            path = (page.parent / target).resolve() if target else page
            assert path.exists(), f"{page.name}: {target}"
            if anchor and path in texts and "results" in f"{page} {path}":
                assert anchor in anchors(texts[path]), f"{page.name}: {target}#{anchor}"
