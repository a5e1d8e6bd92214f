"""What the explorer can be asked, as plain documents: a run's model, its log and its review behind one door."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, asdict, fields
from functools import lru_cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from kgem.answer.entity import entity_view
from kgem.answer.features import Known, nearest_facts
from kgem.answer.judge import Judge, judge_facts
from kgem.answer.labels import SEVERAL, LabelSearch, means
from kgem.answer.missing import ScoredFact
from kgem.answer.model import Model
from kgem.answer.modes import MODES
from kgem.answer.predict import Query
from kgem.answer.proposals import is_large
from kgem.answer.questions import good_questions
from kgem.answer.unfinished import describe_missing
from kgem.data.dataset import SPLITS
from kgem.data.index import Vocabulary
from kgem.data.names import Names
from kgem.data.stats import relation_categories
from kgem.errors import InputError
from kgem.evaluate.blocks import OnProgress
from kgem.evaluate.metrics import Evaluation
from kgem.evaluate.strength_laws import fit_strengths
from kgem.report.calibration import ENOUGH_FACTS, measure_calibration
from kgem.report.history import find_run
from kgem.runs.review import UNDO, Review
from kgem.runs.run import read_log
from kgem.serve.jobs import Job, Jobs
from kgem.serve.replies import Refused, UnknownHere
from kgem.serve.thinning import even_sample

__all__ = ["MOST_FACTS", "Explorer"]

MOST_FACTS = 1000  # missing or doubtful ones that are looked for, however few are asked for
MEMORY = 2**28  # bytes that a search for them may use
PATIENCE = 300.0  # seconds for it where to ask all questions would take hours
REMEMBERED = 256  # answers, entities: to go back and forth costs nothing
EXAMPLES = 6
SAMPLED_SCORES = 5_000_000  # at most, for how sure a relation is: it takes a softmax per relation and sample

LOG = logging.getLogger(__name__)

Document = dict[str, Any]


class Explorer:
    """Answers questions about one run. Every method may be called from any thread."""

    def __init__(self, model: Model, folder: Path) -> None:
        self.model, self.folder = model, find_run(folder) or folder
        self.review = Review(self.folder)
        self.jobs = Jobs()
        self._path = os.path.relpath(self.folder)
        data = model.data
        self._entities = LabelSearch.of(data.entities, data.entity_counts)
        self._relations = LabelSearch.of(data.relations, data.relation_counts)
        self._categories = relation_categories(data)
        self._records = _read_records(self.folder)
        self._examples = [
            {name: label for name, label in query._asdict().items() if label is not None}
            for query in good_questions(model.scorer(), model.data, EXAMPLES)
        ]
        self._predict: Callable[..., Document] = lru_cache(REMEMBERED)(self._compute_prediction)
        self._judge: Callable[..., Document] = lru_cache(REMEMBERED)(self._compute_judgement)
        self._learn_judge: Callable[[str], Judge] = lru_cache(len(MODES))(model.learn_judge)
        self._view: Callable[..., Document] = lru_cache(REMEMBERED)(self._compute_view)
        self._strengths: Callable[[int], Document] = lru_cache(4)(self._compute_strengths)
        candidates = model.candidates
        _ = data.filter_index, model.samples, model.strengths  # before anybody waits
        _ = candidates.split_indexes, candidates.loops

    def about(self) -> Document:
        """Which run this is, and what can be asked first."""
        model, data, counts = self.model, self.model.data, self.review.counts
        proposed = self.jobs.find(("missing", None))
        decided = self.review.by_fact
        pending = None if proposed is None else sum((f.head, f.relation, f.tail) not in decided for f in proposed)
        return {
            "name": data.name,
            "run": self.folder.resolve().name,
            "path": self._path,
            "version": metadata.version("kgem"),
            "model": {"score": model.config.model.score, "dim": model.config.model.dim, "p": model.config.model.p},
            "mode": model.mode,
            "modes": list(MODES),
            "mode_meanings": MODES,
            "unfinished": describe_missing(model) if model.unfinished else None,
            "graph": {
                "entities": data.n_entities,
                "relations": data.n_relations,
                "facts": {split: len(data.split(split)) for split in SPLITS},
            },
            "examples": self._examples,
            "metrics": {split: _find_overall(model.metrics.get(split)) for split in ("valid", "test")},
            "review": {
                "pending": pending,
                "accepted": counts["accept"],
                "rejected": counts["reject"],
                "skipped": counts["skip"],
            },
        }

    def entities(self, text: str, limit: int) -> Document:
        """Entities whose label has the text in it."""
        return _find_labels(self._entities, text, limit)

    def relations(self, text: str, limit: int) -> Document:
        """Relations whose label has the text in it."""
        found = _find_labels(self._relations, text, limit)
        for item in found["items"]:
            item["category"] = str(self._categories[self.model.data.relations.id(item["label"])])
        return found

    def predict(self, question: Query, top: int, new_only: bool, mode: str) -> Document:
        """The answers to a question."""
        question = Query(*self._check_labels(*question))
        return self._predict(question, top, new_only, self.model.resolve(mode))

    def _compute_prediction(self, question: Query, top: int, new_only: bool, mode: str) -> Document:
        sampled = self.model.n_samples * self.model.data.n_relations * self.model.data.n_entities
        uncertainty = question.relation is not None or sampled <= SAMPLED_SCORES
        return self.model.predict(*question, top, new_only, mode, uncertainty).to_dict()

    def judge(self, head: str, relation: str, tail: str, mode: str) -> Document:
        """How credible a fact is."""
        fact = self._check_labels(head, relation, tail)
        return self._judge(fact, self.model.resolve(mode))

    def _compute_judgement(self, fact: tuple[str, str, str], mode: str) -> Document:
        judge, scorer = self._learn_judge(mode), self.model.mode_scorer(mode)
        (judgement,) = judge_facts(judge, scorer, [fact], ranges=True)
        known, data = Known.everything(self.model.data), self.model.data
        like = [data.label(each) for each in nearest_facts(scorer, known, data.ids([fact])[0])]
        document = judgement.to_dict() | {"mode": mode, "like": like}
        del document["note"]  # all labels are known
        return document

    def entity(self, label: str, limit: int) -> Document:
        """One entity as a whole."""
        (found, _, _) = self._check_labels(label)
        return self._view(found, limit)

    def _compute_view(self, label: str, limit: int) -> Document:
        strengths = self.model.strengths.entities.array
        return entity_view(self.model.mode_scorer(), strengths, label, facts=limit).to_dict()

    def similar(self, entity: str, top: int, mode: str) -> Document:
        """The entities that are most like one."""
        entity = str(self._check_labels(entity)[0])
        found = self.model.similar(entity, top, mode) if self.model.data.n_entities > 1 else []
        return {"entity": entity, "items": [asdict(each) for each in found]}

    def strengths(self, limit: int) -> Document:
        """Fig. 3: strengths against frequency, and how they follow it."""
        return self._strengths(limit)

    def _compute_strengths(self, limit: int) -> Document:
        data, strengths = self.model.data, self.model.strengths
        pairs = {
            "entities": (data.entities, data.entity_counts, strengths.entities.array),
            "relations": (data.relations, data.relation_counts, strengths.relations.array),
        }
        fits = {}
        for kind, (_, counts, lam) in pairs.items():
            fit = fit_strengths(lam, counts)
            fits[kind] = {"constant": fit.c, "scale": fit.scale, "slope": fit.slope}
        return {
            **{kind: _list_points(*pair, limit) for kind, pair in pairs.items()},
            "total": data.n_entities,
            "line": fits["entities"] | {"relations": fits["relations"]},
            "slope": fits["entities"]["slope"],
        }

    def curves(self) -> Document:
        """The log of the fit, phase by phase."""
        phases: dict[str, list[Document]] = {}
        for record in self._records:
            epoch = {key: value for key, value in record.items() if key != "phase"}
            phases.setdefault(str(record["phase"]), []).append(epoch)
        return {"phases": [{"name": name, "epochs": epochs} for name, epochs in phases.items()]}

    def metrics(self, split: str) -> Job | Document:
        """Filtered ranks as figures: those of the fit's end, or a job that measures them."""
        stored = self.model.metrics.get(split)
        if (
            isinstance(stored, Mapping)
            and {each.name for each in fields(Evaluation) if each.default is MISSING} <= stored.keys()
        ):
            return dict(stored)
        self._check_split(split)
        return self.jobs.ask(
            ("metrics", split), lambda progress: self.model.evaluate(split, progress=progress).to_dict()
        )

    def calibration(self, split: str) -> Job:
        """How far probabilities can be trusted."""
        self._check_split(split)

        def work(_: OnProgress) -> Document:
            return measure_calibration(self.model, split, self.model.mode, most=ENOUGH_FACTS).to_dict()

        return self.jobs.ask(("calibration", split), work)

    def look_ahead(self) -> None:
        """Begin what takes longest, so that a review can begin at once; whatever is asked for goes first."""
        self.missing(None, patient=True)

    def missing(self, relation: str | None, *, patient: bool = False) -> Job:
        """The most probable missing facts, of the whole graph or of a relation."""
        find = self.model.missing_facts
        if is_large(self.model.data):
            find = partial(find, seconds=PATIENCE)
        return self._find_facts("missing", find, relation, patient)

    def doubtful(self, relation: str | None) -> Job:
        """The least probable known facts, of the whole graph or of a relation."""
        return self._find_facts("doubtful", self.model.doubtful_facts, relation)

    def _find_facts(
        self, kind: str, find: Callable[..., list[ScoredFact]], relation: str | None, patient: bool = False
    ) -> Job:
        _, relation, _ = self._check_labels(relation=relation)
        only = None if relation is None else [relation]

        def work(on_progress: OnProgress) -> list[ScoredFact]:
            return find(MOST_FACTS, relations=only, memory=MEMORY, progress=on_progress)

        return self.jobs.ask((kind, relation), work, patient=patient)

    def add_decisions(self, facts: list[ScoredFact], top: int, kind: str) -> Document:
        """Facts to review, with what was decided about them, and how many of the whole graph's each relation has."""
        decided = self.review.by_fact
        rows = []
        for fact in facts[:top]:
            made = decided.get((fact.head, fact.relation, fact.tail))
            rows.append(fact.to_dict() | {"decision": made.decision if made else None})
        every = self.jobs.find((kind, None)) or facts
        pending = Counter(f.relation for f in every if (f.head, f.relation, f.tail) not in decided)
        counts = {relation: pending[relation] for relation in dict.fromkeys(f.relation for f in every)}
        by_count = sorted(counts.items(), key=lambda item: -item[1])
        return {"facts": rows, "relations": [{"relation": name, "pending": n} for name, n in by_count]}

    def decisions(self, limit: int) -> Document:
        """The decisions so far, newest first."""
        return {
            "counts": self.review.counts,
            "decisions": [made.to_dict() for made in self.review.decisions[:limit]],
            "problems": [problem.rpartition("/")[2] for problem in self.review.problems],
        }

    def decide(self, head: str, relation: str, tail: str, decision: str, kind: str) -> Document:
        """Mutates: note a decision; it is on disk when this returns."""
        fact = head, relation, tail
        if decision != UNDO or fact not in self.review.by_fact:  # one is undone even if the graph lost its labels
            fact = head, relation, tail = self._check_labels(*fact)
            if decision == UNDO:
                return {"counts": self.review.counts, "decision": None}
            self._check_kind(head, relation, tail, kind)
        made = self.review.decide(*fact, decision, kind)
        return {"counts": self.review.counts, "decision": made.to_dict() if made else None}

    def _check_kind(self, head: str, relation: str, tail: str, kind: str) -> None:
        """What the graph has may be doubtful, what it lacks may be missing."""
        data = self.model.data
        h, r, t = data.entities.id(head), data.relations.id(relation), data.entities.id(tail)
        known = bool(np.isin(t, data.filter_index.tails_of(int(data.filter_index.find([h], [r])[0]))))
        if known != (kind == "doubtful"):
            has, other = ("has", "doubtful") if known else ("does not have", "missing")
            raise Refused(409, "wrong-kind", f"the graph {has} this fact", f"this fact can only be {other}")

    def _check_labels(self, head: str | None = None, relation: str | None = None, tail: str | None = None) -> Any:
        """The labels that are meant, which may be given by names: three, None where none is given.

        An error with neighbours, found faster than by comparing with every label, if the graph does not have one.
        """
        data = self.model.data
        entities, relations = (data.entities, self._entities), (data.relations, self._relations)
        found = []
        for text, (vocabulary, search) in zip((head, relation, tail), (entities, relations, entities), strict=True):
            meant = [] if text is None else means(vocabulary, text)
            if text is not None and len(meant) != 1:
                near = [vocabulary[i] for i in meant[:SEVERAL]] or search.near(text)
                raise UnknownHere(vocabulary, text, near, several=len(meant))
            found.append(vocabulary[meant[0]] if meant else None)
        return tuple(found)

    def add_names(self, document: Any) -> Any:
        """A document with the names of the labels in it, for graphs whose symbols have names."""
        names = self.model.data.names
        if not names or not isinstance(document, Mapping):
            return document
        return {**document, "names": {label: pair for label, pair in _find_names(document, names)}}

    def _check_split(self, split: str) -> None:
        if not len(self.model.data.split(split)):
            raise InputError(f"{self.model.data.name} has no facts in {split}", remedy="ask for another split")


