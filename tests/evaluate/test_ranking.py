"""Ranks against brute force with loops: filters, ties, blocks, memory."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from kgem.data.dataset import Dataset
from kgem.data.index import QueryIndex
from kgem.evaluate import blocks as module
from kgem.evaluate.blocks import Blocks, TableScorer
from kgem.evaluate.metrics import summarise
from kgem.evaluate.ranking import Ranks, rank
from kgem.model.embeddings import Embeddings
from obvious import MODES, random_embeddings, random_graph

DATA = random_graph()
TEST = DATA.reciprocal(DATA.test)
TRAIN_ONLY = DATA.query_index
KNOWN = DATA.filter_index
TIE_RULES = ("optimistic", "realistic", "pessimistic")


def brute_force(scores: list[float], target: int, known: set[int]) -> tuple[int, int]:
    """Optimistic and pessimistic rank of a target among all entities that are not known answers."""
    higher = equal = 0
    for entity, score in enumerate(scores):
        if entity != target and entity not in known:
            higher += score > scores[target]
            equal += score == scores[target]
    return 1 + higher, 1 + higher + equal


def assert_ranks(ranks: Ranks, model: Embeddings, facts: np.ndarray, known: QueryIndex | None) -> None:
    rows = model.scores(*(torch.from_numpy(facts[:, c].astype(np.int64)) for c in (0, 1))).tolist()
    for i, (h, r, t) in enumerate(facts.tolist()):
        tails = set() if known is None else set(known.tails_of(int(known.find([h], [r])[0])).tolist())
        low, high = brute_force(rows[i], t, tails)
        assert (ranks.optimistic[i], ranks.pessimistic[i]) == (low, high), f"fact {i}: {(h, r, t)}"
        assert ranks.realistic[i] == (low + high) / 2


def whole_numbers(data: Dataset, name: str, *, reciprocal: bool = True, distinct: int = 4) -> Embeddings:
    """Small integers, which any order of summation adds up alike, and few distinct vectors: ties abound."""
    model = random_embeddings(data, name, reciprocal=reciprocal, scale=1.0, dtype=torch.float32)
    entities, relations = (t.round().clamp_(-2, 2) for t in model.tables())
    return model.with_tables(entities[torch.arange(len(entities)) % distinct], relations)


@pytest.mark.parametrize("known", [None, TRAIN_ONLY, KNOWN], ids=["raw", "train", "all"])
@pytest.mark.parametrize(("name", "reciprocal"), MODES)
def test_ranks_equal_brute_force(name: str, reciprocal: bool, known: QueryIndex | None) -> None:
    """Without ties; with a filter that lacks the targets as well."""
    model = random_embeddings(DATA, name, reciprocal=reciprocal)
    assert_ranks(rank(model, TEST, known), model, TEST, known)


@pytest.mark.parametrize("memory", [2000, 2**30])
@pytest.mark.parametrize("known", [None, TRAIN_ONLY, KNOWN], ids=["raw", "train", "all"])
@pytest.mark.parametrize("reciprocal", [True, False])
@pytest.mark.parametrize("name", ["distmult", "complex", "cp", "rescal", "transe-l1"])
def test_ties_of_all_rules_equal_brute_force(
    name: str, reciprocal: bool, known: QueryIndex | None, memory: int
) -> None:
    model = whole_numbers(DATA, name, reciprocal=reciprocal)
    ranks = rank(model, TEST, known, memory=memory)
    assert_ranks(ranks, model, TEST, known)
    assert (ranks.pessimistic > ranks.optimistic).mean() > 0.5


@pytest.mark.parametrize("rows", [1, 2, 3, 7])
def test_ranks_do_not_depend_on_how_many_rows_are_compared_at_a_time(
    monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """Parts with one target per query, and parts with several."""
    facts = np.concatenate([TEST[:20], TEST[:5], TEST[3:4]])
    monkeypatch.setattr("kgem.evaluate.ranking.COMPARED_BYTES", rows * 4 * DATA.n_entities)
    model = whole_numbers(DATA, "complex")
    assert_ranks(rank(model, facts, KNOWN), model, facts, KNOWN)


def test_a_model_that_knows_nothing_gets_no_credit() -> None:
    """All vectors equal: pessimistic ranks are the number of candidates, optimistic ones are 1."""
    model = whole_numbers(DATA, "distmult", distinct=1)
    ranks = rank(model, TEST, None)
    assert (ranks.pessimistic == DATA.n_entities).all()
    assert (ranks.optimistic == 1).all()
    assert (ranks.realistic == (DATA.n_entities + 1) / 2).all()


@pytest.mark.parametrize("memory", [1, 8000, 50_000])
@pytest.mark.parametrize(("name", "reciprocal"), [("complex", True), ("transe-l2", True), ("cp", False)])
def test_blocks_change_nothing(name: str, reciprocal: bool, memory: int) -> None:
    data = random_graph(n_entities=80, n_relations=3, n_facts=800)
    facts = data.reciprocal(data.test)
    model = random_embeddings(data, name, reciprocal=reciprocal)
    one, many = (rank(model, facts, data.filter_index, memory=m) for m in (2**40, memory))
    for rule in TIE_RULES:
        assert np.array_equal(one.of(rule), many.of(rule))


def test_a_small_limit_makes_ranges_of_entities() -> None:
    data = random_graph(n_entities=300, n_relations=3, n_facts=3000)
    scorer = TableScorer(random_embeddings(data, "complex"))
    for memory in (1, 1000, 20_000, 10**5):
        ranges = Blocks(scorer, TEST, memory).ranges
        assert len(ranges) > 1
        assert [i for start, stop in ranges for i in range(start, stop)] == list(range(300))
    assert Blocks(scorer, TEST, 2**30).entities == 300
    assert Blocks(scorer, TEST, 1, whole=True).ranges == [(0, 300)]


@pytest.mark.parametrize("n_entities", [14_541, 40_943, 2_000_000, 10**9])
@pytest.mark.parametrize("memory", [2**24, 2**27, 2**30])
def test_blocks_fit_under_the_limit(n_entities: int, memory: int) -> None:
    scorer = CountingScorer(torch.zeros(1, 1))
    scorer.n_entities, scorer.bytes_per_query, scorer.bytes_per_entity = n_entities, 3200, 808
    blocks = Blocks(scorer, TEST, memory)
    scores = 3 * 4 * blocks.queries * blocks.entities
    assert scores + 3200 * blocks.queries + 808 * blocks.entities < 0.7 * memory
    assert blocks.entities <= module.MAX_ENTITIES  # float32 counts exactly to there


class CountingScorer:
    """Scores from a table of them, one row per head; keeps a record of what it was asked."""

    bytes_per_query = 0
    bytes_per_entity = 0

    def __init__(self, table: Tensor) -> None:
        self.table = table  # (heads, entities)
        self.like = table
        self.n_entities = table.shape[1]
        self.asked: list[tuple[int, int]] = []

    def prepare(self, heads: Tensor, relations: Tensor) -> Callable[[int, int, Tensor], None]:
        self.asked += list(zip(heads.tolist(), relations.tolist(), strict=True))

        def write(start: int, stop: int, block: Tensor) -> None:
            assert block.shape == (len(heads), stop - start)
            block.copy_(self.table[heads, start:stop])

        return write


def test_equal_queries_are_scored_once() -> None:
    facts = np.array([[h, r, t] for t in range(7) for r in range(2) for h in range(30)], dtype=np.int32)
    np.random.default_rng(0).shuffle(facts)
    scorer = CountingScorer(torch.rand(30, 20, generator=torch.Generator().manual_seed(0)))
    ranks = rank(scorer, facts, None)
    assert len(scorer.asked) == 60
    assert set(scorer.asked) == {(h, r) for h in range(30) for r in range(2)}
    assert np.array_equal(ranks.facts, facts)
    for (h, _, t), low in zip(facts.tolist(), ranks.optimistic, strict=True):
        assert low == brute_force(scorer.table[h].tolist(), t, set())[0]


def test_more_targets_than_queries_and_blocks() -> None:
    """One query with all entities as targets: its ranks are a permutation; a fact given twice has one rank."""
    scorer = CountingScorer(torch.rand(1, 500, generator=torch.Generator().manual_seed(0)))
    facts = np.array([[0, 0, t] for t in [*range(500), 3]], dtype=np.int64)
    for memory in (20_000, 2**30):
        ranks = rank(scorer, facts, None, memory=memory)
        assert sorted(ranks.pessimistic[:500]) == list(range(1, 501))
        assert ranks.pessimistic[500] == ranks.pessimistic[3]


def test_a_target_outside_the_filter_competes_with_the_other_targets() -> None:
    """Only known answers are left out: of two targets that the filter does not know, each sees the other."""
    scorer = CountingScorer(torch.tensor([[0.9, 0.8, 0.7, 0.6]]))
    facts = np.array([[0, 0, 1], [0, 0, 2]])
    known = QueryIndex.build(np.array([[0, 0, 0]], dtype=np.int32), 4, 1)
    assert rank(scorer, facts, known).pessimistic.tolist() == [1, 2]
    both = QueryIndex.build(np.array([[0, 0, 0], [0, 0, 1], [0, 0, 2]], dtype=np.int32), 4, 1)
    assert rank(scorer, facts, both).pessimistic.tolist() == [1, 1]


def test_unseen_targets_and_queries_are_ranked() -> None:
    """Entities that training never shows, and queries that the filter has nothing about."""
    unseen = DATA.n_entities - 1
    assert DATA.entity_counts[unseen] == 0
    facts = np.array([[0, 0, unseen], [unseen, 1, 0], [unseen, 2, unseen]], dtype=np.int32)
    assert (KNOWN.find(facts[1:, 0], facts[1:, 1]) == -1).all()
    model = random_embeddings(DATA, "complex")
    assert_ranks(rank(model, facts, KNOWN), model, facts, KNOWN)


@pytest.mark.parametrize("memory", [1, 2**30])
def test_scores_that_are_not_numbers_rank_last(memory: int) -> None:
    nan, inf = math.nan, math.inf
    scorer = CountingScorer(torch.tensor([[0.5, nan, 0.3, nan, -inf, 0.9]]))
    facts = np.array([[0, 0, t] for t in range(6)])
    raw = rank(scorer, facts, None, memory=memory)
    assert raw.pessimistic.tolist() == [2, 6, 3, 6, 4, 1]
    assert raw.optimistic.tolist() == [2, 6, 3, 6, 4, 1]
    known = QueryIndex.build(np.array([[0, 0, t] for t in (1, 4, 5)], dtype=np.int32), 6, 1)
    filtered = rank(scorer, facts, known, memory=memory)
    assert filtered.pessimistic.tolist() == [1, 4, 2, 3, 3, 1]
    assert filtered.optimistic.tolist() == [1, 4, 2, 3, 3, 1]


def test_a_model_that_is_not_a_number_gets_no_credit() -> None:
    model = random_embeddings(DATA, "complex")
    model.entities.fill_(math.nan)
    ranks = rank(model, TEST, KNOWN)
    for rule in TIE_RULES:
        assert (ranks.of(rule) > 1).all()
    assert (rank(model, TEST, None).optimistic == DATA.n_entities).all()
    assert summarise(rank(model, TEST, None).optimistic).mrr == pytest.approx(1 / DATA.n_entities)


def test_tails_at_minus_infinity_do_not_tie_with_known_ones() -> None:
    scorer = CountingScorer(torch.tensor([[-math.inf, 1.0, 2.0, -math.inf]]))
    known = QueryIndex.build(np.array([[0, 0, 0], [0, 0, 1], [0, 0, 2]], dtype=np.int32), 4, 1)
    ranks = rank(scorer, np.array([[0, 0, 0]]), known)
    assert (ranks.optimistic[0], ranks.pessimistic[0]) == (1, 2)  # entity 3 ties, entities 1 and 2 are out


def test_nothing_to_rank() -> None:
    ranks = rank(random_embeddings(DATA, "complex"), np.empty((0, 3), dtype=np.int32), KNOWN)
    assert len(ranks) == 0
    assert ranks.realistic.shape == (0,)


def test_progress_counts_queries() -> None:
    heard: list[tuple[int, int]] = []
    rank(random_embeddings(DATA, "complex"), TEST, KNOWN, memory=1, on_progress=lambda *x: heard.append(x))
    distinct = len({(h, r) for h, r, _ in TEST.tolist()})
    assert len(heard) > 1
    assert heard == sorted(heard)
    assert heard[-1] == (distinct, distinct)


def test_facts_and_tables_are_left_alone() -> None:
    model = random_embeddings(DATA, "complex")
    facts, entities = TEST.copy(), model.entities.clone()
    rank(model, facts, KNOWN)
    assert np.array_equal(facts, TEST)
    assert torch.equal(entities, model.entities)


MEASURE = """
import json, re, sys
import numpy as np
import torch
from kgem.data.index import QueryIndex
from kgem.evaluate.ranking import rank
from kgem.model.embeddings import Embeddings
from kgem.model.scores import SCORES

