"""Facts as RDF: N-Triples, N-Quads, Turtle and RDF/XML.

The graph of an N-Quads statement is its fourth column: it has to be named to be kept, or it is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any, cast
from xml.parsers import expat

import polars as pl
import pyoxigraph as ox

from kgem.data.formats.pages import BOM, read_pages
from kgem.data.formats.quoting import Page
from kgem.data.formats.rdf_terms import BASE, Labels, decode, entity, graph, literal, relation
from kgem.data.names import NAMING, PREFIXES
from kgem.data.options import FACT
from kgem.data.rows import Intake, Problem
from kgem.data.streams import Source, write_to
from kgem.errors import TriplesError

__all__ = ["read_nq", "read_nt", "read_rdf", "read_ttl", "write_nq", "write_nt", "write_rdf", "write_ttl"]

BATCH = 100_000
NESTED = 1000  # statements within statements left to the parser, whose stack overflows at some thousands
LONGEST_ENTITY = 1 << 16  # characters that an entity of XML may stand for; the parser expands those of entities at once
_LITERAL = re.compile(rb'"(?:[^"\\]|\\.)*"')
_REFERENCE = re.compile(r"&([^;#&]+);")
_POSITION = re.compile(r"^Parser error (?:at|between) .*?: ", re.DOTALL)


class _Batch:
    """Statements on their way into the intake."""

    def __init__(self, intake: Intake, renumber: bool = False) -> None:
        self._intake = intake
        self._labels = Labels(renumber)
        self._width = len(intake.options.names)
        self._rows: list[tuple[str, ...]] = []

    def add(self, quads: Iterable[Any]) -> None:
        """Statements without fault; literals are names, dropped, or kept as the options say."""
        label, width = self._labels, self._width
        drop, names = self._intake.options.literals == "drop", self._intake.names
        for quad in quads:
            if drop and isinstance(quad.object, ox.Literal):
                naming = quad.predicate.value
                if naming in NAMING:
                    names.take(label(quad.subject), quad.object.value, quad.object.language, naming)
                else:
                    self._intake.literals_dropped += 1
            else:
                self._rows.append(tuple(map(label, tuple(quad)[:3] if width == 3 else quad)))
        if len(self._rows) >= BATCH:
            self.flush()

    def fault(self, quad: Any) -> str | None:
        """Why a statement is not a fact."""
        if isinstance(quad.object, ox.Triple):
            return "a statement about a statement (RDF 1.2)"
        if self._width == 3 and not isinstance(quad.graph_name, ox.DefaultGraph):
            return f"a named graph, {quad.graph_name}, which would be lost"
        # Only an IRI under our base can be an empty label, or one with a NUL in it.
        ours = (decode(term.value) for term in quad if isinstance(term, ox.NamedNode) and term.value.startswith(BASE))
        if not all(label and "\0" not in label for label in ours):
            return "a label that is empty or has a NUL character"
        return None

    def flush(self) -> None:
        """Hand over what was gathered."""
        if self._rows:
            names = self._intake.options.names
            self._intake.keep(pl.DataFrame(self._rows, schema=dict.fromkeys(names, pl.String), orient="row"))
            self._rows = []


def _remedy(reason: str) -> str:
    if "named graph" in reason:
        return "name the fourth column to keep it: extra='graph' (--extra graph)"
    return "correct the statement"


def _refuse_columns(intake: Intake, allow_extra: bool = False) -> None:
    options = intake.options
    if options.header or options.columns or (options.extra and not allow_extra):
        what = "RDF has neither header, nor a choice of columns" + ("" if allow_extra else ", nor an extra one")
        raise TriplesError(what, where=intake.source, remedy="leave out these options")


def read_nt(source: Source, intake: Intake) -> None:
    """N-Triples: one statement a line."""
    _refuse_columns(intake)
    _read_lines(source, intake, ox.RdfFormat.N_TRIPLES)


def read_nq(source: Source, intake: Intake) -> None:
    """N-Quads: one statement a line, with the extra column for its graph ('' for the default graph)."""
    _refuse_columns(intake, allow_extra=True)
    _read_lines(source, intake, ox.RdfFormat.N_QUADS)


def _read_lines(source: Source, intake: Intake, form: Any) -> None:
    batch = _Batch(intake)
    intake.names.prefixes.update(PREFIXES)
    with source.open() as stream:
        for page in read_pages(stream, intake):
            for start in range(0, len(page.rows), 4096):
                _take_lines(page, start, min(start + 4096, len(page.rows)), batch, intake, form)
    batch.flush()


def _take_lines(page: Page, start: int, stop: int, batch: _Batch, intake: Intake, form: Any) -> None:
    """Many lines at once; if anything is wrong with them, one by one, to say which."""
    text = b"\n".join(page.rows[start:stop])
    try:
        if text.count(b"<<") <= NESTED:
            quads = list(ox.parse(input=text, format=form))
            if not any(map(batch.fault, quads)):
                return batch.add(quads)
    except SyntaxError:
        pass
    for row in range(start, stop):
        problem = None
        try:
            _bound_nesting(_LITERAL.sub(b"", page.rows[row]).count(b"<<"))
            quads = list(ox.parse(input=page.rows[row], format=form))
            reason = next(filter(None, map(batch.fault, quads)), None)
            if reason:
                problem = Problem(page.line(row), reason, _remedy(reason))
        except SyntaxError as error:
            problem = _syntax_problem(error, page.line(row))
        if problem:
            intake.reject([problem], 1)
        else:
            batch.add(quads)
    return None


def _bound_nesting(n: int) -> None:
    if n > NESTED:
        raise SyntaxError(f"more than {NESTED} '<<' in one statement")


def _syntax_problem(error: SyntaxError, line: int, column: int | None = None) -> Problem:
    what = _POSITION.sub("", error.msg).strip()
    return Problem(line, f"malformed RDF: {what}", "correct the statement", column or error.offset or 1)


class _Pieces:
    """A stream handed to the parser piece by piece, so that its place is known when something is wrong."""

    def __init__(self, stream: IO[bytes], end: bytes) -> None:
        self._pieces: Iterator[bytes] = self._split(stream, end)
        self.line, self.column = 1, 1  # where the piece handed over last begins, blanks aside
        self.nested = 0  # '<<' handed over; to be set back with each statement
        self._next = (1, 1)

    def _split(self, stream: IO[bytes], end: bytes) -> Iterator[bytes]:
        first = True
        while lines := stream.readlines(1 << 20):
            for line in lines:
                text = line.removeprefix(BOM) if first else line
                first = False
                parts = text.split(end)
                yield from (part + end for part in parts[:-1])
                if parts[-1]:
                    yield parts[-1]

    def read(self, size: int = -1) -> bytes:
        """One piece; an over-long one in several."""
        piece = next(self._pieces, b"")
        if 0 <= size < len(piece):
            self._pieces = chain([piece[size:]], self._pieces)
            piece = piece[:size]
        self.line, start = self._next
        self.column = start + len(piece) - len(piece.lstrip())
        self.nested += piece.count(b"<<")
        _bound_nesting(self.nested)
        newlines = piece.count(b"\n")
        self._next = (self.line + newlines, 1 if newlines else start + len(piece))
        return piece


class _CheckedXml(_Pieces):
    """RDF/XML on its way to the parser, which takes a document that is cut short: here that is an error."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(stream, b">")
        self._xml = expat.ParserCreate()
        self._xml.EntityDeclHandler = self._measure_entity
        self._lengths: dict[str, int] = {}  # of what an entity stands for
        self.empty = True

    def read(self, size: int = -1) -> bytes:
        """One piece, checked to be well-formed so far."""
        piece = super().read(size)
        self.empty = self.empty and not piece.strip()
        if not self.empty:
            self._xml.Parse(piece, not piece)
        return piece

    def _measure_entity(self, name: str, is_parameter: bool, value: str | None, *_: str | None) -> None:
        """An entity may be made of others that are made of others: a few lines can stand for more than memory holds."""
        inner = _REFERENCE.findall(value or "")
        self._lengths[name] = len(value or "") + sum(self._lengths.get(each, 0) for each in inner)
        if self._lengths[name] > LONGEST_ENTITY:
            raise SyntaxError(f"the entity {name!r} stands for more than {LONGEST_ENTITY:,} characters")


