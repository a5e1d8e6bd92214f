"""The table of quality in README.md, between two marks, from the cells of Table 1."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from evidence.cells import PAPER_GRAPHS, read_cells
from evidence.cost import FEWEST_TRIALS
from evidence.documents import Document, write_text
from evidence.naming import subject
from evidence.published import Figure, published
from evidence.rows import AUTO, LABELS, SINGLE, Row, rows_of
from evidence.tables import Table, mean_and_spread

__all__ = ["BEGIN", "END", "between_marks", "quality", "update_readme", "with_quality"]

BEGIN, END = "<!-- results begin -->", "<!-- results end -->"


def update_readme(path: Path, cells: Path) -> bool:
    """Mutates the file: the table between its marks anew. False if it is not there, or has no marks."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if BEGIN not in text or END not in text:
        return False
    write_text(path, with_quality(text, read_cells(cells)))
    return True


def with_quality(text: str, documents: Sequence[Document]) -> str:
    """A text that has the marks, with the table between them."""
    return between_marks(text, quality(documents).markdown(None))


def between_marks(text: str, new: str) -> str:
    """A text that has the marks, with something new between them."""
    before, rest = text.split(BEGIN, 1)
    return f"{before}{BEGIN}\n{new}{END}{rest.split(END, 1)[1]}"


def quality(documents: Sequence[Document]) -> Table:
    """One fit beside the best shared strength of a search and beside what is published, where there is either.

    Of each graph and model the largest dimension that has a search beside it, and the largest that has none; that has
    a model with a given strength beside it, if we made one. Fit and baseline are over the seeds that both have.
    """
    rows = rows_of(documents)
    lines: dict[tuple[str, str, str, bool], list[str]] = {}
    for auto in sorted((row for row in rows if row.label == AUTO), key=_place):
        beside = [row for row in rows if _key(row) == _key(auto) and set(row.seeds) & set(auto.seeds)]
        single = next(row for row in beside if row.label == SINGLE and row.settings == auto.settings)
        search = _longest([row for row in beside if row.label == LABELS["search", "point"]])
        given = next((row for row in beside if row.label == LABELS["conventional", "point"]), None)
        known = [f for f in published().figures if _is_beside(f, auto)]
        if search is None and not known:
            continue
        baseline = search or given
        seeds = [seed for seed in auto.seeds if baseline is None or seed in baseline.seeds]
        name = subject(auto.graph, auto.model, auto.dim)
        fits = [mean_and_spread(row.values("mrr", seeds=seeds)) for row in (auto, single)]
        how = f"{search.trials} trials" if search else "given, no search"
        found = f"{mean_and_spread(baseline.values('mrr', seeds=seeds))} ({how})" if baseline else ""
        told = ", ".join(f"{figure.mrr} ({figure.source})" for figure in known)
        named = f"{name} [{auto.settings}]" if auto.settings else name
        place = (auto.graph, auto.model, auto.settings, search is None)
        lines.pop(place, None)  # a smaller dimension, whose place in the table is not this one's
        lines[place] = [named, str(len(seeds)), found, *fits, told]
    columns = [
        "test MRR",
        "seeds",
        "one shared strength, best of a search",
        "one fit, `auto`",
        "the same, one model alone",
    ]
    return Table("Quality", [*columns, "published"], list(lines.values()), 1)


def _key(row: Row) -> tuple[str, str, int | None]:
    return row.graph, row.model, row.dim


def _is_beside(figure: Figure, row: Row) -> bool:
    """Whether a published figure is of the size of a fit, or of none that is named; the paper's are of another."""
    same = (figure.graph, figure.model) == (row.graph, row.model)
    return same and figure.source != "paper" and figure.dim in (None, row.dim)


def _place(row: Row) -> tuple[int, str, str, int]:
    """The paper's graphs first; by dimension last, so that the largest is the one that stays."""
    return (*PAPER_GRAPHS, row.graph).index(row.graph), row.graph, row.model, row.dim


def _longest(searches: Sequence[Row]) -> Row | None:
    """The search with the most trials, and enough of them."""
    enough = [row for row in searches if (row.trials or 0) >= FEWEST_TRIALS]
    return max(enough, key=lambda row: row.trials or 0, default=None)
