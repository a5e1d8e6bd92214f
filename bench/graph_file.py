"""A graph and its starting tables in one .npz, so that every contestant works on the same numbers.

numpy only: it is imported in the peers' environments as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["GraphFile"]


@dataclass(frozen=True, eq=False)
class GraphFile:
    """Facts as ids; ComplEx tables with rows [real parts | imaginary parts], reciprocal relations from n_relations."""

    n_entities: int
    n_relations: int
    train: npt.NDArray[np.int64]  # (n, 3)
    valid: npt.NDArray[np.int64]
    test: npt.NDArray[np.int64]
    entities: npt.NDArray[np.float32]  # (n_entities, 2K)
    relations: npt.NDArray[np.float32]  # (2 n_relations, 2K)

    @classmethod
    def read(cls, path: str | Path) -> GraphFile:
        with np.load(path, allow_pickle=False) as file:
            arrays: dict[str, Any] = {name: file[name] for name in file.files}
        for size in ("n_entities", "n_relations"):
            arrays[size] = int(arrays[size])
        return cls(**arrays)

    def write(self, path: str | Path) -> None:
        np.savez(path, **vars(self))

    def reciprocal(self, facts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The facts and, below them, (t, r + n_relations, h) for each."""
        flipped = facts[:, [2, 1, 0]] + np.array([0, self.n_relations, 0])
        return np.concatenate([facts, flipped])

    def test_sample(self, size: int) -> npt.NDArray[np.int64]:
        """Some facts of the test set, the same ones for everybody."""
        return _sample(self.test, size)

    def valid_sample(self, size: int) -> npt.NDArray[np.int64]:
        """Some facts of the validation set, the same ones for everybody."""
        return _sample(self.valid, size)


def _sample(facts: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    return facts[np.random.default_rng(0).permutation(len(facts))[:size]]
