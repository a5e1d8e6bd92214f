"""docs/results.md: prose from a template, every figure and picture in it from the JSON files under results/.

In the template {{table1}}, {{aims}}, {{details}}, {{settled}}, {{together}}, {{apart}}, {{search}}, {{frequency}},
{{strengths}}, {{calibration}}, {{doubt}} and {{sources}} stand for tables (with their pictures).
{{value FILE PATH FORMAT}} is one figure: {{value table1/umls-complex-50-em-0.json metrics.point.test.mrr .3f}}.
{{mrr CELL MODE}} is the test MRR of a cell in a mode (auto and single are modes, too), {{both CELL MODE}} has Hits@10
with it; a cell without the seed at its end stands for those of all seeds: {{mrr umls-complex-50-em blend}} is a mean ±
standard deviation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evidence import apart, cells, cost, doubt, frequency, naming, together
from evidence.documents import Document, check_sources, read_folder
from evidence.pictures import calibration_figure, cost_figure, frequency_figure, slope_figure
from evidence.rows import chosen_mode
from evidence.settled import settled_table
from evidence.table1 import aims, details, table1
from evidence.tables import Table, mean_and_spread
from kgem.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FOLDERS", "Page", "results_page"]

FOLDERS = {
    "table1": cells.KIND,
    "together": together.KIND,
    "apart": apart.KIND,
    "search": cost.KIND,
    "frequency": frequency.KIND,
    "calibration": doubt.KIND,
}
TABLES: Mapping[str, Callable[[Sequence[Document]], Table]] = {
    "together": together.together_table,
    "apart": apart.apart_table,
    "search": cost.cost_table,
    "frequency": frequency.frequency_table,
    "calibration": doubt.calibration_table,
}
NOTHING = "*Not measured yet.*\n"
NO_AIMS = "*No graph of Table 1 has been fitted at the sizes that we want to reach something at.*\n"
PREFIX = "results-"  # of the pictures' names
OF_CELLS = {"mrr": ("mrr",), "both": ("mrr", "hits_at_10")}  # what a place for figures of cells shows
_PLACE = re.compile(r"\{\{\s*([^{}]+?)\s*\}\}")

Draw = Callable[[], "Figure"]


@dataclass
class Page:
    """The text, and what draws each of its pictures."""

    text: str = ""
    pictures: dict[str, Draw] = field(default_factory=dict)


def results_page(
    template: str, results: Path, images: str = "images", only: Callable[[str], bool] = lambda file: True
) -> Page:
    """The page; `images` is where its pictures are, seen from it, and `only` says of files whether they count."""
    documents = {
        name: [each for each in read_folder(results / name, kind) if only(f"{name}/{each['name']}.json")]
        for name, kind in FOLDERS.items()
    }
    if not any(documents.values()):
        remedy = "name the folder that has table1/ in it: --results FOLDER"
        raise InputError("there are no results in this folder", where=str(results), remedy=remedy)
    _check_sources(documents, results)
    page = Page()
    writers: Mapping[str, Callable[[], str]] = {
        "table1": lambda: _joined(table1(documents["table1"])),
        "aims": lambda: _joined([aims(documents["table1"])], NO_AIMS),
        "details": lambda: _table(details, documents["table1"]),
        "settled": lambda: _joined([settled_table(documents["table1"])]),
        "together": lambda: _table(TABLES["together"], documents["together"]),
        "apart": lambda: _table(TABLES["apart"], documents["apart"]),
        "search": lambda: _with_pictures(page, "search", documents, cost.cost_table, _cost_picture, images),
        "frequency": lambda: _with_pictures(
            page, "frequency", documents, frequency.frequency_table, _frequency_picture, images
        ),
        "strengths": lambda: _with_pictures(
            page, "frequency", documents, frequency.slope_table, _slope_picture, images
        ),
        "calibration": lambda: _with_pictures(
            page, "calibration", documents, doubt.calibration_table, _calibration_picture, images
        ),
        "doubt": lambda: _table(doubt.doubt_table, documents["calibration"]),
        "sources": lambda: _sources(documents).markdown(None),
    }

    def fill(place: re.Match[str]) -> str:
        name, *rest = place[1].split()
        if name == "value":
            return _value(results, rest)
        if name in OF_CELLS:
            return _of_cells(documents["table1"], OF_CELLS[name], place[0], rest)
        if name not in writers or rest:
            raise InputError(f"the template asks for {place[0]}", remedy=f"one of {', '.join(writers)}, or a value")
        return writers[name]().rstrip("\n")

    page.text = _PLACE.sub(fill, template)
    return page


def _check_sources(documents: Mapping[str, Sequence[Document]], results: Path) -> None:
    """What was made from cells must be of the cells as they are now, and of the form that tables are made from."""
    known = {each["name"]: each for each in documents["table1"]}
    for folder, group in documents.items():
        for document in group if folder != "table1" else ():
            where = str(results / folder / f"{document['name']}.json")
            check_sources(document, where, known)
            try:
                TABLES[folder]([document])
            except (KeyError, TypeError) as error:
                remedy = f"make it again: {document['command']}"
                raise InputError("was written by another version of kgem", where=where, remedy=remedy) from error


def _table(make: Callable[[Sequence[Document]], Table], found: Sequence[Document]) -> str:
    return _joined([make(found)] if found else [])


def _joined(tables: Sequence[Table | None], otherwise: str = NOTHING) -> str:
    return "\n".join(table.markdown(3) for table in tables if table is not None) or otherwise


def _with_pictures(
    page: Page,
    folder: str,
    documents: Mapping[str, Sequence[Document]],
    table: Callable[[Sequence[Document]], Table],
    picture: Callable[[Document], tuple[str, str, Draw]],
    images: str,
) -> str:
    """Mutates the page: a table of all documents of a folder, and a picture of each."""
    found = documents[folder]
    if not found:
        return NOTHING
    lines = [table(found).markdown(None)]
    for document in found:
        name, about, draw = picture(document)
        page.pictures[f"{PREFIX}{name}"] = draw
        lines.append(f"![{about}]({images}/{PREFIX}{name})\n")
    return "\n".join(lines)


def _cost_picture(document: Document) -> tuple[str, str, Draw]:
    about = f"{naming.about(document)}: validation MRR against epochs and seconds spent, search and fit"
    return f"search-{document['name']}.svg", about, partial(cost_figure, document)


def _frequency_picture(document: Document) -> tuple[str, str, Draw]:
    about = f"{naming.about(document)}: test MRR by frequency of the answer"
    return f"frequency-{document['name']}.svg", about, partial(frequency_figure, document)


def _slope_picture(document: Document) -> tuple[str, str, Draw]:
    about = f"{naming.about(document)}: learned strength against frequency of entities"
    return f"strengths-{document['name']}.png", about, partial(slope_figure, document)


def _calibration_picture(document: Document) -> tuple[str, str, Draw]:
    about = f"{naming.about(document)}, seed {document['seed']}: reliability, and doubt against error"
    return f"calibration-{document['name']}.svg", about, partial(calibration_figure, document)


def _sources(documents: Mapping[str, Sequence[Document]]) -> Table:
    """Every file: what made it, with which seed, in what time, from which run."""
    lines = []
    known = {each["name"]: each for each in documents["table1"]}
    for folder, group in documents.items():
        for document in group:
            seeds = document.get("seed", document.get("seeds", ""))
            if isinstance(seeds, list):
                seeds = ", ".join(str(each["seed"] if isinstance(each, dict) else each) for each in seeds)
            sources = [known[each["cell"]] for each in document.get("sources", [])]
            used = [*sources, *document.get("made", [])] or [document]
            took = f"{sum(sum(cell['epochs'].values()) for cell in used):,}"
            seconds = f"{sum(cell['seconds'] for cell in used):,.0f}"
            runs = ", ".join(f"`{cell['run']}`" for cell in used)
            threads = ", ".join(sorted({str(cell["machine"]["threads"]) for cell in used}))
            commit = document["versions"].get("commit", document["versions"].get("kgem", ""))
            file = f"`{folder}/{document['name']}.json`"
            when = [document["finished"], commit]
            lines.append([file, f"`{document['command']}`", runs, *when, str(seeds), threads, took, seconds])
    columns = ["file under results/", "command", "runs", "finished", "commit", "seeds", "threads", "epochs", "seconds"]
    note = (
        "A file that was made from cells of table1/ has the runs, epochs and seconds of all these cells, and of fits "
        "that were made for it alone."
    )
    return Table("Where every figure comes from", columns, lines, 5, notes=[note])


def _of_cells(documents: Sequence[Document], names: Sequence[str], place: str, words: Sequence[str]) -> str:
    """Figures on test of one cell, or of the cells of all seeds: mean and standard deviation."""
    remedy = (
        "write {{mrr CELL MODE}}: a cell of table1/, with its seed or without, and one of its modes, auto or single"
    )
    if len(words) != 2:
        raise InputError(f"the template has {place}", remedy=remedy)
    cell, mode = words
    found = [each for each in documents if cell in (each["name"], each["name"].rsplit("-", 1)[0])]
    modes = [chosen_mode(each, mode) for each in found]
    if not found or any(by not in each["metrics"] for each, by in zip(found, modes, strict=True)):
        raise InputError(f"the template asks for {place}, which no cell has", remedy=remedy)
    figures = [each["metrics"][by]["test"] for each, by in zip(found, modes, strict=True)]
    return " / ".join(mean_and_spread([each[name] for each in figures]) for name in names)


def _value(results: Path, words: Sequence[str]) -> str:
    """One figure out of one file."""
    remedy = "write {{value FILE PATH FORMAT}}, the path with dots between keys and places"
    if len(words) != 3:
        raise InputError(f"the template has a value with {len(words)} words", remedy=remedy)
    file, path, format = words
    try:
        found: Any = json.loads((results / file).read_bytes())
        for key in path.split("."):
            found = found[int(key)] if isinstance(found, list) else found[key]
        return f"{found:{format}}"
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        what = f"the template asks for {path} of {file}, which cannot be had: {error}"
        raise InputError(what, where=str(results / file), remedy=remedy) from error
