"""Tables of cells: Table 1 of the paper with our figures, and short ones for the page and the README."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from evidence.cells import PAPER_GRAPHS
from evidence.documents import MODELS, Document, subject
from evidence.published import Figure, published
from evidence.rows import AUTO, CHOSEN, LABELS, SINGLE, Row, rows_of
from evidence.tables import Table, bold, mean_and_spread

AUTO_MARK = "†"  # an asterisk would be taken for bold
NOT_RUN = "not run"
FEWEST_TRIALS = 12  # of a search that a fit is held against
SIZES = {"kbc": "same K", "libkge": "K not given"}  # what is known of the size of published models


def table1(documents: Sequence[Document]) -> list[Table]:
    """The paper's table on its graphs, and the same on others: MRR / Hits@10 on test."""
    rows = rows_of(documents)
    graphs = sorted({row.key[0] for row in rows})
    parts = {
        "Table 1": [graph for graph in PAPER_GRAPHS if graph in graphs],
        "Other graphs": [graph for graph in graphs if graph not in PAPER_GRAPHS],
    }
    return [_results(title, part, rows) for title, part in parts.items() if part]


def _results(title: str, graphs: Sequence[str], rows: Sequence[Row]) -> Table:
    """Rows by model: what is published for these graphs, then ours by dimension; the best on validation is bold."""
    lines: list[dict[str, str]] = []
    models = {row.key[1] for row in rows}
    for model in [*(each for each in MODELS if each in models), *sorted(models - MODELS.keys())]:
        lines += _published_lines(model, graphs)
        mine = [row for row in rows if row.key[1] == model and row.key[0] in graphs and not row.repeats]
        for dim in sorted({row.key[2] for row in mine}):
            block = [row for row in mine if row.key[2] == dim]
            best = [_best(block, graph) for graph in graphs]
            for label in dict.fromkeys(row.label for row in block):
                found = {row.key[0]: row for row in block if row.label == label}
                cells = {each: bold(_figures(row) + _mark(row), row in best) for each, row in found.items()}
                what = {"model": MODELS.get(model, model), "K": str(dim), "who": f"kgem, {label}"}
                lines.append(what | {graph: cells.get(graph, "") for graph in graphs})
    used = {figure.source for figure in published().figures if figure.graph in graphs}
    note = (
        "MRR / Hits@10 on test, filtered, pessimistic ties; over several seeds mean ± standard deviation, and in "
        f"brackets how many. Bold: our best on validation at that model and K. {AUTO_MARK}: the mode that the fit "
        f"chose on validation (auto), {AUTO_MARK} 2/3 if two of three seeds did; only then auto has a row of its own. "
        "A blend asks two models of dimension K together: twice the numbers. All other rows have one. Cells that were "
        "made with other settings than most of their seeds are left out. "
    )
    sources = (f"{source}: {text}." for source, text in published().sources.items() if source in used)
    return Table(title, lines, 3, note + " ".join(sources))


def _published_lines(model: str, graphs: Sequence[str]) -> Iterator[dict[str, str]]:
    """A line for each source, author and dimension."""
    lines: dict[tuple[Any, ...], dict[str, str]] = {}
    for figure in published().figures:
        if figure.model == model and figure.graph in graphs:
            found = lines.setdefault((figure.source, figure.who, figure.dim), {})
            found[figure.graph] = figure.text
    for (source, who, dim), found in lines.items():
        what = {"model": MODELS.get(model, model), "K": "" if dim is None else str(dim), "who": f"{who} ({source})"}
        yield what | {graph: found.get(graph, "") for graph in graphs}


def _best(rows: Sequence[Row], graph: str) -> Row | None:
    """Whose mean MRR on validation is highest: a choice on test would flatter."""
    others = [row for row in rows if row.key[0] == graph and row.label not in CHOSEN]
    return max(others, key=lambda row: row.mean("mrr", "valid"), default=None)


def _figures(row: Row) -> str:
    seeds = f" ({len(row.seeds)})" if len(row.seeds) > 1 else ""
    return f"{mean_and_spread(row.values('mrr'))} / {mean_and_spread(row.values('hits_at_10'))}{seeds}"


def _mark(row: Row) -> str:
    """Whether fits chose to predict this way; a row that is a choice, or of no fit, has no mark."""
    if not row.n_auto or row.label in CHOSEN or not row.label.startswith("after EM"):
        return ""
    return f" {AUTO_MARK}" if row.n_auto == len(row.seeds) else f" {AUTO_MARK} {row.n_auto}/{len(row.seeds)}"


