"""When to stop."""

from __future__ import annotations

import math

from kgem.fit.stopping import EarlyStopping


def feed(stopping: EarlyStopping, values: list[float]) -> list[bool]:
    return [stopping.update(value, epoch) for epoch, value in enumerate(values, start=1)]


def test_the_best_is_kept_and_patience_runs_out() -> None:
    stopping = EarlyStopping(patience=2)
    assert feed(stopping, [0.1, 0.3, 0.2]) == [True, True, False]
    assert not stopping.done
    assert feed(stopping, [0.3]) == [False]
    assert stopping.done
    assert (stopping.best, stopping.best_epoch) == (0.3, 2)


def test_a_gain_buys_new_patience() -> None:
    stopping = EarlyStopping(patience=2)
    feed(stopping, [0.3, 0.2, 0.4, 0.3])
    assert not stopping.done
    assert stopping.best == 0.4


def test_a_tiny_gain_is_kept_but_buys_none() -> None:
    stopping = EarlyStopping(patience=2, min_gain=0.01)
    assert feed(stopping, [0.3, 0.305, 0.309]) == [True, True, True]
    assert stopping.done
    assert (stopping.best, stopping.best_epoch) == (0.309, 3)


def test_what_is_not_a_number_is_no_gain() -> None:
    stopping = EarlyStopping(patience=3)
    assert feed(stopping, [math.nan, 0.1, math.nan]) == [False, True, False]
    assert stopping.best == 0.1
    assert not stopping.done
    feed(stopping, [math.nan, math.nan])
    assert stopping.done
