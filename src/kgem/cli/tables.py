"""The reports on a graph as tables for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kgem.cli.console import heading, paragraph, plain, table
from kgem.cli.progress import duration, pace
from kgem.report.formatting import pluralise

if TYPE_CHECKING:
    from kgem.config import Config
    from kgem.data.leakage import Leakage
    from kgem.data.splits import CheckReport, SplitReport
    from kgem.data.stats import FitCost, GraphStats
    from kgem.data.triples import ReadReport
    from kgem.runs.estimate import Estimate

_PAIRS = 20  # pairs of relations shown
_BAD_ROWS = 20
_UNITS = ("B", "kB", "MB", "GB", "TB")


def size(bytes: float) -> str:
    """Bytes as people say them."""
    step = 0
    while bytes >= 1000 and step < len(_UNITS) - 1:
        bytes, step = bytes / 1000, step + 1
    return f"{bytes:.0f} {_UNITS[step]}" if bytes >= 10 or not step else f"{bytes:.1f} {_UNITS[step]}"


def summary(name: str, entities: int, relations: int, facts: dict[str, int]) -> Any:
    """One line on a graph."""
    counts = pluralise(entities, "entity", "entities"), pluralise(relations, "relation")
    return heading(f"{name}: {', '.join(counts)}, {pluralise(sum(facts.values()), 'fact')}", space=False)


def check_tables(report: CheckReport, reading: Sequence[ReadReport]) -> Iterator[Any]:
    """What `kgem data check` shows."""
    yield summary(report.name, report.entities, report.relations, report.facts)
    splits = [split for split, n in report.facts.items() if n]
    yield table(["", *splits], [(name, *cells) for name, cells in _check_rows(report, splits) if any(cells)])
    yield from _reading_tables(reading)
    yield from _leakage_tables(report.leakage)
    bad = [
        f"{each.skipped:,} of {each.rows_read:,} rows of {each.source} are no facts" for each in reading if each.skipped
    ]
    findings = [*map(plain, bad), *report.notes]
    yield heading("Findings" if findings else "Findings: none")
    yield from (paragraph(f"- {note}") for note in findings)


def _check_rows(report: CheckReport, splits: Sequence[str]) -> Iterator[tuple[str, list[Any]]]:
    """Names of rows, and their cells by split: text, so that a zero is shown and what makes no sense is empty."""
    given: dict[str, Mapping[str, int | None]] = {"facts": report.facts, "self loops": report.self_loops}
    if set(report.duplicates) <= set(report.facts):
        given["given twice"] = report.duplicates
    given |= {
        f"also in {other}": {s: report.in_two_splits.get(f"{other}/{s}") for s in splits}
        for other in ("train", "valid")
    }
    given |= {
        f"{symbols} unseen in train": {s: getattr(found, symbols) for s, found in report.unseen.items()}
        for symbols in ("entities", "relations")
    }
    given["read off train (leakage)"] = report.leakage.answerable
    for name, numbers in given.items():
        cells = [numbers.get(split) for split in splits]
        yield name, ["" if cell is None else f"{cell:,}" for cell in cells]


def _reading_tables(reading: Sequence[ReadReport]) -> Iterator[Any]:
    if reading:
        yield heading("Rows of the files")
        columns = ["file", "rows", "facts kept", "given twice", "bad", "literals", "names"]
        rows = [(r.source, r.rows_read, r.kept, r.duplicates, r.skipped, r.literals_dropped, r.names) for r in reading]
        yield table(columns, rows)
    for report in reading:
        if report.problems:
            yield heading(f"Bad rows of {report.source}")
            bad = [(p.line, p.reason, p.remedy) for p in report.problems[:_BAD_ROWS]]
            yield table(["line", "what is wrong", "what to do"], bad, left=3)
            yield from _more(report.skipped, _BAD_ROWS)


def _leakage_tables(leakage: Leakage) -> Iterator[Any]:
    kinds = {"inverse": leakage.inverse, "duplicate": leakage.duplicate, "symmetric": leakage.symmetric}
    rows = [
        (kind, pair.first, pair.second if kind != "symmetric" else "(itself)", pair.shared, f"{pair.share:.1%}")
        for kind, pairs in kinds.items()
        for pair in pairs
    ]
    if rows:
        yield heading(f"Relations that give each other away (at least {leakage.threshold:.0%} of their pairs shared)")
        yield table(["kind", "relation", "goes with", "pairs", "shared"], rows[:_PAIRS], left=3)
        yield from _more(len(rows), _PAIRS)


def _more(count: int, shown: int) -> Iterator[str]:
    if count > shown:
        yield f"and {count - shown:,} more: --json has them"


def stats_tables(stats: GraphStats, top: int, show: Callable[[str], str]) -> Iterator[Any]:
    """What `kgem data stats` shows; `show` makes labels readable."""
    yield summary(stats.name, stats.entities, stats.relations, stats.facts)
    splits = {split: n for split, n in stats.facts.items() if n}
    yield table(["", *splits], [("facts", *splits.values())])
    yield ""
    yield (
        f"{stats.augmented_facts:,} training facts with their reciprocals, {stats.queries:,} distinct queries: "
        f"{stats.facts_per_query:.1f} facts each"
    )
    yield heading("How often a symbol occurs in train (quantiles)")
    quantiles = {"entities": stats.entity_frequency, "relations": stats.relation_frequency}
    rows = [(name, *map(_amount, each.values())) for name, each in quantiles.items()]
    yield table(["", *stats.entity_frequency], rows)
    yield heading("Kinds of relations (1-N: a head has many tails)")
    yield table(["kind", "relations", "facts"], [(kind, *counts.values()) for kind, counts in stats.categories.items()])
    yield heading("Relations, the most frequent first")
    columns = ["relation", "kind", "facts", "heads", "tails", "tails/head", "heads/tail"]
    cells = [
        (show(r.relation), r.category, r.facts, r.heads, r.tails, f"{r.tails_per_head:.2f}", f"{r.heads_per_tail:.2f}")
        for r in stats.per_relation[:top]
    ]
    yield table(columns, cells, left=2)
    yield from _more(len(stats.per_relation), top)


def _amount(value: float) -> str:
    """A count, or a mean of counts."""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def cost_lines(cost: FitCost, softmax: str, memory: int) -> Iterator[Any]:
    """What a fit would cost but for its time; `softmax` says which one it would have."""
    yield heading("What a fit would cost, roughly")
    yield (
        f"{cost.dim} dimensions ({cost.width} numbers per symbol): {cost.parameters:,} parameters, "
        f"about {size(memory)} of memory"
    )
    yield softmax


def describe_means(config: Config) -> str:
    """What a fit computes with."""
    rounded = ", products rounded to bfloat16" if config.run.products == "bfloat16" else ""
    return f"{config.device}, {pluralise(config.run.threads or 1, 'thread')}{rounded}"


def describe_time(time: Estimate) -> str:
    """How long a fit will take, in one line."""
    usual, most = sum(time.usual.values()), sum(time.most.values())
    told = f"about {pace(time.seconds_per_epoch)} an epoch, about {duration(time.seconds)} in all"
    if usual == most:
        return f"{told}, for {pluralise(most, 'epoch')}"
    return f"{told} for the {usual} epochs that fits usually have; at most {most:,}: {duration(time.most_seconds)}"


def split_table(report: SplitReport) -> Any:
    """What a split became, beside what was asked for."""
    rows = [
        ("facts", *report.got.values()),
        ("asked for", *(report.wanted.get(split, "") for split in report.got)),
    ]
    return table(["", *report.got], rows)
