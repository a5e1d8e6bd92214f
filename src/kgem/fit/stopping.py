"""When to stop: how long the best value has stood, or how long nothing has moved; sees numbers only."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EarlyStopping", "Settling"]


@dataclass
class EarlyStopping:
    """Stops once `patience` values in a row have failed to beat the best by `min_gain`."""

    patience: int
    min_gain: float = 0.0
    best: float = float("-inf")
    best_epoch: int = 0
    waited: int = 0

    def update(self, value: float, epoch: int) -> bool:
        """Mutates: take note of a value; true if it is the best so far.

        A gain below min_gain is kept as the best but does not buy more patience.
        """
        self.waited = 0 if value > self.best + self.min_gain else self.waited + 1
        if value > self.best:
            self.best, self.best_epoch = value, epoch
            return True
        return False

    @property
    def done(self) -> bool:
        return self.waited >= self.patience


@dataclass
class Settling:
    """Stops once, `patience` times in a row, `drift` was below the tolerance and `value` moved by less than a tenth.

    Both are relative changes. A tolerance of 0 never stops.
    """

    tolerance: float
    patience: int = 3
    last: float = float("nan")  # the value before
    calm: int = 0

    def update(self, drift: float, value: float) -> None:
        """Mutates: take note of a drift and a value; what is not a number has not settled."""
        moved = abs(value - self.last)
        still = drift < self.tolerance and moved < 0.1 * self.tolerance * abs(self.last)
        self.calm = self.calm + 1 if still else 0
        self.last = value

    @property
    def done(self) -> bool:
        return self.calm >= self.patience
