"""Updates against their formulas; state taken out and put back."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor

from kgem.errors import ConfigError
from kgem.model.rows import Rows, Touched
from kgem.train.optimizer import OPTIMIZERS, Optimizer, Schedule

every_optimizer = pytest.mark.parametrize("name", OPTIMIZERS)
RATES = [0.1, 0.05, 0.2, 0.2, 0.01]


def tables(seed: int = 0, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(rows, 3, generator=generator, dtype=torch.float64).to(dtype) for rows in (5, 2)]


def by_formula(name: str, table: Tensor, gradients: list[Tensor]) -> Tensor:
    x, first, second = table.clone(), torch.zeros_like(table), torch.zeros_like(table)
    for t, (g, rate) in enumerate(zip(gradients, RATES, strict=True), start=1):
        if name == "sgd":
            x -= rate * g
        elif name == "adagrad":
            second += g**2
            x -= rate * g / (second.sqrt() + 1e-12)
        elif name == "row-adagrad":
            second += (g**2).mean(1, keepdim=True)
            x -= rate * g / (second.sqrt() + 1e-12)
        else:
            first = 0.9 * first + 0.1 * g
            second = 0.999 * second + 0.001 * g**2
            x -= rate * (first / (1 - 0.9**t)) / ((second / (1 - 0.999**t)).sqrt() + 1e-12)
    return x


@every_optimizer
def test_steps_follow_the_formula(name: str) -> None:
    both = tables()
    start = [t.clone() for t in both]
    steps = [tables(seed) for seed in range(1, 6)]
    optimizer = Optimizer(name, both)
    for gradients, rate in zip(steps, RATES, strict=True):
        optimizer.step(gradients, rate)
    for i, table in enumerate(both):
        torch.testing.assert_close(table, by_formula(name, start[i], [g[i] for g in steps]), rtol=1e-9, atol=1e-12)


@every_optimizer
def test_gradients_are_left_alone_and_their_memory_may_be_reused(name: str) -> None:
    one, two = tables(), tables()
    first, second = Optimizer(name, one), Optimizer(name, two)
    buffers = [torch.empty_like(t) for t in one]
    for seed, rate in enumerate(RATES):
        fresh = tables(seed + 1)
        for buffer, gradient in zip(buffers, fresh, strict=True):
            buffer.copy_(gradient)
        first.step(buffers, rate)
        assert all(map(torch.equal, buffers, fresh))
        second.step(fresh, rate)
    assert all(map(torch.equal, one, two))


@every_optimizer
def test_a_state_is_a_copy_unless_it_is_wanted_as_it_stands(name: str) -> None:
    both = tables()
    optimizer = Optimizer(name, both)
    optimizer.step(tables(1), 0.1)
    copied, standing = optimizer.state(), optimizer.state(copies=False)
    before = {key: t.clone() for key, t in copied.items()}
    optimizer.step(tables(2), 0.1)
    assert all(torch.equal(copied[key], t) for key, t in before.items())
    assert all(torch.equal(standing[key], t) for key, t in optimizer.state().items())
    sums = {key: t for key, t in before.items() if key.endswith("sum")}  # these change in every step
    assert not any(torch.equal(standing[key], t) for key, t in sums.items())


def test_adagrad_moves_at_once_however_small_the_gradient() -> None:
    """Accumulators start at zero: the first step is the rate, also for gradients of 1e-8 (the saddle E = R = 0)."""
    table = torch.zeros(1, 2)
    Optimizer("adagrad", [table]).step([torch.tensor([[1e-8, -3.0]])], 0.1)
    torch.testing.assert_close(table, torch.tensor([[-0.1, 0.1]]), rtol=1e-3, atol=0)


@every_optimizer
def test_rows_without_gradient_stay(name: str) -> None:
    table = torch.ones(2, 3)
    Optimizer(name, [table]).step([torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])], 0.1)
    assert torch.equal(table[1], torch.ones(3))
    assert not torch.equal(table[0], torch.ones(3))


@pytest.mark.parametrize("steps_before", [0, 3])
@every_optimizer
def test_going_on_from_a_state_is_bit_identical(name: str, steps_before: int) -> None:
    """In the same optimiser (a rollback) and in a new one (a resumed run)."""
    both = tables(dtype=torch.float32)
    optimizer = Optimizer(name, both)
    for seed in range(steps_before):
        optimizer.step(tables(10 + seed, torch.float32), 0.1)
    state, kept = optimizer.state(), [t.clone() for t in both]

    def go_on(some: Optimizer) -> None:
        for seed in range(3):
            some.step(tables(20 + seed, torch.float32), 0.1)

    go_on(optimizer)
    after = [t.clone() for t in both]

    for table, old in zip(both, kept, strict=True):
        table.copy_(old)
    optimizer.restore(state)
    go_on(optimizer)
    assert all(map(torch.equal, both, after))

    fresh = [t.clone() for t in kept]
    resumed = Optimizer(name, fresh)
    resumed.restore(state)
    go_on(resumed)
    assert all(map(torch.equal, fresh, after))


@every_optimizer
def test_a_state_is_a_copy(name: str) -> None:
    both = tables()
    optimizer = Optimizer(name, both)
    optimizer.step(tables(1), 0.1)
    state = optimizer.state()
    before = {key: value.clone() for key, value in state.items()}
    optimizer.restore(state)
    optimizer.step(tables(2), 0.1)
    assert all(torch.equal(state[key], before[key]) for key in before)
    assert all(isinstance(value, Tensor) for value in state.values())
    assert bool(state) == (name != "sgd")


@pytest.mark.parametrize("name", ["adagrad", "adam", "sgd"])
def test_steps_have_the_bits_of_torch(name: str) -> None:
    """Its classes are not used, as they import a compiler; checkpoints of fits that used them go on."""
    kinds = {"adagrad": torch.optim.Adagrad, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    ours, theirs = tables(dtype=torch.float32), tables(dtype=torch.float32)
    eps = {} if name == "sgd" else {"eps": 1e-12}
    optimizer, torchs = Optimizer(name, ours), kinds[name](theirs, lr=0.1, fused=True, **eps)
    for seed in range(3):
        optimizer.step(tables(10 + seed, torch.float32), 0.1)
        for table, gradient in zip(theirs, tables(10 + seed, torch.float32), strict=True):
            table.grad = gradient
        torchs.step()
    assert all(map(torch.equal, ours, theirs))
    kept = torchs.state_dict()["state"]
    assert optimizer.state().keys() == {
        f"{i}.{key}" for i, state in kept.items() for key, value in state.items() if value is not None
    }


def test_a_fit_imports_no_compiler() -> None:
    """It would take as long as torch itself, at the start of each fit."""
    code = "import sys, torch; from kgem.train.optimizer import Optimizer; x = torch.ones(2, 2)\n"
    code += "for name in ('adagrad', 'adam', 'sgd'): Optimizer(name, [x]).step([x.clone()], 0.1)\n"
    subprocess.run([sys.executable, "-c", code + "assert 'torch._dynamo' not in sys.modules"], check=True, timeout=300)


def test_an_unknown_optimizer_is_an_error_that_lists_all() -> None:
    with pytest.raises(ConfigError, match=r"'lion'\n.*adagrad, adam, sgd"):
        Optimizer("lion", tables())


def test_schedule_of_the_authors() -> None:
    """rate * (a / (t + a))^0.5."""
    schedule = Schedule(0.02, half_life=25)
    assert schedule.at(0) == 0.02
    assert schedule.at(75) == pytest.approx(0.01)
    assert schedule.at(12.5) == pytest.approx(0.02 * (25 / 37.5) ** 0.5)
    assert Schedule(0.3).at(1000) == 0.3


@pytest.mark.parametrize("name", ["adagrad", "row-adagrad", "sgd"])
def test_a_step_on_some_rows_is_one_without_gradient_in_the_others(name: str) -> None:
    some, every = tables(), tables()
    one, other = Optimizer(name, some), Optimizer(name, every)
    ids = [torch.tensor([0, 2, 3]), torch.tensor([1])]
    touched = Touched(*map(Rows, ids))
    for seed, rate in enumerate(RATES, start=1):
        gradients = tables(seed)
        one.step([g[rows] for g, rows in zip(gradients, ids, strict=True)], rate, touched)
        other.step([torch.zeros_like(g).index_copy(0, r, g[r]) for g, r in zip(gradients, ids, strict=True)], rate)
    for got, want in zip(some, every, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=0)
    assert one.state().keys() == other.state().keys()
    for key, value in other.state().items():
        if key.endswith("sum"):
            torch.testing.assert_close(one.state()[key], value, rtol=1e-12, atol=0)


def test_rows_leave_the_saddle_at_zero() -> None:
    """Gradients there are far below any start value that accumulators might be given."""
    table = torch.zeros(3, 4)
    Optimizer("row-adagrad", [table, torch.zeros(1, 4)]).step(
        [torch.full((1, 4), 1e-9), torch.zeros(1, 4)], 0.1, Touched(Rows(torch.tensor([1])), Rows(torch.tensor([0])))
    )
    torch.testing.assert_close(table[1], torch.full((4,), -0.1), rtol=2e-3, atol=0)
