"""`kgem strengths`: what the regularisers learned, the most and the least regularised symbols."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kgem.cli.arguments import AsCsv, AsJson, Figure, Force, Out, RunFolder
from kgem.cli.console import emit, heading, paragraph, plain, say, table
from kgem.cli.destination import Destination, refuse_figure, save_figure
from kgem.cli.opening import open_model

if TYPE_CHECKING:
    from kgem.answer.model import Model

TOP = 10
COLUMNS = ("kind", "label", "strength", "frequency", "ratio")


def strengths(
    run: RunFolder,
    top: Annotated[int, typer.Option(min=1, help="How many of the most, and of the least regularised to list.")] = TOP,
    of: Annotated[Literal["entities", "relations"] | None, typer.Option(help="Only these.")] = None,
    figure: Figure = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    out: Out = None,
    force: Force = False,
) -> None:
    """Show the most and least regularised symbols against their frequency: what the model trusts.

    A high strength keeps a vector near zero. The ratio compares it with what the symbol's frequency would suggest: 2
    means twice as strong as symbols of that frequency are on average. JSON, CSV and files have every symbol.
    """
    destination = Destination(as_json, as_csv, out, force)
    refuse_figure(figure, force)
    model = open_model(run)
    kinds = [of] if of else ["entities", "relations"]
    groups = {kind: _list_symbols(model, kind) for kind in kinds}
    if figure is not None:
        from kgem.report.figures import draw_strengths

        save_figure(draw_strengths(model, kinds[0]), figure)
    if not destination.is_table:
        every = [row for rows, _ in groups.values() for row in rows]
        destination.write({kind: {**fit, "symbols": rows} for kind, (rows, fit) in groups.items()}, every, COLUMNS)
        return
    for place, (kind, (rows, fit)) in enumerate(groups.items()):
        _emit_tables(model, kind, rows, fit, top, place > 0)


def _list_symbols(model: Model, kind: str) -> tuple[list[dict[str, Any]], dict[str, float | None]]:
    """All symbols, the most regularised first, and how strengths follow frequency."""
    import numpy as np

    from kgem.evaluate.strength_laws import fit_strengths

    data = model.data
    if kind == "entities":
        labels, counts, lam = list(data.entities), data.entity_counts, model.strengths.entities.array
        kinds = ["entity"] * len(labels)
    else:
        both = model.point.reciprocal
        labels = list(data.relations) * (1 + both)
        kinds = ["relation"] * data.n_relations + ["reciprocal"] * (data.n_relations * both)
        counts = np.tile(data.relation_counts, 1 + both)
        lam = model.learned.relations[: model.point.n_own].cpu().double().numpy()
    fit = fit_strengths(lam, counts)
    flat = np.isnan(fit.slope)  # all symbols are equally frequent
    usual = np.full(len(lam), np.exp(np.log(lam).mean())) if flat else fit.scale * np.maximum(counts, 1) ** fit.slope
    rows = [
        {"kind": kinds[i], "label": labels[i], "strength": float(lam[i]), "frequency": int(counts[i]), "ratio": ratio}
        for i, ratio in ((i, float(lam[i] / usual[i])) for i in np.argsort(-lam, kind="stable").tolist())
    ]
    return rows, {"slope": None if flat else fit.slope, "proportional": fit.c}


def _emit_tables(
    model: Model, kind: str, rows: Sequence[dict[str, Any]], fit: dict[str, float | None], top: int, space: bool
) -> None:
    columns = [kind, "strength", "facts", "ratio"]
    show = model.data.names.show

    def cells(some: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
        return [
            (_write_label(row, show), f"{row['strength']:.3g}", row["frequency"], f"{row['ratio']:.2f}") for row in some
        ]

    most, least = rows[:top], rows[::-1][: min(top, max(0, len(rows) - top))]
    emit(heading(f"The most regularised {kind}", space=space), table(columns, cells(most)))
    if least:
        emit(heading(f"The least regularised {kind}"), table(columns, cells(least)))
    if fit["slope"] is not None:
        say(paragraph(f"{kind}: strength grows like frequency to the power {fit['slope']:.2f} (1 is the usual rule)"))


def _write_label(row: dict[str, Any], show: Callable[[str], str]) -> str:
    return f"{plain(show(row['label']))}{'⁻¹' if row['kind'] == 'reciprocal' else ''}"
