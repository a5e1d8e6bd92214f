"""The softmax kernel against autograd: blocks, shards, extreme scores."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from kgem.model import kernels
from kgem.model.kernels import Shard, SoftmaxKernel, block_size
from obvious import ALL_SCORES

CPU = torch.device("cpu")
DIM = 4


class Problem(NamedTuple):
    """Queries, a table, and the observed tails of each query."""

    q: Tensor  # (b, d)
    table: Tensor  # (n, d)
    counts: Tensor  # (b,)
    rows: Tensor  # (pairs,)
    tails: Tensor  # (pairs,)


def make_problem(n: int, b: int, d: int = DIM, *, scale: float = 1.0, dtype: torch.dtype = torch.float64) -> Problem:
    generator = torch.Generator().manual_seed(n + b)
    q = scale * torch.randn(b, d, generator=generator, dtype=torch.float64)
    table = torch.randn(n, d, generator=generator, dtype=torch.float64)
    lengths = torch.randint(1, min(n, 9) + 1, (b,), generator=generator)
    tails = [torch.randperm(n, generator=generator)[: int(length)].sort().values for length in lengths]
    return Problem(q.to(dtype), table.to(dtype), lengths.to(dtype), torch.repeat_interleave(lengths), torch.cat(tails))


def obvious(name: str, problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """Loss and gradients by autograd, in float64, one observed tail at a time."""
    q, table = (x.detach().double().requires_grad_() for x in (problem.q, problem.table))
    log_p = ALL_SCORES[name].compare(q, table).log_softmax(dim=1)
    loss = -sum(log_p[i, t] for i, t in zip(problem.rows.tolist(), problem.tails.tolist(), strict=True))
    return (loss.detach(), *torch.autograd.grad(loss, (q, table)))


def run(
    name: str, problem: Problem, *, scale: float = 1.0, kernel: SoftmaxKernel | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    kernel = kernel or SoftmaxKernel(ALL_SCORES[name], len(problem.table), problem.table.dtype, CPU)
    grad_table = torch.zeros_like(problem.table)
    loss, grad_q = kernel(*problem, grad_table, scale)
    return loss, grad_q, grad_table


def assert_same(got: tuple[Tensor, ...], want: tuple[Tensor, ...], rtol: float = 1e-9, atol: float = 1e-10) -> None:
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=rtol, atol=atol)


@pytest.mark.parametrize("block_bytes", [1, 16_000, 12 * 2**20])
@pytest.mark.parametrize("name", ALL_SCORES)
def test_loss_and_gradients_equal_autograd(name: str, block_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "BLOCK_BYTES", block_bytes)
    problem = make_problem(n=50, b=70)
    assert_same(run(name, problem), obvious(name, problem))


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 64, 511, 512, 513])
@pytest.mark.parametrize("b", [1, 16, 17])
def test_any_number_of_tails_and_queries(n: int, b: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are padded to cache lines, 512 doubles would be a page: the padding must not be seen."""
    monkeypatch.setattr(kernels, "BLOCK_BYTES", 1)
    problem = make_problem(n, b)
    assert_same(run("distmult", problem), obvious("distmult", problem))


def test_scale_and_adding_to_what_is_there() -> None:
    problem = make_problem(30, 20)
    loss, grad_q, grad_table = obvious("distmult", problem)
    kernel = SoftmaxKernel(ALL_SCORES["distmult"], 30, torch.float64, CPU)
    there = torch.ones_like(problem.table)
    got_loss, got_q = kernel(*problem, there, 0.25)
    assert_same((got_loss, got_q, there - 1), (loss / 4, grad_q / 4, grad_table / 4))


def test_the_reused_block_carries_nothing_over() -> None:
    """Many queries, then few, then many, through one kernel."""
    kernel = SoftmaxKernel(ALL_SCORES["distmult"], 30, torch.float64, CPU)
    for b in (300, 3, 300):
        problem = make_problem(30, b)
        assert_same(run("distmult", problem, kernel=kernel), obvious("distmult", problem))


def test_no_queries() -> None:
    problem = make_problem(30, 5)
    nothing = Problem(problem.q[:0], problem.table, problem.counts[:0], problem.rows[:0], problem.tails[:0])
    loss, grad_q, grad_table = run("distmult", nothing)
    assert float(loss) == 0
    assert grad_q.shape == (0, DIM)
    assert not grad_table.any()


