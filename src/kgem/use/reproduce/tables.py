"""A table of text once, as Markdown and as HTML."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kgem.use import page

__all__ = ["Table", "html_page", "mean_and_spread"]


@dataclass(frozen=True)
class Table:
    """Columns and rows of text; cells in `bold` are (row, column)."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1  # columns of text, before those of numbers
    bold: frozenset[tuple[int, int]] = frozenset()
    notes: Sequence[str] = field(default_factory=tuple)

    def markdown(self, level: int | None = 2) -> str:
        """With its title as a heading of this level, unless it is None."""
        lines = [] if level is None else [f"{'#' * level} {self.title}", ""]
        rule = [":--" if place < self.left else "--:" for place in range(len(self.columns))]
        lines += [_line(self.columns), _line(rule)]
        for i, row in enumerate(self.rows):
            lines.append(_line(f"**{cell}**" if (i, j) in self.bold else cell for j, cell in enumerate(row)))
        return "\n".join([*lines, *(f"\n{note}" for note in self.notes)]) + "\n"

    def html(self) -> str:
        """The table and its notes."""
        rows = [
            [f"<b>{page.esc(cell)}</b>" if (i, j) in self.bold else page.esc(cell) for j, cell in enumerate(row)]
            for i, row in enumerate(self.rows)
        ]
        return page.table(self.columns, rows, left=self.left) + "".join(page.note(page.esc(n)) for n in self.notes)


def html_page(title: str, lead: str, tables: Sequence[Table]) -> str:
    """A page of tables that needs nothing from outside."""
    sections = [
        page.Section(f"t{place}", table.title, table.title, page.card(table.html()))
        for place, table in enumerate(tables)
    ]
    return page.page(title, page.esc(lead), "", sections, "", wide=True)


def mean_and_spread(values: Sequence[float], digits: int = 3, sign: str = "") -> str:
    """The mean, with a `sign` of "+" if it is a difference, and the standard deviation if there are several."""
    if not values:
        return ""
    mean = f"{statistics.fmean(values):{sign}.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
