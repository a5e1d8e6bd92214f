"""Soft targets: gradients against autograd of the loss that they stand for, in float64; what is kept, what is made."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kgem.errors import ConfigError
from kgem.model import kernels
from kgem.model.embeddings import Embeddings
from kgem.model.objective import SoftmaxObjective
from kgem.model.prior import Prior, Strengths
from kgem.model.teacher import KeptTargets, Teacher
from kgem.train.optimizer import Optimizer
from obvious import MODES, random_embeddings, random_graph, with_leaves

DATA = random_graph()
N_FACTS = 2 * len(DATA.train)


def no_strengths(model: Embeddings) -> Strengths:
    return Strengths(*(torch.zeros(len(table), dtype=table.dtype) for table in model.tables()))


def teachers(name: str, reciprocal: bool, n: int = 2) -> list[Embeddings]:
    return [random_embeddings(DATA, name, reciprocal=reciprocal, seed=20 + i) for i in range(n)]


def obvious_targets(models: list[Embeddings], heads: Tensor, relations: Tensor) -> Tensor:
    return torch.stack([model.scores(heads, relations) for model in models]).mean(0).softmax(1)


def obvious_loss(leaves: Embeddings, models: list[Embeddings], weights: Tensor) -> Tensor:
    """sum_q of (1 - a_q) * facts + a_q * n_q KL(teacher || model), up to the teacher's entropy; over N'."""
    index = DATA.query_index
    heads, relations = (torch.from_numpy(ids.astype("int64")) for ids in (index.heads, index.relations))
    log_p = leaves.scores(heads, relations).log_softmax(1)
    soft = obvious_targets(models, heads, relations)
    total = log_p.new_zeros(())
    for i in range(len(index)):
        tails = torch.from_numpy(index.tails_of(i).astype("int64"))
        total = total - (1 - weights[i]) * log_p[i, tails].sum() - weights[i] * len(tails) * (soft[i] * log_p[i]).sum()
    return total / N_FACTS


@pytest.mark.parametrize("weight", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize(("name", "reciprocal"), MODES)
def test_gradients_are_those_of_the_mixed_loss(name: str, reciprocal: bool, n: int, weight: float) -> None:
    model = random_embeddings(DATA, name, reciprocal=reciprocal)
    models = teachers(name, reciprocal, n)
    plain = SoftmaxObjective(DATA.query_index, model, Prior(3, model.score.complex))
    taught = plain.taught_by(Teacher(models, weight, share=1.0), memory=0)
    leaves = with_leaves(model)
    everything = torch.arange(plain.n_items)
    weights = torch.full((plain.n_items,), weight, dtype=torch.float64)
    want = torch.autograd.grad(obvious_loss(leaves, models, weights), leaves.tables())
    loss, gradients = taught(model, no_strengths(model), everything)
    for got, expected in zip(gradients, want, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-8, atol=1e-10)
    assert loss == pytest.approx(plain(model, no_strengths(model), everything)[0])  # of the facts, to compare epochs


@pytest.mark.parametrize(("weight", "share", "taught_with"), [(0.7, 0.5, 1.0), (0.3, 0.5, 0.6), (0.2, 0.25, 0.8)])
def test_a_share_of_a_step_is_taught_with_more_weight(weight: float, share: float, taught_with: float) -> None:
    """Those that come first in the batch; the others learn from their facts alone."""
    model, models = random_embeddings(DATA, "complex"), teachers("complex", True)
    plain = SoftmaxObjective(DATA.query_index, model, Prior(3, True))
    taught = plain.taught_by(Teacher(models, weight, share), memory=0)
    order = torch.randperm(plain.n_items, generator=torch.Generator().manual_seed(3))
    weights = torch.zeros(plain.n_items, dtype=torch.float64)
    weights[order[: round(share * plain.n_items)]] = taught_with
    leaves = with_leaves(model)
    want = torch.autograd.grad(obvious_loss(leaves, models, weights), leaves.tables())
    for got, expected in zip(taught(model, no_strengths(model), order)[1], want, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("block_bytes", [1, 2**13])
@pytest.mark.parametrize(
    ("name", "reciprocal"), [("complex", True), ("cp", False), ("tucker", False), ("transe-l2", True)]
)
def test_kept_or_made_anew_targets_are_the_same(
    name: str, reciprocal: bool, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In blocks of any size, for a batch in any order; kept ones to what a byte can hold."""
    monkeypatch.setattr(kernels, "BLOCK_BYTES", block_bytes)
    model = random_embeddings(DATA, name, reciprocal=reciprocal)
    objective = SoftmaxObjective(DATA.query_index, model, Prior(3, model.score.complex))
    batch = torch.randperm(objective.n_items, generator=torch.Generator().manual_seed(1))[:50]
    kept, made = (Teacher(teachers(name, reciprocal), 0.6, share=1.0) for _ in range(2))
    results = []
    for teacher, keeps in ((kept, True), (made, False)):
        taught = objective.taught_by(teacher, memory=2**30 if keeps else 0)
        assert (teacher.kept is not None) == keeps
        results.append([g.clone() for g in taught(model, no_strengths(model), batch)[1]])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=0.05, atol=0.02 * float(other.abs().max()))


