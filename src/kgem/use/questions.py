"""Good first questions to a model: about facts it was not shown, of many relations, that it answers well."""

from __future__ import annotations

import numpy as np

from kgem.data.dataset import Dataset, IntArray
from kgem.evaluate.ranking import rank
from kgem.use.fitted import Fitted
from kgem.use.predict import Query

__all__ = ["good_questions"]

LOOKED_AT = 200  # facts that are ranked to choose from
WELL = 3  # up to this rank a fact is answered well


def good_questions(model: Fitted, most: int = 6) -> list[Query]:
    """At most so many questions: the well answered first, one for each relation as long as there are enough."""
    facts = _some_facts(model.data)
    ranks = rank(model.scorer(), facts, model.data.filter_index).pessimistic
    counts = model.data.entity_counts[facts[:, 0]]
    order = np.lexsort((-counts, ranks > WELL))  # of the well answered those about what is known best
    asked = facts[order, :2]
    _, first = np.unique(asked[:, 1] % model.data.n_relations, return_index=True)
    rest = np.setdiff1d(np.arange(len(asked)), first)
    chosen = asked[np.concatenate([np.sort(first), rest])]
    different = np.sort(np.unique(chosen, axis=0, return_index=True)[1])
    return [_query(model.data, *chosen[place].tolist()) for place in different[:most]]


def _some_facts(data: Dataset) -> IntArray:
    """Some facts of the best split there is for this, test first, from both sides: (n, 3) with reciprocal ids."""
    split = next(facts for facts in (data.test, data.valid, data.train) if len(facts))
    facts = data.reciprocal(split)
    places = np.random.default_rng(0).permutation(len(facts))[:LOOKED_AT]
    chosen: IntArray = facts[np.sort(places)]
    return chosen


def _query(data: Dataset, entity: int, relation: int) -> Query:
    if relation < data.n_relations:
        return Query(data.entities[entity], data.relations[relation], None)
    return Query(None, data.relations[relation - data.n_relations], data.entities[entity])
