"""Tensors by name that are made only when they are asked for: of a large state, one at a time is in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from torch import Tensor

__all__ = ["OnDemand"]


class OnDemand(Mapping[str, Tensor]):
    """Each is made anew whenever it is asked for."""

    def __init__(self, makers: Mapping[str, Callable[[], Tensor]]) -> None:
        self._makers = dict(makers)

    def __getitem__(self, name: str) -> Tensor:
        return self._makers[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def under(self, prefix: str) -> OnDemand:
        """Those whose names begin with the prefix, under the rest of their names."""
        return OnDemand({name.removeprefix(prefix): m for name, m in self._makers.items() if name.startswith(prefix)})
