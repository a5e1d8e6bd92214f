"""What a mode and the graph say about a fact, from both sides: numbers that a small model can learn from.

A fact (h, r, t) answers two questions, (h, r, ?) and (?, r, t). For each side: the probability of the answer, its share
(n + 1) p among the n known answers and itself, how many unknown answers are before it, how many known ones there are
already, how many such questions have, whether they have just one, and whether the answer has been one to this relation.
A fact that is itself among the known ones is looked at as if it were not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kgem.answer.modes import ModeScorer
from kgem.data.dataset import Dataset, IntArray, LongArray
from kgem.data.index import QueryIndex
from kgem.evaluate.blocks import MEMORY, Block, Blocks, Ints, OnProgress, known_cells

__all__ = ["FEATURES", "SIDES", "FactViews", "Known", "explain_against", "nearest_facts", "normalise", "view_facts"]

SIDES = ("tail", "head")  # what is asked for, of a fact

FEATURES = (
    "log share, better side",
    "log share, worse side",
    "log probability of the tail",
    "log probability of the head",
    "log(1 + known tails)",
    "log(1 + known heads)",
    "log of known tails per head",
    "log of known heads per tail",
    "one tail per head, and there is one",
    "one head per tail, and there is one",
    "the tail has been one",
    "the head has been one",
    "log(1 + better unknown tails)",
    "log(1 + better unknown heads)",
)
LEAST = -30.0  # of a logarithm
COMPARED = 2**22  # scores that are compared at a time
FUNCTIONAL, ENOUGH = 0.95, 20  # what makes a rule: the share of cases that keep it, and how many there must be

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
T = TypeVar("T", bound=np.generic)


@dataclass(frozen=True, eq=False)
class Known:
    """Facts that count as known, and what they say about their relations."""

    index: QueryIndex  # from both sides
    n_relations: int

    @classmethod
    def of(cls, data: Dataset, facts: IntArray) -> Known:
        index = QueryIndex.build(data.reciprocal(facts), data.n_entities, 2 * data.n_relations)
        return cls(index, data.n_relations)

    @classmethod
    def training(cls, data: Dataset) -> Known:
        """The facts that tables are fitted to."""
        return cls(data.query_index, data.n_relations)

    @classmethod
    def everything(cls, data: Dataset) -> Known:
        """All facts of all splits."""
        return cls(data.filter_index, data.n_relations)

    def count(self, heads: Ints, relations: Ints) -> LongArray:
        """How many known answers each question has, (b,)."""
        places = self.index.find(heads, relations)
        counts: LongArray = np.where(places >= 0, self.index.counts[places], 0)
        return counts

    def has(self, facts: Ints) -> Bools:
        """Whether each fact (n, 3), with reciprocal ids or not, is known: (n,)."""
        rows, tails = self.index.gather(self.index.find(facts[:, 0], facts[:, 1]))
        found = np.zeros(len(facts), dtype=bool)
        found[rows[tails == facts[rows, 2]]] = True
        return found

    @cached_property
    def questions(self) -> LongArray:
        """How many questions of each relation have an answer, reciprocal relations included: (2 N_r,)."""
        return np.bincount(self.index.relations, minlength=2 * self.n_relations)

    @cached_property
    def answers_per_question(self) -> Floats:
        """On average, of those that have any: (2 N_r,)."""
        answers = np.bincount(self.index.relations, weights=self.index.counts, minlength=2 * self.n_relations)
        return np.maximum(answers, 1) / np.maximum(self.questions, 1)

    @cached_property
    def single(self) -> Floats:
        """The share of a relation's questions that have just one answer: (2 N_r,)."""
        single = np.bincount(self.index.relations, weights=self.index.counts == 1, minlength=2 * self.n_relations)
        return single / np.maximum(self.questions, 1)

    @cached_property
    def closed(self) -> Bools:
        """Relations whose next answer is hardly ever a new one: (2 N_r,).

        The share of new ones is about that of the facts whose answer has no other fact of the relation (Good, 1953).
        """
        once = np.roll(self.single * self.questions, self.n_relations)  # answers to r are who asks r^-1
        facts = self.answers_per_question * self.questions
        rule: Bools = (once <= (1 - FUNCTIONAL) * facts) & (facts >= ENOUGH)
        return rule

    @cached_property
    def functional(self) -> Bools:
        """Relations whose questions have one answer each, as a rule: (2 N_r,)."""
        rule: Bools = (self.single >= FUNCTIONAL) & (self.questions >= ENOUGH)
        return rule


