"""Adagrad, Adam and SGD on whole tables, and the authors' learning-rate schedule.

Torch's fused updates do one pass over table, gradient and accumulator; a dense step on a table of
15,000 x 200 costs half a millisecond, less than any sparse book-keeping would. Where a step touches a part of the rows,
Adagrad and SGD update these alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.optim.adagrad import adagrad

from kgem.errors import ConfigError
from kgem.model.rows import ALL, Touched

__all__ = ["OPTIMIZERS", "Optimizer", "Schedule"]


EPS = 1e-12  # far below gradients on the scale of L / N', even at the saddle E = R = 0


def _adagrad(tables: Sequence[Tensor], rate: float) -> torch.optim.Optimizer:
    # Accumulators start at zero: on the scale of L / N' even 1e-10 stalls training at E = R = 0.
    return torch.optim.Adagrad(tables, lr=rate, eps=EPS, fused=_fusable(tables))


class RowAdagrad(torch.optim.Optimizer):
    """Adagrad with one accumulator per row: the sum of the mean squares of the row's gradients."""

    def __init__(self, tables: Sequence[Tensor], rate: float) -> None:
        super().__init__(tables, {"lr": rate})
        for table in tables:
            self.state[table]["sum"] = table.new_zeros(len(table), 1)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for table in group["params"]:
                rate = _adagrad_rates(table.grad, self.state[table]["sum"], group["lr"])
                table.addcmul_(table.grad, rate, value=-1.0)


def _adagrad_rates(gradient: Tensor, sums: Tensor, rate: float) -> Tensor:
    """Mutates the sums, one for each number or one for each row; the rates by which gradients are to be multiplied."""
    if sums.shape == gradient.shape:
        sums.addcmul_(gradient, gradient)
    else:
        sums.add_(torch.linalg.vector_norm(gradient, dim=1, keepdim=True).square_().div_(gradient.shape[1]))
    return sums.sqrt().add_(EPS).reciprocal_().mul_(rate)


def _adam(tables: Sequence[Tensor], rate: float) -> torch.optim.Optimizer:
    return torch.optim.Adam(tables, lr=rate, eps=1e-12, fused=True)


def _sgd(tables: Sequence[Tensor], rate: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(tables, lr=rate, fused=True)


def _fusable(tables: Iterable[Tensor]) -> bool:
    return all(table.device.type == "cpu" for table in tables)


OPTIMIZERS: dict[str, Callable[[Sequence[Tensor], float], torch.optim.Optimizer]] = {
    "adagrad": _adagrad,
    "row-adagrad": RowAdagrad,
    "adam": _adam,
    "sgd": _sgd,
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
        self._optimizer = OPTIMIZERS[name](self._tables, 1.0)

    def step(
        self, gradients: Iterable[Tensor], rate: float, touched: Touched = ALL, now: Sequence[Tensor] | None = None
    ) -> None:
        """Mutates the tables, or those of their rows that are touched: one update with this learning rate.

        `now` are these rows as they are, if they have been gathered already; they become the new ones.
        """
        if touched is not ALL:
            return self._step_rows(gradients, rate, touched, touched.of(self._tables) if now is None else now)
        if isinstance(self._optimizer, torch.optim.Adagrad):
            return self._step_adagrad(list(gradients), rate)
        for table, gradient in zip(self._tables, gradients, strict=True):
            table.grad = gradient
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()
        return None

    @torch.no_grad()
    def _step_rows(self, gradients: Iterable[Tensor], rate: float, touched: Touched, now: Sequence[Tensor]) -> None:
        for table, gradient, rows, current in zip(self._tables, gradients, touched, now, strict=True):
            assert rows.ids is not None
            if "sum" in self._optimizer.state[table]:
                every = self._optimizer.state[table]["sum"]
                sums = rows.take(every)
                current.addcmul_(gradient, _adagrad_rates(gradient, sums, rate), value=-1.0)
                every.index_copy_(0, rows.ids, sums)
            else:
                current.sub_(gradient, alpha=rate)
            table.index_copy_(0, rows.ids, current)

    def moved_to(self, tables: Sequence[Tensor]) -> Optimizer:
        """An optimiser of other tables, of the same shapes, with the same accumulators."""
        moved = Optimizer(self._name, tables)
        moved.restore(self.state())
        return moved

    @torch.no_grad()
    def _step_adagrad(self, gradients: list[Tensor], rate: float) -> None:
        """Torch's own update, without what its `step` does around it: on a small table that takes longer.

        Its count of steps stays as it is: without a decay of the rate it has no part in the update.
        """
        (group,) = self._optimizer.param_groups
        states = [self._optimizer.state[table] for table in self._tables]
        sums, steps = ([state[name] for state in states] for name in ("sum", "step"))
        update = torch._fused_adagrad_ if group["fused"] else partial(adagrad, fused=False)
        update(
            self._tables,
            gradients,
            sums,
            steps,
            lr=rate,
            lr_decay=0.0,
            weight_decay=0.0,
            eps=group["eps"],
            maximize=False,
        )

    def state(self) -> dict[str, Tensor]:
        """Copies of all accumulators, by "<table number>.<name>"."""
        state = self._optimizer.state_dict()["state"]
        return {f"{i}.{name}": t.clone() for i, entries in state.items() for name, t in entries.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Put back what `state` gave; the next step is then the same, bit for bit."""
        full = self._optimizer.state_dict()
        entries: dict[int, dict[str, Tensor]] = {}
        for key, tensor in state.items():
            number, name = key.split(".", 1)
            entries.setdefault(int(number), {})[name] = tensor.clone()
        full["state"] = entries
        self._optimizer.load_state_dict(full)
