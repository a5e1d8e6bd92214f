"""Makes cells: one fit, or a search of many, in run folders that are gone on with, then measured.

A cell's folder is a run folder. That of a search has a run folder per trial, of which only the best is kept, and
trials.json with what became of all of them, on which graph and with which settings.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from evidence.cells import KIND, VARIANTS, Cell, differing_settings, is_free
from evidence.documents import VERSION, make_folder, write_json
from evidence.engine import CarryOn, Prepared, discard, fit_in_folder, lock_run, read_log, remove_folder
from evidence.provenance import machine, now, versions
from evidence.study import OnMeasuring
from kgem.answer.model import Model
from kgem.config import Config
from kgem.data.dataset import SPLITS
from kgem.errors import Damaged, FitError, InputError
from kgem.train.search import STRENGTHS, Proposal, Trial, search

TRIALS = "trials.json"
GROUPS = ("by_ties", "by_side", "by_category", "by_frequency")  # of the test figures, beside the overall ones
# beta: the tempering of EM as it ended. shared: the multiple of pretrain.strength that pre-training chose.
# mix: the (a, c) of re-training, whose strengths are a * learned + c * shared * pretrain.strength * n.
SETTLED = ("beta", "shared", "mix")


@dataclass(frozen=True)
class CellMaker:
    """How cells are made; the callbacks let a command show what happens."""

    base: Config
    out: Path  # the folder of run folders
    carry_on: CarryOn
    tell: Callable[[str], None]  # hears what comes next
    warn: Callable[[str], None]
    on_measuring: OnMeasuring
    strengths: tuple[float, float] = STRENGTHS  # the range of a search

    def make(self, cell: Cell, prepared: Prepared, command: str) -> dict[str, Any]:
        """Fit and measure: the cell's JSON."""
        make = self._search if VARIANTS[cell.variant].strength == "searched" else self._fit
        model, found = make(cell, prepared)
        return {
            "kind": KIND,
            "version": VERSION,
            "name": cell.name,
            "command": command,
            **{key: value for key, value in asdict(cell).items() if key != "trials"},
            "graph": cell.graph,
            "facts": _graph_facts(prepared),
            **self._measure(model, VARIANTS[cell.variant].modes),
            **found,
            "config": model.config.model_dump(mode="json"),
            "versions": versions(),
            "machine": machine(),
            "finished": now(),
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

    def _search(self, cell: Cell, prepared: Prepared) -> tuple[Model, dict[str, Any]]:
        folder, config = self.out / cell.name, cell.settings(self.base)
        make_folder(folder)
        with lock_run(folder):
            asked = {
                "variant": cell.variant,
                "config": config.model_dump(mode="json"),
                "facts": prepared.data.content_hash,
                "strengths": list(self.strengths),
            }
            done = _read_trials(folder, asked)
            run_trial = partial(self._trial, folder, prepared, cell.trials)
            before = [Trial(**{key: value for key, value in each.items() if key != "curve"}) for each in done]
            for trial, curve in search(config, run_trial, trials=cell.trials, strengths=self.strengths, done=before):
                done.append({**trial.to_dict(), "curve": curve})
                write_json(folder / TRIALS, {**asked, "trials": done})
                _keep_the_best(done, folder)
        best = _best(done)
        if best is None:
            what = "no trial of the search came to a result"
            raise FitError(what, where=str(folder), remedy="lower the learning rate")
        place = _trial_folder(folder, best["number"])
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
        place, pretrain = _trial_folder(folder, proposal.number), proposal.config.pretrain
        self.tell(f"trial {proposal.number} of {trials}: strength {pretrain.strength:.3g}")
        outcome, seconds = "done", None
        try:
            seconds = self._run(place, prepared, proposal.config).provenance["seconds"]
        except FitError as error:
            outcome = "failed"
            self.warn(f"trial {proposal.number} failed: {error.message}")
        records = read_log(place)
        trial = Trial(
            number=proposal.number,
            strength=pretrain.strength,
            learning_rate=pretrain.learning_rate,
            mrr=records[-1]["best"] if records and outcome == "done" else None,
            epochs=len(records),
            seconds=sum(record["seconds"] for record in records) if seconds is None else seconds,
            outcome=outcome,
        )
        return trial, _curve(records)

    def _run(self, folder: Path, prepared: Prepared, config: Config) -> Model:
        wanted = config.model_dump()
        return fit_in_folder(folder, prepared, config, self.carry_on, lambda name: is_free(name, wanted))

    def _measure(self, model: Model, modes: Sequence[str]) -> dict[str, Any]:
        """Filtered ranks of validation and test in each mode; `mode` is the one that was best on validation."""
        found: dict[str, dict[str, Any]] = {mode: {} for mode in modes}
        for mode in modes:
            for split in SPLITS[1:]:
                progress = partial(self.on_measuring, f"ranking {split}, {mode}")
                told = model.evaluate(split, mode, progress=progress).to_dict()
                groups = {name: told[name] for name in GROUPS} if split == "test" else {}
                found[mode][split] = told["overall"] | groups
        return {"mode": model.mode if model.mode in found else modes[0], "metrics": found}


def _graph_facts(prepared: Prepared) -> dict[str, Any]:
    """How large the graph is, and what tells it from others of its name."""
    data = prepared.data
    sizes = {split: len(data.split(split)) for split in SPLITS}
    split = None if prepared.split is None else prepared.split["seed"]
    whole = {"entities": data.n_entities, "relations": data.n_relations, **sizes}
    return whole | {"hash": data.content_hash, "split_seed": split}


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
    folder = out / cell.name
    if VARIANTS[cell.variant].strength != "searched":
        discard(folder)
    elif folder.is_dir():
        with lock_run(folder):
            (folder / TRIALS).unlink(missing_ok=True)
            for place in sorted(folder.glob("trial-*")):
                remove_folder(place)


def _trial_folder(folder: Path, number: int) -> Path:
    return folder / f"trial-{number:03d}"


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
        remedy = "restore it from a copy, or begin the search anew: --force"
        raise Damaged(what, where=str(path), remedy=remedy) from error
    if "config" in found:  # older lists do not say
        names = {"facts": "graph or split", "strengths": "range of strengths"}
        others = differing_settings(found, asked) + [name for key, name in names.items() if found[key] != asked[key]]
        if others:
            what = f"the search in this folder was begun with another {', '.join(others)}"
            remedy = "give what it had, or another --out and --cells, or begin it anew: --force"
            raise InputError(what, where=str(folder), remedy=remedy)
    return trials


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
