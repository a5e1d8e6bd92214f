"""What a fit settled on by itself: tempering, shared strength and mix, in its cell and in a table."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evidence.cells import read_cells
from evidence.documents import Document, write_json
from evidence.naming import model_name
from evidence.tables import Table
from kgem.answer import artifact
from kgem.errors import KgemError
from kgem.files.store import read_store

__all__ = ["SETTLED", "complete", "settled_of", "settled_table"]

# beta: the tempering of EM as it ended. shared: the multiple of pretrain.strength that pre-training chose.
# mix: the (a, c) of re-training, whose strengths are a * learned + c * shared * pretrain.strength * n.
SETTLED = ("beta", "shared", "mix")

LOG = logging.getLogger(__name__)


def settled_of(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """What a model says that its fit settled on."""
    return {name: provenance[name] for name in SETTLED if name in provenance}


def complete(results: Path) -> list[str]:
    """Mutates the folder: fits' cells that do not say it all get it from their runs, if these are there; their names.

    A run that is not the one that was measured (other epochs or another time) says nothing about the cell.
    """
    done = []
    for document in read_cells(results):
        if document["variant"] != "em" or all(name in document for name in SETTLED):
            continue
        provenance = _provenance(Path(document["run"]))
        if all(provenance.get(name) == document[name] for name in ("epochs", "seconds")):
            write_json(results / f"{document['name']}.json", document | settled_of(provenance))
            done.append(document["name"])
    return done


def _provenance(run: Path) -> Mapping[str, Any]:
    """Of the model in a run folder; empty if there is none that can be read."""
    if not run.is_dir():
        return {}
    try:
        store = read_store(artifact.find_model(run), kind=artifact.KIND, version=artifact.VERSION)
    except KgemError as error:
        LOG.warning("%s", error.message)
        return {}
    found: Mapping[str, Any] = store.documents["model"]["provenance"]
    return found


def settled_table(documents: Sequence[Document]) -> Table | None:
    """A row per fit that says it; None without any."""
    fits = [each for each in documents if each["variant"] == "em" and all(name in each for name in SETTLED)]
    lines = []
    for fit in sorted(fits, key=lambda each: (each["graph"], each["model"], each["dim"], each["seed"])):
        strength = fit["config"]["pretrain"]["strength"]
        figures = [f"{fit['beta']:.3g}", f"{fit['shared']:.3g} x {strength:.3g}", *(f"{each:g}" for each in fit["mix"])]
        collapses = sum(event["event"] == "collapse" for event in fit["events"])
        what = [fit["graph"], model_name(fit["model"]), str(fit["dim"]), str(fit["seed"])]
        lines.append([*what, *figures, fit["mode"], str(collapses)])
    columns = ["graph", "model", "K", "seed", "beta", "shared strength", "a", "c", "auto", "collapses"]
    notes = [
        "What every fit chose by itself. beta: the weight of prior and entropy in EM (1 is the paper). Shared "
        "strength: the multiple that the race of pre-training chose, times the first guess. Re-training had the "
        "strengths a * learned + c * shared strength * n; a = 1, c = 0 is the paper, and a = 0, c = 1 says that the "
        "pre-trained tables were better and were kept. auto: the mode it chose.",
    ]
    return Table("What the fits settled on", columns, lines, 2, frozenset(), notes) if lines else None