def aims(documents: Sequence[Document]) -> Table:
    """Whether a fit is at least as good as what we set out to reach, or is not there; no rows without any such fit.

    With one model of the same size, and with whatever mode the fit chose; our conventional model stands beside it.
    """
    rows = rows_of(documents)
    lines: list[dict[str, str]] = []
    wanted = [figure for figure in published().figures if figure.aim_dim is not None]
    for figure in wanted:
        key = (figure.graph, figure.model, int(figure.aim_dim or 0))
        mine = [row for row in rows if row.key == key]
        given = next((_figures(row) for row in mine if row.label == LABELS["conventional", "point"]), "")
        found = {row.label: row for row in mine if row.label in CHOSEN}
        lines.append(
            {
                "graph and model": subject(*key),
                "published by": f"{figure.who}, {SIZES[figure.source]}",
                "published": figure.text,
                "ours, published strength": given,
                "one fit, one model": _figures(found[SINGLE]) if found else NOT_RUN,
                "reached": _met(found[SINGLE], figure) if found else "",
                "one fit, `auto`": _figures(found[AUTO]) if found else NOT_RUN,
                "reached by `auto`": _met(found[AUTO], figure) if found else "",
            }
        )
    note = (
        "MRR / Hits@10 on test. Reached: both are at least what is published. The published strength is of ComplEx; "
        "DistMult has that of a ComplEx with as many numbers."
    )
    return Table("Published and reached", lines if any(line["reached"] for line in lines) else [], 2, note)


def _met(row: Row, figure: Figure) -> str:
    enough = row.mean("mrr") >= float(figure.mrr) and row.mean("hits_at_10") >= float(figure.hits_at_10)
    return "yes" if enough else bold("no")


# short ones


def quality(documents: Sequence[Document]) -> Table:
    """The README's table: for each graph one ComplEx beside a shared strength and what is published.

    Of the largest dimension that has a search beside it, or the strength that was published for that size. All of a
    row are over the seeds that they share.
    """
    rows = [row for row in rows_of(documents) if row.key[1] == "complex"]
    lines: dict[str, dict[str, str]] = {}
    order = sorted((row for row in rows if row.label == AUTO), key=lambda row: (_place(row), row.key[2]))
    for auto in order:
        known = [f for f in published().figures if (f.graph, f.model) == auto.key[:2] and f.source != "paper"]
        known = [figure for figure in known if figure.dim in (auto.key[2], None)]
        baseline = _beside(auto, rows, given=any(figure.dim for figure in known))
        if baseline is None:
            continue
        seeds = [seed for seed in auto.seeds if seed in baseline.seeds]
        single = next(row for row in rows if (row.key, row.label) == (auto.key, SINGLE) and row.cells == auto.cells)
        how = f"{baseline.trials} trials" if baseline.trials else "its published value"
        lines.pop(auto.key[0], None)  # a smaller dimension
        lines[auto.key[0]] = {
            "graph and model": subject(*auto.key),
            "one shared strength, by search": f"{mean_and_spread(baseline.values('mrr', seeds=seeds))} ({how})",
            "one fit": mean_and_spread(auto.values("mrr", seeds=seeds)),
            "one model alone": mean_and_spread(single.values("mrr", seeds=seeds)),
            "published": ", ".join(f"{figure.mrr} ({figure.source})" for figure in known),
        }
    return Table("Quality", list(lines.values()))


def _place(row: Row) -> tuple[int, str]:
    """The paper's graphs first."""
    return (*PAPER_GRAPHS, row.key[0]).index(row.key[0]), row.key[0]


def _beside(fit: Row, rows: Sequence[Row], *, given: bool) -> Row | None:
    """The longest search that has a seed with a fit, if it has enough trials, or else a model with a given strength."""
    beside = [row for row in rows if row.key == fit.key and set(row.seeds) & set(fit.seeds)]
    searches = [row for row in beside if (row.trials or 0) >= FEWEST_TRIALS]
    others = [row for row in beside if given and row.label == LABELS["conventional", "point"]]
    return max(searches, key=lambda row: row.trials or 0, default=others[0] if others else None)


def behind(documents: Sequence[Document]) -> Table:
    """Where one model of a fit has less than one ordinary model of its size: seeds that both have."""
    rows = rows_of(documents)
    lines = []
    for single in sorted((row for row in rows if row.label == SINGLE), key=_place):
        baseline = _beside(single, rows, given=True)
        auto = next(row for row in rows if (row.key, row.label) == (single.key, AUTO) and row.cells == single.cells)
        if baseline is None:
            continue
        seeds = [seed for seed in single.seeds if seed in baseline.seeds]
        ordinary, one, chosen = (row.values("mrr", seeds=seeds) for row in (baseline, single, auto))
        loss = statistics.fmean(one) - statistics.fmean(ordinary)
        if round(loss, 3) < 0:
            lines.append(
                {
                    "graph and model": subject(*single.key),
                    "shared strength": baseline.label,
                    "seeds": str(len(seeds)),
                    "one ordinary model": mean_and_spread(ordinary),
                    "one fit, one model": mean_and_spread(one),
                    "one model's loss": f"{loss:+.3f}",
                    "one fit, `auto`": mean_and_spread(chosen),
                }
            )
    note = "Test MRR. All rows in which one model of the fit has less than one ordinary model of the same K."
    return Table("Behind one ordinary model", lines, 2, note)
