"""A race for the strengths of a point estimate: heats on validation, a final between the two best, the winner goes on.

A weak regulariser learns faster and ends lower, so that heats of a few epochs favour it; the final is longer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from kgem.train.point_estimate import PointState, below

__all__ = ["Kept", "Race", "prefixed"]

FINALISTS = 2


@dataclass(frozen=True, eq=False)
class Kept:
    """A candidate that may go on, and from where."""

    candidate: int
    best: float  # on validation so far
    tensors: dict[str, Tensor]
    numbers: dict[str, Any]

    @classmethod
    def take(cls, candidate: int, state: PointState) -> Kept:
        return cls(candidate, state.stopping.best, state.tensors(), state.numbers())


@dataclass
class Race:
    """Candidates, by number, that take turns with one state."""

    state: PointState
    candidate: int = 0  # whose heat it is; beyond the last, there are no more heats
    kept: list[Kept] = field(default_factory=list)  # the best so far, best first
    finalist: int = 0  # of those kept, whose turn it is in the final
    joined: list[float] = field(default_factory=list)  # candidates beyond those of the settings

    @property
    def leader(self) -> int:
        """The candidate that is ahead, or has won; the first one before any heat."""
        return self.kept[0].candidate if self.kept else 0

    @property
    def best(self) -> float:
        """What the leader has reached on validation."""
        return self.kept[0].best if self.kept else float("-inf")

    def end_heat(self) -> None:
        """Mutates: the candidate has had its heat; keep it if it is among the best, and turn to the next."""
        self.kept.append(Kept.take(self.candidate, self.state))
        self.kept.sort(key=lambda kept: -kept.best)  # stable: of equal ones the earlier is ahead
        del self.kept[FINALISTS:]
        self.candidate += 1

    def enter(self, finalist: int) -> None:
        """Mutates: it is this finalist's turn, from where its heat ended."""
        self.finalist = finalist
        if finalist < len(self.kept):
            self.state.restore(self.kept[finalist].tensors, self.kept[finalist].numbers)

    def end_turn(self) -> None:
        """Mutates: the finalist has had its turn."""
        self.kept[self.finalist] = Kept.take(self.kept[self.finalist].candidate, self.state)
        self.enter(self.finalist + 1)

    def decide(self) -> None:
        """Mutates: the winner goes on from where it is; the others are forgotten."""
        winner = max(self.kept, key=lambda kept: kept.best)
        self.state.restore(winner.tensors, winner.numbers)
        self.kept = [Kept(winner.candidate, winner.best, {}, {})]

    @property
    def decided(self) -> bool:
        """Whether the winner is known."""
        return len(self.kept) == 1 and not self.kept[0].tensors

    def tensors(self) -> dict[str, Tensor]:
        """Copies of everything in the race that is a tensor."""
        kept = {name: t for i, each in enumerate(self.kept) for name, t in prefixed(f"kept{i}", each.tensors).items()}
        return prefixed("state", self.state.tensors()) | kept

    def numbers(self) -> dict[str, Any]:
        """Everything else in the race, for JSON."""
        return {
            "state": self.state.numbers(),
            "candidate": self.candidate,
            "finalist": self.finalist,
            "kept": [{"candidate": k.candidate, "best": k.best, "numbers": dict(k.numbers)} for k in self.kept],
            "joined": list(self.joined),
        }

    def restore(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Mutates: back to where `tensors` and `numbers` were taken."""
        self.state.restore(below("state.", tensors), numbers["state"])
        self.candidate, self.finalist = numbers["candidate"], numbers["finalist"]
        self.joined = list(numbers["joined"])
        self.kept = [
            Kept(
                each["candidate"],
                each["best"],
                {name: t.clone() for name, t in below(f"kept{i}.", tensors).items()},
                dict(each["numbers"]),
            )
            for i, each in enumerate(numbers["kept"])
        ]


def prefixed(prefix: str, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors under longer names; `below` undoes it."""
    return {f"{prefix}.{name}": tensor for name, tensor in named.items()}
