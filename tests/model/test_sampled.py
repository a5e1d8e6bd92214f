"""The sampled softmax against autograd, against its expectation, and against the exact one that it becomes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kgem.model.embeddings import Embeddings
from kgem.model.exact_pass import expected_loss
from kgem.model.objective import Gradients, Pieces, SoftmaxObjective
from kgem.model.posterior import Gaussian
from kgem.model.prior import Prior, Strengths
from kgem.model.sampled import SHAPES, SampledBatch, SampledObjective
from kgem.model.sampled_kernel import estimate_softmax
from kgem.model.sampling import Candidates
from kgem.model.teacher import Teacher
from obvious import ALL_SCORES, MODES, random_embeddings, random_graph, strengths_of, with_leaves

DATA = random_graph()
INDEX = DATA.query_index
EVERY = len(INDEX)
COUNTS = torch.tensor(DATA.entity_counts)
every_mode = pytest.mark.parametrize(("name", "reciprocal"), MODES)


def sampled(
    model: Embeddings, candidates: int = 6, p: int = 3, products: torch.dtype | None = None
) -> SampledObjective:
    prior = Prior(p, model.score.complex)
    return SampledObjective(INDEX, model, prior, Candidates(COUNTS, candidates, 0.5), products=products)


def evaluate(
    objective: SampledObjective, model: Embeddings, strengths: Strengths, batch: SampledBatch
) -> tuple[float, Gradients]:
    """Loss, and gradients in all rows: none where the batch does not touch."""
    touched = batch.touched
    tables = model.with_tables(*touched.of(model.tables()))
    loss, gradients = objective(tables, Strengths(*touched.of(strengths)), batch)
    whole = Gradients(*(torch.zeros_like(table) for table in model.tables()))
    for every, rows, some in zip(whole, touched, gradients, strict=True):
        assert rows.ids is not None
        every[rows.ids] = some
    return loss, whole


def plan(objective: SampledObjective, items: Tensor, seed: int = 0) -> SampledBatch:
    return objective.plan(items, torch.Generator().manual_seed(seed))


def obvious_loss(model: Embeddings, strengths: Strengths, batch: SampledBatch, items: Tensor, p: int) -> Tensor:
    """L / N' of a step, question by question, answer by answer; prior and unseen rows as the docstring says."""
    n_facts, prior = len(INDEX.tails), Prior(p, model.score.complex)
    drawn = batch.touched.entities.ids[batch.candidates].tolist()
    heads = torch.bincount(torch.tensor(INDEX.heads), minlength=model.n_entities)
    occurrences = heads + torch.bincount(torch.tensor(INDEX.tails), minlength=model.n_entities)
    rows = torch.tensor(INDEX.relations) % model.n_own
    relation_occurrences = torch.bincount(rows, minlength=model.n_own)
    entities = torch.where((occurrences > 0)[:, None], model.entities, model.entities.detach())
    model = model.with_tables(entities, model.relations)
    charged = [torch.zeros(model.n_entities), torch.zeros(len(model.relations))]
    total = model.entities.new_zeros(())
    for i in items.tolist():
        head, relation = int(INDEX.heads[i]), int(INDEX.relations[i])
        answers = INDEX.tails_of(i).tolist()
        scores = model.scores(torch.tensor([head]), torch.tensor([relation]))[0]
        z = sum(scores[t].exp() for t in answers)
        z = z + sum(scores[t].exp() * w for t, w in zip(drawn, batch.weights.tolist(), strict=True) if t not in answers)
        total = total + len(answers) * z.log() - sum(scores[t] for t in answers)
        for t in [head, *answers]:
            charged[0][t] += 1 / occurrences[t]
        charged[1][relation % model.n_own] += 1 / relation_occurrences[relation % model.n_own]
        charged[1][model.n_own :] += 1 / EVERY  # what all facts share is in every question
    for table, lam, share in zip(model.tables(), strengths, charged, strict=True):
        total = total + prior.penalty(table, lam * share)
    return total * (EVERY / len(items)) / n_facts


@pytest.mark.parametrize("p", [2, 3])
@every_mode
def test_the_gradient_is_that_of_the_sampled_loss(name: str, reciprocal: bool, p: int) -> None:
    model = random_embeddings(DATA, name, reciprocal=reciprocal)
    strengths = strengths_of("individual", DATA, model)
    objective = sampled(model, p=p)
    items = torch.randperm(EVERY, generator=torch.Generator().manual_seed(5))[:20]
    batch = plan(objective, items)
    loss, gradients = evaluate(objective, model, strengths, batch)
    leaves = with_leaves(model)
    wanted = torch.autograd.grad(obvious_loss(leaves, strengths, batch, items, p), leaves.tables())
    for got, want in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-9)
    none = Strengths(*(torch.zeros_like(lam) for lam in strengths))
    assert loss == pytest.approx(float(obvious_loss(model, none, batch, items, p)), rel=1e-9)


