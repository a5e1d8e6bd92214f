"""`kgem demo`: what kgem does, on the graph that comes with it."""

from __future__ import annotations

from kgem.cli.console import emit, heading, table
from kgem.cli.progress import Progress
from kgem.cli.tables import summary

GRAPH = "world"
FAMILIAR = "France"  # examples are about it where they can be


def demo() -> None:
    """Show the graph that comes with kgem: its facts, and what a check says about it."""
    with Progress(f"reading {GRAPH}"):
        import polars as pl

        from kgem.data.dataset import Dataset
        from kgem.data.splits import check
        from kgem.data.stats import graph_stats

        dataset = Dataset.load(GRAPH)
        found, report = graph_stats(dataset), check(dataset)
    facts = dataset.frame("train").sort(pl.col("head") != FAMILIAR, maintain_order=True)
    examples = facts.unique("relation", keep="first", maintain_order=True)
    told = {relation: f"{head} {relation} {tail}" for head, relation, tail in examples.iter_rows()}
    emit(summary(dataset.name, report.entities, report.relations, report.facts))
    rows = [(row.relation, row.category, told[row.relation], row.facts) for row in found.per_relation]
    emit(table(["relation", "kind", "for example", "in train"], rows, left=3))
    often = found.entity_frequency
    emit(heading("In train"))
    emit(
        f"half of the entities are in at most {often['50%']:.0f} facts, the most frequent is in {often['max']:,.0f}",
        f"{found.queries:,} distinct questions (head, relation, ?) and (?, relation, tail)",
    )
    emit(heading("Check"))
    emit(*(f"- {note}" for note in report.notes or ("no duplicates, no leakage, every symbol of test is in train",)))
    emit("", "Next: kgem data stats world, or kgem data check on a file of your own (head, relation, tail per line)")
