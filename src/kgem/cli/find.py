"""`kgem find`: entities and relations by what their labels and names have in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kgem.cli import reading
from kgem.cli.arguments import AsCsv, AsJson, Force, Out
from kgem.cli.console import emit, heading, plain, say, table
from kgem.cli.destination import Destination
from kgem.cli.opening import open_model
from kgem.cli.progress import Progress
from kgem.errors import InputError
from kgem.report.formatting import pluralise

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from kgem.data.dataset import Dataset, Vocabulary

COLUMNS = ("kind", "label", "name", "frequency")
NEAR = 5  # labels told that are alike, where none has the text in it


@reading.with_options
def find(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="The folder of a run or of a saved model; also a graph as for fit.")
    ],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What the label or the name has in it.")],
    top: Annotated[int, typer.Option(min=1, help="How many of each kind to list.")] = 20,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    out: Out = None,
    force: Force = False,
    *,
    how: reading.ReadOptions,
) -> None:
    """Find entities and relations by a part of their label or name, the most frequent first.

    Case and accents do not count. What has just this label or name comes before all others.
    """
    destination = Destination(as_json, as_csv, out, force)
    data = _open(run, how)
    groups = {
        "entities": (data.entities, data.entity_counts),
        "relations": (data.relations, data.relation_counts),
    }
    with Progress("looking for labels"):
        found = {kind: _search(*each, text, top) for kind, each in groups.items()}
    rows = [row for _, part, _ in found.values() for row in part]
    if not destination.is_table:
        document = {kind: {"total": total, "found": part} for kind, (total, part, _) in found.items()}
        destination.write({"text": text, **document}, rows, COLUMNS)
        return
    shown = False
    for kind, (total, part, _) in found.items():
        if part:
            emit(heading(f"{total:,} {kind if total > 1 else part[0]['kind']} with {text!r} in the label", space=shown))
            emit(table([kind, "facts"], [(data.names.show(row["label"]), row["frequency"]) for row in part]))
            shown = True
        if total > len(part):
            one = part[0]["kind"]
            say(f"and {pluralise(total - len(part), f'more {one}', f'more {kind}')}: --top {total} lists all")
    if not rows:
        near = [data.names.show(label) for _, _, alike in found.values() for label in alike]
        hint = f"did you mean {', '.join(map(repr, near))}?" if near else "a shorter part of it may find more"
        raise InputError(f"no label of {plain(data.name)} has {text!r} in it", remedy=plain(hint))


def _open(run: str, how: reading.ReadOptions) -> Dataset:
    """The graph of a run or a model; else what a graph is called or where it is."""
    folder = Path(run).expanduser()
    if folder.is_dir() and not _holds_facts(folder):
        return open_model(folder).data
    return reading.load(run, how, quiet=True)


def _holds_facts(folder: Path) -> bool:
    from kgem.files.store import is_store
    from kgem.runs.run import is_run

    return not is_run(folder) and not is_store(folder) and not (folder / "model").is_dir()


def _search(
    vocabulary: Vocabulary, counts: npt.NDArray[np.int64], text: str, top: int
) -> tuple[int, list[dict[str, Any]], list[str]]:
    """How many match, the first of them, and, if there is none, labels that are alike."""
    from kgem.answer.labels import LabelSearch

    search = LabelSearch.of(vocabulary, counts)
    total, ids = search.find(text, top, by_frequency=True)
    return total, list(_describe(vocabulary, counts, ids)), [] if total else search.near(text, NEAR)


def _describe(vocabulary: Vocabulary, counts: Any, ids: Any) -> Iterator[dict[str, Any]]:
    for i in ids.tolist():
        label = vocabulary[i]
        name = vocabulary.names.by_label.get(label)
        yield {"kind": vocabulary.kind, "label": label, "name": name, "frequency": int(counts[i])}