def test_single_precision_is_as_good_as_it_can_be() -> None:
    problem = make_problem(2000, 40, d=32, dtype=torch.float32)
    assert_same(run("distmult", problem), obvious("distmult", problem), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("n", [5, 64, 513, 2000])
@pytest.mark.parametrize("name", ["distmult", "complex"])
def test_rounded_products_are_right_to_their_digits(name: str, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """bfloat16 has eight bits: errors of the size of a few roundings, padding and blocks unseen."""
    monkeypatch.setattr(kernels, "BLOCK_BYTES", 1)
    problem = make_problem(n, 40, d=32, scale=0.3, dtype=torch.float32)
    kernel = SoftmaxKernel(ALL_SCORES[name], n, torch.bfloat16, CPU)
    assert kernel.block < 40
    for a, b in zip(run(name, problem, kernel=kernel), obvious(name, problem), strict=True):
        assert a.dtype != torch.bfloat16
        assert float((a.double() - b).norm() / b.norm()) < 0.02


def test_rounding_has_no_side() -> None:
    """Losses over many batches err upwards and downwards: their mean is closer to the exact one than each of them."""
    problems = [make_problem(300, b, d=16, scale=0.5, dtype=torch.float32) for b in range(100, 140)]
    kernel = SoftmaxKernel(ALL_SCORES["distmult"], 300, torch.bfloat16, CPU)
    errors = [run("distmult", p, kernel=kernel)[0].double() / obvious("distmult", p)[0] - 1 for p in problems]
    assert float(torch.stack(errors).abs().max()) < 2e-3
    assert abs(float(torch.stack(errors).mean())) < 3e-4


@pytest.mark.parametrize("name", ["transe-l1", "transe-l2"])
def test_single_precision_is_as_good_where_queries_are_next_to_tails(name: str) -> None:
    """The gradient of a small distance is its direction: wrong distances would make it wrong altogether."""
    problem = make_problem(200, 40, d=32, dtype=torch.float32)
    firsts = problem.tails[torch.searchsorted(problem.rows, torch.arange(len(problem.q)))]
    problem = problem._replace(q=problem.table[firsts] + 1e-3 * problem.q)
    assert_same(run(name, problem), obvious(name, problem), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["distmult", "transe-l1", "transe-l2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_scores_stay_finite_and_exact(name: str, dtype: torch.dtype) -> None:
    """Scores of +-1e4 and beyond, where exp overflows."""
    problem = make_problem(40, 20, scale=1e4, dtype=dtype)
    assert float(ALL_SCORES[name].compare(problem.q, problem.table).abs().max()) > 1e4
    got, want = run(name, problem), obvious(name, problem)
    assert all(bool(x.isfinite().all()) for x in got)
    rounding = torch.finfo(dtype).eps * 1e4 * len(problem.tails)  # of the scores themselves, summed up
    torch.testing.assert_close(got[0], want[0], rtol=1e-5, atol=rounding)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gap", [50.0, 200.0, 1e4, -1e4])
def test_a_probability_that_underflows_has_an_exact_loss(gap: float, dtype: torch.dtype) -> None:
    """Scores 0, 0, -gap and the last one observed: the loss is log(2 + exp(-gap)) + gap."""
    table = torch.tensor([[0.0], [0.0], [-gap]], dtype=dtype)
    one = torch.ones(1, 1, dtype=dtype)
    problem = Problem(one, table, one[0], torch.tensor([0]), torch.tensor([2]))
    loss, grad_q, grad_table = run("distmult", problem)
    want = math.log(2) + gap if gap > 0 else 0.0
    assert float(loss) == pytest.approx(want, rel=1e-6)
    assert all(bool(g.isfinite().all()) for g in (grad_q, grad_table))
    assert float(grad_table[2]) == (-1.0 if gap > 0 else 0.0)


def test_what_is_not_a_number_is_not_hidden() -> None:
    problem = make_problem(30, 5)
    problem.table[3, 0] = math.inf
    assert not math.isfinite(float(run("distmult", problem)[0]))


def test_blocks_stay_below_their_limit() -> None:
    assert block_size(14541, torch.float32) * 14541 * 4 <= kernels.BLOCK_BYTES
    assert block_size(10, torch.float32) == 1024
    assert block_size(10**8, torch.float32) == 16


class Meeting:
    """Threads that exchange tensors as processes would: all give one, all get all of them."""

    def __init__(self, n: int) -> None:
        self.barrier = threading.Barrier(n, timeout=20)
        self.given: list[Tensor] = [torch.empty(0)] * n

    def everyone(self, place: int, mine: Tensor) -> Tensor:
        self.given[place] = mine.clone()
        self.barrier.wait()
        together = torch.stack(self.given)
        self.barrier.wait()
        return together

    def shard(self, place: int, start: int) -> Shard:
        def join(log_z: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
            return self.everyone(place, log_z).logsumexp(0), self.everyone(place, observed).sum(0)

        return Shard(start, join)


def in_threads(jobs: list[Callable[[], tuple[Tensor, ...]]], meeting: Meeting) -> Iterator[tuple[Tensor, ...]]:
    results: list[tuple[Tensor, ...] | BaseException] = [()] * len(jobs)

    def work(place: int) -> None:
        try:
            results[place] = jobs[place]()
        except BaseException as error:
            results[place] = error
            meeting.barrier.abort()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, BaseException):
            raise result
        yield result


def sum_of(tensors: Iterable[Tensor]) -> Tensor:
    return torch.stack(list(tensors)).sum(0)


@pytest.mark.parametrize("borders", [(0, 25, 50), (0, 7, 30, 50), (0, 1, 50)])
@pytest.mark.parametrize("scale", [1.0, 500.0])
@pytest.mark.parametrize("name", ALL_SCORES)
def test_shards_together_equal_the_whole(
    name: str, scale: float, borders: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unequal row ranges of the table, each with its own kernel, give the loss and gradients of all of it."""
    monkeypatch.setattr(kernels, "BLOCK_BYTES", 1)
    problem = make_problem(n=50, b=40, scale=scale)
    ranges = list(pairwise(borders))
    meeting = Meeting(len(ranges))

    def job(place: int) -> tuple[Tensor, ...]:
        start, stop = ranges[place]
        part = problem.table[start:stop]
        kernel = SoftmaxKernel(ALL_SCORES[name], len(part), part.dtype, CPU)
        grad_table = torch.zeros_like(part)
        with torch.no_grad():
            loss, grad_q = kernel(*problem._replace(table=part), grad_table, 0.5, shard=meeting.shard(place, start))
        return loss, grad_q, grad_table

    parts = list(in_threads([lambda i=i: job(i) for i in range(len(ranges))], meeting))
    loss, grad_q, grad_table = obvious(name, problem)
    for part in parts:
        both = part[0], sum_of(part[1] for part in parts)
        assert_same(both, (loss / 2, grad_q / 2), atol=1e-7 if scale > 1 else 1e-10)
    together = torch.cat([part[2] for part in parts])
    torch.testing.assert_close(together, grad_table / 2, rtol=1e-9, atol=1e-7 if scale > 1 else 1e-10)


def test_shards_of_different_sizes_agree_on_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """They meet after every block: one of 60 rows and one of 3 would choose differently."""
    monkeypatch.setattr(kernels, "BLOCK_BYTES", 16_000)
    problem = make_problem(n=63, b=100)
    sizes = [60, 3]
    assert block_size(64, torch.float64) != block_size(8, torch.float64)
    meeting = Meeting(2)

    def job(place: int) -> tuple[Tensor, ...]:
        start = sum(sizes[:place])
        part = problem.table[start : start + sizes[place]]
        block = block_size(max(sizes), part.dtype)
        kernel = SoftmaxKernel(ALL_SCORES["distmult"], len(part), part.dtype, CPU, block=block)
        grad_table = torch.zeros_like(part)
        loss, grad_q = kernel(*problem._replace(table=part), grad_table, shard=meeting.shard(place, start))
        return loss, grad_q, grad_table

    parts = list(in_threads([lambda i=i: job(i) for i in range(2)], meeting))
    loss, grad_q, grad_table = obvious("distmult", problem)
    for part in parts:
        assert_same((part[0], sum_of(part[1] for part in parts)), (loss, grad_q))
    torch.testing.assert_close(torch.cat([part[2] for part in parts]), grad_table)
