"""What the explorer can be asked, as plain documents: a run's model, its log and its review behind one door."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping
from dataclasses import asdict, fields
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from kgem.answer.artifact import find_model
from kgem.answer.entity import entity_view
from kgem.answer.labels import LabelSearch
from kgem.answer.missing import ScoredFact
from kgem.answer.model import Model
from kgem.answer.modes import MODES
from kgem.answer.questions import good_questions
from kgem.data.dataset import SPLITS
from kgem.data.index import Vocabulary
from kgem.data.stats import relation_categories
from kgem.errors import InputError
from kgem.evaluate.metrics import Evaluation
from kgem.evaluate.strength_laws import fit_strengths
from kgem.report.samples import calibrated
from kgem.runs.review import UNDO, Review
from kgem.runs.run import is_run, read_log
from kgem.serve.jobs import Job, Jobs, Progress
from kgem.serve.replies import Refused, UnknownHere
from kgem.serve.thinning import even_sample

__all__ = ["MOST_FACTS", "Explorer", "run_folder"]

MOST_FACTS = 1000  # missing or doubtful ones that are looked for, however few are asked for
MEMORY = 2**28  # bytes that a search for them may use
REMEMBERED = 256  # answers, entities: to go back and forth costs nothing
EXAMPLES = 6
SAMPLED_SCORES = 5_000_000  # at most, for how sure a relation is: it takes a softmax per relation and sample

LOG = logging.getLogger(__name__)

Document = dict[str, Any]


class Explorer:
    """Answers questions about one run. Every method may be called from any thread."""

    def __init__(self, model: Model, folder: Path) -> None:
        self.model, self.folder = model, run_folder(folder)
        self.review = Review(self.folder)
        self.jobs = Jobs()
        data = model.data
        self._entities = LabelSearch(data.entities.labels, data.entity_counts)
        self._relations = LabelSearch(data.relations.labels, data.relation_counts)
        self._categories = relation_categories(data)
        self._records = _records(self.folder)
        self._examples = [
            {name: label for name, label in query._asdict().items() if label is not None}
            for query in good_questions(model.scorer(), model.data, EXAMPLES)
        ]
        self._predict: Callable[..., Document] = lru_cache(REMEMBERED)(self._predicted)
        self._view: Callable[..., Document] = lru_cache(REMEMBERED)(self._viewed)
        self._strengths: Callable[[int], Document] = lru_cache(4)(self._strengths_of)
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
            "version": metadata.version("kgem"),
            "model": {"score": model.config.model.score, "dim": model.config.model.dim, "p": model.config.model.p},
            "mode": model.mode,
            "modes": list(MODES),
            "graph": {
                "entities": data.n_entities,
                "relations": data.n_relations,
                "facts": {split: len(data.split(split)) for split in SPLITS},
            },
            "examples": self._examples,
            "metrics": {split: _overall(model.metrics.get(split)) for split in ("valid", "test")},
            "review": {
                "pending": pending,
                "accepted": counts["accept"],
                "rejected": counts["reject"],
                "skipped": counts["skip"],
            },
        }

    def entities(self, text: str, limit: int) -> Document:
        """Entities whose label has the text in it."""
        return _listed(self._entities, text, limit)

    def relations(self, text: str, limit: int) -> Document:
        """Relations whose label has the text in it."""
        found = _listed(self._relations, text, limit)
        for item in found["items"]:
            item["category"] = str(self._categories[self.model.data.relations.id(item["label"])])
        return found

    def predict(
        self, head: str | None, relation: str | None, tail: str | None, top: int, new_only: bool, mode: str
    ) -> Document:
        """The answers to a question."""
        for label, known in ((head, self._entities), (relation, self._relations), (tail, self._entities)):
            if label is not None:
                self._check(known, label)
        return self._predict(head, relation, tail, top, new_only, self.model.resolve(mode))

    def _predicted(
        self, head: str | None, relation: str | None, tail: str | None, top: int, new_only: bool, mode: str
    ) -> Document:
        sampled = self.model.n_samples * self.model.data.n_relations * self.model.data.n_entities
        uncertainty = relation is not None or sampled <= SAMPLED_SCORES
        return self.model.predict(head, relation, tail, top, new_only, mode, uncertainty).to_dict()

    def entity(self, label: str, limit: int) -> Document:
        """One entity as a whole."""
        self._check(self._entities, label)
        return self._view(label, limit)

    def _viewed(self, label: str, limit: int) -> Document:
        strengths = self.model.strengths.entities.array
        return entity_view(self.model.mode_scorer(), strengths, label, facts=limit).to_dict()

    def similar(self, entity: str, top: int, mode: str) -> Document:
        """The entities that are most like one."""
        self._check(self._entities, entity)
        found = self.model.similar(entity, top, mode) if self.model.data.n_entities > 1 else []
        return {"entity": entity, "items": [asdict(each) for each in found]}

    def strengths(self, limit: int) -> Document:
        """Fig. 3: strengths against frequency, and how they follow it."""
        return self._strengths(limit)

    def _strengths_of(self, limit: int) -> Document:
        data, strengths = self.model.data, self.model.strengths
        pairs = {
            "entities": (data.entities, data.entity_counts, strengths.entities.array),
            "relations": (data.relations, data.relation_counts, strengths.relations.array),
        }
        fits = {
            kind: {"constant": fit.c, "scale": fit.scale, "slope": fit.slope}
            for kind, fit in ((kind, fit_strengths(lam, counts)) for kind, (_, counts, lam) in pairs.items())
        }
        return {
            **{kind: _points(*pair, limit) for kind, pair in pairs.items()},
            "total": data.n_entities,
            "line": fits["entities"] | {"relations": fits["relations"]},
            "slope": fits["entities"]["slope"],
        }

    def curves(self) -> Document:
        """The log of the fit, phase by phase."""
        names = dict.fromkeys(str(record["phase"]) for record in self._records)
        return {
            "phases": [
                {
                    "name": name,
                    "epochs": [
                        {key: value for key, value in record.items() if key != "phase"}
                        for record in self._records
                        if record["phase"] == name
                    ],
                }
                for name in names
            ]
        }

    def metrics(self, split: str) -> Job | Document:
        """Filtered ranks as figures: those of the fit's end, or a job that measures them."""
        stored = self.model.metrics.get(split)
        if isinstance(stored, Mapping) and {each.name for each in fields(Evaluation)} <= stored.keys():
            return dict(stored)
        self._check_split(split)
        return self.jobs.ask(
            ("metrics", split), lambda progress: self.model.evaluate(split, progress=progress).to_dict()
        )

    def calibration(self, split: str) -> Job:
        """How far probabilities can be trusted."""
        self._check_split(split)
        return self.jobs.ask(
            ("calibration", split), lambda progress: calibrated(self.model, split, self.model.mode).to_dict()
        )

    def look_ahead(self) -> None:
        """Begin what takes longest, so that a review can begin at once; whatever is asked for goes first."""
        self.missing(None, patient=True)

    def missing(self, relation: str | None, *, patient: bool = False) -> Job:
        """The most probable missing facts, of the whole graph or of a relation."""

        def work(progress: Progress) -> list[ScoredFact]:
            only = None if relation is None else [relation]
            return self.model.missing_facts(MOST_FACTS, only, memory=MEMORY, progress=progress)

        return self._facts("missing", relation, work, patient)

    def doubtful(self, relation: str | None) -> Job:
        """The least probable known facts, of the whole graph or of a relation."""

        def work(progress: Progress) -> list[ScoredFact]:
            only = None if relation is None else [relation]
            return self.model.doubtful_facts(MOST_FACTS, relations=only, memory=MEMORY, progress=progress)

        return self._facts("doubtful", relation, work)

    def _facts(
        self, kind: str, relation: str | None, work: Callable[[Progress], list[ScoredFact]], patient: bool = False
    ) -> Job:
        if relation is not None:
            self._check(self._relations, relation)
        key: Hashable = (kind, relation)
        return self.jobs.ask(key, work, patient=patient)

    def with_decisions(self, facts: list[ScoredFact], top: int) -> Document:
        """Facts to review, with what was decided about them."""
        decided = self.review.by_fact
        rows = []
        for fact in facts[:top]:
            made = decided.get((fact.head, fact.relation, fact.tail))
            rows.append(fact.to_dict() | {"decision": made.decision if made else None})
        return {"facts": rows}

    def reviewed(self, limit: int) -> Document:
        """The decisions so far, newest first."""
        return {
            "counts": self.review.counts,
            "decisions": [made.to_dict() for made in self.review.decisions[:limit]],
            "problems": [problem.rpartition("/")[2] for problem in self.review.problems],
        }

    def decide(self, head: str, relation: str, tail: str, decision: str, kind: str) -> Document:
        """Mutates: note a decision; it is on disk when this returns."""
        fact = head, relation, tail
        if decision == UNDO and fact in self.review.by_fact:  # also if the graph no longer has its labels
            self.review.decide(*fact, decision, kind)
            return {"counts": self.review.counts, "decision": None}
        for label, known in ((head, self._entities), (relation, self._relations), (tail, self._entities)):
            self._check(known, label)
        if decision == UNDO:
            return {"counts": self.review.counts, "decision": None}
        if self._known(*fact) != (kind == "doubtful"):
            has = "has" if kind == "missing" else "does not have"
            remedy = f"this fact can only be {'doubtful' if kind == 'missing' else 'missing'}"
            raise Refused(409, "wrong-kind", f"the graph {has} this fact", remedy)
        made = self.review.decide(*fact, decision, kind)
        return {"counts": self.review.counts, "decision": made.to_dict() if made else None}

    def _known(self, head: str, relation: str, tail: str) -> bool:
        data = self.model.data
        h, r, t = data.entities.id(head), data.relations.id(relation), data.entities.id(tail)
        return bool(np.isin(t, data.filter_index.tails_of(int(data.filter_index.find([h], [r])[0]))))

    def _check(self, known: LabelSearch, label: str) -> None:
        """An error with neighbours, found faster than by comparing with every label, if there is no such label."""
        vocabulary = self.model.data.entities if known is self._entities else self.model.data.relations
        if label not in vocabulary:
            raise UnknownHere(vocabulary.kind, label, known.near(label))

    def _check_split(self, split: str) -> None:
        if not len(self.model.data.split(split)):
            raise InputError(f"{self.model.data.name} has no facts in {split}", remedy="ask for another split")