def test_z_has_the_right_mean_and_the_variance_of_poisson_sampling() -> None:
    """Var Z = sum over others of (1 - pi) / pi exp(2 f)."""
    model = random_embeddings(DATA, "complex")
    objective = sampled(model, candidates=6)
    items = torch.arange(12)
    chances, draws = objective.candidates.probabilities, 3000
    estimates = []
    for seed in range(draws):
        batch = plan(objective, items, seed)
        local = model.with_tables(*batch.touched.of(model.tables()))
        side = batch.sides[0]
        q = model.score.query(local.entities[side.heads], local.relations[side.relations])
        own = (q[side.rows] * local.entities[side.answers]).sum(1)
        soft = estimate_softmax(q, local.entities[batch.candidates], own, side, batch.weights, torch.float64)
        estimates.append(soft.z * soft.largest.exp())
    z = torch.stack(estimates)
    scores = model.scores(torch.tensor(INDEX.heads[:12]).long(), torch.tensor(INDEX.relations[:12]).long())
    exact = scores.exp().sum(1)
    terms = (1 - chances) / chances * (2 * scores).exp()
    for i in range(12):
        terms[i, torch.tensor(INDEX.tails_of(i)).long()] = 0.0
    variance = terms.sum(1)
    assert ((z.mean(0) - exact).abs() < 4 * (variance / draws).sqrt()).all()
    torch.testing.assert_close(z.var(0), variance, rtol=0.25, atol=0.0)
    assert (z.log().mean(0) < exact.log()).all()  # Jensen: why bounds come from an exact pass


