"""`kgem fit`: a graph through all phases, into a run folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kgem.cli import reading
from kgem.cli.arguments import AsJson, Force, Quiet, Threads, TimeBudget
from kgem.cli.console import plain, say
from kgem.cli.progress import Progress
from kgem.cli.tables import size
from kgem.cli.together import follow, follows, goes_on_by_itself
from kgem.cli.training import collect_settings, emit_result, train
from kgem.errors import ConfigError

if TYPE_CHECKING:
    from kgem.config import Config
    from kgem.data.dataset import Dataset
    from kgem.runs.fitting import Prepared


WITHOUT_RACES = (
    "--set pretrain.candidates=[1.0] --set retrain.candidates=[[1.0,0.0]] --set distil.candidates=[[1.0,0.0]]"
)


@reading.with_options
def fit(
    graph: reading.Graph,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Score function: complex, distmult, ...; without it complex.")
    ] = None,
    dim: Annotated[int | None, typer.Option(min=1, help="Dimension K of the embeddings; without it 100.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="The run folder; without it runs/NAME.")] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Settings in TOML; see docs/settings.md.")] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="One setting, as em.beta=0.3; may be repeated."),
    ] = None,
    recipe: Annotated[str, typer.Option(metavar="NAME", help="Settings to start from: default, or paper.")] = "default",
    seed: Annotated[int | None, typer.Option(min=0, help="Of all random numbers; without it 0.")] = None,
    device: Annotated[str | None, typer.Option(metavar="NAME", help="cpu, cuda or cuda:N; without it cpu.")] = None,
    threads: Threads = None,
    time_budget: TimeBudget = None,
    valid: Annotated[
        float, typer.Option(min=0, help="If the graph has no splits: share or number of facts for validation.")
    ] = 0.1,
    test: Annotated[float, typer.Option(min=0, help="Likewise for the test.")] = 0.1,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write the epochs for TensorBoard, to tensorboard/ in the run.")
    ] = False,
    quiet: Quiet = False,
    force: Force = False,
    as_json: AsJson = False,
    *,
    how: reading.ReadOptions,
) -> None:
    """Fit a graph: pre-training, variational EM that learns every strength, re-training, distillation.

    A graph without splits is split. The run folder gets everything; a run that was stopped goes on with
    'kgem resume'.
    """
    if follows():
        return follow()
    named = {"model.score": model, "model.dim": dim, "seed": seed, "device": device, "run.threads": threads}
    chosen = read_settings(recipe, config, named, overrides, time_budget)
    if out is not None and not goes_on_by_itself(out):
        from kgem.runs.run import check_free

        check_free(out, force)
    if tensorboard:
        _check_tensorboard()
    data = reading.load(graph, how, quiet=quiet)
    out = Path("runs") / _file_name(data.name) if out is None else out
    with Progress("preparing"):
        from kgem.runs.fitting import prepare
        from kgem.runs.run import Run
        from kgem.train.machine import settle

        prepared = prepare(data, chosen.seed, valid, test)
        _check_memory(prepared.data, chosen)
        _warn(data, prepared)
        reading.warn_of_columns(data, how)
        chosen = settle(prepared.data, chosen)
        again = goes_on_by_itself(out)
        run = Run.open(out) if again else Run.create(out, prepared, chosen, force=force)
    if again:
        say(f"started again: {plain(out)} goes on")
    with run:
        if tensorboard:
            run.show_in_tensorboard()
        finished = train(run, quiet=quiet)
    return emit_result(finished, out, as_json, quiet)


def read_settings(
    recipe: str, file: Path | None, named: dict[str, Any], overrides: Sequence[str] | None, time_budget: str | None
) -> Config:
    """Defaults, then the recipe, the file, the options and `--set`: what comes later counts."""
    from kgem.config import RECIPES
    from kgem.settings import read_toml

    if recipe not in RECIPES:
        raise ConfigError(f"no recipe is called {recipe!r}", where="--recipe", remedy=f"one of {', '.join(RECIPES)}")
    given = collect_settings(named, overrides, time_budget)
    content = None if file is None else read_toml(file)
    with Progress("starting"):
        from kgem.runs.configure import configure

        chosen = configure(None, RECIPES[recipe]())
        if content is not None:
            try:
                chosen = configure(chosen, content)
            except ConfigError as error:
                raise ConfigError(error.what, where=str(file), remedy=error.remedy) from error
        return configure(chosen, given)


def _warn(data: Dataset, prepared: Prepared) -> None:
    """What a user may take for granted and does not happen."""
    for name in sorted({str(column.name) for column in data.extra.values()} - {"split"}):
        say(f"warning: the column {plain(name)} is not used in training")
    if not len(prepared.data.valid):
        none_to_spare = "training needs all facts to know every symbol; kgem data check tells more"
        remedy = "to set some apart: --valid 0.1" if prepared.split is None else none_to_spare
        say(f"warning: there are no validation facts, so no phase can stop early; {remedy}")


def _check_memory(data: Dataset, config: Config) -> None:
    """An error if what a phase holds cannot fit into the machine's memory: nothing is begun then."""
    if config.device != "cpu" or not hasattr(os, "sysconf"):
        return
    has = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    from kgem.runs.fitting import needed_memory

    memory = needed_memory(data, config)
    if memory.peak > has:
        without = needed_memory(data, config_without_races(config)).peak
        races = f"without races ({WITHOUT_RACES}) it needs {size(without)}; " if without < memory.peak else ""
        raise ConfigError(
            f"phase {memory.largest} would hold {memory.sets[memory.largest]:.1f} sets of tables of "
            f"{size(memory.set_bytes)}, in all {size(memory.peak)}; this machine has {size(has)}",
            where=f"--dim {config.model.dim}",
            remedy=f"{races}half of the dimension needs about half",
        )


def config_without_races(config: Config) -> Config:
    """The same settings with the first candidate of each race alone."""
    sections = {name: getattr(config, name) for name in ("pretrain", "retrain", "distil")}
    alone = {name: s.model_copy(update={"candidates": s.candidates[:1]}) for name, s in sections.items()}
    return config.model_copy(update=alone)


def _check_tensorboard() -> None:
    with Progress("starting"):
        from kgem.runs.tensorboard import check_installed

        check_installed()


def _file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip(".") or "graph"
