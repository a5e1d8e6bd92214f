"""What fit, resume, update and demo share: a run that is carried to its end before the user's eyes, and its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from kgem.cli.console import emit, emit_json, plain, say, table
from kgem.cli.progress import Progress, duration, pace
from kgem.cli.tables import describe_means, describe_time, size, summary
from kgem.cli.together import lead
from kgem.cli.watch import Watch, asked_to_stop
from kgem.errors import KgemError
from kgem.report.formatting import METRICS, metric_cells, pluralise

if TYPE_CHECKING:
    from kgem.answer.model import Model
    from kgem.evaluate.metrics import Metrics
    from kgem.runs.run import Run

INTERRUPTED = 130  # exit code, as of shells


def train(run: Run, *, quiet: bool, plan: bool = True, goes_on: str | None = None) -> Model:
    """Carry a run to its end, visibly; ends the command if the user stops it.

    `goes_on` tells how to go on then; without it, by kgem resume. `plan`: say first what will be done.
    """
    goes_on = goes_on or f"go on: kgem resume {plain(run.folder)}"
    try:
        with asked_to_stop() as stop, lead(run):
            run.stop = lambda: stop.asked
            if plan and not quiet:
                say_plan(run)
            with Watch(run, stop, quiet=quiet) as watch:
                stop.waits = True
                for record in run.epochs():
                    watch.show(record)
                if run.is_stopped:
                    run.save_at_stop()
                else:
                    run.save_epochs()
                    stop.waits = False
                    return run.finish()
    except KeyboardInterrupt:
        say("stopped without saving; the last checkpoint is there", goes_on)
        raise typer.Exit(INTERRUPTED) from None
    except KgemError:
        say(f"the run is in {plain(run.folder)}")
        raise
    more = f" and {pluralise(steps, 'step')} of the next" if (steps := run.steps_of_next_epoch) else ""
    say(f"stopped and saved after {pluralise(len(run.records), 'epoch')}{more}", goes_on)
    raise typer.Exit(INTERRUPTED)


def say_plan(run: Run) -> None:
    """Graph, model, memory and estimated time, before anything long begins."""
    from kgem.data.dataset import SPLITS
    from kgem.runs.fitting import needed_memory
    from kgem.train.softmax import say_softmax

    data, config = run.prepared.data, run.config
    say(summary(data.name, data.n_entities, data.n_relations, {s: len(data.split(s)) for s in SPLITS}))
    sizes = f"{len(data.train):,} facts to train, {len(data.valid):,} to validate, {len(data.test):,} to test"
    split = run.prepared.split
    say(sizes if split is None else f"{sizes}; split at random with seed {split['seed']}")
    phases = run.fit.phases
    tables = phases.pretraining.embeddings.tables()
    parameters = sum(t.numel() for t in tables)
    need = needed_memory(data, config).peak
    say(say_softmax(config, data, tables[0].shape[1]))
    say(
        f"{config.model.score}, K = {config.model.dim}: {parameters:,} parameters and as many variances; "
        f"about {size(need)} of memory; {describe_means(config)}"
    )
    if run.records:
        say(f"goes on after {pluralise(len(run.records), 'epoch')}, in phase {phases.phase}")
    say_time(run)
    say(f"run folder: {plain(run.folder)}")
    if run.is_in_tensorboard:
        say(f"to watch it: tensorboard --logdir {plain(run.folder)}")


def say_time(run: Run) -> None:
    """How long it will take; processes that work together would have to measure it together."""
    from kgem.runs.estimate import estimate_fit

    config, processes = run.config, run.processes
    if processes.count > 1:
        rows = run.fit.phases.shards.largest
        say(f"{processes.count} processes, each with up to {rows:,} of the rows of entities")
        return
    with Progress("measuring some steps"):
        time = estimate_fit(run.fit, run.prepared)
    if config.run.time_budget is not None:
        budget = duration(config.run.time_budget)
        say(f"about {pace(time.seconds_per_epoch)} an epoch; lengths are chosen to fit into {budget}")
    elif time.most:
        say(describe_time(time))


def result_tables(model: Model) -> list[Any]:
    """What a fit came to."""
    from kgem.evaluate.metrics import Metrics

    measured = {split: Metrics(**figures) for split, figures in _collect_overall(model).items()}
    rows = [(split, _count(model, split, figures), *metric_cells(figures)[:4]) for split, figures in measured.items()]
    return [table(["filtered ranks of", "questions", *METRICS[:4]], rows)] if rows else []


def emit_result(model: Model, folder: Path, as_json: bool, quiet: bool) -> None:
    if as_json:
        emit_json(
            {
                "run": str(folder),
                "graph": model.data.name,
                "mode": model.mode,
                "validation": dict(model.validation),
                "metrics": _collect_overall(model),
                "epochs": model.provenance["epochs"],
                "seconds": model.provenance["seconds"],
                "unfinished": list(model.unfinished),
                **_update_document(model),
            }
        )
        return
    emit(*result_tables(model), *_update_tables(model))
    if quiet:
        return
    spent, place = duration(model.provenance["seconds"] or 0.0), plain(folder)
    best = f"; it answers in mode {model.mode}, by validation" if model.validation else ""
    say(f"done in {spent}{best}", f"next: kgem predict {place} --head ... --relation ... ; kgem report {place}")


def _collect_overall(model: Model) -> dict[str, Any]:
    return {split: model.metrics[split]["overall"] for split in ("valid", "test") if split in model.metrics}


def _count(model: Model, split: str, figures: Metrics) -> str:
    """How many questions were ranked, and of how many if these are a sample."""
    available = model.metrics[split].get("available") or figures.n
    return f"{figures.n:,}" if figures.n == available else f"{figures.n:,} of {available:,}"


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


def collect_settings(
    named: Mapping[str, Any], overrides: Sequence[str] | None, time_budget: str | None
) -> dict[str, Any]:
    """Options and `--set`: what comes later counts."""
    from kgem.settings import parse_duration, parse_override

    given = {name: value for name, value in named.items() if value is not None}
    if time_budget is not None:
        given["run.time_budget"] = parse_duration(time_budget)
    return given | dict(map(parse_override, overrides or ()))
