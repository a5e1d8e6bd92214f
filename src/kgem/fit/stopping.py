"""When to stop: the best value so far and how long it has stood; sees numbers only."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EarlyStopping"]


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
