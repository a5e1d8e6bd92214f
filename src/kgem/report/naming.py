"""What a report shows, by the names of symbols: every label of it goes through here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kgem.answer.missing import ScoredFact
from kgem.answer.predict import Query
from kgem.data.dataset import Dataset
from kgem.evaluate.metrics import Evaluation
from kgem.report.examples import Example

__all__ = ["name_evaluation", "name_examples", "name_facts"]


def name_facts(data: Dataset, facts: Sequence[ScoredFact]) -> list[ScoredFact]:
    """Facts, and those that they are like."""
    named = []
    for fact in facts:
        head, relation, tail = data.show((fact.head, fact.relation, fact.tail))
        like = tuple(map(data.show, fact.like))
        named.append(replace(fact, head=head, relation=relation, tail=tail, like=like))
    return named


def name_examples(data: Dataset, examples: Sequence[Example]) -> list[Example]:
    """Questions for a tail, with their answers."""
    show, named = data.entities.show, []
    for example in examples:
        head, relation, _ = example.prediction.query
        query = Query(show(str(head)), data.relations.show(str(relation)), None)
        answers = [replace(answer, label=show(answer.label)) for answer in example.answers]
        prediction = replace(example.prediction, query=query)
        named.append(replace(example, prediction=prediction, answers=answers, tail=show(example.tail)))
    return named


def name_evaluation(data: Dataset, evaluation: Evaluation) -> Evaluation:
    """Figures, those of relations by their names."""
    return replace(evaluation, by_relation={data.relations.show(r): each for r, each in evaluation.by_relation.items()})
