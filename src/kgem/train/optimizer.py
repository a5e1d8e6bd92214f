"""Adagrad, Adam and SGD on whole tables, and the authors' learning-rate schedule.

Torch's fused updates do one pass over table, gradient and accumulator; a dense step on a table of
15,000 x 200 costs half a millisecond, less than any sparse book-keeping would. Where a step touches a part of the rows,
Adagrad and SGD update these alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.optim.adagrad import adagrad

from kgem.errors import ConfigError
from kgem.model.rows import ALL, Touched

__all__ = ["OPTIMIZERS", "Optimizer", "Schedule"]


EPS = 1e-12  # far below gradients on the scale of L / N', even at the saddle E = R = 0


State = dict[str, Tensor]  # the accumulators of one table, by name; a table without any has none
Update = Callable[[Sequence[Tensor], Sequence[Tensor], Sequence[State], float], None]


# Torch's own updates, without its classes around them: those take longer than a step on a small table, and the first
# of them imports a compiler that nobody asked for, which takes as long as to import torch.


def _adagrad(tables: Sequence[Tensor], gradients: Sequence[Tensor], states: Sequence[State], rate: float) -> None:
    """The count of steps stays as it is: without a decay of the rate it has no part in the update."""
    update = torch._fused_adagrad_ if _fusable(tables) else partial(adagrad, fused=False)
    sums, steps = ([state[name] for state in states] for name in ("sum", "step"))
    update(
        list(tables),
        list(gradients),
        sums,
        steps,
        lr=rate,
        lr_decay=0.0,
        weight_decay=0.0,
        eps=EPS,
        maximize=False,
    )


def _row_adagrad(tables: Sequence[Tensor], gradients: Sequence[Tensor], states: Sequence[State], rate: float) -> None:
    """Adagrad with one accumulator per row: the sum of the mean squares of the row's gradients."""
    for table, gradient, state in zip(tables, gradients, states, strict=True):
        table.addcmul_(gradient, _adagrad_rates(gradient, state["sum"], rate), value=-1.0)


def _adagrad_rates(gradient: Tensor, sums: Tensor, rate: float) -> Tensor:
    """Mutates the sums, one for each number or one for each row; the rates by which gradients are to be multiplied."""
    if sums.shape == gradient.shape:
        sums.addcmul_(gradient, gradient)
    else:
        sums.add_(torch.linalg.vector_norm(gradient, dim=1, keepdim=True).square_().div_(gradient.shape[1]))
    return sums.sqrt().add_(EPS).reciprocal_().mul_(rate)


def _adam(tables: Sequence[Tensor], gradients: Sequence[Tensor], states: Sequence[State], rate: float) -> None:
    first, second, steps = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq", "step"))
    for step in steps:
        step.add_(1)
    torch._fused_adam_(
        list(tables),
        list(gradients),
        first,
        second,
        [],
        steps,
        lr=rate,
        beta1=0.9,
        beta2=0.999,
        weight_decay=0.0,
        eps=EPS,
        amsgrad=False,
        maximize=False,
    )


def _sgd(tables: Sequence[Tensor], gradients: Sequence[Tensor], states: Sequence[State], rate: float) -> None:
    torch._fused_sgd_(
        list(tables),
        list(gradients),
        [],
        weight_decay=0.0,
        momentum=0.0,
        lr=rate,
        dampening=0.0,
        nesterov=False,
        maximize=False,
        is_first_step=False,
    )


def _fusable(tables: Iterable[Tensor]) -> bool:
    return all(table.device.type == "cpu" for table in tables)


def _no_steps(table: Tensor) -> Tensor:
    """A count of steps, where the update wants it."""
    return torch.zeros((), dtype=torch.float32, device=table.device)


# Accumulators start at zero: on the scale of L / N' even 1e-10 stalls training at E = R = 0.
OPTIMIZERS: dict[str, tuple[Update, dict[str, Callable[[Tensor], Tensor]]]] = {
    "adagrad": (_adagrad, {"step": _no_steps, "sum": torch.zeros_like}),
    "row-adagrad": (_row_adagrad, {"sum": lambda table: table.new_zeros(len(table), 1)}),
    "adam": (_adam, {"step": _no_steps, "exp_avg": torch.zeros_like, "exp_avg_sq": torch.zeros_like}),
    "sgd": (_sgd, {}),
}


@dataclass(frozen=True)
class Schedule:
    """rate * (a / (t + a))^(1/2) with t in epochs and a = half_life; constant where half_life is None."""

    rate: float
    half_life: float | None = None

    def at(self, epoch: float) -> float:
        if self.half_life is None:
            return self.rate
        return float(self.rate * (self.half_life / (epoch + self.half_life)) ** 0.5)


class Optimizer:
    """Updates tables in place from gradients that it is handed; its state can be taken out and put back."""

    def __init__(self, name: str, tables: Sequence[Tensor]) -> None:
        if name not in OPTIMIZERS:
            known = ", ".join(OPTIMIZERS)
            raise ConfigError(f"no optimiser is called {name!r}", remedy=f"one of {known}")
        self._name, self._tables = name, list(tables)
        self._update, accumulators = OPTIMIZERS[name]
        self._states: list[State] = [{key: make(t) for key, make in accumulators.items()} for t in self._tables]

    def step(
        self, gradients: Iterable[Tensor], rate: float, touched: Touched = ALL, now: Sequence[Tensor] | None = None
    ) -> None:
        """Mutates the tables, or those of their rows that are touched: one update with this learning rate.

        `now` are these rows as they are, if they have been gathered already; they become the new ones.
        """
        if touched is not ALL:
            return self._step_rows(gradients, rate, touched, touched.of(self._tables) if now is None else now)
        with torch.no_grad():
            return self._update(self._tables, list(gradients), self._states, rate)

    @torch.no_grad()
    def _step_rows(self, gradients: Iterable[Tensor], rate: float, touched: Touched, now: Sequence[Tensor]) -> None:
        for table, state, gradient, rows, current in zip(
            self._tables, self._states, gradients, touched, now, strict=True
        ):
            assert rows.ids is not None
            if "sum" in state:
                every = state["sum"]
                sums = rows.take(every)
                current.addcmul_(gradient, _adagrad_rates(gradient, sums, rate), value=-1.0)
                every.index_copy_(0, rows.ids, sums)
            else:
                current.sub_(gradient, alpha=rate)
            table.index_copy_(0, rows.ids, current)

    def moved_to(self, tables: Sequence[Tensor]) -> Optimizer:
        """An optimiser of other tables, of the same shapes, with the same accumulators."""
        moved = Optimizer(self._name, tables)
        moved.restore(self.state(copies=False))
        return moved

    def state(self, *, copies: bool = True) -> dict[str, Tensor]:
        """All accumulators, by "<table number>.<name>", in copies or as they stand."""
        named = {f"{i}.{name}": t for i, state in enumerate(self._states) for name, t in state.items()}
        return {name: t.clone() for name, t in named.items()} if copies else named

    def scale(self, part: float) -> None:
        """Mutates: all accumulators times a part."""
        for accumulators in self._states:
            for tensor in accumulators.values():
                tensor.mul_(part)

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Put back copies of what `state` gave; the next step is then the same, bit for bit."""
        for i, accumulators in enumerate(self._states):
            for name, tensor in accumulators.items():
                before = state.get(f"{i}.{name}")  # Adam's were not there before its first step in older checkpoints
                accumulators[name] = torch.zeros_like(tensor) if before is None else before.to(tensor, copy=True)
