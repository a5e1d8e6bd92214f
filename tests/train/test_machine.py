"""Threads and products that suit a machine: what is measured, what is taken as said, and what stays as it was."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from kgem.config import Config
from kgem.runs.configure import configure
from kgem.runs.fitting import Prepared, start_fit
from kgem.train import driver, machine
from kgem.train.machine import measure, settle
from kgem.train.point_estimate import EpochRecord
from obvious import random_graph

GRAPH = random_graph()


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine of four cores with instructions for bfloat16, on which every step is worth measuring."""
    for name in machine.SAID_BY_USER:
        monkeypatch.delenv(name, raising=False)
    threads = [4]
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads[-1])
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    monkeypatch.setattr(machine, "multiplies_bfloat16", lambda: True)
    monkeypatch.setattr(machine, "SMALL_STEP", 0)
    yield
    assert threads[-1] == 4


def pretend(monkeypatch: pytest.MonkeyPatch, seconds: dict[tuple[str, int], float]) -> list[tuple[str, int]]:
    """Steps take so long, by products and threads; returns what is measured."""
    asked: list[tuple[str, int]] = []
    kinds: dict[int, str] = {}
    real = machine.Probe.start

    def start(data: Any, config: Config, products: str) -> Any:
        probe = real(data, config, products)
        kinds[id(probe)] = products
        return probe

    def turn(probe: Any, threads: int) -> Any:
        asked.append((kinds[id(probe)], threads))
        return lambda: seconds[kinds[id(probe)], threads]

    monkeypatch.setattr(machine.Probe, "start", start)
    monkeypatch.setattr(machine, "time_turn", turn)
    return asked


@pytest.mark.parametrize(
    ("exact", "rounded", "chosen"),
    [
        ({1: 8.0, 2: 4.0, 4: 2.0}, {1: 4.0, 2: 2.0, 4: 1.0}, (4, "bfloat16")),
        ({1: 1.05, 2: 1.0, 4: 1.2}, {1: 9.0, 2: 9.0, 4: 9.0}, (1, "exact")),  # the fewest within 10 %
        ({1: 3.0, 2: 1.0, 4: 0.95}, {1: 3.0, 2: 0.98, 4: 0.94}, (2, "exact")),  # rounding hardly pays
        ({1: 3.0, 2: 2.0, 4: 9.0}, {1: 1.0, 2: 2.0, 4: 9.0}, (1, "bfloat16")),  # a busy machine
    ],
)
def test_the_fewest_threads_near_the_fastest_and_rounding_where_it_pays(
    exact: dict[int, float], rounded: dict[int, float], chosen: tuple[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {("exact", n): s for n, s in exact.items()} | {("bfloat16", n): s for n, s in rounded.items()}
    pretend(monkeypatch, seconds)
    config = settle(GRAPH, Config())
    assert (config.run.threads, config.run.products) == chosen and config.run.remeasure
    assert settle(GRAPH, config) == config  # once chosen it stays


def test_what_is_said_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = pretend(monkeypatch, {})
    said = configure(None, {"run.threads": 3, "run.products": "exact"})
    assert settle(GRAPH, said) == said and not asked
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    exact = settle(GRAPH, configure(None, {"run.products": "exact"}))
    assert exact.run.threads == 4 and not exact.run.remeasure and not asked
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)  # as no torch would begin on four cores
    assert settle(GRAPH, configure(None, {"run.products": "exact"})).run.threads == 3 and not asked


def test_rounding_needs_products_instructions_and_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    one = {"run.threads": 1}
    asked = pretend(monkeypatch, {})
    assert settle(GRAPH, configure(None, one | {"dtype": "float64"})).run.products == "exact"
    assert settle(GRAPH, configure(None, one | {"model.score": "transe-l2"})).run.products == "exact"
    monkeypatch.setattr(machine, "multiplies_bfloat16", lambda: False)
    assert settle(GRAPH, configure(None, one)).run.products == "exact" and not asked


def test_small_steps_are_not_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "SMALL_STEP", 1e8)
    asked = pretend(monkeypatch, {})
    assert settle(GRAPH, Config()).run.threads == 1 and not asked


def test_real_steps_are_measured_and_what_is_hopeless_has_one_turn() -> None:
    config = settle(GRAPH, configure(None, {"model.dim": 3}))
    assert config.run.threads in (1, 2, 4) and config.run.products in ("exact", "bfloat16")
    turns = {"slow": 0, "fast": 0}

    def turn(name: str, seconds: float) -> float:
        turns[name] += 1
        return seconds

    found = measure({"slow": lambda: turn("slow", 5.0), "fast": lambda: turn("fast", 1.0)}, rounds=3)
    assert found == {"slow": 5.0, "fast": 1.0} and turns == {"slow": 1, "fast": 3}


def test_threads_are_chosen_again_when_epochs_become_much_slower(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(driver, "choose_threads", lambda probe, most: 1)
    config = configure(None, {"model.dim": 3, "run.threads": 4, "run.remeasure": True, "run.products": "exact"})
    fit = start_fit(Prepared(GRAPH, None), config)

    def look(seconds: float) -> None:
        fit._look_at_pace("em", EpochRecord(1, 0.0, 0.1, seconds))

    for seconds in (1.0, 1.1, 1.0, 5.0, 1.0):  # one slow epoch is nothing
        look(seconds)
    assert fit.phases.config is config
    with caplog.at_level(logging.WARNING):
        look(3.0)
        look(3.5)
    assert fit.phases.config.run.threads == 1 and fit.phases.events[-1]["threads"] == 1
    assert torch.get_num_threads() == 1 and caplog.text.count("3.0 times slower") == 1
    torch.set_num_threads(4)
    said = start_fit(Prepared(GRAPH, None), configure(config, {"run.remeasure": False}))
    for seconds in (1.0, 1.0, 1.0, 9.0, 9.0):
        said._look_at_pace("em", EpochRecord(1, 0.0, 0.1, seconds))
    assert said.phases.config.run.threads == 4


@pytest.mark.parametrize(
    ("said", "found"), [({}, "10000"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "None"), ({"GOMP_SPINCOUNT": "7"}, "7")]
)
def test_threads_that_wait_give_way_unless_the_user_said_how_they_wait(said: dict[str, str], found: str) -> None:
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    environment = {name: value for name, value in os.environ.items() if name not in names} | said
    code = "import os, sys, kgem; print(os.environ.get('GOMP_SPINCOUNT'), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == [found, "False"]


@pytest.mark.parametrize(("said", "found"), [({}, "1"), ({"THP_MEM_ALLOC_ENABLE": "0"}, "0")])
def test_memory_comes_in_large_pages_unless_the_user_said_how(said: dict[str, str], found: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "THP_MEM_ALLOC_ENABLE"} | said
    code = "import os, kgem; print(os.environ['THP_MEM_ALLOC_ENABLE'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == found
