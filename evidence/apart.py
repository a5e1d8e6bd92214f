"""What re-training owes to its start at the means of q, and what to the learned strengths.

The same fit as far as each of four ways goes: ended after pre-training; re-trained with a shared strength from random
tables; with a shared strength from the means of q; and as it is, with learned strengths from the means of q. All that
re-train have the same falling rate, and a race of four candidates: the fit of mixes, the controls of multiples of the
shared strength that pre-training settled on, so that none is held to a scale that happens not to suit it.

Re-training is judged by the blend, and from random tables that may choose a model that is of no use alone. So the model
alone is held against ordinary training, which differs in its constant rate as well, and the blend against the blend
that random tables lead to.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from evidence.cells import differing_settings
from evidence.documents import Document
from evidence.naming import about
from evidence.origin import evidence
from evidence.rows import Key, kept_figures
from evidence.tables import Table, gain, mean_and_spread
from kgem.errors import InputError

__all__ = ["CONTROLS", "KIND", "apart_document", "apart_table", "groups", "setting_words"]

KIND = "kgem-apart"
MODES = {"point": "re-trained model alone", "blend": "blend with the means of q"}
ORDINARY, FRESH, WARM, FIT = "ordinary", "fresh", "warm", "fit"
BEFORE = {"point": ORDINARY, "blend": FRESH}  # by mode, what started from random tables
COST = ("run", "epochs", "seconds", "machine")  # of a control, which has no file of its own
_SHARED = {"retrain.candidates": [[0, 1], [0, 0.3], [0, 3], [0, 10]], "retrain.fall_back": False}
CONTROLS: dict[str, dict[str, Any]] = {
    ORDINARY: {"em.epochs": 0, "retrain.epochs": 0, "retrain.candidates": [[1, 0]]},
    FRESH: {**_SHARED, "retrain.start": "fresh"},
    WARM: _SHARED,
}

Group = tuple[list[Document], dict[str, list[Document]]]  # fits, and by arm their controls in the same order


def setting_words(arm: str) -> list[str]:
    """What makes a fit a control, as it is written after --set."""
    return [f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in CONTROLS[arm].items()]


def groups(fits: Iterable[Document], arms: Mapping[str, Mapping[str, Document]]) -> Iterator[Group]:
    """Fits of one graph, model and dimension that have all their controls; these are found by the name of the fit."""
    found: dict[Key, list[Document]] = {}
    for fit in sorted(fits, key=lambda each: int(each["seed"])):
        if all(fit["name"] in arm for arm in arms.values()):
            found.setdefault((fit["graph"], fit["model"], fit["dim"]), []).append(fit)
    for group in found.values():
        yield group, {arm: [cells[fit["name"]] for fit in group] for arm, cells in arms.items()}


def apart_document(
    fits: Sequence[Document], controls: Mapping[str, Sequence[Document]], command: str
) -> dict[str, Any]:
    """The JSON of one graph, model and dimension; the controls have the seeds of the fits, in their order."""
    for arm, cells in controls.items():
        for fit, control in zip(fits, cells, strict=True):
            _check(fit, control, arm)
    content = {
        "seeds": [fit["seed"] for fit in fits],
        "settings": {arm: setting_words(arm) for arm in CONTROLS},
        **{arm: [_kept(each, arm) for each in cells] for arm, cells in {**controls, FIT: fits}.items()},
        "made": [{key: each[key] for key in COST} for cells in controls.values() for each in cells],
    }
    return evidence(KIND, fits[0], command, content)


def _check(fit: Document, control: Document, arm: str) -> None:
    """A control must be the same fit but for what makes it one."""
    config = copy.deepcopy(fit["config"])
    for name, value in CONTROLS[arm].items():
        section, _, key = name.partition(".")
        config[section][key] = value
    differing = differing_settings({**fit, "config": config}, control)
    differing += ["facts"] if fit["facts"]["hash"] != control["facts"]["hash"] else []
    if differing:
        what = f"{fit['name']} and its control {arm!r} differ in {', '.join(differing)}"
        remedy = f"give the settings of the fit ({fit['command']}), and --force if the control is the older one"
        raise InputError(what, where=control["run"], remedy=remedy)


def _kept(cell: Document, arm: str) -> dict[str, Any]:
    """Of a cell what is compared."""
    modes = [mode for mode, before in BEFORE.items() if arm in (before, WARM, FIT)]
    return {"seed": cell["seed"], "mix": cell.get("mix"), **{mode: kept_figures(cell, mode) for mode in modes}}


def apart_table(documents: Iterable[Document]) -> Table:
    """Two rows per graph: the re-trained model alone, and in the blend."""
    lines: list[list[str]] = []
    bold: set[tuple[int, int]] = set()
    for document in documents:
        name, seeds = about(document), ", ".join(map(str, document["seeds"]))
        scales = ", ".join(f"{each['mix'][1]:g}" for each in document[WARM])
        for mode, words in MODES.items():
            arms = (BEFORE[mode], WARM, FIT)
            before, warm, fit = ([each[mode]["test"]["mrr"] for each in document[arm]] for arm in arms)
            gains = [gain(before, warm), gain(warm, fit)]
            bold |= {(len(lines), place) for place, (_, clear) in enumerate(gains, 7) if clear}
            figures = map(mean_and_spread, (before, warm, fit))
            lines.append([name, words, seeds, *figures, scales, *(told for told, _ in gains)])
            name = seeds = scales = ""
    columns = ["graph and model", "asked", "seeds", "shared strength, from random tables"]
    columns += ["shared strength, from the means of q", "learned strengths, from the means of q (the fit)"]
    columns += ["multiples", "the start brings", "the strengths bring"]
    note = (
        "Test MRR. From random tables: for the model alone the fit's own pre-training, with a constant rate and judged "
        "by itself; for the blend a model that is re-trained as the others are, with a falling rate and judged by the "
        "blend. The multiples of pre-training's shared strength, by seed, are those that the race took with it from "
        "the means of q. The last columns are means over seeds of differences between fits of one seed, with their "
        "95 % interval (Student's t), bold where it excludes zero."
    )
    return Table("What re-training owes to what", columns, lines, 2, frozenset(bold), [note])
