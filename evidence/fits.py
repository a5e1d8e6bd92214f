"""Makes cells: one fit, or a search of many, in run folders that are gone on with, then measured.

A cell's folder is a run folder. That of a search has a run folder per trial, of which only the best is kept once the
cell is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from evidence.cells import KIND, VARIANTS, Cell, is_free
from evidence.documents import Document, describe
from kgem.answer.model import Model
from kgem.config import Config
from kgem.data.dataset import SPLITS
from kgem.errors import FitError, InputError
from kgem.files.atomic import remove_folder
from kgem.files.locks import lock_run
from kgem.runs.fitting import Prepared
from kgem.runs.run import LENGTHS, Run, clear_run, is_run, read_log
from kgem.settings import differences
from kgem.train.search import STRENGTHS, Proposal, Trial, search

TRIAL = "trial-{:03d}"  # the run folder of each
ORIGIN = "evidence"  # which command began a run
SETTLED = ("beta", "shared", "mix")  # what the fit chose by itself, as its model's provenance says

CarryOn = Callable[[Run], Model]  # to the end of the run; raises if it was stopped


@dataclass(frozen=True)
class CellMaker:
    """How cells are made."""

    base: Config
    out: Path  # the folder of run folders
    carry_on: CarryOn
    tell: Callable[[str], None]  # hears what comes next, and what failed
    strengths: tuple[float, float] = STRENGTHS  # the range of a search

    def make(self, cell: Cell, prepared: Prepared, command: str, before: Sequence[Document] = ()) -> dict[str, Any]:
        """Fit and measure: the cell's JSON; `before` are the trials of the search that is made longer."""
        searched = VARIANTS[cell.variant].strength == "searched"
        model, found = self._search(cell, prepared, before) if searched else self._fit(cell, prepared)
        return {
            **describe(KIND, command),
            "name": cell.name,
            **{key: value for key, value in asdict(cell).items() if key != "trials"},
            "graph": cell.graph,
            "facts": _graph_facts(prepared),
            **self._measure(model, VARIANTS[cell.variant].modes),
            **found,
            "config": model.config.model_dump(mode="json"),
        }

    def _fit(self, cell: Cell, prepared: Prepared) -> tuple[Model, dict[str, Any]]:
        folder = self.out / cell.name
        model = self._run(folder, prepared, cell.settings(self.base))
        told = model.provenance
        given = VARIANTS[cell.variant].strength == "published"
        return model, {
            **({"strength": asdict(cell.strength(self.base))} if given else {}),
            **({name: told[name] for name in SETTLED} if told["epochs"]["em"] else {}),
            "epochs": dict(told["epochs"]),
            "seconds": told["seconds"],
            "events": list(told["events"]),
            "curve": _curve(read_log(folder)),
            "run": str(folder),
        }

    def _search(self, cell: Cell, prepared: Prepared, before: Sequence[Document]) -> tuple[Model, dict[str, Any]]:
        """A search that goes on from the trials of a shorter one, and from those whose run folders are there."""
        folder, config, done = self.out / cell.name, cell.settings(self.base), [*before]
        run_trial = partial(self._trial, folder, prepared, cell.trials)
        known = [Trial(**{key: value for key, value in each.items() if key != "curve"}) for each in before]
        for trial, curve in search(config, run_trial, trials=cell.trials, strengths=self.strengths, done=known):
            done.append({**trial.to_dict(), "curve": curve})
        best = max(done, key=lambda trial: trial["mrr"] or 0.0)
        if best["mrr"] is None:
            what = "no trial of the search came to a result"
            raise FitError(what, where=str(folder), remedy="lower the learning rate")
        place = folder / TRIAL.format(best["number"])
        pretrain = config.pretrain.model_copy(update={"strength": best["strength"]})
        return self._run(place, prepared, config.model_copy(update={"pretrain": pretrain})), {
            "strength": {"value": best["strength"], "why": f"the best on validation of {len(done)} trials"},
            "epochs": {"pretrain": sum(trial["epochs"] for trial in done), "em": 0, "retrain": 0},
            "seconds": sum(trial["seconds"] for trial in done),
            "strengths": list(self.strengths),
            "trials": done,
            "run": str(place),
        }

    def _trial(self, folder: Path, prepared: Prepared, trials: int, proposal: Proposal) -> tuple[Trial, dict[str, Any]]:
        """One training of a search, in a run folder of its own, and its curve."""
        place, pretrain = folder / TRIAL.format(proposal.number), proposal.config.pretrain
        self.tell(f"trial {proposal.number} of {trials}: strength {pretrain.strength:.3g}")
        seconds = None
        try:
            seconds = self._run(place, prepared, proposal.config).provenance["seconds"]
        except FitError as error:
            self.tell(f"trial {proposal.number} failed: {error.message}")
        records = read_log(place)
        trial = Trial(
            number=proposal.number,
            strength=pretrain.strength,
            learning_rate=pretrain.learning_rate,
            mrr=None if seconds is None else records[-1]["best"],
            epochs=len(records),
            seconds=sum(record["seconds"] for record in records) if seconds is None else seconds,
            outcome="failed" if seconds is None else "done",
        )
        return trial, _curve(records)

    def _run(self, folder: Path, prepared: Prepared, config: Config) -> Model:
        """The model of a run folder, which is begun, gone on with, or found finished."""
        begun = is_run(folder)
        with Run.open(folder) if begun else Run.create(folder, prepared, config, origin=ORIGIN) as run:
            if begun:
                _check(run, prepared, config)
            return run.model() or self.carry_on(run)

    def _measure(self, model: Model, modes: Sequence[str]) -> dict[str, Any]:
        """Filtered ranks of validation and test in each mode; `mode` is the one that was best on validation."""
        self.tell("ranking validation and test")
        found: dict[str, dict[str, Any]] = {mode: {} for mode in modes}
        for mode in modes:
            for split in SPLITS[1:]:
                found[mode][split] = model.evaluate(split, mode).to_dict()["overall"]
        return {"mode": model.mode if model.mode in found else modes[0], "metrics": found}


