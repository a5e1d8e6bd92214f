"""Blocks of scores: every query against every entity once, equal queries gathered or not, sizes under the limit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kgem.evaluate.blocks import BLOCK_BYTES, Blocks, TableScorer
from obvious import random_embeddings, random_graph

DATA = random_graph()
FACTS = DATA.reciprocal(DATA.train)
MODEL = random_embeddings(DATA, "complex")


@pytest.mark.parametrize("memory", [1, 5000, 2**30])
@pytest.mark.parametrize("gather", [True, False])
@pytest.mark.parametrize("whole", [True, False])
def test_every_fact_has_all_the_scores_of_its_query(gather: bool, whole: bool, memory: int) -> None:
    wanted = MODEL.scores(*(torch.from_numpy(FACTS[:, column].astype(np.int64)) for column in (0, 1)))
    found = torch.full_like(wanted, torch.nan)
    n_queries = 0
    for block in Blocks(TableScorer(MODEL), FACTS, memory, gather=gather, whole=whole):
        n_queries += len(block.queries)
        for start, scores in block.scores():
            found[block.places, start : start + scores.shape[1]] = scores[block.rows]
    torch.testing.assert_close(found, wanted)
    assert n_queries == (len({(h, r) for h, r, _ in FACTS.tolist()}) if gather else len(FACTS))


def test_the_order_of_queries_that_are_not_gathered_is_kept() -> None:
    blocks = Blocks(TableScorer(MODEL), FACTS, 1, gather=False, whole=True)
    assert blocks.queries == 1 and [block.queries[0].tolist() for block in blocks] == FACTS[:, :2].tolist()
    assert list(Blocks(TableScorer(MODEL), FACTS[:0])) == []


def test_a_single_range_is_not_written_again() -> None:
    for block in Blocks(TableScorer(MODEL), FACTS):
        for _, scores in block.scores():
            scores.zero_()
        assert not any(scores.any() for _, scores in block.scores(again=True))
    for block in Blocks(TableScorer(MODEL), FACTS, 1):
        for _, scores in block.scores():
            scores.zero_()
        assert len(block.ranges) > 1 and all(scores.any() for _, scores in block.scores(again=True))


def test_whole_rows_obey_the_limit_where_one_query_does() -> None:
    scorer = TableScorer(MODEL)
    row = scorer.n_entities * 8 + scorer.bytes_per_query
    assert Blocks(scorer, FACTS, 0, whole=True).queries == 1
    assert Blocks(scorer, FACTS, 8 * 10 * row, whole=True).queries == 10
    samples = Blocks(scorer, FACTS, 2**40, whole=True, tables=10**6)
    assert 1 <= samples.queries * 10**6 * scorer.n_entities * 8 <= BLOCK_BYTES or samples.queries == 1
