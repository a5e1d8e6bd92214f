"""`kgem compare`: runs side by side on the facts that all of them hold out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kgem.cli.arguments import AsJson, Device, Mode, Split
from kgem.cli.console import emit, emit_json, heading, paragraph, plain, say, table
from kgem.cli.opening import open_model
from kgem.cli.progress import Progress
from kgem.errors import ConfigError
from kgem.report.formatting import METRICS, metric_cells

if TYPE_CHECKING:
    from kgem.answer.model import Model
    from kgem.evaluate.comparison import Difference


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of runs or models, two or more.")],
    split: Split = "test",
    mode: Mode = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Of the bootstrap.")] = 0,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Show runs side by side, each with its gain in MRR over the first and a 95 % interval of it.

    They are compared on the facts that all of them hold out: a run and its update, too. Each ranks among the entities
    of its own graph, without the answers that its graph knows. The interval is of the paired bootstrap over facts: what
    another test set could show, not another seed.
    """
    if len(runs) < 2:
        raise ConfigError("one run cannot be compared", remedy="give two or more")
    import numpy as np

    from kgem.evaluate.comparison import compare_values, find_common, rank_facts

    models = [open_model(run, device) for run in runs]
    common = find_common([model.data for model in models], split)
    values = []
    for run, model, facts in zip(runs, models, common, strict=True):
        with Progress(f"ranking {run}") as progress:
            values.append(rank_facts(model.scorer(mode), model.data, split, facts=facts, on_progress=progress.count))
    rng = np.random.default_rng(seed)
    gains = [compare_values(values[0][1], each, rng) for _, each in values[1:]]
    if as_json:
        documents = [
            {"run": str(run), **_describe(model, mode), **vars(metrics)}
            for run, model, (metrics, _) in zip(runs, models, values, strict=True)
        ]
        for document, gain in zip(documents[1:], gains, strict=True):
            document["gain"] = gain.to_dict()
        about = {"graph": models[0].data.name, "split": str(split), "facts": len(common[0])}
        emit_json({**about, "runs": documents})
        return
    emit(heading(f"{models[0].data.name}, {split}: {gains[0].n:,} facts", space=False))
    shown = [None, *gains]
    rows = [
        (run, *_describe(model, mode).values(), *metric_cells(metrics)[:4], *_gain_cells(gain))
        for run, model, (metrics, _), gain in zip(runs, models, values, shown, strict=True)
    ]
    for run, model in zip(runs, models, strict=True):
        left_out = len(model.data.split(split)) - len(common[0])
        if left_out:
            say(paragraph(f"{plain(run)} has {left_out:,} more facts in {split}, that others do not hold out"))
    if len({model.data.content_hash for model in models}) > 1:
        sizes = ", ".join(f"{model.data.n_entities:,}" for model in models)
        say(paragraph(f"the graphs differ: each ranks among its own entities ({sizes})"))
    emit(table(["run", "model", "mode", "K", *METRICS[:4], "gain", "95 % interval"], rows, left=3))
    unclear = [plain(run) for run, gain in zip(runs[1:], gains, strict=True) if not gain.clear]
    if unclear:
        say(paragraph(f"not clearly different from {plain(runs[0])} on these facts: {', '.join(unclear)}"))


def _describe(model: Model, mode: str) -> dict[str, Any]:
    return {"model": model.config.model.score, "mode": model.resolve(mode), "dim": model.config.model.dim}


def _gain_cells(gain: Difference | None) -> tuple[str, str]:
    return ("", "") if gain is None else (f"{gain.value:+.4f}", f"{gain.low:+.4f} to {gain.high:+.4f}")
