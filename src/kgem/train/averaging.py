"""Averages of tables over the last steps, brought up to date row by row: a row that no step touched costs nothing.

After step s the average m moves towards the table x by the weight 1 / min(s, window). While x stays as it is, so many
such moves have a closed form: m - x shrinks by A(s1) / A(s0), with A(s) = 1 / s up to the window and the powers of
1 - 1 / window beyond it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from kgem.model.embeddings import Embeddings
from kgem.model.joint import walk
from kgem.model.rows import ALL, Touched

__all__ = ["Averaging"]

TABLES = ("entities", "relations")
BLOCK = 2**22  # numbers at a time where all rows are brought up to date


class Averaging:
    """Exponential averages over about `window` steps, plain ones before there are as many; for one epoch.

    The iterates of a constant rate hover around the optimum; their average is closer to it than any of them.
    """

    def __init__(
        self,
        tables: Embeddings,
        averages: Embeddings,
        steps: int,
        window: float,
        pending: Mapping[str, Tensor] | None = None,
    ) -> None:
        """`steps` have been so far, and the averages have all of them but for what `pause` left."""
        self._pairs = tuple(zip(tables.tables(), averages.tables(), strict=True))
        self._all = tuple(walk(tables, averages))
        self._window = max(window, 1.0)
        self._now = steps
        # The step up to which each row is averaged; None: all the same.
        self._last = [(pending or {}).get(name) for name in TABLES]
        self._all_last = steps

    def before_step(self, touched: Touched = ALL, now: Sequence[Tensor] | None = None) -> None:
        """Mutates the averages of these rows: every step so far is in them; to be called before the rows change.

        `now` are the rows as they are, if they have been gathered already.
        """
        self._catch_up(touched, now)
        self._now += 1

    def pause(self) -> dict[str, Tensor]:
        """Mutates averages whose rows all go together: every step is in them. Of others, up to which step each row is.

        An epoch that goes on from there ends in the same bits as one that was never left.
        """
        for place, (table, average) in enumerate(self._pairs):
            if self._last[place] is None:
                self._catch_up_all(place, table, average)
        return {name: last for name, last in zip(TABLES, self._last, strict=True) if last is not None}

    def finish(self) -> None:
        """Mutates: every step is in the averages of all rows."""
        self._catch_up(ALL)

    def _catch_up(self, touched: Touched, now: Sequence[Tensor] | None = None) -> None:
        if touched is ALL and all(last is None for last in self._last):
            for table, average in self._all:
                self._take_step(table, average)
            self._all_last = self._now
            return
        for place, (rows, (table, average)) in enumerate(zip(touched, self._pairs, strict=True)):
            if rows.ids is None:
                self._catch_up_all(place, table, average)
                continue
            last = self._last_steps(place, len(table))
            mean = rows.take(average)
            kept = self._kept(last[rows.ids]).to(mean.dtype)
            current = rows.take(table) if now is None else now[place]
            average.index_copy_(0, rows.ids, torch.lerp(current, mean, kept.unsqueeze(1), out=mean))
            last[rows.ids] = self._now
        if all(rows.ids is None for rows in touched):
            self._all_last = self._now

    def _catch_up_all(self, place: int, table: Tensor, average: Tensor) -> None:
        last = self._last[place]
        if last is None:
            self._take_step(table, average)
            return
        kept = self._kept(last).to(table.dtype)
        step = max(1, BLOCK // table.shape[1])
        for start in range(0, len(table), step):
            part = slice(start, start + step)
            average[part] = torch.lerp(table[part], average[part], kept[part].unsqueeze(1))
        last.fill_(self._now)

    def _take_step(self, table: Tensor, average: Tensor) -> None:
        if self._all_last < self._now:  # one step, or none
            weight = 1 / min(self._now, self._window)
            average.lerp_(table, weight) if weight < 1 else average.copy_(table)

    def _last_steps(self, place: int, rows: int) -> Tensor:
        last = self._last[place]
        if last is None:
            last = torch.full((rows,), self._all_last, dtype=torch.int64, device=self._pairs[place][0].device)
            self._last[place] = last
        return last

    def _kept(self, last: Tensor) -> Tensor:
        """A(now) / A(last): what is left of the difference between average and table, (rows,) float64."""
        if self._now == 0:
            return torch.ones_like(last, dtype=torch.float64)
        plain = int(self._window)  # as many steps are averaged plainly
        within = last.double().clamp_max(plain) / min(self._now, plain)
        beyond = max(self._now - plain, 0) - (last - plain).clamp_min(0)
        return within.mul_(torch.pow(1 - 1 / self._window, beyond.double()))
