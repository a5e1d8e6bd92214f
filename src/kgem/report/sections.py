"""The chapters of a report on a run, each a function to HTML."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kgem.answer.model import Model
from kgem.answer.modes import MODES
from kgem.answer.predict import MEANING, Answer
from kgem.data.catalog import CATALOG
from kgem.data.dataset import SPLITS
from kgem.evaluate.calibration import Calibration
from kgem.evaluate.metrics import Evaluation, Metrics
from kgem.evaluate.strength_laws import fit_strengths
from kgem.report import figures
from kgem.report import html as page
from kgem.report.figures.drawing import duration
from kgem.report.html import bar, card, details, esc, note, pair, percent, picture, table, tag
from kgem.report.samples import Sample
from kgem.settings import to_toml

__all__ = [
    "Origin",
    "graph",
    "learning",
    "predictions",
    "quality",
    "repeat",
    "strengths",
    "tiles",
    "trust",
]

RELATIONS = 25  # in the table of relations
SYMBOLS = 8  # most and least regularised


@dataclass(frozen=True)
class Origin:
    """What a run folder tells beyond its model."""

    records: Sequence[Mapping[str, Any]] = ()  # one per epoch
    config: str | None = None  # config.toml
    versions: Mapping[str, str] | None = None
    hashes: Mapping[str, str] | None = None  # sha256 by file


def tiles(model: Model, evaluation: Evaluation, calibration: Calibration, split: str) -> str:
    seconds, epochs = model.provenance.get("seconds"), model.provenance.get("epochs")
    spent = sum(epochs.values()) if isinstance(epochs, Mapping) else 0
    overall = evaluation.overall
    numbers = {
        "MRR": (f"{overall.mrr:.3f}", f"filtered, {split}"),
        "Right at once": (f"{overall.hits_at_1:.0%}", "Hits@1"),
        "Among first ten": (f"{overall.hits_at_10:.0%}", "Hits@10"),
        "Calibration error": (f"{calibration.ece:.3f}", f"ECE; {calibration.ece_before:.3f} as trained"),
    }
    if isinstance(seconds, int | float):
        numbers["Fitted in"] = (esc(duration(seconds)), f"{spent:,} epochs, no search" if spent else "no search")
    return page.tiles(numbers)


def predictions(samples: Sequence[Sample], split: str) -> str:
    about = (
        f"Questions drawn at random from the {split} facts{', which the fit never saw' * (split == 'test')}. Answers "
        "that training or validation has are not listed, though they have their share of the probability, which says "
        f"<b>{esc(MEANING['tail'])}</b>. The ranges, of probability and rank, are those that nine of ten samples of "
        "the posterior give."
    )
    return note(about) + pair(*(_sample_card(sample, split) for sample in samples))


def _sample_card(sample: Sample, split: str) -> str:
    head, relation, _ = sample.prediction.query
    rows = "".join(_answer(answer, answer.known == split, split) for answer in sample.answers)
    verdict = f"held out: <b>{esc(sample.tail)}</b>, rank {sample.rank:,}"
    return card(
        f'<p class="ask">{esc(head)} · {esc(relation)} · <b>?</b></p>',
        f'<ol class="answers">{rows}</ol>',
        f'<p class="verdict">{verdict}</p>',
    )


def _answer(answer: Answer, right: bool, split: str) -> str:
    doubt = ""
    if None not in (answer.low, answer.high, answer.rank_low, answer.rank_high):
        shares = _range(percent(answer.low or 0.0), percent(answer.high or 0.0))
        doubt = f"{shares} · rank {_range(f'{answer.rank_low:,}', f'{answer.rank_high:,}')} · "
    seen = f"{answer.frequency:,} training fact{'s' * (answer.frequency != 1)}"
    mark = tag(f"in {split}") if right else ""
    return (
        f"<li{' class=right' if right else ''}><div class=row><span>{esc(answer.label)}{mark}</span>"
        f"<span class=p>{percent(answer.probability)}</span></div>{bar(answer.probability)}"
        f"<small>{doubt}{seen}</small></li>"
    )


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _figures(metrics: Metrics) -> list[str]:
    mean = metrics.mean_rank
    return [
        f"{bar(metrics.mrr)}{metrics.mrr:.3f}",
        *(f"{share:.3f}" for share in (metrics.hits_at_1, metrics.hits_at_3, metrics.hits_at_10)),
        f"{mean:,.0f}" if mean >= 100 else f"{mean:.1f}",
        f"{metrics.n:,}",
    ]


def _metrics_table(name: str, groups: Mapping[str, Metrics]) -> str:
    columns = [name, "MRR", "Hits@1", "Hits@3", "Hits@10", "mean rank", "ranks"]
    return table(columns, [[esc(group), *_figures(each)] for group, each in groups.items()], wide=(3, 5, 6))


def quality(model: Model, evaluation: Evaluation, split: str, chosen: str) -> str:
    about = (
        f"Each {split} fact is asked twice, for its tail and for its head. Its entity is ranked among all "
        f"{model.data.n_entities:,}, without the other known answers; ties count against the model."
    )
    sides = {"tail": "for the tail", "head": "for the head"}
    overall = {"all": evaluation.overall} | {sides[side]: each for side, each in evaluation.by_side.items()}
    relations = dict(sorted(evaluation.by_relation.items(), key=lambda item: -item[1].n))
    first = dict(list(relations.items())[:RELATIONS])
    more = len(relations) - len(first)
    parts = [
        note(about),
        card(_metrics_table("", overall)),
        f"<h3>By how often training shows the answer</h3>{card(_metrics_table('facts', evaluation.by_frequency))}",
        f"<h3>By kind of relation</h3>{card(_metrics_table('kind', evaluation.by_category))}",
        f"<h3>By relation</h3>{card(_metrics_table('relation', first), note(f'and {more:,} more') if more else '')}",
    ]
    if model.validation:
        rows = [
            [esc(_MODES[mode]) + (tag("used") if mode == chosen else ""), f"{model.validation[mode]:.3f}"]
            for mode in MODES
            if mode in model.validation
        ]
        parts.append(f"<h3>By mode, on validation</h3>{card(table(['mode', 'MRR'], rows))}")
    return "".join(parts)


_MODES = {
    "point": "point: the re-trained tables",
    "mean": "mean: the means of q",
    "bayes": "bayes: probabilities averaged over q",
    "blend": "blend: point and mean together",
}


def trust(calibration: Calibration, mode: str, split: str) -> str:
    about = (
        "Of answers that are said to be 30 % probable, three of ten should be right. The scores of mode "
        f"{mode} are divided by a temperature of <b>{calibration.temperature:.3g}</b>, fitted on validation; "
        f"the curve is measured on {split} ({calibration.n:,} questions)."
    )
    columns = ["", "ECE", f"ECE, first {calibration.top}", "log loss"]
    before = (calibration.ece_before, calibration.ece_pairs_before, calibration.log_loss_before)
    after = (calibration.ece, calibration.ece_pairs, calibration.log_loss)
    rows = [[name, *(f"{x:.3f}" for x in xs)] for name, xs in (("as trained", before), ("calibrated", after))]
    figure = figures.reliability_figure(calibration.curve, calibration.curve_before)
    words = "Reliability curve: share of right first answers against their probability"
    return (
        note(about)
        + picture(figure, "reliability", words, narrow=True)
        + card(
            table(columns, rows, wide=(2,)),
            note("ECE: mean gap between the first answer's probability and the share that is right. Log loss in nats."),
        )
    )


def strengths(model: Model) -> str:
    data = model.data
    entities, relations = (lam.detach().cpu().double().numpy() for lam in model.learned)
    fit = fit_strengths(entities, data.entity_counts)
    about = (
        "Each entity and relation has a regulariser strength of its own, learned by variational EM instead of searched "
        "for. A high strength keeps a vector near zero: the model relies less on that symbol."
    )
    if not math.isnan(fit.slope):
        about += f" Over entities the strength follows frequency to the power {fit.slope:.2f}; the usual rule has 1."
    order = np.argsort(-entities, kind="stable")

    def rows(places: Sequence[int]) -> list[list[str]]:
        return [[esc(data.entities[i]), f"{entities[i]:.3g}", f"{data.entity_counts[i]:,}"] for i in places]

    columns = ["entity", "strength", "facts"]
    drawn = figures.strengths_figure(entities, data.entity_counts, data.entities.labels)
    related = figures.strengths_figure(relations, data.relation_counts, data.relations.labels, what="relation")
    return (
        note(about)
        + picture(drawn, "entities", "Learned strength of each entity against its frequency")
        + pair(
            card("<h3>Most regularised</h3>", table(columns, rows(order[:SYMBOLS].tolist()))),
            card("<h3>Least regularised</h3>", table(columns, rows(order[::-1][:SYMBOLS].tolist()))),
        )
        + picture(related, "relations", "Learned strength of each relation against its frequency")
    )


def learning(model: Model, origin: Origin) -> str:
    if not origin.records:
        return note("There is no log of this fit beside the model.")
    curves = figures.learning_curves(origin.records)
    about = (
        "Pre-training fits a point estimate with the usual strengths; variational EM fits a distribution and "
        "learns the strengths; re-training fits a point estimate with them, after a short race between ways to use "
        "them."
    )
    if "update" in model.provenance:
        about = (
            "This run went on from an earlier one when the graph changed: a short variational EM, in which new symbols "
            "begin as their prior, and a short re-training."
        )
    parts = [
        note(about),
        picture(curves, "curves", "Validation MRR and training loss over the epochs of the three phases"),
    ]
    if any(record.get("phase") == "em" and record.get("elbo") is not None for record in origin.records):
        elbo = figures.elbo_figure(origin.records, m_step_from=model.config.em.e_epochs or None)
        parts.append(picture(elbo, "elbo", "The evidence lower bound and its three parts over the epochs of EM"))
    return "".join(parts)


def graph(model: Model) -> str:
    data = model.data
    sizes = [f"{len(data.split(split)):,}" for split in SPLITS]
    rows = [[f"{data.n_entities:,}", f"{data.n_relations:,}", *sizes]]
    split = model.provenance.get("split")
    made = note("The graph came in one piece; validation and test facts were drawn from it at random.") if split else ""
    figure = figures.counts_figure(data.entity_counts, data.relation_counts)
    return card(table(["entities", "relations", *SPLITS], rows, left=0), made) + picture(
        figure, "counts", "How many training facts each entity and each relation has, most frequent first"
    )


def _update(model: Model) -> str:
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


def repeat(model: Model, origin: Origin) -> str:
    data = model.data
    known = data.name in CATALOG  # else the name tells a file's name, not where it is
    command = f"kgem fit {data.name if known else 'GRAPH'} --config config.toml --out runs/again"
    about = "The same graph, settings, seed, versions and number of threads give the same tables."
    about += "" if known else " GRAPH is the file or folder that the graph came from; its sha256 is below."
    if "update" in model.provenance:
        command = "kgem update RUN FACTS --out runs/again"
        about = "The same run, facts, settings, versions and number of threads give the same tables."
    config = origin.config or to_toml(model.config)
    facts = [["graph", f"<code>{esc(data.name)}</code>"], ["sha256 of the graph", f"<code>{data.content_hash}</code>"]]
    facts += [["seed", f"{model.config.seed}"]]
    facts += [[f"{esc(name)}", f"<code>{esc(version)}</code>"] for name, version in (origin.versions or {}).items()]
    hashes = [[esc(name), f"<code>{esc(sha)}</code>"] for name, sha in (origin.hashes or {}).items()]
    parts = [
        note(about),
        page.preformatted(command),
        table(["", ""], facts, left=2),
        _update(model),
        details("All settings (config.toml)", page.preformatted(config)),
    ]
    if hashes:
        parts.append(details("sha256 of the model's files", table(["file", "sha256"], hashes, left=2)))
    return card(*parts)
