"""Reading a graph for a command: the options all commands share, the progress, and what was left out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kgem.cli.console import plain, say
from kgem.cli.progress import Download, Progress
from kgem.data.options import ReadOptions
from kgem.errors import InputError
from kgem.report.formatting import pluralise

if TYPE_CHECKING:
    import polars as pl

    from kgem.data.dataset import Dataset
    from kgem.data.triples import ReadReport

__all__ = [
    "Graph",
    "ReadOptions",
    "get_files",
    "list_findings",
    "load",
    "make_options",
    "read_frames",
    "show_progress",
    "tell",
    "warn_of_columns",
    "with_options",
]

KEYWORD = inspect.Parameter.KEYWORD_ONLY

READ_RATE = 25e6  # bytes a second: a guess for the time left, from FB15K on one core
DELIMITERS = {"tab": "\t", "\\t": "\t", "space": " ", "comma": ",", "semicolon": ";"}  # by name
_SHOWN = 5  # bad rows told without being asked


Graph = Annotated[
    str,
    typer.Argument(
        metavar="GRAPH",
        help="A file, a folder with train/valid/test, a name that 'kgem data fetch' lists, or - for standard input.",
    ),
]
_option = partial(typer.Option, rich_help_panel="How to read the graph")


def make_options(
    format: Annotated[
        str | None,
        _option(
            metavar="NAME", help="tsv, csv, parquet, nt, nq, ttl, rdf or openke; without it the file's name tells."
        ),
    ] = None,
    header: Annotated[bool, _option("--header", help="The first row names the columns (TSV, CSV).")] = False,
    columns: Annotated[
        str | None,
        _option(metavar="H,R,T", help="Columns of head, relation, tail: names (of a --header), or numbers from 1."),
    ] = None,
    extra: Annotated[
        str | None,
        _option(
            metavar="NAME", help="What the fourth column is, to keep it; one called 'split' says train, valid or test."
        ),
    ] = None,
    literals: Annotated[
        Literal["drop", "keep"], _option(help="RDF literals: leave out and count, or keep as entities.")
    ] = "drop",
    skip_bad: Annotated[bool, _option("--skip-bad", help="Leave out rows that are no facts and report them.")] = False,
    delimiter: Annotated[
        str | None, _option(metavar="TEXT", help="Between columns (TSV, CSV), as ';'; tab and space by name.")
    ] = None,
    encoding: Annotated[
        str | None, _option(metavar="NAME", help="Of the text (TSV, CSV), as latin-1; without it UTF-8.")
    ] = None,
    labels: Annotated[
        str | None, _option(metavar="FILE", help="Names of entities and relations, a line each: id<TAB>name.")
    ] = None,
) -> ReadOptions:
    """How to read a graph, from the options of the command line."""
    chosen = None if columns is None else [name.strip() for name in columns.split(",")]
    between = None if delimiter is None else DELIMITERS.get(delimiter, delimiter)
    return ReadOptions(format, header, chosen, extra, literals, skip_bad, between, encoding, labels)


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with all parameters of `make_options` in the place of its parameter `how`."""
    mine, own = (inspect.signature(each, eval_str=True).parameters for each in (make_options, command))

    @wraps(command)
    def run(**given: Any) -> None:
        how = make_options(**{name: given.pop(name) for name in mine})
        command(**given, how=how)

    kept = [each.replace(kind=KEYWORD) for name, each in own.items() if name != "how"]
    signature = inspect.Signature([*kept, *(each.replace(kind=KEYWORD) for each in mine.values())])
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()}
    return run


def load(graph: str, how: ReadOptions, *, quiet: bool = False) -> Dataset:
    """The graph; rows that were left out are told on stderr unless the caller tells them."""
    with show_progress(graph):
        from kgem.data.dataset import Dataset

        dataset = Dataset.read(graph, how)
    if not quiet:
        tell(dataset.reports)
        tell_names(dataset, how)
    return dataset


def tell_names(dataset: Dataset, how: ReadOptions) -> None:
    """How many symbols the file of names has a name for."""
    if how.labels is not None:
        entities, relations = (
            f"{sum(label in dataset.names.by_label for label in each):,} of {len(each):,}"
            for each in (dataset.entities, dataset.relations)
        )
        say(f"{plain(how.labels)}: names of {entities} entities and {relations} relations")


def read_frames(graph: str, how: ReadOptions) -> dict[str, pl.DataFrame]:
    """The labelled facts of each split that has any; rows that were left out are told on stderr."""
    with show_progress(graph):
        from kgem.data.sources import find, read

        frames, reports, _ = read(find(graph, how))
    tell(reports.values())
    return {split: frame for split, frame in frames.items() if len(frame)}


def tell(reports: Iterable[ReadReport]) -> None:
    """What became of rows that are not among the facts."""
    for report in reports:
        gone = {
            "given twice": report.duplicates,
            "no facts": report.skipped,
            "with a literal": report.literals_dropped,
            "taken as names": report.names,
        }
        if any(gone.values()):
            parts = ", ".join(f"{n:,} {why}" for why, n in gone.items() if n)
            rows, facts = pluralise(report.rows_read, "row"), pluralise(report.kept, "fact")
            say(f"{plain(report.source)}: {rows}, {facts} kept; left out: {parts}")
        for problem in report.problems[:_SHOWN]:
            say(f"  {problem.line}: {plain(problem.reason)}")
        if report.skipped > _SHOWN:
            say(f"  and {report.skipped - min(_SHOWN, len(report.problems)):,} more")


def list_findings(dataset: Dataset, how: ReadOptions) -> list[str]:
    """What looks wrong with how the graph was read."""
    from kgem.data.columns import find_mixed_columns

    found = find_mixed_columns(dataset, how.columns)
    return [] if found is None else [found]


def warn_of_columns(dataset: Dataset, how: ReadOptions) -> None:
    for finding in list_findings(dataset, how):
        say(f"warning: {plain(finding)}")


@contextmanager
def show_progress(graph: str) -> Iterator[None]:
    """Shows how far reading is; a path that cannot be looked at is wrong input."""
    try:
        with Progress(f"reading {graph}", expected=_bytes(graph) / READ_RATE or None):
            yield
    except OSError as error:
        where = str(error.filename or graph)
        raise InputError(f"cannot be read: {error.strerror or error}", where=where, remedy="check the path") from error


def _bytes(graph: str) -> int:
    """How large the graph's files are, after a download if it needs one; 0 if that does not show."""
    path = Path(graph).expanduser()
    try:
        if path.is_dir():
            return sum(inside.stat().st_size for inside in path.iterdir() if inside.is_file())
        if path.is_file():
            return path.stat().st_size
        return sum(file.stat().st_size for file in get_files(graph).values())
    except OSError:  # told, with a remedy, by whoever opens the files
        return 0


def get_files(name: str, mirror: str | None = None, *, again: bool = False) -> dict[str, Path]:
    """The files of a graph of the catalogue, downloaded with a bar if need be; none if it is not in it."""
    from kgem.data.catalog import CATALOG, fetch, locate

    if name.strip().casefold() not in CATALOG:
        return {}
    with Progress(f"downloading {name}") as progress:
        return (fetch if again else locate)(name, progress=Download(progress), base=mirror)
