"""Tables of cells: Table 1 of the paper with our figures, and short ones for the page and the README."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evidence.cells import BASELINES, PAPER_GRAPHS
from evidence.documents import MODELS, Document, Key, subject
from evidence.published import Figure, published
from evidence.rows import AUTO, CHOSEN, LABELS, SINGLE, Row, rows_of
from evidence.tables import Table, bold, gain, mean_and_spread

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
        mine = [row for row in rows if row.key[1] == model and row.key[0] in graphs and row.label not in CHOSEN]
        for dim in sorted({row.key[2] for row in mine}):
            block = [row for row in mine if row.key[2] == dim]
            best = {row.key[0]: row for row in sorted(block, key=lambda row: row.mean("mrr", "valid"))}  # the last
            for label in dict.fromkeys(row.label for row in block):
                found = {row.key[0]: row for row in block if row.label == label}
                cells = {each: bold(_figures(row), row is best[each]) for each, row in found.items()}
                what = {"model": MODELS.get(model, model), "K": str(dim), "who": f"kgem, {label}"}
                lines.append(what | {graph: cells.get(graph, "") for graph in graphs})
    used = {figure.source for figure in published().figures if figure.graph in graphs}
    note = (
        "MRR / Hits@10 on test, filtered, pessimistic ties; over several seeds mean ± standard deviation, and in "
        "brackets how many. Bold: our best on validation at that model and K. A blend asks two models of dimension K "
        "together: twice the numbers. Cells that were made with other settings than most of their seeds are left out. "
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


def _figures(row: Row | None) -> str:
    if row is None:
        return ""
    seeds = f" ({len(row.seeds)})" if len(row.seeds) > 1 else ""
    return f"{mean_and_spread(row.values('mrr'))} / {mean_and_spread(row.values('hits_at_10'))}{seeds}"


def aims(documents: Sequence[Document]) -> Table:
    """Whether fits are at least as good as what we set out to reach.

    With one model of the same size, distilled if that was made, and with whatever mode a fit without distillation
    chose; our conventional model stands beside it.
    """
    fits, lines = dict(_fits(documents)), []
    for figure in published().figures:
        key = (figure.graph, figure.model, figure.aim_dim or 0)
        if key in fits:
            given, auto = fits[key].get(LABELS["conventional", "point"]), fits[key][AUTO]
            one = fits[key].get(LABELS["distil", "point"], fits[key][SINGLE])
            lines.append(
                {
                    "graph and model": subject(*key),
                    "published by": f"{figure.who}, {SIZES[figure.source]}",
                    "published": figure.text,
                    "ours, published strength": _figures(given),
                    "one fit, one model": _figures(one),
                    "reached": _met(one, figure),
                    "one fit, `auto`": _figures(auto),
                    "reached by `auto`": _met(auto, figure),
                }
            )
    note = (
        "MRR / Hits@10 on test. Reached: both are at least what is published. The published strength is of ComplEx; "
        "DistMult has that of a ComplEx with as many numbers."
    )
    return Table("Published and reached", lines, 2, note)


def _met(row: Row, figure: Figure) -> str:
    enough = row.mean("mrr") >= float(figure.mrr) and row.mean("hits_at_10") >= float(figure.hits_at_10)
    return "yes" if enough else bold("no")


def quality(documents: Sequence[Document]) -> Table:
    """The README's table: for each graph one ComplEx beside a shared strength and what is published.

    Of the largest dimension that has a search beside it, or the strength that was published for that size. All of a
    row are over the seeds that they share.
    """
    lines: dict[str, dict[str, str]] = {}
    for key, rows in _fits(documents):
        known = [f for f in published().figures if (f.graph, f.model) == key[:2] and f.source != "paper"]
        known = [figure for figure in known if figure.dim in (key[2], None)]
        baseline = _beside(rows, rows[AUTO].seeds, given=any(figure.dim for figure in known))
        if key[1] == "complex" and baseline is not None:
            ordinary, one, chosen = _over_common_seeds(baseline, rows)
            distilled = rows.get(LABELS["distil", "point"])
            seeds = [seed for seed in rows[AUTO].seeds if seed in baseline.seeds]
            told = f"{mean_and_spread(one)} (not distilled)"
            if distilled is not None and set(seeds) <= set(distilled.seeds):
                told = mean_and_spread(distilled.values("mrr", seeds=seeds))
            how = f"{baseline.trials} trials" if baseline.trials else "its published value"
            lines.pop(key[0], None)  # a smaller dimension
            lines[key[0]] = {
                "graph and model": subject(*key),
                "one shared strength, by search": f"{mean_and_spread(ordinary)} ({how})",
                "one fit, one model": told,
                "its two models together": mean_and_spread(chosen),
                "published": ", ".join(f"{figure.mrr} ({figure.source})" for figure in known),
            }
    return Table("Quality", list(lines.values()))


def one_model(documents: Sequence[Document]) -> Table:
    """One fit's one model beside an ordinary model of the same dimension and one of twice that."""
    rows = rows_of(documents)
    lines = []
    distilled = [row for row in rows if row.label == LABELS["distil", "point"]]
    for row in sorted(distilled, key=lambda row: ((*PAPER_GRAPHS, row.key[0]).index(row.key[0]), row.key)):
        graph, model, dim = row.key
        same, twice = (_beside(_by_label(rows, (graph, model, k)), row.seeds, given=True) for k in (dim, 2 * dim))
        blend = _by_label(rows, row.key).get(LABELS["distil", "blend"])
        shared = [] if same is None else [seed for seed in row.seeds if seed in same.seeds]
        beyond = "" if same is None else gain(*(each.values("mrr", seeds=shared) for each in (same, row)))
        lines.append(
            {
                "graph and model": subject(*row.key),
                "seeds": str(len(row.seeds)),
                "one ordinary model": "" if same is None else mean_and_spread(same.values("mrr", seeds=shared)),
                "one fit, one model": _figures(row).split(" (")[0],
                "it has beyond that": beyond,
                "an ordinary model of 2 K": "" if twice is None else mean_and_spread(twice.values("mrr")),
                "with the means of q": "" if blend is None else mean_and_spread(blend.values("mrr")),
            }
        )
    note = (
        "Test MRR (of the fit also Hits@10). An ordinary model has the best shared strength of a search, or else one "
        "that was published or guessed. Differences with a 95 % interval over the seeds that both have, bold where it "
        "excludes zero."
    )
    return Table("One fit, one model", lines, 2, note)


