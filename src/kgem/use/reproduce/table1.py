"""Table 1 of the paper with our figures beside the published ones, from the JSON files of cells."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kgem.errors import InputError
from kgem.use.reproduce.cells import read_cells
from kgem.use.reproduce.documents import Document, write_text
from kgem.use.reproduce.published import Figure, published
from kgem.use.reproduce.settled import complete, settled_table
from kgem.use.reproduce.tables import Table, html_page, mean_and_spread

__all__ = ["Row", "aims", "chosen_mode", "details", "rows_of", "table1", "write_tables"]

PAPER_GRAPHS = ("wn18rr", "wn18", "fb15k-237", "fb15k")
MODELS = {"distmult": "DistMult", "complex": "ComplEx"}
AUTO, SINGLE = "after EM: auto", "after EM: auto without blend"
ONE_MODEL = ("point", "mean", "bayes")  # modes of one model; a blend of two has twice the numbers of its dimension
LABELS = {
    ("conventional", "point"): "conventional, one given strength",
    ("search", "point"): "best shared strength of a search",
    ("em", "point"): "after EM: point (re-trained)",
    ("em", "mean"): "after EM: mean of q",
    ("em", "bayes"): "after EM: bayes (averaged over q)",
    ("em", "blend"): "after EM: blend of point and mean",
    ("em", "single"): SINGLE,
    ("em", "auto"): AUTO,
}
CHOSEN = (SINGLE, AUTO)  # not further ways to predict, but which of the others was best on validation


@dataclass(frozen=True)
class Row:
    """One graph, model, dimension and variant, over its seeds."""

    graph: str
    model: str
    dim: int
    label: str
    seeds: tuple[int, ...]
    valid: tuple[dict[str, Any], ...]  # figures by seed
    test: tuple[dict[str, Any], ...]
    epochs: tuple[int, ...]
    seconds: tuple[float, ...]
    trials: int | None  # of a search

    def values(self, name: str, split: str = "test") -> list[float]:
        """One figure of each seed."""
        return [float(each[name]) for each in getattr(self, split)]

    def mean(self, name: str, split: str = "test") -> float:
        return statistics.fmean(self.values(name, split))


def rows_of(documents: Sequence[Document]) -> list[Row]:
    """The cells gathered over seeds, in the order of LABELS; `auto` is what each fit chose on validation."""
    groups: dict[tuple[str, str, int, str], list[tuple[Document, str]]] = {}
    for document in documents:
        for variant, mode in LABELS:
            chosen = chosen_mode(document, mode)
            if document["variant"] == variant and chosen in document["metrics"]:
                key = (document["graph"], document["model"], document["dim"], LABELS[variant, mode])
                groups.setdefault(key, []).append((document, chosen))
    return [_row(key, sorted(group, key=lambda pair: pair[0]["seed"])) for key, group in groups.items()]


def chosen_mode(document: Document, mode: str) -> str:
    """The mode that is meant: what the fit chose, or what it would have chosen among those of one model."""
    if mode == "auto":
        return str(document["mode"])
    if mode != "single":
        return mode
    found = {each: document["metrics"][each]["valid"]["mrr"] for each in ONE_MODEL if each in document["metrics"]}
    return max(found, key=lambda each: float(found[each]))


def _row(key: tuple[str, str, int, str], group: Sequence[tuple[Document, str]]) -> Row:
    documents = [document for document, _ in group]
    trials = {len(document["trials"]) for document in documents if "trials" in document}
    return Row(
        *key,
        seeds=tuple(document["seed"] for document in documents),
        valid=tuple(document["metrics"][mode]["valid"] for document, mode in group),
        test=tuple(document["metrics"][mode]["test"] for document, mode in group),
        epochs=tuple(sum(document["epochs"].values()) for document in documents),
        seconds=tuple(float(document["seconds"]) for document in documents),
        trials=max(trials, default=None),
    )


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
    """Rows by model: what is published for these graphs, then ours by dimension; the best of ours is bold."""
    lines: list[list[str]] = []
    bold: set[tuple[int, int]] = set()
    for model in _models(rows):
        lines += [_published_line(each, graphs) for each in _published_rows(model, graphs)]
        mine = [row for row in rows if row.model == model and row.graph in graphs]
        for dim in sorted({row.dim for row in mine}):
            block = [row for row in mine if row.dim == dim]
            best = {graph: _best_label(block, graph) for graph in graphs}
            for label in [each for each in LABELS.values() if any(row.label == each for row in block)]:
                found = {row.graph: row for row in block if row.label == label}
                bold |= {(len(lines), 3 + j) for j, graph in enumerate(graphs) if best[graph] == label}
                cells = [_figures(found[graph]) if graph in found else "" for graph in graphs]
                lines.append([_model_name(model), str(dim), f"kgem, {label}", *cells])
    used = {figure.source for figure in published().figures if figure.graph in graphs}
    notes = ["MRR / Hits@10 on test, filtered, pessimistic ties; over several seeds, mean ± standard deviation."]
    notes += ["Bold: our best at that model and K. auto: whichever of the modes was best on validation."]
    notes += ["A blend asks two models of dimension K together: twice the numbers. All other rows have one."]
    notes += [f"{source}: {text}." for source, text in published().sources.items() if source in used]
    return Table(title, ["model", "K", "who", *graphs], lines, 3, frozenset(bold), notes)


def _models(rows: Sequence[Row]) -> list[str]:
    found = {row.model for row in rows}
    return [model for model in MODELS if model in found] + sorted(found - MODELS.keys())


def _model_name(model: str) -> str:
    return MODELS.get(model, model)


def _published_rows(model: str, graphs: Sequence[str]) -> Iterator[list[Figure]]:
    """The figures of one line each: the same source, author and dimension."""
    lines: dict[tuple[Any, ...], list[Figure]] = {}
    for figure in published().figures:
        if figure.model == model and figure.graph in graphs:
            lines.setdefault((figure.source, figure.who, figure.dim), []).append(figure)
    yield from lines.values()


def _published_line(figures: Sequence[Figure], graphs: Sequence[str]) -> list[str]:
    first = figures[0]
    found = {figure.graph: f"{figure.mrr:g} / {figure.hits_at_10:g}" for figure in figures}
    dim = "" if first.dim is None else str(first.dim)
    return [_model_name(first.model), dim, f"{first.who} ({first.source})", *(found.get(graph, "") for graph in graphs)]


def _best_label(rows: Sequence[Row], graph: str) -> str | None:
    """Whose mean MRR is highest."""
    others = [row for row in rows if row.graph == graph and row.label not in CHOSEN]
    return max(others, key=lambda row: row.mean("mrr")).label if others else None


def _figures(row: Row) -> str:
    return f"{mean_and_spread(row.values('mrr'))} / {mean_and_spread(row.values('hits_at_10'))}"


def aims(documents: Sequence[Document]) -> Table | None:
    """Whether a fit is at least as good as what we set out to reach; None without such a fit.

    With one model of the same size, and with whatever mode the fit chose.
    """
    ours = {(row.graph, row.model, row.dim, row.label): row for row in rows_of(documents) if row.label in CHOSEN}
    lines: list[list[str]] = []
    for figure in published().figures:
        found = [ours.get((figure.graph, figure.model, figure.aim_dim or 0, label)) for label in CHOSEN]
        if not all(found):
            continue
        name = f"{figure.graph}, {_model_name(figure.model)}, K = {figure.aim_dim}"
        cells = [cell for row in found if row for cell in (_figures(row), _met(row, figure))]
        lines.append([name, figure.who, f"{figure.mrr:g} / {figure.hits_at_10:g}", *cells])
    missed = frozenset((i, j) for i, line in enumerate(lines) for j in (4, 6) if line[j] == "no")
    columns = ["graph and model", "published by", "MRR / Hits@10 wanted", "ours, one model", "met", "ours, auto", "met"]
    note = "Unrounded means over seeds against the published figures as they stand."
    return Table("At least what is published at this size", columns, lines, 2, missed, [note]) if lines else None


def _met(row: Row, figure: Figure) -> str:
    return "yes" if row.mean("mrr") >= figure.mrr and row.mean("hits_at_10") >= figure.hits_at_10 else "no"


def details(documents: Sequence[Document]) -> Table:
    """Every figure and what it cost."""
    lines = []
    for row in sorted(rows_of(documents), key=lambda row: (row.graph, row.model, row.dim)):
        label = row.label if row.trials is None else f"{row.label} ({row.trials} trials)"
        figures = [mean_and_spread(row.values(name)) for name in ("mrr", "hits_at_1", "hits_at_3", "hits_at_10")]
        cost = [f"{statistics.fmean(row.epochs):,.0f}", f"{statistics.fmean(row.seconds):,.0f}"]
        valid = mean_and_spread(row.values("mrr", "valid"))
        seeds = ", ".join(map(str, row.seeds))
        lines.append([row.graph, _model_name(row.model), label, str(row.dim), seeds, valid, *figures, *cost])
    columns = ["graph", "model", "variant", "K", "seeds", "valid MRR", "MRR", "Hits@1", "Hits@3", "Hits@10"]
    note = "Epochs and seconds are means over seeds of whole fits and whole searches, all trials and races included."
    return Table("All cells", [*columns, "epochs", "seconds"], lines, 3, frozenset(), [note])


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
