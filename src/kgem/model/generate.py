"""Draws a graph from the model's own generative process (Fig. 2), with what was planted kept beside it.

The facts are those of tail queries (h, r, ?) on the n_relations forward relations: that is the direction in which
Eq. 9 draws. The reciprocal relations of a fit (Eq. 7) have no planted counterpart.

P(h, r) is ours to choose, and inference does not depend on it. Here heads and relations have power-law
frequencies, and every entity is a head and every relation used at least once, so that the vocabularies of the
dataset, of files written from it, and the planted rows are the same. Facts are a set: what is drawn twice counts
once, and drawing goes on.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from kgem.data.dataset import SPLITS, Dataset
from kgem.data.index import IntArray, LongArray, Vocabulary, fact_keys
from kgem.data.splits import make_split
from kgem.errors import ConfigError, DatasetError

__all__ = ["MODELS", "Planted", "Space", "generate", "sample_prior", "sample_tails", "save"]

FloatArray: TypeAlias = npt.NDArray[np.float64]
StrengthsOrBounds: TypeAlias = npt.ArrayLike | tuple[float, float]

BLOCK = 500_000  # scores held at a time: a few megabytes, so that they stay in the cache
MIN_YIELD = 0.01  # share of new facts per draw below which the graph counts as exhausted


def _query_distmult(heads: FloatArray, relations: FloatArray) -> FloatArray:
    """Eq. 3 without its tail: h * r, (n, K)."""
    return heads * relations


def _query_complex(heads: FloatArray, relations: FloatArray) -> FloatArray:
    """Eq. 4 without its tail: h * r in C, real parts then imaginary parts, (n, 2K).

    Re(q conj(t)) = Re q Re t + Im q Im t, so that a score is a plain dot product with the tail's row.
    """
    a, b = np.split(heads, 2, axis=1)
    c, d = np.split(relations, 2, axis=1)
    return np.concatenate([a * c - b * d, a * d + b * c], axis=1)


@dataclass(frozen=True)
class Space:
    """Where a model's embeddings live, and its score as <query(h, r), t>."""

    query: Callable[[FloatArray, FloatArray], FloatArray]
    is_complex: bool


MODELS = {
    "distmult": Space(_query_distmult, is_complex=False),
    "complex": Space(_query_complex, is_complex=True),
}


@dataclass(frozen=True)
class GeneratorConfig:
    """What a graph is drawn with, apart from the strengths."""

    n_entities: int
    n_relations: int
    n_facts: int
    dim: int
    model: str
    p: int
    head_exponent: float
    relation_exponent: float

    def __post_init__(self) -> None:
        for what in ("n_entities", "n_relations", "n_facts", "dim"):
            if getattr(self, what) < 1:
                raise ConfigError(f"{what} is {getattr(self, what)}", remedy="give at least 1")
        if self.model not in MODELS:
            raise ConfigError(
                f"facts cannot be drawn from a model {self.model!r}", remedy=f"one of {', '.join(MODELS)}"
            )
        if self.p not in (2, 3):
            raise ConfigError(f"the norm p is {self.p}", remedy="2 or 3")
        least, most = max(self.n_entities, self.n_relations), self.n_entities**2 * self.n_relations // 2
        if not least <= self.n_facts <= most:
            raise ConfigError(
                f"{self.n_facts:,} facts for {self.n_entities:,} entities and {self.n_relations:,} relations",
                remedy=f"at least {least:,} show every symbol; at most {most:,} are half of all there could be",
            )


@dataclass(frozen=True, eq=False)
class Planted:
    """A drawn graph and what it was drawn from; row i of a table belongs to the dataset's id i."""

    dataset: Dataset
    entities: FloatArray  # (N_e, K'): K' = K, or 2K with real parts before imaginary parts
    relations: FloatArray  # (N_r, K')
    entity_strengths: FloatArray  # (N_e,)
    relation_strengths: FloatArray  # (N_r,)
    config: GeneratorConfig

    def scores(self, heads: npt.ArrayLike, relations: npt.ArrayLike) -> FloatArray:
        """f(h, r, t) under the planted tables for every tail, (n, N_e): the best that any fit could know."""
        query = MODELS[self.config.model].query
        return query(self.entities[np.asarray(heads)], self.relations[np.asarray(relations)]) @ self.entities.T


