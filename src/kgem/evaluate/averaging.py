"""Several models that answer together: Bayesian link prediction (end of Section 3.2), and a blend of two."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from kgem.evaluate.blocks import Scorer, TableScorer, shards_of
from kgem.model.embeddings import Embeddings

__all__ = ["AverageScorer", "BlendScorer"]

CHUNK = 2**14  # entities per pass where a normaliser is summed up


class _Together:
    """Several models of the same entities; `scratch` ranges of scores are needed for each query to make them one."""

    scratch: int

    def __init__(self, models: Sequence[Embeddings | Scorer]) -> None:
        self._scorers = [TableScorer(model) if isinstance(model, Embeddings) else model for model in models]
        self.n_entities, self.shards = self._scorers[0].n_entities, shards_of(self._scorers[0])
        self.like = self._scorers[0].like
        scratch_bytes = self.scratch * min(CHUNK, self.n_entities) * self.like.element_size()
        self.bytes_per_query = sum(scorer.bytes_per_query for scorer in self._scorers) + scratch_bytes
        self.bytes_per_entity = max(scorer.bytes_per_entity for scorer in self._scorers)


class AverageScorer(_Together):
    """Scores log( mean over samples of softmax_t f(h, r, t) ): log probabilities, already normalised."""

    scratch = 2

    def prepare(self, heads: Tensor, relations: Tensor) -> Callable[[int, int, Tensor], None]:
        """For some queries: a function that writes the log probabilities of entities start..stop into a block."""
        writers = [scorer.prepare(heads, relations) for scorer in self._scorers]
        log_z: list[Tensor] = []  # (b,) for each sample, once a mere range of entities is asked for

        def write_block(start: int, stop: int, block: Tensor) -> None:
            whole = stop - start == self.n_entities
            if not whole and not log_z:
                log_z.extend(self._log_normaliser(write, len(heads)) for write in writers)
            total = torch.full_like(block, -torch.inf)
            for i, write in enumerate(writers):
                write(start, stop, block)
                z = block.logsumexp(dim=1) if whole else log_z[i]
                torch.logaddexp(total, block.sub_(z[:, None]), out=total)
            block.copy_(total).sub_(math.log(len(writers)))

        return write_block

    def _log_normaliser(self, write: Callable[[int, int, Tensor], None], n_queries: int) -> Tensor:
        """log sum_t exp f(h, r, t) of each query, a range of entities at a time: (b,)."""
        parts = []
        for start in range(0, self.n_entities, CHUNK):
            stop = min(start + CHUNK, self.n_entities)
            block = self.like.new_empty(n_queries, stop - start)
            write(start, stop, block)
            parts.append(block.logsumexp(dim=1))
        return torch.stack(parts).logsumexp(dim=0)


class BlendScorer(_Together):
    """Scores the mean of several models' logits: the geometric mean of their probabilities, once normalised."""

    scratch = 1

    def prepare(self, heads: Tensor, relations: Tensor) -> Callable[[int, int, Tensor], None]:
        """For some queries: a function that writes the mean scores of entities start..stop into a block."""
        first, *others = [scorer.prepare(heads, relations) for scorer in self._scorers]
        scratch = self.like.new_empty(len(heads) * min(CHUNK, self.n_entities))

        def write_block(start: int, stop: int, block: Tensor) -> None:
            first(start, stop, block)
            for low in range(start, stop, CHUNK):
                high = min(low + CHUNK, stop)
                more = scratch[: len(heads) * (high - low)].view(len(heads), high - low)
                for write in others:
                    write(low, high, more)
                    block[:, low - start : high - start].add_(more)
            block.div_(1 + len(others))

        return write_block