def _check(run: Run, prepared: Prepared, config: Config) -> None:
    """A run that is there must be of this graph and have these settings, but for those that make no other cell."""
    free, wanted = LENGTHS if run.config.run.time_budget is not None else set(), config.model_dump()
    changed = [name for name in differences(run.config, config) if name not in free and not is_free(name, wanted)]
    changed += [] if run.prepared.data.content_hash == prepared.data.content_hash else ["graph or split"]
    if changed:
        what = f"the run was begun with another {', '.join(changed)}"
        remedy = "give the graph and settings it has, or another --out and --results, or begin anew: --force"
        raise InputError(what, where=str(run.folder), remedy=remedy)


def _graph_facts(prepared: Prepared) -> dict[str, Any]:
    """How large the graph is, and what tells it from others of its name."""
    data, split = prepared.data, None if prepared.split is None else prepared.split["seed"]
    sizes = {name: len(data.split(name)) for name in SPLITS}
    sizes |= {"entities": data.n_entities, "relations": data.n_relations}
    return sizes | {"hash": data.content_hash, "split_seed": split}


def _curve(records: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Phase, candidate of its race, validation MRR and seconds of each epoch, in columns."""
    return {
        "phase": [record["phase"] for record in records],
        "candidate": [record.get("candidate") for record in records],
        "mrr": [None if record["mrr"] is None else round(record["mrr"], 6) for record in records],
        "seconds": [round(record["seconds"], 4) for record in records],
    }


def discard_cell(cell: Cell, out: Path) -> None:
    """Mutates the folder of run folders: the cell will be made from the beginning."""
    for folder in (out / cell.name, *(out / cell.name).glob("trial-*")):
        if is_run(folder):
            with lock_run(folder):
                clear_run(folder)


def keep_the_best(document: Document) -> None:
    """Remove the runs of all other trials of a search: thirty of them are many times the size of a fit."""
    for folder in Path(document["run"]).parent.glob("trial-*") if "trials" in document else ():
        if folder != Path(document["run"]):
            remove_folder(folder)
