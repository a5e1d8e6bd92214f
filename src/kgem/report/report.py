"""One run as one HTML page: the graph, how it learned, how good it is, what it trusts, and how to repeat it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from kgem.answer.missing import ScoredFact
from kgem.answer.model import Model, load
from kgem.answer.proposals import is_large
from kgem.data.streams import write_to
from kgem.errors import InputError
from kgem.evaluate.frequency import FrequencyScorer
from kgem.evaluate.metrics import summarise
from kgem.evaluate.ranking import rank
from kgem.evaluate.validation import affordable_questions, pick_facts
from kgem.report import sections
from kgem.report.calibration import ENOUGH_FACTS, measure_calibration
from kgem.report.examples import draw_examples
from kgem.report.history import RunHistory, find_run, read_history
from kgem.report.html import Section, assemble_page, esc
from kgem.report.naming import name_evaluation, name_examples, name_facts
from kgem.report.reasons import Labels, find_reasons

PATIENCE = 120.0  # seconds for proposals where to ask all questions would take hours


def write_report(
    folder: str | Path,
    target: Path | None = None,
    mode: str = "auto",
    *,
    model: Model | None = None,
    step: Callable[[str], None] | None = None,
) -> Path:
    """Write the page on a run, whole or not at all, and return where it is; an older one is replaced.

    `model` is the run's if it is loaded already; `step` hears what is being worked on.
    """
    run = Path(folder)
    path = target or default_target(run)
    content = render_report(model or load(run), read_history(run), mode, step=step)
    with write_to(path) as file:
        file.write(content.encode())
    return path


def render_report(
    model: Model, history: RunHistory | None = None, mode: str = "auto", *, step: Callable[[str], None] | None = None
) -> str:
    """The page, self-contained: no script, nothing loaded from anywhere."""
    history, tell = history or RunHistory(), step or (lambda _: None)
    chosen = model.resolve(mode)
    split = next((name for name in ("test", "valid", "train") if len(model.data.split(name))), "train")
    tell("ranking")
    most = affordable_questions(model.data.n_entities)
    evaluation = name_evaluation(model.data, model.evaluate(split, chosen, most=most))
    tell("calibration")
    calibration = measure_calibration(model, split, chosen, most=ENOUGH_FACTS)
    tell("predictions")
    drawn = list(draw_examples(model, split, chosen))
    tell("proposals")
    seconds = PATIENCE if is_large(model.data) else None
    proposed = model.missing_facts(sections.PROPOSALS, mode=chosen, seconds=seconds)
    why = find_reasons(model, (*list_proposals(proposed), *(fact for each in drawn for fact in each.facts)), chosen)
    examples, proposals = name_examples(model.data, drawn), name_facts(model.data, proposed)
    asked = pick_facts(model.data.reciprocal(model.data.split(split)), most, model.config.seed)
    frequent = rank(FrequencyScorer(model.data), asked, model.data.filter_index)
    baseline = summarise(frequent.of("pessimistic"))
    tell("figures")
    parts = [
        Section(
            "proposals",
            "Proposals",
            "What the graph may lack",
            sections.render_proposals(model, proposals, [why[fact] for fact in list_proposals(proposed)], chosen),
        ),
        Section(
            "quality", "Quality", "How good it is", sections.render_quality(model, evaluation, baseline, split, chosen)
        ),
        Section(
            "predictions",
            "Predictions",
            "What it predicts",
            sections.render_predictions(examples, [[why[fact] for fact in each.facts] for each in drawn], split),
        ),
        Section(
            "calibration",
            "Calibration",
            "How far to trust the probabilities",
            sections.render_calibration(calibration, chosen, split),
        ),
        Section("strengths", "Strengths", "What the regularisers learned", sections.render_strengths(model)),
        Section("learning", "Learning", "How it learned", sections.render_learning(model, history)),
        Section("graph", "Graph", "The graph", sections.render_graph(model)),
        Section("repeat", "Repeat", "How to repeat it", sections.render_repetition(model, history)),
    ]
    settings = model.config.model
    lead = (
        f"{esc(settings.score)} embeddings in {settings.dim} dimensions, {len(model.data.train):,} training facts, "
        f"answers from mode <b>{chosen}</b>"
    )
    kgem = (history.versions or {}).get("kgem", "")
    footer = (
        f"Made by kgem {esc(kgem)}. This page loads nothing and runs no scripts: it can be kept, mailed and printed."
    )
    headline = sections.render_unfinished(model)
    headline += sections.render_verdict(evaluation, baseline.mrr, proposals, split)
    headline += sections.render_headline(model, evaluation, calibration, baseline.mrr, split)
    return assemble_page(model.data.name, lead, headline, parts, footer)


def list_proposals(proposed: Sequence[ScoredFact]) -> list[Labels]:
    """The facts themselves, by label."""
    return [(fact.head, fact.relation, fact.tail) for fact in proposed]


def default_target(folder: Path) -> Path:
    """report.html in a run folder; beside a model that stands alone."""
    run = find_run(folder)
    return folder.with_name(f"{folder.name}-report.html") if run is None else run / "report.html"


def check_target(target: Path) -> None:
    """A page has the extension of one."""
    if target.suffix.lower() not in (".html", ".htm"):
        raise InputError("a report is an HTML page", where=str(target), remedy="name a file that ends in .html")