def generate(
    n_entities: int,
    n_relations: int,
    n_facts: int,
    dim: int,
    *,
    rng: np.random.Generator,
    model: str = "complex",
    p: int = 3,
    entity_strengths: StrengthsOrBounds = (0.5, 5.0),
    relation_strengths: StrengthsOrBounds = (0.5, 5.0),
    head_exponent: float = 1.0,
    relation_exponent: float = 0.5,
    valid: float = 0.1,
    test: float = 0.1,
    name: str = "planted",
) -> Planted:
    """The generative process of Fig. 2 (left): tables from their priors (Eq. 8), tails from softmaxes (Eq. 9).

    Strengths are an array with one per symbol, or bounds between which they are drawn log-uniformly. A head or a
    relation of frequency rank k is asked for with probability proportional to k^-exponent.
    """
    config = GeneratorConfig(n_entities, n_relations, n_facts, dim, model, p, head_exponent, relation_exponent)
    strengths = (
        _strengths(entity_strengths, n_entities, "entity_strengths", rng),
        _strengths(relation_strengths, n_relations, "relation_strengths", rng),
    )
    space = MODELS[model]
    entities, relations = (sample_prior(s, dim, p, is_complex=space.is_complex, rng=rng) for s in strengths)
    facts = _draw_facts(config, entities, relations, rng)
    none = np.empty((0, 3), dtype=np.int32)
    whole = Dataset(
        name=name,
        entities=_vocabulary("entity", n_entities),
        relations=_vocabulary("relation", n_relations),
        train=facts,
        valid=none,
        test=none,
    )
    dataset, _ = make_split(whole, valid, test, rng)
    return Planted(dataset, entities, relations, *strengths, config)


def sample_prior(strengths: FloatArray, dim: int, p: int, *, is_complex: bool, rng: np.random.Generator) -> FloatArray:
    """Eq. 8, exactly: rows x ~ exp(-(lambda/p) ||x||_p^p), (N, K) or, complex, (N, 2K).

    With u = (lambda/p) |x|^p, dx = u^(1/p - 1) du up to a constant on each half of the real line, so that u is
    Gamma(1/p) and the sign is fair; in the plane |x| d|x| = u^(2/p - 1) du, so that u is Gamma(2/p) and the
    phase uniform.
    """
    shape = (len(strengths), dim)
    u = rng.gamma((2 if is_complex else 1) / p, size=shape)
    modulus: FloatArray = (p * u / strengths[:, None]) ** (1 / p)
    if not is_complex:
        return modulus * np.where(rng.random(shape) < 0.5, -1.0, 1.0)
    phase = rng.uniform(0, 2 * np.pi, size=shape)
    return np.concatenate([modulus * np.cos(phase), modulus * np.sin(phase)], axis=1)


