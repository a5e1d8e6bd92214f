"""Tables: how they start, and how queries of either side read them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kgem.errors import ConfigError
from kgem.model.embeddings import Embeddings
from kgem.model.scores import SCORES
from obvious import ALL_SCORES, MODES, TWO_SIDED, random_embeddings, random_graph, relation_vectors

DATA = random_graph()


@pytest.mark.parametrize(("name", "reciprocal"), MODES)
def test_shapes(name: str, reciprocal: bool) -> None:
    model = random_embeddings(DATA, name, 5, reciprocal=reciprocal)
    score = ALL_SCORES[name]
    assert model.entities.shape == (DATA.n_entities, score.entity_width(5))
    own = DATA.n_relations * (2 if reciprocal else 1)
    assert model.relations.shape == (own + score.shared_rows(5), score.relation_width(5))
    assert model.n_entities == DATA.n_entities
    assert model.reciprocal == reciprocal


def test_a_seed_means_one_start_whatever_the_dtype() -> None:
    single, again, double, other = (
        random_embeddings(DATA, "complex", dtype=dtype, seed=seed)
        for dtype, seed in ((torch.float32, 1), (torch.float32, 1), (torch.float64, 1), (torch.float32, 2))
    )
    for a, b, c, d in zip(*(m.tables() for m in (single, again, double, other)), strict=True):
        assert torch.equal(a, b)
        assert c.dtype == torch.float64
        assert torch.equal(a, c.float())
        assert not torch.equal(a, d)


def test_entries_are_normal_with_the_given_scale() -> None:
    generator = torch.Generator().manual_seed(0)
    model = Embeddings.random(SCORES["distmult"], 2000, 100, 50, generator=generator, scale=1e-3)
    for table in model.tables():
        assert abs(float(table.mean())) < 1e-4
        assert float(table.std()) == pytest.approx(1e-3, rel=0.03)
    correlation = torch.corrcoef(torch.stack([model.entities[:200].flatten(), model.relations.flatten()]))[0, 1]
    assert abs(float(correlation)) < 0.05


def test_rows_that_all_facts_share_come_last_and_have_length_one() -> None:
    generators = (torch.Generator().manual_seed(0) for _ in range(2))
    tucker, distmult = (
        Embeddings.random(SCORES[name], 30, 5, 12, generator=generator)
        for name, generator in zip(("tucker", "distmult"), generators, strict=True)
    )
    assert (tucker.n_own, tucker.n_shared, len(tucker.relations)) == (10, 144, 154) and tucker.reciprocal
    assert torch.equal(tucker.entities, distmult.entities) and torch.equal(tucker.relations[:10], distmult.relations)
    assert float(tucker.relations[10:].square().sum(1).mean()) == pytest.approx(1, abs=0.1)
    counts = np.array([7, 100, 0, 400, 69])
    assert tucker.relation_occurrences(counts).tolist() == [*counts, *counts, *([576 // 144] * 144)]
    assert distmult.relation_occurrences(counts).tolist() == [*counts, *counts]


@pytest.mark.parametrize(("name", "reciprocal"), MODES)
def test_scores_equal_triple_by_triple(name: str, reciprocal: bool) -> None:
    """Queries of both sides, mixed: row i of the answer belongs to query i."""
    model = random_embeddings(DATA, name, reciprocal=reciprocal)
    generator = torch.Generator().manual_seed(7)
    heads = torch.randint(DATA.n_entities, (40,), generator=generator)
    relations = torch.randint(2 * DATA.n_relations, (40,), generator=generator)
    got = model.scores(heads, relations)
    assert got.shape == (40, DATA.n_entities)
    e, r, n, score = model.entities, relation_vectors(model), DATA.n_relations, model.score
    for i, (a, b) in enumerate(zip(heads.tolist(), relations.tolist(), strict=True)):
        for t in range(DATA.n_entities):
            forward = reciprocal or b < n
            want = score.triple(e[a], r[b], e[t]) if forward else score.triple(e[t], r[b - n], e[a])
            assert float(got[i, t]) == pytest.approx(float(want), abs=1e-7)


@pytest.mark.parametrize("name", TWO_SIDED)
def test_a_range_of_the_tail_table_is_that_range(name: str) -> None:
    model = random_embeddings(DATA, name, reciprocal=False)
    for reverse in (False, True):
        part = model.tail_table(reverse=reverse, rows=slice(3, 11))
        assert torch.equal(part, model.tail_table(reverse=reverse)[3:11])


def test_sides_cover_every_query_once() -> None:
    relations = torch.tensor([0, 5, 2, 7, 4, 1])
    assert [side for side, _ in random_embeddings(DATA, "complex").sides(relations)] == [False]
    two_sided = random_embeddings(DATA, "complex", reciprocal=False)
    sides = dict(two_sided.sides(relations))
    assert sides[False].tolist() == [0, 2, 5]
    assert sides[True].tolist() == [1, 3, 4]
    assert [side for side, _ in two_sided.sides(relations[:1])] == [False]
    assert two_sided.sides(relations[:0]) == []


def test_a_clone_has_memory_of_its_own() -> None:
    model = random_embeddings(DATA, "complex")
    copy = model.clone()
    before = model.entities.clone()
    copy.entities.zero_()
    copy.relations.zero_()
    assert torch.equal(model.entities, before)
    assert model.relations.any()
    assert copy.score is model.score


def test_two_sided_without_a_way_to_read_backwards_is_an_error() -> None:
    model = random_embeddings(DATA, "stretch", reciprocal=False)
    assert model.scores(torch.tensor([0]), torch.tensor([1])).shape == (1, DATA.n_entities)
    with pytest.raises(ConfigError, match="stretch"):
        model.scores(torch.tensor([0]), torch.tensor([1 + DATA.n_relations]))