def _find_names(value: Any, names: Names) -> Iterator[tuple[str, list[str | None]]]:
    """Label, name and short label of whatever text in a document is a label that is shown otherwise."""
    if isinstance(value, str):
        short, name = names.shorten(value), names.by_label.get(value)
        if name is not None or short != value:
            yield value, [name, short]
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _find_names(key, names)
            yield from _find_names(each, names)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _find_names(each, names)


def _find_labels(search: LabelSearch, text: str, limit: int) -> Document:
    total, ids = search.find(text, limit)
    items = [{"label": search.labels[i], "frequency": int(search.counts[i])} for i in ids.tolist()]
    return {"total": total, "items": items}


def _list_points(vocabulary: Vocabulary, counts: Any, strengths: Any, limit: int) -> list[Document]:
    return [
        {"label": vocabulary[i], "frequency": int(counts[i]), "strength": float(strengths[i])}
        for i in even_sample(counts, strengths, limit).tolist()
    ]


def _find_overall(stored: Any) -> Document | None:
    overall = stored.get("overall") if isinstance(stored, Mapping) else None
    return dict(overall) if isinstance(overall, Mapping) else None


def _read_records(folder: Path) -> list[Mapping[str, Any]]:
    """The log of the fit; a damaged one is told, and goes without."""
    try:
        found = read_log(folder)
    except (OSError, ValueError) as error:
        LOG.warning("the log of %s cannot be read: %s", folder, error)
        return []
    return [record for record in found if isinstance(record, Mapping) and "phase" in record]
