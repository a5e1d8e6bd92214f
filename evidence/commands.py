"""`python -m evidence`: the evidence, made by commands that can be stopped and given again."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evidence import engine, table1
from evidence.cells import PAPER_GRAPHS, VARIANTS, Cell, cells, changed_settings, graph_name, read_cell, read_cells
from evidence.documents import make_folder, write_json, write_text
from evidence.fits import CellMaker, discard_cell
from evidence.page import BEGIN, END, STUDIES, between_marks, make_pages, read_results
from evidence.provenance import versions
from evidence.study import Study
from kgem.cli.console import emit_text, paragraph, plain, report_errors, say
from kgem.errors import ConfigError, FitError, InputError
from kgem.report.figures.drawing import save_figure
from kgem.train.search import STRENGTHS, check_range

TABLE1 = "The paper's Table 1 with our figures: graph by model by variant by seed."
PAGE = "Write the pages of results and the README's table: all figures and pictures from the JSON files."
DEFAULT_VARIANTS = ("conventional", "em", "search")


def main(words: Sequence[str] | None = None) -> None:
    """Run a command and end the process."""
    with report_errors():
        words = sys.argv[1:] if words is None else words
        given = _parser().parse_args(words, argparse.Namespace(typed=shlex.join(["python", "-m", "evidence", *words])))
        raise SystemExit(given.run(given))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m evidence", description="Our results: figures and their commands.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_making(_command(commands, "table1", TABLE1, run_table1), DEFAULT_VARIANTS, trials=12)
    for study in STUDIES.values():
        command = _command(commands, study.name, study.asks, run_study)
        command.set_defaults(study=study)
        if study.makes:
            _add_making(command, study.variants, trials=20)
        else:
            _add_cells(command, "only these; without it all that have cells", device="cpu")
        command.add_argument("--results", type=Path, default=Path("results", study.folder), help="folder of its files")
    page = _command(commands, "page", PAGE, run_page)
    page.add_argument("--results", type=Path, default=Path("results"), help="folder of all JSON files")
    page.add_argument("--docs", type=Path, default=Path("docs"), help="folder of results.md.in and of the pages")
    page.add_argument("--readme", type=Path, default=Path("README.md"), help="gets its table, if it has the marks")
    return parser


def _command(commands: Any, name: str, asks: str, run: Any) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(name, help=asks, description=asks)
    made.set_defaults(run=run, command=name)
    return made


def _add_cells(command: argparse.ArgumentParser, which: str, device: str | None) -> None:
    """Which cells."""
    for option, kind in {"data": str, "model": str, "dim": _from(1), "seeds": _from(0)}.items():
        command.add_argument(f"--{option}", nargs="+", type=kind, default=[], help=which)
    command.add_argument("--cells", type=Path, default=Path("results/table1"), help="folder of the cells' JSON files")
    command.add_argument("--device", default=device, help="cpu, cuda or cuda:N")
    command.add_argument("--quiet", "-q", action="store_true", help="no progress")


def _add_making(command: argparse.ArgumentParser, variants: Sequence[str], trials: int) -> None:
    """Which cells, and how those that are not there are made."""
    _add_cells(command, "all combinations are made; a dim for all models or one for each", device=None)
    if variants is DEFAULT_VARIANTS:
        command.add_argument("--variants", nargs="+", default=variants, help=", ".join(VARIANTS))
    else:
        command.set_defaults(variants=variants)
    command.add_argument("--trials", type=_from(1), default=trials, help="complete trainings of a search")
    command.add_argument("--strengths", type=float, nargs=2, default=STRENGTHS, help="range of a search: low, high")
    command.add_argument("--out", type=Path, default=Path("runs/table1"), help="folder of the run folders")
    command.add_argument("--set", dest="overrides", action="append", default=[], help="NAME=VALUE, for all cells")
    command.add_argument("--recipe", default="default", help="settings to start from: default, or paper")
    command.add_argument("--threads", type=_from(1), help="of the CPU")
    command.add_argument("--time-budget", help="for each cell: 20m, 1h30m; a search shares it out")
    command.add_argument("--force", action="store_true", help="make cells anew: what there is of them is removed first")


def _from(least: int) -> Any:
    def number(word: str) -> int:
        if not word.isdecimal() or int(word) < least:
            raise argparse.ArgumentTypeError(f"{word!r}: give whole numbers from {least} on")
        return int(word)

    return number


# cells


def run_table1(given: argparse.Namespace) -> int:
    """Make cells and show their tables."""
    wanted = _wanted(given, given.data or PAPER_GRAPHS, given.model or ["complex", "distmult"])
    failed = make_cells(wanted, given)
    names = {cell.name for cell in wanted}
    for table in table1.table1([cell for cell in read_cells(given.cells) if cell["name"] in names]):
        emit_text(table.markdown() + "\n")
    return _tell_failed(failed, wanted)


def _wanted(given: argparse.Namespace, data: Sequence[str], models: Sequence[str]) -> list[Cell]:
    dims = given.dim or [100]
    if len(dims) not in (1, len(models)):
        what = f"{len(dims)} dimensions for {len(models)} models"
        raise ConfigError(what, where="--dim", remedy="give one for all models, or one for each")
    pairs = list(zip(models, dims * len(models) if len(dims) == 1 else dims, strict=True))
    return cells(data, pairs, given.variants, given.seeds or [0], given.trials)


def make_cells(wanted: Sequence[Cell], given: argparse.Namespace) -> list[Cell]:
    """Make the cells that are not there, visibly; those whose fit failed."""
    versions()  # as of now, and not of when a long command ends
    strengths = (given.strengths[0], given.strengths[1])
    check_range("--strengths", strengths)
    base = engine.choose_settings(given.recipe, given.overrides, given.time_budget, given.device, given.threads)
    for cell in wanted:
        cell.settings(base)  # what is wrong with a model shows before anything long begins
    graphs = engine.load_graphs(list(dict.fromkeys(cell.data for cell in wanted)), quiet=given.quiet)
    again = " without --force" if given.force else ""
    carry_on = engine.carry_on_visibly(given.threads, f"go on: give the same command again{again}", quiet=given.quiet)
    missing = []
    for cell in wanted:
        path = given.cells / f"{cell.name}.json"
        if given.force:  # all of them before the first is made anew, so that a stopped command can go on as any other
            discard_cell(cell, given.out)
            path.unlink(missing_ok=True)
        if not _is_kept(path, cell, graphs[cell.data], base, strengths):
            missing.append(cell)
    failed: list[Cell] = []
    for place, cell in enumerate(missing, 1):
        if not given.quiet:
            say(f"cell {place} of {len(missing)} to make: {plain(cell.title)}")
        try:
            with engine.show_measuring(quiet=given.quiet) as on_measuring:
                maker = CellMaker(
                    base=base,
                    out=given.out,
                    carry_on=carry_on,
                    tell=lambda text: None if given.quiet else say(plain(text)),
                    warn=lambda text: say(plain(text)),
                    on_measuring=on_measuring,
                    strengths=strengths,
                )
                document = maker.make(cell, graphs[cell.data], given.typed)
        except FitError as error:
            failed.append(cell)
            say(f"{cell.title} failed: {plain(error.message)}")
            continue
        write_json(given.cells / f"{cell.name}.json", document)
    return failed


def _is_kept(path: Path, cell: Cell, prepared: engine.Prepared, base: Any, strengths: tuple[float, float]) -> bool:
    """Whether the cell is there; told if it was made with other settings."""
    if not path.exists():
        return False
    document = read_cell(path)
    if document["facts"]["hash"] != prepared.data.content_hash:
        remedy = "give another --cells, or make it anew: --force"
        raise InputError("is of another graph or split", where=str(path), remedy=remedy)
    changed = ", ".join(changed_settings(document, cell, base, strengths))
    if len(document.get("trials", [])) < cell.trials and "trials" in document:
        if changed:
            what = f"this search cannot be made longer: other settings made it ({changed})"
            raise InputError(what, where=str(path), remedy="give those that it had, or make it anew: --force")
        return False
    if changed:
        say(paragraph(f"{cell.name} is kept, but other settings made it ({changed}); anew: --force"))
    return True


def _tell_failed(failed: Sequence[Cell], wanted: Sequence[Cell]) -> int:
    if failed:
        say(paragraph(f"{len(failed)} of {len(wanted)} cells failed: {', '.join(cell.name for cell in failed)}"))
    return 1 if failed else 0


# studies


def run_study(given: argparse.Namespace) -> int:
    """Make or find the cells of a study, measure, write a JSON file for each group of them, and show the tables."""
    study: Study = given.study
    wanted: list[Cell] = []
    failed: list[Cell] = []
    if study.makes:
        if not given.data:
            raise InputError("no graph is named", where="--data", remedy="name some: --data umls codex-s")
        wanted = _wanted(given, given.data, given.model or ["complex"])
        failed = make_cells(wanted, given)
        names = {cell.name for cell in wanted}
        chosen = [cell for cell in read_cells(given.cells) if cell["name"] in names]
    else:
        chosen = _find(given)
    made = []
    with engine.show_measuring(quiet=given.quiet) as on_measuring:
        for document in study.documents(
            chosen, lambda cell: engine.load_model(cell, given.device or "cpu"), on_measuring, given.typed
        ):
            path = given.results / f"{document['name']}.json"
            write_json(path, document)
            say(plain(path))
            made.append(document)
    if not failed:
        _refuse_missing(study, given, [document["graph"] for document in made])
    for make in study.tables if made else ():
        emit_text(make(made).markdown() + "\n")
    return _tell_failed(failed, wanted)


def _find(given: argparse.Namespace) -> list[dict[str, Any]]:
    """The cells that are there, of some graphs, models, dimensions and seeds; of all that are not named."""
    graphs = [graph_name(name) for name in given.data]
    asked = {"graph": graphs, "model": given.model, "dim": given.dim, "seed": given.seeds}
    found = [cell for cell in read_cells(given.cells) if all(not a or cell[key] in a for key, a in asked.items())]
    remedy = "make them: python -m evidence table1 ..."
    if not found:
        raise InputError("there are no such cells", where=str(given.cells), remedy=remedy)
    for key, names in asked.items():
        missing = [str(name) for name in names if name not in {cell[key] for cell in found}]
        if missing:
            what = f"{', '.join(map(repr, missing))} has no cells in {given.cells}"
            raise InputError(what, remedy=f"leave it out, or {remedy}")
    return found


def _refuse_missing(study: Study, given: argparse.Namespace, there: Sequence[str]) -> None:
    """Every graph that was named must have had what the study needs, and some graph must."""
    missing = [name for name in given.data if graph_name(name) not in there]
    remedy = f"make them: python -m evidence table1 --variants {' '.join(study.variants)} --data ..."
    if missing:
        what = f"{', '.join(map(repr, missing))} has no {study.needs}"
        raise InputError(what, where="--data", remedy=remedy)
    if not there:
        raise InputError(f"there is no {study.needs}", where=str(given.cells), remedy=remedy)


# pages


def run_page(given: argparse.Namespace) -> int:
    """Write all pages and pictures, and remove pictures that no page shows any more."""
    template = given.docs / "results.md.in"
    try:
        prose = template.read_text(encoding="utf-8")
    except OSError as error:
        remedy = "name the folder of the template: --docs FOLDER"
        raise InputError(f"cannot be read: {error.strerror}", where=str(template), remedy=remedy) from error
    pages = make_pages(prose, read_results(given.results))
    images = given.docs / "images"
    make_folder(images)
    for old in images.glob("results-*"):
        if old.name not in pages.pictures:
            old.unlink()
    for name, draw in pages.pictures.items():
        save_figure(draw(), images / name)
    for name, text in pages.texts.items():
        write_text(given.docs / name, text)
    readme = given.readme.read_text(encoding="utf-8") if given.readme.is_file() else ""
    if BEGIN in readme and END in readme:
        write_text(given.readme, between_marks(readme, pages.quality))
        say(f"{plain(given.readme)}: its table")
    say(f"{len(pages.texts)} pages in {plain(given.docs)}, {len(pages.pictures)} pictures in {plain(images)}")
    return 0
