"""Entities and relations by what their labels and names have in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from kgem.answer.labels import LabelSearch
from kgem.data.dataset import Dataset
from kgem.errors import InputError
from kgem.tables import Rows

__all__ = ["Found", "FoundSymbols", "find_symbols"]


@dataclass(frozen=True, repr=False)
class Found:
    """A symbol whose label or name has the text in it."""

    kind: str  # entity or relation
    label: str
    name: str | None  # what people call it, if the graph says so
    frequency: int  # in training

    def __repr__(self) -> str:
        return f"<Found {self.kind} {self.label if self.name is None else f'{self.name} ({self.label})'}>"


class FoundSymbols(Rows[Found]):
    """The first of those that were found: entities, then relations, the most frequent of each first."""

    item, one = "symbols", "symbol"
    schema: ClassVar[Mapping[str, str]] = {"kind": "text", "label": "text", "name": "text", "frequency": "count"}

    def __init__(self, found: Sequence[Found], totals: Mapping[str, int], near: Sequence[str] = ()) -> None:
        super().__init__(found)
        self.totals = dict(totals)  # by kind: how many there are, listed or not
        self.near = tuple(near)  # labels that are alike, where none has the text in it

    def to_rows(self) -> Iterator[dict[str, Any]]:
        """One row for each symbol."""
        return map(asdict, self)

    def draw_rows(self) -> tuple[Sequence[str], Callable[[Found], Sequence[Any]]]:
        """With a column of names, which is empty where there are none."""
        return ("kind", "label", "name", "frequency"), lambda f: (f.kind, f.label, f.name, f.frequency)


def find_symbols(data: Dataset, text: str, top: int = 20, near: int = 5) -> FoundSymbols:
    """At most `top` entities and as many relations; what is called just so comes before all others.

    Case and accents do not count. Where nothing is found, `near` labels of each kind that are alike are told.
    """
    if top < 1:
        raise InputError(f"cannot list {top} symbols", remedy="ask for at least one")
    listed: list[Found] = []
    alike: list[str] = []
    totals: dict[str, int] = {}
    for vocabulary, counts in ((data.entities, data.entity_counts), (data.relations, data.relation_counts)):
        search = LabelSearch.of(vocabulary, counts)
        totals[vocabulary.kind], ids = search.find(text, top, by_frequency=True)
        for i in ids.tolist():
            name = vocabulary.names.by_label.get(vocabulary[i])
            listed.append(Found(vocabulary.kind, vocabulary[i], name, int(counts[i])))
        if not len(ids):
            alike += search.near(text, near)
    return FoundSymbols(listed, totals, () if listed else alike)
