"""`kgem data`: check, convert, split, describe, fetch and generate graphs."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kgem.cli import reading
from kgem.cli.arguments import AsJson, Force, Seed, Share
from kgem.cli.console import emit, emit_json, plain, say, table
from kgem.cli.destination import refuse_figure, save_figure
from kgem.cli.layout import PlainGroup, list_examples
from kgem.cli.output import fill_folder, refuse_existing, refuse_taken
from kgem.cli.progress import Progress
from kgem.cli.tables import check_tables, cost_lines, describe_means, describe_time, split_table, stats_tables
from kgem.cli.writing import STDOUT, check_format, choose_target, write_folder, write_one_file, write_stdout
from kgem.errors import ConfigError, TriplesError
from kgem.report.formatting import pluralise

if TYPE_CHECKING:
    from kgem.data.triples import ReadReport

app = typer.Typer(
    cls=PlainGroup, help="Check, convert, split, describe, fetch and generate graphs.", no_args_is_help=True
)

CHECK_RATE = 4e5  # facts a second: a guess for the time left, from FB15K on one core
To = Annotated[
    str | None, typer.Option("--to", metavar="NAME", help="Format to write, as for --format; tsv where no name tells.")
]
Range = Annotated[
    tuple[float, float], typer.Option(metavar="LOW HIGH", help="Strengths of the prior are drawn between these.")
]


@app.command(epilog=list_examples("kgem data check world"))
@reading.with_options
def check(
    graph: reading.Graph,
    threshold: Annotated[
        float, typer.Option(min=0.5, max=1.0, help="Share of pairs from which two relations count as nearly the same.")
    ] = 0.97,
    as_json: AsJson = False,
    *,
    how: reading.ReadOptions,
) -> None:
    """Report bad rows, duplicates, facts in two splits, unseen symbols and leakage.

    Ends with exit code 2 if there are bad rows, unless they are to be skipped.
    """
    dataset = reading.load(graph, replace(how, skip_bad=True), quiet=True)  # to see all bad rows, not one
    reading.tell_names(dataset, how)
    n_facts = len(dataset.train) + len(dataset.valid) + len(dataset.test)
    with Progress("checking", expected=n_facts / CHECK_RATE):
        from kgem.data.splits import check as check_splits

        report = check_splits(dataset, threshold)
    if as_json:
        emit_json(asdict(report) | {"reading": [asdict(each) for each in dataset.reports]})
    else:
        emit(*check_tables(report, dataset.reports))
    if not how.skip_bad:
        _refuse_bad_rows(dataset.reports)


def _refuse_bad_rows(reports: tuple[ReadReport, ...]) -> None:
    for report in reports:
        if report.skipped:
            first = report.problems[0]
            raise TriplesError(
                f"{report.skipped:,} of {report.rows_read:,} rows are no facts; the first: {first.reason}",
                where=f"{report.source}:{first.line}",
                remedy=f"{first.remedy or 'put them right'}, or leave bad rows out: --skip-bad",
            )


@app.command(epilog=list_examples("kgem data stats world --figure counts.svg"))
@reading.with_options
def stats(
    graph: reading.Graph,
    top: Annotated[int, typer.Option(min=0, help="How many relations to list.")] = 20,
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also draw how often symbols occur (.svg or .png).")
    ] = None,
    dim: Annotated[int, typer.Option(min=1, help="Dimension of the embeddings, for the cost of a fit.")] = 100,
    force: Force = False,
    as_json: AsJson = False,
    *,
    how: reading.ReadOptions,
) -> None:
    """Show sizes, frequencies, kinds of relations, and what a fit would cost."""
    refuse_figure(figure, force)
    dataset = reading.load(graph, how)
    from kgem.data.stats import graph_stats

    found = graph_stats(dataset, dim=dim)
    with Progress("measuring some steps of a fit"):
        from kgem.runs.configure import configure
        from kgem.runs.estimate import estimate_graph
        from kgem.runs.fitting import needed_memory, prepare
        from kgem.train.softmax import say_softmax

        prepared = prepare(dataset)
        time, config = estimate_graph(prepared, configure(None, {"model.dim": dim}))
        memory = needed_memory(prepared.data, config).peak
        softmax = say_softmax(config, prepared.data, found.cost.width)
    if figure is not None:
        from kgem.report.figures import counts_figure

        save_figure(counts_figure(dataset.entity_counts, dataset.relation_counts), figure)
    if as_json:
        cost = asdict(found.cost) | {"peak_bytes": memory, "softmax": softmax}
        told = {"cost": cost, "time": time.to_dict(), "findings": reading.list_findings(dataset, how)}
        emit_json(asdict(found) | told)
    else:
        emit(*stats_tables(found, top, dataset.names.show), *cost_lines(found.cost, softmax, memory))
        emit(f"{describe_means(config)}; {describe_time(time)}")
    reading.warn_of_columns(dataset, how)


@app.command(epilog=list_examples("kgem data convert world world.csv"))
@reading.with_options
def convert(
    graph: reading.Graph,
    out: Annotated[
        str,
        typer.Argument(metavar="OUT", help="A file, a folder (a name without extension), or - for standard output."),
    ],
    to: To = None,
    force: Force = False,
    as_json: AsJson = False,
    *,
    how: reading.ReadOptions,
) -> None:
    """Write a graph in another format; each fact once, labels unchanged.

    Formats: TSV, CSV, Parquet, N-Triples, N-Quads, Turtle, RDF/XML, OpenKE; .gz, .xz and .zst compress. A
    graph with splits goes to a folder, or to one file with a fourth column 'split'.
    """
    if out == STDOUT and as_json:
        raise ConfigError("standard output cannot have both the facts and JSON", remedy="name a file, or drop --json")
    name, is_folder = choose_target(out, to)
    if is_folder:
        refuse_taken(Path(out), force)
    elif out != STDOUT:
        refuse_existing(Path(out), force)
    frames = reading.read_frames(graph, how)
    keep = how.literals == "keep"
    if is_folder:
        names = write_folder(frames, Path(out), name, keep)
    elif out == STDOUT:
        names = write_stdout(frames, name, keep)
    else:
        names = write_one_file(frames, Path(out), name, keep)
    facts = {split: len(frame) for split, frame in frames.items()}
    say(f"{pluralise(sum(facts.values()), 'fact')} -> {', '.join(map(plain, names))}")
    if as_json:
        emit_json({"facts": facts, "files": names})


@app.command(epilog=list_examples("kgem data split world --out split --valid 0.1 --test 0.1 --seed 0"))
@reading.with_options
def split(
    graph: reading.Graph,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for train, valid and test.")],
    valid: Share = 0.1,
    test: Share = 0.1,
    seed: Seed = 0,
    group: Annotated[
        str, typer.Option(help="What stays together: none, symmetric (both directions) or pair (of entities).")
    ] = "none",
    to: To = None,
    force: Force = False,
    as_json: AsJson = False,
    *,
    how: reading.ReadOptions,
) -> None:
    """Divide a graph into train, valid and test, so that train knows every symbol.

    What cannot be arranged is reported. Splits that the graph came with are put together first.
    """
    name = to or "tsv"
    check_format(name)
    refuse_taken(out, force)
    dataset = reading.load(graph, how)
    from kgem.data.splits import make_split

    made, report = make_split(dataset, valid, test, seed, group=group)
    parts = {part: made.frame(part) for part, n in report.got.items() if n}
    names = write_folder(parts, out, name, how.literals == "keep")
    say(split_table(report), *(f"note: {note}" for note in report.notes), f"-> {', '.join(map(plain, names))}")
    if as_json:
        emit_json(asdict(report) | {"files": names})


@app.command(epilog=list_examples("kgem data generate --entities 500 --facts 10000 --out planted"))
def generate(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the graph.")],
    entities: Annotated[int, typer.Option(min=1)] = 1000,
    relations: Annotated[int, typer.Option(min=1)] = 10,
    facts: Annotated[int, typer.Option(min=1)] = 20_000,
    dim: Annotated[int, typer.Option(min=1, help="Dimension of the planted embeddings.")] = 20,
    model: Annotated[str, typer.Option(help="Score function: complex or distmult.")] = "complex",
    p: Annotated[int, typer.Option(min=2, max=3, help="Norm of the prior.")] = 3,
    entity_strengths: Range = (0.5, 5.0),
    relation_strengths: Range = (0.5, 5.0),
    valid: Share = 0.1,
    test: Share = 0.1,
    seed: Seed = 0,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Draw a graph from the model itself, with the embeddings and strengths behind it.

    They are kept beside the facts, in planted.npz: a graph whose true answer is known.
    """
    refuse_taken(out, force)
    with Progress("drawing facts"):
        import numpy as np

        from kgem.model import generate as generating

        planted = generating.generate(
            entities,
            relations,
            facts,
            dim,
            rng=np.random.default_rng(seed),
            model=model,
            p=p,
            entity_strengths=entity_strengths,
            relation_strengths=relation_strengths,
            valid=valid,
            test=test,
        )
        with fill_folder(out) as fresh:
            generating.save(planted, fresh)
            names = sorted(path.name for path in fresh.iterdir())
    counts = {part: len(planted.dataset.split(part)) for part in ("train", "valid", "test")}
    say(f"{' / '.join(f'{n:,}' for n in counts.values())} facts -> {plain(out)} ({', '.join(names)})")
    if as_json:
        emit_json({"facts": counts, "files": [str(out / name) for name in names]})


