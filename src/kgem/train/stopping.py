"""When to stop: the best value has stood long, nothing moves any more, nothing is learned, or somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Asked", "Collapse", "EarlyStopping", "Part", "Settling", "never"]

RECENT = 4  # values that tell how fast they rise
NOISE = 0.002  # by how much they move without meaning it
Asked = Callable[[], bool]  # whether somebody has asked for an end; once it says so, it goes on saying so


def never() -> bool:
    """Nobody asks."""
    return False


@dataclass
class Part:
    """How far an epoch has come that was left in the middle."""

    steps: int = 0
    loss: float = 0.0  # summed over the items of these steps
    seconds: float = 0.0


@dataclass
class EarlyStopping:
    """Stops once `patience` values in a row have failed to beat the best by `min_gain`; never if the latest counts."""

    patience: int
    min_gain: float = 0.0
    best: float = float("-inf")
    best_epoch: int = 0
    waited: int = 0
    latest: bool = False  # whether the latest counts as the best, for what the values cannot judge
    recent: list[float] = field(default_factory=list)  # the last values, at most RECENT

    def update(self, value: float, epoch: int) -> bool:
        """Mutates: take note of a value; true if it is the best so far.

        A gain below min_gain is kept as the best but does not buy more patience.
        """
        self.recent = [*self.recent, value][-RECENT:]
        if self.latest:
            self.best, self.best_epoch = value, epoch
            return True
        self.waited = 0 if value > self.best + self.min_gain else self.waited + 1
        if value > self.best:
            self.best, self.best_epoch = value, epoch
            return True
        return False

    def cannot_reach(self, rival: float, left: int) -> bool:
        """Whether `left` more values that each gain as much as the last few did on average would stay below a rival.

        Gains shrink as training goes on, so that this is more than can be hoped for. Two gains must be known.
        """
        if len(self.recent) < 3:
            return False
        gain = (self.recent[-1] - self.recent[0]) / (len(self.recent) - 1)
        return self.best + left * max(gain, 0.0) + NOISE < rival

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


@dataclass
class Collapse:
    """Notices that q fell back to the prior: no better than chance and without hope, `patience` times in a row.

    Either alone can be passing: at the start of EM noise may drown what is known already, and a model of many
    dimensions works with means that are far below the noise in each.
    """

    chance: float  # the loss of guessing: log N_e
    patience: int = 3
    min_gain: float = 0.02  # share of the chance loss that counts as having learned something
    low_signal: float = 0.05  # squared means over variances below which the means have drowned
    signal: float = float("inf")  # the one before
    hopeless: int = 0

    def update(self, loss: float, signal: float) -> None:
        """Mutates: take note of an epoch's expected loss per fact and signal-to-noise ratio."""
        drowned = signal < self.low_signal and signal < 1.1 * self.signal  # and does not come up again
        self.hopeless = self.hopeless + 1 if drowned and loss > (1 - self.min_gain) * self.chance else 0
        self.signal = signal

    @property
    def done(self) -> bool:
        return self.hopeless >= self.patience
