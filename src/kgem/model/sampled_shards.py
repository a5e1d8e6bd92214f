"""The sampled softmax of several processes: questions are dealt out, rows come from those who have them.

All processes draw the same candidates and know the whole step, so that nobody has to ask for rows: each sends those of
its own that the others need, computes with its part of the questions and all candidates, and sends the gradients back.
Those of relations, which every process has, go to all with them. Two collectives a step. The sums are those of one
process, in another order.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kgem.model.embeddings import Embeddings
from kgem.model.objective import Gradients
from kgem.model.prior import Strengths
from kgem.model.rows import Rows, Touched
from kgem.model.sampled import SampledBatch, SampledObjective

__all__ = ["ShardedBatch", "ShardedObjective"]


@dataclass(frozen=True, eq=False)
class ShardedBatch(SampledBatch):
    """A step of all processes, and this one's part of it; touched rows are those that it has and anybody needs."""

    part: SampledBatch  # its own questions; ids count within the rows that they need
    relations: Tensor  # (n,) the relations of its questions among those of the step
    given: Tensor  # (m,) the touched rows that each process needs, for one after the other
    sent: list[int]  # how many of them go to each
    received: list[int]  # how many rows come from each: together those that the part needs, in their order


class ShardedObjective(SampledObjective):
    """Eqs. 5 and 10 with a sampled softmax, on the touched rows of this process."""

    def _plan(self, items: Tensor, drawn: Tensor) -> ShardedBatch:
        whole = super()._plan(items, drawn)
        processes, borders = self._shards.processes, torch.tensor(self._shards.borders, device=items.device)
        entities, relations = whole.touched
        assert entities.ids is not None and relations.ids is not None and isinstance(entities.share, Tensor)
        low, high = torch.searchsorted(entities.ids, borders[processes.rank : processes.rank + 2]).tolist()
        own = entities.ids[low:high]
        mine = Rows(own - self._shards.start, entities.share[low:high], (low, len(entities.ids)))

        part, given = whole, []
        for rank, questions in enumerate(items.tensor_split(processes.count)):
            needed = self._needed(questions, drawn)
            given.append(torch.searchsorted(own, needed[self._shards.mine(needed)]))
            if rank == processes.rank:
                part = super()._plan(questions, drawn)
        needed_here, asked = (rows.ids for rows in part.touched)
        assert needed_here is not None and asked is not None
        return ShardedBatch(
            size=whole.size,
            touched=Touched(mine, relations),
            candidates=whole.candidates,
            weights=whole.weights,
            sides=(),
            order=whole.order,
            offsets=whole.offsets,
            part=part,
            relations=torch.searchsorted(relations.ids, asked),
            given=torch.cat(given),
            sent=[len(rows) for rows in given],
            received=torch.searchsorted(needed_here, borders).diff().tolist(),
        )

    def _needed(self, items: Tensor, drawn: Tensor) -> Tensor:
        """The entities whose rows these questions read, ascending."""
        ids = torch.cat([drawn, self._pieces.heads[items], self._pieces.tails_of(items)[1]])
        needed: Tensor = torch.unique(ids)
        return needed

    @torch.no_grad()
    def __call__(self, embeddings: Embeddings, strengths: Strengths, batch: SampledBatch) -> tuple[float, Gradients]:
        """The data term of L / N', and the gradient of all of L / N' by the touched rows of this process."""
        assert isinstance(batch, ShardedBatch)
        taught = [] if self._teacher is None else [self._rows_of(m, batch) for m in self._teacher.models]
        model, *teachers = self._fetch([embeddings, *taught], batch)
        loss, partial = self._data_term(model, teachers, batch.part, batch.size)
        data, grads = self._return(loss, partial, embeddings, batch)
        self._add_prior(embeddings, strengths, batch.touched, grads)
        return data, grads

    def _fetch(self, models: list[Embeddings], batch: ShardedBatch) -> list[Embeddings]:
        """The rows that this process needs, of one or several models: one exchange."""
        rows = torch.cat([model.entities for model in models], dim=1) if len(models) > 1 else models[0].entities
        found = self._shards.processes.exchange(rows.index_select(0, batch.given), batch.sent, batch.received)
        tables = torch.split(found, [model.entities.shape[1] for model in models], dim=1)
        return [
            model.with_tables(table.contiguous(), model.relations.index_select(0, batch.relations))
            for model, table in zip(models, tables, strict=True)
        ]

    def _return(
        self, loss: float, partial: Gradients, like: Embeddings, batch: ShardedBatch
    ) -> tuple[float, Gradients]:
        """Gradients to those who have the rows, and those of relations to all, with the loss and wishes to stop."""
        processes, width = self._shards.processes, like.entities.shape[1]
        relations = torch.zeros_like(like.relations).index_copy_(0, batch.relations, partial.relations)
        common = torch.cat([relations.view(-1), relations.new_tensor([loss, processes.wish()])])
        rows = torch.split(partial.entities, batch.received)
        out = torch.cat([each for part in rows for each in (part.reshape(-1), common)])
        sent, received = ([n * width + len(common) for n in counts] for counts in (batch.received, batch.sent))
        parts = torch.split(processes.exchange(out, sent, received), received)
        entities, totals = torch.zeros_like(like.entities), torch.stack([part[-len(common) :] for part in parts]).sum(0)
        gradients = torch.cat([part[: -len(common)] for part in parts]).view(-1, width)
        entities.index_add_(0, batch.given, gradients)
        processes.hear(totals[-1])
        return float(totals[-2]), Gradients(entities, totals[:-2].view_as(like.relations))
