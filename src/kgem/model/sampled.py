"""The softmax over all entities, estimated from a sample of them: a step costs the same whatever their number.

All questions of a step share one set of candidates C (model/sampling.py). With the question's own answers T_q exact and
outside the sample,

    Z_q  ~  sum_{t in T_q} exp f(h, r, t)  +  sum_{t in C, not in T_q} exp f(h, r, t) / pi_t,

whose mean is Z_q. Its logarithm is too low on average (Jensen), so that bounds are reported from exact passes over some
questions (model/exact_pass.py). A step touches the rows of its heads, answers and candidates. Prior and entropy of row
i are charged Q / |B| / n_i each time it is a head or an answer, n_i times in an epoch, and never where it is a
candidate only: once per step on average, as in the exact objective. Rows without facts stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import overload

import torch
from torch import Tensor

from kgem.data.index import QueryIndex
from kgem.model.embeddings import Embeddings
from kgem.model.exact_pass import expected_loss
from kgem.model.objective import Gradients, Objective, Pieces, shuffle_batches
from kgem.model.posterior import Gaussian
from kgem.model.prior import Prior, Strengths
from kgem.model.products import is_wide
from kgem.model.rows import Rows, Touched
from kgem.model.sampled_kernel import Side, add_up, sampled_softmax
from kgem.model.sampling import Candidates
from kgem.model.teacher import Teacher

__all__ = ["SampledBatch", "SampledBatches", "SampledObjective", "Step", "find_rows"]

MAX_TAILS = 4096  # of a question; one with more is cut, and the answers of its other pieces are others
SHAPES = 128  # candidates make a multiple of it where oneDNN multiplies: each new shape is compiled, for up to 30 ms
CHECKED = 512  # questions of the exact pass that the bound is reported from
SEEDS = 2**62


@dataclass(frozen=True, eq=False)
class Step:
    """So many questions, and the rows that they touch together with their candidates."""

    size: int
    touched: Touched

    def __len__(self) -> int:
        return self.size


@dataclass(frozen=True, eq=False)
class SampledBatch(Step):
    """Questions, their candidates, and the rows of both; ids count within these rows."""

    candidates: Tensor  # (M,) places among the touched entities
    weights: Tensor  # (M,) 1 / pi
    sides: tuple[Side, ...]
    order: Tensor  # (answers + heads + M,) all that is an entity, sorted by its row
    offsets: Tensor  # (touched + 1,) where those of each row begin in that order


class SampledObjective(Objective):
    """Eqs. 5 and 10 with a sampled softmax, on the touched rows alone."""

    def __init__(
        self,
        index: QueryIndex,
        like: Embeddings,
        prior: Prior,
        candidates: Candidates,
        *,
        products: torch.dtype | None = None,
    ) -> None:
        entities = like.entities
        self._pieces = Pieces.cut(index, MAX_TAILS, entities.device)
        self._prior = prior
        self._dtype = products if products is not None and like.score.bilinear else entities.dtype
        self.candidates = candidates
        self._two_sided = None if like.reciprocal else like.n_relations
        self._teacher: Teacher | None = None
        self.n_items = len(self._pieces)
        self.n_facts = len(index.tails)
        rows = self._relation_rows(self._pieces.relations)
        self.occurrences = (  # n_i, as head of a question or as an answer; of relations, as that of a question
            torch.bincount(self._pieces.heads, minlength=like.n_entities)
            + torch.bincount(self._pieces.tails, minlength=like.n_entities),
            torch.bincount(rows, minlength=len(like.relations)),
        )
        self._shared = torch.arange(like.n_own, len(like.relations), device=entities.device)  # in every question
        self.occurrences[1][self._shared] = self.n_items
        self._some_unseen = any(bool((n == 0).any()) for n in self.occurrences)
        self._shards = like.shards
        self._own_occurrences = self._shards.own(self.occurrences[0]), self.occurrences[1]
        self._checked = self._pieces.questions(CHECKED)

    @property
    def unseen(self) -> tuple[Tensor, Tensor]:
        """The rows without facts, about which nothing is learned: of entities, and of relations."""
        entities, relations = (torch.nonzero(n == 0).squeeze(1) for n in self.occurrences)
        return entities, relations

    def taught_by(self, teacher: Teacher, memory: int = 0, stop: Callable[[], bool] | None = None) -> SampledObjective:
        """The same objective with a part of the observed tails replaced by what a teacher says of the same candidates.

        Nothing is kept: the teacher's tables are read where the step reads its own.
        """
        taught = copy(self)
        taught._teacher = teacher
        return taught

    def batches(self, size: int, generator: torch.Generator) -> SampledBatches:
        seed = int(torch.randint(SEEDS, (1,), generator=generator))
        return SampledBatches(self, shuffle_batches(self.n_items, size, generator), seed)

    def touched(self, batch: Step) -> Touched:
        """The rows that tables must be reduced to before they are handed in."""
        return batch.touched

    def plan(self, items: Tensor, generator: torch.Generator) -> Step:
        """The step of these questions: their candidates, and which rows all of it touches."""
        device = self._pieces.heads.device
        return self._plan(items.to(device), self.candidates.draw(generator).to(device))

    def _plan(self, items: Tensor, drawn: Tensor) -> Step:
        batch, here, relations_here = self._lay_out(items, drawn)
        each, (entities, relations) = self.n_items / max(len(items), 1), (rows.ids for rows in batch.touched)
        assert entities is not None and relations is not None
        own = relations[: len(relations_here)]
        touched = Touched(
            self._rows(entities, here, self.occurrences[0], each),
            self._rows(own, relations_here, self.occurrences[1], each).followed_by(self._shared),
        )
        return replace(batch, touched=touched)

    def _lay_out(self, items: Tensor, drawn: Tensor) -> tuple[SampledBatch, Tensor, Tensor]:
        """All of a step but for the shares of its rows; how often each is a head or an answer, or a relation."""
        pieces, n_drawn = self._pieces, len(drawn)
        drawn = self._fill_up(drawn)
        parts = [(reverse, part, *pieces.tails_of(part)) for reverse, part in self._split(items)]
        sizes = [*(len(tails) for *_, tails in parts), *(len(part) for _, part, _, _ in parts), len(drawn)]
        all_heads = [pieces.heads.index_select(0, part) for _, part, _, _ in parts]
        entities, order, places, here = find_rows(torch.cat([*(tails for *_, tails in parts), *all_heads, drawn]))
        offsets = torch.cat([here.new_zeros(1), here.cumsum(0)])
        *rest, candidates = torch.split(places, sizes)
        answers, heads = rest[: len(parts)], rest[len(parts) :]
        here.index_add_(0, candidates, torch.ones_like(candidates), alpha=-1)
        relations, _, relation_places, relations_here = find_rows(
            torch.cat([self._relation_rows(pieces.relations.index_select(0, part)) for _, part, _, _ in parts])
        )
        relation_parts = torch.split(relation_places, [len(part) for _, part, _, _ in parts])
        first = torch.arange(n_drawn, device=items.device)
        nth = torch.full_like(entities, -1).index_copy_(0, candidates[:n_drawn], first)
        sides = tuple(
            Side.of(reverse, h, r, pieces.counts.index_select(0, part), starts, t, nth, len(drawn))
            for (reverse, part, starts, _), h, r, t in zip(parts, heads, relation_parts, answers, strict=True)
        )
        touched = Touched(Rows(entities), Rows(torch.cat([relations, self._shared])))
        weights = self.candidates.weights.index_select(0, drawn.cpu()).to(items.device)
        weights[n_drawn:] = 0.0
        return SampledBatch(len(items), touched, candidates, weights, sides, order, offsets), here, relations_here

    def _fill_up(self, drawn: Tensor) -> Tensor:
        """With the first candidate again and again, without weight, so that most steps have products of one shape."""
        missing = -len(drawn) % SHAPES if self._dtype == torch.bfloat16 or is_wide() else 0
        return torch.cat([drawn, drawn[:1].expand(missing)]) if len(drawn) else drawn

    @torch.no_grad()
    def __call__(self, embeddings: Embeddings, strengths: Strengths, batch: Step) -> tuple[float, Gradients]:
        """The data term of L / N', and the gradient of all of L / N' with respect to the touched rows."""
        assert isinstance(batch, SampledBatch)
        teachers = [] if self._teacher is None else [self._rows_of(m, batch) for m in self._teacher.models]
        data, grads = self._data_term(embeddings, teachers, batch, batch.size)
        self._add_prior(embeddings, strengths, batch.touched, grads)
        self._clear_unseen(batch.touched, grads)
        return data, grads

    def _data_term(
        self, embeddings: Embeddings, teachers: Sequence[Embeddings], batch: SampledBatch, size: int
    ) -> tuple[float, Gradients]:
        """Of a batch, or of a part of one that has so many questions in all."""
        scale = self.n_items / (size * self.n_facts)
        taught = 0.0 if self._teacher is None else self._teacher.weight
        sides = [
            sampled_softmax(embeddings, side, batch.candidates, batch.weights, scale, self._dtype, teachers, taught)
            for side in batch.sides
        ]
        relations = torch.zeros_like(embeddings.relations)
        for side, found in zip(batch.sides, sides, strict=True):
            embeddings.add_relation_gradient(side.relations, found.relations, relations)
        return sum(float(side.loss) for side in sides), Gradients(add_up(sides, batch.order, batch.offsets), relations)

    def _add_prior(self, embeddings: Embeddings, strengths: Strengths, touched: Touched, grads: Gradients) -> None:
        """Mutates the gradients: with the share of the prior."""
        for table, lam, rows, grad in zip(embeddings.tables(), strengths, touched, grads, strict=True):
            self._prior.add_gradient(table, lam * rows.share, grad, scale=1.0 / self.n_facts)

    def _clear_unseen(self, touched: Touched, grads: Gradients) -> None:
        """Mutates the gradients: rows without facts have none at all."""
        for rows, grad, counts in zip(touched, grads, self._own_occurrences, strict=True):
            if self._some_unseen:
                grad.masked_fill_((rows.take(counts) == 0).unsqueeze(1), 0.0)

    def expected_loss(self, loss: float, posterior: tuple[Gaussian, Gaussian], like: Embeddings) -> float:
        """The data term of L / N' under q for the bound: exact over all entities, for some of the questions."""
        return expected_loss(posterior, like, self._checked)

    def _rows_of(self, model: Embeddings, batch: Step) -> Embeddings:
        return model.with_tables(*batch.touched.of(model.tables()))

    @staticmethod
    def _rows(ids: Tensor, here: Tensor, occurrences: Tensor, each: float) -> Rows:
        """The touched rows of a table; `here` says how often each is a head, an answer or a relation in this step."""
        return Rows(ids, (here * each / occurrences.index_select(0, ids).clamp_min(1)).float())

    def _relation_rows(self, relations: Tensor) -> Tensor:
        """The rows of R that questions read: both directions have the same one in the two-sided mode."""
        return relations if self._two_sided is None else relations % self._two_sided

    def _split(self, items: Tensor) -> list[tuple[bool, Tensor]]:
        """The questions that read the tables as they are, and those that read them in reverse."""
        if self._two_sided is None or not len(items):
            return [(False, items)]
        reverse = self._pieces.relations[items] >= self._two_sided
        return [(side, items[reverse == side]) for side in (False, True) if bool((reverse == side).any())]


def find_rows(ids: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The different ones, ascending; what sorts all of them; where each is among the different ones; how often."""
    ordered, order = torch.sort(ids, stable=True)
    different, places, counts = torch.unique_consecutive(ordered, return_inverse=True, return_counts=True)
    return different, order, torch.empty_like(places).index_copy_(0, order, places), counts


class SampledBatches(Sequence[Step]):
    """One epoch; each batch is made when it is asked for, the same whenever that is."""

    def __init__(self, objective: SampledObjective, items: list[Tensor], seed: int) -> None:
        self._objective, self._items, self._seed = objective, items, seed

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, place: int) -> Step: ...
    @overload
    def __getitem__(self, place: slice) -> list[Step]: ...
    def __getitem__(self, place: int | slice) -> Step | list[Step]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        generator = torch.Generator().manual_seed(self._seed + range(len(self))[place])
        return self._objective.plan(self._items[place], generator)