def read_ttl(source: Source, intake: Intake) -> None:
    """Turtle."""
    _refuse_columns(intake)
    with source.open() as stream:
        pieces = _Pieces(stream, b"\n")
        _read_stream(pieces, intake, ox.RdfFormat.TURTLE)


def read_rdf(source: Source, intake: Intake) -> None:
    """RDF/XML."""
    _refuse_columns(intake)
    with source.open() as stream:
        pieces = _CheckedXml(stream)
        try:
            _read_stream(pieces, intake, ox.RdfFormat.RDF_XML)
        except expat.ExpatError as error:
            what = f"malformed XML: {expat.errors.messages[error.code]}"
            problem = Problem(error.lineno, what, "correct the file", error.offset + 1)
            raise intake.error(problem, may_skip=False) from error


def _read_stream(pieces: _Pieces, intake: Intake, form: Any) -> None:
    """Statement by statement; bad syntax is an error also when bad rows are to be skipped.

    Going on after it would lose sound statements unreported: an open quote swallows all that follow.
    """
    batch = _Batch(intake, renumber=True)
    try:
        parser = ox.parse(input=cast("IO[bytes]", pieces), format=form)
        for quad in parser:
            pieces.nested = 0
            reason = batch.fault(quad)
            if reason:
                intake.reject([Problem(pieces.line, reason, _remedy(reason), pieces.column)], 1)
            else:
                batch.add((quad,))
    except SyntaxError as error:
        column = None if error.lineno else pieces.column
        problem = _syntax_problem(error, error.lineno or pieces.line, column)
        advice = f"{problem.remedy}; only in N-Triples and N-Quads can bad statements be skipped"
        raise intake.error(replace(problem, remedy=advice), may_skip=False) from error
    batch.flush()
    own = {prefix: iri for prefix, iri in parser.prefixes.items() if iri}
    known = {prefix: iri for prefix, iri in PREFIXES.items() if iri not in own.values()}
    intake.names.prefixes.update({**known, **own})


