"""Cells of Table 1 for commands: lists as people write them, and fits that are shown while they are made."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand

from kgem.cli import reading
from kgem.cli.console import paragraph, plain, say
from kgem.cli.fit import read_settings
from kgem.cli.progress import Progress, duration
from kgem.cli.search import RANGE
from kgem.cli.training import set_threads, train
from kgem.errors import ConfigError, FitError, InputError

if TYPE_CHECKING:
    from evidence.cells import Cell
    from evidence.making import Maker
    from kgem.answer.model import Model
    from kgem.config import Config
    from kgem.runs.fitting import Prepared
    from kgem.runs.run import Run

__all__ = ["Given", "Several", "graphs", "make_cells", "ranking", "settings_words", "wanted_cells", "words"]

SPLIT_SEED = 0  # of graphs that come without splits: the same facts are kept from training for every seed
WORK = {"conventional": 1.0, "em": 3.0}  # what a cell costs beside one training, roughly; a search: its trials
STEP, SPEED = 2.5e-3, 6e10  # seconds of a step beside its products, and products a second: guesses of their ratio
LISTS = ("data", "model", "dim", "seeds", "variants")
OF_A_CELL = ("--data", "--model", "--dim", "--variants", "--seeds", "--trials", "--strengths")


class Several(TyperCommand):
    """A command whose lists may be written with spaces: --seeds 0 1 2."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        lists = {name for option in self.params if option.name in LISTS for name in option.opts}
        words: list[str] = []
        option, first = "", True
        for word in args:
            if word.startswith("-"):
                option, value, _ = word.partition("=")
                first = not value  # --seeds=0 has its first already
            elif option in lists and not first:
                words.append(option)
            else:
                first = False
            words.append(word)
        return super().parse_args(ctx, words)


class Given:
    """What all cells of a command share: settings, and the words that ask for them."""

    def __init__(
        self,
        recipe: str,
        overrides: Sequence[str],
        time_budget: str | None,
        device: str | None,
        threads: int | None,
        strengths: tuple[float, float] = RANGE,
    ) -> None:
        from kgem.train.search import check_range

        check_range("--strengths", strengths)  # now, and not when the first search begins
        named = {"device": device, "run.threads": threads}
        self.base: Config = read_settings(recipe, None, named, overrides, time_budget)
        self.threads, self.strengths = threads, strengths
        self._words = [
            *(["--recipe", recipe] if recipe != "default" else []),
            *(word for setting in overrides for word in ("--set", setting)),
            *(["--time-budget", time_budget] if time_budget else []),
            *(["--device", device] if device else []),
            *(["--threads", str(threads)] if threads else []),
        ]

    def command(self, cell: Cell) -> str:
        """What makes just this cell."""
        call = ["kgem", "reproduce", "table1", "--data", cell.data, "--model", cell.model, "--dim", str(cell.dim)]
        call += ["--variants", cell.variant, "--seeds", str(cell.seed)]
        if cell.variant == "search":
            call += ["--trials", str(cell.trials), "--strengths", *(f"{bound:g}" for bound in self.strengths)]
        return shlex.join([*call, *self._words])


def settings_words(command: str, without: Collection[str] = ()) -> list[str]:
    """Of the command of a cell, what does not say which cell it is: --recipe, --set, --threads and the like."""
    kept: list[str] = []
    option = ""
    for word in shlex.split(command)[3:]:
        option = word if word.startswith("--") else option
        if option not in OF_A_CELL and option not in without:
            kept.append(word)
    return kept


def wanted_cells(
    data: Sequence[str] | None,
    model: Sequence[str] | None,
    dim: Sequence[str] | None,
    seeds: Sequence[str] | None,
    variants: Sequence[str] | None,
    trials: int,
) -> list[Cell]:
    from evidence.cells import PAPER_GRAPHS, VARIANTS, cells

    models = words(model) or ["complex", "distmult"]
    dims = _numbers("--dim", words(dim) or ["100"], least=1)
    if len(dims) not in (1, len(models)):
        what = f"{len(dims)} dimensions for {len(models)} models"
        raise ConfigError(what, where="--dim", remedy="give one for all models, or one for each")
    pairs = list(zip(models, dims * len(models) if len(dims) == 1 else dims, strict=True))
    chosen = _numbers("--seeds", words(seeds) or ["0"], least=0)
    return cells(graphs(data) or PAPER_GRAPHS, pairs, words(variants) or VARIANTS, chosen, trials)


def words(given: Sequence[str] | None) -> list[str]:
    """A list as people write it: repeated, with commas, or with spaces."""
    return [word for text in given or [] for word in text.replace(",", " ").split()]


def graphs(given: Sequence[str] | None, known: Collection[str] = ()) -> list[str]:
    """A list of graphs likewise; but what is there as a path, or is known by its name, is one graph as it stands."""
    from evidence.cells import graph_name

    def whole(text: str) -> bool:
        return bool(text.strip()) and (Path(text).exists() or graph_name(text) in known)

    return [word for text in given or [] for word in ([text] if whole(text) else words([text]))]


def _numbers(where: str, given: Sequence[str], least: int) -> list[int]:
    for word in given:
        if not word.isdecimal() or int(word) < least:
            remedy = f"give whole numbers from {least} on"
            raise ConfigError(f"{word!r} is not such a number", where=where, remedy=remedy)
    return [int(word) for word in given]