@dataclass(frozen=True, eq=False)
class FactViews:
    """What is seen of facts from both sides; (n, 2) each, first (h, r, ?), then (?, r, t)."""

    facts: LongArray  # (n, 3)
    relations: LongArray  # reciprocal ones for the second side
    log_probability: Floats
    better: LongArray  # unknown answers that the mode puts before it
    first: LongArray  # the unknown answer that the mode puts first; the fact's own, if it is
    known: LongArray  # other answers that are known
    n_per_question: Floats  # on average
    single: Floats  # share of the relation's questions with one answer
    rival: LongArray  # other answers that the rules count, which may know more
    second_value: Bools  # the relation has one answer as a rule, and this question has one
    role_seen: Bools  # the answer has been an answer to this relation, in another fact
    new_role: Bools  # it has not, and answers to this relation have, as a rule

    @property
    def log_share(self) -> Floats:
        """(n + 1) p: about 0 for an answer that is as good as the known ones."""
        return self.log_probability + np.log1p(self.known)

    @property
    def log_share_of_all(self) -> Floats:
        """Likewise, among all answers that the rules count."""
        return self.log_probability + np.log1p(self.rival)

    @property
    def breaks_a_rule(self) -> Bools:
        """Whether a fact would be a second value, or a role never seen: (n,)."""
        broken: Bools = np.any(self.second_value | self.new_role, axis=1)
        return broken

    def asked_in(self, queries: LongArray) -> Bools:
        """Whether each side is the answer to one of some questions (b, 2)."""
        asked = queries[:, 0] << 32 | queries[:, 1]
        return np.isin(self.facts[:, [0, 2]] << 32 | self.relations, asked)

    def take(self, rows: LongArray) -> FactViews:
        """Of some of the facts, in this order."""
        return FactViews(*(getattr(self, each.name)[rows] for each in fields(self)))

    def features(self) -> Floats:
        """One row for each fact, a column for each of FEATURES."""
        share = self.log_share
        columns = [
            share.max(1, keepdims=True),
            share.min(1, keepdims=True),
            self.log_probability,
            np.log1p(self.known),
            np.log(self.n_per_question),
            self.single * (self.known > 0),
            self.role_seen,
            np.log1p(self.better),
        ]
        return np.maximum(np.concatenate(columns, axis=1, dtype=np.float64), LEAST)


@torch.no_grad()
def view_facts(
    mode: ModeScorer,
    facts: Ints,
    known: Known,
    rules: Known | None = None,
    *,
    as_answers: bool = False,
    memory: int = MEMORY,
    on_progress: OnProgress | None = None,
) -> FactViews:
    """Look at facts (n, 3) from both sides, in blocks of at most about `memory` bytes.

    `rules` are the facts that may be broken rules of, if these are more than those that count as known. Models learn
    from what is seen at temperatures without the entropy; `as_answers` is with it, as `predict` answers.
    """
    data, rules = mode.data, rules or known
    asked = data.reciprocal(facts.astype(np.int32)).astype(np.int64)  # (2 n, 3)
    log_probability, (better, first) = np.empty(len(asked)), np.empty((2, len(asked)), dtype=np.int64)
    for block in Blocks(mode.scorer, asked, memory, whole=True, on_progress=on_progress):
        for places, logs, before, best in _compare(mode, block, asked, known, as_answers):
            log_probability[places], better[places], first[places] = logs, before, best
    back = np.concatenate([asked[len(facts) :], asked[: len(facts)]])  # the same facts from the other side
    relations = asked[:, 1]

    def count_others(by: Known) -> tuple[LongArray, Bools]:
        """Other known answers, and whether the answer has been one elsewhere; a known fact does not count itself."""
        itself = by.has(asked).astype(np.int64)
        return by.count(asked[:, 0], asked[:, 1]) - itself, by.count(back[:, 0], back[:, 1]) - itself > 0

    def sides(values: npt.NDArray[T]) -> npt.NDArray[T]:
        return values.reshape(2, -1).T

    (counts, role_seen), (rival, role_known) = count_others(known), count_others(rules)
    return FactViews(
        facts=facts.astype(np.int64),
        relations=sides(relations),
        log_probability=sides(log_probability),
        better=sides(better),
        first=sides(np.where(better, first, asked[:, 2])),
        known=sides(counts),
        n_per_question=sides(known.answers_per_question[relations]),
        single=sides(known.single[relations]),
        rival=sides(rival),
        second_value=sides(rules.functional[relations] & (rival > 0)),
        role_seen=sides(role_seen),
        new_role=sides(rules.closed[relations] & ~role_known),
    )


