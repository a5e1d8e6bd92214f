"""Loss and gradient of the objective against the obvious sum over facts, in float64."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from kgem.errors import ConfigError
from kgem.model import kernels, pieces
from kgem.model.embeddings import Embeddings
from kgem.model.objective import Gradients, MarginObjective, SoftmaxObjective
from kgem.model.pieces import Batch
from kgem.model.prior import Prior, Strengths
from obvious import (
    ALL_SCORES,
    MODES,
    loss_over_facts,
    penalty_over_rows,
    random_embeddings,
    random_graph,
    relation_vectors,
    strengths_of,
    with_leaves,
)

DATA = random_graph()
N_FACTS = 2 * len(DATA.train)
every_mode = pytest.mark.parametrize(("name", "reciprocal"), MODES)


def no_strengths(model: Embeddings) -> Strengths:
    return Strengths(*(table.new_zeros(len(table)) for table in model.tables()))


def softmax(model: Embeddings, p: int = 3, max_tails: int | None = None) -> SoftmaxObjective:
    return SoftmaxObjective(DATA.query_index, model, Prior(p, model.score.complex), max_tails=max_tails)


def copied(result: tuple[float, Gradients]) -> tuple[float, Gradients]:
    """The next call reuses the gradients' memory."""
    return result[0], Gradients(*(g.clone() for g in result[1]))


def join_items(batches: Iterable[Batch]) -> Tensor:
    return torch.cat([batch.items for batch in batches])


def assert_close(got: Gradients, want: tuple[Tensor, ...], rtol: float = 1e-8) -> None:
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=rtol, atol=1e-10)


@pytest.mark.parametrize("p", [2, 3])
@every_mode
def test_softmax_objective_equals_the_sum_over_facts(name: str, reciprocal: bool, p: int) -> None:
    """Eqs. 5, 8 and 10: every score, both spaces, all strengths."""
    model = random_embeddings(DATA, name, reciprocal=reciprocal)
    objective = softmax(model, p)
    everything = torch.randperm(objective.n_items, generator=torch.Generator().manual_seed(0))
    leaves = with_leaves(model)
    data = loss_over_facts(leaves, DATA.train) / N_FACTS
    data_gradient = torch.autograd.grad(data, leaves.tables())
    for kind in ("conventional", "uniform", "individual"):
        strengths = strengths_of(kind, DATA, model)
        penalty = penalty_over_rows(leaves, strengths, p) / N_FACTS
        penalty_gradient = torch.autograd.grad(penalty, leaves.tables())
        loss, gradients = objective(model, strengths, everything)
        assert loss == pytest.approx(float(data.detach()), rel=1e-10)
        assert_close(gradients, tuple(a + b for a, b in zip(data_gradient, penalty_gradient, strict=True)))
        prior = Prior(p, model.score.complex)
        ours = sum(float(prior.penalty(t, lam)) for t, lam in zip(model.tables(), strengths, strict=True)) / N_FACTS
        assert ours == pytest.approx(float(penalty.detach()), rel=1e-10)


@pytest.mark.parametrize("max_tails", [None, 1, 3])
@pytest.mark.parametrize("block_bytes", [1, 2**13, 12 * 2**20])
@pytest.mark.parametrize(
    ("name", "reciprocal"), [("complex", True), ("cp", False), ("tucker", True), ("transe-l2", True)]
)
def test_blocks_and_cuts_change_nothing(
    name: str, reciprocal: bool, block_bytes: int, max_tails: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "BLOCK_BYTES", block_bytes)
    model = random_embeddings(DATA, name, reciprocal=reciprocal)
    leaves = with_leaves(model)
    data = loss_over_facts(leaves, DATA.train) / N_FACTS
    objective = softmax(model, max_tails=max_tails)
    loss, gradients = objective(model, no_strengths(model), torch.arange(objective.n_items))
    assert loss == pytest.approx(float(data.detach()), rel=1e-10)
    assert_close(gradients, torch.autograd.grad(data, leaves.tables()))
    assert objective.n_facts == N_FACTS


def test_cuts_limit_the_tails_of_an_item() -> None:
    model = random_embeddings(DATA, "distmult")
    most = int(DATA.query_index.counts.max())
    assert most > 3
    assert softmax(model).n_items == softmax(model, max_tails=most).n_items == len(DATA.query_index)
    assert softmax(model, max_tails=1).n_items == N_FACTS
    assert softmax(model, max_tails=3).n_items == int(np.ceil(DATA.query_index.counts / 3).sum())


