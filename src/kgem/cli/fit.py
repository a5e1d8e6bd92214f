"""`kgem fit` and `kgem resume`: a graph through all three phases, into a run folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kgem.cli import reading
from kgem.cli.console import AsJson, counted, emit, emit_json, plain, say, table
from kgem.cli.output import Force
from kgem.cli.progress import Progress, duration
from kgem.cli.results import given_files
from kgem.cli.tables import size, summary
from kgem.cli.watch import Watch, asked_to_stop
from kgem.errors import ConfigError, InputError, KgemError

if TYPE_CHECKING:
    from kgem.answer.model import Model
    from kgem.config import Config
    from kgem.data.dataset import Dataset
    from kgem.runs.fitting import Prepared
    from kgem.runs.run import Run

__all__ = [
    "INTERRUPTED",
    "chosen_settings",
    "fit",
    "result_tables",
    "resume",
    "tell_plan",
    "tell_result",
    "train",
    "use_threads",
]

INTERRUPTED = 130  # exit code, as of shells
_SPLITS = ("valid", "test")
_FIGURES = {"mrr": "MRR", "hits_at_1": "Hits@1", "hits_at_3": "Hits@3", "hits_at_10": "Hits@10"}

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress; warnings and the result alone.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads of the CPU.", show_default=False)]


@reading.with_options
def fit(
    graph: reading.Graph,
    model: Annotated[
        str | None, typer.Option(help="Score function: complex, distmult, ... [default: complex]", show_default=False)
    ] = None,
    dim: Annotated[
        int | None, typer.Option(min=1, help="Dimension K of the embeddings. [default: 100]", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="The run folder. [default: runs/NAME]", show_default=False),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Settings in TOML; see docs/settings.md.", show_default=False)
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="One setting, as em.beta=0.3; may be repeated."),
    ] = None,
    recipe: Annotated[str, typer.Option(help="Settings to start from: default, or paper.")] = "default",
    seed: Annotated[int | None, typer.Option(min=0, help="Of all random numbers. [default: 0]")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N. [default: cpu]", show_default=False)] = None,
    threads: Threads = None,
    time_budget: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Choose lengths that fit: 90s, 20m, 1h30m.", show_default=False),
    ] = None,
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
    """Fit a graph: pre-training, variational EM that learns every strength, re-training.

    A graph without splits is split. The run folder gets everything; a run that was stopped goes on with
    'kgem resume'.
    """
    named = {"model.score": model, "model.dim": dim, "seed": seed, "device": device, "run.threads": threads}
    chosen = chosen_settings(recipe, config, named, overrides or [], time_budget)
    if out is not None:
        _check_free(out, force)
    if tensorboard:
        _check_tensorboard()
    data = reading.load(graph, how, quiet=quiet)
    out = Path("runs") / _file_name(data.name) if out is None else out
    with Progress("preparing"):
        from kgem.runs.fitting import prepare
        from kgem.runs.run import Run

        chosen = use_threads(chosen)
        prepared = prepare(data, chosen.seed, valid, test)
        _check_memory(prepared.data, chosen)
        _warn(data, prepared)
        run = Run.create(out, prepared, chosen, force=force)
    with run:
        if tensorboard:
            run.show_in_tensorboard()
        finished = train(run, quiet=quiet)
    tell_result(finished, out, as_json, quiet)


def resume(
    folder: Annotated[
        Path, typer.Argument(metavar="RUN", help="The folder of a run that was stopped.", show_default=False)
    ],
    threads: Threads = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Go on with a run that was stopped or killed, as if it had not been.

    With as many threads as before, the tables become the same to the last bit.
    """
    with Progress("reading the run"), given_files():
        from kgem.runs.run import Run

        run = Run.open(folder)
    with run:
        finished = run.model()
        if finished is not None:
            say(f"{plain(folder)}: this run is finished")
        else:
            use_threads(run.config, threads)
            _go_on_in_tensorboard(run)
            finished = train(run, quiet=quiet)
    tell_result(finished, folder, as_json, quiet)


