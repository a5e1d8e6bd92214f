"""The sampled softmax of several processes: questions are dealt out, rows come from those who have them.

All processes draw the same candidates and know the whole step, so that nobody has to ask for rows: each sends those of
its own that the others need, computes with its part of the questions and all candidates, and sends the gradients back.
Those of relations, which every process has, go to all with them. Two collectives a step; while rows are under way the
prior is added up, and while gradients are, the next step is planned. The sums are those of one process, in another
order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import overload

import torch
from torch import Tensor

from kgem.model.embeddings import Embeddings
from kgem.model.objective import Gradients, shuffle_batches
from kgem.model.prior import Strengths
from kgem.model.rows import Rows, Touched
from kgem.model.sampled import SEEDS, SampledBatch, SampledBatches, SampledObjective, Step, find_rows

__all__ = ["ShardedBatch", "ShardedObjective"]


@dataclass(frozen=True, eq=False)
class ShardedBatch(Step):
    """A step of all processes, and this one's part of it; touched rows are those that it has and anybody needs."""

    part: SampledBatch  # its own questions; ids count within the rows that they need
    relations: Tensor  # (n,) the relations of its questions among those of the step
    given: Tensor  # (m,) the touched rows that each process needs, for one after the other
    sent: list[int]  # how many of them go to each
    received: list[int]  # how many rows come from each: together those that the part needs, in their order
    plan_next: Callable[[], None] = lambda: None  # what can be done while gradients are under way


class ShardedObjective(SampledObjective):
    """Eqs. 5 and 10 with a sampled softmax, on the touched rows of this process."""

    def batches(self, size: int, generator: torch.Generator) -> SampledBatches:
        seed = int(torch.randint(SEEDS, (1,), generator=generator))
        return ShardedBatches(self, shuffle_batches(self.n_items, size, generator), seed)

    def _plan(self, items: Tensor, drawn: Tensor) -> ShardedBatch:
        pieces, processes = self._pieces, self._shards.processes
        borders = torch.tensor(self._shards.borders, device=items.device)
        cuts = [len(items) * rank // processes.count for rank in range(processes.count + 1)]
        part, _, _ = self._lay_out(items[cuts[processes.rank] : cuts[processes.rank + 1]], drawn)

        starts, tails = pieces.tails_of(items)
        entities, _, places, here = find_rows(torch.cat([tails, pieces.heads.index_select(0, items), drawn]))
        answers, heads, candidates = torch.split(places, [len(tails), len(items), len(drawn)])
        here.index_add_(0, candidates, torch.ones_like(candidates), alpha=-1)
        low, high = torch.searchsorted(entities, borders[processes.rank : processes.rank + 2]).tolist()
        by_all = torch.zeros_like(entities, dtype=torch.bool).index_fill_(0, candidates, True)
        answer_cuts, given = starts[cuts].tolist(), []
        for rank in range(processes.count):
            needed = by_all.clone()
            needed.index_fill_(0, answers[answer_cuts[rank] : answer_cuts[rank + 1]], True)
            needed.index_fill_(0, heads[cuts[rank] : cuts[rank + 1]], True)
            given.append(torch.nonzero(needed[low:high]).squeeze(1))

        each, own = self.n_items / max(len(items), 1), entities[low:high]
        rows = self._rows(own, here[low:high], self.occurrences[0], each)
        mine = Rows(own - self._shards.start, rows.share, (low, len(entities)))
        ids, _, _, relations_here = find_rows(self._relation_rows(pieces.relations.index_select(0, items)))
        relations = self._rows(ids, relations_here, self.occurrences[1], each).followed_by(self._shared)
        needed_here, asked = (rows.ids for rows in part.touched)
        assert needed_here is not None and asked is not None and relations.ids is not None
        return ShardedBatch(
            size=len(items),
            touched=Touched(mine, relations),
            part=part,
            relations=torch.searchsorted(relations.ids, asked),
            given=torch.cat(given),
            sent=[len(rows) for rows in given],
            received=torch.searchsorted(needed_here, borders).diff().tolist(),
        )

    @torch.no_grad()
    def __call__(self, embeddings: Embeddings, strengths: Strengths, batch: Step) -> tuple[float, Gradients]:
        """The data term of L / N', and the gradient of all of L / N' by the touched rows of this process."""
        assert isinstance(batch, ShardedBatch)
        taught = [] if self._teacher is None else [self._rows_of(m, batch) for m in self._teacher.models]
        grads = Gradients(*(torch.zeros_like(table) for table in embeddings.tables()))

        def add_prior() -> None:
            self._add_prior(embeddings, strengths, batch.touched, grads)

        model, *teachers = self._fetch([embeddings, *taught], batch, add_prior)
        loss, partial = self._data_term(model, teachers, batch.part, batch.size)
        data = self._return(loss, partial, grads, batch)
        self._clear_unseen(batch.touched, grads)
        return data, grads

    def _fetch(self, models: list[Embeddings], batch: ShardedBatch, meanwhile: Callable[[], None]) -> list[Embeddings]:
        """The rows that this process needs, of one or several models: one exchange."""
        rows = torch.cat([model.entities for model in models], dim=1) if len(models) > 1 else models[0].entities
        given = rows.index_select(0, batch.given)
        found = self._shards.processes.exchange(given, batch.sent, batch.received, meanwhile)
        tables = torch.split(found, [model.entities.shape[1] for model in models], dim=1)
        return [
            model.with_tables(table.contiguous(), model.relations.index_select(0, batch.relations))
            for model, table in zip(models, tables, strict=True)
        ]

    def _return(self, loss: float, partial: Gradients, grads: Gradients, batch: ShardedBatch) -> float:
        """Mutates `grads`: gradients go to those who have the rows, and those of relations to all.

        With them go the loss, of which this is the sum, and wishes to stop.
        """
        processes, width = self._shards.processes, grads.entities.shape[1]
        relations = torch.zeros_like(grads.relations).index_copy_(0, batch.relations, partial.relations)
        common = torch.cat([relations.view(-1), relations.new_tensor([loss, processes.wish()])])
        rows = torch.split(partial.entities, batch.received)
        out = torch.cat([each for part in rows for each in (part.reshape(-1), common)])
        sent, received = ([n * width + len(common) for n in counts] for counts in (batch.received, batch.sent))
        parts = torch.split(processes.exchange(out, sent, received, batch.plan_next), received)
        for place, part in zip(torch.split(batch.given, batch.sent), parts, strict=True):
            grads.entities.index_add_(0, place, part[: -len(common)].view(-1, width))
        totals = torch.stack([part[-len(common) :] for part in parts]).sum(0)
        grads.relations.add_(totals[:-2].view_as(grads.relations))
        processes.hear(totals[-1])
        return float(totals[-2])


class ShardedBatches(SampledBatches):
    """One epoch; whoever has a batch may have the next one planned where there is time for it."""

    _next: tuple[int, Step] | None = None

    @overload
    def __getitem__(self, place: int) -> Step: ...
    @overload
    def __getitem__(self, place: slice) -> list[Step]: ...
    def __getitem__(self, place: int | slice) -> Step | list[Step]:
        if isinstance(place, slice):
            return super().__getitem__(place)
        place = range(len(self))[place]
        planned = self._plan_once(place)
        assert isinstance(planned, ShardedBatch)
        return replace(planned, plan_next=lambda: self._plan_ahead(place + 1))

    def _plan_ahead(self, place: int) -> None:
        if place < len(self):
            self._next = place, self._plan_once(place)

    def _plan_once(self, place: int) -> Step:
        return self._next[1] if self._next is not None and self._next[0] == place else super().__getitem__(place)
