"""`kgem evaluate`, `kgem compare`: how good a model is, alone and beside others."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kgem.cli.console import AsJson, emit, emit_json, heading, paragraph, plain, say, table
from kgem.cli.output import Force, refuse_existing
from kgem.cli.progress import Progress
from kgem.cli.results import (
    Device,
    Mode,
    ModeChoice,
    Run,
    Split,
    SplitChoice,
    counting,
    opened,
    save_figure,
)
from kgem.errors import ConfigError

if TYPE_CHECKING:
    from kgem.answer.model import Model
    from kgem.evaluate.calibration import Calibration
    from kgem.evaluate.comparison import Difference
    from kgem.evaluate.metrics import Evaluation, Metrics

__all__ = ["compare", "evaluate"]

FIGURES = ("MRR", "Hits@1", "Hits@3", "Hits@10", "mean rank", "ranks")
SIZE = r"([0-9]+(?:\.[0-9]+)?) *([kmgt]i?)?b?"  # 512MB, 1.5 GiB, 1000000
ROWS = 40  # of a breakdown in a table for people


def _bytes(text: str) -> int:
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


class ByChoice(StrEnum):
    """How figures can be broken down."""

    side = "side"
    category = "category"
    frequency = "frequency"
    relation = "relation"
    ties = "ties"


def evaluate(
    run: Run,
    split: Split = SplitChoice.test,
    mode: Mode = ModeChoice.auto,
    by: Annotated[
        list[ByChoice] | None, typer.Option(help="Break the figures down; may be given again.", show_default=False)
    ] = None,
    calibration: Annotated[
        bool, typer.Option("--calibration", help="Also measure how far the probabilities can be trusted.")
    ] = False,
    figure: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the reliability curve (.svg or .png).", show_default=False),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Raw ranks: the other known answers are rivals as well.")] = False,
    memory: Annotated[
        int | None,
        typer.Option(
            parser=_bytes,
            metavar="SIZE",
            help="At most for ranking, beside the model: 512MB, say; without it 1GiB.",
            show_default=False,
        ),
    ] = None,
    device: Device = "cpu",
    as_json: AsJson = False,
    force: Force = False,
) -> None:
    """Rank the facts of a split among all entities, without the other known answers: MRR and Hits@k."""
    if figure is not None:
        refuse_existing(figure, force)
    model = opened(run, device)
    with Progress(f"ranking {split}") as progress:
        limit = {} if memory is None else {"memory": memory}
        result = model.evaluate(split, mode, filtered=not raw, progress=counting(progress), **limit)
    measured = _calibration(model, split, mode) if calibration or figure is not None else None
    if figure is not None and measured is not None:
        from kgem.report.figures import reliability_figure

        curves = measured.curve, measured.curve_before
        save_figure(lambda: reliability_figure(*curves), figure)
    if as_json:
        emit_json({"filtered": not raw} | _evaluation_document(model, result, measured, split, mode, by or []))
        return
    ranks = ", raw ranks" if raw else ""
    emit(heading(f"{model.data.name}, {split}, mode {model.resolve(mode)}{ranks}", space=False))
    emit(_metrics_table("", {"all": result.overall}))
    for name in by or []:
        groups = getattr(result, f"by_{name}")
        emit(heading(f"By {name}"), _metrics_table(str(name), _most(groups)))
        if len(groups) > ROWS:
            emit(f"and {len(groups) - ROWS:,} more: --json has them")
    if measured is not None:
        emit(heading("Calibration of the first answer"), _calibration_table(measured))
        say(
            paragraph(
                "ECE: mean gap between probability and share that is right; log loss: of the right answer, in nats"
            )
        )
    if result.unseen_targets:
        say(f"{result.unseen_targets:,} of the ranked entities are not in train")


def _evaluation_document(
    model: Model, result: Evaluation, measured: Calibration | None, split: str, mode: str, by: Sequence[str]
) -> dict[str, Any]:
    full = result.to_dict()
    wanted = [f"by_{name}" for name in by] or [name for name in full if name.startswith("by_")]
    kept = {name: value for name, value in full.items() if name in wanted or not name.startswith("by_")}
    about = {"graph": model.data.name, "split": str(split), "mode": model.resolve(mode)}
    return {
        **about,
        "temperature": model.temperature(mode),
        **kept,
        **({} if measured is None else {"calibration": measured.to_dict()}),
    }


def _calibration(model: Model, split: str, mode: str) -> Calibration:
    from kgem.evaluate.calibration import measure

    data = model.data
    with Progress("measuring calibration"):
        facts = data.reciprocal(data.split(split))
        return measure(model.scorer(mode), facts, data.filter_index, model.temperature(mode))


def _calibration_table(measured: Calibration) -> Any:
    return table(
        ["", "temperature", "ECE", "ECE of the first 10", "log loss"],
        [
            (
                "as trained",
                "1",
                f"{measured.ece_before:.3f}",
                f"{measured.ece_pairs_before:.3f}",
                f"{measured.log_loss_before:.3f}",
            ),
            (
                "calibrated",
                f"{measured.temperature:.3g}",
                f"{measured.ece:.3f}",
                f"{measured.ece_pairs:.3f}",
                f"{measured.log_loss:.3f}",
            ),
        ],
    )


def _most(groups: Mapping[str, Metrics]) -> Mapping[str, Metrics]:
    """The groups with the most ranks, if there are too many to show."""
    if len(groups) <= ROWS:
        return groups
    return dict(sorted(groups.items(), key=lambda item: -item[1].n)[:ROWS])


def _metrics_table(name: str, groups: Mapping[str, Metrics]) -> Any:
    return table([name, *FIGURES], [(group, *_figures(each)) for group, each in groups.items()])


def _figures(metrics: Metrics) -> tuple[Any, ...]:
    hits = (metrics.hits_at_1, metrics.hits_at_3, metrics.hits_at_10)
    mean = metrics.mean_rank
    rank = f"{mean:,.0f}" if mean >= 100 else f"{mean:.1f}"
    return f"{metrics.mrr:.3f}", *(f"{share:.3f}" for share in hits), rank, metrics.n


def compare(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN RUN...", help="Folders of runs or models.", show_default=False)
    ],
    split: Split = SplitChoice.test,
    mode: Mode = ModeChoice.auto,
    seed: Annotated[int, typer.Option(min=0, help="Of the bootstrap.")] = 0,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Show runs on the same graph side by side, each with its gain in MRR over the first and a 95 % interval of it.

    The interval is of the paired bootstrap over facts: what another test set could show, not another seed.
    """
    if len(runs) < 2:
        raise ConfigError("one run cannot be compared", remedy="give two or more")
    import numpy as np

    from kgem.evaluate.comparison import check_same_facts, compare_values, rank_facts

    models: list[Model] = []
    values = []
    for run in runs:
        model = opened(run, device)
        if models:
            check_same_facts(models[0].data, model.data)
        with Progress(f"ranking {run}") as progress:
            values.append(rank_facts(model.scorer(mode), model.data, split, on_progress=counting(progress)))
        models.append(model)
    rng = np.random.default_rng(seed)
    gains = [compare_values(values[0][1], each, rng) for _, each in values[1:]]
    if as_json:
        documents = [
            {"run": str(run), **_about(model, mode), **vars(metrics)}
            for run, model, (metrics, _) in zip(runs, models, values, strict=True)
        ]
        for document, gain in zip(documents[1:], gains, strict=True):
            document["gain"] = gain.to_dict()
        emit_json({"graph": models[0].data.name, "split": str(split), "runs": documents})
        return
    emit(heading(f"{models[0].data.name}, {split}: {gains[0].n:,} facts", space=False))
    shown = [None, *gains]
    rows = [
        (run, *_about(model, mode).values(), *_figures(metrics)[:4], *_gain(gain))
        for run, model, (metrics, _), gain in zip(runs, models, values, shown, strict=True)
    ]
    emit(table(["run", "model", "mode", "K", *FIGURES[:4], "gain", "95 % interval"], rows, left=3))
    unclear = [plain(run) for run, gain in zip(runs[1:], gains, strict=True) if not gain.clear]
    if unclear:
        say(paragraph(f"not clearly different from {plain(runs[0])} on these facts: {', '.join(unclear)}"))


def _about(model: Model, mode: str) -> dict[str, Any]:
    return {"model": model.config.model.score, "mode": model.resolve(mode), "dim": model.config.model.dim}


def _gain(gain: Difference | None) -> tuple[str, str]:
    return ("", "") if gain is None else (f"{gain.value:+.4f}", f"{gain.low:+.4f} to {gain.high:+.4f}")