def kilobytes(field):
    with open("/proc/self/status") as status:
        return int(re.search(field + r":\\s+(\\d+) kB", status.read())[1])

limit, cases = json.loads(sys.argv[1])
for name, reciprocal, n_entities, dim, targets in cases:
    generator = torch.Generator().manual_seed(0)
    model = Embeddings.random(SCORES[name], n_entities, 5, dim, generator=generator, reciprocal=reciprocal)
    rng = np.random.default_rng(0)
    heads = np.repeat(rng.integers(n_entities, size=48), targets)
    facts = np.stack([heads, heads % 10, rng.integers(n_entities, size=len(heads))], axis=1).astype(np.int32)
    known = QueryIndex.build(facts, n_entities, 10)
    known.find([0], [0])
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")
    before = kilobytes("VmRSS")
    rank(model, facts, known, memory=limit)
    print(json.dumps((kilobytes("VmHWM") - before) * 1024))
"""

CASES = [  # score, reciprocal, entities, K, targets per query
    ("distmult", True, 200_000, 16, 1),
    ("distmult", True, 200_000, 16, 20),
    ("transe-l2", True, 20_000, 512, 1),  # its distances copy the table
    ("cp", False, 20_000, 256, 1),  # reading it backwards copies the table
    ("rescal", True, 2_000, 64, 2),  # a query gathers a matrix
    ("tucker", True, 2_000, 64, 2),  # or makes one
]


def test_measured_memory_stays_below_the_limit() -> None:
    """Peak resident memory while ranking, beyond what tables and facts took before; in a process of its own."""
    if not os.access("/proc/self/clear_refs", os.W_OK):
        pytest.skip("needs Linux's /proc to measure the peak of resident memory")
    limit = 24 * 2**20
    # Every buffer is mapped by itself, so that freed ones are gone and none is counted twice or hidden.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, json.dumps([limit, CASES])],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parent,
    )
    peaks = [int(line) for line in done.stdout.split()]
    assert len(peaks) == len(CASES)
    for case, peak in zip(CASES, peaks, strict=True):
        assert peak < limit, f"{case}: {peak / 2**20:.1f} MiB"
    assert max(peaks) > limit / 20  # otherwise it did not measure
