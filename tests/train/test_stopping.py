"""When to stop."""

from __future__ import annotations

import math

from kgem.train.stopping import Collapse, EarlyStopping, Settling


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


def test_a_rival_is_out_of_reach_if_the_gain_of_late_would_not_do() -> None:
    stopping = EarlyStopping(patience=9)
    feed(stopping, [0.1, 0.3])
    assert not stopping.cannot_reach(9.0, 1)  # one gain says little
    feed(stopping, [0.35, 0.38, 0.40])  # of the last four values .3 is the first: .0333 a step
    assert not stopping.cannot_reach(0.501, 3)
    assert stopping.cannot_reach(0.503, 3)
    feed(stopping, [0.2, 0.2, 0.2])  # a fall is no reason to expect another
    assert not stopping.cannot_reach(0.401, 9)
    assert stopping.cannot_reach(0.403, 9)
    assert not EarlyStopping(9, best=0.2, recent=[0.1, 0.2, math.nan]).cannot_reach(9.0, 1)


def settle(settling: Settling, pairs: list[tuple[float, float]]) -> list[bool]:
    seen = []
    for drift, value in pairs:
        settling.update(drift, value)
        seen.append(settling.done)
    return seen


def test_it_has_settled_when_neither_moved_three_times_in_a_row() -> None:
    assert settle(Settling(0.01), [(0.001, -500.0)] * 5) == [False, False, False, True, True]


def test_either_movement_starts_the_count_again() -> None:
    calm, drift, jump = (0.001, -500.0), (0.02, -500.0), (0.001, -501.0)
    assert not any(settle(Settling(0.01), [calm, calm, calm, drift, calm, calm]))
    assert not any(settle(Settling(0.01), [calm, calm, calm, jump, jump, jump]))
    assert settle(Settling(0.01), [calm, calm, calm, jump, jump, jump, jump])[-1]


def test_a_tolerance_of_zero_never_settles() -> None:
    assert not any(settle(Settling(0.0), [(0.0, -500.0)] * 9))


def test_what_is_not_a_number_has_not_settled() -> None:
    assert not any(settle(Settling(0.01), [(math.nan, -500.0)] * 9))
    assert not any(settle(Settling(0.01), [(0.0, math.nan)] * 9))
    assert not any(settle(Settling(0.01), [(0.0, -math.inf)] * 9))


def collapsed(pairs: list[tuple[float, float]], chance: float = 6.0) -> bool:
    collapse = Collapse(chance)
    for loss, signal in pairs:
        collapse.update(loss, signal)
    return collapse.done


def test_a_collapse_is_chance_without_signal_three_times_in_a_row() -> None:
    assert collapsed([(5.95, 0.04), (5.99, 0.03), (6.3, 0.02)])
    assert not collapsed([(5.95, 0.04), (5.99, 0.03)])
    assert not collapsed([(5.95, 0.04), (5.99, 0.03), (5.5, 0.02), (6.0, 0.02)])  # something was learned
    assert not collapsed([(6.5, 0.5)] * 5)  # noisy, but the means stand out
    assert not collapsed([(4.0, 0.01)] * 5)  # many dimensions with a little signal each
    assert not collapsed([(6.5, 0.01), (6.4, 0.02), (6.3, 0.03), (6.2, 0.04)])  # it comes up again