@app.command(epilog=list_examples("kgem data fetch umls"))
def fetch(
    name: Annotated[str | None, typer.Argument(help="Without it: the list of names.")] = None,
    mirror: Annotated[str | None, typer.Option(metavar="URL", help="Download from here instead.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Download again what is here already.")] = False,
    as_json: AsJson = False,
) -> None:
    """Download a benchmark graph, verify it, and print where its files are.

    Graphs in the folder that KGEM_DATA names are taken from there.
    """
    from kgem.data.catalog import CATALOG, find_entry

    if name is None:
        rows = [_describe_entry(each) for each in CATALOG]
        if as_json:
            emit_json(rows)
        else:
            columns = ["name", "from", "licence", "here", "entities", "relations", "facts"]
            shown = [[*list(row.values())[:3], "yes" if row["here"] else "", *list(row.values())[4:7]] for row in rows]
            emit(table(columns, shown, left=4))
        return
    known = find_entry(name)
    files = reading.get_files(known.name, mirror, again=force)
    say(f"{known.name}: {known.citation}; licence: {known.licence}")
    if as_json:
        emit_json(_describe_entry(known.name) | {"files": {split: str(path) for split, path in files.items()}})
    else:
        emit(*(str(path) for path in files.values()))


def _describe_entry(name: str) -> dict[str, Any]:
    """What the catalogue says about a graph, and whether its files are on this machine."""
    from kgem.data.catalog import CATALOG, locate
    from kgem.errors import CatalogError

    known, counts = CATALOG[name], asdict(CATALOG[name].counts)
    try:
        here = bool(locate(name, download=False))
    except CatalogError:
        here = False
    return {
        "name": name,
        "origin": known.citation,
        "licence": known.licence,
        "here": here,
        "entities": counts.pop("entities"),
        "relations": counts.pop("relations"),
        "facts": sum(counts.values()),
        "splits": counts,
        "addresses": list(known.addresses),
    }
