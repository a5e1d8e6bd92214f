"""The whole graph at once: the missing facts to propose and the least probable known ones, in bounded memory.

Every fact can be asked from both sides, (h, r, ?) and (?, r, t); the side that speaks more for it counts.

Missing facts are candidates by their share (n + 1) p, where p is the probability that `predict` gives them and n the
number of answers that the question has already: with one more there would be n + 1, and each would get about
1 / (n + 1). They are proposed in the order of how often such candidates were among the facts hidden from training
(proposals.py), or of their share, if there was nothing to learn that from. What would be a second value where the graph
has one as a rule, or gives an entity a role that it never had, is left out unless it is asked for.

As in `predict`, no fact is made from an entity to itself unless training has the relation so often enough.

A known fact competes only with entities that are not known to be right, as in filtered ranks: else each of a
hundred right answers would look improbable. With a judge, known facts are ordered by log((n + 1) p) of both sides
together, each looked at as if it were not known, else by the better of the two filtered probabilities. Of 5 % of the
training facts with a random tail of the right role (K = 50) the former finds more: area under ROC .924 instead of .895
on UMLS, .815 instead of .653 on CoDEx-S. The chance is the judge's. It has learned from facts that no table was fitted
to, and trusts fitted ones too much to order them (.894 and .689); `kgem judge --graph` fits without each fact first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from kgem.answer.features import SIDES, FactViews, Floats, Known, explain_against, nearest_facts, view_facts
from kgem.answer.judge import Judge
from kgem.answer.labels import entity_ids, relation_ids
from kgem.answer.modes import ModeScorer
from kgem.answer.proposals import POOL, find_candidates, to_plain, training_questions
from kgem.data.dataset import SPLITS, Dataset, LongArray
from kgem.errors import InputError
from kgem.evaluate.blocks import MEMORY, OnProgress
from kgem.evaluate.softmax import log_probabilities, split_competitions
from kgem.tables import Bar, Rows

__all__ = ["ScoredFact", "ScoredFacts", "doubtful_facts", "missing_facts"]

MOST_SCORES = 2**40  # questions times entities, of known facts that are looked at: about an hour

Labels = tuple[str, str, str]


@dataclass(frozen=True, repr=False)
class ScoredFact:
    """A fact and how probable it is."""

    head: str
    relation: str
    tail: str
    probability: float
    share: float | None  # of a missing fact: (n + 1) * probability, about 1 for one that is as good as the known ones
    side: str  # from which it is: the probability of the "tail" given the rest, or of the "head"
    known: str | None  # the split that has the fact, or None
    chance: float | None = (
        None  # of a missing fact: how often such candidates were hidden facts; of a known one: judged
    )
    against: tuple[str, ...] = ()  # what speaks against a missing fact
    like: tuple[Labels, ...] = ()  # the known facts that are nearest to a missing one

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def __repr__(self) -> str:
        how = f"probability {self.probability:.3g}" if self.chance is None else f"chance {self.chance:.3g}"
        return f"<ScoredFact {self.head} {self.relation} {self.tail}: {how}>"


class ScoredFacts(Rows[ScoredFact]):
    """Facts that the graph may lack, or that are doubtful in it, in the order that counts."""

    item, one = "facts", "fact"
    schema: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("head", "relation", "tail"), "text"),
        **dict.fromkeys(("chance", "probability", "share"), "number"),
        **dict.fromkeys(("side", "known"), "text"),
        "against": "texts",
        "like": "facts",
    }

    def to_rows(self) -> Iterator[dict[str, Any]]:
        """One row for each fact."""
        return (fact.to_dict() for fact in self)

    def draw_rows(self) -> tuple[Sequence[str], Callable[[ScoredFact], Sequence[Any]]]:
        """The chance, or where there is none the probability, as a bar, and what speaks for a fact and against it."""

        def cells(fact: ScoredFact) -> tuple[Any, ...]:
            why = "; ".join([*fact.against, *(f"as {' '.join(like)}" for like in fact.like[:1])])
            worth, other = (fact.probability,) * 2 if fact.chance is None else (fact.chance, None)
            return fact.head, fact.relation, fact.tail, Bar(worth), fact.chance, other, fact.known, why

        return ("head", "relation", "tail", "", "chance", "probability", "known in", "why"), cells


@torch.no_grad()
def missing_facts(
    mode: ModeScorer,
    top: int = 1000,
    relations: Sequence[str] | None = None,
    *,
    about: Sequence[str] | None = None,
    all_values: bool = False,
    seconds: float | None = None,
    memory: int = MEMORY,
    on_progress: OnProgress | None = None,
) -> ScoredFacts:
    """Facts that no split has, among the answers to all questions that training has; most credible first.

    `relations` narrows it to some, `about` to questions that name one of some entities. `all_values` leaves in what
    breaks a rule of the graph. With `seconds` the questions come in random order, and none is begun after as many.
    Scores are made in blocks of at most about `memory` bytes; on_progress hears (questions done, of all).
    """
    _check_top(top)
    data = mode.data
    queries = training_questions(data)
    if relations is not None:
        queries = queries[np.isin(queries[:, 1] % data.n_relations, relation_ids(data, relations))]
    if about is not None:
        queries = queries[np.isin(queries[:, 0], entity_ids(data, about))]
    if seconds is not None:
        queries = np.random.default_rng(0).permutation(queries)
    known = Known.everything(data)
    most = max(4 * top, POOL if about is None else 0)
    found = find_candidates(mode, known, most, queries, seconds=seconds, memory=memory, on_progress=on_progress)
    found = found[~mode.candidates.is_rejected(found)]
    views = view_facts(mode, found, Known.training(data), known, memory=memory)
    shares = np.where(views.asked_in(queries), views.log_share_of_all, -np.inf)  # (n, 2)
    chances = None if mode.ranker is None else mode.ranker.chance(views.features(), views.facts[:, 1])
    worth = shares.max(1) if chances is None else chances
    allowed = ~views.breaks_a_rule | all_values
    order = np.argsort(-worth, kind="stable")
    chosen = order[allowed[order]][:top]
    told = [None] * len(chosen) if chances is None else chances[chosen].tolist()
    picked = views.take(chosen)
    if mode.temperature.entropy is not None:  # they are told with the probability that `predict` gives them
        picked = view_facts(mode, picked.facts, Known.training(data), known, as_answers=True, memory=memory)
    return ScoredFacts(_to_proposals(mode, picked, shares[chosen].argmax(1), told, known))


@torch.no_grad()
def doubtful_facts(
    mode: ModeScorer,
    top: int = 100,
    splits: Sequence[str] = SPLITS,
    *,
    judge: Judge | None = None,
    relations: Sequence[str] | None = None,
    memory: int = MEMORY,
    on_progress: OnProgress | None = None,
) -> ScoredFacts:
    """The known facts that the model finds least credible, least first; on_progress hears (questions done, of all).

    Facts of training were fitted, those of valid and test were not: `splits` narrows it to some. So does `relations`.
    An error if that would take hours.
    """
    _check_top(top)
    data = mode.data
    known = np.concatenate([data.split(split) for split in splits])
    names = np.repeat(splits, [len(data.split(split)) for split in splits])
    if relations is not None:
        chosen = np.isin(known[:, 1], relation_ids(data, relations))
        known, names = known[chosen], names[chosen]
    if 2 * len(known) * data.n_entities > MOST_SCORES:
        raise InputError(
            f"to look at {len(known):,} known facts beside {data.n_entities:,} entities each would take hours",
            where=data.name,
            remedy="name relations with fewer facts, or splits=('valid', 'test')",
        )
    if judge is not None and len(known):
        views = view_facts(mode, known, Known.everything(data), memory=memory, on_progress=on_progress)
        least = np.argsort(views.log_share.sum(1), kind="stable")[:top]
        known, names, on_progress = known[least], names[least], None
    facts = data.reciprocal(known)
    logs, temperatures = np.empty(len(facts)), mode.temperatures(facts)
    for part in split_competitions(mode.scorer, facts, data.filter_index, memory, on_progress):
        logs[part.places] = log_probabilities(part, temperatures).cpu().numpy()
    sides = logs.reshape(2, -1)  # tail, head
    least = np.argsort(sides.max(axis=0), kind="stable")[:top] if judge is None else np.arange(len(known))
    from_head = sides[:, least].argmax(axis=0)
    asked = facts[least + from_head * len(known)]
    probability = np.exp(sides[:, least].max(axis=0))
    found = _to_facts(data, asked, probability, names[least].tolist())
    if judge is None or not found:
        return ScoredFacts(found)
    chances = judge.chances(mode, known, memory=memory).tolist()
    return ScoredFacts(replace(fact, chance=chance) for fact, chance in zip(found, chances, strict=True))


def _to_facts(data: Dataset, facts: LongArray, probability: Floats, known: Sequence[str | None]) -> list[ScoredFact]:
    """Known facts (n, 3) with reciprocal ids as people read them, in the given order."""
    backwards = facts[:, 1] >= data.n_relations
    return [
        ScoredFact(*data.label(fact), probability=p, share=None, side="head" if back else "tail", known=split)
        for fact, p, back, split in zip(to_plain(data, facts), probability.tolist(), backwards, known, strict=True)
    ]


def _to_proposals(
    mode: ModeScorer, views: FactViews, side: LongArray, chances: Sequence[float | None], known: Known
) -> list[ScoredFact]:
    """Missing facts with what speaks for them, from the side that says more (n,), and against."""
    data = mode.data
    rows = np.arange(len(side))
    probability = np.exp(views.log_probability[rows, side])
    share = np.exp(views.log_share_of_all[rows, side])
    return [
        ScoredFact(
            *data.label(fact),
            probability=float(probability[row]),
            share=float(share[row]),
            side=SIDES[side[row]],
            known=None,
            chance=chances[row],
            against=tuple(explain_against(data, known, views, row)),
            like=tuple(data.label(each) for each in nearest_facts(mode, known, fact)),
        )
        for row, fact in enumerate(views.facts)
    ]


def _check_top(top: int) -> None:
    if top < 1:
        raise InputError(f"cannot list {top} facts", remedy="ask for at least one")
