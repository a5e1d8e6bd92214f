"""Rows of the table of entities dealt out to processes: each holds one range of them, and all that belongs to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from kgem.errors import ConfigError
from kgem.model.processes import ALONE, Processes

__all__ = ["WHOLE", "Shards", "deal"]


@dataclass(frozen=True, eq=False)
class Shards:
    """The ranges of all processes, of nearly equal length, and the one of this process."""

    processes: Processes = ALONE
    n_rows: int | None = None  # over all processes; None: one process has them all, however many there are

    @property
    def borders(self) -> list[int]:
        """Where each range begins, and the end of the last: (count + 1)."""
        n, count = self.n_rows or 0, self.processes.count
        return [n * place // count for place in range(count + 1)]

    @property
    def start(self) -> int:
        """The first row of this process."""
        return self.borders[self.processes.rank]

    @property
    def stop(self) -> int:
        """The row after its last."""
        return self.borders[self.processes.rank + 1]

    @property
    def largest(self) -> int:
        """Rows of the longest range."""
        return -(-(self.n_rows or 0) // self.processes.count)

    def clip(self, start: int, stop: int) -> tuple[int, int]:
        """The part of a range of rows that this process has; of equal ends if it has none."""
        if self.n_rows is None:
            return start, stop
        low, high = min(max(start, self.start), self.stop), min(stop, self.stop)
        return low, max(low, high)

    def own(self, table: Tensor) -> Tensor:
        """The rows of this process, of a table that has all."""
        return table if self.n_rows is None else table[self.start : self.stop].clone()

    def mine(self, ids: Tensor) -> Tensor:
        """Which of these entities are rows of this process: (n,) bool."""
        return (ids >= self.start) & (ids < self.stop)

    def fetch(self, table: Tensor, ids: Tensor) -> Tensor:
        """Rows by their ids, the same ids in all processes: (n, width), the same in all."""
        if self.n_rows is None:
            return table.index_select(0, ids)
        mine = self.mine(ids)
        rows = table.new_zeros(len(ids), *table.shape[1:])
        rows[mine] = table.index_select(0, ids[mine] - self.start)
        return self.processes.sum(rows)

    def choose(self, values: Tensor, ids: Tensor) -> Tensor:
        """Of the values that processes have for some entities, (n,) each, those of whoever has the entity's row."""
        return values if self.n_rows is None else self.processes.sum(values.masked_fill(~self.mine(ids), 0.0))

    def add(self, table: Tensor, ids: Tensor, rows: Tensor) -> None:
        """Mutates the table: to those of its rows that this process holds, what is to be added to them."""
        if self.n_rows is not None:
            mine = self.mine(ids)
            ids, rows = ids[mine] - self.start, rows[mine]
        table.index_add_(0, ids, rows)

    def join(self, log_z: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
        """From the log of the sum of exp over own rows (b,) and a sum over own rows to those over all, float64.

        With every step goes whether somebody wants to stop.
        """
        if self.n_rows is None:
            return log_z.double(), observed.double()
        wish = observed.new_full((1,), self.processes.wish(), dtype=torch.float64)
        every = self.processes.gather(torch.cat([log_z.double(), observed.double().view(1), wish]))
        self.processes.hear(every[:, -1])
        return every[:, :-2].logsumexp(0), every[:, -2].sum()

    def hear_wishes(self) -> None:
        """Tell all whether this process was asked to stop, in a step without any other exchange that would."""
        self.join(torch.empty(0), torch.zeros(()))

    def sum(self, value: float) -> float:
        """Over all ranges."""
        return value if self.n_rows is None else float(self.processes.sum(torch.tensor([value], dtype=torch.float64)))

    def highest(self, values: Tensor) -> Tensor:
        """The highest over all ranges, for each."""
        return values if self.n_rows is None else self.processes.gather(values).amax(0)

    def all(self, holds: bool) -> bool:
        """Whether it holds for all ranges."""
        return self.sum(float(not holds)) == 0

    def whole(self, rows: Tensor) -> Tensor:
        """The rows of all ranges, in all processes: (n_rows, ...)."""
        return rows if self.n_rows is None else self._joined(self.processes.gather(self._padded(rows)))

    def collect(self, rows: Tensor) -> Tensor:
        """The rows of all ranges, in the first process: (n_rows, ...); in the others those that they have."""
        if self.n_rows is None:
            return rows
        every = self.processes.collect(self._padded(rows))
        return rows if every is None else self._joined(every)

    def _padded(self, rows: Tensor) -> Tensor:
        """Collectives want equal shapes."""
        more = self.largest - len(rows)
        return torch.cat([rows, rows.new_zeros(more, *rows.shape[1:])]) if more else rows

    def _joined(self, every: Tensor) -> Tensor:
        lengths: Iterable[int] = torch.tensor(self.borders).diff().tolist()
        return torch.cat([part[:n] for part, n in zip(every, lengths, strict=True)])


WHOLE = Shards()


def deal(processes: Processes, n_rows: int) -> Shards:
    """So many rows over these processes."""
    if processes.count == 1:
        return WHOLE
    if n_rows < processes.count:
        raise ConfigError(
            f"{n_rows} entities cannot be dealt out to {processes.count} processes", remedy="start fewer processes"
        )
    return Shards(processes, n_rows)
