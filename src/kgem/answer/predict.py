"""Answers to (h, r, ?), (?, r, t) and (h, ?, t): probability, and credible intervals of it and of the rank.

The probability of an answer is softmax(scores / T) over all entities, T the mode's for this question. It says which
tail (or head), given that there is one; not whether there is one. Of a relation it says how probable the tail is given
head and that relation: the model has no distribution over relations, so these need not sum to one. The entity that is
asked about is no candidate unless training has the relation so often enough (`Candidates.loops`).

The intervals say how far the same probability, and rank, would move with q. A sample of q moves each score by its
deviation from the mean over samples; half of that is added to the mode's own scores, whichever tables they come from,
at the same temperature. So the interval is about the probability that it stands beside, and it is made to contain it.
Over q a probability is so skewed that its standard deviation often exceeds it, which is why there is none here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, overload

import numpy as np
import torch
from torch import Tensor

from kgem.answer.labels import entity_id, relation_id
from kgem.answer.modes import ModeScorer
from kgem.data.dataset import Dataset, LongArray, Vocabulary
from kgem.errors import InputError
from kgem.evaluate.blocks import Block, Blocks, Scorer, known_cells
from kgem.tables import SHOWN, Bar, Rows, Table, draw_table

if TYPE_CHECKING:
    import polars as pl

    from kgem.evaluate.temperature import Floats

__all__ = ["MEANING", "Answer", "Prediction", "Predictions", "Query", "predict_many"]

INTERVAL = ((0.05, math.floor, torch.minimum), (0.95, math.ceil, torch.maximum))  # credible: quantiles, outwards
SPREAD = 0.5  # of a sample's deviation; docs/method.md has what the whole of it did
COUNTED = 32  # answers up to which it is faster to count those above each than to sort

Cells = tuple[LongArray, LongArray]  # rows and columns

MEANING = {
    "tail": "which tail, given that there is one",
    "head": "which head, given that there is one",
    "relation": "the probability of the tail given head and that relation; not a distribution over relations",
}


class Query(NamedTuple):
    """A question: labels for two of the three, None for what is asked."""

    head: str | None = None
    relation: str | None = None
    tail: str | None = None

    @property
    def asked(self) -> str:
        """Which of the three is asked for."""
        missing = [name for name, label in self._asdict().items() if label is None]
        if len(missing) != 1:
            given = ", ".join(name for name in self._fields if name not in missing) or "nothing"
            what = f"a question must give two of head, relation, tail, not {given}"
            raise InputError(
                what, remedy="give just two" if missing else "leave one out, or judge the fact: model.judge"
            )
        return missing[0]


@dataclass(frozen=True)
class Answer:
    """One answer and how sure the model is of it."""

    label: str
    probability: float  # see MEANING
    low: float | None  # 5 % quantile of the probability as q moves it; None if not asked for
    high: float | None  # 95 % quantile
    rank_low: int | None  # 5 % quantile of its rank as q moves it, among what could be listed
    rank_high: int | None  # 95 % quantile
    frequency: int  # occurrences in training
    known: str | None  # the split that has the fact, or None


@dataclass(frozen=True, repr=False)
class Prediction(Sequence[Answer], Table):
    """The answers to a question, most probable first."""

    query: Query
    mode: str
    temperature: float  # of the question; for relations, each of which has its own, the common one
    entropy: float | None  # predictive entropy of the question in nats; None for relations
    answers: tuple[Answer, ...]

    @property
    def asked(self) -> str:
        return self.query.asked

    @property
    def meaning(self) -> str:
        """What the probabilities mean."""
        return MEANING[self.asked]

    def __len__(self) -> int:
        return len(self.answers)

    def __iter__(self) -> Iterator[Answer]:
        return iter(self.answers)

    @overload
    def __getitem__(self, place: int) -> Answer: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Answer, ...]: ...

    def __getitem__(self, place: int | slice) -> Answer | tuple[Answer, ...]:
        return self.answers[place]

    def __repr__(self) -> str:
        first = ", ".join(f"{answer.label} {answer.probability:.1%}" for answer in self.answers[:3])
        return f"<Prediction {_write(self.query)}: {first}{', ...' if len(self) > 3 else ''}>"

    def to_polars(self) -> pl.DataFrame:
        """One row for each answer, with what was asked."""
        return Predictions([self]).to_polars()

    def _repr_html_(self) -> str:
        full = max((answer.high or answer.probability for answer in self.answers[:SHOWN]), default=1.0)
        rows = (
            (a.label, Bar(a.probability, a.low, a.high, full), a.probability, a.low, a.high, a.frequency, a.known)
            for a in self.answers
        )
        columns = (self.asked, "", "probability", "5 %", "95 %", "frequency", "known in")
        return draw_table(_write(self.query), columns, rows, len(self), f"probability: {self.meaning}")

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **self.query._asdict(),
            "asked": self.asked,
            "meaning": self.meaning,
            "mode": self.mode,
            "temperature": self.temperature,
            "entropy": self.entropy,
            "answers": [asdict(answer) for answer in self.answers],
        }


class Predictions(Rows[Prediction]):
    """The answers to several questions."""

    item, one = "predictions", "prediction"
    schema: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("head", "relation", "tail"), "text"),
        **dict.fromkeys(("probability", "low", "high"), "number"),
        **dict.fromkeys(("rank_low", "rank_high", "frequency"), "count"),
        "known": "text",
    }

    def to_rows(self) -> Iterator[dict[str, Any]]:
        """One row for each answer, with what was asked in its place."""
        for prediction in self:
            for answer in prediction:
                yield {**prediction.query._asdict(), prediction.asked: answer.label, **asdict(answer)}

    def _repr_html_(self) -> str:
        rows = ((_write(p.query), *((p[0].label, Bar(p[0].probability), p[0].probability) if p else ())) for p in self)
        columns = ("question", "first answer", "", "probability")
        return draw_table(f"{len(self):,} {self.item}", columns, rows, len(self))


def _write(query: Query) -> str:
    return " ".join("?" if label is None else label for label in query)


def predict_many(
    mode: ModeScorer, queries: Sequence[Query], *, top: int = 10, new_only: bool = False, ranges: bool = True
) -> Predictions:
    """The `top` most probable answers to many questions; `new_only` leaves out what the graph has."""
    if top < 1:
        raise InputError(f"cannot list {top} answers", remedy="ask for at least one")
    asking = _Asking(mode, top, new_only, ranges)
    queries = [_with_labels(mode.data, query) for query in queries]
    asked = [query.asked for query in queries]
    answered: list[Prediction | None] = [None] * len(queries)
    entity_places = [i for i, what in enumerate(asked) if what != "relation"]
    ids = np.array([_entity_query(mode.data, queries[i]) for i in entity_places], dtype=np.int64).reshape(-1, 2)
    for block in asking.blocks(ids):
        places = [entity_places[i] for i in block.places.tolist()]
        for place, prediction in zip(places, asking.entities([queries[i] for i in places], block), strict=True):
            answered[place] = prediction
    for place in (i for i, what in enumerate(asked) if what == "relation"):
        answered[place] = asking.relations(queries[place])
    return Predictions(prediction for prediction in answered if prediction is not None)


def _with_labels(data: Dataset, query: Query) -> Query:
    """A question by labels, whatever names it was asked by."""
    if isinstance(query, str) or len(query) != 3:
        remedy = "give kgem.Query(head=..., relation=...), or (head, relation, None)"
        raise InputError(f"{query!r} is not a question", remedy=remedy)
    head, relation, tail = query
    return Query(
        None if head is None else data.entities[entity_id(data, head)],
        None if relation is None else data.relations[relation_id(data, relation)],
        None if tail is None else data.entities[entity_id(data, tail)],
    )


def _entity_query(data: Dataset, query: Query) -> tuple[int, int]:
    """(h, r, ?) as it is; (?, r, t) as (t, r^-1, ?)."""
    entities = data.entities
    relation = data.relations.id(str(query.relation))
    if query.tail is None:
        return entities.id(str(query.head)), relation
    return entities.id(query.tail), relation + data.n_relations


@dataclass(frozen=True, eq=False)
class _Asking:
    """How questions are to be answered."""

    mode: ModeScorer
    top: int
    new_only: bool
    ranges: bool

    def blocks(self, ids: LongArray) -> Blocks:
        """Questions (n, 2) with reciprocal relations, as many at a time as leave room for the scores of all samples."""
        return Blocks(self.mode.scorer, ids, gather=False, whole=True, tables=1 + len(self._sample_scorers))

    @cached_property
    def _sample_scorers(self) -> Sequence[Scorer]:
        return self.mode.sample_scorers() if self.ranges or self.mode.averages_samples else ()

    @torch.no_grad()
    def entities(self, queries: Sequence[Query], block: Block) -> list[Prediction]:
        """Answers to a block of (h, r, ?)."""
        data, ids = self.mode.data, block.queries
        logs, sampled, temperatures = self._logs(block)
        entropy = -(logs.exp() * logs).nan_to_num(0.0).sum(1)
        hidden = known_cells(ids, data.filter_index) if self.new_only else None
        picked = self._pick(logs, sampled, hidden)
        known, about = self._splits(ids, picked.places), zip(temperatures.tolist(), entropy.tolist(), strict=True)
        return [
            self._to_prediction(query, data.entities, data.entity_counts, picked, row, own, known)
            for row, (query, own) in enumerate(zip(queries, about, strict=True))
        ]

    @torch.no_grad()
    def relations(self, query: Query) -> Prediction:
        """Which relation: each r by the probability of the tail given (h, r)."""
        data = self.mode.data
        head, tail = data.entities.id(str(query.head)), data.entities.id(str(query.tail))
        ids = np.stack([np.full(data.n_relations, head), np.arange(data.n_relations)], axis=1)
        parts = []
        for block in self.blocks(ids):
            logs, sampled, _ = self._logs(block)
            parts.append((logs[None, :, tail], None if sampled is None else sampled[:, None, :, tail]))
        every = torch.cat([logs for logs, _ in parts], 1)  # (1, N_r)
        sampled_parts = [sampled for _, sampled in parts if sampled is not None]
        splits = self._splits(ids, [[tail]] * len(ids))
        known = {(0, relation): split for (relation, _), split in splits.items()}
        found = np.array([relation for _, relation in known], dtype=np.int64)
        hidden = (np.zeros_like(found), found) if self.new_only else None
        picked = self._pick(every, torch.cat(sampled_parts, 2) if sampled_parts else None, hidden)
        about = self.mode.temperature.common, None
        return self._to_prediction(query, data.relations, data.relation_counts, picked, 0, about, known)

    def _logs(self, block: Block) -> tuple[Tensor, Tensor | None, Floats]:
        """Log probabilities in this mode (b, N_e) and, where wanted, as every sample of q moves them (S, b, N_e).

        Also what the questions' scores were divided by, (b,).
        """
        mode, n = self.mode, self.mode.scorer.n_entities
        never = tuple(map(block.put, mode.candidates.self_answers(block.queries)))
        sampled = block.buffer.new_empty(len(self._sample_scorers), len(block.queries), n)
        for sample, out in zip(self._sample_scorers, sampled, strict=True):
            sample.prepare(*block.ids)(0, n, out)
        if mode.averages_samples:
            average = sampled.softmax(2).mean(0)
            scores = average.clamp_min_(torch.finfo(average.dtype).tiny).log_()
        else:
            ((_, scores),) = block.scores()
        temperatures = mode.temperatures(block.queries, scores)
        by = torch.from_numpy(temperatures).to(scores)[:, None]
        scores.div_(by)[never] = -torch.inf
        if not self.ranges:
            return scores.log_softmax(1), None, temperatures
        moved = sampled.sub_(sampled.mean(0)).mul_(SPREAD).div_(by).add_(scores)
        return scores.log_softmax(1), moved.log_softmax(2), temperatures

    def _pick(self, logs: Tensor, sampled: Tensor | None, hidden: Cells | None) -> _Picked:
        """The best of each row of (b, n), without the hidden cells; sampled (S, b, n) tells how sure that is."""
        if hidden is not None:
            rows, columns = self._put(hidden[0]), self._put(hidden[1])
            logs[rows, columns] = -torch.inf
            if sampled is not None:
                sampled[:, rows, columns] = -torch.inf
        best, places = logs.topk(min(self.top, logs.shape[1]), dim=1)  # (b, k)
        left = torch.isfinite(best).sum(1).tolist()  # fewer than asked for, if all others are hidden
        listed = [row[:n] for row, n in zip(places.tolist(), left, strict=True)]
        if sampled is None:
            return _Picked(listed, best.exp().tolist(), None)
        shares = sampled.gather(2, places.expand(len(sampled), -1, -1)).exp()  # (S, b, k)
        own = torch.arange(1, places.shape[1] + 1).expand(places.shape)  # ranks
        ranges = (*_interval(shares, best.exp()), *_interval(_ranks(sampled, places), own))
        return _Picked(listed, best.exp().tolist(), ranges)

    def _to_prediction(
        self,
        query: Query,
        vocabulary: Vocabulary,
        counts: LongArray,
        picked: _Picked,
        row: int,
        about: tuple[float, float | None],
        known: dict[tuple[int, int], str],
    ) -> Prediction:
        """A row of what was picked, in labels, about a question of some temperature and entropy."""
        low, high, rank_low, rank_high = (each[row] for each in picked.ranges) if picked.ranges else ([], [], [], [])
        answers = [
            Answer(
                label=vocabulary[place],
                probability=picked.shares[row][i],
                low=low[i] if low else None,
                high=high[i] if high else None,
                rank_low=int(rank_low[i]) if rank_low else None,
                rank_high=int(rank_high[i]) if rank_high else None,
                frequency=int(counts[place]),
                known=known.get((row, place)),
            )
            for i, place in enumerate(picked.places[row])
        ]
        return Prediction(query, self.mode.name, *about, tuple(answers))

    def _splits(self, ids: LongArray, answers: list[list[int]]) -> dict[tuple[int, int], str]:
        """The split that has each known answer, by (row, entity); training first where several do."""
        found: dict[tuple[int, int], str] = {}
        n = self.mode.data.n_entities
        cells = np.array([row * n + place for row, places in enumerate(answers) for place in places], dtype=np.int64)
        for split, index in reversed(self.mode.candidates.split_indexes.items()):
            rows, tails = known_cells(ids, index)
            here = np.intersect1d(cells, rows * n + tails)
            found |= {(cell // n, cell % n): split for cell in here.tolist()}
        return found

    def _put(self, array: LongArray) -> Tensor:
        return torch.from_numpy(np.asarray(array, dtype=np.int64)).to(self.mode.scorer.like.device)


class _Picked(NamedTuple):
    """The answers to a block of questions, nested lists (b, k)."""

    places: list[list[int]]  # (b, at most k)
    shares: list[list[float]]
    ranges: tuple[list[list[float]], ...] | None  # low and high probability, low and high rank


def _interval(values: Tensor, own: Tensor) -> Iterator[list[list[float]]]:
    """The ends of the credible interval of values (S, b, k), wide enough for one's own (b, k): nested lists (b, k)."""
    ordered = values.sort(0).values
    for share, rounded, outer in INTERVAL:
        yield outer(ordered[rounded(share * (len(ordered) - 1))], own).tolist()


def _ranks(scores: Tensor, answers: Tensor) -> Tensor:
    """How many of the scores (S, b, n) are at least as high as each answer's, itself included: (S, b, k)."""
    own = scores.gather(2, answers.expand(len(scores), -1, -1)).cpu().numpy()  # (S, b, k)
    every, ranks = scores.cpu().numpy(), np.empty(own.shape, dtype=np.int64)
    # A row at a time, because few of its scores reach the lowest answer: ten times as fast as to place all of them.
    for place in np.ndindex(own.shape[:2]):
        row, mine = every[place], own[place]
        near = row[row >= mine.min()]
        if len(mine) <= COUNTED:
            ranks[place] = [np.count_nonzero(near >= score) for score in mine]
        else:
            near.sort()
            ranks[place] = len(near) - np.searchsorted(near, mine)
    return torch.from_numpy(ranks)
