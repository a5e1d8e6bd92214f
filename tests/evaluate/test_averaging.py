"""Averaged probabilities against the explicit average, all entities at once or in ranges."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from kgem.evaluate import averaging
from kgem.evaluate.averaging import AverageScorer
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
    n = data.n_entities
    for borders in ([0, n], [0, 9, 10, n]):
        write = AverageScorer(samples).prepare(heads, relations)
        found = torch.empty(len(heads), n, dtype=torch.float64)
        for start, stop in pairwise(borders):
            block = torch.empty(len(heads), stop - start, dtype=torch.float64)
            write(start, stop, block)
            found[:, start:stop] = block
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
