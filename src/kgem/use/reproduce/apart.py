"""What re-training owes to its start at the means of q, and what to the learned strengths.

The same fit three times, equal up to the end of EM: re-trained with the shared strength of pre-training from random
tables; with that strength from the means of q; and as it is, with learned strengths from the means of q. All three have
the same falling rate, so that no difference between them is due to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kgem.errors import InputError
from kgem.use.reproduce.cells import differing_settings
from kgem.use.reproduce.documents import VERSION, Document
from kgem.use.reproduce.naming import about, stem
from kgem.use.reproduce.origin import now, versions
from kgem.use.reproduce.rows import kept_figures
from kgem.use.reproduce.tables import Table, mean_and_spread

__all__ = ["CONTROLS", "KIND", "apart_document", "apart_table"]

KIND = "kgem-apart"
MODES = {"point": "re-trained model alone", "blend": "blend with the means of q"}
FIT = "fit"
COST = ("run", "epochs", "seconds", "machine")  # of a control, which has no file of its own
_SHARED = ("retrain.candidates=[[0, 1]]", "retrain.fall_back=false")  # no learned strengths, and nothing else instead
CONTROLS = {"fresh": (*_SHARED, "retrain.start=fresh"), "warm": _SHARED}


def apart_document(
    fits: Sequence[Document], controls: Mapping[str, Sequence[Document]], command: str
) -> dict[str, Any]:
    """The JSON of one graph, model and dimension; the controls have the seeds of the fits, in their order."""
    for arm, cells in controls.items():
        for fit, control in zip(fits, cells, strict=True):
            _check(fit, control, arm)
    first = fits[0]
    return {
        "kind": KIND,
        "version": VERSION,
        "name": stem(first),
        "command": command,
        **{key: first[key] for key in ("graph", "model", "dim")},
        "seeds": [fit["seed"] for fit in fits],
        "settings": {name: list(changes) for name, changes in CONTROLS.items()},
        **{arm: [_kept(each) for each in cells] for arm, cells in {**controls, FIT: fits}.items()},
        "made": [{key: each[key] for key in COST} for cells in controls.values() for each in cells],
        "versions": versions(),
        "finished": now(),
    }


def _check(fit: Document, control: Document, arm: str) -> None:
    """A control must be the same fit but for what makes it one."""
    free = {change.split("=")[0] for changes in CONTROLS.values() for change in changes}
    differing = [name for name in differing_settings(fit, control) if name not in free]
    differing += ["facts"] if fit["facts"]["hash"] != control["facts"]["hash"] else []
    if differing:
        what = f"{fit['name']} and its control {arm!r} differ in {', '.join(differing)}"
        remedy = f"give the settings of the fit ({fit['command']}), and --force if the control is the older one"
        raise InputError(what, where=control["run"], remedy=remedy)


def _kept(cell: Document) -> dict[str, Any]:
    """Of a cell what is compared."""
    return {"seed": cell["seed"], **{mode: kept_figures(cell, mode) for mode in MODES}}


def apart_table(documents: Iterable[Document]) -> Table:
    """Two rows per graph: the re-trained model alone, and in the blend."""
    lines = []
    for document in documents:
        name = about(document)
        for mode, words in MODES.items():
            fresh, warm, fit = ([each[mode]["test"]["mrr"] for each in document[arm]] for arm in (*CONTROLS, FIT))
            gains = [
                mean_and_spread([one - other for one, other in zip(after, before, strict=True)], sign="+")
                for before, after in ((fresh, warm), (warm, fit))
            ]
            seeds = ", ".join(map(str, document["seeds"]))
            lines.append([name, words, seeds, *map(mean_and_spread, (fresh, warm, fit)), *gains])
            name = ""
    columns = ["graph and model", "asked", "seeds", "shared strength, from random tables"]
    columns += ["shared strength, from the means of q", "learned strengths, from the means of q (the fit)"]
    columns += ["the start brings", "the strengths bring"]
    note = (
        "Test MRR. The same fit, re-trained in three ways with the same falling rate. The last columns are means over "
        "seeds of differences between fits of one seed, ± their standard deviation."
    )
    return Table("What re-training owes to what", columns, lines, 2, frozenset(), [note])