def _write(form: Any, frame: pl.DataFrame, target: Path, literals: bool = False) -> None:
    """All facts; with `literals`, a tail whose label is that of a literal becomes one."""
    if frame.width > len(FACT) and form != ox.RdfFormat.N_QUADS:
        what, remedy = f"{form.name} cannot hold an extra column", "leave it out, or write N-Quads, TSV, CSV or Parquet"
        raise TriplesError(what, where=str(target), remedy=remedy)
    xml = form == ox.RdfFormat.RDF_XML
    entities = {label: entity(label) for label in pl.concat([frame["head"], frame["tail"]]).unique()}
    objects = entities
    if literals:
        objects = {label: literal(label, xml) or entities[label] for label in frame["tail"].unique()}
    relations = {label: relation(label, xml) for label in frame["relation"].unique()}
    graphs = {label: graph(label) for column in frame.columns[3:] for label in frame[column].unique()}
    rows = frame.iter_rows()
    if graphs:
        quads = (ox.Quad(entities[h], relations[r], objects[t], graphs[g]) for h, r, t, g in rows)
    else:
        quads = (ox.Quad(entities[h], relations[r], objects[t]) for h, r, t in rows)
    with write_to(target) as stream:
        ox.serialize(quads, output=stream, format=form)


write_nt = partial(_write, ox.RdfFormat.N_TRIPLES)
write_nq = partial(_write, ox.RdfFormat.N_QUADS)  # an extra column is the graph
write_ttl = partial(_write, ox.RdfFormat.TURTLE)
write_rdf = partial(_write, ox.RdfFormat.RDF_XML)
