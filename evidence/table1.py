"""Table 1 of the paper with our figures beside the published ones, from the JSON files of cells."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from evidence.cells import PAPER_GRAPHS, read_cells
from evidence.documents import Document, write_text
from evidence.naming import MODELS, model_name, subject
from evidence.published import Figure, published
from evidence.rows import CHOSEN, LABELS, Row, rows_of
from evidence.settled import complete, settled_table
from evidence.tables import Table, html_page, mean_and_spread
from kgem.errors import InputError

__all__ = ["aims", "details", "table1", "write_tables"]

AUTO_MARK = "†"  # an asterisk would be taken for bold
NOT_RUN = "not run"


def table1(documents: Sequence[Document]) -> list[Table]:
    """The paper's table on its graphs, and the same on others: MRR / Hits@10 on test."""
    rows = rows_of(documents)
    graphs = sorted({row.graph for row in rows})
    parts = {
        "Table 1": [graph for graph in PAPER_GRAPHS if graph in graphs],
        "Other graphs": [graph for graph in graphs if graph not in PAPER_GRAPHS],
    }
    return [_results(title, part, rows) for title, part in parts.items() if part]


def _results(title: str, graphs: Sequence[str], rows: Sequence[Row]) -> Table:
    """Rows by model: what is published for these graphs, then ours by dimension; the best on validation is bold."""
    lines: list[list[str]] = []
    bold: set[tuple[int, int]] = set()
    for model in _models(rows):
        lines += [_published_line(each, graphs) for each in _published_rows(model, graphs)]
        mine = [row for row in rows if row.model == model and row.graph in graphs and not row.repeats]
        for dim in sorted({row.dim for row in mine}):
            block = [row for row in mine if row.dim == dim]
            best = {graph: _best_name(block, graph) for graph in graphs}
            for name in dict.fromkeys(row.name for label in LABELS.values() for row in block if row.label == label):
                found = {row.graph: row for row in block if row.name == name}
                bold |= {(len(lines), 3 + j) for j, graph in enumerate(graphs) if best[graph] == name}
                cells = [_figures(found[graph]) + _mark(found[graph]) if graph in found else "" for graph in graphs]
                lines.append([model_name(model), str(dim), f"kgem, {name}", *cells])
    used = {figure.source for figure in published().figures if figure.graph in graphs}
    notes = [
        "MRR / Hits@10 on test, filtered, pessimistic ties; over several seeds mean ± standard deviation, and in "
        f"brackets how many. Bold: our best on validation at that model and K. {AUTO_MARK}: the mode that the fit "
        f"chose on validation (auto), {AUTO_MARK} 2/3 if two of three seeds did; only then auto has a row of its own."
    ]
    notes += ["A blend asks two models of dimension K together: twice the numbers. All other rows have one."]
    notes += [f"{source}: {text}." for source, text in published().sources.items() if source in used]
    return Table(title, ["model", "K", "who", *graphs], lines, 3, frozenset(bold), notes)


def _models(rows: Sequence[Row]) -> list[str]:
    found = {row.model for row in rows}
    return [model for model in MODELS if model in found] + sorted(found - MODELS.keys())


def _published_rows(model: str, graphs: Sequence[str]) -> Iterator[list[Figure]]:
    """The figures of one line each: the same source, author and dimension."""
    lines: dict[tuple[Any, ...], list[Figure]] = {}
    for figure in published().figures:
        if figure.model == model and figure.graph in graphs:
            lines.setdefault((figure.source, figure.who, figure.dim), []).append(figure)
    yield from lines.values()


def _published_line(figures: Sequence[Figure], graphs: Sequence[str]) -> list[str]:
    first = figures[0]
    found = {figure.graph: figure.text for figure in figures}
    dim = "" if first.dim is None else str(first.dim)
    return [model_name(first.model), dim, f"{first.who} ({first.source})", *(found.get(graph, "") for graph in graphs)]


def _best_name(rows: Sequence[Row], graph: str) -> str | None:
    """Whose mean MRR on validation is highest: a choice on test would flatter."""
    others = [row for row in rows if row.graph == graph and row.label not in CHOSEN]
    return max(others, key=lambda row: row.mean("mrr", "valid")).name if others else None


def _figures(row: Row) -> str:
    seeds = f" ({len(row.seeds)})" if len(row.seeds) > 1 else ""
    return f"{mean_and_spread(row.values('mrr'))} / {mean_and_spread(row.values('hits_at_10'))}{seeds}"


