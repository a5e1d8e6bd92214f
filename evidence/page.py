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
    "published": ("table1", table1.aims),
    "one-fit": ("search", cost.summary),
    "two-models": ("pairs", pairs.summary),
    "behind": ("table1", table1.behind),
    "doubt": ("calibration", calibration.summary),
}
BEGIN, END = "<!-- results begin -->", "<!-- results end -->"
WIDTH = 120  # of lines of prose
NOTHING = "*Not measured yet.*\n"
INTRO = "Made by `python -m evidence page` from the JSON files under `results/`; [what they say](../results.md).\n"
TABLE1 = "Our figures beside the published ones, and every cell with what it cost."
_PLACE = re.compile(r"\{\{\s*([^{}]+?)\s*\}\}")

Draw = Callable[[], "Figure"]


@dataclass(frozen=True)
class Pages:
    """The texts by their paths below docs/, the pictures by their names, and the README's table."""

    texts: Mapping[str, str]
    pictures: Mapping[str, Draw]
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
    tables = {"table1": table1.all_tables(documents["table1"])} | {
        name: [make(documents[name]) for make in study.tables] if documents[name] else []
        for name, study in STUDIES.items()
    }
    texts = {"results.md": _fill(template, documents, tables)}
    texts["results/table1.md"] = _page("table1", TABLE1, tables["table1"], [])
    for name, study in STUDIES.items():
        links = [each.markdown(document, "../images") for each in study.pictures for document in documents[name]]
        texts[f"results/{name}.md"] = _page(name, study.asks, tables[name], links)
    texts["results/index.md"] = _page("Where every figure comes from", "", [_sources(documents)], [])
    pictures = {
        each.file(document): partial(each.draw, document)
        for name, study in STUDIES.items()
        for each in study.pictures
        for document in documents[name]
    }
    return Pages(texts, pictures, table1.quality(documents["table1"]).markdown(None))


def between_marks(text: str, new: str) -> str:
    """A text that has the marks, with something new between them."""
    before, rest = text.split(BEGIN, 1)
    return f"{before}{BEGIN}\n{new}{END}{rest.split(END, 1)[1]}"


def _page(title: str, asks: str, tables: Sequence[Table], links: Sequence[str]) -> str:
    title = f"# {title[0].upper()}{title[1:]}\n"
    return "\n".join([title, *([f"{asks}\n"] if asks else []), INTRO, *(t.markdown() for t in tables), *links])


def _fill(template: str, documents: Mapping[str, Sequence[Document]], tables: Mapping[str, Sequence[Table]]) -> str:
    small = {name: make(documents[of]) for name, (of, make) in SMALL.items() if documents[of]}
    known = {table.title: table for found in tables.values() for table in found} | small

    def fill(place: re.Match[str]) -> str:
        words = [word.strip() for word in place[1].split("|")]
        name, _, rest = words[0].partition(" ")
        if len(words) > 1 and words[0] in known:
            return known[words[0]].cell(*words[1:])
        if name == "table" and rest in SMALL:
            return (small[rest].markdown(None) if rest in small else NOTHING).rstrip("\n")
        if name == "picture":
            study, _, wanted = rest.partition(" ")
            found = [each for each in documents.get(study, []) if each["name"] == wanted]
            if study in STUDIES and found:
                return STUDIES[study].pictures[0].markdown(found[0], "images").rstrip("\n")
        remedy = f"tables: {', '.join(SMALL)}; figures: {', '.join(known)}; pictures: of what was measured"
        raise InputError(f"the template asks for {place[0]}", remedy=remedy)

    return "\n\n".join(_wrap(paragraph) for paragraph in _PLACE.sub(fill, template).split("\n\n"))


def _wrap(paragraph: str) -> str:
    """Prose in lines of one width, whatever was filled in; all else as it is."""
    if paragraph.startswith(("#", "|", "!", "`")):
        return paragraph
    end = "\n" if paragraph.endswith("\n") else ""
    return textwrap.fill(paragraph, WIDTH, break_long_words=False, break_on_hyphens=False) + end


def _sources(documents: Mapping[str, Sequence[Document]]) -> Table:
    """Every file: what made it, from what, when and in what time."""
    rows = []
    for name, group in documents.items():
        folder = STUDIES[name].folder if name in STUDIES else name
        for document in group:
            is_cell = name not in STUDIES
            rows.append(
                {
                    "file under results/": f"`{folder}/{document['name']}.json`",
                    "command": f"`{document['command']}`",
                    "made from": f"`{document['run']}`" if is_cell else f"{len(document['sources'])} cells",
                    "finished": document["finished"],
                    "commit": document["versions"].get("commit", document["versions"].get("kgem", "")),
                    "epochs": f"{sum(document['epochs'].values()):,}" if is_cell else "",
                    "seconds": f"{document['seconds']:,.0f}" if is_cell else "",
                }
            )
    note = (
        "Each file has its seeds, its settings, the machine and all versions; a file that was made from cells lists "
        "them as its `sources`. `kgem reproduce` in older files is `python -m evidence` now, `together` is `pairs` and "
        "`apart` is `ablation`."
    )
    return Table("Files", rows, 5, note)
