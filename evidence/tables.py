"""A table of text once, as Markdown and as HTML."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kgem.report import html as page

__all__ = ["Table", "gain", "half_width", "html_page", "mean_and_spread", "with_interval"]

# The 97.5 % quantiles of Student's t with 1, 2, ... degrees of freedom.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)


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
    return page.assemble_page(title, page.esc(lead), "", sections, "", wide=True)


def mean_and_spread(values: Sequence[float], digits: int = 3) -> str:
    """The mean, and the standard deviation if there are several."""
    if not values:
        return ""
    mean = f"{statistics.fmean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


def half_width(variance: float, n: int) -> float:
    """Of the 95 % interval of a mean of `n` values, two or more, that has this variance (Student's t)."""
    return STUDENT[min(n - 1, len(STUDENT)) - 1] * math.sqrt(variance)


def with_interval(mean: float, half: float | None, digits: int = 3) -> str:
    """A difference and its interval, if it has one."""
    told = "" if half is None else f" ({mean - half:+.{digits}f} to {mean + half:+.{digits}f})"
    return f"{mean:+.{digits}f}{told}"


def gain(before: Sequence[float], after: Sequence[float]) -> tuple[str, bool]:
    """The mean difference of pairs with its 95 % interval if there are several, and whether that excludes zero."""
    gains = [one - other for one, other in zip(after, before, strict=True)]
    mean, n = statistics.fmean(gains), len(gains)
    half = half_width(statistics.variance(gains) / n, n) if n > 1 else None
    return with_interval(mean, half), half is not None and abs(mean) > half


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
