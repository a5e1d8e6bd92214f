"""The expected data term of some questions under q, exact over all entities: one sample of q, in blocks of its rows.

A sampled softmax underestimates log Z, and with it would flatter a bound. Here nothing is left out, at the price of one
pass over all entities for a few hundred questions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kgem.model.embeddings import Embeddings
from kgem.model.posterior import Gaussian
from kgem.model.shards import WHOLE

__all__ = ["Questions", "expected_loss"]

BLOCK = 2**22  # numbers in a block of entity rows
SEED = 20


@dataclass(frozen=True, eq=False)
class Questions:
    """Some questions with all their answers."""

    heads: Tensor  # (b,)
    relations: Tensor  # (b,)
    rows: Tensor  # (pairs,) the question of each answer
    answers: Tensor  # (pairs,)


@torch.no_grad()
def expected_loss(posterior: tuple[Gaussian, Gaussian], like: Embeddings, questions: Questions) -> float:
    """The mean over their facts of log Z - f for one sample of q, of the same noise each time."""
    entities, relations = posterior
    shards = like.shards
    generator = torch.Generator().manual_seed(SEED)
    known, places = torch.unique(questions.heads, return_inverse=True)
    rows = Gaussian(shards.fetch(entities.mean, known), shards.fetch(entities.log_std, known))
    heads = rows.sample(generator)[0]
    small = replace(like, entities=heads, relations=relations.sample(generator)[0], shards=WHOLE)
    sides = [
        (reverse, some, like.score.query(small.heads(places[some], reverse=reverse),
                                         small.relation_rows(questions.relations[some], reverse=reverse)))
        for reverse, some in like.sides(questions.relations)
    ]  # fmt: skip
    log_z = heads.new_full((len(questions.heads),), -torch.inf)
    observed = heads.new_zeros(())
    width = entities.mean.shape[1]
    step = max(1, BLOCK // width)
    for first in range(0, like.n_entities, step):
        last = min(first + step, like.n_entities)
        start, stop = shards.clip(first, last)  # the rows of the block that this process has
        part = slice(start - shards.start, stop - shards.start)
        q = Gaussian(entities.mean[part], entities.log_std[part])
        table = q.sample(generator, part=((start - first) * width, (last - first) * width))[0]
        if start == stop:
            continue
        mine = (known >= start) & (known < stop)
        table[known[mine] - start] = heads[mine]  # a head is the same entity where it is a tail
        block = small.with_tables(table, small.relations)
        scores = heads.new_empty(len(log_z), len(table))
        for reverse, some, asked in sides:
            scores[some] = like.score.compare(asked, block.tail_table(reverse=reverse))
        log_z = torch.logaddexp(log_z, scores.logsumexp(1))
        here = (questions.answers >= start) & (questions.answers < stop)
        observed += scores[questions.rows[here], questions.answers[here] - start].sum()
    log_z, observed = shards.join(log_z, observed)
    total = log_z[questions.rows].sum() - observed
    return float(total) / len(questions.answers)
