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
from dataclasses import dataclass
from typing import overload

import torch
from torch import Tensor

from kgem.data.index import QueryIndex
from kgem.model.embeddings import Embeddings
from kgem.model.exact_pass import expected_loss
from kgem.model.objective import Gradients, Objective, Pieces, shuffle_batches
from kgem.model.posterior import Gaussian
from kgem.model.prior import Prior, Strengths
from kgem.model.rows import Rows, Touched
from kgem.model.sampled_kernel import Side, sampled_softmax
from kgem.model.sampling import Candidates
from kgem.model.teacher import Teacher

__all__ = ["SampledBatch", "SampledObjective"]

MAX_TAILS = 4096  # of a question; one with more is cut, and the answers of its other pieces are others
CHECKED = 512  # questions of the exact pass that the bound is reported from
SEEDS = 2**62


@dataclass(frozen=True, eq=False)
class SampledBatch:
    """Questions, their candidates, and the rows of both; ids count within these rows."""

    size: int
    touched: Touched
    candidates: Tensor  # (M,) places among the touched entities
    weights: Tensor  # (M,) 1 / pi
    sides: tuple[Side, ...]

    def __len__(self) -> int:
        return self.size


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
            torch.bincount(self._pieces.heads, minlength=len(entities))
            + torch.bincount(self._pieces.tails, minlength=len(entities)),
            torch.bincount(rows, minlength=len(like.relations)),
        )
        self._shared = torch.arange(like.n_own, len(like.relations), device=entities.device)  # in every question
        self.occurrences[1][self._shared] = self.n_items
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

    def touched(self, batch: SampledBatch) -> Touched:
        """The rows that tables must be reduced to before they are handed in."""
        return batch.touched

    def plan(self, items: Tensor, generator: torch.Generator) -> SampledBatch:
        """The step of these questions: their candidates, and which rows all of it touches."""
        pieces = self._pieces
        items = items.to(pieces.heads.device)
        drawn = self.candidates.draw(generator).to(items.device)
        parts = [(reverse, part, *pieces.tails_of(part)) for reverse, part in self._split(items)]
        ids = torch.cat([drawn, *(pieces.heads[part] for _, part, _, _ in parts), *(tails for *_, tails in parts)])
        entities, places = torch.unique(ids, return_inverse=True)
        relations, relation_places = torch.unique(
            torch.cat([self._relation_rows(pieces.relations[part]) for _, part, _, _ in parts]), return_inverse=True
        )
        sizes = [len(drawn), *(len(part) for _, part, _, _ in parts), *(len(tails) for *_, tails in parts)]
        candidates, *rest = places.split(sizes)
        heads, answers = rest[: len(parts)], rest[len(parts) :]
        relation_parts = relation_places.split([len(part) for _, part, _, _ in parts])
        sides = tuple(
            Side.of(reverse, h, r, pieces.counts[part], offsets, t, candidates)
            for (reverse, part, offsets, _), h, r, t in zip(parts, heads, relation_parts, answers, strict=True)
        )
        each = self.n_items / len(items)
        touched = Touched(
            self._rows(entities, places[len(drawn) :], self.occurrences[0], each),
            self._rows(relations, relation_places, self.occurrences[1], each).followed_by(self._shared),
        )
        weights = self.candidates.weights[drawn.cpu()].to(items.device)
        return SampledBatch(len(items), touched, candidates, weights, sides)

    @torch.no_grad()
    def __call__(self, embeddings: Embeddings, strengths: Strengths, batch: SampledBatch) -> tuple[float, Gradients]:
        """The data term of L / N', and the gradient of all of L / N' with respect to the touched rows."""
        grads = Gradients(*(torch.zeros_like(table) for table in embeddings.tables()))
        scale = self.n_items / (batch.size * self.n_facts)
        teachers = [] if self._teacher is None else [self._rows_of(m, batch) for m in self._teacher.models]
        taught = 0.0 if self._teacher is None else self._teacher.weight
        data = 0.0
        for side in batch.sides:
            data += sampled_softmax(
                embeddings, side, batch.candidates, batch.weights, grads, scale, self._dtype, teachers, taught
            )
        tables = zip(embeddings.tables(), strengths, batch.touched, grads, self.occurrences, strict=True)
        for table, lam, rows, grad, occurrences in tables:
            self._prior.add_gradient(table, lam * rows.share, grad, scale=1.0 / self.n_facts)
            unseen = rows.take(occurrences) == 0
            if bool(unseen.any()):
                grad[unseen] = 0.0
        return data, grads

    def expected_loss(self, loss: float, posterior: tuple[Gaussian, Gaussian], like: Embeddings) -> float:
        """The data term of L / N' under q for the bound: exact over all entities, for some of the questions."""
        return expected_loss(posterior, like, self._checked)

    def _rows_of(self, model: Embeddings, batch: SampledBatch) -> Embeddings:
        return model.with_tables(*batch.touched.of(model.tables()))

    def _rows(self, ids: Tensor, places: Tensor, occurrences: Tensor, each: float) -> Rows:
        """The touched rows of a table; `places` (n,) are those that occur as head, answer or relation."""
        here = torch.bincount(places, minlength=len(ids))
        return Rows(ids, (here * each / occurrences[ids].clamp_min(1)).float())

    def _relation_rows(self, relations: Tensor) -> Tensor:
        """The rows of R that questions read: both directions have the same one in the two-sided mode."""
        return relations if self._two_sided is None else relations % self._two_sided

    def _split(self, items: Tensor) -> list[tuple[bool, Tensor]]:
        """The questions that read the tables as they are, and those that read them in reverse."""
        if self._two_sided is None:
            return [(False, items)]
        reverse = self._pieces.relations[items] >= self._two_sided
        return [(side, items[reverse == side]) for side in (False, True) if bool((reverse == side).any())]


class SampledBatches(Sequence[SampledBatch]):
    """One epoch; each batch is made when it is asked for, the same whenever that is."""

    def __init__(self, objective: SampledObjective, items: list[Tensor], seed: int) -> None:
        self._objective, self._items, self._seed = objective, items, seed

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, place: int) -> SampledBatch: ...
    @overload
    def __getitem__(self, place: slice) -> list[SampledBatch]: ...
    def __getitem__(self, place: int | slice) -> SampledBatch | list[SampledBatch]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        generator = torch.Generator().manual_seed(self._seed + range(len(self))[place])
        return self._objective.plan(self._items[place], generator)