def train(run: Run, *, quiet: bool, plan: bool = True, goes_on: str | None = None) -> Model:
    """Carry a run to its end, visibly; ends the command if the user stops it.

    `goes_on` tells how to go on then; without it, by kgem resume. `plan`: say first what will be done.
    """
    goes_on = goes_on or f"go on: kgem resume {plain(run.folder)}"
    try:
        with asked_to_stop() as stop:
            if plan and not quiet:
                tell_plan(run)
            with Watch(run, stop, quiet=quiet) as watch:
                model = run.carry_on(watch, stop)
    except KeyboardInterrupt:
        say(f"stopped without saving; the last checkpoint is there; {goes_on}")
        raise typer.Exit(INTERRUPTED) from None
    except KgemError:
        say(f"the run is in {plain(run.folder)}")
        raise
    if model is None:
        say(f"stopped and saved after {counted(len(run.records), 'epoch')}; {goes_on}")
        raise typer.Exit(INTERRUPTED)
    return model


def tell_plan(run: Run) -> None:
    """Graph, model, memory and estimated time, before anything long begins."""
    from kgem.data.dataset import SPLITS
    from kgem.data.stats import fit_memory
    from kgem.train.budget import epochs_left

    data, config = run.prepared.data, run.config
    say(summary(data.name, data.n_entities, data.n_relations, {s: len(data.split(s)) for s in SPLITS}))
    say(_split_line(run.prepared))
    phases = run.training.phases
    tables = phases.pretraining.embeddings.tables()
    parameters = sum(t.numel() for t in tables)
    need = fit_memory(sum(t.numel() * t.element_size() for t in tables))
    say(
        f"{config.model.score}, K = {config.model.dim}: {parameters:,} parameters and as many variances; "
        f"about {size(need)} of memory; {config.device}, {counted(_threads(), 'thread')}"
    )
    done = dict(phases.epochs)
    left = epochs_left(config, phases.phase, done) if phases.phase in done else 0
    each = run.training.seconds_per_epoch()
    if run.records:
        say(f"goes on after {counted(len(run.records), 'epoch')}, in phase {phases.phase}")
    if config.run.time_budget is not None:
        say(f"about {each:.2g} s an epoch; lengths are chosen to fit into {duration(config.run.time_budget)}")
    else:
        less = ", usually less, because phases end when validation no longer gains"
        say(
            f"about {each:.2g} s an epoch and at most {left:,} epochs: {duration(1.3 * each * left)}"
            f"{less if run.prepared.warm is None else ''}"  # an update has its length
        )
    say(f"run folder: {plain(run.folder)}")
    if run.is_in_tensorboard:
        say(f"to watch it: tensorboard --logdir {plain(run.folder)}")


def result_tables(model: Model) -> list[Any]:
    """What a fit came to."""
    measured = {split: model.metrics[split]["overall"] for split in _SPLITS if split in model.metrics}
    rows = [
        (split, figures["n"], *(f"{figures[name]:.3f}" for name in _FIGURES)) for split, figures in measured.items()
    ]
    return [table(["filtered ranks of", "questions", *_FIGURES.values()], rows)] if rows else []


def tell_result(model: Model, folder: Path, as_json: bool, quiet: bool) -> None:
    if as_json:
        overall = {split: model.metrics[split]["overall"] for split in _SPLITS if split in model.metrics}
        emit_json(
            {
                "run": str(folder),
                "graph": model.data.name,
                "mode": model.mode,
                "validation": dict(model.validation),
                "metrics": overall,
                "epochs": model.provenance["epochs"],
                "seconds": model.provenance["seconds"],
                **_update_document(model),
            }
        )
        return
    emit(*result_tables(model), *_update_tables(model))
    if quiet:
        return
    spent, place = duration(model.provenance["seconds"] or 0.0), plain(folder)
    best = f"; mode {model.mode} was best on validation" if model.validation else ""
    say(f"done in {spent}{best}", f"next: kgem predict {place} --head ... --relation ... ; kgem report {place}")


