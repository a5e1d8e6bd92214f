"""`kgem find`: entities and relations by what their labels and names have in them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    from kgem.data.dataset import Dataset

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
    from kgem.answer.find import find_symbols

    destination = Destination(as_json, as_csv, out, force)
    data = _open(run, how)
    with Progress("looking for labels"):
        found = find_symbols(data, text, top, NEAR)
    kinds = {"entities": "entity", "relations": "relation"}
    if not destination.is_table:
        document = {
            kind: {"total": found.totals[one], "found": [asdict(each) for each in found if each.kind == one]}
            for kind, one in kinds.items()
        }
        destination.write({"text": text, **document}, list(found.to_rows()), COLUMNS)
        return
    shown = False
    for kind, one in kinds.items():
        part, total = [each for each in found if each.kind == one], found.totals[one]
        if part:
            emit(heading(f"{pluralise(total, one, kind)} with {text!r} in the label", space=shown))
            emit(table([kind, "facts"], [(data.names.show(each.label), each.frequency) for each in part]))
            shown = True
        if total > len(part):
            say(f"and {pluralise(total - len(part), f'more {one}', f'more {kind}')}: --top {total} lists all")
    if not found:
        near = [data.names.show(label) for label in found.near]
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
