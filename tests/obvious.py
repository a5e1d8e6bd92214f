"""The obvious versions that fast paths are compared with: loops and autograd, nothing clever."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from kgem.data.dataset import Dataset
from kgem.data.index import Vocabulary
from kgem.model.embeddings import Embeddings
from kgem.model.prior import Prior, Strengths, conventional_strengths, uniform_strengths
from kgem.model.scores import SCORES, Score


class Simple(Score):
    """A user's score, asymmetric and linear in the tail: (<h1, r1, t2> + <t1, r2, h2>) / 2."""

    name = "simple"

    def entity_width(self, dim: int) -> int:
        return 2 * dim

    def relation_width(self, dim: int) -> int:
        return 2 * dim

    def query(self, h: Tensor, r: Tensor) -> Tensor:
        return (h * r).roll(h.shape[-1] // 2, dims=-1) / 2

    def transpose(self, r: Tensor) -> Tensor:
        return r.roll(r.shape[-1] // 2, dims=-1)


class Stretch(Score):
    """A user's score that is not linear in the tail and says nothing about reading relations backwards."""

    name = "stretch"
    bilinear = False

    def query(self, h: Tensor, r: Tensor) -> Tensor:
        return h * r

    def compare(self, q: Tensor, tails: Tensor) -> Tensor:
        return self.pair(q[:, None], tails)

    def pair(self, q: Tensor, tails: Tensor) -> Tensor:
        return -(q - tails).square().sum(-1)


ALL_SCORES: dict[str, Score] = {**SCORES, "simple": Simple(), "stretch": Stretch()}
TWO_SIDED = [name for name in ALL_SCORES if name != "stretch"]
MODES = [(name, True) for name in ALL_SCORES] + [(name, False) for name in TWO_SIDED]  # score, reciprocal


def _distmult(h: list[float], r: list[float], t: list[float]) -> float:
    return sum(h[k] * r[k] * t[k] for k in range(len(h)))


def _complex(h: list[float], r: list[float], t: list[float]) -> float:
    n = len(h) // 2
    numbers = [[complex(x[k], x[n + k]) for k in range(n)] for x in (h, r, t)]
    return sum(a * b * c.conjugate() for a, b, c in zip(*numbers, strict=True)).real


def _cp(h: list[float], r: list[float], t: list[float]) -> float:
    return sum(h[k] * r[k] * t[len(r) + k] for k in range(len(r)))


def _hole(h: list[float], r: list[float], t: list[float]) -> float:
    n = len(h)
    return sum(r[k] * h[i] * t[(i + k) % n] for k in range(n) for i in range(n))


def _rescal(h: list[float], r: list[float], t: list[float]) -> float:
    n = len(h)
    return sum(h[i] * r[i * n + j] * t[j] for i in range(n) for j in range(n))


def _quate(h: list[float], r: list[float], t: list[float]) -> float:
    """Hamilton's table, i j = k and so on, unit by unit; a row has real parts, j, i, k."""
    n, total = len(h) // 4, 0.0
    units = {"1": 0, "j": 1, "i": 2, "k": 3}
    times = {("i", "j"): "k", ("j", "k"): "i", ("k", "i"): "j"}
    for a, left in units.items():
        for b, right in units.items():
            if "1" in (a, b):
                unit, sign = (b if a == "1" else a), 1
            elif a == b:
                unit, sign = "1", -1
            else:
                unit, sign = (times[a, b], 1) if (a, b) in times else (times[b, a], -1)
            for k in range(n):
                total += sign * h[left * n + k] * r[right * n + k] * t[units[unit] * n + k]
    return total


def _transe(norm: int) -> Callable[[list[float], list[float], list[float]], float]:
    def score(h: list[float], r: list[float], t: list[float]) -> float:
        return -(sum(abs(h[k] + r[k] - t[k]) ** norm for k in range(len(h))) ** (1 / norm))

    return score


def _simple(h: list[float], r: list[float], t: list[float]) -> float:
    n = len(h) // 2
    return sum(h[k] * r[k] * t[n + k] + t[k] * r[n + k] * h[n + k] for k in range(n)) / 2


def _stretch(h: list[float], r: list[float], t: list[float]) -> float:
    return -sum((h[k] * r[k] - t[k]) ** 2 for k in range(len(h)))


DEFINITIONS = {
    "distmult": _distmult,
    "complex": _complex,
    "cp": _cp,
    "hole": _hole,
    "quate": _quate,
    "rescal": _rescal,
    "tucker": _rescal,  # of relations that are mixed with the core; `relation_vectors` mixes
    "transe-l1": _transe(1),
    "transe-l2": _transe(2),
    "simple": _simple,
    "stretch": _stretch,
}


def random_graph(n_entities: int = 23, n_relations: int = 4, n_facts: int = 150, *, seed: int = 0) -> Dataset:
    """A random graph with many tails for some queries, one for others, and two entities that train never shows."""
    rng = np.random.default_rng(seed)
    heads = (rng.random(n_facts) ** 2 * (n_entities - 2)).astype(np.int32)
    tails = rng.integers(n_entities - 2, size=n_facts)
    facts = np.unique(np.stack([heads, rng.integers(n_relations, size=n_facts), tails], axis=1), axis=0)
    rng.shuffle(facts)
    held = max(2, len(facts) // 8)
    test = facts[:held].copy()
    test[0, 2] = n_entities - 1  # a target that train never shows
    return Dataset(
        name="random",
        entities=Vocabulary(tuple(f"e{i}" for i in range(n_entities)), "entity"),
        relations=Vocabulary(tuple(f"r{i}" for i in range(n_relations)), "relation"),
        train=facts[2 * held :],
        valid=facts[held : 2 * held],
        test=test,
    )


def random_embeddings(
    data: Dataset,
    score: Score | str,
    dim: int = 4,
    *,
    reciprocal: bool = True,
    scale: float = 0.7,
    dtype: torch.dtype = torch.float64,
    seed: int = 1,
) -> Embeddings:
    return Embeddings.random(
        ALL_SCORES[score] if isinstance(score, str) else score,
        data.n_entities,
        data.n_relations,
        dim,
        generator=torch.Generator().manual_seed(seed),
        reciprocal=reciprocal,
        scale=scale,
        dtype=dtype,
    )


def strengths_of(kind: str, data: Dataset, embeddings: Embeddings) -> Strengths:
    """Conventional, uniform, or one of its own for every symbol."""
    dtype = embeddings.entities.dtype
    shared = np.full(embeddings.n_shared, 3)
    relations = np.append(np.tile(data.relation_counts, 2 if embeddings.reciprocal else 1), shared)
    counts = (data.entity_counts, relations)
    if kind == "individual":
        generator = torch.Generator().manual_seed(5)
        return Strengths(*(0.1 + torch.rand(len(n), generator=generator, dtype=dtype) for n in counts))
    rule = {"conventional": conventional_strengths, "uniform": uniform_strengths}[kind]
    return Strengths(*(rule(n, 0.3, dtype) for n in counts))


def relation_vectors(embeddings: Embeddings) -> Tensor:
    """What `query` takes for each relation: its row, or the product of that with each row that all facts share."""
    own, shared = embeddings.relations[: embeddings.n_own], embeddings.relations[embeddings.n_own :]
    return torch.stack([(own * row).sum(1) for row in shared], dim=1) if len(shared) else own


def loss_over_facts(embeddings: Embeddings, facts: np.ndarray) -> Tensor:
    """Eq. 5: the cross-entropy of the tail and of the head of each fact (n, 3), one fact at a time; their sum."""
    score, entities, relations = embeddings.score, embeddings.entities, relation_vectors(embeddings)
    loss = entities.new_zeros(())
    for h, r, t in facts.tolist():
        forth = score.triple(entities[h], relations[r], entities)
        if embeddings.reciprocal:
            back = score.triple(entities[t], relations[embeddings.n_relations + r], entities)
        else:
            back = score.triple(entities, relations[r].expand(len(entities), -1), entities[t])
        loss = loss - forth.log_softmax(0)[t] - back.log_softmax(0)[h]
    return loss


def penalty_over_rows(embeddings: Embeddings, strengths: Strengths, p: int) -> Tensor:
    """Eq. 8 without its normaliser."""
    total = embeddings.entities.new_zeros(())
    for table, lam in zip(embeddings.tables(), strengths, strict=True):
        if embeddings.score.complex:
            half = table.shape[1] // 2
            sizes = torch.complex(table[:, :half], table[:, half:]).abs()
        else:
            sizes = table.abs()
        total = total + (lam * (sizes**p).sum(1)).sum() / p
    return total


def with_leaves(embeddings: Embeddings) -> Embeddings:
    """The same numbers in tables that autograd follows."""
    return embeddings.with_tables(*(t.detach().clone().requires_grad_() for t in embeddings.tables()))


def log_density(prior: Prior, table: Tensor, strengths: Tensor) -> Tensor:
    """Eq. 16: log p(table | strengths), summed over rows."""
    return prior.log_normaliser(strengths, table.shape[1]) - prior.penalty(table, strengths)
