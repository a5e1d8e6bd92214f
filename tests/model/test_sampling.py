"""Candidates of a step: their chances, and estimates of sums over all entities."""

from __future__ import annotations

import pytest
import torch

from kgem.errors import ConfigError
from kgem.model.sampling import Candidates

COUNTS = torch.tensor([0, 1, 1, 2, 3, 5, 8, 13, 400, 1000])
DRAWS = 6000


def inclusion(candidates: Candidates, draws: int = DRAWS) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.stack([torch.zeros(len(COUNTS)).index_fill(0, candidates.draw(generator), 1.0) for _ in range(draws)])


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_entities_are_drawn_by_their_probabilities_and_independently(exponent: float) -> None:
    candidates = Candidates(COUNTS, 4, exponent)
    drawn = inclusion(candidates)
    chances = candidates.probabilities.float()
    noise = (chances * (1 - chances) / DRAWS).sqrt()
    assert ((drawn.mean(0) - chances).abs() <= 4 * noise + 1e-7).all()
    together = drawn.T @ drawn / DRAWS
    expected = torch.outer(chances, chances).fill_diagonal_(0) + torch.diag(chances)
    assert (together - expected).abs().max() < 4 * 0.5 / DRAWS**0.5


def test_chances_follow_counts_up_to_one_and_add_up_to_the_number_of_candidates() -> None:
    candidates = Candidates(COUNTS, 4, 0.5)
    chances = candidates.probabilities
    assert candidates.expected == pytest.approx(4, rel=0.01)
    assert chances[0] == chances[1] == chances[2]  # one without facts counts as if it had one
    assert float(chances[7] / chances[1]) == pytest.approx(13**0.5, rel=0.01)
    assert chances[8] == chances[9] == 1.0
    assert torch.equal(candidates.weights.to(torch.bfloat16).double(), chances.reciprocal().float().double())


def test_with_as_many_candidates_as_entities_all_are_drawn() -> None:
    candidates = Candidates(COUNTS, 10, 0.5)
    assert torch.equal(candidates.draw(torch.Generator().manual_seed(1)), torch.arange(10))
    assert torch.equal(candidates.weights, torch.ones(10))


def test_draws_ascend_without_repeats_and_are_the_same_for_the_same_seed() -> None:
    candidates = Candidates(torch.ones(1000, dtype=torch.int64), 300, 0.5)
    first, second = (candidates.draw(torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first, second)
    assert (first.diff() > 0).all()


def test_no_candidates_are_refused() -> None:
    with pytest.raises(ConfigError, match="candidates"):
        Candidates(COUNTS, 0, 0.5)
