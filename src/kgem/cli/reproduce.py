"""`kgem reproduce`: the evidence, made by commands that can be stopped and given again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from kgem.cli import reading
from kgem.cli.console import emit_text, paragraph, plain, say
from kgem.cli.fit import chosen_settings, train, use_threads
from kgem.cli.progress import Progress, duration
from kgem.errors import ConfigError, FitError, InputError

if TYPE_CHECKING:
    from kgem.config import Config
    from kgem.use.fitting import Prepared
    from kgem.use.model import Model
    from kgem.use.reproduce.cells import Cell
    from kgem.use.reproduce.making import Maker
    from kgem.use.run import Run

__all__ = ["app"]

PAPER = ("wn18rr", "wn18", "fb15k-237", "fb15k")
SPLIT_SEED = 0  # of graphs that come without splits: the same facts are kept from training for every seed
WORK = {"conventional": 1.0, "em": 3.0}  # what a cell costs beside one training, roughly; a search: its trials
LISTS = ("data", "model", "dim", "seeds", "variants")

app = typer.Typer(help="Reproduce the evidence: figures with their commands.", no_args_is_help=True)


class Several(TyperCommand):
    """A command whose lists may be written with spaces: --seeds 0 1 2."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        lists = {name for option in self.params if option.name in LISTS for name in option.opts}
        words: list[str] = []
        option, first = "", True
        for word in args:
            if word.startswith("--"):
                option, first = word, True
            elif option in lists and not first:
                words.append(option)
            else:
                first = False
            words.append(word)
        return super().parse_args(ctx, words)


def _help(text: str) -> Any:
    return typer.Option(help=text, show_default=False)


Data = Annotated[
    list[str] | None, _help("Graphs: names that 'kgem data fetch' lists, files or folders. [default: the paper's four]")
]
Models = Annotated[list[str] | None, _help("Score functions. [default: complex distmult]")]
Dims = Annotated[list[str] | None, _help("Dimension: one for all models, or one for each. [default: 100]")]
Seeds = Annotated[list[str] | None, _help("Of all random numbers. [default: 0]")]
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
DeviceName = Annotated[str | None, _help("cpu, cuda or cuda:N. [default: cpu]")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads of the CPU.", show_default=False)]
Budget = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="For each cell: 20m, 1h30m; a search shares it out.", show_default=False),
]
Again = Annotated[bool, typer.Option("--force", help="Make cells anew that are there already.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress; warnings and the result alone.")]

