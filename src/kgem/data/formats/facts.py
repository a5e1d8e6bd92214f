"""Facts as Python has them: a list or an iterator of (head, relation, tail), an RDF graph of rdflib or pyoxigraph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeGuard

import polars as pl
import pyoxigraph as ox

from kgem.data.formats.rdf_terms import Labels
from kgem.data.names import NAMING, PREFIXES
from kgem.data.rows import Intake, Layout, Problem, choose, find_sound, width_reason, width_remedy
from kgem.errors import TriplesError

__all__ = ["is_facts", "read_facts"]

BLOCK = 1 << 17  # facts that are made into a frame at a time
OX_TERMS = (ox.NamedNode, ox.BlankNode, ox.Literal)
Row = Sequence[Any]


def is_facts(given: Any) -> TypeGuard[Iterable[Any]]:
    """Whether read_facts takes it: anything to iterate over that is neither text, nor a stream, nor a mapping."""
    return isinstance(given, Iterable) and not (
        isinstance(given, str | bytes | bytearray | Mapping) or hasattr(given, "read")
    )


def read_facts(facts: Iterable[Any], intake: Intake) -> None:
    """Each item is a row of labels: text, numbers, RDF terms, or anything whose str() is its label; None is missing.

    Literals are names, dropped, or kept as in RDF files, and of an RDF graph's quads the graph is left out.
    """
    rest, done, layout = iter(facts), 0, None
    _take_prefixes(facts, intake)
    whole = hasattr(facts, "quads") or hasattr(facts, "quads_for_pattern")  # rdflib's Dataset, pyoxigraph's Store
    labels = Labels(renumber=False)
    while block := [_row(item, done + i, whole, intake) for i, item in enumerate(islice(rest, BLOCK), 1)]:
        if layout is None:
            usual = Counter(map(len, block)).most_common(1)[0][0]
            layout = choose(usual, None, intake, intake.source)
        _take(block, done, layout, labels, intake)
        done += len(block)


def _take_prefixes(facts: Iterable[Any], intake: Intake) -> None:
    """Mutates the intake: those that an RDF graph has bound, and those that everybody knows."""
    if hasattr(facts, "namespaces"):  # rdflib
        own = {str(prefix): str(iri) for prefix, iri in facts.namespaces() if prefix and iri}
        intake.names.prefixes.update({**_unbound(own), **own})
    elif isinstance(facts, ox.Store):
        intake.names.prefixes.update(PREFIXES)


def _unbound(own: Mapping[str, str]) -> dict[str, str]:
    bound = set(own.values())
    return {prefix: iri for prefix, iri in PREFIXES.items() if iri not in bound}


def _row(item: Any, number: int, whole: bool, intake: Intake) -> Row:
    if isinstance(item, str | bytes | Mapping) or not isinstance(item, Iterable):
        what = f"{item!r} is {type(item).__name__}, not a fact"
        remedy = "give facts as a list of tuples: [(head, relation, tail), ...]"
        raise TriplesError(what, where=f"{intake.source}, row {number}", remedy=remedy)
    row = item if isinstance(item, tuple | list) else tuple(item)
    return row[:3] if whole or isinstance(item, ox.Quad) else row


def _take(block: Sequence[Row], before: int, layout: Layout, labels: Labels, intake: Intake) -> None:
    """Hand over the rows that are facts and reject the others."""
    fits = [len(row) == layout.width for row in block]
    rows = block if all(fits) else [row for row, fit in zip(block, fits, strict=True) if fit]
    columns = [[_label(row[place], labels, intake) for row in rows] for place in layout.places]
    numbers = [before + i for i, fit in enumerate(fits, 1) if fit]
    try:
        series = [pl.Series(name, column, dtype=pl.String) for name, column in zip(layout.names, columns, strict=True)]
        frame = pl.DataFrame([*series, pl.Series("_row", numbers, dtype=pl.Int64)])
    except (UnicodeEncodeError, pl.exceptions.PolarsError) as error:
        what, remedy = f"labels that are not text: {error}", "give labels that UTF-8 can hold"
        raise TriplesError(what, where=intake.source, remedy=remedy) from error
    if intake.options.literals == "drop":
        tails = [row[layout.places[2]] for row in rows]
        is_literal = pl.Series([_is_literal(tail) for tail in tails], dtype=pl.Boolean)
        for i in is_literal.arg_true():
            _take_literal(columns[0][i], columns[1][i], tails[i], intake)
        frame = frame.filter(~is_literal)
    good = find_sound(frame)
    bad = frame.filter(~good)
    problems = sorted([*_wrong_widths(block, fits, before, layout), *_empty(bad)], key=lambda problem: problem.line)
    intake.reject(problems, len(problems))
    intake.keep(frame.filter(good).drop("_row"))


def _wrong_widths(block: Sequence[Row], fits: Sequence[bool], before: int, layout: Layout) -> Iterator[Problem]:
    for i, (row, fit) in enumerate(zip(block, fits, strict=True), 1):
        if not fit:
            reason, remedy = width_reason(len(row), layout.width), width_remedy(len(row), layout.width)
            yield Problem(before + i, reason, remedy)


def _empty(bad: pl.DataFrame) -> Iterator[Problem]:
    for row in bad.iter_rows(named=True):
        missing = [name for name in ("head", "relation", "tail") if not row[name]]
        if missing:
            yield Problem(row["_row"], f"the {missing[0]} is empty", "give it a label")
        else:
            yield Problem(row["_row"], "a label with a NUL character", "labels cannot hold one")


def _is_literal(term: Any) -> bool:
    """A literal of pyoxigraph, or of rdflib, which need not be installed."""
    return isinstance(term, ox.Literal) or (hasattr(term, "n3") and hasattr(term, "datatype"))


def _take_literal(head: str | None, relation: str | None, literal: Any, intake: Intake) -> None:
    """Mutates the intake: a literal that is a name, or one that is dropped."""
    if head and relation in NAMING:
        text = literal.value if isinstance(literal, ox.Literal) else str(literal)
        intake.names.take(head, text, literal.language or None, relation)
    else:
        intake.literals_dropped += 1


def _label(term: Any, labels: Labels, intake: Intake) -> str | None:
    """What a term is called; None if there is none."""
    if type(term) is str or term is None:
        return term
    if isinstance(term, OX_TERMS):
        return labels(term)
    if hasattr(term, "n3"):
        return _rdflib_label(term)
    if isinstance(term, bytes):
        return term.decode("utf-8", errors="replace")
    if isinstance(term, float) and term != term:
        return None  # how pandas and numpy say that there is none
    if isinstance(term, list | tuple | dict | set):
        what, remedy = f"{term!r} is {type(term).__name__}, not a label", "give labels as text"
        raise TriplesError(what, where=intake.source, remedy=remedy)
    return str(term)


def _rdflib_label(term: Any) -> str:
    """As reading the same graph from a file would give it."""
    if _is_literal(term):
        datatype = None if term.datatype is None or term.language else ox.NamedNode(str(term.datatype))
        return str(ox.Literal(str(term), datatype=datatype, language=term.language or None))
    return f"_:{term}" if type(term).__name__ == "BNode" else str(term)
