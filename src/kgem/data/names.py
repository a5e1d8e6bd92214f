"""What people call symbols: names beside labels, and prefixes that shorten IRIs."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from kgem.errors import TriplesError

__all__ = ["NAMING", "NO_NAMES", "PREFIXES", "NameTaker", "Names", "read_names"]

NAMING = (  # properties whose literals are names, the best first
    "http://www.w3.org/2000/01/rdf-schema#label",
    "http://www.w3.org/2004/02/skos/core#prefLabel",
    "http://schema.org/name",
    "https://schema.org/name",
)
PREFIXES = {  # that everybody knows; a file's own come first
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "owl": "http://www.w3.org/2002/07/owl#",
    "skos": "http://www.w3.org/2004/02/skos/core#",
    "schema": "http://schema.org/",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "dc": "http://purl.org/dc/elements/1.1/",
    "dct": "http://purl.org/dc/terms/",
    "dbr": "http://dbpedia.org/resource/",
    "dbo": "http://dbpedia.org/ontology/",
    "dbp": "http://dbpedia.org/property/",
    "wd": "http://www.wikidata.org/entity/",
    "wdt": "http://www.wikidata.org/prop/direct/",
    "obo": "http://purl.obolibrary.org/obo/",
}
LONGEST = 200  # characters of a name; a description is none


@dataclass(frozen=True, eq=False)
class Names:
    """Names by label, and prefixes with what they stand for. A label without either is shown as it is."""

    by_label: Mapping[str, str] = field(default_factory=dict)
    prefixes: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.by_label or self.prefixes)

    @cached_property
    def _beginnings(self) -> list[tuple[str, str]]:
        """Beginnings of IRIs and their prefixes, the longest first."""
        return sorted(((iri, prefix) for prefix, iri in self.prefixes.items()), key=lambda pair: -len(pair[0]))

    def shorten(self, label: str) -> str:
        """An IRI with its prefix, as wd:Q64; anything else as it is."""
        for beginning, prefix in self._beginnings:
            if label.startswith(beginning) and len(label) > len(beginning):
                return f"{prefix}:{label[len(beginning) :]}"
        return label

    def expand(self, text: str) -> str | None:
        """The IRI that a prefix shortens; None where there is no such prefix."""
        prefix, colon, rest = text.partition(":")
        return self.prefixes[prefix] + rest if colon and prefix in self.prefixes else None

    def show(self, label: str) -> str:
        """A label for people: by its name, with the label beside it."""
        name, short = self.by_label.get(label), self.shorten(label)
        return short if name is None or name in (short, label) else f"{name} ({short})"

    def call(self, label: str) -> str:
        """The name alone, for where there is no room; what has none is shortened."""
        return self.by_label.get(label) or self.shorten(label)

    def extend(self, later: Names) -> Names:
        """These and further ones; what is named twice has its later name."""
        if not later:
            return self
        return Names({**self.by_label, **later.by_label}, {**self.prefixes, **later.prefixes})

    def keep(self, labels: Container[str]) -> Names:
        """Only the names of these labels."""
        kept = {label: name for label, name in self.by_label.items() if label in labels}
        return self if len(kept) == len(self.by_label) else Names(kept, self.prefixes)


NO_NAMES = Names(MappingProxyType({}), MappingProxyType({}))


class NameTaker:
    """Gathers names while a file is read: in English or without a language first, then by property, then the first."""

    def __init__(self) -> None:
        self.taken = 0
        self.prefixes: dict[str, str] = {}
        self._best: dict[str, tuple[tuple[bool, int], str]] = {}

    def take(self, label: str, name: str, language: str | None, naming: str) -> None:
        """Mutates: one more name; whether it is used depends on the others of this label."""
        self.taken += 1
        text = " ".join(name.split())
        foreign = language is not None and language.split("-")[0].lower() != "en"
        rank = foreign, NAMING.index(naming)
        if text and len(text) <= LONGEST and (label not in self._best or rank < self._best[label][0]):
            self._best[label] = rank, text

    def result(self) -> Names:
        return Names({label: name for label, (_, name) in self._best.items()}, self.prefixes)


def read_names(text: str, source: str) -> Names:
    """The names in the text of a file with id<TAB>name on each line."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        row = line.removesuffix("\r")
        if not row.strip():
            continue
        label, tab, name = row.partition("\t")
        further = "\t" in name.strip()  # as in a file of facts
        name = " ".join(name.split())
        if not tab or not label or not name or further:
            remedy = "write the id (the label in the graph), a tab, and the name"
            raise TriplesError("is not id<TAB>name", where=f"{source}:{number}", remedy=remedy)
        if found.get(label, name) != name:
            what = f"a second name of {label!r}: {name!r} after {found[label]!r}"
            raise TriplesError(what, where=f"{source}:{number}", remedy="keep one of them")
        found[label] = name
    if not found:
        raise TriplesError("there are no names in it", where=source, remedy="write one per line: id<TAB>name")
    return Names(found)