TABLE1 = Path("table1")


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
            "search. [default: all]"
        ),
    ] = None,
    trials: Trials = 12,
    strengths: Strengths = (1e-3, 1.0),
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
    A stopped command goes on when it is given again. At the end table1.md and table1.html are beside the JSON files.
    """
    if not tables_only:
        given = _Given(recipe, overrides or [], time_budget, device, threads, strengths)
        wanted = _cells(data, model, dim, seeds, variants, trials)
        failed = make_cells(wanted, given, out, results, force=force, quiet=quiet)
    from kgem.use.reproduce.table1 import write_tables

    written = write_tables(results)
    emit_text(written[0].read_text(encoding="utf-8"))
    say(f"tables: {', '.join(plain(path) for path in written)}")
    if not tables_only and failed:
        say(paragraph(f"{len(failed)} of {len(wanted)} cells failed: {', '.join(cell.name for cell in failed)}"))
        raise typer.Exit(1)


class _Given:
    """What all cells of a command share: settings, and the words that ask for them."""

    def __init__(
        self,
        recipe: str,
        overrides: Sequence[str],
        time_budget: str | None,
        device: str | None,
        threads: int | None,
        strengths: tuple[float, float],
    ) -> None:
        named = {"device": device, "run.threads": threads}
        self.base: Config = chosen_settings(recipe, None, named, overrides, time_budget)
        self.threads, self.strengths = threads, strengths
        self._words = [
            *(["--recipe", recipe] if recipe != "default" else []),
            *(word for setting in overrides for word in ("--set", setting)),
            *(["--time-budget", time_budget] if time_budget else []),
            *(["--device", device] if device else []),
        ]

    def command(self, cell: Cell) -> str:
        """What makes just this cell."""
        words = ["kgem", "reproduce", "table1", "--data", cell.data, "--model", cell.model, "--dim", str(cell.dim)]
        words += ["--variants", cell.variant, "--seeds", str(cell.seed)]
        if cell.variant == "search":
            words += ["--trials", str(cell.trials), "--strengths", *(f"{bound:g}" for bound in self.strengths)]
        return shlex.join([*words, *self._words])


def _cells(
    data: Sequence[str] | None,
    model: Sequence[str] | None,
    dim: Sequence[str] | None,
    seeds: Sequence[str] | None,
    variants: Sequence[str] | None,
    trials: int,
) -> list[Cell]:
    from kgem.use.reproduce.cells import VARIANTS, cells

    models = _words(model) or ["complex", "distmult"]
    dims = _numbers("--dim", _words(dim) or ["100"], least=1)
    if len(dims) not in (1, len(models)):
        what = f"{len(dims)} dimensions for {len(models)} models"
        raise ConfigError(what, where="--dim", remedy="give one for all models, or one for each")
    pairs = list(zip(models, dims * len(models) if len(dims) == 1 else dims, strict=True))
    chosen = _numbers("--seeds", _words(seeds) or ["0"], least=0)
    return cells(_words(data) or PAPER, pairs, _words(variants) or VARIANTS, chosen, trials)


def _words(given: Sequence[str] | None) -> list[str]:
    """A list as people write it: repeated, with commas, or with spaces."""
    return [word for text in given or [] for word in text.replace(",", " ").split()]


def _numbers(where: str, words: Sequence[str], least: int) -> list[int]:
    for word in words:
        if not word.isdecimal() or int(word) < least:
            remedy = f"give whole numbers from {least} on"
            raise ConfigError(f"{word!r} is not such a number", where=where, remedy=remedy)
    return [int(word) for word in words]


def make_cells(
    wanted: Sequence[Cell], given: _Given, out: Path, results: Path, *, force: bool, quiet: bool
) -> list[Cell]:
    """Make the cells that are not there, visibly; those whose fit failed."""
    from kgem.use.reproduce.documents import write_json
    from kgem.use.reproduce.origin import versions

    versions()  # as of now, and not of when a long command ends
    graphs = _loaded(wanted, given.base, quiet)
    base = use_threads(given.base)
    plan = _Plan(wanted, graphs, results)
    failed: list[Cell] = []
    for cell in wanted:
        path = results / f"{cell.name}.json"
        if not force and plan.kept(cell, base):
            continue
        say(plan.line(cell))
        try:
            with _maker(base, given, out, force=force, quiet=quiet) as maker:
                document = maker.make(cell, graphs[cell.data], given.command(cell))
        except FitError as error:
            failed.append(cell)
            say(f"{cell.title} failed: {plain(error.message)}")
            continue
        write_json(path, document)
        plan.done(cell, document)
    return failed


@contextmanager
def _maker(base: Config, given: _Given, out: Path, *, force: bool, quiet: bool) -> Iterator[Maker]:
    """Makes cells while the terminal shows it."""
    from kgem.use.reproduce.making import Maker

    bars: list[Progress] = []

    def carry_on(run: Run) -> Model:
        use_threads(run.config, given.threads)
        return train(run, quiet=quiet, plan=False, goes_on="go on: give the same command again")

    def measuring(what: str, done: int, total: int) -> None:
        if not bars and not quiet:
            bars.append(Progress(what).__enter__())
        for bar in bars:
            bar.label, bar.done, bar.total = what, done, total

    try:
        yield Maker(
            base=base,
            out=out,
            carry_on=carry_on,
            tell=lambda text: say(plain(text)),
            measuring=measuring,
            strengths=given.strengths,
            force=force,
        )
    finally:
        for bar in bars:
            bar.__exit__(None, None, None)


def _loaded(wanted: Sequence[Cell], base: Config, quiet: bool) -> dict[str, Prepared]:
    """All graphs, before anything long begins: a name that is wrong shows at once, and so does a model."""
    how = reading.options(None, False, None, None, "drop", False)
    loaded = {cell.data: reading.load(cell.data, how, quiet=quiet) for cell in wanted}
    with Progress("preparing"):
        from kgem.use.fitting import prepare

        graphs = {name: prepare(data, SPLIT_SEED) for name, data in loaded.items()}
        for cell in wanted:
            cell.settings(base)
    for name, prepared in graphs.items():
        for split in ("valid", "test"):
            if not len(prepared.data.split(split)):
                remedy = "give a graph that has both, or one without any split"
                raise InputError(f"{plain(name)} has no facts in {split}", remedy=remedy)
    return graphs


class _Plan:
    """Which cells are there, and how long the others will take."""

    def __init__(self, wanted: Sequence[Cell], graphs: dict[str, Prepared], results: Path) -> None:
        self._wanted, self._graphs, self._results = wanted, graphs, results
        self._seconds: dict[Cell, float] = {}  # of cells that are done
        self._kept: set[Cell] = set()

    def kept(self, cell: Cell, base: Config) -> bool:
        """Whether the cell is there; told if it was made with other settings."""
        from kgem.use.reproduce.cells import changed_settings, read_cell

        path = self._results / f"{cell.name}.json"
        if not path.exists():
            return False
        document = read_cell(path)
        if cell.variant == "search" and len(document["trials"]) < cell.trials:
            return False
        changed = changed_settings(document, cell, base)
        if changed:
            say(paragraph(f"{cell.name} is kept, but other settings made it ({', '.join(changed)}); anew: --force"))
        if document["facts"]["hash"] != self._graphs[cell.data].data.content_hash:
            remedy = "give another --results, or make it anew: --force"
            raise InputError("is of another graph or split", where=str(path), remedy=remedy)
        self.done(cell, document)
        self._kept.add(cell)
        return True

    def done(self, cell: Cell, document: dict[str, Any]) -> None:
        """Take note of what a cell took."""
        self._seconds[cell] = float(document["seconds"])

    def line(self, cell: Cell) -> str:
        """Which cell comes, of how many, and the time left if any cell tells the speed."""
        place = self._wanted.index(cell) + 1
        left = self._left()
        told = "" if left is None else f"; about {duration(left)} left for all"
        return f"cell {place} of {len(self._wanted)} ({len(self._seconds)} done): {plain(cell.title)}{told}"

    def _left(self) -> float | None:
        work = sum(map(self._work, self._seconds))
        rest = sum(self._work(cell) for cell in self._wanted if cell not in self._seconds)
        return sum(self._seconds.values()) / work * rest if work else None

    def _work(self, cell: Cell) -> float:
        """In no unit: the products of an epoch times the number of trainings."""
        data = self._graphs[cell.data].data
        width = cell.dim * (2 if cell.model == "complex" else 1)
        return len(data.train) * data.n_entities * width * WORK.get(cell.variant, cell.trials)
