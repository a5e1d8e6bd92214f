"""A cell: a graph, a model, a variant and a seed; its settings, its name, and its JSON file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from evidence.documents import Document, read_folder
from evidence.published import SharedStrength, published
from kgem.answer.modes import MODES
from kgem.config import Config
from kgem.errors import ConfigError
from kgem.runs.configure import configure
from kgem.runs.run import LENGTHS
from kgem.train.search import STRENGTHS

KIND = "kgem-table1-cell"
PAPER_GRAPHS = ("wn18rr", "wn18", "fb15k-237", "fb15k")
# What a run is on is written down, but does not make it another cell.
CARRIED_OUT = {
    "run.threads",
    "run.remeasure",
    "run.checkpoint_seconds",
    "run.time_budget",
    "device",
    "distil.memory",
}


@dataclass(frozen=True)
class Variant:
    """A kind of cell: what it changes of a fit, and what is measured of it."""

    changes: Mapping[str, Any] = field(default_factory=dict)  # settings by their dotted names
    strength: str = "raced"  # the shared strength: raced by the fit itself, published, or searched
    width: int = 1  # times the dimension of the cell
    modes: tuple[str, ...] = ("point",)  # that are measured
    labels: Mapping[str, str] = field(default_factory=dict)  # of its rows in Table 1, by mode


_UNDISTILLED = {"distil.epochs": 0}  # the re-trained tables are what is measured
_ALONE: dict[str, Any] = {"companions.mixes": []}
_ORDINARY = {**_UNDISTILLED, "em.epochs": 0, "retrain.epochs": 0, "retrain.candidates": ((1.0, 0.0),)}
_GIVEN = {**_ORDINARY, "pretrain.candidates": (1.0,)}
_MULTIPLES = {  # re-trained with a multiple of the shared strength that pre-training had, and nothing learned
    **_UNDISTILLED,
    "retrain.candidates": ((0.0, 1.0), (0.0, 0.3), (0.0, 3.0), (0.0, 10.0)),
    "retrain.fall_back": False,
}
VARIANTS: dict[str, Variant] = {
    "conventional": Variant(_GIVEN, "published", labels={"point": "conventional, one given strength"}),
    "search": Variant(_GIVEN, "searched", labels={"point": "best shared strength of a search"}),
    "em": Variant(
        _UNDISTILLED,
        modes=tuple(MODES),
        labels={
            "point": "after EM: point (re-trained)",
            "mean": "after EM: mean of q",
            "bayes": "after EM: bayes (averaged over q)",
            "blend": "after EM: blend of point and mean",
        },
    ),
    "distil": Variant(
        {"distil.epochs": 120},
        modes=tuple(MODES),
        labels={"point": "after EM: point, distilled", "blend": "after EM: blend of distilled point and mean"},
    ),
    "ordinary": Variant(_ORDINARY),
    "fresh": Variant({**_MULTIPLES, "retrain.start": "fresh"}, modes=tuple(MODES)),
    "warm": Variant(_MULTIPLES, modes=tuple(MODES)),
}
BASELINES = ("search", "conventional")  # what EM is compared with: the first that there is


@dataclass(frozen=True)
class Cell:
    """What is fitted and measured."""

    data: str  # as it was given
    model: str
    dim: int
    variant: str
    seed: int
    trials: int  # of a search

    @property
    def graph(self) -> str:
        return graph_name(self.data)

    @property
    def name(self) -> str:
        """Of the run folder and of the JSON file."""
        return f"{self.graph}-{self.model}-{self.dim}-{self.variant}-{self.seed}"

    def strength(self, base: Config) -> SharedStrength:
        """The shared strength of a variant whose strength is published."""
        width = VARIANTS[self.variant].width
        return published().strength(self.graph, self.model, width * self.dim, base.pretrain.strength)

    def settings(self, base: Config) -> Config:
        """The base settings with what makes this cell; a search sets the strength of each trial later."""
        variant = VARIANTS[self.variant]
        chosen: dict[str, Any] = {"model.score": self.model, "model.dim": variant.width * self.dim, "seed": self.seed}
        if variant.strength == "published":
            chosen["pretrain.strength"] = self.strength(base).value
        if variant.strength == "searched" and base.run.time_budget is not None:
            chosen["run.time_budget"] = base.run.time_budget / self.trials
        return configure(base, {**chosen, **variant.changes})


def graph_name(data: str) -> str:
    """The name of a graph in names of files: that of the catalogue, or of its file or folder."""
    path = Path(data.strip())
    name = path.name.casefold() if path.is_dir() or not path.suffix else path.stem.casefold()
    return re.sub(r"[^a-z0-9._-]+", "-", name).strip("-.") or "graph"


def cells(
    data: Sequence[str], models: Sequence[tuple[str, int]], variants: Sequence[str], seeds: Sequence[int], trials: int
) -> list[Cell]:
    """All combinations, graph by graph."""
    unknown = [variant for variant in variants if variant not in VARIANTS]
    if unknown:
        raise ConfigError(f"no variant is called {unknown[0]!r}", remedy=f"one of {', '.join(VARIANTS)}")
    if trials < 1:
        raise ConfigError(f"a search of {trials} trials finds nothing", remedy="allow at least one: --trials")
    named: dict[str, str] = {}
    for given in data:
        if named.setdefault(graph_name(given), given) != given:
            what = f"{named[graph_name(given)]!r} and {given!r} would have the same name, {graph_name(given)}"
            raise ConfigError(what, remedy="rename one of them, or give it in another command with other folders")
    combinations = product(data, models, seeds, variants)
    return list(
        dict.fromkeys(Cell(graph, *model, variant, seed, trials) for graph, model, seed, variant in combinations)
    )


def changed_settings(
    document: Document, cell: Cell, base: Config, strengths: tuple[float, float] = STRENGTHS
) -> list[str]:
    """The settings that a cell was made with and would not be made with now; a search can be made longer."""
    wanted = {"variant": cell.variant, "config": cell.settings(base).model_dump(mode="json")}
    free = LENGTHS if document["config"]["run"].get("time_budget") is not None else set()
    changed = [name for name in differing_settings(wanted, document) if name not in free]
    if "trials" in document:
        changed += ["--strengths"] if tuple(document["strengths"]) != strengths else []
        changed += ["--trials"] if len(document["trials"]) > cell.trials else []
    return changed


def differing_settings(one: Document, other: Document) -> list[str]:
    """The settings by which two cells differ; one that only one of them has is such a setting."""
    mine, theirs, nothing = settings_of(one), settings_of(other), object()
    return [name for name in {**mine, **theirs} if mine.get(name, nothing) != theirs.get(name, nothing)]


def settings_of(document: Document) -> dict[str, Any]:
    """The settings that made a cell what it is, by their dotted names, as they were written.

    A setting that came after the cell was made is missing, and not what it would be now; only products were exact
    before they could be rounded, no model was distilled before there was distillation, nor had companions before there
    were any, and graphs of cells are so small that their softmax is exact unless told otherwise.
    """
    config = document.get("config", {})
    searched = VARIANTS[document["variant"]].strength == "searched"
    exact = {f"train.{name}": value for name, value in Config().train.model_dump(mode="json").items()}
    found: dict[str, Any] = {"run.products": "exact", **_UNDISTILLED, **_ALONE, **exact} if config else {}
    for name, value in config.items():
        found |= {f"{name}.{key}": each for key, each in value.items()} if isinstance(value, dict) else {name: value}
    chosen_by_search = {"pretrain.strength"} if searched else set()
    return {name: value for name, value in found.items() if name not in chosen_by_search and not is_free(name, config)}


def is_free(name: str, config: Mapping[str, Any]) -> bool:
    """Whether a setting makes no other cell: how it is carried out, or of a phase that has no epochs.

    The figures of cells that were carried out otherwise differ by the order of sums at most.
    """
    phase, _, setting = name.partition(".")
    if phase == "companions":
        alone = not config.get(phase, {}).get("mixes") and setting != "mixes"
        return alone or not config.get("distil", {}).get("epochs")
    idle = phase in ("em", "retrain", "distil") and config.get(phase, {}).get("epochs") == 0 and setting != "epochs"
    return name in CARRIED_OUT or idle


def read_cells(folder: Path) -> list[dict[str, Any]]:
    """All cells in a folder, by name."""
    return read_folder(folder, KIND)
