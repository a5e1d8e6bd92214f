"""Fewer points of a scatter that show the same: an even sample over frequencies, with the extremes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kgem.data.index import LongArray

__all__ = ["even_sample"]


def even_sample(counts: npt.NDArray[np.integer[Any]], values: npt.NDArray[np.floating[Any]], most: int) -> LongArray:
    """At most so many ids, ascending: of each octave of frequency as many as can be, its extreme values among them."""
    if len(counts) <= most:
        return np.arange(len(counts))
    octave = np.log2(np.maximum(counts, 1)).astype(np.int64) + (counts > 0)
    turn = np.empty(len(counts), dtype=np.int64)  # when an id is taken, if all octaves take turns
    shuffled = np.random.default_rng(0).permutation(len(counts))
    for each in np.unique(octave):
        mine = shuffled[octave[shuffled] == each]
        ends = [int(values[mine].argmin()), int(values[mine].argmax())]
        turn[mine] = np.arange(len(mine)) + 2
        turn[mine[ends]] = [0, 1]
    return np.sort(np.argsort(turn, kind="stable")[:most])