def behind(documents: Sequence[Document]) -> Table:
    """Where one model of a fit has less than one ordinary model of its size: seeds that both have."""
    lines = []
    for key, rows in _fits(documents):
        baseline = _beside(rows, rows[AUTO].seeds, given=True)
        if baseline is not None:
            ordinary, one, chosen = _over_common_seeds(baseline, rows)
            loss = statistics.fmean(one) - statistics.fmean(ordinary)
            if round(loss, 3) < 0:
                lines.append(
                    {
                        "graph and model": subject(*key),
                        "shared strength": baseline.label,
                        "seeds": str(len(one)),
                        "one ordinary model": mean_and_spread(ordinary),
                        "one fit, one model": mean_and_spread(one),
                        "one model's loss": f"{loss:+.3f}",
                        "one fit, `auto`": mean_and_spread(chosen),
                    }
                )
    note = "Test MRR. All rows in which one model of the fit has less than one ordinary model of the same K."
    return Table("Behind one ordinary model", lines, 2, note)


def _fits(documents: Sequence[Document]) -> Iterator[tuple[Key, dict[str, Row]]]:
    """The rows of each graph, model and dimension that has fits, by label; the paper's graphs first."""
    rows = rows_of(documents)
    keys = {row.key for row in rows if row.label == AUTO}
    for key in sorted(keys, key=lambda key: ((*PAPER_GRAPHS, key[0]).index(key[0]), key)):
        yield key, _by_label(rows, key)


def _by_label(rows: Sequence[Row], key: Key) -> dict[str, Row]:
    return {row.label: row for row in rows if row.key == key}


def _beside(rows: Mapping[str, Row], seeds: Sequence[int], *, given: bool) -> Row | None:
    """The search that has one of these seeds, if it has enough trials, or else the model with a given strength."""
    search, other = (rows.get(LABELS[variant, "point"]) for variant in BASELINES)
    enough = search if search and (search.trials or 0) >= FEWEST_TRIALS else None
    found = [row for row in (enough, other if given else None) if row and set(row.seeds) & set(seeds)]
    return found[0] if found else None


def _over_common_seeds(baseline: Row, rows: Mapping[str, Row]) -> list[list[float]]:
    """Test MRR of the baseline, of one model of the fits, and of what they chose."""
    seeds = [seed for seed in rows[AUTO].seeds if seed in baseline.seeds]
    return [row.values("mrr", seeds=seeds) for row in (baseline, rows[SINGLE], rows[AUTO])]
