"""Makes cells of Table 1: one fit, or a search of many, in run folders that are gone on with, then measured.

A cell's folder is a run folder. That of a search has a run folder per trial, of which only the best is kept, and
trials.json with what became of all of them, on which graph and with which settings.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evidence.cells import CARRIED_OUT, KIND, Cell, differing_settings, is_idle
from evidence.documents import VERSION, make_folder, write_json
from evidence.origin import machine, now, versions
from evidence.settled import settled_of
from kgem.answer.model import Model
from kgem.answer.modes import MODES
from kgem.config import Config
from kgem.data.dataset import SPLITS, Dataset
from kgem.errors import Damaged, FitError, InputError
from kgem.files.atomic import remove_folder
from kgem.files.locks import RunLock
from kgem.runs.fitting import Prepared
from kgem.runs.run import LENGTHS, Run, discard, is_run, read_log
from kgem.settings import differences
from kgem.train.search import STRENGTHS, Proposals, Proposed, Trial

__all__ = ["Maker", "discard_cell", "fit_curve", "graph_facts"]

TRIALS = "trials.json"
ORIGIN = "reproduce"
GROUPS = ("by_ties", "by_side", "by_category", "by_frequency")  # of the test figures, beside the overall ones

CarryOn = Callable[[Run], Model]  # to the end of the run; raises if it was stopped


@dataclass(frozen=True)
class Maker:
    """How cells are made; the callbacks let a command show what happens."""

    base: Config
    out: Path  # the folder of run folders
    carry_on: CarryOn
    tell: Callable[[str], None]  # hears what comes next
    warn: Callable[[str], None]
    measuring: Callable[[str, int, int], None]  # hears what is ranked, and how far that is
    strengths: tuple[float, float] = STRENGTHS  # the range of a search

    def make(self, cell: Cell, prepared: Prepared, command: str) -> dict[str, Any]:
        """Fit and measure: the cell's JSON."""
        make = self._search if cell.variant == "search" else self._fit
        found = make(cell, prepared)
        return {
            "kind": KIND,
            "version": VERSION,
            "name": cell.name,
            "command": command,
            **{key: value for key, value in asdict(cell).items() if key != "trials"},
            "graph": cell.graph,
            "facts": graph_facts(prepared),
            **found,
            "versions": versions(),
            "machine": machine(),
            "finished": now(),
        }

    def _fit(self, cell: Cell, prepared: Prepared) -> dict[str, Any]:
        folder, config = self.out / cell.name, cell.settings(self.base)
        model = self._run(folder, prepared, config)
        conventional = cell.variant == "conventional"
        strength = asdict(cell.strength(self.base)) | {"value": model.config.pretrain.strength}
        return {
            **({"strength": strength} if conventional else {}),
            **self._measured(model, ("point",) if conventional else tuple(MODES)),
            "epochs": dict(model.provenance["epochs"]),
            "seconds": model.provenance["seconds"],
            **({} if conventional else settled_of(model.provenance)),
            "events": list(model.provenance["events"]),
            "curve": fit_curve(read_log(folder)),
            "run": str(folder),
            "config": model.config.model_dump(mode="json"),
        }

    def _search(self, cell: Cell, prepared: Prepared) -> dict[str, Any]:
        folder = self.out / cell.name
        config = cell.settings(self.base)
        make_folder(folder)
        with RunLock(folder):
            asked = {
                "variant": cell.variant,
                "config": config.model_dump(mode="json"),
                "facts": prepared.data.content_hash,
                "strengths": list(self.strengths),
            }
            done = _read_trials(folder, asked)
            proposals = Proposals(config, self.strengths)
            for trial in done:
                _replay(proposals, trial, folder)
            while len(done) < cell.trials:
                proposed = proposals.ask()
                done.append(self._trial(folder, prepared, proposed, cell.trials))
                proposals.tell(proposed, _trial(done[-1]))
                write_json(folder / TRIALS, {**asked, "trials": done})
                _keep_the_best(done, folder)
            best = _best(done)
        if best is None:
            raise FitError(
                "no trial of the search came to a result", where=str(folder), remedy="lower the learning rate"
            )
        place = _trial_folder(folder, best["number"])
        model = self._run(place, prepared, _with_strength(config, best["strength"]))
        return {
            "strength": {"value": best["strength"], "why": f"the best on validation of {len(done)} trials"},
            **self._measured(model, ("point",)),
            "epochs": {"pretrain": sum(trial["epochs"] for trial in done), "em": 0, "retrain": 0},
            "seconds": sum(trial["seconds"] for trial in done),
            "strengths": list(self.strengths),
            "trials": done,
            "run": str(place),
            "config": model.config.model_dump(mode="json"),
        }

    def _trial(self, folder: Path, prepared: Prepared, proposed: Proposed, trials: int) -> dict[str, Any]:
        """One training of a search, in a run folder of its own."""
        place, strength = _trial_folder(folder, proposed.number), proposed.config.pretrain.strength
        self.tell(f"trial {proposed.number} of {trials}: strength {strength:.3g}")
        outcome, seconds = "done", None
        try:
            seconds = self._run(place, prepared, proposed.config).provenance["seconds"]
        except FitError as error:
            outcome = "failed"
            self.warn(f"trial {proposed.number} failed: {error.message}")
        records = read_log(place)
        return {
            "number": proposed.number,
            "strength": strength,
            "learning_rate": proposed.config.pretrain.learning_rate,
            "mrr": records[-1]["best"] if records and outcome == "done" else None,
            "epochs": len(records),
            "seconds": sum(record["seconds"] for record in records) if seconds is None else seconds,
            "outcome": outcome,
            "curve": fit_curve(records),
        }

    def _run(self, folder: Path, prepared: Prepared, config: Config) -> Model:
        """The model of a run folder, which is begun, gone on with, or found finished."""
        begun = is_run(folder)
        run = Run.open(folder) if begun else Run.create(folder, prepared, config, origin=ORIGIN)
        with run:
            if begun:
                self._check(run, prepared, config)
            return run.model() or self.carry_on(run)

    def _check(self, run: Run, prepared: Prepared, config: Config) -> None:
        """A run that was begun must be of this graph and have these settings: its cell says that it has."""
        if run.prepared.data.content_hash != prepared.data.content_hash:
            raise InputError(
                f"the run is of another graph or split than {prepared.data.name} is now",
                where=str(run.folder),
                remedy="give another --out and --results, or begin anew: --force",
            )
        free = set(CARRIED_OUT) | (LENGTHS if run.config.run.time_budget is not None else set())
        wanted = config.model_dump()
        changed = [name for name in differences(run.config, config) if name not in free and not is_idle(name, wanted)]
        if changed:
            raise InputError(
                f"the run was begun with another {', '.join(changed)}",
                where=str(run.folder),
                remedy="give the settings it has, or another --out and --results, or begin anew: --force",
            )

    def _measured(self, model: Model, modes: Sequence[str]) -> dict[str, Any]:
        """Filtered ranks of validation and test in each mode; `auto` is the one that was best on validation."""
        found = {mode: self._measured_mode(model, mode) for mode in modes}
        return {"mode": model.mode if model.mode in found else modes[0], "metrics": found}

    def _measured_mode(self, model: Model, mode: str) -> dict[str, Any]:
        splits = {}
        for split in SPLITS[1:]:
            what = f"ranking {split}, {mode}"
            full = model.evaluate(split, mode, progress=lambda *so_far, what=what: self.measuring(what, *so_far))
            told = full.to_dict()
            splits[split] = told["overall"] | ({name: told[name] for name in GROUPS} if split == "test" else {})
        return splits


