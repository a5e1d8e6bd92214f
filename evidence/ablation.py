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

import json
from collections.abc import Iterable
from functools import partial
from typing import Any

from evidence.cells import VARIANTS, differing_settings
from evidence.documents import Document, about
from evidence.rows import kept_figures, side_by_side
from evidence.study import Group, Load, Study
from evidence.tables import Table, gain, mean_and_spread
from kgem.errors import InputError

MODES = {"point": "re-trained model alone", "blend": "blend with the means of q"}
FIT, ORDINARY, FRESH, WARM = "fit", "ordinary", "fresh", "warm"
CONTROLS = (ORDINARY, FRESH, WARM)
BEFORE = {"point": ORDINARY, "blend": FRESH}  # by mode, what started from random tables


def measure(group: Group, load: Load) -> dict[str, Any]:
    """The figures of the fits and of their controls."""
    for arm in CONTROLS:
        for fit, control in zip(group[FIT], group[arm], strict=True):
            _check(fit, control)
    return {
        "seeds": [fit["seed"] for fit in group[FIT]],
        **{arm: [_kept(cell, arm) for cell in cells] for arm, cells in group.items()},
    }


def _check(fit: Document, control: Document) -> None:
    """A control must be the same fit but for what makes it one."""
    config = json.loads(json.dumps(fit["config"]))
    for name, value in VARIANTS[control["variant"]].changes.items():
        section, _, key = name.partition(".")
        config.setdefault(section, {})[key] = json.loads(json.dumps(value))
    differing = differing_settings({**fit, "config": config}, control)
    if differing:
        what = f"{fit['name']} and its control {control['variant']!r} differ in {', '.join(differing)}"
        remedy = "give the settings of the fit, which its file has, and --force if the control is the older one"
        raise InputError(what, where=control["run"], remedy=remedy)


def _kept(cell: Document, arm: str) -> dict[str, Any]:
    """Of a cell what is compared."""
    modes = [mode for mode, before in BEFORE.items() if arm in (before, WARM, FIT)]
    return {"seed": cell["seed"], **{mode: kept_figures(cell, mode) for mode in modes}}


def ablation_table(documents: Iterable[Document]) -> Table:
    """Two rows per graph: the re-trained model alone, and in the blend."""
    rows = []
    for document in documents:
        for mode, words in MODES.items():
            arms = (BEFORE[mode], WARM, FIT)
            before, warm, fit = ([each[mode]["test"]["mrr"] for each in document[arm]] for arm in arms)
            rows.append(
                {
                    "graph and model": about(document),
                    "asked": words,
                    "seeds": str(len(document["seeds"])),
                    "shared strength, from random tables": mean_and_spread(before),
                    "shared strength, from the means of q": mean_and_spread(warm),
                    "learned strengths, from the means of q (the fit)": mean_and_spread(fit),
                    "the start brings": gain(before, warm),
                    "the strengths bring": gain(warm, fit),
                }
            )
    note = (
        "Test MRR. From random tables: for the model alone the fit's own pre-training, with a constant rate and judged "
        "by itself; for the blend a model that is re-trained as the others are. Last: means over seeds of differences "
        "between fits of one seed, with their 95 % interval (Student's t), bold where it excludes zero."
    )
    return Table("What re-training owes to what", rows, 2, note)


ABLATION = Study(
    name="ablation",
    folder="apart",
    kind="kgem-apart",
    asks="What re-training owes to its start at the means of q, and what to the learned strengths.",
    needs="fit with its three controls beside it",
    variants=("em", *CONTROLS),
    select=partial(side_by_side, fit="em", ordinary=ORDINARY, fresh=FRESH, warm=WARM),
    measure=measure,
    tables=(ablation_table,),
)
