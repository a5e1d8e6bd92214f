"""Which facts to propose, and how often proposals like them are right: learned from facts hidden from training.

Candidates are the answers with the highest share to all questions that training has. The label of a candidate is
whether validation has it. A logistic model of its features, their products and its relation says how often candidates
like it were hidden. Test facts are hidden, too, and may not be looked at: with v validation and t test facts, a
candidate that is hidden is among the validation facts in a share c = v / (v + t) of all cases. So c * sigmoid is what
validation can show, and sigmoid is how often candidates like this one were among the facts hidden from training. As the
graph itself is not complete, that is a lower bound of how many of the kind are true; but the hidden ones are known, and
what is proposed is the rest of the kind. Features count training facts alone, here and when facts are proposed: with
more known answers every share would be larger than those that were learned from.

Decisions of people about proposals are labels too, of what is true and not of what is hidden.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from kgem.answer.features import FEATURES, Bools, Floats, Known, normalise, view_facts
from kgem.answer.logistic import Logistic
from kgem.answer.modes import ModeScorer
from kgem.data.dataset import Dataset, LongArray
from kgem.data.index import fact_keys
from kgem.evaluate.blocks import AFFORDABLE_SCORES, MEMORY, Blocks, OnProgress

__all__ = [
    "POOL",
    "Decided",
    "Ranker",
    "affordable_part",
    "find_candidates",
    "is_large",
    "learn_ranker",
    "to_plain",
    "training_questions",
]

POOL = 20_000  # candidates with the highest share, of which the best are proposed
LEAST_POOL = 2_000  # where it is learned from a part of the questions
FEWEST = 20  # validation facts among the candidates, to learn from
LEARNED_SCORES = 2**32  # questions times entities that it is learned from at most


@dataclass(frozen=True, eq=False)
class Decided:
    """Proposals that people have decided about, as they were seen before."""

    features: Floats  # (n, F)
    right: Bools  # (n,)

    @classmethod
    def none(cls) -> Decided:
        return cls(np.empty((0, len(FEATURES))), np.empty(0, dtype=bool))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"features": self.features.tolist(), "right": self.right.tolist()}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Decided:
        features = np.array(document.get("features", []), dtype=np.float64).reshape(-1, len(FEATURES))
        right = np.array(document.get("right", []), dtype=bool)
        if len(features) != len(right):
            raise ValueError(f"{len(features)} proposals and {len(right)} decisions about them")
        return cls(features, right)

    def extend(self, other: Decided) -> Decided:
        return Decided(
            np.concatenate([self.features, other.features]),
            np.concatenate([self.right, other.right]),
        )


@dataclass(frozen=True, eq=False)
class Ranker:
    """How often candidates were among the hidden facts, by their features and relations."""

    logistic: Logistic
    hidden: int  # validation and test facts
    validation_share: float  # c: of the hidden facts that are for validation
    candidates: int  # that it learned from
    found: int  # of them, validation facts

    def chance(self, features: Floats, relations: LongArray) -> Floats:
        """How often candidates like these were among the facts hidden from training: (n,)."""
        return self.logistic.chance(features, relations)

    def chance_in_test(self, features: Floats, relations: LongArray) -> Floats:
        """How often candidates like these, if they are no validation facts, are test facts: (n,)."""
        chance, c = self.chance(features, relations), self.validation_share
        return (1 - c) * chance / (1 - c * chance)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        counts = {name: getattr(self, name) for name in ("hidden", "validation_share", "candidates", "found")}
        return {"features": list(FEATURES), **self.logistic.to_dict(), **counts}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], n_relations: int) -> Ranker:
        if list(document["features"]) != list(FEATURES):
            raise ValueError("the ranking of proposals was learned from other features")
        return cls(
            Logistic.from_dict({"effects": [0.0] * n_relations, **document}, len(FEATURES), n_relations),
            hidden=int(document["hidden"]),
            validation_share=float(document["validation_share"]),
            candidates=int(document["candidates"]),
            found=int(document["found"]),
        )


def learn_ranker(
    mode: ModeScorer, decided: Decided | None = None, *, memory: int = MEMORY, on_progress: OnProgress | None = None
) -> Ranker | None:
    """From the validation facts among the candidates; None if these have too few.

    On a large graph the candidates are those of a part of the questions, and as much fewer.
    """
    data, decided = mode.data, decided or Decided.none()
    if not len(data.valid):
        return None
    known = Known.training(data)
    queries, part = affordable_part(data, training_questions(data))
    most = POOL if part == 1 else max(round(part * POOL), LEAST_POOL)
    facts = find_candidates(mode, known, most, queries, memory=memory, on_progress=on_progress)
    right = Known.of(data, data.valid).has(facts)
    if right.sum() < FEWEST:
        return None
    features = view_facts(mode, facts, known, memory=memory).features()
    c = len(data.valid) / (len(data.valid) + len(data.test))
    logistic = Logistic.fit_in_folds(
        np.concatenate([features, decided.features]),
        np.concatenate([right, decided.right]),
        np.concatenate([facts[:, 1], np.full(len(decided.right), -1)]),
        data.n_relations,
        ceilings=np.concatenate([np.full(len(features), c), np.ones(len(decided.right))]),
    )
    return Ranker(logistic, len(data.valid) + len(data.test), c, len(facts), int(right.sum()))


@torch.no_grad()
def find_candidates(
    mode: ModeScorer,
    known: Known,
    most: int,
    queries: LongArray | None = None,
    *,
    seconds: float | None = None,
    memory: int = MEMORY,
    on_progress: OnProgress | None = None,
) -> LongArray:
    """The unknown facts with the highest share (n + 1) p from either side, best first: (at most `most`, 3).

    They are answers to all questions that training has, or to `queries` (b, 2) with reciprocal relations; to those that
    could be asked in so many `seconds`, but to some.
    """
    data, begun = mode.data, time.monotonic()
    if queries is None:
        queries = training_questions(data)
    best = _Best.none(mode.scorer.like, 2 * most)  # a fact may come twice, once from each side
    for block in Blocks(mode.scorer, queries, memory, gather=False, whole=True, on_progress=on_progress):
        ((_, logs),) = block.scores()
        logs.sub_(normalise(mode, block, logs, known)[:, None])
        places = np.log1p(known.count(block.queries[:, 0], block.queries[:, 1]))
        best = best.extend(logs.add_(torch.from_numpy(places).to(logs)[:, None]), int(block.places[0]))
        if seconds is not None and time.monotonic() - begun > seconds:
            if on_progress is not None:
                on_progress(int(block.places[-1]) + 1, len(queries))
            break
    rows, tails = (cells.cpu().numpy() for cells in (best.rows, best.tails))
    facts = to_plain(data, np.concatenate([queries[rows], tails[:, None]], axis=1))
    keys = fact_keys(facts, data.n_entities, data.n_relations)
    return facts[np.sort(np.unique(keys, return_index=True)[1])][:most]


def training_questions(data: Dataset) -> LongArray:
    """All that training has answers to, with reciprocal relations: (Q, 2)."""
    index = data.query_index
    return np.stack([index.heads, index.relations], axis=1).astype(np.int64)


def is_large(data: Dataset) -> bool:
    """Whether to ask all questions that training has takes longer than what nobody asked for by hand may take."""
    return len(data.query_index) * data.n_entities > AFFORDABLE_SCORES


def affordable_part(data: Dataset, queries: LongArray, seed: int = 0) -> tuple[LongArray, float]:
    """As many of the questions (b, 2), at random, as have not too many scores together; and what part that is."""
    most = max(1, LEARNED_SCORES // data.n_entities)
    if len(queries) <= most:
        return queries, 1.0
    chosen = np.sort(np.random.default_rng(seed).choice(len(queries), most, replace=False))
    return queries[chosen], most / len(queries)


def to_plain(data: Dataset, facts: LongArray) -> LongArray:
    """Facts with reciprocal ids the way round that people read them."""
    plain = np.where((facts[:, 1] >= data.n_relations)[:, None], facts[:, ::-1], facts)
    plain[:, 1] %= data.n_relations
    return plain


class _Best(NamedTuple):
    """The highest numbers so far, descending, and whose they are."""

    logs: Tensor  # (n,)
    rows: Tensor  # (n,), the query
    tails: Tensor  # (n,)
    most: int

    @classmethod
    def none(cls, like: Tensor, most: int) -> _Best:
        nobody = torch.empty(0, dtype=torch.int64, device=like.device)
        return cls(like.new_empty(0), nobody, nobody, most)

    def extend(self, block: Tensor, first: int) -> _Best:
        """The highest of these and a block (b, N_e) of queries from the `first` on."""
        # Few entries reach the list once it is full: to look for those is far quicker than to order the block. Before
        # that, as many rows as the list has places give a bound: each has an entry as high as its highest.
        least = float(self.logs[-1]) if len(self.logs) == self.most else -torch.inf
        if len(block) >= self.most:
            least = max(least, float(block.amax(1).topk(self.most).values[-1]))
        rows, tails = (block >= least if least > -torch.inf else block > least).nonzero(as_tuple=True)
        logs, places = block[rows, tails].topk(min(self.most, len(rows)))
        rows, tails = rows[places] + first, tails[places]
        logs, places = torch.cat([self.logs, logs]).sort(descending=True, stable=True)
        kept = places[: self.most]
        return _Best(
            logs[: self.most], torch.cat([self.rows, rows])[kept], torch.cat([self.tails, tails])[kept], self.most
        )
