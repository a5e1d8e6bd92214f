"""The expected data term of some questions under q, exact over all entities: one sample of q, in blocks of its rows.

A sampled softmax underestimates log Z, and with it would flatter a bound. Here nothing is left out, at the price of one
pass over all entities for a few hundred questions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kgem.model.embeddings import Embeddings
from kgem.model.posterior import Gaussian

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
    generator = torch.Generator().manual_seed(SEED)
    known, places = torch.unique(questions.heads, return_inverse=True)
    heads = Gaussian(entities.mean[known], entities.log_std[known]).sample(generator)[0]
    small = like.with_tables(heads, relations.sample(generator)[0])
    sides = [
        (reverse, rows, like.score.query(small.heads(places[rows], reverse=reverse),
                                         small.relation_rows(questions.relations[rows], reverse=reverse)))
        for reverse, rows in like.sides(questions.relations)
    ]  # fmt: skip
    log_z = heads.new_full((len(questions.heads),), -torch.inf)
    observed = heads.new_zeros(())
    step = max(1, BLOCK // entities.mean.shape[1])
    for start in range(0, len(entities.mean), step):
        part = slice(start, start + step)
        table = Gaussian(entities.mean[part], entities.log_std[part]).sample(generator)[0]
        mine = (known >= start) & (known < start + step)
        table[known[mine] - start] = heads[mine]  # a head is the same entity where it is a tail
        block = like.with_tables(table, small.relations)
        scores = heads.new_empty(len(log_z), len(table))
        for reverse, rows, q in sides:
            scores[rows] = like.score.compare(q, block.tail_table(reverse=reverse))
        log_z = torch.logaddexp(log_z, scores.logsumexp(1))
        here = (questions.answers >= start) & (questions.answers < start + step)
        observed += scores[questions.rows[here], questions.answers[here] - start].sum()
    total = log_z.double()[questions.rows].sum() - observed.double()
    return float(total) / len(questions.answers)