def sample_tails(
    heads: LongArray,
    asked: LongArray,
    entities: FloatArray,
    relations: FloatArray,
    *,
    model: str,
    rng: np.random.Generator,
) -> LongArray:
    """Eq. 9: a tail for each query (h, r), (n,); equal queries share one softmax, few are held at a time."""
    distinct, which = np.unique(heads * np.int64(len(relations)) + asked, return_inverse=True)
    h, r = np.divmod(distinct, len(relations))
    order = np.argsort(which, kind="stable")
    uniform = rng.random(len(which))
    tails = np.empty(len(which), dtype=np.int64)
    step = max(1, BLOCK // len(entities))
    for start in range(0, len(distinct), step):
        low, high = np.searchsorted(which, (start, start + step), sorter=order)
        draws, rows = order[low:high], slice(start, start + step)
        scores = MODELS[model].query(entities[h[rows]], relations[r[rows]]) @ entities.T  # (rows, N_e)
        tails[draws] = _inverse_cdf(scores, which[draws] - start, uniform[draws])
    return tails


def _inverse_cdf(scores: FloatArray, rows: LongArray, uniform: FloatArray) -> LongArray:
    """The outcome at each (row, u) of the rows' softmaxes, by one search in all cdfs laid end to end."""
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    cdf = np.cumsum(weights, axis=1)
    cdf /= cdf[:, -1:]
    cdf += np.arange(len(cdf))[:, None]  # row i now rises from i to i + 1
    wanted = np.minimum(rows + uniform, np.nextafter(rows + 1.0, 0.0))  # may have rounded up to the next row
    outcomes: LongArray = np.searchsorted(cdf.ravel(), wanted, side="right") - rows * scores.shape[1]
    return outcomes


def _draw_facts(
    config: GeneratorConfig, entities: FloatArray, relations: FloatArray, rng: np.random.Generator
) -> IntArray:
    """n_facts distinct facts in the order in which they first came, (n_facts, 3)."""

    def answered(heads: LongArray, asked: LongArray) -> IntArray:
        tails = sample_tails(heads, asked, entities, relations, model=config.model, rng=rng)
        return np.stack([heads, asked, tails], axis=1).astype(np.int32)

    frequencies = (
        _power_law(config.n_entities, config.head_exponent, rng),
        _power_law(config.n_relations, config.relation_exponent, rng),
    )
    facts = answered(*_cover(config, rng))
    while len(facts) < config.n_facts:
        n = int(1.2 * (config.n_facts - len(facts))) + 100
        heads, asked = (np.searchsorted(cdf, rng.random(n), side="right") for cdf in frequencies)
        drawn = answered(heads, asked)
        grown = _distinct(np.concatenate([facts, drawn]), config)
        if len(grown) - len(facts) < MIN_YIELD * n and len(grown) < config.n_facts:
            raise ConfigError(
                f"the planted model keeps drawing the same facts: {len(grown):,} of {config.n_facts:,}",
                remedy="ask for fewer facts or more entities, larger strengths, or smaller exponents",
            )
        facts = grown
    return facts[: config.n_facts]


def _cover(config: GeneratorConfig, rng: np.random.Generator) -> tuple[LongArray, LongArray]:
    """Queries in which every entity is a head and every relation asked for, in random order."""
    n = max(config.n_entities, config.n_relations)
    heads, relations = (rng.permutation(np.arange(n) % size) for size in (config.n_entities, config.n_relations))
    return heads, relations


def _distinct(facts: IntArray, config: GeneratorConfig) -> IntArray:
    """Each fact once, where it first came."""
    keys = fact_keys(facts, config.n_entities, config.n_relations)
    return facts[np.sort(np.unique(keys, return_index=True)[1])]


def _power_law(size: int, exponent: float, rng: np.random.Generator) -> FloatArray:
    """The cdf of ids whose frequency ranks are random, with weights rank^-exponent, (size,)."""
    weights = rng.permutation(np.arange(1, size + 1, dtype=np.float64) ** -exponent)
    cdf = np.cumsum(weights)
    return np.append(cdf[:-1] / cdf[-1], 1.0)


def _strengths(given: StrengthsOrBounds, size: int, what: str, rng: np.random.Generator) -> FloatArray:
    """One strength per symbol, (size,): as given, or log-uniform between two bounds."""
    if isinstance(given, tuple):
        bounds = np.asarray(given, dtype=np.float64)
        if bounds.shape != (2,) or not 0 < bounds[0] <= bounds[1] < np.inf:
            raise ConfigError(f"{what} = {given} are no bounds", remedy="give (low, high) with 0 < low <= high")
        low, high = np.log(bounds)
        return np.exp(rng.uniform(low, high, size=size))
    strengths = np.array(given, dtype=np.float64)
    if strengths.shape != (size,) or not (np.isfinite(strengths) & (strengths > 0)).all():
        raise ConfigError(
            f"{what} must be {size:,} finite numbers above 0",
            remedy="give one per symbol, or a tuple (low, high) to draw them",
        )
    return strengths


def _vocabulary(kind: str, size: int) -> Vocabulary:
    """Labels whose sorted order is the order of ids, so that files read back give the same ids."""
    width = len(str(size - 1))
    return Vocabulary(tuple(f"{kind}_{i:0{width}d}" for i in range(size)), kind)


def save(planted: Planted, folder: str | Path, *, overwrite: bool = False) -> Path:
    """Write train/valid/test.txt, planted.npz (tables, strengths) and planted.json (settings) to a folder."""
    folder = Path(folder)
    names = [*(f"{split}.txt" for split in SPLITS), "planted.npz", "planted.json"]
    taken = [name for name in names if (folder / name).exists()]
    if taken and not overwrite:
        raise DatasetError(f"there already is {', '.join(taken)}", where=str(folder), remedy="name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        frame = planted.dataset.frame(split)
        frame.write_csv(folder / f"{split}.txt", separator="\t", include_header=False, quote_style="never")
    np.savez(
        folder / "planted.npz",
        entities=planted.entities,
        relations=planted.relations,
        entity_strengths=planted.entity_strengths,
        relation_strengths=planted.relation_strengths,
    )
    about = asdict(planted.config) | {"name": planted.dataset.name, "rows": "in the order of sorted labels"}
    (folder / "planted.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    return folder
