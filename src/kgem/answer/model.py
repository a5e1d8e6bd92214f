"""The model that people hold in their hands: graph, tables, posterior, strengths; ask, evaluate, save and load it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from kgem.answer import artifact, predict
from kgem.answer.candidates import Candidates
from kgem.answer.find import FoundSymbols, find_symbols
from kgem.answer.judge import FEWEST, Judge, encode_known, judge_facts
from kgem.answer.judgement import Judgements
from kgem.answer.missing import ScoredFacts, doubtful_facts, missing_facts
from kgem.answer.modes import AUTO, MODES, ModeScorer
from kgem.answer.predict import Prediction, Predictions, Query
from kgem.answer.proposals import Decided, Ranker
from kgem.answer.similar import Neighbours, find_similar
from kgem.answer.strengths import SymbolStrengths
from kgem.config import Config
from kgem.data.dataset import SPLITS, Dataset
from kgem.errors import InputError
from kgem.evaluate.averaging import AverageScorer, BlendScorer
from kgem.evaluate.blocks import MEMORY, OnProgress, Scorer, TableScorer
from kgem.evaluate.metrics import Evaluation, breakdown
from kgem.evaluate.ranking import rank
from kgem.evaluate.temperature import Temperature
from kgem.evaluate.validation import pick_facts
from kgem.files.store import Store, read_store, write_store
from kgem.model.embeddings import Embeddings
from kgem.model.posterior import Posterior
from kgem.model.prior import Strengths
from kgem.tables import Bar, draw_table

__all__ = ["Model", "affordable_samples", "load"]

SAMPLES, FEWEST_SAMPLES = 20, 4  # of q that answers are averaged over
SAMPLE_BYTES = 2**30  # what they may take together, unless that were fewer than FEWEST_SAMPLES
STREAM = 2**40  # keeps the seeds of these samples apart from those of fits


def affordable_samples(posterior: Posterior) -> int:
    """How many samples of q are kept: 20, or fewer where the tables are large."""
    means = (posterior.entities.mean, posterior.relations.mean)
    each = sum(table.numel() * table.element_size() for table in means)
    return max(FEWEST_SAMPLES, min(SAMPLES, SAMPLE_BYTES // each))


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A fitted model. Every `mode` is one of MODES, or auto: the one that validation chose."""

    data: Dataset
    config: Config
    point: Embeddings
    posterior: Posterior
    learned: Strengths
    mode: str  # what `auto` stands for
    validation: Mapping[str, float] = field(default_factory=dict)  # filtered MRR by mode; none without validation
    temperatures: Mapping[str, Temperature] = field(default_factory=dict)  # by mode, fitted on validation
    learned_judge: Judge | None = None  # of mode `auto`; old models, and those without validation, have none
    n_samples: int = SAMPLES
    ranker: Ranker | None = None  # of proposals in mode `auto`, learned from validation
    decided: Decided = field(default_factory=Decided.none)  # proposals that people decided about, in earlier models
    rejected: tuple[tuple[str, str, str], ...] = ()  # proposals that people rejected: they do not come again
    metrics: Mapping[str, Any] = field(default_factory=dict)  # whatever was measured, for JSON
    provenance: Mapping[str, Any] = field(default_factory=dict)  # of data and fit, for JSON

    @property
    def unfinished(self) -> tuple[str, ...]:
        """The phases that its fit had not come to the end of, if it was made of what was there."""
        return tuple(self.provenance.get("unfinished", ()))

    def resolve(self, mode: str) -> str:
        """The mode that is meant, `auto` among them."""
        if mode == AUTO:
            return self.mode
        if mode not in MODES:
            raise InputError(f"no prediction mode is called {mode!r}", remedy=f"one of {AUTO}, {', '.join(MODES)}")
        return mode

    def temperature(self, mode: str = AUTO) -> Temperature:
        """What scores of a mode are divided by, so that their softmax is calibrated; `mode_scorer` asks it for each."""
        return self.temperatures.get(self.resolve(mode), Temperature())

    def tables(self, mode: str = AUTO) -> Embeddings:
        """The tables of a mode; `bayes` and `blend` have none: q's means stand for the one, `point` for the other."""
        return self.point if self.resolve(mode) in ("point", "blend") else self.mean

    def scorer(self, mode: str = AUTO) -> Scorer:
        """What ranks and calibrates: logits, or log probabilities in mode bayes."""
        chosen = self.resolve(mode)
        if chosen == "bayes":
            return AverageScorer(self.samples)
        return BlendScorer([self.point, self.mean]) if chosen == "blend" else TableScorer(self.tables(chosen))

    def mode_scorer(self, mode: str = AUTO) -> ModeScorer:
        """A mode with all that is needed to answer in it."""
        name = self.resolve(mode)
        return ModeScorer(
            name,
            self.candidates,
            self.tables(name),
            self.scorer(name),
            self.temperature(name),
            sample_scorers=lambda: [TableScorer(sample) for sample in self.samples],
            ranker=self.ranker if name == self.mode else None,
        )

    @cached_property
    def mean(self) -> Embeddings:
        """The means of q as a model."""
        return self.point.with_tables(self.posterior.entities.mean, self.posterior.relations.mean)

    @cached_property
    def samples(self) -> list[Embeddings]:
        """Draws from q, the same ones for every answer: made once, when first needed."""
        generator = torch.Generator(self.point.entities.device).manual_seed(STREAM + self.config.seed)
        tables = (self.posterior.sample(generator) for _ in range(self.n_samples))
        # Column by column in memory: one query against all entities is then nearly three times as fast.
        return [self.point.with_tables(entities.T.contiguous().T, relations) for entities, relations in tables]

    @cached_property
    def candidates(self) -> Candidates:
        """Who may answer questions about this graph."""
        return Candidates(self.data, self.data.ids(filter(self.data.knows, self.rejected)))

    @cached_property
    def strengths(self) -> SymbolStrengths:
        """The learned strengths by label."""
        return SymbolStrengths.of(self.learned, self.data, self.point.n_own)

    def evaluate(
        self,
        split: str = "test",
        mode: str = AUTO,
        *,
        filtered: bool = True,
        most: int | None = None,
        memory: int = MEMORY,
        progress: OnProgress | None = None,
    ) -> Evaluation:
        """Ranks of a split's facts, from both sides, as figures.

        Filtered ranks leave out the other known answers, raw ones do not. `most` is how many questions are ranked, at
        random and each against all entities; without it all are, and `is_sample` of the result says which. `memory` is
        the most that the ranking may use beside the model, in bytes.
        """
        facts = self.data.split(split)
        if not len(facts):
            raise InputError(
                f"{self.data.name} has no facts in {split}", remedy="evaluate another split, or fit a graph that has it"
            )
        scorer = self.scorer(mode)
        known = self.data.filter_index if filtered else None
        asked = self.data.reciprocal(facts)
        available = len(asked)
        if most is not None:
            asked = pick_facts(asked, most, self.config.seed)
        ranks = rank(scorer, asked, known, memory=memory, on_progress=progress)
        return breakdown(ranks, self.data, available)

    def predict(
        self,
        head: str | None = None,
        relation: str | None = None,
        tail: str | None = None,
        top: int = 10,
        new_only: bool = False,
        mode: str = AUTO,
        uncertainty: bool = True,
    ) -> Prediction:
        """The most probable answers to the one of the three that is not given."""
        query = Query(head, relation, tail)
        return self.predict_many([query], top, new_only, mode, uncertainty)[0]

    def predict_many(
        self,
        queries: Sequence[Query],
        top: int = 10,
        new_only: bool = False,
        mode: str = AUTO,
        uncertainty: bool = True,
    ) -> Predictions:
        """The answers to many questions at once."""
        return predict.predict_many(self.mode_scorer(mode), queries, top=top, new_only=new_only, ranges=uncertainty)

    def judge(
        self,
        facts: Iterable[Sequence[str]],
        mode: str = AUTO,
        negatives: Iterable[Sequence[str]] | None = None,
        *,
        uncertainty: bool = False,
        memory: int = MEMORY,
        progress: OnProgress | None = None,
    ) -> Judgements:
        """How credible each fact is (head, relation, tail), in the given order and as they come.

        `negatives` are facts that are wrong, to learn from instead of those that the judge makes. `uncertainty` asks
        for the range of the chance over samples of q, which takes as many times as long. A fact with a label that the
        graph does not have is not judged, and its `note` says why.
        """
        scorer = self.mode_scorer(mode)
        judge = self.learn_judge(mode, negatives)
        total = len(facts) if isinstance(facts, Sequence) else 0
        return Judgements(
            judge_facts(judge, scorer, facts, ranges=uncertainty, memory=memory, on_progress=progress, total=total)
        )

    def learn_judge(self, mode: str = AUTO, negatives: Iterable[Sequence[str]] | None = None) -> Judge:
        """The judge of a mode: as it was learned with the fit, or anew."""
        if negatives is None and self.learned_judge is not None and self.learned_judge.mode == self.resolve(mode):
            return self.learned_judge
        wrong = None if negatives is None else encode_known(self.data, negatives)
        if wrong is not None and len(wrong) < FEWEST:
            raise InputError(
                f"too few wrong facts to learn from: the graph has the labels of {len(wrong):,}",
                where="negatives",
                remedy=f"give {FEWEST} different ones or more; without any, it makes its own",
            )
        judge = Judge.learn(self.mode_scorer(mode), wrong, seed=self.config.seed)
        if judge is None and len(self.data.valid) >= FEWEST:
            raise InputError(
                "too few plausible mistakes can be made of its validation facts to learn from",
                where=self.data.name,
                remedy=f"give {FEWEST} wrong facts or more (--negatives)",
            )
        if judge is None:
            raise InputError(
                f"too few validation facts to learn from: {len(self.data.valid):,}",
                where=self.data.name,
                remedy=f"it takes {FEWEST}; fit the graph with more facts for validation",
            )
        return judge

    def find(self, text: str, top: int = 20) -> FoundSymbols:
        """Entities and relations by a part of their label or name, the most frequent of each first."""
        return find_symbols(self.data, text, top)

    def similar(self, entity: str, top: int = 10, mode: str = AUTO) -> Neighbours:
        """The entities whose vectors point the same way."""
        return find_similar(self.mode_scorer(mode), entity, top)

    def missing_facts(
        self,
        top: int = 1000,
        relations: Sequence[str] | None = None,
        mode: str = AUTO,
        *,
        about: Sequence[str] | None = None,
        all_values: bool = False,
        seconds: float | None = None,
        memory: int = MEMORY,
        progress: OnProgress | None = None,
    ) -> ScoredFacts:
        """Facts that the graph may lack, most credible first; with `all_values` also those against its rules.

        After so many `seconds` no further questions are asked; `progress` says how many of all have been.
        """
        return missing_facts(
            self.mode_scorer(mode),
            top,
            relations,
            about=about,
            all_values=all_values,
            seconds=seconds,
            memory=memory,
            on_progress=progress,
        )

    def doubtful_facts(
        self,
        top: int = 100,
        splits: Sequence[str] = SPLITS,
        mode: str = AUTO,
        *,
        relations: Sequence[str] | None = None,
        memory: int = MEMORY,
        progress: OnProgress | None = None,
    ) -> ScoredFacts:
        """The least credible facts that the graph has."""
        judge = self.learned_judge
        return doubtful_facts(
            self.mode_scorer(mode),
            top,
            splits,
            judge=judge if judge is not None and judge.mode == self.resolve(mode) else None,
            relations=relations,
            memory=memory,
            on_progress=progress,
        )

    def save(self, folder: str | Path, force: bool = False) -> None:
        """Write the model into a folder, whole or not at all; one that is there is replaced only with `force`."""
        artifact.check_overwriting(Path(folder), force)
        tensors = artifact.table_tensors(self.point, self.posterior, self.learned) | artifact.graph_tensors(self.data)
        graph = artifact.graph_documents(self.data)
        document = {
            "config": self.config.model_dump(mode="json"),
            "mode": self.mode,
            "validation": dict(self.validation),
            "temperatures": {mode: temperature.to_dict() for mode, temperature in self.temperatures.items()},
            **({} if self.learned_judge is None else {"judge": self.learned_judge.to_dict()}),
            "n_samples": self.n_samples,
            "proposals": {
                "ranker": None if self.ranker is None else self.ranker.to_dict(),
                "decided": self.decided.to_dict(),
                "rejected": [list(fact) for fact in self.rejected],
            },
            "metrics": dict(self.metrics),
            "provenance": dict(self.provenance),
            "dataset": graph["dataset"],
            "versions": artifact.versions(),
        }
        documents = {"model": document, "vocabulary": graph["vocabulary"]}
        write_store(Path(folder), tensors, documents, kind=artifact.KIND, version=artifact.VERSION)

    def __repr__(self) -> str:
        model = self.config.model
        return f"<Model {model.score}, K={model.dim}, of {self.data.name}: mode {self.mode}>"

    def _repr_html_(self) -> str:
        config, figures = self.config.model, {}
        for split in ("valid", "test"):
            if "overall" in self.metrics.get(split, {}):
                figures[f"{split} MRR"] = float(self.metrics[split]["overall"]["mrr"])
        figures |= {f"valid MRR in mode {mode}": mrr for mode, mrr in self.validation.items()}
        title = f"{config.score}, K = {config.dim}, of {self.data.name}; answers in mode {self.mode}"
        return draw_table(title, ("", "", ""), ((name, Bar(x), x) for name, x in figures.items()), note=repr(self.data))


