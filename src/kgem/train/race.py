"""A race for the strengths of a point estimate: heats on validation, a final between the two best, the winner goes on.

A weak regulariser learns faster and ends lower, so that heats of a few epochs favour it; the final is longer. Whoever
would not catch up by the end of a heat or of the final, even if it went on to gain as fast as it does, ends there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from torch import Tensor

from kgem.config import RaceConfig, TrainConfig
from kgem.train.point_estimate import EpochRecord, PointState, copy_prefixed, strip_prefix
from kgem.train.stopping import Asked, never

__all__ = ["Kept", "Race", "add_prefix", "beyond"]

FINALISTS = 2

C = TypeVar("C")  # what a race is about: a factor, or an (a, c)
Train = Callable[[PointState, C, TrainConfig], Iterator[EpochRecord]]


@dataclass(frozen=True, eq=False)
class Kept:
    """A candidate that may go on, and from where."""

    candidate: int
    best: float  # on validation so far
    tensors: dict[str, Tensor]
    numbers: dict[str, Any]

    @property
    def has_won(self) -> bool:
        """The winner goes on with the race's own state and needs none of its own."""
        return not self.tensors

    @classmethod
    def take(cls, candidate: int, state: PointState) -> Kept:
        return cls(candidate, state.stopping.best, state.tensors(), state.numbers())


