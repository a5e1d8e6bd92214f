"""`kgem judge`: is this fact true? For one fact, a file of them, or the facts that the graph itself has."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kgem.cli.arguments import AsCsv, AsJson, Device, Force, Mode, Out, RunFolder
from kgem.cli.console import emit, heading, paragraph, say, table
from kgem.cli.destination import Destination
from kgem.cli.naming import add_names, name_columns
from kgem.cli.opening import open_model
from kgem.cli.progress import Progress
from kgem.cli.reading import ReadOptions, read_frames, with_options
from kgem.errors import ConfigError
from kgem.report.formatting import percent, pluralise

if TYPE_CHECKING:
    import polars as pl

    from kgem.answer.judge import Judgement
    from kgem.answer.model import Model

SHOWN = 50  # facts in a table for people, and half as many notes
COLUMNS = (
    *("head", "relation", "tail", "chance", "low", "high", "rank_tail", "rank_head"),
    *("known", "against", "note"),
)
REMEDY = "a file of facts, or all of --head, --relation and --tail, or --graph"


@with_options
def judge(
    run: RunFolder,
    facts: Annotated[
        str | None,
        typer.Argument(metavar="FACTS", help="A file of facts in any format that a graph may have, or - for stdin."),
    ] = None,
    head: Annotated[str | None, typer.Option(help="Of a single fact: its label or name.")] = None,
    relation: Annotated[str | None, typer.Option(help="Its label or name.")] = None,
    tail: Annotated[str | None, typer.Option(help="Its label or name.")] = None,
    negatives: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Facts that are known to be wrong: the judge learns from them, for this call."
        ),
    ] = None,
    graph: Annotated[
        bool,
        typer.Option(
            "--graph", help="The training facts themselves, each judged by a short fit without it: finds mistakes."
        ),
    ] = False,
    worst: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only the N least credible facts, least first.")
    ] = None,
    ranges: Annotated[
        bool, typer.Option("--ranges", help="Also the range of the chance over samples of the posterior: slower.")
    ] = False,
    mode: Mode = "auto",
    device: Device = "cpu",
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    out: Out = None,
    force: Force = False,
    *,
    how: ReadOptions,
) -> None:
    """Judge facts: how credible each is, its rank from both sides, and what speaks against it.

    The chance is that the fact is right rather than a plausible mistake: 50 % is as much like validation facts as like
    wrong ones. The judge has learned from wrong facts that it made itself (high answers of the model that the graph
    lacks, and entities of the right role); with wrong facts of yours (--negatives) it is better. Facts stay in their
    order unless --worst asks for the least credible; --graph --worst 100 lists facts of the graph that look like
    mistakes. A fact with a label that the graph does not have is not judged,
    and listed with what may have been meant.
    """
    single = _check_asked(facts, head, relation, tail, graph)
    destination = Destination(as_json, as_csv, out, force)
    if graph and (negatives is not None or ranges):
        raise ConfigError("--graph goes with neither --negatives nor --ranges", remedy="leave them out")
    asked: Sequence[Sequence[str]] = [single] if single else [] if graph else _Rows(_read(str(facts), how))
    wrong = None if negatives is None else _Rows(_read(negatives, how))
    model = open_model(run, device)
    if single:
        asked = [single := _find_labels(model, *single)]
    tally = _Tally()
    chances = _judge_training(model) if graph else None
    if chances is not None:
        asked = _Rows(model.data.frame("train"))
    with Progress(f"judging {pluralise(len(asked), 'fact')}") as progress:
        detailed = ranges or single is not None
        judged: Iterator[Judgement] = model.judge(asked, mode, wrong, uncertainty=detailed, progress=progress.count)
        if chances is not None:
            judged = (replace(each, chance=chance) for each, chance in zip(judged, chances, strict=True))
        counted = tally.count(judged)
        if worst is not None:
            counted = iter(heapq.nsmallest(worst, counted, key=_least_first))
        if not destination.is_table:
            names = model.data.names
            rows = (add_names(_to_row(judgement, as_text=destination.is_flat), names) for judgement in counted)
            destination.write_rows(rows, name_columns(COLUMNS, names))
        else:
            shown = _keep_first(counted)
    if destination.is_table:
        if single is not None:
            _show_one(model, shown[0])
        else:
            _show_many(model, shown, tally.all if worst is None else worst)
    tally.tell(worst)


def _judge_training(model: Model) -> list[float]:
    from kgem.runs.cross_fit import judge_training

    with Progress("fitting without some of the facts") as progress:
        return list(map(float, judge_training(model, progress.count)))


def _check_asked(
    facts: str | None, head: str | None, relation: str | None, tail: str | None, graph: bool
) -> tuple[str, str, str] | None:
    """The single fact that is given, if there is one; an error unless just one thing is to be judged."""
    labels = (head, relation, tail)
    if graph:
        if facts is not None or any(label is not None for label in labels):
            raise ConfigError("--graph judges the facts of the graph, and no others", remedy=f"or give {REMEDY}")
        return None
    if facts is not None:
        if any(label is not None for label in labels):
            raise ConfigError("a file and --head, --relation, --tail exclude each other", remedy=f"give {REMEDY}")
        return None
    if head is None or relation is None or tail is None:
        raise ConfigError("there is no fact to judge", remedy=f"give {REMEDY}")
    return head, relation, tail


def _find_labels(model: Model, *fact: str) -> tuple[str, str, str]:
    """The labels of a fact that may be given by names; an error with suggestions if one of them is unknown."""
    from kgem.answer.labels import entity_id, relation_id

    data, (head, relation, tail) = model.data, fact
    return data.label([entity_id(data, head), relation_id(data, relation), entity_id(data, tail)])


def _read(source: str, how: ReadOptions) -> pl.DataFrame:
    import polars as pl

    return pl.concat([frame.select("head", "relation", "tail") for frame in read_frames(source, how).values()])


class _Rows(Sequence[Sequence[str]]):
    """The rows of a frame, made while they are asked for."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    def __len__(self) -> int:
        return len(self._frame)

    def __getitem__(self, place: Any) -> Any:
        return self._frame.row(place)

    def __iter__(self) -> Iterator[Sequence[str]]:
        return self._frame.iter_rows()