def load(folder: str | Path, device: str | torch.device = "cpu") -> Model:
    """The model in a folder that `save` wrote, or in a run folder; all of it is checked before any is used."""
    place = artifact.find_model(Path(folder))
    store = read_store(place, kind=artifact.KIND, version=artifact.VERSION)
    with artifact.explain_damage(place):
        return _to_model(store, place, torch.device(device))


def _to_model(store: Store, place: Path, device: torch.device) -> Model:
    document = store.documents["model"]
    config = Config.model_validate_json(json.dumps(document["config"]))
    data = artifact.read_graph(store, document["dataset"])
    point, posterior, learned = artifact.read_tables(store, place, data, config, device)
    if document["mode"] not in MODES or int(document["n_samples"]) < 1:
        raise ValueError(f"mode {document['mode']!r}, {document['n_samples']} samples")
    proposals = document.get("proposals", {})  # none in models of version 0.1
    judge = document.get("judge")
    return Model(
        data=data,
        config=config,
        point=point,
        posterior=posterior,
        learned=learned,
        mode=document["mode"],
        validation={str(mode): float(mrr) for mode, mrr in document["validation"].items()},
        temperatures={str(mode): Temperature.from_dict(t) for mode, t in document["temperatures"].items()},
        learned_judge=None if judge is None else Judge.from_dict(judge, data.n_relations),
        n_samples=int(document["n_samples"]),
        ranker=Ranker.from_dict(proposals["ranker"], data.n_relations) if proposals.get("ranker") else None,
        decided=Decided.from_dict(proposals.get("decided", {})),
        rejected=tuple((str(h), str(r), str(t)) for h, r, t in proposals.get("rejected", ())),
        metrics=dict(document["metrics"]),
        provenance=dict(document["provenance"]),
    )
