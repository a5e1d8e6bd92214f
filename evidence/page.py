"""The pages of results: docs/results.md, one page per study under docs/results/, and the README's table of quality.

docs/results.md is hand-written in docs/results.md.in, where {{table NAME}} stands for one of SMALL tables,
{{picture STUDY DOCUMENT}} for a picture, and {{NAME | words of the row | column}} for one figure of a table: NAME is
that of a small table, or the title of one on the other pages.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from evidence import calibration, cells, cost, pairs, table1
from evidence.ablation import ABLATION
from evidence.documents import Document, read_folder
from evidence.frequency import FREQUENCY
from evidence.study import Study
from evidence.tables import Table
from kgem.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


STUDIES: dict[str, Study] = {
    study.name: study for study in (cost.SEARCH, pairs.PAIRS, ABLATION, FREQUENCY, calibration.CALIBRATION)
}
SMALL: dict[str, tuple[str, Callable[[Sequence[Document]], Table]]] = {  # by name, of which documents, and how
    "one-model": ("table1", table1.one_model),
    "published": ("table1", table1.aims),
    "one-fit": ("search", cost.summary),
    "behind": ("table1", table1.behind),
    "doubt": ("calibration", calibration.summary),
    "doubt-by-frequency": ("calibration", calibration.by_frequency),
}
BEGIN, END = "<!-- results begin -->", "<!-- results end -->"
WIDTH = 120  # of lines of prose
NOTHING = "*Not measured yet.*\n"
INTRO = "Made by `python -m evidence page` from the JSON files under `results/`; [what they say](../results.md).\n"
TABLE1 = "Our figures beside the published ones."
_PLACE = re.compile(r"\{\{\s*([^{}]+?)\s*\}\}")


@dataclass(frozen=True)
class Pages:
    """The texts by their paths below docs/, the pictures by their names, and the README's table."""

    texts: Mapping[str, str]
    pictures: Mapping[str, Callable[[], Figure]]
    quality: str


def read_results(results: Path) -> dict[str, list[Document]]:
    """All documents, by study; `table1` are the cells."""
    found: dict[str, list[Document]] = {"table1": [*cells.read_cells(results / "table1")]}
    found |= {name: [*read_folder(results / study.folder, study.kind)] for name, study in STUDIES.items()}
    if not any(found.values()):
        remedy = "name the folder that has table1/ in it: --results FOLDER"
        raise InputError("there are no results in this folder", where=str(results), remedy=remedy)
    return found


def make_pages(template: str, documents: Mapping[str, Sequence[Document]]) -> Pages:
    """All pages; pictures are in images/ beside results.md."""
    tables = {"table1": table1.table1(documents["table1"])}
    for name, study in STUDIES.items():
        tables[name] = [make(documents[name]) for make in study.tables] if documents[name] else []
    asks = {"table1": TABLE1} | {name: study.asks for name, study in STUDIES.items()}
    text, pictures = _fill(template, documents, [table for found in tables.values() for table in found])
    texts = {"results.md": text, "results/index.md": _page("Where every figure comes from", _index(documents))}
    texts |= {
        f"results/{name}.md": _page(name.capitalize(), f"{asks[name]}\n", *(table.markdown() for table in found))
        for name, found in tables.items()
    }
    return Pages(texts, pictures, table1.quality(documents["table1"]).markdown(None))


def between_marks(text: str, new: str) -> str:
    """A text that has the marks, with something new between them."""
    before, rest = text.split(BEGIN, 1)
    return f"{before}{BEGIN}\n{new}{END}{rest.split(END, 1)[1]}"


def _page(title: str, *parts: str) -> str:
    return "\n".join([f"# {title}\n", INTRO, *parts])


def _fill(
    template: str, documents: Mapping[str, Sequence[Document]], tables: Sequence[Table]
) -> tuple[str, dict[str, Callable[[], Figure]]]:
    """The template with its places filled, and the pictures that it shows."""
    small = {name: make(documents[of]) for name, (of, make) in SMALL.items() if documents[of]}
    known = {table.title: table for table in tables} | small
    pictures: dict[str, Callable[[], Figure]] = {}

    def fill(place: re.Match[str]) -> str:
        words = [word.strip() for word in place[1].split("|")]
        name, _, rest = words[0].partition(" ")
        if len(words) > 1 and words[0] in known:
            return known[words[0]].cell(*words[1:])
        if name == "table" and rest in SMALL:
            return (small[rest].markdown(None) if rest in small else NOTHING).rstrip("\n")
        if name == "picture":
            of, _, wanted = rest.partition(" ")
            study, found = STUDIES.get(of), [each for each in documents.get(of, []) if each["name"] == wanted]
            if study and study.draw and found:
                pictures[study.picture_name(found[0])] = partial(study.draw, found[0])
                return study.picture_link(found[0])
        remedy = f"tables: {', '.join(SMALL)}; figures: {', '.join(known)}; pictures: of what was measured"
        raise InputError(f"the template asks for {place[0]}", remedy=remedy)

    text = _PLACE.sub(fill, template)
    return "\n\n".join(_wrap(paragraph) for paragraph in text.split("\n\n")), pictures


def _wrap(paragraph: str) -> str:
    """Prose in lines of one width, whatever was filled in; all else as it is."""
    if paragraph.startswith(("#", "|", "!", "`")):
        return paragraph
    end = "\n" if paragraph.endswith("\n") else ""
    return textwrap.fill(paragraph, WIDTH, break_long_words=False, break_on_hyphens=False) + end


def _index(documents: Mapping[str, Sequence[Document]]) -> str:
    """A line for every file: what made it, and at which commit."""
    lines = [
        "Each file has its seeds, settings, machine, versions and time, and the run or the cells that it came from.",
        "`kgem reproduce` in older files is `python -m evidence` now, `together` is `pairs` and `apart` `ablation`;",
        "cells of searches and of controls are made by `table1`.",
        "",
    ]
    for name, group in documents.items():
        folder = STUDIES[name].folder if name in STUDIES else name
        for document in group:
            commit = document["versions"].get("commit", document["versions"].get("kgem", ""))
            lines.append(f"- `{folder}/{document['name']}.json` at {commit}: `{document['command']}`")
    return "\n".join(lines) + "\n"