def _compare(
    mode: ModeScorer, block: Block, facts: LongArray, known: Known, as_answers: bool
) -> Iterator[tuple[LongArray, Floats, LongArray, LongArray]]:
    """Places of the block's facts, their log probabilities, how many unknown answers are before each, and the first."""
    ((_, logs),) = block.scores()
    rows, tails = block.put(block.rows), block.put(facts[block.places, 2])
    scale = mode.temperatures(block.queries, logs) if as_answers else _plain_temperatures(mode, block)
    temperatures = torch.from_numpy(scale).to(logs)
    own = logs[rows, tails] / temperatures[rows]  # before it is left out, as known or as a loop
    log_z = normalise(mode, block, logs, known, temperatures)
    mine = (own - log_z[rows]).double().cpu().numpy()
    best = logs.argmax(1)
    step = max(1, COMPARED // logs.shape[1])
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        before = (logs[rows[part]] > own[part, None]).sum(1)
        yield block.places[part], mine[part], before.cpu().numpy(), best[rows[part]].cpu().numpy()


def normalise(
    mode: ModeScorer, block: Block, scores: Tensor, known: Known, temperatures: Tensor | None = None
) -> Tensor:
    """Divide a block's scores (b, N_e) by their temperatures, in place, and give the logsumexp of each question, (b,).

    The sum is over all candidates. Then known answers are left out as well: they are -inf, as is what is no candidate.
    """
    by = torch.from_numpy(_plain_temperatures(mode, block)).to(scores) if temperatures is None else temperatures
    scores[tuple(map(block.put, mode.candidates.self_answers(block.queries)))] = -torch.inf
    scores.div_(by[:, None])
    log_z = scores.logsumexp(1)
    scores[tuple(map(block.put, known_cells(block.queries, known.index)))] = -torch.inf
    return log_z


def _plain_temperatures(mode: ModeScorer, block: Block) -> Floats:
    """Of a block's questions, without the entropy: (b,)."""
    return mode.temperature.plain.of(block.queries, mode.data.query_index)


def explain_against(data: Dataset, known: Known, views: FactViews, place: int) -> Iterator[str]:
    """Which rules of the graph a fact breaks, in words."""
    head, relation, tail = views.facts[place].tolist()
    entities, name = data.entities, data.relations.show(data.relations[relation])
    sides = ((head, tail), (tail, head))
    for side, (asker, own) in enumerate(sides):
        if views.second_value[place, side]:
            at = known.index.find([asker], [views.relations[place, side]])
            other = next(e for e in known.index.tails_of(int(at[0])).tolist() if e != own)
            answer, whose, has = SIDES[side], SIDES[1 - side], entities.show(entities[other])
            yield f"{name} has one {answer} for each {whose} as a rule, and this {whose} has {has}"
    for side, (_, own) in enumerate(sides):
        if views.new_role[place, side]:
            yield f"{entities.show(entities[own])} was never the {SIDES[side]} of {name}"


def nearest_facts(mode: ModeScorer, known: Known, fact: LongArray) -> list[tuple[int, int, int]]:
    """Of the known facts that share two of three symbols with this one, those whose third is most like its own.

    At most one for each side, the one that is more alike first.
    """
    h, r, t = map(int, fact)
    found = []
    for asker, relation, answer in ((t, r + known.n_relations, h), (h, r, t)):
        others = known.index.tails_of(int(known.index.find([asker], [relation])[0]))
        others = others[others != answer]
        if len(others):
            likeness = mode.likeness(answer, others)
            best = int(likeness.argmax())
            other = int(others[best])
            found.append((float(likeness[best]), (other, r, t) if relation >= known.n_relations else (h, r, other)))
    return [each for _, each in sorted(found, reverse=True)]
