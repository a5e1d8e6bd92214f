"""All that the evidence needs of how kgem runs a fit: settings, graphs, run folders and what a terminal shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from kgem.answer.model import Model
from kgem.cli import reading
from kgem.cli.console import plain
from kgem.cli.fit import read_settings
from kgem.cli.opening import open_model
from kgem.cli.progress import Progress
from kgem.cli.training import set_threads, train
from kgem.config import Config
from kgem.errors import InputError
from kgem.evaluate.validation import VALIDATION_QUERIES
from kgem.files.atomic import remove_folder
from kgem.files.locks import lock_run
from kgem.runs.configure import configure
from kgem.runs.fitting import Prepared, prepare
from kgem.runs.run import LENGTHS, Run, discard, is_run, read_log
from kgem.settings import differences

# Others of the evidence take these from here, beside the functions below.
__all__ = ["LENGTHS", "VALIDATION_QUERIES", "Prepared", "configure", "discard", "lock_run", "read_log", "remove_folder"]

SPLIT_SEED = 0  # of graphs that come without splits: the same facts are kept from training for every seed
ORIGIN = "evidence"  # which command began a run

CarryOn = Callable[[Run], Model]  # to the end of the run; raises if it was stopped


def choose_settings(
    recipe: str, overrides: Sequence[str], time_budget: str | None, device: str | None, threads: int | None
) -> Config:
    """What all cells of a command share; mutates torch's number of threads, which is written down."""
    named = {"device": device, "run.threads": threads}
    return set_threads(read_settings(recipe, None, named, overrides, time_budget))


def load_graphs(names: Sequence[str], *, quiet: bool) -> dict[str, Prepared]:
    """All graphs, before anything long begins: a name that is wrong shows at once."""
    loaded = {name: reading.load(name, reading.ReadOptions(), quiet=quiet) for name in names}
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
    remedy = "give the graph and settings it has, or another --out and --cells, or begin anew: --force"
    if run.prepared.data.content_hash != prepared.data.content_hash:
        what = f"the run is of another graph or split than {prepared.data.name} is now"
        raise InputError(what, where=str(run.folder), remedy=remedy)
    lengths = LENGTHS if run.config.run.time_budget is not None else set()
    changed = [name for name in differences(run.config, config) if name not in lengths and not is_free(name)]
    if changed:
        what = f"the run was begun with another {', '.join(changed)}"
        raise InputError(what, where=str(run.folder), remedy=remedy)


def carry_on_visibly(threads: int | None, goes_on: str, *, quiet: bool) -> CarryOn:
    """Goes on with a run while the terminal shows it; `goes_on` tells what to do after a stop."""

    def carry_on(run: Run) -> Model:
        set_threads(run.config, threads)
        try:
            return train(run, quiet=quiet, plan=False, goes_on=goes_on)
        except typer.Exit as stopped:
            raise SystemExit(stopped.exit_code) from None

    return carry_on


def load_model(cell: Any, device: str) -> Model:
    """The fitted model of a cell."""
    folder = Path(cell["run"])
    if not folder.is_dir():
        remedy = "run from the folder that it is seen from, or make the cell again: python -m evidence table1 --force"
        raise InputError(f"the run of {cell['name']} is not there", where=str(folder), remedy=remedy)
    return open_model(folder, device)


@contextmanager
def show_measuring(*, quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """What hears of work and how far it is, and shows it; its bar is there from the first time on."""
    bars: list[Progress] = []

    def heard(what: str, done: int, total: int) -> None:
        if not bars and not quiet:
            bars.append(Progress(what).__enter__())
        for bar in bars:
            bar.label, bar.done, bar.total = what, done, total

    try:
        yield heard
    finally:
        for bar in bars:
            bar.__exit__(None, None, None)
