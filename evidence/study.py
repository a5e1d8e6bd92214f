"""The form of all studies: select cells, measure, and show what was found in tables and pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evidence.documents import VERSION, Document
from evidence.naming import about, stem
from evidence.provenance import now, versions
from evidence.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from kgem.answer.model import Model


Group = Mapping[str, Sequence[Document]]  # the cells of one document, by their part in the study
Load = Callable[[Document], "Model"]  # the model of a cell
OnMeasuring = Callable[[str, int, int], None]  # hears what is measured, and how far that is


@dataclass(frozen=True)
class Picture:
    """One of each document of a study."""

    name: str  # of its file, before the name of the document
    suffix: str
    shows: str
    draw: Callable[[Document], Figure]

    def file(self, document: Document) -> str:
        return f"results-{self.name}-{document['name']}{self.suffix}"

    def markdown(self, document: Document, images: str) -> str:
        """The link to it; `images` is the folder, as the page sees it."""
        seed = f", seed {document['seed']}" if "seed" in document else ""
        return f"![{about(document)}{seed}: {self.shows}]({images}/{self.file(document)})\n"


@dataclass(frozen=True)
class Study:
    """A question that is asked of cells; each graph, model and dimension gets a JSON file."""

    name: str  # of its command and its page
    folder: str  # of its JSON files under results/
    kind: str  # of these files
    asks: str
    needs: str  # what a graph must have
    variants: tuple[str, ...]  # of the cells that it looks at
    makes: bool  # whether cells that are not there are made first
    select: Callable[[Sequence[Document]], Iterable[Group]]
    measure: Callable[[Group, Load, OnMeasuring], dict[str, Any]]
    tables: tuple[Callable[[Sequence[Document]], Table], ...]
    pictures: tuple[Picture, ...] = ()

    def documents(
        self, cells: Sequence[Document], load: Load, on_measuring: OnMeasuring, command: str = ""
    ) -> Iterator[dict[str, Any]]:
        """The JSON of each group of cells."""
        for group in self.select(cells):
            yield self._document(group, self.measure(group, load, on_measuring), command)

    def _document(self, group: Group, content: Mapping[str, Any], command: str) -> dict[str, Any]:
        used = {cell["name"]: cell for cells in group.values() for cell in cells}
        first = next(iter(used.values()))
        return {
            "kind": self.kind,
            "version": VERSION,
            "name": stem(first),
            "command": command,
            **{key: first[key] for key in ("graph", "model", "dim")},
            **content,
            "versions": versions(),
            "finished": now(),
            "sources": [{"cell": name} for name in used],
        }