def graph_facts(prepared: Prepared) -> dict[str, Any]:
    """How large the graph is, and what tells it from others of its name."""
    data: Dataset = prepared.data
    sizes = {split: len(data.split(split)) for split in SPLITS}
    split = None if prepared.split is None else prepared.split["seed"]
    whole = {"entities": data.n_entities, "relations": data.n_relations, **sizes}
    return whole | {"hash": data.content_hash, "split_seed": split}


def fit_curve(records: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Phase, candidate of its race, validation MRR and seconds of each epoch, in columns."""
    return {
        "phase": [record["phase"] for record in records],
        "candidate": [record.get("candidate") for record in records],
        "mrr": [None if record["mrr"] is None else round(record["mrr"], 6) for record in records],
        "seconds": [round(record["seconds"], 4) for record in records],
    }


def discard_cell(cell: Cell, out: Path) -> None:
    """Mutates the folder of run folders: the cell will be made from the beginning."""
    folder = out / cell.name
    if cell.variant != "search":
        discard(folder)
    elif folder.is_dir():
        with RunLock(folder):
            (folder / TRIALS).unlink(missing_ok=True)
            for place in sorted(folder.glob("trial-*")):
                remove_folder(place)


def _trial_folder(folder: Path, number: int) -> Path:
    return folder / f"trial-{number:03d}"


def _with_strength(config: Config, strength: float) -> Config:
    return config.model_copy(update={"pretrain": config.pretrain.model_copy(update={"strength": strength})})


def _read_trials(folder: Path, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The trials that are done; an error if they are not of what is asked for now."""
    path = folder / TRIALS
    if not path.exists():
        return []
    try:
        found = json.loads(path.read_bytes())
        trials: list[dict[str, Any]] = found["trials"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = f"is not the list of a search's trials: {error}"
        raise Damaged(
            what, where=str(path), remedy="restore it from a copy, or begin the search anew: --force"
        ) from error
    if "config" in found:  # older lists do not say
        others = differing_settings(found, asked)
        names = {"facts": "graph or split", "strengths": "range of strengths"}
        others += [name for key, name in names.items() if found[key] != asked[key]]
        if others:
            raise _begun_otherwise(folder, ", ".join(others))
    return trials


def _begun_otherwise(folder: Path, what: str) -> InputError:
    return InputError(
        f"the search in this folder was begun with another {what}",
        where=str(folder),
        remedy="give what it had, or another --out and --results, or begin it anew: --force",
    )


def _trial(found: Mapping[str, Any]) -> Trial:
    return Trial(**{key: value for key, value in found.items() if key != "curve"})


def _replay(proposals: Proposals, trial: Mapping[str, Any], folder: Path) -> None:
    """Mutates the proposals: as they were after this trial."""
    proposed = proposals.ask()
    if abs(proposed.config.pretrain.strength / trial["strength"] - 1) > 1e-9:
        raise _begun_otherwise(folder, "range of strengths, or with another version of Optuna")
    proposals.tell(proposed, _trial(trial))


def _keep_the_best(trials: Sequence[dict[str, Any]], folder: Path) -> None:
    """Remove the runs of all others: thirty of them are many times the size of a fit."""
    best = _best(trials)
    for trial in trials:
        place = _trial_folder(folder, trial["number"])
        if trial is not best and place.exists():
            remove_folder(place)


def _best(trials: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """On validation; None if all failed."""
    done = [trial for trial in trials if trial["mrr"] is not None]
    return max(done, key=lambda trial: float(trial["mrr"]), default=None)
