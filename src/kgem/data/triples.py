"""Labelled triples to and from files: picks the format, reads and writes; the formats have their own modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from kgem.data.formats import delimited, facts, frames, openke, parquet, pykeen, rdf
from kgem.data.formats.recoding import refuse_text_options
from kgem.data.options import FACT, SPLITS, ReadOptions
from kgem.data.rows import Intake, Problem, ReadReport, Triples, Unit, find_sound
from kgem.data.streams import STDIN, Source, split_suffix
from kgem.errors import TriplesError

if TYPE_CHECKING:
    import pandas as pd

    Table: TypeAlias = pl.DataFrame | pd.DataFrame | npt.NDArray[Any]

__all__ = ["FORMATS", "Format", "Problem", "ReadReport", "Triples", "guess_format", "read_triples", "write_triples"]

DEFAULTS = ReadOptions()


@dataclass(frozen=True)
class Format:
    """How one format is recognised, read and written."""

    extensions: tuple[str, ...]
    read: Callable[[Source, Intake], None]
    write: Callable[..., None]  # of a frame and a path; RDF also of whether to write literals
    unit: Unit = "line"
    is_folder: bool = False
    has_literals: bool = False
    is_text: bool = False  # with columns and an encoding that can be chosen


FORMATS: dict[str, Format] = {
    "tsv": Format((".tsv", ".txt", ".tab"), delimited.read_tsv, delimited.write_tsv, is_text=True),
    "csv": Format((".csv",), delimited.read_csv, delimited.write_csv, is_text=True),
    "parquet": Format((".parquet",), parquet.read_parquet, parquet.write_parquet, unit="row"),
    "nt": Format((".nt",), rdf.read_nt, rdf.write_nt, has_literals=True),
    "nq": Format((".nq",), rdf.read_nq, rdf.write_nq, has_literals=True),
    "ttl": Format((".ttl",), rdf.read_ttl, rdf.write_ttl, has_literals=True),
    "rdf": Format((".rdf", ".owl", ".xml"), rdf.read_rdf, rdf.write_rdf, has_literals=True),
    "openke": Format((".openke",), openke.read_openke, openke.write_openke, is_folder=True),
}
EXTENSIONS = {extension: name for name, form in FORMATS.items() for extension in form.extensions}


def guess_format(path: str | Path) -> str:
    """The format by the extension, whatever the compression; standard input is TSV."""
    if str(path) == STDIN:
        return "tsv"
    extension = _extension(path)
    if extension in EXTENSIONS:
        return EXTENSIONS[extension]
    if Path(path).is_dir():
        if openke.holds_openke(Path(path)):
            return "openke"
        remedy = "give a file of facts, or a folder with train2id.txt, entity2id.txt and relation2id.txt"
        raise TriplesError("is a folder, and not one of OpenKE's", where=str(path), remedy=remedy)
    remedy = f"name the format ({', '.join(FORMATS)}) or use a known extension: {', '.join(EXTENSIONS)}"
    raise TriplesError(f"the extension {extension!r} is unknown", where=str(path), remedy=remedy)


def read_triples(
    source: str | Path | IO[bytes] | Table | Iterable[Any],
    options: ReadOptions = DEFAULTS,
    *,
    split: str = "train",
    extra_if_named: str | None = None,
) -> Triples:
    """Facts from a file, '-' (standard input), a binary stream, a frame, an (n, 3) array, or tuples of labels.

    PyKEEN's TriplesFactory will do as well, and the folder of one or of a result.

    `split` chooses a file of an OpenKE folder. `extra_if_named` is kept as the extra column where the columns have
    names, that is one of them, and nothing else was chosen. White space belongs to labels; a label must not be empty.
    A row that is not a fact is a TriplesError with its line, or with `skip_bad` left out and reported.
    Malformed Turtle, RDF/XML and damaged files are errors also then: no row is ever lost unreported.
    """
    if split not in SPLITS:
        raise TriplesError(f"no split is called {split!r}", remedy=f"one of {', '.join(SPLITS)}")
    if frames.is_table(source):
        name = "<array>" if isinstance(source, np.ndarray) else "<frame>"
        intake = Intake(name, options, "row", split=split, extra_if_named=extra_if_named)
        refuse_text_options(intake, "a table")
        frames.read_table(source, intake)
        return intake.result()
    if pykeen.is_factory(source):
        intake = Intake("<TriplesFactory>", options, "row", split=split)
        pykeen.read_factory(source, intake)
        return intake.result()
    if facts.is_facts(source):
        intake = Intake("<facts>", options, "row", split=split)
        facts.read_facts(source, intake)
        return intake.result()
    if options.format is None and isinstance(source, str | Path) and (folder := pykeen.find_factory(Path(source))):
        intake = Intake(str(folder), options, "row", split=split)
        pykeen.read_factory_folder(folder, intake)
        return intake.result()
    given = Source.of(source)  # type: ignore[arg-type]  # what is in memory was taken above
    form = _find_format(options.format, given)
    intake = Intake(given.name, options, form.unit, split=split, extra_if_named=extra_if_named)
    if not form.is_text:
        refuse_text_options(intake, form.extensions[0])
    form.read(given, intake)
    return intake.result()


def write_triples(
    frame: pl.DataFrame,
    target: str | Path,
    *,
    format: str | None = None,
    split: str = "train",
    literals: bool = False,
) -> None:
    """Facts to a file, which appears whole or not at all; the name says format and compression.

    The frame has the columns head, relation, tail and perhaps one more. Reading the file gives the same labels.
    An OpenKE folder takes one `split` at a time and keeps the ids it has. With `literals`, a tail that is a literal's
    N-Triples text becomes that literal in RDF, to be read with literals="keep"; else it is encoded like any label.
    """
    path = Path(target)
    if str(target) == STDIN:
        raise TriplesError("facts cannot be written to '-'", remedy="give the name of a file")
    form = _find_format(format, Source.of(path), writing=True)
    facts = _check_facts(frame, str(path))
    if form.is_folder:
        openke.write_openke(facts, path, split)
    elif form.has_literals:
        form.write(facts, path, literals=literals)
    else:
        form.write(facts, path)


def _find_format(name: str | None, source: Source, writing: bool = False) -> Format:
    if name is None:
        nameless = source.path is None and _extension(source.name) not in EXTENSIONS
        name = "tsv" if nameless else guess_format(source.name)
    if name not in FORMATS:
        raise TriplesError(f"no format is called {name!r}", remedy=f"one of {', '.join(FORMATS)}")
    form = FORMATS[name]
    if source.path is not None and source.path.is_dir() and not form.is_folder:
        verb = "written" if writing else "read"
        raise TriplesError(f"is a folder; {name} is {verb} as a file", where=source.name, remedy="give a file")
    return form


def _extension(path: str | Path) -> str:
    return Path(split_suffix(str(path))[0]).suffix.lower()


def _check_facts(frame: pl.DataFrame, target: str) -> pl.DataFrame:
    """The facts with head, relation, tail in front, all text, no label missing."""
    missing = [name for name in FACT if name not in frame.columns]
    if missing or not 3 <= frame.width <= 4:
        what = f"cannot write a frame with the columns {', '.join(map(repr, frame.columns))}"
        raise TriplesError(what, where=target, remedy="it needs head, relation, tail and at most one more")
    facts = frame.select(*FACT, *(name for name in frame.columns if name not in FACT)).cast(pl.String)
    if not len(facts):
        raise TriplesError("there are no facts to write", where=target, remedy="give at least one")
    bad = (~find_sound(facts)).arg_true()
    if len(bad):
        row = int(bad[0]) + 1
        what = f"row {row} has a label that is empty or has a NUL character"
        raise TriplesError(what, where=target, remedy="give each fact three labels")
    return facts
