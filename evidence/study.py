"""The form of all studies: select cells, measure, and show what was found in tables and a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evidence.documents import Document, about, describe, stem
from evidence.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from kgem.answer.model import Model


Group = Mapping[str, Sequence[Document]]  # the cells of one document, by their part in the study
Load = Callable[[Document], "Model"]  # the model of a cell


@dataclass(frozen=True)
class Study:
    """A question that is asked of cells; each graph, model and dimension gets a JSON file."""

    name: str  # of its command and its page
    folder: str  # of its JSON files under results/
    kind: str  # of these files
    asks: str
    needs: str  # what a graph must have
    variants: tuple[str, ...]  # of the cells that it looks at
    select: Callable[[Sequence[Document]], Iterable[Group]]
    measure: Callable[[Group, Load], dict[str, Any]]
    tables: tuple[Callable[[Sequence[Document]], Table], ...]
    draw: Callable[[Document], Figure] | None = None  # the picture of a document
    shows: str = ""  # what is in the picture

    def documents(self, cells: Sequence[Document], load: Load, command: str) -> Iterator[dict[str, Any]]:
        """The JSON of each group of cells."""
        for group in self.select(cells):
            used = {cell["name"]: cell for cells in group.values() for cell in cells}
            first = next(iter(used.values()))
            yield {
                **describe(self.kind, command),
                "name": stem(first),
                **{key: first[key] for key in ("graph", "model", "dim")},
                **self.measure(group, load),
                "sources": [{"cell": name} for name in used],
            }

    def picture_name(self, document: Document) -> str:
        """The file of its picture."""
        return f"results-{self.name}-{document['name']}.svg"

    def picture_link(self, document: Document) -> str:
        """As docs/results.md shows it."""
        return f"![{about(document)}: {self.shows}](images/{self.picture_name(document)})"
