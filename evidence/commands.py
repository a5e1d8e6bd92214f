"""`kgem reproduce`: the evidence, made by commands that can be stopped and given again."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evidence.running import Given, Several, graphs, make_cells, ranking, settings_words, wanted_cells, words
from kgem.cli.console import emit_text, errors_told, paragraph, plain, say
from kgem.cli.results import opened
from kgem.cli.search import RANGE
from kgem.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from evidence.cells import Cell
    from evidence.documents import Document
    from evidence.rows import Key
    from evidence.tables import Table
    from kgem.answer.model import Model

__all__ = ["main"]

app = typer.Typer(help="Reproduce the evidence: figures with their commands.", no_args_is_help=True)


def _help(text: str) -> Any:
    return typer.Option(help=text, show_default=False)


Data = Annotated[
    list[str] | None,
    _help("Graphs: names that 'kgem data fetch' lists, files or folders; without it the paper's four."),
]
NamedData = Annotated[list[str] | None, _help("Graphs: names that 'kgem data fetch' lists, files or folders.")]
Models = Annotated[list[str] | None, _help("Score functions; without it complex and distmult.")]
OneModel = Annotated[list[str] | None, _help("Score functions; without it complex.")]
Dims = Annotated[list[str] | None, _help("Dimension, one for all models or one for each; without it 100.")]
Seeds = Annotated[list[str] | None, _help("Of all random numbers; without it 0.")]
Out = Annotated[Path, typer.Option(metavar="FOLDER", help="Of the run folders.")]
Results = Annotated[Path, typer.Option(metavar="FOLDER", help="Of the JSON files.")]
Trials = Annotated[int, typer.Option(min=1, help="Complete trainings of a search.")]
Strengths = Annotated[
    tuple[float, float], typer.Option(metavar="LOW HIGH", help="Range of the shared strength of a search.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="One setting of all cells; may be repeated.", show_default=False),
]
Recipe = Annotated[str, typer.Option(help="Settings to start from: default, or paper.")]
DeviceName = Annotated[str | None, _help("cpu, cuda or cuda:N; without it cpu.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads of the CPU.", show_default=False)]
Budget = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="For each cell: 20m, 1h30m; a search shares it out.", show_default=False),
]
Again = Annotated[bool, typer.Option("--force", help="Make cells anew: what there is of them is removed first.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress; warnings and the result alone.")]
Cells = Annotated[Path, typer.Option(metavar="FOLDER", help="Of the JSON files of Table 1.")]
SomeData = Annotated[list[str] | None, _help("Only these graphs; without it all that have cells.")]
SomeModels = Annotated[list[str] | None, _help("Only these score functions.")]
SomeDims = Annotated[list[str] | None, _help("Only these dimensions.")]
SomeSeeds = Annotated[list[str] | None, _help("Only these seeds.")]


@app.command("table1", cls=Several, epilog="Example: kgem reproduce table1 --data umls nations --dim 50 --seeds 0 1 2")
def table1(
    data: Data = None,
    model: Models = None,
    dim: Dims = None,
    seeds: Seeds = None,
    variants: Annotated[
        list[str] | None,
        _help(
            "conventional: one shared strength, as published; em: kgem fit; search: the best shared strength of a "
            "search; without it all three."
        ),
    ] = None,
    trials: Trials = 12,
    strengths: Strengths = RANGE,
    out: Out = Path("runs/table1"),
    results: Results = Path("results/table1"),
    overrides: Overrides = None,
    recipe: Recipe = "default",
    device: DeviceName = None,
    threads: Threads = None,
    time_budget: Budget = None,
    tables_only: Annotated[
        bool, typer.Option("--tables-only", help="Only write the tables of the cells that are there.")
    ] = False,
    force: Again = False,
    quiet: Quiet = False,
) -> None:
    """The paper's Table 1 with our figures: graph by model by variant by seed.

    Every cell is fitted in a run folder of its own and measured into one JSON file; cells that are there are kept.
    A stopped command goes on when it is given again. At the end table1.md and table1.html, of all cells that are there,
    are beside the JSON files; what is shown is of the cells that were asked for.
    """
    wanted: list[Cell] = []
    failed: list[Cell] = []
    if tables_only and any((data, model, dim, seeds, variants)):
        what = "--tables-only writes the tables of all cells that are there"
        raise InputError(what, remedy="leave --data, --model, --dim, --seeds and --variants out, or leave it out")
    if not tables_only:
        given = Given(recipe, overrides or [], time_budget, device, threads, strengths)
        wanted = wanted_cells(data, model, dim, seeds, variants, trials)
        failed = make_cells(wanted, given, out, results, force=force, quiet=quiet)
    from evidence import table1 as tables

    written = tables.write_tables(results)
    names = {cell.name for cell in wanted}
    for table in tables.table1([cell for cell in _read(results) if tables_only or cell["name"] in names]):
        emit_text(table.markdown() + "\n")
    say(f"tables: {', '.join(plain(path) for path in written)}")
    _tell_failed(failed, wanted)


@app.command("search", cls=Several, epilog="Example: kgem reproduce search --data umls --dim 50 --trials 20")
def search(
    data: NamedData = None,
    model: OneModel = None,
    dim: Dims = None,
    seeds: Seeds = None,
    trials: Trials = 20,
    strengths: Strengths = RANGE,
    out: Out = Path("runs/table1"),
    cells: Cells = Path("results/table1"),
    results: Results = Path("results/search"),
    overrides: Overrides = None,
    recipe: Recipe = "default",
    device: DeviceName = None,
    threads: Threads = None,
    time_budget: Budget = None,
    force: Again = False,
    quiet: Quiet = False,
) -> None:
    """The search that kgem replaces, beside one fit: what both found, and what both cost.

    Makes the cells 'search' and 'em' of Table 1 that are not there, then compares them: a JSON file and a picture,
    validation MRR against epochs and seconds spent, for each graph, model and dimension.
    """
    _refuse_unnamed(data)
    given = Given(recipe, overrides or [], time_budget, device, threads, strengths)
    wanted = wanted_cells(data, words(model) or ["complex"], dim, seeds, ["em", "search"], trials)
    failed = make_cells(wanted, given, out, cells, force=force, quiet=quiet)
    from evidence.cost import compare_costs, cost_table, pairs
    from evidence.pictures import cost_figure

    names = {cell.name for cell in wanted}
    made = []
    for group in pairs([each for each in _read(cells) if each["name"] in names]).values():
        document = compare_costs(group, _search_command(group))
        used = [cell for pair in group for cell in pair]
        _keep(results, document, used, {".svg": cost_figure(document), ".png": cost_figure(document)})
        made.append(document)
    _show(made, [cost_table])
    _tell_failed(failed, wanted)


@app.command("frequency", cls=Several, epilog="Example: kgem reproduce frequency --data fb15k-237")
def frequency(
    data: SomeData = None,
    model: SomeModels = None,
    dim: SomeDims = None,
    seeds: SomeSeeds = None,
    cells: Cells = Path("results/table1"),
    results: Results = Path("results/frequency"),
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
) -> None:
    """Where the gain comes from: MRR by frequency, after EM and with the best shared strength; and Fig. 3.

    Looks at cells of Table 1 that are there, and at their run folders.
    """
    from evidence.frequency import by_frequency, frequency_table, groups, slope_table
    from evidence.pictures import frequency_figure, slope_figure

    found = groups(_selected(cells, data, model, dim, seeds))
    remedy = "make both: kgem reproduce table1 --variants em search --data ..."
    _refuse_alone(found, cells, data, "a search or a conventional model", remedy)
    made = []
    for key, pairs in found.items():
        command = _command("frequency", key, [fit["seed"] for fit, _ in pairs])
        document = by_frequency(pairs, lambda cell: _model(cell, device), command)
        figures = {".svg": frequency_figure(document), ".png": frequency_figure(document)}
        _keep(
            results,
            document,
            [cell for pair in pairs for cell in pair],
            figures | {"-strengths.png": slope_figure(document)},
        )
        made.append(document)
    _show(made, [frequency_table, slope_table])


@app.command("together", cls=Several, epilog="Example: kgem reproduce together --data umls nations")
def together(
    data: SomeData = None,
    model: SomeModels = None,
    dim: SomeDims = None,
    seeds: SomeSeeds = None,
    cells: Cells = Path("results/table1"),
    results: Results = Path("results/together"),
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
    quiet: Quiet = False,
) -> None:
    """What of a blend's gain any second model brings: two models with a shared strength, asked together.

    Looks at cells of Table 1 that are there, and at their run folders: of each graph, model and dimension the searches
    of several seeds, or the conventional models, and the fits beside them.
    """
    from evidence.together import groups, together_document, together_table

    found = groups(_selected(cells, data, model, dim, seeds))
    remedy = "make them: kgem reproduce table1 --variants em conventional --seeds 0 1 --data ..."
    _refuse_alone(found, cells, data, "two searches or two conventional models", remedy)
    made = []
    for key, group in found.items():
        baselines, fits = group
        command = _command("together", key, sorted({cell["seed"] for cell in (*baselines, *fits)}))
        with ranking(quiet=quiet) as heard:
            document = together_document(group, lambda cell: _model(cell, device), command, heard)
        _keep(results, document, [*baselines, *fits], {})
        made.append(document)
    _show(made, [together_table])


@app.command("apart", cls=Several, epilog="Example: kgem reproduce apart --data umls nations --dim 50 --seeds 0 1 2")
def apart(
    data: NamedData = None,
    model: OneModel = None,
    dim: Dims = None,
    seeds: Seeds = None,
    out: Out = Path("runs/table1"),
    controls: Annotated[Path, typer.Option(metavar="FOLDER", help="Of the run folders of the controls.")] = Path(
        "runs/apart"
    ),
    cells: Cells = Path("results/table1"),
    results: Results = Path("results/apart"),
    overrides: Overrides = None,
    recipe: Recipe = "default",
    device: DeviceName = None,
    threads: Threads = None,
    force: Again = False,
    quiet: Quiet = False,
) -> None:
    """What re-training owes to its start at the means of q, and what to the learned strengths.

    Makes the cells 'em' of Table 1 that are not there, and three controls of each: the same fit ended after
    pre-training, and re-trained with a shared strength, from random tables and from the means of q. Then compares the
    four: a JSON file for each graph, model and dimension. The controls alone are made anew by --force.
    """
    _refuse_unnamed(data)
    from evidence.apart import CONTROLS, apart_document, apart_table, groups, setting_words

    wanted = wanted_cells(data, words(model) or ["complex"], dim, seeds, ["em"], trials=1)
    failed: list[Cell] = []

    def made(changes: Sequence[str], runs: Path, into: Path, *, again: bool) -> dict[str, Document]:
        given = Given(recipe, [*(overrides or []), *changes], None, device, threads)
        failed.extend(make_cells(wanted, given, runs, into, force=again, quiet=quiet))
        names = {cell.name for cell in wanted}
        return {each["name"]: each for each in _read(into) if each["name"] in names}

    fits = made((), out, cells, again=False)
    arms: dict[str, dict[str, Document]] = {}
    for arm in CONTROLS:
        if not quiet:
            say(f"{arm}: {', '.join(setting_words(arm))}")
        arms[arm] = made(setting_words(arm), controls / arm, controls / arm, again=force)
    documents = []
    for mine, beside in groups(fits.values(), arms):
        first = mine[0]
        key = (first["data"], first["model"], first["dim"])
        command = _command("apart", key, [fit["seed"] for fit in mine], settings_words(first["command"]))
        documents.append(apart_document(mine, beside, command))
        _keep(results, documents[-1], mine, {})
    _show(documents, [apart_table])
    _tell_failed(failed, wanted)


@app.command("calibration", cls=Several, epilog="Example: kgem reproduce calibration --data umls --seeds 0")
def calibration(
    data: SomeData = None,
    model: SomeModels = None,
    dim: SomeDims = None,
    seeds: SomeSeeds = None,
    cells: Cells = Path("results/table1"),
    results: Results = Path("results/calibration"),
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
    quiet: Quiet = False,
) -> None:
    """Can the probabilities be trusted, and does the posterior know when it does not know?

    Looks at the cells 'em' of Table 1 that are there, and at their run folders.
    """
    from evidence.doubt import calibration_document, calibration_table, doubt_table
    from evidence.pictures import calibration_figure

    fits = [cell for cell in _selected(cells, data, model, dim, seeds) if cell["variant"] == "em"]
    remedy = "make some: kgem reproduce table1 --variants em --data ..."
    if not fits:
        raise InputError("there are no fits among these cells", where=str(cells), remedy=remedy)
    _refuse_missing("--data", _graph_names(cells, data), [cell["graph"] for cell in fits], "has no fit", remedy)
    made = []
    for cell in fits:
        key = (cell["graph"], cell["model"], cell["dim"])
        fitted = _model(cell, device)
        with ranking(quiet=quiet) as heard:
            document = calibration_document(cell, fitted, _command("calibration", key, [cell["seed"]]), heard)
        _keep(results, document, [cell], {".svg": calibration_figure(document), ".png": calibration_figure(document)})
        made.append(document)
    _show(made, [calibration_table, doubt_table])


@app.command("page", epilog="Example: kgem reproduce page")
def page(
    results: Annotated[Path, typer.Option(metavar="FOLDER", help="Of all JSON files.")] = Path("results"),
    template: Annotated[Path, typer.Option(metavar="FILE", help="The prose, with places for figures.")] = Path(
        "docs/results.md.in"
    ),
    out: Annotated[Path, typer.Option(metavar="FILE", help="The page to write.")] = Path("docs/results.md"),
    images: Annotated[Path, typer.Option(metavar="FOLDER", help="Of its pictures.")] = Path("docs/images"),
    readme: Annotated[
        Path, typer.Option(metavar="FILE", help="Gets its table of quality anew, if it has the marks for it.")
    ] = Path("README.md"),
) -> None:
    """Write the page of results: prose from a template, every figure and picture from the JSON files."""
    from evidence.documents import make_folder, write_text
    from evidence.readme import update_readme
    from evidence.results_page import PREFIX, results_page

    try:
        prose = template.read_text(encoding="utf-8")
    except OSError as error:
        remedy = "name the template: --template FILE"
        raise InputError(f"cannot be read: {error.strerror}", where=str(template), remedy=remedy) from error
    made = results_page(prose, results, _seen_from(out, images))
    from kgem.report.figures.drawing import save_figure

    make_folder(images)
    for old in images.glob(f"{PREFIX}*"):
        if old.name not in made.pictures:
            old.unlink()
    for name, draw in made.pictures.items():
        save_figure(draw(), images / name)
    write_text(out, made.text)
    if update_readme(readme, results / "table1"):
        say(f"{plain(readme)}: its table")
    say(f"{plain(out)}, {len(made.pictures)} pictures in {plain(images)}")


def _seen_from(page: Path, images: Path) -> str:
    """The folder of pictures as the page links to it."""
    import os

    return Path(os.path.relpath(images, page.parent)).as_posix()


def _read(cells: Path) -> list[dict[str, Any]]:
    from evidence.cells import read_cells

    return read_cells(cells)


def _selected(
    cells: Path,
    data: Sequence[str] | None,
    model: Sequence[str] | None,
    dim: Sequence[str] | None,
    seeds: Sequence[str] | None,
) -> list[dict[str, Any]]:
    """The cells that are there, of some graphs, models, dimensions and seeds; of all that are not named."""
    chosen = {"graph": _graph_names(cells, data), "model": words(model), "dim": words(dim), "seed": words(seeds)}
    found = [
        cell for cell in _read(cells) if all(not names or str(cell[key]) in names for key, names in chosen.items())
    ]
    if not found:
        raise InputError("there are no such cells", where=str(cells), remedy="make them: kgem reproduce table1 ...")
    for key, option in {"graph": "--data", "model": "--model", "dim": "--dim", "seed": "--seeds"}.items():
        remedy = f"leave it out, or make them: kgem reproduce table1 {option} ..."
        _refuse_missing(option, chosen[key], [cell[key] for cell in found], f"has no cells in {cells}", remedy)
    return found


def _graph_names(cells: Path, data: Sequence[str] | None) -> list[str]:
    """What the graphs that were named are called in cells."""
    from evidence.cells import graph_name

    return [graph_name(name) for name in graphs(data, {cell["graph"] for cell in _read(cells)})]


def _refuse_unnamed(data: Sequence[str] | None) -> None:
    """What is made of any graph is made of none by default."""
    if not graphs(data):
        raise InputError("no graph is named", where="--data", remedy="name some: --data umls codex-s")


def _refuse_missing(option: str, names: Sequence[str], there: Sequence[Any], what: str, remedy: str) -> None:
    """Every name must be among those that there is something of."""
    missing = [name for name in names if name not in set(map(str, there))]
    if missing:
        raise InputError(f"{', '.join(map(repr, missing))} {what}", where=option, remedy=remedy)


def _refuse_alone(found: Collection[Key], cells: Path, data: Sequence[str] | None, beside: str, remedy: str) -> None:
    """There must be fits that have something beside them, of every graph that was named."""
    if not found:
        raise InputError(f"no fit has {beside} beside it", where=str(cells), remedy=remedy)
    what = f"has no fit with {beside} beside it"
    _refuse_missing("--data", _graph_names(cells, data), [key[0] for key in found], what, remedy)


def _model(cell: Document, device: str) -> Model:
    """The fitted model of a cell."""
    folder = Path(cell["run"])
    if not folder.is_dir():
        remedy = f"run from the folder that it is seen from, or make it again: {cell['command']} --force"
        raise InputError(f"the run of {cell['name']} is not there", where=str(folder), remedy=remedy)
    return opened(folder, device)


def _command(name: str, key: tuple[str, str, int], seeds: Sequence[int], more: Sequence[str] = ()) -> str:
    data, model, dim = key
    call = ["kgem", "reproduce", name, "--data", data, "--model", model, "--dim", str(dim), "--seeds"]
    return shlex.join([*call, *map(str, seeds), *more])


def _search_command(group: Sequence[tuple[Document, Document]]) -> str:
    """What makes this comparison of searches and fits: that of the cells as they are, whatever was asked for now.

    If no one command makes all of them, those of the cells come first; the last then finds them.
    """
    searches = [search for search, _ in group]
    cells = [cell for pair in group for cell in pair]
    trials = sorted(len(search["trials"]) for search in searches)
    settings = {tuple(settings_words(cell["command"])) for cell in cells}
    if len(settings) > 1:  # what some were carried out on is no part of what they are
        settings = {tuple(settings_words(cell["command"], ("--threads", "--device"))) for cell in cells}
    ranges = {tuple(search["strengths"]) for search in searches}
    first = searches[0]
    key = (first["data"], first["model"], first["dim"])
    more = ["--trials", str(trials[0]), "--strengths", *(f"{bound:g}" for bound in first["strengths"])]
    alike = len(settings) == len(ranges) == len(set(trials)) == 1
    call = _command("search", key, [each["seed"] for each in searches], [*more, *(min(settings) if alike else ())])
    return call if alike else " && ".join([*(cell["command"] for cell in cells), call])


def _keep(results: Path, document: Document, cells: Sequence[Document], figures: dict[str, Figure]) -> None:
    """Write a document that was made from cells, and its pictures, whose names end as told."""
    from evidence.documents import made_from, write_json
    from kgem.report.figures.drawing import save_figure

    path = results / f"{document['name']}.json"
    write_json(path, made_from(document, cells))
    for ending, figure in figures.items():
        save_figure(figure, path.with_name(f"{document['name']}{ending}"))
    beside = f", and {', '.join(figures)} beside it" if figures else ""
    say(f"{plain(path)}{beside}")


def _show(documents: Sequence[Document], tables: Sequence[Any]) -> None:
    for make in tables:
        table: Table = make(documents)
        emit_text(table.markdown() + "\n")


def _tell_failed(failed: Sequence[Cell], wanted: Sequence[Cell]) -> None:
    if failed:
        say(paragraph(f"{len(failed)} of {len(wanted)} cells failed: {', '.join(cell.name for cell in failed)}"))
        raise typer.Exit(1)


def main(words: Sequence[str] | None = None) -> None:
    with errors_told():
        app(words, prog_name="python -m evidence")