def _mark(row: Row) -> str:
    """Whether fits chose to predict this way; a row that is a choice, or of no fit, has no mark."""
    if not row.n_auto or row.label in CHOSEN or not row.label.startswith("after EM"):
        return ""
    return f" {AUTO_MARK}" if row.n_auto == len(row.seeds) else f" {AUTO_MARK} {row.n_auto}/{len(row.seeds)}"


def aims(documents: Sequence[Document]) -> Table | None:
    """Whether a fit is at least as good as what we set out to reach, or is not there; None without any such fit.

    With one model of the same size, and with whatever mode the fit chose.
    """
    rows = [row for row in rows_of(documents) if row.label in CHOSEN]
    lines: list[list[str]] = []
    for figure in published().figures:
        if figure.aim_dim is None:
            continue
        mine = [row for row in rows if (row.graph, row.model, row.dim) == (figure.graph, figure.model, figure.aim_dim)]
        name = subject(figure.graph, figure.model, figure.aim_dim)
        size = "no K given" if figure.dim is None else f"K = {figure.dim}"
        wanted = [f"{figure.who}, {size}", figure.text]
        for settings in dict.fromkeys(row.settings for row in mine):
            found = {row.label: row for row in mine if row.settings == settings}
            cells = [cell for label in CHOSEN for cell in (_figures(found[label]), _met(found[label], figure))]
            lines.append([f"{name} [{settings}]" if settings else name, *wanted, *cells])
        if not mine:
            lines.append([name, *wanted, NOT_RUN, "", NOT_RUN, ""])
    missed = frozenset((i, j) for i, line in enumerate(lines) for j in (4, 6) if line[j] == "no")
    columns = ["graph and model", "published by", "MRR / Hits@10 wanted", "ours, one model", "met", "ours, auto", "met"]
    note = (
        "Unrounded means over seeds against the published figures as they stand. Those with two decimals may have been "
        "up to 0.005 more or less: what is closer to them than that is neither ahead nor behind."
    )
    reached = any(line[3] != NOT_RUN for line in lines)
    return Table("Wanted and reached", columns, lines, 2, missed, [note]) if reached else None


def _met(row: Row, figure: Figure) -> str:
    enough = row.mean("mrr") >= float(figure.mrr) and row.mean("hits_at_10") >= float(figure.hits_at_10)
    return "yes" if enough else "no"


def details(documents: Sequence[Document]) -> Table:
    """Every figure and what it cost."""
    lines = []
    rows = [row for row in rows_of(documents) if not row.repeats]
    for row in sorted(rows, key=lambda row: (row.graph, row.model, row.dim)):
        name = (row.name if row.trials is None else f"{row.name} ({row.trials} trials)") + _mark(row)
        figures = [mean_and_spread(row.values(name)) for name in ("mrr", "hits_at_1", "hits_at_3", "hits_at_10")]
        cost = [f"{statistics.fmean(row.epochs):,.0f}", f"{statistics.fmean(row.seconds):,.0f}"]
        valid = mean_and_spread(row.values("mrr", "valid"))
        seeds = ", ".join(map(str, row.seeds))
        lines.append([row.graph, model_name(row.model), name, str(row.dim), seeds, valid, *figures, *cost])
    columns = ["graph", "model", "variant", "K", "seeds", "valid MRR", "MRR", "Hits@1", "Hits@3", "Hits@10"]
    notes = [
        "Epochs and seconds are means over seeds of whole fits and whole searches, all trials and races included. "
        f"{AUTO_MARK}: what auto chose. Rows with other seeds are no pairs; pairs are in the table of search and fit."
    ]
    return Table("All cells", [*columns, "epochs", "seconds"], lines, 3, frozenset(), notes)


def write_tables(results: Path) -> list[Path]:
    """Mutates the folder: completes its cells, and writes table1.md and table1.html from them."""
    complete(results)
    documents = read_cells(results)
    if not documents:
        remedy = "run kgem reproduce table1 without --tables-only first"
        raise InputError("there are no cells of Table 1 in this folder", where=str(results), remedy=remedy)
    made = [*table1(documents), aims(documents), details(documents), settled_table(documents)]
    tables = [table for table in made if table is not None]
    lead = "Our figures beside the published ones. Made by kgem reproduce table1 from the JSON files beside this page."
    texts = {
        "table1.md": "\n".join([f"{lead}\n", *(table.markdown() for table in tables)]),
        "table1.html": html_page("Table 1", lead, tables),
    }
    for name, text in texts.items():
        write_text(results / name, text)
    return [results / name for name in texts]
