"""What every reader of facts shares: the choice of columns, and an intake that loses no row unreported."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import polars as pl

from kgem.data.names import NO_NAMES, Names, NameTaker
from kgem.data.options import FACT, ReadOptions
from kgem.errors import TriplesError

__all__ = ["KEPT_PROBLEMS", "Intake", "Layout", "Problem", "ReadReport", "Triples", "choose", "find_sound"]

KEPT_PROBLEMS = 100
Unit = Literal["line", "row"]  # what a source is counted in
SKIP = "or leave bad rows out: skip_bad=True (--skip-bad)"


@dataclass(frozen=True)
class Problem:
    """One row that is not a fact: where, why, and what to do about it."""

    line: int  # from 1; the row's number where there are no lines (Parquet, frames)
    reason: str
    remedy: str = ""
    column: int | None = None  # of RDF's syntax errors


@dataclass(frozen=True)
class ReadReport:
    """What became of each row: rows_read = kept + duplicates + skipped + literals_dropped + names, always."""

    source: str
    rows_read: int
    kept: int
    duplicates: int
    skipped: int
    literals_dropped: int
    problems: tuple[Problem, ...] = ()  # the first rows that were skipped
    names: int = 0  # statements that name a symbol and are no facts
    conflicts: int = 0  # duplicates whose extra value differs from the one that was kept


@dataclass(frozen=True)
class Triples:
    """Distinct labelled facts in the order of their source, and the report on how they were read."""

    frame: pl.DataFrame  # head, relation, tail and, if it was named, the extra column: all String
    report: ReadReport
    names: Names = NO_NAMES  # of the symbols, and of others that the source names


@dataclass(frozen=True)
class Layout:
    """How wide rows are, which of their fields are head, relation, tail (and extra), and what those become."""

    width: int
    places: tuple[int, ...]
    names: tuple[str, ...]


def choose(width: int, names: Sequence[str] | None, intake: Intake, source: str) -> Layout:
    """The layout of a table with so many columns, perhaps with names, under the caller's choice."""
    options = intake.options
    if not options.columns and not options.extra and names and intake.extra_if_named in names:
        options = replace(options, extra=intake.extra_if_named)
    if options.columns is not None:
        places = [_place(column, width, names, source) for column in options.columns]
        if options.extra is not None and len(places) == 3:
            places.append(_place(options.extra if names else 4, width, names, source))
    elif names and set(FACT) <= set(names):
        places = [_place(name, width, names, source) for name in options.names]
    else:
        places = [0, 1, 2]
        if options.extra is not None:
            places.append(_place(options.extra, width, names, source) if names else 3)
    if options.columns is None and width != len(places):
        listed = f" ({', '.join(map(repr, names))})" if names else ""
        what = width_reason(width, len(places)) + listed
        raise TriplesError(what, where=source, remedy=width_remedy(width, len(places)))
    if len(set(places)) < len(places):
        raise TriplesError("one column is chosen twice", where=source, remedy="choose different columns")
    return Layout(width, tuple(places), options.names)


def _place(column: str | int, width: int, names: Sequence[str] | None, source: str) -> int:
    if names is not None and column in names:
        if list(names).count(str(column)) > 1:
            raise TriplesError(f"two columns are called {column!r}", where=source, remedy="choose by number")
        return list(names).index(str(column))
    try:
        number = int(column)
    except ValueError:
        number = 0
    if 1 <= number <= width:
        return number - 1
    if names is None:
        remedy = f"choose by number, 1 to {width}, or by names that the first row has"
    else:
        remedy = f"the columns are {', '.join(map(repr, names))}; they can be chosen by number, too"
    raise TriplesError(f"there is no column {column!r}", where=source, remedy=remedy)


def find_sound(frame: pl.DataFrame) -> pl.Series:
    """Whether each row has three labels, none of them empty or with a NUL character."""
    labels = pl.col(FACT)
    sound = pl.all_horizontal(labels.is_not_null(), labels != "", ~labels.str.contains("\0", literal=True))
    return frame.select(sound.fill_null(False)).to_series()


def width_reason(width: int, expected: int) -> str:
    """What is wrong with a row of so many columns."""
    return f"{width} column{'' if width == 1 else 's'} where {expected} are expected"


