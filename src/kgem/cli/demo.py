"""`kgem demo`: the graph that comes with kgem through all phases, and questions whose answers can be checked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kgem.cli.arguments import Force, Quiet
from kgem.cli.console import emit, heading, paragraph, plain, say, table
from kgem.cli.progress import Progress, duration
from kgem.cli.training import result_tables, train
from kgem.report.formatting import answer_ranges, percent

if TYPE_CHECKING:
    from kgem.answer.model import Model
    from kgem.answer.predict import Answer
    from kgem.data.dataset import Dataset

GRAPH, ORIGIN = "world", "demo"
SETTINGS = {"model.dim": 50, "run.threads": 1}  # so small a graph gains nothing from more
FOLDER = Path("demo-run")
# Questions (head, relation, ?): what to call them. Which head is asked about follows from the test split.
QUESTIONS = {
    "borders": "{} borders ...",
    "official language": "An official language of {} is ...",
    "uses currency": "{} uses the currency ...",
    "member of": "{} is a member of ...",
    "written in": "{} is written in ...",
}
SHOWN = 3  # answers to each question
EXTREMES = 4  # symbols at either end of the strengths


def demo(
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="The run folder; an older demo in it is replaced.")
    ] = FOLDER,
    quiet: Quiet = False,
    force: Force = False,
) -> None:
    """Fit the graph of the world's countries that comes with kgem, and ask about facts kept from training."""
    with Progress("starting"):
        from kgem.runs.configure import configure
        from kgem.runs.fitting import prepare
        from kgem.runs.run import Run, check_free, find_origin
        from kgem.train.machine import settle

        check_free(out, force or find_origin(out) == ORIGIN)
        prepared = prepare(GRAPH)
        config = settle(prepared.data, configure(None, SETTINGS))
        run = Run.create(out, prepared, config, force=True, origin=ORIGIN)
    with run:
        model = train(run, quiet=quiet)
    emit(*result_tables(model))
    _show_answers(model)
    _show_strengths(model)
    with Progress("writing the report"):
        from kgem.report.report import write_report

        report = write_report(out, model=model)
    say("", f"done in {duration(model.provenance['seconds'])}; report: {plain(report)}")
    say(f"ask more: kgem predict {plain(out)} --head France --relation borders")


def _show_answers(model: Model) -> None:
    """For each kind of question the one of test with the fewest answers known, about what is known best otherwise."""
    emit(heading("What the model makes of facts that were kept from training"))
    rows = [row for relation, words in QUESTIONS.items() for row in _answers(model, relation, words)]
    emit(table(["question", "answer", "is it so?", "probability", "90 % range"], rows, left=3))
    emit(
        paragraph(
            "Answers that train has are left out. The probability is that of the answer given that there is one; "
            "the range is what nine of ten samples of the posterior give."
        )
    )


def _answers(model: Model, relation: str, words: str) -> list[tuple[Any, ...]]:
    head = _asked_about(model.data, relation)
    if head is None:
        return []
    found = [answer for answer in model.predict(head, relation, top=100) if answer.known in (None, "test")]
    asked = [words.format(head), *[""] * (SHOWN - 1)]
    return [(text, *_describe(answer)) for text, answer in zip(asked, found, strict=False)]


def _asked_about(data: Dataset, relation: str) -> str | None:
    number = data.relations.id(relation)
    heads, known = (facts[facts[:, 1] == number, 0] for facts in (data.test, data.train))
    if not len(heads):
        return None
    answers = (known == heads[:, None]).sum(axis=1)  # (questions,)
    first = min(range(len(heads)), key=lambda i: (answers[i], -data.entity_counts[heads[i]]))
    return data.entities[int(heads[first])]


def _describe(answer: Answer) -> tuple[str, str, str, str]:
    truth = "yes (in test)" if answer.known == "test" else "unknown"
    return answer.label, truth, percent(answer.probability), answer_ranges(answer)[0]


def _show_strengths(model: Model) -> None:
    """The symbols with the largest and the smallest learned strengths, of those that train has."""
    counts = model.data.entity_counts
    lam = model.strengths.entities
    order = [i for i in lam.array.argsort().tolist() if counts[i]]
    least, most = order[:EXTREMES], order[-EXTREMES:][::-1]
    emit(heading("Strengths that the model learned: the least and the most regularised entities"))
    rows = [(model.data.entities[i], f"{lam.array[i]:.3g}", int(counts[i])) for i in (*least, *most)]
    emit(table(["entity", "strength", "facts in train"], rows))
