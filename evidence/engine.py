"""All that the evidence needs of how kgem runs a fit: settings, graphs, run folders and what a terminal shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import typer

from evidence.documents import Document
from kgem.answer.model import Model
from kgem.cli import reading
from kgem.cli.console import plain
from kgem.cli.fit import read_settings
from kgem.cli.opening import open_model
from kgem.cli.progress import Progress
from kgem.cli.training import set_threads, train
from kgem.config import Config
from kgem.errors import InputError
from kgem.runs.fitting import Prepared, prepare
from kgem.runs.run import LENGTHS, Run, is_run
from kgem.settings import differences

SPLIT_SEED = 0  # of graphs that come without splits: the same facts are kept from training for every seed
ORIGIN = "evidence"  # which command began a run

CarryOn = Callable[[Run], Model]  # to the end of the run; raises if it was stopped


def choose_settings(overrides: Sequence[str], threads: int | None) -> Config:
    """What all cells of a command share; mutates torch's number of threads, which is written down."""
    return set_threads(read_settings("default", None, {"run.threads": threads}, overrides, None))


def load_graphs(names: Sequence[str]) -> dict[str, Prepared]:
    """All graphs, before anything long begins: a name that is wrong shows at once."""
    loaded = {name: reading.load(name, reading.ReadOptions(), quiet=False) for name in names}
    with Progress("preparing"):
        prepared = {name: prepare(data, SPLIT_SEED) for name, data in loaded.items()}
    for name, graph in prepared.items():
        for split in ("valid", "test"):
            if not len(graph.data.split(split)):
                remedy = "give a graph that has both, or one without any split"
                raise InputError(f"{plain(name)} has no facts in {split}", remedy=remedy)
    return prepared


def fit_in_folder(
    folder: Path, prepared: Prepared, config: Config, carry_on: CarryOn, is_free: Callable[[str], bool]
) -> Model:
    """The model of a run folder, which is begun, gone on with, or found finished.

    One that is there must be of this graph and have these settings, but for those that `is_free` says do not matter.
    """
    begun = is_run(folder)
    with Run.open(folder) if begun else Run.create(folder, prepared, config, origin=ORIGIN) as run:
        if begun:
            _check(run, prepared, config, is_free)
        return run.model() or carry_on(run)


def _check(run: Run, prepared: Prepared, config: Config, is_free: Callable[[str], bool]) -> None:
    remedy = "give the graph and settings it has, or another --out and --results, or begin anew: --force"
    if run.prepared.data.content_hash != prepared.data.content_hash:
        what = f"the run is of another graph or split than {prepared.data.name} is now"
        raise InputError(what, where=str(run.folder), remedy=remedy)
    lengths = LENGTHS if run.config.run.time_budget is not None else set()
    changed = [name for name in differences(run.config, config) if name not in lengths and not is_free(name)]
    if changed:
        what = f"the run was begun with another {', '.join(changed)}"
        raise InputError(what, where=str(run.folder), remedy=remedy)


def carry_on_visibly(threads: int | None, goes_on: str) -> CarryOn:
    """Goes on with a run while the terminal shows it; `goes_on` tells what to do after a stop."""

    def carry_on(run: Run) -> Model:
        set_threads(run.config, threads)
        try:
            return train(run, quiet=False, plan=False, goes_on=goes_on)
        except typer.Exit as stopped:
            raise SystemExit(stopped.exit_code) from None

    return carry_on


def load_model(cell: Document) -> Model:
    """The fitted model of a cell."""
    folder = Path(cell["run"])
    if not folder.is_dir():
        remedy = "run from the folder that it is seen from, or make the cell again: python -m evidence table1 --force"
        raise InputError(f"the run of {cell['name']} is not there", where=str(folder), remedy=remedy)
    return open_model(folder)
