"""`kgem update`: further facts, or fewer, for a run that is finished, without a fit from scratch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kgem.cli import reading
from kgem.cli.arguments import AsJson, Force, Quiet, RunFolder, Threads, TimeBudget
from kgem.cli.console import plain, say
from kgem.cli.opening import open_model
from kgem.cli.progress import Progress
from kgem.cli.together import follow, follows
from kgem.cli.training import collect_settings, emit_result, train
from kgem.errors import InputError
from kgem.report.formatting import list_some, pluralise

if TYPE_CHECKING:
    from kgem.data.growth import Changes
    from kgem.runs.update import Delta

ORIGIN = "update"
_SHOWN = 5  # new labels told


@reading.with_options
def update(
    folder: RunFolder,
    facts: Annotated[
        str | None,
        typer.Argument(
            metavar="[FACTS]",
            help="New facts: a file, a folder with train/valid/test, - for standard input, or the review.tsv of a run.",
        ),
    ] = None,
    remove: Annotated[str | None, typer.Option(metavar="FILE", help="Facts that the graph is to lose.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The new run folder; without it RUN-2, or the next.")
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="One setting, as em.epochs=20; may be repeated."),
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N.")] = None,
    threads: Threads = None,
    time_budget: TimeBudget = None,
    quiet: Quiet = False,
    force: Force = False,
    as_json: AsJson = False,
    *,
    how: reading.ReadOptions,
) -> None:
    """Teach a run new facts, about new entities and relations too; into a run folder of its own.

    It goes on from what the run has learned: a short EM, re-training and distillation. New facts are for training
    unless the file says otherwise; those kept for validation and test stay there, so that figures can be compared.
    """
    if follows():
        return follow()
    if facts is None and remove is None:
        raise InputError("no facts are given", remedy=f"kgem update {folder} new.tsv, or --remove gone.tsv, or both")
    changed = collect_settings({"device": device, "run.threads": threads}, overrides, time_budget)
    if out is not None:
        _check_target(out, folder, force)
    model = open_model(folder)
    delta = _read(facts, remove, how, quiet)
    with Progress("preparing"):
        from kgem.runs.run import Run
        from kgem.runs.update import new_folder, plan_update
        from kgem.train.machine import settle

        target = new_folder(folder) if out is None else out
        planned = plan_update(model, delta, changed, folder)
        config = settle(planned.prepared.data, planned.config)
    for line in _describe(planned.changes, delta, quiet):
        say(line)
    with Run.create(target, planned.prepared, config, force=force, origin=ORIGIN) as run:
        finished = train(run, quiet=quiet)
    return emit_result(finished, target, as_json, quiet)


def _check_target(out: Path, folder: Path, force: bool) -> None:
    """An error if the new run cannot begin there; the old one never gives way, not even by force."""
    from kgem.runs.run import check_free

    if out.resolve() in (folder.resolve(), folder.resolve().parent) or folder.resolve() in out.resolve().parents:
        what = "is the run that is updated; it is not overwritten"
        raise InputError(what, where=str(out), remedy="give another --out, or none")
    check_free(out, force)


def _read(facts: str | None, remove: str | None, how: reading.ReadOptions, quiet: bool) -> Delta:
    with reading.show_progress(str(facts or remove)):
        from kgem.runs.update import read_delta

        delta = read_delta(facts, remove, how)
    if not quiet:
        reading.tell(delta.reports)
    return delta


def _describe(changes: Changes, delta: Delta, quiet: bool) -> Iterator[str]:
    """What is new, what was known, and what does not happen."""
    if not quiet:
        yield f"new: {pluralise(changes.total_new, 'fact')}{_by_split(changes.new)}"
        for one, many, labels in (
            ("entity", "entities", changes.entities),
            ("relation", "relations", changes.relations),
        ):
            if labels:
                yield f"new: {pluralise(len(labels), one, many)}: {plain(list_some(labels, _SHOWN))}"
        if changes.known:
            yield f"known already: {pluralise(changes.known, 'fact')}"
        if changes.repeated:
            yield f"given for two splits: {pluralise(changes.repeated, 'fact')}; the first split counts"
        if changes.total_removed:
            yield f"removed: {pluralise(changes.total_removed, 'fact')}{_by_split(changes.removed)}"
        if delta.review is not None:
            learned, wrong, dropped, rest = (
                delta.review[name] for name in ("learned", "ranked", "dropped", "without_effect")
            )
            yield (
                f"review: {learned:,} proposals accepted, {wrong:,} rejected, {dropped:,} facts dropped, "
                f"{rest:,} further decisions"
            )
    for split, n in changes.held_out.items():
        if n:
            yield f"warning: {pluralise(n, 'fact')} in {split} already: left there"
    if changes.absent:
        yield f"warning: {pluralise(changes.absent, 'fact')} to remove that the graph does not have"
    yield from (f"warning: {plain(warning)}" for warning in delta.warnings)


def _by_split(counts: Mapping[str, int]) -> str:
    parts = [f"{n:,} in {split}" for split, n in counts.items() if n]
    return f" ({', '.join(parts)})" if parts else ""