def _update_document(model: Model) -> dict[str, Any]:
    """Of a run that went on from another: what was new, and MRR before and after on the same facts."""
    if "update" not in model.provenance:
        return {}
    from kgem.runs.update import same_questions

    return {"update": {**model.provenance["update"]["changes"], "same_facts": same_questions(model)}}


def _update_tables(model: Model) -> list[Any]:
    compared = _update_document(model).get("update", {}).get("same_facts", {})
    rows = [(split, int(c["n"]), f"{c['mrr']:.3f}", f"{c['after']:.3f}") for split, c in compared.items()]
    columns = ["filtered MRR on the same facts of", "questions", "before", "after"]
    return ["", table(columns, rows)] if rows else []


def chosen_settings(
    recipe: str, file: Path | None, named: dict[str, Any], overrides: Sequence[str], time_budget: str | None
) -> Config:
    """Defaults, then the recipe, the file, the options and `--set`: what comes later counts."""
    from kgem.config import RECIPES
    from kgem.settings import parse_duration, parse_override, read_toml

    if recipe not in RECIPES:
        raise ConfigError(f"no recipe is called {recipe!r}", where="--recipe", remedy=f"one of {', '.join(RECIPES)}")
    given = {name: value for name, value in named.items() if value is not None}
    if time_budget is not None:
        given["run.time_budget"] = parse_duration(time_budget)
    given |= dict(map(parse_override, overrides))
    content = None if file is None else read_toml(file)
    with Progress("starting"):
        from kgem.runs.fitting import settings

        chosen = settings(None, RECIPES[recipe]())
        if content is not None:
            try:
                chosen = settings(chosen, content)
            except ConfigError as error:
                raise ConfigError(error.what, where=str(file), remedy=error.remedy) from error
        return settings(chosen, given)


def _warn(data: Dataset, prepared: Prepared) -> None:
    """What a user may take for granted and does not happen."""
    for name in sorted({str(column.name) for column in data.extra.values()} - {"split"}):
        say(f"warning: the column {plain(name)} is not used in training")
    if not len(prepared.data.valid):
        say("warning: there are no validation facts, so no phase can stop early; to set some apart: --valid 0.1")


def _check_free(out: Path, force: bool) -> None:
    from kgem.runs.run import check_free

    check_free(out, force)


def _go_on_in_tensorboard(run: Run) -> None:
    """A run that was begun with TensorBoard goes on so, if it can."""
    if run.is_in_tensorboard:
        try:
            run.show_in_tensorboard()
        except InputError as error:
            say(f"warning: {plain(error.what)}: the run goes on without")


def _check_memory(data: Dataset, config: Config) -> None:
    """An error if one set of tables alone is larger than the machine's memory: nothing is begun then."""
    from kgem.data.stats import fit_cost
    from kgem.model.scores import get_score

    if config.device != "cpu" or not hasattr(os, "sysconf"):
        return
    has = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    need = fit_cost(data, dim=config.model.dim, complex_space=get_score(config.model.score).complex).table_bytes
    if need > has:
        what = f"tables of {size(need)} do not fit into the {size(has)} of memory that this machine has"
        raise ConfigError(what, where=f"--dim {config.model.dim}", remedy="choose a lower dimension")


def _check_tensorboard() -> None:
    with Progress("starting"):
        from kgem.runs.tensorboard import check_installed

        check_installed()


def use_threads(config: Config, threads: int | None = None) -> Config:
    """Set torch's threads and write them down, so that a resumed run has as many."""
    import torch

    wanted = threads or config.run.threads
    if wanted is not None:
        torch.set_num_threads(wanted)
    return config.model_copy(update={"run": config.run.model_copy(update={"threads": torch.get_num_threads()})})


def _threads() -> int:
    import torch

    return torch.get_num_threads()


def _split_line(prepared: Prepared) -> str:
    data = prepared.data
    sizes = f"{len(data.train):,} facts to train, {len(data.valid):,} to validate, {len(data.test):,} to test"
    return sizes if prepared.split is None else f"{sizes}; split at random with seed {prepared.split['seed']}"


def _file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip(".") or "graph"