def width_remedy(width: int, expected: int) -> str:
    """What to do about a row of so many columns."""
    if width < expected:
        return "each row needs head, relation, tail" + (" and the extra column" if expected == 4 else "")
    if width == 4:
        return "name the fourth column, extra='weight' (--extra weight), or choose three with columns (--columns)"
    return "choose the columns for head, relation, tail with columns (--columns)"


class Intake:
    """Takes in good rows and counts all others; a bad row is an error unless bad rows are to be skipped."""

    def __init__(
        self,
        source: str,
        options: ReadOptions,
        unit: Unit = "line",
        *,
        split: str = "train",
        extra_if_named: str | None = None,
    ) -> None:
        self.source = source
        self.options = options
        self.split = split  # which one to read of a source that has several
        self.extra_if_named = extra_if_named  # kept as the extra column if one is called so and nothing else was chosen
        self.literals_dropped = 0
        self.names = NameTaker()
        self._unit = unit
        self._skipped = 0
        self._problems: list[Problem] = []
        self._frames: list[pl.DataFrame] = []

    def keep(self, frame: pl.DataFrame) -> None:
        """Rows whose labels were checked, with the columns of the result."""
        self._frames.append(frame)

    def reject(self, problems: Iterable[Problem], count: int) -> None:
        """`count` bad rows, in order; only as many problems are drawn as are kept for the report."""
        for problem in problems:
            if not self.options.skip_bad:
                raise self.error(problem)
            if len(self._problems) == KEPT_PROBLEMS:
                break
            self._problems.append(problem)
        self._skipped += count

    def error(self, problem: Problem, *, may_skip: bool = True) -> TriplesError:
        """The problem as an error that says where it is."""
        remedies = [part for part in (problem.remedy, SKIP if may_skip else "") if part]
        return TriplesError(problem.reason, where=self.where(problem), remedy=", ".join(remedies) or None)

    def where(self, problem: Problem) -> str:
        """file:line, file:line:column, or file, row n."""
        if self._unit == "row":
            return f"{self.source}, row {problem.line}"
        column = "" if problem.column is None else f":{problem.column}"
        return f"{self.source}:{problem.line}{column}"

    def result(self) -> Triples:
        """All that came in, facts given twice only once (the first stays)."""
        given = sum(map(len, self._frames))
        if not given:
            raise self._nothing()
        frame = pl.concat(self._frames)
        self._frames.clear()
        distinct = _distinct(frame)
        report = ReadReport(
            source=self.source,
            rows_read=given + self._skipped + self.literals_dropped + self.names.taken,
            kept=len(distinct),
            duplicates=given - len(distinct),
            skipped=self._skipped,
            literals_dropped=self.literals_dropped,
            problems=tuple(self._problems),
            names=self.names.taken,
            conflicts=0 if distinct is frame else _conflicts(frame, distinct),
        )
        return Triples(distinct, report, self.names.result())

    def _nothing(self) -> TriplesError:
        if self._skipped:
            first = self._problems[0]
            what = f"no row is a fact; the first of {self._skipped:,} bad rows: {first.reason}"
            return TriplesError(what, where=self.where(first), remedy=first.remedy or None)
        if self.literals_dropped or self.names.taken:
            literals = self.literals_dropped + self.names.taken
            what = f"all {literals:,} statements have a literal as their object"
            remedy = "keep literals as entities: literals='keep' (--literals keep)"
            return TriplesError(what, where=self.source, remedy=remedy)
        return TriplesError("there are no facts in it: it is empty", where=self.source, remedy="give at least one")


def _distinct(frame: pl.DataFrame) -> pl.DataFrame:
    """Each fact where it is first. Most often that is every row, and hashes tell so far quicker than labels."""
    if frame.select(FACT).hash_rows().n_unique() == len(frame):
        return frame
    return frame.unique(subset=FACT, keep="first", maintain_order=True)


def _conflicts(frame: pl.DataFrame, distinct: pl.DataFrame) -> int:
    """How many rows have another extra value than the one that stands for their fact."""
    if frame.width == len(FACT):
        return 0
    extra = frame.columns[-1]
    both = frame.join(distinct, on=FACT, suffix=" kept")
    return int(both[extra].ne_missing(both[f"{extra} kept"]).sum())
