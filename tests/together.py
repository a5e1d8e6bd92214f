"""Several processes played by threads, which meet for every exchange: quick, and as strict as the real ones."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor

from kgem.evaluate.blocks import Block
from kgem.model.processes import Processes

T = TypeVar("T")

# Python 3.11 holds one lock for a cached property of all objects, while another thread is waited for.
vars(Block)["_write"].lock = nullcontext()


class Meeting:
    """Where threads bring what they have and see what the others brought."""

    def __init__(self, count: int) -> None:
        self.barrier = threading.Barrier(count, timeout=60)
        self._given: list[Any] = [None] * count

    def everyone(self, rank: int, mine: Any) -> list[Any]:
        self._given[rank] = mine
        self.barrier.wait()
        together = list(self._given)
        self.barrier.wait()
        return together


class Together(Processes):
    """One of several threads that stand for processes."""

    def __init__(self, rank: int, count: int, meeting: Meeting) -> None:
        super().__init__(rank, count)
        self._meeting = meeting

    def _everyone(self, kind: str, mine: Any) -> list[Any]:
        """What all brought to the same exchange; another kind of it would hang real processes."""
        said = self._meeting.everyone(self.rank, (kind, mine))
        assert {each[0] for each in said} == {kind}, [each[0] for each in said]
        return [each[1] for each in said]

    def _all_reduce(self, tensor: Tensor) -> None:
        every = self._everyone(f"sum {tuple(tensor.shape)} {tensor.dtype}", tensor.clone())
        tensor.copy_(torch.stack(every).sum(0))

    def _all_gather(self, out: Tensor, tensor: Tensor) -> None:
        out.copy_(torch.stack(self._everyone(f"gather {tuple(tensor.shape)}", tensor.clone())))

    def _gather(self, out: Tensor | None, tensor: Tensor) -> None:
        every = self._everyone(f"collect {tuple(tensor.shape)}", tensor.clone())
        if out is not None:
            out.copy_(torch.stack(every))

    def _all_to_all(self, out: Tensor, numbers: Tensor, received: list[int], sent: list[int]) -> Callable[[], None]:
        """Nothing is there before it was waited for."""
        out.fill_(torch.nan)

        def wait() -> None:
            every = self._everyone("exchange", numbers.split(sent))
            assert [len(parts[self.rank]) for parts in every] == received
            out.copy_(torch.cat([parts[self.rank] for parts in every]))

        return wait

    def _broadcast(self, tensor: Tensor) -> None:
        tensor.copy_(self._everyone("broadcast", tensor.clone())[0])


def in_threads(count: int, work: Callable[[Processes], T]) -> list[T]:
    """What each of so many makes of it; the first error of any of them."""
    meeting, found, errors = Meeting(count), [None] * count, []

    def run(rank: int) -> None:
        try:
            found[rank] = work(Together(rank, count, meeting))  # type: ignore[call-overload]
        except BaseException as error:
            errors.append(error)
            meeting.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        if not isinstance(error, threading.BrokenBarrierError):
            raise error
    if errors:
        raise errors[0]
    return found  # type: ignore[return-value]
