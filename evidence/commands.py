"""`python -m evidence`: the evidence, made by commands that can be stopped and given again."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import typer

from evidence import table1
from evidence.cells import PAPER_GRAPHS, VARIANTS, Cell, cells, changed_settings, graph_name, read_cells
from evidence.documents import Document, versions, write_json, write_text
from evidence.fits import CarryOn, CellMaker, discard_cell, keep_the_best
from evidence.page import BEGIN, END, STUDIES, between_marks, make_pages, read_results
from evidence.study import Study
from kgem.answer.model import Model
from kgem.cli import reading
from kgem.cli.console import emit_text, paragraph, plain, report_errors, say
from kgem.cli.fit import read_settings
from kgem.cli.opening import open_model
from kgem.cli.training import train
from kgem.errors import ConfigError, FitError, InputError
from kgem.report.figures.drawing import save_figure
from kgem.runs.fitting import Prepared, prepare
from kgem.runs.run import Run
from kgem.train.machine import record_threads
from kgem.train.search import STRENGTHS, check_range

TABLE1 = "The paper's Table 1 with our figures: graph by model by variant by seed."
PAGE = "Write the pages of results and the README's table: all figures and pictures from the JSON files."
SPLIT_SEED = 0  # of graphs that come without splits: the same facts are kept from training for every seed
CELLS = "table1"  # the folder of the cells below that of all results


RESULTS = {"--results": {"type": Path, "default": Path("results"), "help": "folder of all JSON files"}}
WHICH: dict[str, dict[str, Any]] = {
    "--data": {"nargs": "+", "default": [], "help": "graphs"},
    "--model": {"nargs": "+", "default": [], "help": "complex, distmult"},
    "--dim": {"nargs": "+", "default": [], "type": int, "help": "one for all models, or one for each"},
    "--seeds": {"nargs": "+", "default": [], "type": int, "help": "of the fits"},
}
MAKING: dict[str, dict[str, Any]] = {
    "--variants": {"nargs": "+", "default": ("conventional", "em", "search"), "help": ", ".join(VARIANTS)},
    "--trials": {"type": int, "default": 12, "help": "complete trainings of a search"},
    "--strengths": {"type": float, "nargs": 2, "default": STRENGTHS, "help": "range of a search: low, high"},
    "--out": {"type": Path, "default": Path("runs/table1"), "help": "folder of the run folders"},
    "--set": {"dest": "overrides", "action": "append", "default": [], "help": "NAME=VALUE, for all cells"},
    "--threads": {"type": int, "help": "of the CPU"},
    "--force": {"action": "store_true", "help": "make cells anew: what there is of them is removed first"},
}


def main(words: Sequence[str] | None = None) -> None:
    """Run a command and end the process."""
    with report_errors():
        words = sys.argv[1:] if words is None else words
        given = _parser().parse_args(words, argparse.Namespace(typed=shlex.join(["python", "-m", "evidence", *words])))
        raise SystemExit(given.run(given))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m evidence", description="Our results: figures and their commands.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    known: list[tuple[str, str, Any, dict[str, dict[str, Any]]]] = [
        ("table1", TABLE1, run_table1, WHICH | MAKING | RESULTS),
        *((study.name, study.asks, run_study, WHICH | RESULTS) for study in STUDIES.values()),
        ("page", PAGE, run_page, RESULTS),
    ]
    for name, asks, run, options in known:
        command = commands.add_parser(name, help=asks, description=asks)
        command.set_defaults(run=run, study=STUDIES.get(name))
        for option, definition in options.items():
            command.add_argument(option, **definition)
    return parser


# cells


def run_table1(given: argparse.Namespace) -> int:
    """Make the cells that are not there and show the tables of all that were asked for."""
    models, dims = given.model or ["complex", "distmult"], given.dim or [100]
    if len(dims) not in (1, len(models)):
        what = f"{len(dims)} dimensions for {len(models)} models"
        raise ConfigError(what, where="--dim", remedy="give one for all models, or one for each")
    pairs = list(zip(models, dims * len(models) if len(dims) == 1 else dims, strict=True))
    wanted = cells(given.data or PAPER_GRAPHS, pairs, given.variants, given.seeds or [0], given.trials)
    failed = make_cells(wanted, given)
    names = {cell.name for cell in wanted}
    for table in table1.table1([cell for cell in read_cells(given.results / CELLS) if cell["name"] in names]):
        emit_text(table.markdown() + "\n")
    if failed:
        say(paragraph(f"{len(failed)} of {len(wanted)} cells failed: {', '.join(cell.name for cell in failed)}"))
    return 1 if failed else 0


def make_cells(wanted: Sequence[Cell], given: argparse.Namespace) -> list[Cell]:
    """Make the cells that are not there, visibly; those whose fit failed."""
    versions()  # as of now, and not of when a long command ends
    strengths = (given.strengths[0], given.strengths[1])
    check_range("--strengths", strengths)
    named = {"run.threads": given.threads, "run.products": "exact"}  # so that cells of different machines compare
    settings = read_settings("default", None, named, given.overrides, None)
    base = record_threads(settings)
    for cell in wanted:
        cell.settings(base)  # what is wrong with a model shows before anything long begins
    graphs = load_graphs(dict.fromkeys(cell.data for cell in wanted))
    paths = {cell: given.results / CELLS / f"{cell.name}.json" for cell in wanted}
    if given.force:  # all of them before the first is made anew, so that a stopped command can go on as any other
        for cell, path in paths.items():
            discard_cell(cell, given.out)
            path.unlink(missing_ok=True)
    again = "go on: give the same command again" + (" without --force" if given.force else "")
    maker = CellMaker(
        base=base,
        out=given.out,
        carry_on=carry_on_visibly(given.threads, again),
        tell=lambda text: say(plain(text)),
        strengths=strengths,
    )
    known = {cell["name"]: cell for cell in read_cells(given.results / CELLS)}
    missing = [cell for cell in wanted if not _is_kept(known.get(cell.name), cell, graphs[cell.data], maker)]
    failed: list[Cell] = []
    for place, cell in enumerate(missing, 1):
        say(f"cell {place} of {len(missing)} to make: {cell.name}")
        try:
            before = known.get(cell.name, {}).get("trials", ())
            document = maker.make(cell, graphs[cell.data], given.typed, before)
            write_json(paths[cell], document)
            keep_the_best(document)
        except FitError as error:
            failed.append(cell)
            say(f"{cell.name} failed: {plain(error.message)}")
    return failed


def _is_kept(document: Document | None, cell: Cell, prepared: Prepared, maker: CellMaker) -> bool:
    """Whether the cell is there, and as long as it shall be; told if it was made with other settings."""
    if document is None:
        return False
    if document["facts"]["hash"] != prepared.data.content_hash:
        remedy = "give another --results, or make it anew: --force"
        raise InputError(f"{cell.name} is there, but of another graph or split", remedy=remedy)
    changed = ", ".join(changed_settings(document, cell, maker.base, maker.strengths))
    short = "trials" in document and len(document["trials"]) < cell.trials
    if short and changed:
        what = f"{cell.name} cannot be made longer: other settings made it ({changed})"
        raise InputError(what, remedy="give those that it had, or make it anew: --force")
    if changed:
        say(paragraph(f"{cell.name} is kept, but other settings made it ({changed}); anew: --force"))
    return not short


def load_graphs(names: Iterable[str]) -> dict[str, Prepared]:
    """All graphs, before anything long begins: a name that is wrong shows at once."""
    prepared = {name: prepare(reading.load(name, reading.ReadOptions()), SPLIT_SEED) for name in names}
    for name, graph in prepared.items():
        if not len(graph.data.valid) or not len(graph.data.test):
            remedy = "give a graph that has facts in valid and in test, or one without any split"
            raise InputError(f"{plain(name)} has nothing to measure", remedy=remedy)
    return prepared


def carry_on_visibly(threads: int | None, goes_on: str) -> CarryOn:
    """Goes on with a run while the terminal shows it; `goes_on` tells what to do after a stop."""

    def carry_on(run: Run) -> Model:
        if threads is not None:
            run.set_threads(threads)
        try:
            return train(run, quiet=False, plan=False, goes_on=goes_on)
        except typer.Exit as stopped:
            raise SystemExit(stopped.exit_code) from None

    return carry_on


# studies


def run_study(given: argparse.Namespace) -> int:
    """Measure the cells that are there, write a JSON file for each group of them, and show the tables."""
    study: Study = given.study
    graphs = [graph_name(name) for name in given.data]
    asked = {"graph": graphs, "model": given.model, "dim": given.dim, "seed": given.seeds}
    chosen = [
        cell
        for cell in read_cells(given.results / CELLS)
        if all(not values or cell[key] in values for key, values in asked.items())
    ]
    there = {cell["graph"] for group in study.select(chosen) for found in group.values() for cell in found}
    missing = [name for name in graphs if name not in there]
    if missing or not there:
        what = f"{', '.join(map(repr, missing)) or 'no graph'}: there is no {study.needs}"
        remedy = f"make it: python -m evidence table1 --variants {' '.join(study.variants)} --data ..."
        raise InputError(what, where=str(given.results / CELLS), remedy=remedy)
    made = []
    for document in study.documents(chosen, lambda cell: open_model(Path(cell["run"])), given.typed):
        path = given.results / study.folder / f"{document['name']}.json"
        write_json(path, document)
        say(plain(path))
        made.append(document)
    for make in study.tables:
        emit_text(make(made).markdown() + "\n")
    return 0


# pages


def run_page(given: argparse.Namespace) -> int:
    """Write all pages and pictures below docs/ and the README's table; pictures that no page shows any more go."""
    docs, readme = Path("docs"), Path("README.md")
    pages = make_pages((docs / "results.md.in").read_text(encoding="utf-8"), read_results(given.results))
    images = docs / "images"
    images.mkdir(parents=True, exist_ok=True)
    for old in {path.name for path in images.glob("results-*")} - pages.pictures.keys():
        (images / old).unlink()
    for name, draw in pages.pictures.items():
        save_figure(draw(), images / name)
    for name, text in pages.texts.items():
        write_text(docs / name, text)
    text = readme.read_text(encoding="utf-8") if readme.is_file() else ""
    if BEGIN in text and END in text:
        write_text(readme, between_marks(text, pages.quality))
    say(f"{len(pages.texts)} pages in {plain(docs)}, {len(pages.pictures)} pictures in {plain(images)}")
    return 0
