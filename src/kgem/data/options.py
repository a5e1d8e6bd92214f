"""How a graph is to be read: what the columns of facts and the splits are called, and the options of all readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from kgem.errors import ConfigError, TriplesError

__all__ = ["FACT", "SPLITS", "ReadOptions"]

FACT = ("head", "relation", "tail")
SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class ReadOptions:
    """How facts are read, from whatever source.

    `columns` chooses head, relation and tail by name (a text file then has a header) or by number from 1; without it
    columns that are called so are taken, else the first three. `extra` names a fourth column to keep: with names the
    column of that name, else the fourth one. There is no other way to have more than three columns.
    """

    format: str | None = None  # one of FORMATS in kgem.data.triples; None: the file's name tells
    header: bool = False  # whether the first row of a text file names the columns
    columns: Sequence[str | int] | None = None
    extra: str | None = None
    literals: str = "drop"  # of RDF: "drop" and count, or "keep" as entities under their N-Triples text
    skip_bad: bool = False  # leave out and report rows that are no facts, instead of an error
    delimiter: str | None = None  # between the columns of TSV and CSV, instead of a tab or a comma
    encoding: str | None = None  # of TSV and CSV; None: UTF-8
    labels: str | None = None  # a file with the names of symbols: id<TAB>name

    def __post_init__(self) -> None:
        if self.literals not in ("drop", "keep"):
            raise TriplesError(f"literals={self.literals!r} is unknown", remedy="one of 'drop', 'keep'")
        if self.extra is not None and (not self.extra or self.extra in FACT):
            raise TriplesError(f"the extra column cannot be called {self.extra!r}", remedy="choose another name")
        _check_delimiter(self.delimiter)
        _check_encoding(self.encoding)
        if self.columns is not None and len(self.columns) not in (3, 4 if self.extra else 3):
            what = f"columns names {len(self.columns)} columns"
            raise TriplesError(what, remedy="name three: head, relation, tail (and the extra one if it has a name)")

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> ReadOptions:
        """Options by their names; an unknown name is an error."""
        names = [each.name for each in fields(cls)]
        unknown = sorted(set(given) - set(names))
        if unknown:
            raise ConfigError(f"no reading option is called {unknown[0]!r}", remedy=f"one of {', '.join(names)}")
        return cls(**given)

    @property
    def has_header(self) -> bool:
        """Whether the first row of a text file names the columns: said, or implied by choosing columns by name."""
        chosen = self.columns or ()
        return self.header or not all(isinstance(c, int) or c.strip().isdecimal() for c in chosen)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the frame that comes out."""
        return FACT if self.extra is None else (*FACT, self.extra)


def _check_delimiter(delimiter: str | None) -> None:
    if delimiter is not None and (not delimiter or set(delimiter) & set('"\r\n\0')):
        what = f"{delimiter!r} cannot be between columns"
        raise TriplesError(what, remedy="one or more characters, but no quote and no line break, as in --delimiter ';'")


def _check_encoding(encoding: str | None) -> None:
    try:
        "".encode(encoding or "utf-8")
    except LookupError as error:
        remedy = "as in --encoding latin-1; others are utf-8, utf-16, cp1252, shift_jis, gb18030"
        raise TriplesError(f"no encoding of text is called {encoding!r}", remedy=remedy) from error
