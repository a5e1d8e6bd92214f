"""The whole graph at once: its most probable missing facts and its least probable known ones, in bounded memory.

Every fact can be asked from both sides, (h, r, ?) and (?, r, t); the side that speaks more for it counts.

Missing facts have the probability p that `predict` gives them, and are ordered by (n + 1) p, where n is the number of
answers that the question has already: with one more there would be n + 1, and each would get about 1 / (n + 1). On
CoDEx-S (K = 50, test facts hidden) 91 of the first 100 and 46 % of the first 1,000 were test facts; ordered by p
alone 46 and 29 %, and by p among the unknown answers only, which is high where all answers are known, 17 and 9 %.

As in `predict`, no fact is made from an entity to itself unless training has the relation so often enough.

A known fact competes only with entities that are not known to be right, as in filtered ranks: else each of a
hundred right answers would look improbable. With a judge, known facts are ordered by log((n + 1) p) of both sides
together, each looked at as if it were not known, else by the better of the two filtered probabilities. Of 5 % of the
training facts with a random tail of the right role (K = 50) the former finds more: area under ROC .924 instead of .895
on UMLS, .815 instead of .653 on CoDEx-S. The chance is the judge's. It has learned from facts that no table was fitted
to, and trusts fitted ones too much to order them (.894 and .689); `kgem judge --graph` fits without each fact first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kgem.answer.features import Known, view_facts
from kgem.answer.judge import Judge
from kgem.answer.modes import ModeScorer
from kgem.data.dataset import SPLITS, Dataset, LongArray
from kgem.data.index import fact_keys
from kgem.errors import InputError
from kgem.evaluate.blocks import MEMORY, Block, Blocks, OnProgress, known_cells
from kgem.evaluate.softmax import log_probabilities, split_competitions

__all__ = ["ScoredFact", "doubtful_facts", "missing_facts"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ScoredFact:
    """A fact and how probable it is."""

    head: str
    relation: str
    tail: str
    probability: float
    share: float | None  # of a missing fact: (n + 1) * probability, about 1 for one that is as good as the known ones
    side: str  # from which it is: the probability of the "tail" given the rest, or of the "head"
    known: str | None  # the split that has the fact, or None
    chance: float | None = None  # of a known fact: what the judge says

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@torch.no_grad()
def missing_facts(
    mode: ModeScorer,
    top: int = 1000,
    relations: Sequence[str] | None = None,
    *,
    about: Sequence[str] | None = None,
    memory: int = MEMORY,
    on_progress: OnProgress | None = None,
) -> list[ScoredFact]:
    """The most probable facts that no split has, among the answers to all questions that training has.

    `relations` narrows it to some, `about` to questions that name one of some entities. Scores are made in blocks of at
    most about `memory` bytes; on_progress hears (questions done, of all).
    """
    _check_top(top)
    data, index, scorer = mode.data, mode.data.query_index, mode.scorer
    queries = np.stack([index.heads, index.relations], axis=1).astype(np.int64)
    if relations is not None:
        queries = queries[np.isin(queries[:, 1] % data.n_relations, data.relations.ids(relations))]
    if about is not None:
        queries = queries[np.isin(queries[:, 0], data.entities.ids(about))]
    best = _Best.none(scorer.like, 2 * top)  # a fact may come twice, once from each side
    for block in Blocks(scorer, queries, memory, gather=False, whole=True, on_progress=on_progress):
        logs = _log_probabilities(mode, block)
        best = best.extend(logs.add_(_log_places(data, block.queries).to(logs)[:, None]), int(block.places[0]))
    rows, tails = (cells.cpu().numpy() for cells in (best.rows, best.tails))
    facts = np.concatenate([queries[rows], tails[:, None]], axis=1)
    shares = best.logs.double().exp().cpu().numpy()
    probability = shares / _log_places(data, facts).exp().numpy()
    return _to_facts(data, facts, probability, shares, [None] * len(facts))[:top]


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
) -> list[ScoredFact]:
    """The known facts that the model finds least credible, least first; on_progress hears (questions done, of all).

    Facts of training were fitted, those of valid and test were not: `splits` narrows it to some. So does `relations`.
    """
    _check_top(top)
    data, beta = mode.data, 1 / mode.temperature
    known = np.concatenate([data.split(split) for split in splits])
    names = np.repeat(splits, [len(data.split(split)) for split in splits])
    if relations is not None:
        chosen = np.isin(known[:, 1], data.relations.ids(relations))
        known, names = known[chosen], names[chosen]
    if judge is not None and len(known):
        views = view_facts(mode, known, Known.everything(data), memory=memory, on_progress=on_progress)
        least = np.argsort(views.log_share.sum(1), kind="stable")[:top]
        known, names, on_progress = known[least], names[least], None
    facts = data.reciprocal(known)
    logs = np.empty(len(facts))
    for part in split_competitions(mode.scorer, facts, data.filter_index, memory, on_progress):
        logs[part.places] = log_probabilities(part, beta).cpu().numpy()
    sides = logs.reshape(2, -1)  # tail, head
    least = np.argsort(sides.max(axis=0), kind="stable")[:top] if judge is None else np.arange(len(known))
    from_head = sides[:, least].argmax(axis=0)
    asked = facts[least + from_head * len(known)]
    probability = np.exp(sides[:, least].max(axis=0))
    found = _to_facts(data, asked, probability, None, names[least].tolist())
    if judge is None or not found:
        return found
    chances = judge.chances(mode, known, memory=memory).tolist()
    by_fact = {tuple(fact): chance for fact, chance in zip(known.tolist(), chances, strict=True)}
    return [replace(fact, chance=by_fact[_ids(data, fact)]) for fact in found]


def _ids(data: Dataset, fact: ScoredFact) -> tuple[int, int, int]:
    return data.entities.id(fact.head), data.relations.id(fact.relation), data.entities.id(fact.tail)


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


def _log_probabilities(mode: ModeScorer, block: Block) -> Tensor:
    """log softmax(scores / T) over all candidates, known answers and what is no candidate at -inf: (b, N_e)."""

    def cells(places: tuple[LongArray, LongArray]) -> tuple[Tensor, ...]:
        return tuple(map(block.put, places))

    ((_, logs),) = block.scores()
    logs[cells(mode.candidates.self_answers(block.queries))] = -torch.inf
    logs.div_(mode.temperature)
    logs.sub_(logs.logsumexp(1, keepdim=True))
    logs[cells(known_cells(block.queries, mode.data.filter_index))] = -torch.inf
    return logs


def _log_places(data: Dataset, queries: LongArray) -> Tensor:
    """log(n + 1) of each query, n the number of its known answers: (b,), float64."""
    counts, places = data.filter_index.counts, data.filter_index.find(queries[:, 0], queries[:, 1])
    return torch.from_numpy(np.log1p(np.where(places >= 0, counts[places], 0)))


def _to_facts(
    data: Dataset, facts: LongArray, probability: Floats, shares: Floats | None, known: Sequence[str | None]
) -> list[ScoredFact]:
    """Facts (n, 3) with reciprocal ids as people read them, in the given order, each once."""
    n = data.n_relations
    backwards = facts[:, 1] >= n
    plain = np.where(backwards[:, None], facts[:, ::-1], facts)
    plain[:, 1] %= n
    first = np.sort(np.unique(fact_keys(plain, data.n_entities, n), return_index=True)[1])
    return [
        ScoredFact(
            head=data.entities[h],
            relation=data.relations[r],
            tail=data.entities[t],
            probability=float(probability[place]),
            share=None if shares is None else float(shares[place]),
            side="head" if backwards[place] else "tail",
            known=known[place],
        )
        for place, (h, r, t) in zip(first.tolist(), plain[first].tolist(), strict=True)
    ]


def _check_top(top: int) -> None:
    if top < 1:
        raise InputError(f"cannot list {top} facts", remedy="ask for at least one")
