"""Labels and RDF terms: what an IRI, a blank node or a literal is called, and how any label is written.

An IRI is its own label, a blank node is `_:id`, a literal is its N-Triples text, as in `"1"^^<...>`. Labels that are
no IRI are written percent-encoded under `urn:kgem:` and come back as they were (so are those of literals, unless the
caller wants literals); `~r` at the end of such an IRI is dropped in reading (RDF/XML wants names of properties to end
with a letter).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote

import pyoxigraph as ox

__all__ = ["BASE", "Labels", "decode", "entity", "graph", "literal", "relation"]

BASE = "urn:kgem:"
_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_NOT_PROPERTIES = re.compile(
    r"RDF|ID|about|aboutEach|aboutEachPrefix|bagID|parseType|resource|nodeID|datatype|Description|li"
)
_XML_NAME = re.compile(r"[^A-Za-z0-9_.-][A-Za-z_][A-Za-z0-9_.-]*\Z")
_NOT_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # cannot be, or does not stay, in XML
# The ids that the parser makes up for nodes without one, at random, and those that we put in their place.
_MADE_UP = re.compile(r"[a-f][0-9a-f]{27,31}|kgem\d+")
_PLAIN_NODE = re.compile(r"_:([A-Za-z][A-Za-z0-9]*)")


class Labels:
    """Terms to labels; nodes without an id are numbered in order of appearance, so that reading is repeatable."""

    def __init__(self, renumber: bool) -> None:
        self._renumber = renumber
        self._numbers: dict[str, str] = {}

    def __call__(self, term: Any) -> str:
        if isinstance(term, ox.NamedNode):
            value: str = term.value
            return decode(value) if value.startswith(BASE) else value
        if isinstance(term, ox.BlankNode):
            if self._renumber and _MADE_UP.fullmatch(term.value):
                return self._numbers.setdefault(term.value, f"_:kgem{len(self._numbers) + 1}")
            return f"_:{term.value}"
        return "" if isinstance(term, ox.DefaultGraph) else str(term)


@lru_cache(maxsize=1 << 18)  # each label comes up many times
def decode(iri: str) -> str:
    """The label of an IRI under our base."""
    try:
        return unquote(iri.removeprefix(BASE).removesuffix("~r"), errors="strict")
    except UnicodeDecodeError:
        return iri  # not one that we wrote


def _encode(label: str) -> str:
    return BASE + quote(label, safe="").replace("~", "%7E")


def _iri(label: str) -> Any | None:
    if label.startswith(BASE):
        return None
    try:
        return ox.NamedNode(label)
    except ValueError:
        return None


def entity(label: str) -> Any:
    """The term for a head or a tail: blank node, IRI, or the label encoded as one."""
    node = _PLAIN_NODE.fullmatch(label)
    if node and not _MADE_UP.fullmatch(node[1]):
        return ox.BlankNode(node[1])
    return _iri(label) or ox.NamedNode(_encode(label))


def literal(label: str, xml: bool) -> Any | None:
    """The literal whose label this is, or None: reading gives exactly this label back, or it is none."""
    if not label.startswith('"'):
        return None
    try:
        (quad,) = ox.parse(input=f"<a:a> <a:a> {label} .".encode(), format=ox.RdfFormat.N_TRIPLES)
    except (SyntaxError, ValueError):
        return None
    term = quad.object
    if not isinstance(term, ox.Literal) or str(term) != label:
        return None
    return None if xml and _NOT_XML.search(term.value) else term


def relation(label: str, xml: bool) -> Any:
    """The term for a relation; in XML it must end with a name, and RDF keeps some names to itself."""
    iri = _iri(label)
    if not xml:
        return iri or ox.NamedNode(_encode(label))
    reserved = label.startswith(_RDF) and _NOT_PROPERTIES.fullmatch(label[len(_RDF) :])
    if iri and _XML_NAME.search(label) and not reserved:
        return iri
    encoded = _encode(label)
    return ox.NamedNode(encoded if _XML_NAME.search(encoded) else encoded + "~r")


def graph(label: str | None) -> Any:
    """The term for the graph of a quad; no label is the default graph."""
    return entity(label) if label else ox.DefaultGraph()
