"""Averages of several models against the explicit ones, all entities at once or in ranges."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from kgem.evaluate import averaging
from kgem.evaluate.averaging import AverageScorer, BlendScorer
from kgem.evaluate.blocks import Scorer
from obvious import MODES, random_embeddings, random_graph


@pytest.mark.parametrize(("score", "reciprocal"), MODES)
@pytest.mark.parametrize("chunk", [5, 1000])
def test_log_of_the_mean_of_softmaxes(
    score: str, reciprocal: bool, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(averaging, "CHUNK", chunk)
    data = random_graph()
    samples = [random_embeddings(data, score, reciprocal=reciprocal, seed=seed) for seed in range(3)]
    heads, relations = torch.tensor([0, 3, 3, 7]), torch.tensor([1, 2, 5, 7])
    wanted = torch.stack([sample.scores(heads, relations).softmax(1) for sample in samples]).mean(0).log()
    for found in written_in_ranges(AverageScorer(samples), heads, relations):
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("score", "reciprocal"), MODES)
@pytest.mark.parametrize("chunk", [5, 1000])
def test_a_blend_is_the_geometric_mean_of_softmaxes(
    score: str, reciprocal: bool, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(averaging, "CHUNK", chunk)
    data = random_graph()
    models = [random_embeddings(data, score, reciprocal=reciprocal, seed=seed) for seed in range(3)]
    heads, relations = torch.tensor([0, 3, 3, 7]), torch.tensor([1, 2, 5, 7])
    product = torch.stack([model.scores(heads, relations).softmax(1) for model in models]).log().mean(0).exp()
    for found in written_in_ranges(BlendScorer(models), heads, relations):
        torch.testing.assert_close(found.softmax(1), product / product.sum(1, keepdim=True), rtol=1e-10, atol=1e-10)


def written_in_ranges(scorer: Scorer, heads: Tensor, relations: Tensor) -> Iterator[Tensor]:
    """The scores of all entities, written at once and in ranges."""
    n = scorer.n_entities
    for borders in ([0, n], [0, 9, 10, n]):
        write = scorer.prepare(heads, relations)
        found = torch.empty(len(heads), n, dtype=torch.float64)
        for start, stop in pairwise(borders):
            block = torch.empty(len(heads), stop - start, dtype=torch.float64)
            write(start, stop, block)
            found[:, start:stop] = block
        yield found
