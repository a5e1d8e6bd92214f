"""`kgem evaluate`: how good a model is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kgem.cli.arguments import AsJson, Device, Force, Mode, RunFolder, Split
from kgem.cli.console import emit, emit_json, heading, paragraph, say, table
from kgem.cli.destination import refuse_figure, save_figure
from kgem.cli.opening import open_model
from kgem.cli.progress import Progress
from kgem.report.formatting import METRICS, metric_cells, percent

if TYPE_CHECKING:
    from kgem.answer.model import Model
    from kgem.answer.proposal_quality import ProposalQuality
    from kgem.evaluate.calibration import Calibration
    from kgem.evaluate.metrics import Evaluation, Metrics

SIZE = r"([0-9]+(?:\.[0-9]+)?) *([kmgt]i?)?b?"  # 512MB, 1.5 GiB, 1000000
ROWS = 40  # of a breakdown in a table for people


def _parse_size(text: str) -> int:
    """A size as people write it, in bytes."""
    found = re.fullmatch(SIZE, text.strip().lower())
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a size such as 512MB or 1.5GiB")
    number, unit = found.groups()
    factor = (1024 if unit.endswith("i") else 1000) ** (1 + "kmgt".index(unit[0])) if unit else 1
    size = int(float(number) * factor)
    if size < 1:
        raise typer.BadParameter("nothing can be ranked without memory")
    return size


ByChoice = StrEnum("ByChoice", ["side", "category", "frequency", "relation", "ties"])  # how figures are broken down


def evaluate(
    run: RunFolder,
    split: Split = "test",
    mode: Mode = "auto",
    by: Annotated[list[ByChoice] | None, typer.Option(help="Break the figures down; may be given again.")] = None,
    calibration: Annotated[
        bool, typer.Option("--calibration", help="Also measure how far the probabilities can be trusted.")
    ] = False,
    proposals: Annotated[
        bool, typer.Option("--proposals", help="Also count the test facts among the first facts that it would propose.")
    ] = False,
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the reliability curve (.svg or .png).")
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Raw ranks: the other known answers are rivals as well.")] = False,
    memory: Annotated[
        int | None,
        typer.Option(
            parser=_parse_size,
            metavar="SIZE",
            help="At most for ranking, beside the model: 512MB, say; without it 1GiB.",
        ),
    ] = None,
    device: Device = "cpu",
    as_json: AsJson = False,
    force: Force = False,
) -> None:
    """Rank the facts of a split among all entities, without the other known answers: MRR and Hits@k."""
    refuse_figure(figure, force)
    model = open_model(run, device)
    with Progress(f"ranking {split}") as progress:
        limit = {} if memory is None else {"memory": memory}
        result = model.evaluate(split, mode, filtered=not raw, progress=progress.count, **limit)
    measured = _measure_calibration(model, split, mode) if calibration or figure is not None else None
    proposed = _measure_proposals(model, mode) if proposals else None
    if figure is not None and measured is not None:
        from kgem.report.figures import reliability_figure

        save_figure(reliability_figure(measured.curve, measured.curve_before), figure)
    if as_json:
        emit_json({"filtered": not raw} | _to_document(model, result, measured, proposed, split, mode, by or []))
        return
    ranks = ", raw ranks" if raw else ""
    emit(heading(f"{model.data.name}, {split}, mode {model.resolve(mode)}{ranks}", space=False))
    emit(_tabulate_metrics("", {"all": result.overall}))
    for name in by or []:
        groups = getattr(result, f"by_{name}")
        if name == ByChoice.relation:
            groups = {model.data.relations.show(label): each for label, each in groups.items()}
        emit(heading(f"By {name}"), _tabulate_metrics(str(name), _keep_largest(groups)))
        if len(groups) > ROWS:
            emit(f"and {len(groups) - ROWS:,} more: --json has them")
    if measured is not None:
        emit(heading("Calibration of the first answer"), _tabulate_calibration(measured))
        say(
            paragraph(
                "ECE: mean gap between probability and share that is right; log loss: of the right answer, in nats"
            )
        )
    if proposed is not None:
        emit(heading("Test facts among the first proposals"), _tabulate_proposals(proposed))
        if proposed.claimed:
            emit(heading("Hundred by hundred"), _tabulate_claims(proposed))
        say(paragraph(f"{proposed.test_facts:,} test facts; training and validation facts are not proposed"))
    if result.unseen_targets:
        say(f"{result.unseen_targets:,} of the ranked entities are not in train")


def _to_document(
    model: Model,
    result: Evaluation,
    measured: Calibration | None,
    proposed: ProposalQuality | None,
    split: str,
    mode: str,
    by: Sequence[str],
) -> dict[str, Any]:
    full = result.to_dict()
    wanted = [f"by_{name}" for name in by] or [name for name in full if name.startswith("by_")]
    kept = {name: value for name, value in full.items() if name in wanted or not name.startswith("by_")}
    about = {"graph": model.data.name, "split": str(split), "mode": model.resolve(mode)}
    return {
        **about,
        "temperature": model.temperature(mode).common,
        **kept,
        **({} if measured is None else {"calibration": measured.to_dict()}),
        **({} if proposed is None else {"proposals": proposed.to_dict()}),
    }


def _measure_calibration(model: Model, split: str, mode: str) -> Calibration:
    from kgem.report.calibration import measure_calibration

    with Progress("measuring calibration"):
        return measure_calibration(model, split, mode)


def _measure_proposals(model: Model, mode: str) -> ProposalQuality:
    from kgem.answer.proposal_quality import measure_proposals

    with Progress("looking for proposals") as progress:
        return measure_proposals(model.mode_scorer(mode), on_progress=progress.count)


def _tabulate_proposals(proposed: ProposalQuality) -> Any:
    orders = {"learned": proposed.learned, "by share": proposed.by_share, "by frequency alone": proposed.by_frequency}
    rows = [(name, *map(percent, shares)) for name, shares in orders.items() if shares is not None]
    return table(["order", *(f"first {n:,}" for n in proposed.first)], rows)


def _tabulate_claims(proposed: ProposalQuality) -> Any:
    rows = [("claimed", *map(percent, proposed.claimed)), ("found", *map(percent, proposed.found))]
    return table(["", *(f"{100 * (i + 1):,}" for i in range(len(proposed.claimed)))], rows)


def _tabulate_calibration(measured: Calibration) -> Any:
    before = (measured.ece_before, measured.ece_pairs_before, measured.log_loss_before)
    after = (measured.ece, measured.ece_pairs, measured.log_loss)
    rows = [
        (name, temperature, *(f"{value:.3f}" for value in values))
        for name, temperature, values in (
            ("as trained", "1", before),
            ("calibrated", f"{measured.temperature:.3g}", after),
        )
    ]
    return table(["", "temperature", "ECE", "ECE of the first 10", "log loss"], rows)


def _keep_largest(groups: Mapping[str, Metrics]) -> Mapping[str, Metrics]:
    """The groups with the most ranks, if there are too many to show."""
    if len(groups) <= ROWS:
        return groups
    return dict(sorted(groups.items(), key=lambda item: -item[1].n)[:ROWS])


def _tabulate_metrics(name: str, groups: Mapping[str, Metrics]) -> Any:
    return table([name, *METRICS], [(group, *metric_cells(each)) for group, each in groups.items()])
