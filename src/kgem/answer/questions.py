"""Good first questions to a model: about facts it was not shown, of many relations, that it answers well."""

from __future__ import annotations

import numpy as np

from kgem.answer.predict import Query
from kgem.data.dataset import Dataset, IntArray
from kgem.evaluate.blocks import Scorer
from kgem.evaluate.ranking import rank

__all__ = ["good_questions"]

LOOKED_AT = 200  # facts that are ranked to choose from
WELL = 3  # up to this rank a fact is answered well
READABLE = 30  # right answers


def good_questions(scorer: Scorer, data: Dataset, most: int = 6) -> list[Query]:
    """At most so many questions: the well answered first, one for each relation as long as there are enough.

    Two of three ask for the tail; those with a list of right answers that one can read come before the others.
    """
    facts = _choose_facts(data)
    ranks = rank(scorer, facts, data.filter_index).pessimistic
    places = data.filter_index.find(facts[:, 0], facts[:, 1])
    long = data.filter_index.counts[places] > READABLE
    order = np.lexsort((-data.entity_counts[facts[:, 0]], long, ranks > WELL))
    asked = facts[order, :2]
    asked = asked[np.sort(np.unique(asked, axis=0, return_index=True)[1])]
    backwards = asked[:, 1] >= data.n_relations
    n_heads = max(most // 3, most - int((~backwards).sum()))
    tails, heads = _vary_relations(asked[~backwards])[: most - n_heads], _vary_relations(asked[backwards])
    again = np.isin(heads[:, 1] - data.n_relations, tails[:, 1])
    chosen = np.concatenate([tails, heads[np.argsort(again, kind="stable")][:n_heads]])
    return [_to_query(data, entity, relation) for entity, relation in chosen.tolist()]


def _vary_relations(asked: IntArray) -> IntArray:
    """Questions (n, 2) with the first of each relation before all others."""
    first = np.sort(np.unique(asked[:, 1], return_index=True)[1])
    varied: IntArray = np.concatenate([asked[first], np.delete(asked, first, axis=0)])
    return varied


def _choose_facts(data: Dataset) -> IntArray:
    """Some facts of the best split there is for this, test first, from both sides: (n, 3) with reciprocal ids."""
    split = next(facts for facts in (data.test, data.valid, data.train) if len(facts))
    facts = data.reciprocal(split)
    places = np.random.default_rng(0).permutation(len(facts))[:LOOKED_AT]
    chosen: IntArray = facts[np.sort(places)]
    return chosen


def _to_query(data: Dataset, entity: int, relation: int) -> Query:
    if relation < data.n_relations:
        return Query(data.entities[entity], data.relations[relation], None)
    return Query(None, data.relations[relation - data.n_relations], data.entities[entity])
