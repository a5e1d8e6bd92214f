"""A planted graph with a known answer through the whole pipeline: generate, Dataset, all phases, ranks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import Tensor

from driving import exhaust
from kgem.config import (
    CompanionsConfig,
    Config,
    DistilConfig,
    EMConfig,
    ModelConfig,
    PretrainConfig,
    RetrainConfig,
)
from kgem.data.dataset import Dataset
from kgem.evaluate.averaging import AverageScorer
from kgem.evaluate.blocks import Scorer
from kgem.evaluate.metrics import summarise
from kgem.evaluate.ranking import rank
from kgem.model.embeddings import Embeddings
from kgem.model.generate import Planted, generate, save
from kgem.model.scores import get_score
from kgem.train.phases import FitResult, ThreePhases

TRAINING = {"batch_size": 100, "optimizer": "adagrad", "learning_rate": 0.1, "min_gain": 1e-4, "validate_every": 1}
CONFIG = Config(
    model=ModelConfig(score="complex", dim=10, p=3, init_scale=1e-3),
    pretrain=PretrainConfig(**TRAINING, epochs=20, patience=3, half_life=None, strength=0.05, averaging=1.0),
    em=EMConfig(
        **TRAINING,
        epochs=30,
        patience=10,
        half_life=20.0,
        std_learning_rate=0.1,
        beta=1.0,
        m_step="exact",
        initial_strengths="optimal",
        e_epochs=0,
        settled=0.01,
    ),
    retrain=RetrainConfig(
        **TRAINING,
        epochs=20,
        patience=3,
        half_life=10.0,
        averaging=1.0,
        trial_epochs=3,
        candidates=((1.0, 0.0), (5.0, 0.0), (1.0, 0.5)),
    ),
    companions=CompanionsConfig(**TRAINING, epochs=20, patience=3, averaging=1.0, mixes=((1.0, 0.5),)),
    distil=DistilConfig(**TRAINING, epochs=20, patience=3, half_life=10.0, averaging=1.0),
    seed=0,
)


@pytest.fixture(scope="module")
def planted() -> Planted:
    """8,000 facts about 200 entities from a model of 4 dimensions."""
    strengths = {"entity_strengths": (0.3, 3.0), "relation_strengths": (0.05, 0.15)}
    return generate(200, 8, 8000, 4, rng=np.random.default_rng(0), head_exponent=0.3, **strengths)


@pytest.fixture(scope="module")
def data(planted: Planted, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The graph as a user would have it: out of files."""
    folder = save(planted, tmp_path_factory.mktemp("graph") / "planted")
    return Dataset.load(folder, cache=False)


@pytest.fixture(scope="module")
def fit(data: Dataset) -> ThreePhases:
    facts = data.reciprocal(data.valid)
    fit = ThreePhases(data, CONFIG, lambda model: summarise(rank(model, facts, data.filter_index).pessimistic).mrr)
    exhaust(fit.epochs())
    return fit


@pytest.fixture(scope="module")
def result(fit: ThreePhases) -> FitResult:
    return fit.result()


def tail_mrr(scorer: Scorer | Embeddings, data: Dataset) -> float:
    """Filtered, on test, of tail queries only: those are what the planted model draws."""
    return summarise(rank(scorer, data.test, data.filter_index).pessimistic).mrr


def of_planted(planted: Planted, data: Dataset) -> float:
    """The MRR of the tables that the facts were drawn from; reciprocal relations are never asked for."""
    entities, relations = (torch.from_numpy(table) for table in (planted.entities, planted.relations))
    both = torch.cat([relations, relations])
    return tail_mrr(Embeddings(get_score("complex"), entities, both, data.n_relations), data)


class Popularity:
    """What can be known without a model: how often each entity is the tail of a relation."""

    bytes_per_query = bytes_per_entity = 8

    def __init__(self, data: Dataset) -> None:
        self.n_entities = data.n_entities
        counts = np.zeros((data.n_relations, data.n_entities), dtype=np.float32)
        np.add.at(counts, (data.train[:, 1], data.train[:, 2]), 1)
        self.like = torch.from_numpy(counts)  # (n_relations, n_entities)

    def prepare(self, heads: Tensor, relations: Tensor) -> Callable[[int, int, Tensor], None]:
        def write(start: int, stop: int, block: Tensor) -> None:
            block.copy_(self.like[relations, start:stop])

        return write


def test_files_hold_the_planted_graph(planted: Planted, data: Dataset) -> None:
    assert data.content_hash == planted.dataset.content_hash


def test_the_fit_comes_close_to_the_planted_tables(planted: Planted, data: Dataset, result: FitResult) -> None:
    """Test MRR: 0.58 where the planted tables have 0.67, a conventional model 0.56, popularity 0.10, chance 0.03."""
    best, popular = of_planted(planted, data), tail_mrr(Popularity(data), data)
    chance = float((1 / np.arange(1, data.n_entities + 1)).mean())
    got = tail_mrr(result.point, data)
    assert 0.6 < best < 0.75
    assert chance < popular < 0.2 * best
    assert got > 10 * chance
    assert got > 4 * popular
    assert got > 0.8 * best


def test_it_is_better_than_the_conventional_model_it_began_with(
    fit: ThreePhases, data: Dataset, result: FitResult
) -> None:
    assert tail_mrr(result.point, data) > tail_mrr(fit.pretraining.best, data)


def test_every_way_to_predict_is_good(planted: Planted, data: Dataset, result: FitResult) -> None:
    best, q = of_planted(planted, data), result.posterior
    generator = torch.Generator().manual_seed(1)
    samples = [result.point.with_tables(*q.sample(generator)) for _ in range(20)]
    mean = result.point.with_tables(q.entities.mean, q.relations.mean)
    assert tail_mrr(mean, data) > 0.8 * best
    assert tail_mrr(AverageScorer(samples), data) > 0.8 * best
    assert tail_mrr(samples[0], data) < tail_mrr(AverageScorer(samples), data)


def test_learned_strengths_follow_the_planted_ones(planted: Planted, result: FitResult) -> None:
    """Only somewhat: four planted dimensions say little about a strength (tests/train has a graph that says more)."""
    assert spearmanr(result.strengths.entities.numpy(), planted.entity_strengths).statistic > 0.3


def test_the_fit_reports_what_it_did(data: Dataset, result: FitResult) -> None:
    assert result.mix in CONFIG.retrain.candidates
    assert all(result.epochs[phase] > 0 for phase in ("pretrain", "em", "retrain", "companions", "distil"))
    assert [event["event"] for event in result.events] == ["distil"]  # and nothing else: where it began
    assert result.point.entities.shape == (data.n_entities, 20)
    assert result.strengths.relations.shape == (2 * data.n_relations,)
    assert all(bool((lam > 0).all()) and bool(lam.isfinite().all()) for lam in result.strengths)
