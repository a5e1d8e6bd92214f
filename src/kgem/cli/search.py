"""`kgem search`: the usual search for one shared strength, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from kgem.cli import reading
from kgem.cli.arguments import AsCsv, AsJson, Device, Force, Out
from kgem.cli.console import emit, plain, say, table
from kgem.cli.destination import Destination
from kgem.cli.progress import Progress, duration
from kgem.errors import FitError, InputError
from kgem.report.formatting import percent

if TYPE_CHECKING:
    from kgem.data.dataset import Dataset
    from kgem.evaluate.metrics import Metrics
    from kgem.model.embeddings import Embeddings
    from kgem.train.search import Trial

RANGE = (1e-3, 1.0)  # of the shared strength: kgem.train.search.STRENGTHS, without loading the engine

TRIALS = ("number", "strength", "learning_rate", "mrr", "epochs", "seconds", "outcome")


@reading.with_options
def search(
    graph: reading.Graph,
    trials: Annotated[int, typer.Option(min=1, help="Complete trainings.")] = 30,
    model: Annotated[str, typer.Option(help="Score function.")] = "complex",
    dim: Annotated[int, typer.Option(min=1, help="Dimension of the embeddings.")] = 100,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Of each trial at most; without it as pre-training.")
    ] = None,
    strengths: Annotated[
        tuple[float, float], typer.Option(metavar="LOW HIGH", help="Range of the shared strength.")
    ] = RANGE,
    search_rate: Annotated[bool, typer.Option("--rate", help="Search the learning rate as well.")] = False,
    prune: Annotated[bool, typer.Option("--prune", help="End trials early that are behind the median.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of splits, tables, order and search.")] = 0,
    device: Device = "cpu",
    out: Out = None,
    force: Force = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    *,
    how: reading.ReadOptions,
) -> None:
    """The baseline that kgem replaces: Optuna's search for one shared strength, and what it costs.

    Every trial is a complete training with the strengths of Eq. 6, on the engine that 'kgem fit' uses.
    """
    destination = Destination(as_json, as_csv, out, force)
    data = reading.load(graph, how)
    from kgem.evaluate.validation import make_validator
    from kgem.runs.configure import configure
    from kgem.runs.fitting import prepare
    from kgem.train.machine import settle
    from kgem.train.search import RATES, train_in_memory
    from kgem.train.search import search as run_trials

    overrides = {"model.score": model, "model.dim": dim, "seed": seed, "device": device, "run.products": "exact"}
    config = configure(None, overrides | ({} if epochs is None else {"pretrain.epochs": epochs}))
    prepared = prepare(data, seed).data
    config = settle(prepared, config)
    validate = make_validator(prepared, seed)
    if validate is None:
        raise InputError(f"{prepared.name} is too small to split", remedy="give it validation facts")
    say(f"{plain(prepared.name)}: {trials} trials of at most {config.pretrain.epochs} epochs, {model}, K = {dim}")
    done: list[Trial] = []
    best: tuple[Trial, Embeddings] | None = None
    rates = RATES if search_rate else None
    with Progress("searching", total=trials) as progress:
        run_trial = partial(train_in_memory, prepared, validate)
        found = run_trials(config, run_trial, trials=trials, strengths=strengths, rates=rates, prune=prune)
        for trial, tables in found:
            progress.advance()
            what = trial.outcome if trial.mrr is None else f"valid MRR {_mrr(trial)}"
            cost = f"{trial.epochs} epochs, {duration(trial.seconds)}"
            say(f"trial {trial.number}: strength {trial.strength:.3g}, {what}, {cost}")
            done.append(trial)
            if _rank(trial) > (-math.inf if best is None else _rank(best[0])):
                best = trial, tables
    if best is None:
        raise FitError("no trial of the search came to a result", remedy="lower the learning rate")
    _emit_result(destination, prepared, done, *best)


def _emit_result(
    destination: Destination, data: Dataset, trials: Sequence[Trial], best: Trial, tables: Embeddings
) -> None:
    tested = _test(data, tables)
    epochs, seconds = sum(trial.epochs for trial in trials), sum(trial.seconds for trial in trials)
    if not destination.is_table:
        rows = [trial.to_dict() for trial in trials]
        test = None if tested is None else vars(tested)
        cost = {"epochs": epochs, "seconds": seconds}
        destination.write({"best": best.to_dict(), "test": test, "cost": cost, "trials": rows}, rows, TRIALS)
        return
    cells = [
        (f"{t.number}", t.outcome, f"{t.strength:.3g}", f"{t.learning_rate:.3g}", _mrr(t), t.epochs, f"{t.seconds:.1f}")
        for t in sorted(trials, key=_rank, reverse=True)
    ]
    emit(table(["trial", "outcome", "strength", "rate", "valid MRR", "epochs", "seconds"], cells, left=2))
    on_test = "" if tested is None else f", test MRR {tested.mrr:.3f}, Hits@10 {percent(tested.hits_at_10)}"
    emit("", f"best: strength {best.strength:.3g}, valid MRR {_mrr(best)}{on_test}")
    emit(f"cost: {epochs:,} epochs in {len(trials)} trainings, {duration(seconds)}")


def _rank(trial: Trial) -> float:
    return -math.inf if trial.mrr is None else trial.mrr


def _test(data: Dataset, tables: Embeddings) -> Metrics | None:
    """What the best trial's tables are worth on test."""
    from kgem.evaluate.metrics import summarise
    from kgem.evaluate.ranking import rank

    if not len(data.test):
        return None
    return summarise(rank(tables, data.reciprocal(data.test), data.filter_index).of("pessimistic"))


def _mrr(trial: Trial) -> str:
    return "" if trial.mrr is None else f"{trial.mrr:.3f}"
