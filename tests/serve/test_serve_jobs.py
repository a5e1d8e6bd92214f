"""Work in the background and fewer points of a scatter, by themselves."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from kgem.evaluate.ranking import OnProgress
from kgem.serve.jobs import Busy, Jobs
from kgem.serve.thinning import even_sample


def test_jobs_are_done_one_after_another_and_kept() -> None:
    jobs, running, most = Jobs(), [], []

    def work(name: int) -> int:
        running.append(name)
        most.append(len(running))
        time.sleep(0.01)
        running.remove(name)
        return name * name

    made = [jobs.ask(i, lambda progress, i=i: work(i)) for i in (1, 2, 3, 2)]
    assert all(job.finished.wait(10) for job in made)
    assert [job.value() for job in made] == [1, 4, 9, 4] and made[1] is made[3] and max(most) == 1
    assert jobs.find(3) == 9 and jobs.find(4) is None
    jobs.stop()


def test_the_oldest_results_are_forgotten() -> None:
    jobs = Jobs(kept=2)
    for i in range(4):
        assert jobs.ask(i, lambda progress, i=i: i).finished.wait(10)
    jobs.ask(3, lambda progress: -1)
    assert [jobs.find(i) for i in range(4)] == [None, None, 2, 3]
    jobs.stop()


def test_failed_work_is_begun_anew_when_asked_for_again() -> None:
    jobs, outcomes = Jobs(), [ValueError("no"), 5]

    def work(progress: OnProgress) -> int:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    first = jobs.ask("key", work)
    assert first.finished.wait(10)
    with pytest.raises(ValueError, match="no"):
        first.value()
    again = jobs.ask("key", work)
    assert again.finished.wait(10) and again.value() == 5
    jobs.stop()


def test_no_more_may_wait_than_there_is_room_for() -> None:
    jobs, go_on = Jobs(waiting=1), threading.Event()
    first = jobs.ask("a", lambda progress: go_on.wait(20))
    while jobs._queue:
        time.sleep(0.001)
    jobs.ask("b", lambda progress: 1)
    with pytest.raises(Busy):
        jobs.ask("c", lambda progress: 1)
    assert jobs.ask("a", lambda progress: 1) is first  # what is there already may be asked for
    go_on.set()
    jobs.stop()


def test_patient_work_lets_others_pass_at_each_sign_of_progress() -> None:
    jobs, begun, go_on = Jobs(), threading.Event(), threading.Event()

    def long(progress: OnProgress) -> str:
        begun.set()
        assert go_on.wait(20)
        progress(1, 2)
        return "long"

    first = jobs.ask("long", long, patient=True)
    assert begun.wait(10)
    order: list[str] = []
    others = [
        jobs.ask(name, lambda progress, name=name: order.append(f"{name}, {first.finished.is_set()}")) for name in "ab"
    ]
    go_on.set()
    assert first.finished.wait(10) and first.value() == "long" and (first.done, first.of) == (1, 2)
    assert all(job.finished.is_set() for job in others) and order == ["a, False", "b, False"]
    jobs.stop()


def test_stopping_does_not_wait_for_long_work() -> None:
    jobs, begun = Jobs(), threading.Event()

    def endless(progress: OnProgress) -> None:
        while True:
            progress(1, 2)
            begun.set()
            time.sleep(0.001)

    job = jobs.ask("endless", endless)
    assert begun.wait(10)
    jobs.stop()
    assert job.finished.is_set() and job.error is not None and (job.done, job.of) == (1, 2)


def test_a_sample_is_even_over_frequencies_and_has_the_extremes() -> None:
    rng = np.random.default_rng(3)
    counts = np.concatenate([np.zeros(50, int), np.ones(5000, int), rng.integers(2, 4, 500), [700], [60_000]])
    values = rng.random(len(counts))
    chosen = even_sample(counts, values, 300)
    assert len(chosen) == len(set(chosen.tolist())) == 300 and (np.diff(chosen) > 0).all()
    taken = counts[chosen]
    assert 700 in taken and 60_000 in taken
    none, once, more = (int(((taken >= low) & (taken < high)).sum()) for low, high in ((0, 1), (1, 2), (2, 4)))
    assert none == 50 and abs(once - more) <= 2 and once + more == 248
    for low, high in ((0, 1), (1, 2), (2, 4)):
        octave = np.flatnonzero((counts >= low) & (counts < high))
        assert {octave[values[octave].argmin()], octave[values[octave].argmax()]} <= set(chosen.tolist())


def test_few_points_are_all_drawn() -> None:
    assert even_sample(np.array([1, 5, 0]), np.array([1.0, 2.0, 3.0]), 3).tolist() == [0, 1, 2]
    assert len(even_sample(np.array([1, 1, 1]), np.array([1.0, 1.0, 1.0]), 1)) == 1