@dataclass
class Race(Generic[C]):
    """Candidates that take turns with one state; alone, a candidate has won."""

    state: PointState
    given: Sequence[C]  # the candidates of the settings
    heat: int = 0  # whose heat it is; beyond the last, there are no more heats
    kept: list[Kept] = field(default_factory=list)  # the best so far, best first
    finalist: int = 0  # of those kept, whose turn it is in the final
    joined: list[C] = field(default_factory=list)  # candidates beyond those of the settings

    @property
    def candidates(self) -> tuple[C, ...]:
        """All that race, those that joined included."""
        return (*self.given, *self.joined)

    @property
    def stage(self) -> Literal["heats", "final", "won"]:
        """How far the race has come."""
        if len(self.candidates) == 1:
            return "won"
        if self.heat < len(self.candidates):
            return "heats"
        return "won" if self.kept[0].has_won else "final"

    @property
    def leader(self) -> int:
        """The candidate that is ahead, or has won; the first one before any heat."""
        return self.kept[0].candidate if self.kept else 0

    @property
    def turn(self) -> int:
        """Whose turn it is."""
        if self.stage == "heats":
            return self.heat
        in_final = self.stage == "final" and self.finalist < len(self.kept)
        return self.kept[self.finalist].candidate if in_final else self.leader

    def limit_to(self, given: Sequence[C]) -> None:
        """Mutates: so many candidates of the settings race, because a time budget leaves room for no more."""
        self.given = given

    def epochs(
        self,
        config: RaceConfig,
        start: Callable[[], PointState],
        train: Train[C],
        extensions: int = 0,
        stop: Asked = never,
        anew: bool = False,
    ) -> Iterator[EpochRecord]:
        """Heats for all, each from `start`, a final between the best two, and the winner's way to its end; mutates.

        While one at the edge leads after the heats, a further candidate joins, at most `extensions` times. `train` ends
        when somebody asks for a stop, and then the race does. `anew` gives the winner all of its patience: for a
        `train` that trains a winner otherwise than candidates.
        """

        def run(length: int) -> Iterator[EpochRecord]:
            shorter = config.model_copy(update={"epochs": min(length, config.epochs)})
            records = train(self.state, self.candidates[self.turn], shorter)
            # Asked before each epoch and not after, so that a race that was stopped goes on the same way.
            while not self._is_lost(shorter) and (record := next(records, None)) is not None:
                yield record

        while self.stage == "heats":
            yield from run(config.trial_epochs)
            if stop():
                return
            self._end_heat(extensions)
            if self.stage == "heats":
                del self.state  # before there is another, because tables may be large
                self.state = start()
            else:
                self._enter(0)
        while self.stage == "final":
            if self.finalist < len(self.kept):
                yield from run(config.final_epochs)
                if stop():
                    return
                self._end_turn()
            else:
                self._decide(anew)
        yield from run(config.epochs)

    def _is_lost(self, config: TrainConfig) -> bool:
        """Whether the candidate whose turn it is cannot win what is being run: a place in the final, or the final."""
        if self.stage == "heats":
            rival = self.kept[-1].best if len(self.kept) == FINALISTS else -math.inf
        else:
            rival = max((kept.best for kept in self.kept[: self.finalist]), default=-math.inf)
        validations = -(-(config.epochs - self.state.epoch) // config.validate_every)
        return self.stage != "won" and self.state.stopping.cannot_reach(rival, validations)

    def end_here(self) -> None:
        """Mutates a race that stands anywhere: whoever is ahead on validation so far has won; not to go on from."""
        winner, ahead = self.turn, max(self.kept, key=lambda kept: kept.best, default=None)
        if ahead is not None and not ahead.has_won and ahead.best >= self.state.stopping.best:
            winner = ahead.candidate
            self.state.restore(ahead.tensors, ahead.numbers)
        self.given, self.joined, self.kept = [self.candidates[winner]], [], []

    def _end_heat(self, extensions: int) -> None:
        """Mutates: the candidate has had its heat; keep it if it is among the best, and turn to the next."""
        if len(self.kept) < FINALISTS or self.state.stopping.best > self.kept[-1].best:
            del self.kept[FINALISTS - 1 :]  # first, because tables may be large
            self.kept.append(Kept.take(self.heat, self.state))
        self.kept.sort(key=lambda kept: -kept.best)  # stable: of equal ones the earlier is ahead
        self.heat += 1
        if self.stage != "heats" and len(self.joined) < extensions and math.isfinite(self.kept[0].best):
            self.joined.extend(beyond(self.candidates, self.leader))

    def _enter(self, finalist: int) -> None:
        """Mutates: it is this finalist's turn, from where its heat ended."""
        self.finalist = finalist
        if finalist < len(self.kept):
            self.state.restore(self.kept[finalist].tensors, self.kept[finalist].numbers)

    def _end_turn(self) -> None:
        """Mutates: the finalist has had its turn."""
        before = self.kept[self.finalist]
        before.tensors.clear()  # before there are others
        self.kept[self.finalist] = Kept.take(before.candidate, self.state)
        self._enter(self.finalist + 1)

    def _decide(self, anew: bool) -> None:
        """Mutates: the winner goes on from where it is; the others are forgotten."""
        winner = max(self.kept, key=lambda kept: kept.best)
        self.state.restore(winner.tensors, winner.numbers)
        if anew:
            self.state.stopping.waited = 0
        self.kept = [Kept(winner.candidate, winner.best, {}, {})]

    def tensors(self, *, copies: bool = True) -> dict[str, Tensor]:
        """Everything in the race that is a tensor, in copies or as it stands."""
        kept = {name: t for i, each in enumerate(self.kept) for name, t in add_prefix(f"kept{i}", each.tensors).items()}
        return add_prefix("state", self.state.tensors(copies=copies)) | kept

    def numbers(self) -> dict[str, Any]:
        """Everything else in the race, for JSON."""
        return {
            "state": self.state.numbers(),
            "candidate": self.heat,
            "finalist": self.finalist,
            "kept": [{"candidate": k.candidate, "best": k.best, "numbers": dict(k.numbers)} for k in self.kept],
            "joined": list(self.joined),
        }

    def restore(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Mutates: back to where `tensors` and `numbers` were taken."""
        self.state.restore(strip_prefix("state.", tensors), numbers["state"])
        self.heat, self.finalist = numbers["candidate"], numbers["finalist"]
        self.joined = list(numbers["joined"])
        self.kept = [
            Kept(
                each["candidate"],
                each["best"],
                copy_prefixed(f"kept{i}.", tensors),
                dict(each["numbers"]),
            )
            for i, each in enumerate(numbers["kept"])
        ]


def beyond(factors: Sequence[Any], leader: int) -> list[Any]:
    """One more factor on the side where the leader is the last, as far from it as its neighbour; none if it is not."""
    ordered = sorted(set(factors))
    if len(ordered) > 1 and factors[leader] == ordered[-1]:
        return [ordered[-1] * ordered[-1] / ordered[-2]]
    if len(ordered) > 1 and factors[leader] == ordered[0]:
        return [ordered[0] * ordered[0] / ordered[1]]
    return []


def add_prefix(prefix: str, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors under longer names; `strip_prefix` undoes it."""
    return {f"{prefix}.{name}": tensor for name, tensor in named.items()}
