"""`kgem predict`: answers to questions, and the most probable missing facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kgem.cli.arguments import AsCsv, AsJson, Device, Figure, Force, Mode, Out, RunFolder
from kgem.cli.console import emit, heading, paragraph, say, table
from kgem.cli.destination import Destination, refuse_figure, save_figure
from kgem.cli.naming import add_names, name_answers, name_columns
from kgem.cli.opening import open_model
from kgem.cli.progress import Progress
from kgem.errors import ConfigError, TriplesError
from kgem.report.formatting import answer_ranges, percent
from kgem.settings import parse_duration

if TYPE_CHECKING:
    from kgem.answer.missing import ScoredFact
    from kgem.answer.model import Model
    from kgem.answer.predict import Prediction, Query

TOP, TOP_OF_ALL = 10, 1000
FACT = ("head", "relation", "tail")
ANSWERS = (*FACT, "asked", "place", "probability", "low", "high", "rank_low", "rank_high", "frequency", "known")
FACTS = (*FACT, "probability", "share", "side", "known", "chance", "against", "like")


def predict(
    run: RunFolder,
    head: Annotated[str | None, typer.Option(help="Its label or name.")] = None,
    relation: Annotated[str | None, typer.Option(help="Its label or name.")] = None,
    tail: Annotated[str | None, typer.Option(help="Its label or name.")] = None,
    queries: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Many questions: head, relation, tail per line, separated by tabs, what is asked empty or ?.",
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="The most probable facts that the graph lacks; --relation narrows it to one.")
    ] = False,
    all_values: Annotated[
        bool,
        typer.Option(
            "--all-values",
            help="With --all, also what breaks a rule of the graph: a second value, a role never seen.",
        ),
    ] = False,
    about: Annotated[
        list[str] | None, typer.Option(metavar="ENTITY", help="With --all, only about this one; may be repeated.")
    ] = None,
    time_budget: Annotated[
        str | None, typer.Option(metavar="TIME", help="With --all: ask no further questions after 90s, 20m, 1h30m.")
    ] = None,
    top: Annotated[int | None, typer.Option(min=1, help=f"How many to list; {TOP}, with --all {TOP_OF_ALL:,}.")] = None,
    new_only: Annotated[bool, typer.Option("--new-only", help="Leave out what the graph has already.")] = False,
    figure: Figure = None,
    mode: Mode = "auto",
    device: Device = "cpu",
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    out: Out = None,
    force: Force = False,
) -> None:
    """Answer questions: give two of head, relation and tail, and the third is predicted.

    The probability is calibrated on validation facts. It says which answer, given that there is one; not whether there
    is one. The ranges say how far nine of ten samples of the model's posterior move the probability and the rank. An
    entity is no answer to a question about itself unless training often has the relation so.
    """
    _check_question(head, relation, tail, queries, everything)
    destination = Destination(as_json, as_csv, out, force)
    refuse_figure(figure, force)
    if everything and figure is not None:
        raise ConfigError("--all has no figure", remedy="draw answers to questions: --head ... --relation ...")
    if everything:
        seconds = None if time_budget is None else parse_duration(time_budget)
        narrowed = {"relations": None if relation is None else [relation], "about": about or None}
        limits = narrowed | {"all_values": all_values, "seconds": seconds}
        _predict_all(open_model(run, device), top or TOP_OF_ALL, mode, limits, destination)
        return
    if all_values:
        raise ConfigError("--all-values goes with --all", remedy="leave it out: answers to a question are all listed")
    if about or time_budget is not None:
        raise ConfigError(f"{'--about' if about else '--time-budget'} goes with --all", remedy="add --all")
    asked = [_make_query(head, relation, tail)] if queries is None else _read_queries(queries)
    model = open_model(run, device)
    with Progress("predicting"):
        predictions = model.predict_many(asked, top=top or TOP, new_only=new_only, mode=mode)
    if figure is not None:
        from kgem.report.figures.answers import answers_figure

        save_figure(answers_figure(predictions), figure)
    if not destination.is_table:
        names = model.data.names
        documents = [name_answers(prediction.to_dict(), names) for prediction in predictions]
        rows = [add_names(row, names) for prediction in predictions for row in _list_rows(prediction)]
        destination.write(documents[0] if queries is None else documents, rows, name_columns(ANSWERS, names))
        return
    for place, prediction in enumerate(predictions):
        given = model.data.show([label or "" for label in prediction.query])
        question = " · ".join(shown or "?" for shown in given)
        shown = _tabulate_answers(model, prediction) if prediction else "no answer"
        emit(heading(question, space=place > 0), shown)
    for meaning in dict.fromkeys(prediction.meaning for prediction in predictions):
        say(paragraph(f"probability: {meaning}"))
    say(paragraph(_explain_probability(model, mode)))


def _check_question(
    head: str | None, relation: str | None, tail: str | None, queries: Path | None, everything: bool
) -> None:
    """An error unless there is just one way in which something is asked."""
    given = [
        name for name, label in {"--head": head, "--relation": relation, "--tail": tail}.items() if label is not None
    ]
    remedy = "two of --head, --relation and --tail; or --queries FILE; or --all"
    if queries is not None and everything:
        raise ConfigError("--queries and --all exclude each other", remedy=remedy)
    if queries is not None and given:
        raise ConfigError(f"--queries and {given[0]} exclude each other", remedy=remedy)
    if everything and set(given) - {"--relation"}:
        raise ConfigError(f"--all and {given[0]} exclude each other", remedy="with --all only --relation, or nothing")
    if queries is None and not everything and len(given) == 3:
        raise ConfigError("this is a whole fact, not a question", remedy="leave one out; is it true? says kgem judge")
    if queries is None and not everything and len(given) != 2:
        raise ConfigError(f"a question has two of three, not {', '.join(given) or 'none'}", remedy=f"give {remedy}")


def _make_query(*labels: str | None) -> Query:
    from kgem.answer.predict import Query

    return Query(*labels)


def _read_queries(path: Path) -> list[Query]:
    """The questions in a file, one per line."""
    from kgem.data.streams import Source

    with Source.of(path).open() as file:
        try:
            lines = file.read().decode("utf-8-sig").split("\n")  # as facts: other ends of lines belong to labels
        except UnicodeDecodeError as error:
            raise TriplesError("is not text in UTF-8", where=str(path), remedy="save it as UTF-8") from error
    found = []
    for number, line in enumerate(lines, 1):
        row = line.removesuffix("\r")
        if not row.strip():
            continue
        fields = [None if field in ("", "?") else field for field in row.split("\t")]
        if len(fields) != 3 or fields.count(None) != 1:
            raise TriplesError(
                "is not a question: head, relation and tail separated by tabs, just one of them empty or ?",
                where=f"{path}:{number}",
                remedy="as in: France<TAB>borders<TAB>?",
            )
        found.append(_make_query(*fields))
    if not found:
        raise TriplesError("has no questions in it", where=str(path), remedy="write one per line")
    return found


def _list_rows(prediction: Prediction) -> Iterator[dict[str, Any]]:
    """Each answer with the fact that it makes of the question."""
    for place, answer in enumerate(prediction, 1):
        fact = {**prediction.query._asdict(), prediction.asked: answer.label}
        yield {**fact, "asked": prediction.asked, "place": place, **asdict(answer)}


def _tabulate_answers(model: Model, prediction: Prediction) -> Any:
    show = (model.data.relations if prediction.asked == "relation" else model.data.entities).show
    columns = ["", prediction.asked, "known", "probability", "90 % range", "rank", "facts"]
    rows = [
        (f"{i}", show(each.label), each.known or "", percent(each.probability), *answer_ranges(each), each.frequency)
        for i, each in enumerate(prediction, 1)
    ]
    return table(columns, rows, left=3)


def _explain_probability(model: Model, mode: str) -> str:
    """How the probabilities came about."""
    chosen = model.resolve(mode)
    if not model.temperatures:
        return f"mode {chosen}; not calibrated: the graph had no validation facts"
    return f"mode {chosen}; calibrated on validation facts (temperature {model.temperature(chosen).common:.2f})"


def _predict_all(model: Model, top: int, mode: str, limits: Mapping[str, Any], destination: Destination) -> None:
    with Progress("looking for missing facts") as progress:
        facts = model.missing_facts(top, mode=mode, progress=progress.count, **limits)
    if progress.total is not None and progress.done < progress.total:
        say(f"asked {progress.done:,.0f} of {progress.total:,.0f} questions, in random order: the time was over")
    if not destination.is_table:
        names = model.data.names
        documents = [add_names(fact.to_dict(), names) for fact in facts]
        rows = [{**each, "against": "; ".join(each["against"]), "like": _join(each["like"])} for each in documents]
        destination.write(documents, rows, name_columns(FACTS, names))
        return
    ranker = model.mode_scorer(mode).ranker
    emit(heading(f"{len(facts):,} facts that {model.data.name} may lack", space=False))
    emit(_tabulate_facts(model, facts))
    if ranker is not None:
        say(
            paragraph(
                "its kind: of candidates like this one, how many were among the "
                f"{ranker.hidden:,} facts hidden from training. Those are not listed: what remains of a kind is right "
                "as often where the graph lacks as much as was hidden, and less often where it is nearly complete. "
                "like: the known fact that is nearest to it"
            )
        )
    else:
        say(paragraph("share: as good as the known answers of the same question from about 1 on"))
        say(paragraph(_explain_probability(model, mode)))


def _join(facts: Sequence[Sequence[str]]) -> str:
    return "; ".join(" ".join(fact) for fact in facts)


def _tabulate_facts(model: Model, facts: Sequence[ScoredFact]) -> Any:
    learned = any(each.chance is not None for each in facts)
    marked = any(each.against for each in facts)
    columns = [
        "",
        "head",
        "relation",
        "tail",
        "like",
        *(["against"] if marked else []),
        "its kind" if learned else "share",
    ]
    rows = [
        (
            f"{i}",
            *model.data.show((each.head, each.relation, each.tail)),
            _join([tuple(map(model.data.names.call, like)) for like in each.like[:1]]),
            *(["; ".join(each.against)] if marked else []),
            f"{each.share or 0:.2f}" if each.chance is None else percent(each.chance),
        )
        for i, each in enumerate(facts, 1)
    ]
    return table(columns, rows, left=len(columns) - 1)