@every_mode
def test_with_all_entities_as_candidates_it_is_the_exact_objective(name: str, reciprocal: bool) -> None:
    model = random_embeddings(DATA, name, reciprocal=reciprocal)
    strengths = strengths_of("individual", DATA, model)
    objective = sampled(model, candidates=DATA.n_entities)
    exact = SoftmaxObjective(INDEX, model, Prior(3, model.score.complex))
    items = torch.arange(EVERY)
    loss, gradients = evaluate(objective, model, strengths, plan(objective, items))
    wanted_loss, wanted = exact(model, strengths, items)
    assert loss == pytest.approx(wanted_loss, rel=1e-9)
    seen = torch.ones(DATA.n_entities, dtype=torch.bool)
    seen[objective.unseen[0]] = False
    torch.testing.assert_close(gradients.entities[seen], wanted.entities[seen], rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(gradients.relations, wanted.relations, rtol=1e-6, atol=1e-9)
    assert len(objective.unseen[0]) == 2
    assert not gradients.entities[~seen].any()  # rows without facts stay as they are


@pytest.mark.parametrize("name", ["complex", "tucker"])
def test_over_an_epoch_every_row_with_facts_is_charged_its_prior_once(name: str) -> None:
    model = random_embeddings(DATA, name)
    objective = sampled(model)
    charged = [torch.zeros(len(table)) for table in model.tables()]
    for batch in objective.batches(7, torch.Generator().manual_seed(2)):
        for total, rows in zip(charged, batch.touched, strict=True):
            total.index_add_(0, rows.ids, rows.share * len(batch) / EVERY)
        asked = torch.cat([batch.sides[0].heads, batch.sides[0].answers])
        only_candidates = torch.ones(len(batch.touched.entities.ids), dtype=torch.bool).index_fill(0, asked, False)
        assert not batch.touched.entities.share[only_candidates].any()
    for total, unseen in zip(charged, objective.unseen, strict=True):
        wanted = torch.ones_like(total).index_fill(0, unseen, 0.0)
        torch.testing.assert_close(total, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["complex", "cp", "tucker", "transe-l2"])
def test_a_teacher_says_of_all_candidates_what_it_says_of_all_entities(name: str) -> None:
    model = random_embeddings(DATA, name)
    teachers = [random_embeddings(DATA, name, seed=seed) for seed in (8, 9)]
    strengths = strengths_of("individual", DATA, model)
    objective = sampled(model, candidates=DATA.n_entities).taught_by(Teacher(teachers, 0.7))
    exact = SoftmaxObjective(INDEX, model, Prior(3, model.score.complex))
    exact = exact.taught_by(Teacher(teachers, 0.7, share=1.0), memory=0)
    items = torch.arange(EVERY)
    loss, gradients = evaluate(objective, model, strengths, plan(objective, items))
    wanted_loss, wanted = exact(model, strengths, items)
    assert loss == pytest.approx(wanted_loss, rel=1e-9)
    seen = torch.ones(DATA.n_entities, dtype=torch.bool).index_fill(0, objective.unseen[0], False)
    torch.testing.assert_close(gradients.entities[seen], wanted.entities[seen], rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(gradients.relations, wanted.relations, rtol=1e-6, atol=1e-9)


def test_rounded_products_are_near() -> None:
    model = random_embeddings(DATA, "complex", dtype=torch.float32)
    strengths = strengths_of("individual", DATA, model)
    items = torch.arange(EVERY)
    losses, gradients = [], []
    for products in (None, torch.bfloat16):
        objective = sampled(model, products=products)
        loss, grads = evaluate(objective, model, strengths, plan(objective, items))
        losses.append(loss)
        gradients.append(grads)
    assert losses[1] == pytest.approx(losses[0], rel=0.01)
    for rounded, wanted in zip(gradients[1], gradients[0], strict=True):
        assert (rounded - wanted).norm() < 0.02 * wanted.norm()
        assert not torch.equal(rounded, wanted)


def test_rounded_products_have_few_shapes() -> None:
    """Candidates are filled up to a multiple, with one that has no weight: a new shape takes longer than a step."""
    model = random_embeddings(DATA, "complex", dtype=torch.float32)
    objective, exact = sampled(model, products=torch.bfloat16), sampled(model)
    for seed in range(3):
        filled, drawn = (plan(each, torch.arange(EVERY), seed) for each in (objective, exact))
        assert len(filled.candidates) % SHAPES == 0
        n = len(drawn.candidates)
        assert torch.equal(filled.candidates[:n], drawn.candidates)
        assert torch.equal(filled.weights[:n], drawn.weights) and not filled.weights[n:].any()
        assert torch.equal(filled.touched.entities.share, drawn.touched.entities.share)


def test_questions_with_many_answers_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kgem.model.sampled.MAX_TAILS", 2)
    model = random_embeddings(DATA, "complex")
    objective = sampled(model, candidates=DATA.n_entities)
    assert objective.n_items > EVERY
    strengths = Strengths(*(torch.zeros(len(t), dtype=torch.float64) for t in model.tables()))
    loss, _ = evaluate(objective, model, strengths, plan(objective, torch.arange(objective.n_items)))
    wanted, _ = SoftmaxObjective(INDEX, model, Prior(3, True))(model, strengths, torch.arange(EVERY))
    assert loss == pytest.approx(wanted, rel=1e-9)


def test_batches_are_the_same_whenever_they_are_asked_for() -> None:
    objective = sampled(random_embeddings(DATA, "complex"))
    batches, again = (objective.batches(10, torch.Generator().manual_seed(4)) for _ in range(2))
    assert len(batches) == len(list(batches)) == len(batches[:]) > 2
    assert sum(map(len, batches)) == EVERY
    assert torch.equal(batches[-1].touched.entities.ids, list(again)[-1].touched.entities.ids)
    assert len({tuple(batch.candidates.tolist()) for batch in batches}) > 1


@pytest.mark.parametrize(("name", "reciprocal"), [("complex", True), ("cp", False), ("transe-l1", True)])
def test_the_exact_pass_is_the_exact_loss(name: str, reciprocal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kgem.model.exact_pass.BLOCK", 40)  # several blocks
    model = random_embeddings(DATA, name, reciprocal=reciprocal)
    certain = tuple(Gaussian(table, torch.full_like(table, -50.0)) for table in model.tables())
    questions = Pieces.cut(INDEX, None, torch.device("cpu")).questions(EVERY)
    zero = Strengths(*(torch.zeros(len(t), dtype=torch.float64) for t in model.tables()))
    wanted, _ = SoftmaxObjective(INDEX, model, Prior(3, model.score.complex))(model, zero, torch.arange(EVERY))
    assert expected_loss(certain, model, questions) == pytest.approx(wanted, rel=1e-9)


def test_the_exact_pass_draws_from_q() -> None:
    """The mean over samples of the exact loss, by the obvious way."""
    model = random_embeddings(DATA, "distmult", dim=64, scale=0.3)
    q = tuple(Gaussian.around(table, 0.2) for table in model.tables())
    questions = Pieces.cut(INDEX, None, torch.device("cpu")).questions(EVERY)
    zero = Strengths(*(torch.zeros(len(t), dtype=torch.float64) for t in model.tables()))
    exact, generator = SoftmaxObjective(INDEX, model, Prior(3, False)), torch.Generator().manual_seed(0)
    draws = torch.tensor(
        [
            exact(model.with_tables(*(g.sample(generator)[0] for g in q)), zero, torch.arange(EVERY))[0]
            for _ in range(60)
        ]
    )
    got = expected_loss(q, model, questions)
    assert abs(got - float(draws.mean())) < 4 * float(draws.std())
    assert ALL_SCORES["distmult"] is model.score