def run_folder(folder: Path) -> Path:
    """Where log and review are: the run folder, also of a model inside it; else the model's own."""
    place = find_model(folder)
    return place.parent if is_run(place.parent) else folder


def _listed(search: LabelSearch, text: str, limit: int) -> Document:
    total, ids = search.find(text, limit)
    items = [{"label": search.labels[i], "frequency": int(search.counts[i])} for i in ids.tolist()]
    return {"total": total, "items": items}


def _points(vocabulary: Vocabulary, counts: Any, strengths: Any, limit: int) -> list[Document]:
    return [
        {"label": vocabulary[i], "frequency": int(counts[i]), "strength": float(strengths[i])}
        for i in even_sample(counts, strengths, limit).tolist()
    ]


def _overall(stored: Any) -> Document | None:
    overall = stored.get("overall") if isinstance(stored, Mapping) else None
    return dict(overall) if isinstance(overall, Mapping) else None


def _records(folder: Path) -> list[Mapping[str, Any]]:
    """The log of the fit; a damaged one is told, and goes without."""
    try:
        found = read_log(folder)
    except (OSError, ValueError) as error:
        LOG.warning("the log of %s cannot be read: %s", folder, error)
        return []
    return [record for record in found if isinstance(record, Mapping) and "phase" in record]