def make_cells(
    wanted: Sequence[Cell], given: Given, out: Path, results: Path, *, force: bool, quiet: bool
) -> list[Cell]:
    """Make the cells that are not there, visibly; those whose fit failed."""
    from evidence.documents import write_json
    from evidence.origin import versions

    versions()  # as of now, and not of when a long command ends
    loaded = _loaded(wanted, given.base, quiet)
    base = set_threads(given.base)
    plan = _Plan(wanted, loaded, results, base, given.strengths)
    for cell in wanted:
        if force:
            _discard(cell, out, results)
        else:
            plan.found(cell)  # what cannot be kept nor gone on with shows at once
    goes_on = f"go on: give the same command again{' without --force' if force else ''}"
    failed: list[Cell] = []
    for cell in wanted:
        if plan.kept(cell):
            continue
        if not quiet:
            say(plan.line(cell))
        try:
            with _maker(base, given, out, goes_on, quiet=quiet) as maker:
                document = maker.make(cell, loaded[cell.data], given.command(cell))
        except FitError as error:
            failed.append(cell)
            say(f"{cell.title} failed: {plain(error.message)}")
            continue
        write_json(results / f"{cell.name}.json", document)
        plan.done(cell, document)
    return failed


def _discard(cell: Cell, out: Path, results: Path) -> None:
    """All of them before the first is made anew, so that a stopped command can go on as any other does."""
    from evidence.making import discard_cell

    discard_cell(cell, out)
    (results / f"{cell.name}.json").unlink(missing_ok=True)


@contextmanager
def _maker(base: Config, given: Given, out: Path, goes_on: str, *, quiet: bool) -> Iterator[Maker]:
    """Makes cells while the terminal shows it."""
    from evidence.making import Maker

    def carry_on(run: Run) -> Model:
        set_threads(run.config, given.threads)
        return train(run, quiet=quiet, plan=False, goes_on=goes_on)

    with ranking(quiet=quiet) as measuring:
        yield Maker(
            base=base,
            out=out,
            carry_on=carry_on,
            tell=lambda text: None if quiet else say(plain(text)),
            warn=lambda text: say(plain(text)),
            measuring=measuring,
            strengths=given.strengths,
        )


@contextmanager
def ranking(*, quiet: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """What hears of work and how far it is, and shows it; its bar is there from the first time on."""
    bars: list[Progress] = []

    def heard(what: str, done: int, total: int) -> None:
        if not bars and not quiet:
            bars.append(Progress(what).__enter__())
        for bar in bars:
            bar.label, bar.done, bar.total = what, done, total

    try:
        yield heard
    finally:
        for bar in bars:
            bar.__exit__(None, None, None)


def _loaded(wanted: Sequence[Cell], base: Config, quiet: bool) -> dict[str, Prepared]:
    """All graphs, before anything long begins: a name that is wrong shows at once, and so does a model."""
    loaded = {cell.data: reading.load(cell.data, reading.ReadOptions(), quiet=quiet) for cell in wanted}
    with Progress("preparing"):
        from kgem.runs.fitting import prepare

        prepared = {name: prepare(data, SPLIT_SEED) for name, data in loaded.items()}
        for cell in wanted:
            cell.settings(base)
    for name, graph in prepared.items():
        for split in ("valid", "test"):
            if not len(graph.data.split(split)):
                remedy = "give a graph that has both, or one without any split"
                raise InputError(f"{plain(name)} has no facts in {split}", remedy=remedy)
    return prepared


class _Plan:
    """Which cells are there, and how long the others will take."""

    def __init__(
        self,
        wanted: Sequence[Cell],
        loaded: dict[str, Prepared],
        results: Path,
        base: Config,
        strengths: tuple[float, float],
    ) -> None:
        self._wanted, self._graphs, self._results = wanted, loaded, results
        self._base, self._strengths = base, strengths
        self._seconds: dict[Cell, float] = {}  # of cells that are done

    def found(self, cell: Cell) -> tuple[dict[str, Any], list[str]] | None:
        """The cell if it is there, and which of its settings are others now; None if there is something to make."""
        from evidence.cells import changed_settings, read_cell

        path = self._results / f"{cell.name}.json"
        if not path.exists():
            return None
        document = read_cell(path)
        if document["facts"]["hash"] != self._graphs[cell.data].data.content_hash:
            remedy = "give another --results, or make it anew: --force"
            raise InputError("is of another graph or split", where=str(path), remedy=remedy)
        changed = changed_settings(document, cell, self._base, self._strengths)
        if cell.variant != "search" or len(document["trials"]) >= cell.trials:
            return document, changed
        if changed:
            what = f"this search cannot be made longer: other settings made it ({', '.join(changed)})"
            remedy = f"give those that it had ({document['command']}), or make it anew: --force"
            raise InputError(what, where=str(path), remedy=remedy)
        return None

    def kept(self, cell: Cell) -> bool:
        """Whether the cell is there; told if it was made with other settings."""
        found = self.found(cell)
        if found is None:
            return False
        document, changed = found
        if changed:
            say(paragraph(f"{cell.name} is kept, but other settings made it ({', '.join(changed)}); anew: --force"))
        self.done(cell, document)
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
        """Seconds on no machine in particular: the steps and products of an epoch, times the number of trainings."""
        data = self._graphs[cell.data].data
        queries, width = len(data.query_index.heads), cell.dim * (2 if cell.model == "complex" else 1)
        epoch = STEP * min(250, queries / 64) + 6 * queries * data.n_entities * width / SPEED
        return epoch * WORK.get(cell.variant, cell.trials)
