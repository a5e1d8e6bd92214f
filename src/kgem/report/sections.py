"""The sections of a report on a run, each a function to HTML."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from kgem.answer.missing import ScoredFact
from kgem.answer.model import Model
from kgem.answer.modes import MODES
from kgem.answer.predict import MEANING, Answer
from kgem.answer.unfinished import describe_missing
from kgem.data.catalog import CATALOG
from kgem.data.dataset import SPLITS
from kgem.evaluate.calibration import Calibration
from kgem.evaluate.metrics import Evaluation, Metrics
from kgem.evaluate.strength_laws import fit_strengths
from kgem.report import figures
from kgem.report.examples import Example
from kgem.report.figures.drawing import rough_duration
from kgem.report.formatting import METRICS, answer_ranges, metric_cells, percent, pluralise
from kgem.report.history import RunHistory
from kgem.report.html import bar, breakable, card, details, esc, note, pair, picture, preformatted, table, tag, tiles
from kgem.report.reasons import Reasons, render_reasons
from kgem.settings import to_toml

RELATIONS = 25  # in the table of relations
SYMBOLS = 8  # most and least regularised
PROPOSALS = 10
VERDICTS = (  # by how much its MRR is above that of frequencies alone
    (0.2, "It has learned this graph well."),
    (0.05, "It has learned more than frequencies."),
    (-math.inf, "It has learned hardly more than frequencies."),
)


def render_verdict(evaluation: Evaluation, baseline: float, proposals: Sequence[ScoredFact], split: str) -> str:
    """What the figures come to, in words."""
    overall = evaluation.overall
    better = overall.mrr - baseline
    how = next(words for least, words in VERDICTS if better >= least)
    parts = [
        f"<b>{how}</b> Of {_name_questions(evaluation)} about {split} facts the right answer comes first in "
        f"{overall.hits_at_1:.0%} "
        f"and among the first ten in {overall.hits_at_10:.0%}; MRR {overall.mrr:.3f}, where the most frequent answers "
        f"to a relation have {baseline:.3f}."
    ]
    chances = [fact.chance for fact in proposals if fact.chance is not None]
    if chances:
        good = sum(chance >= 0.5 for chance in chances)
        parts.append(
            f"Of the {len(chances)} facts that it proposes first, {good} are of a kind of which at least half were "
            "among the facts hidden from training."
        )
    return f'<p class="verdict-line">{" ".join(parts)}</p>'


def _name_questions(evaluation: Evaluation) -> str:
    return evaluation.questions if evaluation.is_sample else "all questions"


def render_unfinished(model: Model) -> str:
    """Of a fit that was ended early: that it was."""
    if not model.unfinished:
        return ""
    missing = describe_missing(model)
    return f'<p class="verdict-line"><b>Unfinished.</b> {esc(missing[0].upper() + missing[1:])}.</p>'


def render_proposals(model: Model, proposals: Sequence[ScoredFact], why: Sequence[Reasons], mode: str) -> str:
    """Facts that the graph may lack, why, and how often such proposals were right."""
    ranker = model.mode_scorer(mode).ranker
    about = (
        "Facts that no split has, in the order of how probable they are beside the known answers of their question."
        if ranker is None
        else f"Facts that no split has. <b>Its kind</b>: of candidates like this one, how many were among the "
        f"{ranker.hidden:,} facts hidden from training. Those are not listed; what remains is right less often where "
        "the graph is nearly complete. More of them: <code>kgem predict RUN --all</code>, or review them with "
        "<code>kgem serve RUN</code>."
    )
    rows = [
        [
            " · ".join(map(breakable, (fact.head, fact.relation, fact.tail))) + render_reasons(reasons),
            percent(fact.probability if fact.chance is None else fact.chance),
        ]
        for fact, reasons in zip(proposals, why, strict=True)
    ]
    columns = ["proposal", "probability" if ranker is None else "its kind"]
    return note(about) + card(table(columns, rows))


def render_headline(model: Model, evaluation: Evaluation, calibration: Calibration, baseline: float, split: str) -> str:
    seconds, epochs = model.provenance.get("seconds"), model.provenance.get("epochs")
    spent = sum(epochs.values()) if isinstance(epochs, Mapping) else 0
    overall = evaluation.overall
    numbers = {
        "MRR": (f"{overall.mrr:.3f}", f"filtered, {split}; by frequency alone {baseline:.3f}"),
        "Right at once": (f"{overall.hits_at_1:.0%}", "Hits@1"),
        "Among first ten": (f"{overall.hits_at_10:.0%}", "Hits@10"),
        "Calibration error": (f"{calibration.ece:.3f}", f"ECE; {calibration.ece_before:.3f} as trained"),
    }
    if isinstance(seconds, int | float):
        numbers["Fitted in"] = (esc(rough_duration(seconds)), f"{spent:,} epochs, no search" if spent else "no search")
    return tiles(numbers)


def render_predictions(examples: Sequence[Example], why: Sequence[Sequence[Reasons]], split: str) -> str:
    about = (
        f"Questions drawn at random from the {split} facts{', which the fit never saw' * (split == 'test')}. Known "
        f"answers are not listed, though they have their share of the probability, which says <b>{esc(MEANING['tail'])}"
        "</b>. Ranges: nine of ten samples of the posterior."
    )
    return note(about) + pair(*(_render_example(*each, split) for each in zip(examples, why, strict=True)))


def _render_example(example: Example, why: Sequence[Reasons], split: str) -> str:
    head, relation, _ = example.prediction.query
    answers = zip(example.answers, why[:-1], strict=True)
    rows = "".join(_render_answer(answer, reasons, answer.known == split, split) for answer, reasons in answers)
    verdict = f"held out: <b>{breakable(example.tail)}</b>, rank {example.rank:,}{render_reasons(why[-1])}"
    return card(
        f'<p class="ask">{breakable(str(head))} · {breakable(str(relation))} · <b>?</b></p>',
        f'<ol class="answers">{rows}</ol>',
        f'<div class="verdict">{verdict}</div>',
    )


def _render_answer(answer: Answer, reasons: Reasons, right: bool, split: str) -> str:
    shares, ranks = answer_ranges(answer)
    ranges = f"{esc(shares)} · rank {ranks} · " if shares else ""
    mark = tag(f"in {split}") if right else ""
    return (
        f"<li{' class=right' if right else ''}><div class=row><span>{breakable(answer.label)}{mark}</span>"
        f"<span class=p>{esc(percent(answer.probability))}</span></div>{bar(answer.probability)}"
        f"<small>{ranges}{pluralise(answer.frequency, 'training fact')}</small>{render_reasons(reasons)}</li>"
    )


def _render_metrics(name: str, groups: Mapping[str, Metrics]) -> str:
    rows = []
    for group, metrics in groups.items():
        mrr, *others = metric_cells(metrics)
        rows.append([breakable(group), f"{bar(metrics.mrr)}{mrr}", *others])
    return table([name, *METRICS], rows)


def render_quality(model: Model, evaluation: Evaluation, baseline: Metrics, split: str, chosen: str) -> str:
    """The figures of all questions beside those of frequencies alone; what they are made of on demand."""
    about = (
        f"Each {split} fact is asked twice, for its tail and for its head. Its entity is ranked among all "
        f"{model.data.n_entities:,}, without the other known answers; ties count against the model."
    )
    sides = {"tail": "for the tail", "head": "for the head"}
    overall = {_name_questions(evaluation): evaluation.overall, "the most frequent answers instead": baseline}
    overall |= {sides[side]: each for side, each in evaluation.by_side.items()}
    relations = dict(sorted(evaluation.by_relation.items(), key=lambda item: -item[1].n))
    first = dict(list(relations.items())[:RELATIONS])
    more = len(relations) - len(first)
    parts = [
        note(about),
        card(_render_metrics("", overall)),
        details("By relation", _render_metrics("relation", first) + (note(f"and {more:,} more") if more else "")),
        details("By how often training shows the answer", _render_metrics("facts", evaluation.by_frequency)),
        details("By kind of relation", _render_metrics("kind", evaluation.by_category)),
    ]
    if model.validation:
        rows = [
            [esc(f"{mode}: {what}") + (tag("used") if mode == chosen else ""), f"{model.validation[mode]:.3f}"]
            for mode, what in MODES.items()
            if mode in model.validation
        ]
        parts.append(details("By mode, on validation", table(["mode", "MRR"], rows)))
    return "".join(parts)


def render_calibration(calibration: Calibration, mode: str, split: str) -> str:
    about = (
        "Of answers that are said to be 30 % probable, three of ten should be right. The scores of mode "
        f"{mode} are divided by a temperature, <b>{calibration.temperature:.3g}</b> on average and its own for each "
        "question, fitted on validation; "
        f"the curve is measured on {split} ({calibration.n:,} questions)."
    )
    columns = ["", "ECE", f"ECE, first {calibration.top}", "log loss"]
    before = (calibration.ece_before, calibration.ece_pairs_before, calibration.log_loss_before)
    after = (calibration.ece, calibration.ece_pairs, calibration.log_loss)
    rows = [[name, *(f"{x:.3f}" for x in xs)] for name, xs in (("as trained", before), ("calibrated", after))]
    figure = figures.reliability_figure(calibration.curve, calibration.curve_before)
    words = "Reliability curve: share of right first answers against their probability"
    meaning = note(
        "ECE: mean gap between the first answer's probability and the share that is right. Log loss in nats."
    )
    return note(about) + pair(picture(figure, "reliability", words, narrow=True), card(table(columns, rows), meaning))


def render_strengths(model: Model) -> str:
    data = model.data
    entities = model.strengths.entities.array
    fit = fit_strengths(entities, data.entity_counts)
    about = (
        "Each entity and relation has a regulariser strength of its own, learned by variational EM instead of searched "
        "for. A high strength keeps a vector near zero: the model relies less on that symbol."
    )
    if not math.isnan(fit.slope):
        about += f" Over entities the strength follows frequency to the power {fit.slope:.2f}; the usual rule has 1."
    order = np.argsort(-entities, kind="stable")

    def rows(places: Sequence[int]) -> list[list[str]]:
        return [
            [breakable(data.entities.show(data.entities[i])), f"{entities[i]:.3g}", f"{data.entity_counts[i]:,}"]
            for i in places
        ]

    def draw(kind: str, what: str) -> str:
        return picture(
            figures.draw_strengths(model, kind), kind, f"Learned strength of each {what} against its frequency"
        )

    columns = ["entity", "strength", "facts"]
    extremes = pair(
        card("<h3>Most regularised</h3>", table(columns, rows(order[:SYMBOLS].tolist()))),
        card("<h3>Least regularised</h3>", table(columns, rows(order[::-1][:SYMBOLS].tolist()))),
    )
    return (
        note(about)
        + draw("entities", "entity")
        + details("The most and the least regularised entities", extremes)
        + details("The relations", draw("relations", "relation"))
    )


def render_learning(model: Model, history: RunHistory) -> str:
    if not history.records:
        return note("There is no log of this fit beside the model.")
    curves = figures.learning_curves(history.records)
    about = (
        "Pre-training fits a point estimate with the usual strengths; variational EM fits a distribution and "
        "learns the strengths; re-training fits a point estimate with them, after a short race between ways to use "
        "them."
    )
    phases = {record.get("phase") for record in history.records}
    if "companions" in phases:
        about += " Companions are models from other starts, which only teach."
    if "distil" in phases:
        about += " Distillation fits one model to what all of them say together."
    if "update" in model.provenance:
        about = (
            "This run went on from an earlier one when the graph changed: a short variational EM, in which new symbols "
            "begin as their prior, and a short re-training."
        )
    parts = [
        note(about),
        picture(curves, "curves", "Validation MRR and training loss over the epochs of all phases"),
    ]
    if any(record.get("phase") == "em" and record.get("elbo") is not None for record in history.records):
        elbo = figures.elbo_figure(history.records, m_step_from=model.config.em.e_epochs or None)
        words = "The evidence lower bound and its three parts over the epochs of EM"
        parts.append(details("The bound that EM raises", picture(elbo, "elbo", words)))
    return "".join(parts)


def render_graph(model: Model) -> str:
    data = model.data
    sizes = [f"{len(data.split(split)):,}" for split in SPLITS]
    rows = [[f"{data.n_entities:,}", f"{data.n_relations:,}", *sizes]]
    split = model.provenance.get("split")
    made = note("The graph came in one piece; validation and test facts were drawn from it at random.") if split else ""
    figure = figures.counts_figure(data.entity_counts, data.relation_counts)
    words = "How many training facts each entity and each relation has, most frequent first"
    return card(table(["entities", "relations", *SPLITS], rows, left=0), made) + details(
        "How often each entity and relation occurs", picture(figure, "counts", words)
    )


def _render_update(model: Model) -> str:
    """What the graph grew by, and from which run; nothing for a run that began from nothing."""
    document = model.provenance.get("update")
    if not document:
        return ""
    changes, source = document["changes"], document["from"]
    words = {"new facts": sum(changes["new"].values()), "removed facts": sum(changes["removed"].values())}
    words |= {"new entities": changes["new_entities"], "new relations": changes["new_relations"]}
    rows = [[name, f"{number:,}"] for name, number in words.items()]
    rows += [[f"MRR before, {split}", f"{before['mrr']:.3f}"] for split, before in document["before"].items()]
    rows += [["from", f"<code>{esc(source.get('folder', 'a model in memory'))}</code>"]]
    rows += [["sha256 of the graph before", f"<code>{esc(source['graph_sha256'])}</code>"]]
    rows += [[esc(name), f"<code>{esc(sha)}</code>"] for name, sha in document["files"].items()]
    return details("What this run went on from", table(["", ""], rows, left=2))


def render_repetition(model: Model, history: RunHistory) -> str:
    data = model.data
    known = data.name in CATALOG  # else the name tells a file's name, not where it is
    command = f"kgem fit {data.name if known else 'GRAPH'} --config config.toml --out runs/again"
    about = "The same graph, settings, seed, versions and number of threads give the same tables."
    about += "" if known else " GRAPH is the file or folder that the graph came from; its sha256 is below."
    if "update" in model.provenance:
        command = "kgem update RUN FACTS --out runs/again"
        about = "The same run, facts, settings, versions and number of threads give the same tables."
    config = history.config or to_toml(model.config)
    facts = [["graph", f"<code>{esc(data.name)}</code>"], ["sha256 of the graph", f"<code>{data.content_hash}</code>"]]
    facts += [["seed", f"{model.config.seed}"]]
    facts += [[f"{esc(name)}", f"<code>{esc(version)}</code>"] for name, version in (history.versions or {}).items()]
    hashes = [[esc(name), f"<code>{esc(sha)}</code>"] for name, sha in (history.hashes or {}).items()]
    parts = [
        note(about),
        preformatted(command),
        details("Graph, seed and versions", table(["", ""], facts, left=2)),
        _render_update(model),
        details("All settings (config.toml)", preformatted(config)),
    ]
    if hashes:
        parts.append(details("sha256 of the model's files", table(["file", "sha256"], hashes, left=2)))
    return card(*parts)