class _Tally:
    """What became of all facts, also of those that are not listed."""

    def __init__(self) -> None:
        self.all = self.credible = self.unknown = 0
        self.notes: list[Judgement] = []  # the first that could not be judged

    def count(self, judged: Iterator[Judgement]) -> Iterator[Judgement]:
        for judgement in judged:
            self.all += 1
            if judgement.chance is None:
                self.unknown += 1
                if len(self.notes) < SHOWN // 2:
                    self.notes.append(judgement)
            else:
                self.credible += judgement.chance >= 0.5
            yield judgement

    def tell(self, worst: int | None) -> None:
        """How many there were, and which could not be judged."""
        judged = self.all - self.unknown
        say(f"{pluralise(judged, 'fact')} judged: {self.credible:,} at 50 % or more, {judged - self.credible:,} below")
        if self.unknown:
            say(f"{pluralise(self.unknown, 'fact')} not judged, for a label that the graph does not have:")
            for each in self.notes:
                say(paragraph(f"  {each.head} · {each.relation} · {each.tail}: {each.note}"))
            if self.unknown > len(self.notes):
                more = f"  and {self.unknown - len(self.notes):,} more"
                say(more if worst is not None else f"{more}: their column 'note' has the reason (--out, --csv, --json)")


def _least_first(judgement: Judgement) -> float:
    """What could not be judged comes last."""
    return 2.0 if judgement.chance is None else judgement.chance


def _keep_first(judged: Iterator[Judgement]) -> list[Judgement]:
    """The first ones, for a table; the rest is judged and counted."""
    return [each for place, each in enumerate(judged) if place < SHOWN]


def _to_row(judgement: Judgement, *, as_text: bool) -> dict[str, Any]:
    row = judgement.to_dict()
    return {**row, "against": "; ".join(judgement.against)} if as_text else row


def _show_many(model: Model, shown: Sequence[Judgement], wanted: int) -> None:
    emit(heading(f"Facts judged by {model.data.name}", space=False))
    rows = [
        (
            *model.data.show((each.head, each.relation, each.tail)),
            *(each.known or "", each.against[0] if each.against else ""),
            "" if each.chance is None else percent(each.chance),
            "" if each.rank_tail is None else each.rank_tail,
            "" if each.rank_head is None else each.rank_head,
        )
        for each in shown
    ]
    emit(table(["head", "relation", "tail", "known", "against", "chance", "tail's rank", "head's rank"], rows, left=5))
    if len(shown) == SHOWN < wanted:
        emit(f"{SHOWN:,} are shown: --out, --csv and --json have all that were asked for")


def _show_one(model: Model, judgement: Judgement) -> None:
    fact = model.data.show((judgement.head, judgement.relation, judgement.tail))
    emit(heading(" · ".join(fact), space=False))
    assert judgement.chance is not None  # labels were checked
    spread = (
        "" if judgement.low is None else f"  (90 % range {percent(judgement.low)} to {percent(judgement.high or 0)})"
    )
    emit(f"chance       {percent(judgement.chance)}{spread}")
    emit(f"tail's rank  {judgement.rank_tail:,} among answers that are not known")
    emit(f"head's rank  {judgement.rank_head:,}")
    emit(f"in the graph {judgement.known or 'no'}")
    for sentence in judgement.against:
        emit(f"against it:  {sentence}")
