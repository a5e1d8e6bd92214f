"""Is this fact true? A judge that learns from validation facts and wrong ones, and what it says about any fact.

The judge goes by what is seen of a fact from both sides (`features`), by how well its entities are known and connected,
and by its relation. Right examples are validation facts, which no table was fitted to. Wrong ones are given, and then a
fact is held against each example (`cases`); or it makes them itself, for a logistic model: for each validation fact and
side one of the first unknown answers of the mode, and two of the entities that have been in that role, drawn alike and
by frequency. Test facts are never examples; what they have is no wrong example either. Right and wrong examples weigh
the same: a chance of 50 % is that of a fact which is as much like the ones as like the others.

The chance is what training facts say, as when the judge learned. (With validation facts among the known ones, which it
has not seen so, it errs more: 16.6 % instead of 14.8 % on CoDEx-S.) Ranks, and what speaks against a fact, go by all
facts of the graph. A fact that the graph has is looked at as if it were not there; but tables were fitted to those of
training, which look more credible than they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import torch

from kgem.answer.cases import Cases
from kgem.answer.features import (
    FEATURES,
    SIDES,
    FactViews,
    Floats,
    Known,
    explain_against,
    normalise,
    view_facts,
)
from kgem.answer.judgement import Judgement
from kgem.answer.labels import LabelSearch, explain, means
from kgem.answer.logistic import Logistic, weigh_alike
from kgem.answer.modes import ModeScorer
from kgem.answer.proposals import to_plain
from kgem.data.dataset import Dataset, LongArray, Vocabulary
from kgem.errors import InputError
from kgem.evaluate.blocks import MEMORY, Blocks, Ints, OnProgress
from kgem.evaluate.validation import pick_facts

__all__ = [
    "Fact",
    "Judge",
    "Judgement",
    "Pairs",
    "encode_known",
    "judge_facts",
    "make_negatives",
    "view_features",
]

JUDGED = (
    *FEATURES,
    "log(1 + facts of the head)",
    "log(1 + facts of the tail)",
    "another relation leads from head to tail",
    "a relation leads from tail to head",
)
FEWEST = 10  # right and wrong examples to learn from, of each
MOST, CELLS = 4096, 2**27  # validation facts that it learns from, or fewer: as many as have so many scores together
LEAST = 256  # but not fewer than these
CASES = 2048  # validation facts, and given wrong ones, that facts are held against at most
FIRST = 20  # answers of the mode among which one is drawn
BLOCK = 8192  # facts that are judged at a time
SUGGESTED = 1000  # different unknown labels that get suggestions
INTERVAL = (0.05, 0.95)  # quantiles over samples of q
UNLEARNED = 10  # better answers from either side, from which on a training fact counts as not learned
LOPSIDED = 4  # times as many facts in one role as in the other

Fact = tuple[str, str, str]


@dataclass(frozen=True, eq=False)
class Pairs:
    """How often known facts have an entity, and lead from one to another."""

    degrees: LongArray  # (N_e,)
    pairs: LongArray  # h * N_e + t, ascending, one for each relation
    known: Known

    @classmethod
    def of(cls, known: Known, n_entities: int) -> Pairs:
        index = known.index
        heads = np.repeat(index.heads, index.counts).astype(np.int64)
        plain = np.repeat(index.relations, index.counts) < known.n_relations
        tails = index.tails.astype(np.int64)
        pairs = np.sort(heads[plain] * n_entities + tails[plain])
        return cls(np.bincount(heads, minlength=n_entities), pairs, known)

    def features(self, facts: Ints) -> Floats:
        """The last four of JUDGED: (n, 4)."""
        heads, _, tails = facts.T.astype(np.int64)
        mine = self.known.has(facts).astype(np.int64)  # looked at as if it were not there
        loop = heads == tails
        n = len(self.degrees)
        forth = self._count(heads * n + tails) - mine
        back = self._count(tails * n + heads) - mine * loop
        degrees = [self.degrees[entities] - mine * (1 + loop) for entities in (heads, tails)]
        columns: Floats = np.stack([*map(np.log1p, degrees), forth > 0, back > 0], axis=1, dtype=np.float64)
        return columns

    def _count(self, keys: LongArray) -> LongArray:
        count: LongArray = np.searchsorted(self.pairs, keys, side="right") - np.searchsorted(self.pairs, keys)
        return count


def view_features(views: FactViews, pairs: Pairs) -> Floats:
    """One row for each fact, a column for each of JUDGED."""
    columns: Floats = np.concatenate([views.features(), pairs.features(views.facts)], axis=1)
    return columns


@dataclass(frozen=True, eq=False)
class Judge:
    """How often facts like these are right."""

    mode: str  # whose views it has learned from
    classifier: Logistic | Cases  # the latter if wrong facts were given
    right: int  # examples
    wrong: int

    def chance(self, features: Floats, facts: LongArray) -> Floats:
        """Of facts (n, 3) with features (n, F): (n,)."""
        if isinstance(self.classifier, Cases):
            return self.classifier.chance(features, facts)
        return self.classifier.chance(features, facts[:, 1])

    def chances(self, mode: ModeScorer, facts: Ints, *, memory: int = MEMORY) -> Floats:
        """What training facts say about facts (n, 3), as when it learned: (n,)."""
        known = Known.training(mode.data)
        features = view_features(view_facts(mode, facts, known, memory=memory), Pairs.of(known, mode.data.n_entities))
        return self.chance(features, facts.astype(np.int64))

    @classmethod
    def learn(
        cls, mode: ModeScorer, negatives: Ints | None = None, *, seed: int = 0, memory: int = MEMORY
    ) -> Judge | None:
        """From validation facts and wrong ones (n, 3), given or made; None if there are too few."""
        data = mode.data
        affordable, given = max(LEAST, min(MOST, CELLS // data.n_entities)), negatives is not None
        if negatives is None:
            right = pick_facts(data.valid, affordable, seed)
            negatives = make_negatives(mode, right, np.random.default_rng(seed), memory=memory)
        else:
            right, negatives = (pick_facts(facts.astype(np.int32), CASES, seed) for facts in (data.valid, negatives))
        if min(len(right), len(negatives)) < FEWEST:
            return None
        known = Known.training(data)
        facts = np.concatenate([right, negatives]).astype(np.int64)
        features = view_features(view_facts(mode, facts, known, memory=memory), Pairs.of(known, data.n_entities))
        is_right = np.arange(len(facts)) < len(right)
        weight = weigh_alike(is_right)
        classifier = (
            Cases.fit(features, facts, is_right, weight)
            if given
            else Logistic.fit(features, is_right, facts[:, 1], data.n_relations, weight=weight)
        )
        return cls(mode.name, classifier, len(right), len(negatives))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        counts = {"mode": self.mode, "right": self.right, "wrong": self.wrong}
        kind = "cases" if isinstance(self.classifier, Cases) else "logistic"
        return {**counts, "kind": kind, "features": list(JUDGED), **self.classifier.to_dict()}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], n_relations: int) -> Judge | None:
        """None if it knows other features than we do: it is then learned anew when it is needed."""
        if list(document["features"]) != list(JUDGED):
            return None
        classifier = (
            Cases.from_dict(document, len(JUDGED))
            if document.get("kind") == "cases"
            else Logistic.from_dict(document, len(JUDGED), n_relations)
        )
        return cls(str(document["mode"]), classifier, int(document["right"]), int(document["wrong"]))


@torch.no_grad()
def make_negatives(
    mode: ModeScorer, facts: Ints, rng: np.random.Generator, *, hard: bool = True, memory: int = MEMORY
) -> LongArray:
    """Plausible facts that no split has, for each of these (n, 3) and side one with an entity of the right role.

    With `hard` there is also one with a first unknown answer of the mode, and one with an entity that is in the role as
    often as training has it so: else a frequent answer with a bad rank would be among right examples alone.
    """
    data = mode.data
    asked = data.reciprocal(facts.astype(np.int32)).astype(np.int64)  # (2 n, 3)
    drawn, everything = [_draw_in_role(data, asked, rng)], Known.everything(data)
    if hard:
        drawn.append(_draw_in_role(data, asked, rng, by_frequency=True))
    for block in Blocks(mode.scorer, asked if hard else asked[:0], memory, gather=False, whole=True):
        ((_, scores),) = block.scores()
        normalise(mode, block, scores, everything)
        best, tails = scores.topk(min(FIRST, scores.shape[1]), dim=1)
        column = torch.from_numpy(rng.integers(best.shape[1], size=len(best))).to(best.device)[:, None]
        there = torch.isfinite(best.gather(1, column))[:, 0].cpu().numpy()
        tail = tails.gather(1, column).cpu().numpy()
        drawn.append(np.concatenate([block.queries, tail], axis=1)[there])
    made = np.concatenate(drawn)
    plain = np.unique(to_plain(data, made), axis=0)
    return plain[~everything.has(plain)]


def _draw_in_role(
    data: Dataset, asked: LongArray, rng: np.random.Generator, *, by_frequency: bool = False
) -> LongArray:
    """Each question with an entity that training has as an answer to its relation: any of them, or by how often."""
    index, n = data.query_index, data.n_relations
    roles = (index.relations + n) % (2 * n)  # who asks r^-1 is an answer to r
    order = np.argsort(roles, kind="stable")
    if by_frequency:
        order = np.repeat(order, index.counts[order])
    starts = np.searchsorted(roles[order], np.arange(2 * n + 1))
    sizes = np.diff(starts)[asked[:, 1]]
    asked, sizes = asked[sizes > 0], sizes[sizes > 0]
    places = starts[asked[:, 1]] + rng.integers(sizes)
    made: LongArray = np.stack([asked[:, 0], asked[:, 1], index.heads[order][places]], axis=1).astype(np.int64)
    others: LongArray = made[made[:, 0] != made[:, 2]]
    return others


def encode_known(data: Dataset, facts: Iterable[Sequence[str]]) -> LongArray:
    """The different facts whose labels the graph has, as ids: (n, 3)."""
    ids = (tuple(found) for found in (_find_ids(data, fact) for fact in map(_check_fact, facts)) if None not in found)
    return np.unique(np.array(list(ids), dtype=np.int64).reshape(-1, 3), axis=0)


def _find_ids(data: Dataset, fact: Fact) -> list[int | None]:
    """The ids of the three symbols that a fact names; None for one that is unknown, or not one symbol."""
    columns = zip((data.entities, data.relations, data.entities), fact, strict=True)
    found = (means(vocabulary, text) for vocabulary, text in columns)
    return [ids[0] if len(ids) == 1 else None for ids in found]


def judge_facts(
    judge: Judge,
    mode: ModeScorer,
    facts: Iterable[Sequence[str]],
    *,
    ranges: bool = False,
    memory: int = MEMORY,
    on_progress: OnProgress | None = None,
    total: int = 0,
) -> Iterator[Judgement]:
    """Each fact (labels) judged, in the given order, a block at a time; one with an unknown label gets a note.

    `ranges` also asks every sample of q, which takes as many times as long. on_progress hears (facts done, total).
    """
    court = _Court(judge, mode, ranges, memory)
    rest, done = iter(facts), 0
    while block := [_check_fact(fact) for fact in islice(rest, BLOCK)]:
        yield from court.judge(block)
        done += len(block)
        if on_progress is not None:
            on_progress(done, max(total, done))


def _check_fact(fact: Sequence[str]) -> Fact:
    if isinstance(fact, str) or len(fact) != 3:
        raise InputError(f"{fact!r} is not a fact", remedy="give head, relation and tail")
    head, relation, tail = fact
    return str(head), str(relation), str(tail)


class _Court:
    """Judges blocks of facts; what depends on the graph alone is made once."""

    def __init__(self, judge: Judge, mode: ModeScorer, ranges: bool, memory: int) -> None:
        data = mode.data
        self.judge_of, self.mode, self.memory, self.data = judge, mode, memory, data
        self.known = Known.everything(data)
        self.fitted = Known.training(data)
        self.pairs = Pairs.of(self.fitted, data.n_entities)
        self.samples = mode.as_samples() if ranges else []
        self.suggested: dict[tuple[str, str], str] = {}

    def judge(self, block: Sequence[Fact]) -> Iterator[Judgement]:
        found = [_find_ids(self.data, fact) for fact in block]
        judged = iter(self._judge(np.array([ids for ids in found if None not in ids], dtype=np.int64)))
        for fact, ids in zip(block, found, strict=True):
            yield Judgement(*fact, note=self._explain(fact, ids)) if None in ids else next(judged)

    def _judge(self, ids: LongArray) -> list[Judgement]:
        if not len(ids):
            return []
        chances = self._chances(self.mode, ids)
        low, high = self._range(ids, chances)
        slips = self._loops_apart(ids)
        views = view_facts(self.mode, ids, self.known, memory=self.memory)
        splits = self._splits(ids)
        return [
            Judgement(
                *self.data.label(fact),
                chance=float(chances[i]),
                low=low[i],
                high=high[i],
                rank_tail=int(views.better[i, 0]) + 1,
                rank_head=int(views.better[i, 1]) + 1,
                against=(
                    *slips.get(i, ()),
                    *self._excuse(views, i, splits[i]),
                    *_speak_against(self.data, self.known, views, i),
                ),
                known=splits[i],
            )
            for i, fact in enumerate(ids)
        ]

    def _excuse(self, views: FactViews, place: int, split: str | None) -> Iterator[str]:
        """Why a fact that the tables were fitted to has ranks as if they were not."""
        if split != "train" or views.better[place].min() < UNLEARNED:
            return
        yield "the model was fitted to this fact and has not learned it: the chance goes by what else is known"
        for side, entity in enumerate(views.facts[place, [0, 2]].tolist()):
            roles = self._roles[:, entity]  # as a head, as a tail
            if roles[1 - side] >= LOPSIDED * roles[side]:
                name = self.data.entities.show(self.data.entities[entity])
                yield f"{name} has one vector for {roles[0]:,} facts as head and {roles[1]:,} as tail"

    @cached_property
    def _roles(self) -> LongArray:
        """How many training facts have each entity as a head, and as a tail: (2, N_e)."""
        heads, _, tails = self.data.train.T
        return np.stack([np.bincount(side, minlength=self.data.n_entities) for side in (heads, tails)])

    def _loops_apart(self, ids: LongArray) -> dict[int, list[str]]:
        """Of facts from an entity to itself that are no candidates (`Candidates`): why, by their places."""
        data, found = self.data, {}
        for place in self.mode.candidates.are_slips(ids).nonzero()[0].tolist():
            relation = int(ids[place, 1])
            name, n = data.relations.show(data.relations[relation]), int(self.mode.candidates.loop_counts[relation])
            total = int(data.relation_counts[relation])
            found[place] = [f"{n:,} of the {total:,} training facts of {name} lead from an entity to itself"]
        return found

    def _chances(self, mode: ModeScorer, ids: LongArray) -> Floats:
        """Those of the judge, but for facts from an entity to itself: it has seen neither right nor wrong ones.

        Their chance is at most the share of such facts in the training facts of the relation (Laplace's rule).
        """
        chances, slips = self._learned_chances(mode, ids), mode.candidates.are_slips(ids)
        loops, counts = (each[ids[:, 1]] for each in (mode.candidates.loop_counts, self.data.relation_counts))
        return np.where(slips, np.minimum(chances, (loops + 1) / (counts + 2)), chances)

    def _learned_chances(self, mode: ModeScorer, ids: LongArray) -> Floats:
        views = view_facts(mode, ids, self.fitted, memory=self.memory)
        return self.judge_of.chance(view_features(views, self.pairs), ids)

    def _range(self, ids: LongArray, chances: Floats) -> tuple[list[Any], list[Any]]:
        """The ends of the interval of the chance over samples of q, which has the chance itself in it."""
        if not self.samples:
            return [None] * len(ids), [None] * len(ids)
        low, high = np.quantile([self._chances(sample, ids) for sample in self.samples], INTERVAL, axis=0)
        return np.minimum(low, chances).tolist(), np.maximum(high, chances).tolist()

    def _splits(self, ids: LongArray) -> list[str | None]:
        found: list[str | None] = [None] * len(ids)
        for split, index in reversed(self.mode.candidates.split_indexes.items()):
            for place in np.flatnonzero(Known(index, self.data.n_relations).has(ids)).tolist():
                found[place] = split
        return found

    def _explain(self, fact: Fact, ids: Sequence[int | None]) -> str:
        """What is wrong with the labels of a fact."""
        searches = (self._entities, self._relations, self._entities)
        wrong = [self._suggest(search, text) for search, text, i in zip(searches, fact, ids, strict=True) if i is None]
        return "; ".join(dict.fromkeys(wrong))

    @cached_property
    def _entities(self) -> tuple[Vocabulary, LabelSearch]:
        return self.data.entities, LabelSearch.of(self.data.entities, self.data.entity_counts)

    @cached_property
    def _relations(self) -> tuple[Vocabulary, LabelSearch]:
        return self.data.relations, LabelSearch.of(self.data.relations, self.data.relation_counts)

    def _suggest(self, where: tuple[Vocabulary, LabelSearch], label: str) -> str:
        vocabulary, search = where
        if (vocabulary.kind, label) not in self.suggested and len(self.suggested) < SUGGESTED:
            error = explain(vocabulary, label, search.counts, search)
            self.suggested[vocabulary.kind, label] = f"{error.what}: {error.remedy}"
        return self.suggested.get((vocabulary.kind, label), f"no {vocabulary.kind} is called {label!r}")


def _speak_against(data: Dataset, known: Known, views: FactViews, place: int) -> Iterator[str]:
    """Sentences about what speaks against a fact, the strongest kind first."""
    yield from explain_against(data, known, views, place)
    for side, answer in enumerate(SIDES):
        if n := int(views.better[place, side]):
            first = data.entities.show(data.entities[int(views.first[place, side])])
            yield f"{n:,} better {answer}s, first of them {first}" if n > 1 else f"a better {answer}: {first}"
