"""A table of text as Markdown, and figures as text: means with their spread, differences with their interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from evidence.documents import Document
from kgem.errors import InputError

# The 97.5 % quantiles of Student's t with 1, 2, ... degrees of freedom.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)


@dataclass(frozen=True)
class Table:
    """Rows of text by column; all rows have the columns of the first."""

    title: str
    rows: Sequence[Mapping[str, str]]
    left: int = 1  # columns of text, before those of numbers
    note: str = ""

    @property
    def columns(self) -> list[str]:
        return list(self.rows[0]) if self.rows else []

    def markdown(self, level: int | None = 2) -> str:
        """With its title as a heading of this level, unless it is None."""
        lines = [] if level is None else [f"{'#' * level} {self.title}", ""]
        rule = [":--" if place < self.left else "--:" for place in range(len(self.columns))]
        lines += [_line(self.columns), _line(rule), *(_line(row.values()) for row in self.rows)]
        return "\n".join([*lines, *([f"\n{self.note}"] if self.note else [])]) + "\n"

    def cell(self, *words: str) -> str:
        """What stands in the row whose text columns have all the words but the last, in the column of the last."""
        *names, column = words
        found = [row for row in self.rows if set(names) <= {row[name] for name in self.columns[: self.left]}]
        if len(found) != 1 or column not in self.columns:
            what = f"{len(found)} rows of the table {self.title!r} are {' | '.join(words)}"
            raise InputError(what, remedy=f"name one row of it, and one of its columns: {', '.join(self.columns)}")
        return found[0][column].strip("*")


def bold(text: str, wanted: bool = True) -> str:
    """A cell that stands out, if it should."""
    return f"**{text}**" if wanted else text


def most_seeds(documents: Iterable[Document]) -> list[Document]:
    """Of each graph and model the document with the most seeds."""
    found: dict[tuple[str, str], Document] = {}
    for document in documents:
        key = (document["graph"], document["model"])
        if key not in found or len(document["seeds"]) > len(found[key]["seeds"]):
            found[key] = document
    return list(found.values())


def mean_and_spread(values: Sequence[float], digits: int = 3) -> str:
    """The mean, and the standard deviation if there are several."""
    if not values:
        return ""
    mean = f"{statistics.fmean(values):z.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


def half_width(variance: float, n: int) -> float:
    """Of the 95 % interval of a mean of `n` values, two or more, that has this variance (Student's t)."""
    return STUDENT[min(n - 1, len(STUDENT)) - 1] * math.sqrt(variance)


def with_interval(mean: float, half: float | None, digits: int = 3) -> str:
    """A difference and its interval, if it has one; bold where that excludes zero."""
    told = "" if half is None else f" ({mean - half:+.{digits}f} to {mean + half:+.{digits}f})"
    return bold(f"{mean:+.{digits}f}{told}", half is not None and abs(mean) > half)


def gain(before: Sequence[float], after: Sequence[float]) -> str:
    """The mean difference of pairs, with its 95 % interval if there are several."""
    gains = [one - other for one, other in zip(after, before, strict=True)]
    n = len(gains)
    return with_interval(statistics.fmean(gains), half_width(statistics.variance(gains) / n, n) if n > 1 else None)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