def test_a_byte_holds_a_probability_to_three_percent_and_a_tail_beyond_its_range() -> None:
    """Sums stay one; what is 2^24 times less likely than the first answer is written as just that."""
    scores = torch.linspace(0, -40, 200, dtype=torch.float64).repeat(3, 1) * torch.tensor([[0.1], [0.3], [1.0]])
    probabilities = scores.softmax(1)
    kept = KeptTargets.empty(5, 200, probabilities)
    items = torch.tensor([4, 0, 2])
    kept.write(items, probabilities)
    got = kept.read(items)
    torch.testing.assert_close(got.sum(1), torch.ones(3, dtype=torch.float64))
    inside = probabilities > probabilities.amax(1, keepdim=True) * 2**-24
    assert inside.sum() > 400 and not inside.all()
    torch.testing.assert_close(got[inside], probabilities[inside], rtol=0.04, atol=0)
    assert float((got / got.amax(1, keepdim=True)).min()) == pytest.approx(2**-24)
    assert kept.codes.element_size() == 1


def test_a_model_that_is_its_own_teacher_stays_where_it_is() -> None:
    """With weight 1 the targets are its own probabilities: no gradient."""
    model = random_embeddings(DATA, "complex")
    objective = SoftmaxObjective(DATA.query_index, model, Prior(3, True)).taught_by(
        Teacher([model], 1.0, share=1.0), memory=0
    )
    gradients = objective(model, no_strengths(model), torch.arange(objective.n_items))[1]
    assert all(float(gradient.abs().max()) < 1e-12 for gradient in gradients)


def test_a_model_learns_what_its_teacher_says() -> None:
    """By gradient steps with weight 1, from far away: the divergence from a teacher that can be matched vanishes."""
    models = teachers("complex", True, n=1)
    model = random_embeddings(DATA, "complex", seed=5)
    objective = SoftmaxObjective(DATA.query_index, model, Prior(3, True)).taught_by(
        Teacher(models, 1.0)
    )  # kept: bytes do
    index, optimizer = DATA.query_index, Optimizer("adagrad", model.tables())
    heads, relations = (torch.from_numpy(ids.astype("int64")) for ids in (index.heads, index.relations))
    wanted = obvious_targets(models, heads, relations)
    everything, divergences = torch.arange(objective.n_items), []
    for _ in range(300):
        gap = wanted.log() - model.scores(heads, relations).log_softmax(1)
        divergences.append(float((wanted * gap).sum(1).mean()))
        optimizer.step(objective(model, no_strengths(model), everything)[1], 0.1)
    assert divergences[-1] < 0.05 * divergences[0]


def test_targets_of_float32_tables_are_right_to_three_digits() -> None:
    models = [random_embeddings(DATA, "complex", seed=s, dtype=torch.float32) for s in (20, 21)]
    heads, relations = torch.arange(9), torch.arange(9) % (2 * DATA.n_relations)
    got = Teacher(models, 0.5).probabilities(heads, relations, reverse=False).float()
    torch.testing.assert_close(got, obvious_targets(models, heads, relations), rtol=2e-2, atol=1e-4)


@pytest.mark.parametrize("weight", [-0.1, 1.1])
def test_a_weight_is_a_share(weight: float) -> None:
    with pytest.raises(ConfigError, match="weight"):
        Teacher([random_embeddings(DATA, "complex")], weight)
