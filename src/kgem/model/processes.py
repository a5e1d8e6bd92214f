"""Several processes that fit one model together: what they exchange, counted, and what becomes of one that is lost.

Each exchange is one collective of torch.distributed: gloo between processors, nccl between graphics cards. All
processes make the same ones in the same order. What comes out is the same to the bit in all of them, and again for the
same number of processes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import Store

from kgem.errors import PeerLost

__all__ = ["ALONE", "Processes", "Traffic"]

WAIT = 5.0  # seconds for the others to say that they are there, once something failed


@dataclass
class Traffic:
    """What this process has sent, worked out from the sizes of what it exchanged."""

    collectives: int = 0
    bytes: int = 0  # by rings: (n - 1) / n of a sum twice, n - 1 copies of what is gathered

    def add(self, numbers: float) -> None:
        """Mutates: one more collective with so many bytes."""
        self.collectives += 1
        self.bytes += round(numbers)


class Processes:
    """This process among those that fit a model together; one that is alone exchanges nothing."""

    def __init__(self, rank: int = 0, count: int = 1, store: Store | None = None) -> None:
        """Several must have begun the default group of torch.distributed; `store` is what it began with."""
        self.rank, self.count = rank, count
        self.traffic = Traffic()
        self.in_one_folder = False  # whether all see the folder of the run that they fit
        self._store = store
        self._orders = 0
        self._asked: Callable[[], bool] = lambda: False
        self._agreed = False

    def agree_to_stop(self, asked: Callable[[], bool]) -> Callable[[], bool]:
        """Mutates: whether all are to stop, from now on told with every step: any of them may ask for it."""
        if self.count == 1:
            return asked
        self._asked = asked
        return lambda: self._agreed

    def wish(self) -> float:
        """What goes with every step: 1 if this process has been asked to stop."""
        return float(self._asked())

    def hear(self, wishes: Tensor) -> None:
        """Mutates: the wishes of all, in any form that is 0 if there are none."""
        self._agreed = self._agreed or bool(wishes.any())

    def sum(self, tensor: Tensor) -> Tensor:
        """Mutates a contiguous tensor: its sum over all processes."""
        if self.count > 1:
            self._count(2 * (self.count - 1) / self.count * _bytes(tensor))
            with self._explained():
                self._all_reduce(tensor)
        return tensor

    def gather(self, tensor: Tensor) -> Tensor:
        """That of each process, all of one shape: (count, ...)."""
        if self.count == 1:
            return tensor.unsqueeze(0)
        self._count((self.count - 1) * _bytes(tensor))
        out = tensor.new_empty(self.count, *tensor.shape)
        with self._explained():
            self._all_gather(out, tensor.contiguous())
        return out

    def collect(self, tensor: Tensor) -> Tensor | None:
        """That of each process, all of one shape, in the first one: (count, ...)."""
        if self.count == 1:
            return tensor.unsqueeze(0)
        self._count(_bytes(tensor) if self.rank else 0)
        out = tensor.new_empty(self.count, *tensor.shape) if self.rank == 0 else None
        with self._explained():
            self._gather(out, tensor.contiguous())
        return out

    def exchange(
        self,
        numbers: Tensor,
        sent: Sequence[int],
        received: Sequence[int],
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Tensor:
        """So many rows, or numbers, to each process in their order, and what they send here.

        `meanwhile` is done while they are under way.
        """
        if self.count == 1:
            meanwhile()
            return numbers
        width = numbers[0].numel() if len(numbers) else 1
        others = len(numbers) - sent[self.rank]
        self._count(others * width * numbers.element_size())
        out, numbers = numbers.new_empty(sum(received), *numbers.shape[1:]), numbers.contiguous()
        with self._explained():
            wait = self._all_to_all(out, numbers, list(received), list(sent))
        meanwhile()
        with self._explained():
            wait()
        return out

    def broadcast(self, tensor: Tensor) -> Tensor:
        """Mutates in all but the first: what the first has."""
        if self.count > 1:
            self._count(0 if self.rank else (self.count - 1) * _bytes(tensor))
            with self._explained():
                self._broadcast(tensor)
        return tensor

    def tell(self, order: Any) -> None:
        """By the first: a word to the others, which `listen` for it; for JSON. Nobody waits."""
        if self._store is not None:
            with self._explained():
                self._store.set(f"order/{self._orders}", json.dumps(order))
            self._orders += 1

    def listen(self) -> Any:
        """By the others: the next word of the first."""
        assert self._store is not None
        with self._explained():
            order = json.loads(self._store.get(f"order/{self._orders}"))
        self._orders += 1
        return order

    def share(
        self, tensors: Mapping[str, Tensor] | None = None, documents: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors, on the processor, and documents for JSON that the first gives, in all; the others give none."""
        given = dict(tensors or {})
        shapes = {name: (list(t.shape), str(t.dtype).removeprefix("torch.")) for name, t in given.items()}
        text = json.dumps({"documents": documents, "shapes": shapes}).encode() if self.rank == 0 else b""
        (length,) = self.agree([len(text)])
        content = torch.frombuffer(bytearray(text), dtype=torch.uint8) if text else torch.empty(int(length)).byte()
        said = json.loads(self.broadcast(content).numpy().tobytes())
        for name, (shape, dtype) in said["shapes"].items():
            tensor = given.get(name, torch.empty(0)).cpu().contiguous()
            if self.rank:
                tensor = torch.empty(shape, dtype=getattr(torch, dtype))
            if tensor.numel():
                self.broadcast(tensor.view(-1).view(torch.uint8))
            given[name] = tensor
        return given, said["documents"]

    def agree(self, numbers: Sequence[float]) -> list[float]:
        """What the first has, in all."""
        found: list[float] = self.broadcast(torch.tensor(numbers, dtype=torch.float64)).tolist()
        return found

    def _count(self, numbers: float) -> None:
        self.traffic.add(numbers)

    def _all_reduce(self, tensor: Tensor) -> None:
        dist.all_reduce(tensor)

    def _all_gather(self, out: Tensor, tensor: Tensor) -> None:
        dist.all_gather(list(out), tensor)

    def _gather(self, out: Tensor | None, tensor: Tensor) -> None:
        dist.gather(tensor, None if out is None else list(out), dst=0)

    def _all_to_all(self, out: Tensor, numbers: Tensor, received: list[int], sent: list[int]) -> Callable[[], Any]:
        """Begins; what it returns waits for the end."""
        work = dist.all_to_all_single(out, numbers, received, sent, async_op=True)
        assert work is not None
        wait: Callable[[], Any] = work.wait
        return wait

    def _broadcast(self, tensor: Tensor) -> None:
        dist.broadcast(tensor, src=0)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Errors of the network as one that says who is missing, and what to do."""
        try:
            yield
        except (RuntimeError, dist.DistError) as error:
            raise self._lost(error) from error

    def _lost(self, error: Exception) -> PeerLost:
        said = str(error).split("] ")[-1].split(". This is")[0].strip().splitlines()
        missing = self._missing()
        who = f"process {', '.join(map(str, missing))} of {self.count} does" if missing else "one of them did"
        return PeerLost(
            f"process {self.rank} of {self.count} waited for the others in vain: {who} not answer ({said[0]})",
            remedy="look for its error above, and whether its machine can be reached; then go on from the last "
            "checkpoint: kgem resume RUN, with any number of processes (torchrun --max-restarts does so by itself); "
            "KGEM_TIMEOUT=SECONDS waits longer",
        )

    def _missing(self) -> list[int]:
        """Those that do not say that they are there: who is there gets the same error, and says so."""
        if self._store is None:
            return []
        keys = [f"there/{rank}" for rank in range(self.count)]
        try:
            self._store.set(keys[self.rank], "")
            until = time.monotonic() + WAIT
            while time.monotonic() < until and not self._store.check(keys):
                time.sleep(0.1)
            return [rank for rank, key in enumerate(keys) if not self._store.check([key])]
        except RuntimeError:  # the store itself is gone
            return []


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


ALONE = Processes()