@pytest.mark.parametrize("max_tails", [None, 2])
@pytest.mark.parametrize(("name", "reciprocal"), [("complex", True), ("rescal", False), ("transe-l1", False)])
def test_the_batches_of_an_epoch_average_to_the_whole(name: str, reciprocal: bool, max_tails: int | None) -> None:
    model = random_embeddings(DATA, name, reciprocal=reciprocal)
    strengths = strengths_of("individual", DATA, model)
    objective = softmax(model, max_tails=max_tails)
    whole_loss, whole = copied(objective(model, strengths, torch.arange(objective.n_items)))
    loss, mean = 0.0, [torch.zeros_like(g) for g in whole]
    for batch in objective.batches(30, torch.Generator().manual_seed(0)):
        weight = len(batch) / objective.n_items
        part, gradients = objective(model, strengths, batch)
        loss += weight * part
        for total, gradient in zip(mean, gradients, strict=True):
            total += weight * gradient
    assert loss == pytest.approx(whole_loss, rel=1e-10)
    assert_close(Gradients(*mean), whole)


@pytest.mark.parametrize("gathered", [1, 20, 10**6])
def test_batches_have_what_their_queries_say(gathered: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gathered for many steps at once, in any order of steps, and equal to a step that looks for itself."""
    monkeypatch.setattr(pieces, "GATHERED", gathered)
    model, index = random_embeddings(DATA, "complex"), DATA.query_index
    objective, strengths = softmax(model), strengths_of("individual", DATA, model)
    batches = objective.batches(7, torch.Generator().manual_seed(0))
    for step in (3, 0, len(batches) - 1, 1):
        batch = batches[step]
        observed = [(i, t) for i, query in enumerate(batch.items.tolist()) for t in index.tails_of(query).tolist()]
        assert list(zip(batch.rows.tolist(), batch.tails.tolist(), strict=True)) == observed
        assert batch.heads.tolist() == index.heads[batch.items].tolist()
        assert batch.relations.tolist() == index.relations[batch.items].tolist()
        assert batch.counts.tolist() == index.counts[batch.items].tolist()
        loss, gradients = copied(objective(model, strengths, batch))
        again, same = objective(model, strengths, batch.items)
        assert loss == again
        assert all(torch.equal(a, b) for a, b in zip(gradients, same, strict=True))
    assert torch.equal(batches[1:3][0].items, batches[1].items)


@pytest.mark.parametrize("name", ["complex", "distmult", "rescal"])
def test_tables_behind_each_other_give_the_same_gradients(name: str) -> None:
    """One call for both tables, or one for each: RESCAL's have different widths."""
    joint = random_embeddings(DATA, name).clone()
    apart = joint.with_tables(*(table.clone() for table in joint.tables()))
    assert joint.flat is not None
    assert apart.flat is None
    strengths = strengths_of("individual", DATA, joint)
    loss, gradients = copied(softmax(joint)(joint, strengths, torch.arange(20)))
    other, same = softmax(apart)(apart, strengths, torch.arange(20))
    assert loss == other
    assert_close(gradients, tuple(same), rtol=1e-12)


def test_a_batch_is_an_unbiased_estimate() -> None:
    """The plain mean over all batches of three queries that there are is the whole."""
    data = random_graph(n_entities=8, n_relations=1, n_facts=9)
    model = random_embeddings(data, "complex")
    strengths = strengths_of("conventional", data, model)
    objective = SoftmaxObjective(data.query_index, model, Prior(3, True))
    whole_loss, whole = copied(objective(model, strengths, torch.arange(objective.n_items)))
    drawn = [
        copied(objective(model, strengths, torch.tensor(batch))) for batch in combinations(range(objective.n_items), 3)
    ]
    assert np.mean([loss for loss, _ in drawn]) == pytest.approx(whole_loss, rel=1e-10)
    assert_close(Gradients(*(torch.stack(g).mean(0) for g in zip(*(g for _, g in drawn), strict=True))), whole)


def test_an_epoch_visits_every_item_once_in_batches_of_nearly_equal_size() -> None:
    objective = softmax(random_embeddings(DATA, "distmult"))
    for size in (1, 7, 30, objective.n_items, 10**6):
        batches = objective.batches(size, torch.Generator().manual_seed(0))
        lengths = {len(batch) for batch in batches}
        assert max(lengths) - min(lengths) <= 1
        assert abs(max(lengths) - min(size, objective.n_items)) <= max(1, size // 2)
        assert sorted(join_items(batches).tolist()) == list(range(objective.n_items))
    order, again, other = (join_items(objective.batches(7, torch.Generator().manual_seed(seed))) for seed in (1, 1, 2))
    assert torch.equal(order, again)
    assert not torch.equal(order, other)


def test_the_prior_enters_in_every_step_for_every_row() -> None:
    """A relation that the batch does not show shrinks."""
    model = random_embeddings(DATA, "distmult")
    strengths = strengths_of("individual", DATA, model)
    relation = int(DATA.query_index.relations[0])
    _, gradients = softmax(model, p=2)(model, strengths, torch.tensor([0]))
    others = [r for r in range(len(model.relations)) if r != relation]
    expected = strengths.relations[others, None] * model.relations[others] / N_FACTS
    torch.testing.assert_close(gradients.relations[others], expected)


def test_single_precision_follows_double() -> None:
    model = random_embeddings(DATA, "complex")
    single = model.with_tables(*(t.float() for t in model.tables()))
    strengths = strengths_of("conventional", DATA, model)
    everything = torch.arange(len(DATA.query_index))
    loss, gradients = softmax(model)(model, strengths, everything)
    loss32, gradients32 = softmax(single)(single, Strengths(*(s.float() for s in strengths)), everything)
    assert loss32 == pytest.approx(loss, rel=1e-6)
    for a, b in zip(gradients32, gradients, strict=True):
        assert a.dtype == torch.float32
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("reciprocal", [True, False])
def test_extreme_tables_have_finite_gradients(reciprocal: bool) -> None:
    model = random_embeddings(DATA, "distmult", scale=30.0, reciprocal=reciprocal, dtype=torch.float32)
    assert float(model.scores(torch.arange(8), torch.arange(8)).abs().max()) > 1e4
    strengths = Strengths(*(s.float() for s in strengths_of("uniform", DATA, model)))
    loss, gradients = softmax(model)(model, strengths, torch.arange(len(DATA.query_index)))
    assert np.isfinite(loss)
    assert all(bool(g.isfinite().all()) for g in gradients)


def test_a_user_score_without_transpose_trains_with_reciprocal_facts_only() -> None:
    model = random_embeddings(DATA, "stretch", reciprocal=False)
    with pytest.raises(ConfigError, match="reciprocal facts"):
        softmax(model)(model, no_strengths(model), torch.arange(len(DATA.query_index)))


def obvious_margin(
    model: Embeddings, facts: list[tuple[int, int, int]], wrong: Tensor, margin: float
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The mean hinge over facts and their wrong tails, by autograd on whole tables."""
    leaves = with_leaves(model)
    e, r, n = leaves.entities, relation_vectors(leaves), leaves.n_relations

    def f(h: int, relation: int, t: int) -> Tensor:
        if leaves.reciprocal or relation < n:
            return leaves.score.triple(e[h], r[relation], e[t])
        return leaves.score.triple(e[t], r[relation - n], e[h])

    hinges = [
        (margin - f(h, relation, t) + f(h, relation, bad)).clamp_min(0)
        for (h, relation, t), row in zip(facts, wrong.tolist(), strict=True)
        for bad in row
    ]
    loss = torch.stack(hinges).mean()
    return loss.detach(), torch.autograd.grad(loss, leaves.tables())


@every_mode
def test_margin_objective_equals_the_obvious_version(name: str, reciprocal: bool) -> None:
    model = random_embeddings(DATA, name, reciprocal=reciprocal)
    strengths = strengths_of("individual", DATA, model)
    prior = Prior(2, model.score.complex)
    objective = MarginObjective(
        DATA.query_index, model, prior, generator=torch.Generator().manual_seed(9), margin=0.8, negatives=4
    )
    assert objective.n_items == objective.n_facts == N_FACTS
    index = DATA.query_index
    facts = [
        (int(h), int(r), int(t))
        for h, r, (a, b) in zip(index.heads, index.relations, pairwise(index.offsets), strict=True)
        for t in index.tails[a:b]
    ]
    draws = torch.Generator().manual_seed(9)
    penalty = torch.autograd.grad(
        penalty_over_rows(leaves := with_leaves(model), strengths, 2) / N_FACTS, leaves.tables()
    )
    for batch in objective.batches(30, torch.Generator().manual_seed(0))[:2]:
        wrong = torch.randint(DATA.n_entities, (len(batch), 4), generator=draws)
        want, gradients = obvious_margin(model, [facts[i] for i in batch.tolist()], wrong, 0.8)
        loss, got = objective(model, strengths, batch)
        assert float(want) > 0
        assert loss == pytest.approx(float(want), rel=1e-10)
        assert_close(got, tuple(a + b for a, b in zip(gradients, penalty, strict=True)))


def test_every_score_is_covered() -> None:
    assert {name for name, _ in MODES} == set(ALL_SCORES)
