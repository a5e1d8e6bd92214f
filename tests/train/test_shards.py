"""Fits of several processes, played by threads, beside that of one: all phases, stopped, saved, gone on with."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kgem.errors import ConfigError
from kgem.evaluate.ranking import rank
from kgem.model.processes import ALONE, Processes, Traffic
from kgem.model.shards import Shards, deal
from kgem.runs.configure import configure
from kgem.runs.fitting import Prepared, start_fit
from kgem.train.driver import Fit
from kgem.train.phases import FitResult
from kgem.train.point_estimate import compute_gradients
from kgem.train.stopping import Asked, never
from kgem.train.whole_state import collect_state, has_entity_rows, is_needed, restore_state, take_part
from obvious import random_embeddings, random_graph
from together import in_threads

GRAPH = random_graph()
SHORT = {
    "model": {"dim": 3},
    "pretrain": {
        "epochs": 2,
        "candidates": [1.0, 3.0],
        "trial_epochs": 1,
        "final_epochs": 1,
        "extensions": 0,
        "batch_size": 60,
    },
    "em": {"epochs": 2, "e_epochs": 1, "batch_size": 60},
    "retrain": {"epochs": 2, "candidates": [[1.0, 0.0]], "batch_size": 60},
    "companions": {"epochs": 2, "sampled_epochs": 1, "mixes": [[1.0, 0.3]], "batch_size": 60},
    "distil": {"epochs": 2, "batch_size": 60},
    "dtype": "float64",
}
VARIANTS: dict[str, dict[str, Any]] = {
    "exact": {"train.softmax": "exact"},
    "sampled": {"train.softmax": "sampled", "train.candidates": 6},
    "sampled, accumulators by row": {
        "train.softmax": "sampled",
        "train.candidates": 6,
        "train.accumulators": "row",
        "train.exact_epochs": 1,
    },
    "races sampled": {"train.softmax": "exact", "train.races": "sampled", "train.candidates": 6},
    "two-sided, margin": {"model.reciprocal": False, "pretrain.loss": "margin"},
    "two-sided, sampled": {"model.reciprocal": False, "train.softmax": "sampled", "train.candidates": 6},
    "transe, targets not kept": {"model.score": "transe-l2", "distil.memory": 0},
}

SAMPLED = [variant for variant, chosen in VARIANTS.items() if chosen.get("train.softmax") == "sampled"]


def begin(processes: Processes, variant: str = "exact", stop: Asked = never) -> Fit:
    config = configure(configure(None, SHORT), VARIANTS[variant])
    return start_fit(Prepared(GRAPH, None), config, 0.0, processes.agree_to_stop(stop), processes)


def told(fit: Fit) -> list[tuple[Any, ...]]:
    """Phase, epoch, loss, MRR and bound of all epochs that are left."""
    return [(phase, r.epoch, r.loss, r.mrr, r.extra.get("elbo", 0.0)) for phase, r in fit.epochs()]


def assert_same_result(one: FitResult, other: FitResult, tolerance: float = 1e-8) -> None:
    for a, b in zip(tables(one), tables(other), strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def tables(result: FitResult) -> list[torch.Tensor]:
    q = result.posterior
    spread = [q.entities.mean, q.relations.mean, q.entities.log_std, q.relations.log_std]
    return [*result.point.tables(), *spread, *result.strengths]


@pytest.mark.parametrize(("variant", "count"), [*((variant, 2) for variant in VARIANTS), ("exact", 3), ("sampled", 3)])
def test_several_processes_come_to_the_same_as_one(variant: str, count: int, one_thread: None) -> None:
    """All phases with their races: losses, MRR, bounds and tables, where 23 rows make parts of unequal length."""

    def work(processes: Processes) -> tuple[list[tuple[Any, ...]], FitResult]:
        fit = begin(processes, variant)
        return told(fit), fit.phases.result()

    epochs, result = work(ALONE)
    (first, *_), *others = everyone = in_threads(count, work)
    assert [each[:2] for each in first] == [each[:2] for each in epochs]
    phases = {"pretrain", "em", "retrain", "companions", "distil"}
    assert {phase for phase, *_ in epochs} == (phases - {"companions"} if variant in SAMPLED else phases)
    torch.testing.assert_close(torch.tensor([e[2:] for e in first]), torch.tensor([e[2:] for e in epochs]))
    assert_same_result(everyone[0][1], result)
    assert all(other[0] == first for other in others)  # to the bit


@pytest.mark.parametrize("variant", ["exact", "sampled"])
def test_a_fit_goes_on_with_another_number_of_processes(variant: str, one_thread: None) -> None:
    """Saved by two in the middle of EM, it goes on with one and with three to where two come."""

    def start(processes: Processes) -> tuple[Any, ...]:
        fit = begin(processes, variant)
        epochs = fit.epochs()
        while fit.phases.phase != "em" or not fit.phases.em:
            next(epochs)
        state = {name: t.clone() for name, t in collect_state(fit.phases).items()}, fit.phases.numbers()
        for _ in epochs:
            pass
        return *state, fit.phases.result()

    def go_on(processes: Processes) -> FitResult:
        fit = begin(processes, variant)
        restore_state(fit.phases, tensors, numbers)
        told(fit)
        return fit.phases.result()

    tensors, numbers, result = in_threads(2, start)[0]
    assert_same_result(go_on(ALONE), result)
    assert_same_result(in_threads(3, go_on)[0], result)
    again = in_threads(2, go_on)[0]
    assert all(torch.equal(a, b) for a, b in zip(tables(again), tables(result), strict=True))


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_fit_goes_on_from_the_parts_of_others(count: int, one_thread: None) -> None:
    """Each of however many is given just the parts that it needs, of the three that others wrote."""
    variant = "sampled, accumulators by row"

    def start(processes: Processes) -> tuple[dict[str, torch.Tensor], Any, FitResult]:
        fit = begin(processes, variant)
        epochs = fit.epochs()
        while fit.phases.phase != "em" or not fit.phases.em:
            next(epochs)
        part = {name: t.clone() for name, t in take_part(fit.phases).items()}
        numbers = fit.phases.numbers()
        for _ in epochs:
            pass
        return part, numbers, fit.phases.result()

    everyone = in_threads(3, start)
    parts = [{name.partition("/")[0] for name in part if "/" in name} for part, *_ in everyone]
    assert parts == [{f"rows-{rank}-of-3"} for rank in range(3)]
    assert all("/" in name for part, *_ in everyone[1:] for name in part)  # what all have alike is in the first alone
    tensors = {name: t for part, *_ in everyone for name, t in part.items()}

    def go_on(processes: Processes) -> tuple[int, FitResult]:
        fit = begin(processes, variant)
        mine = {n: t for n, t in tensors.items() if "/" not in n or is_needed(fit.phases.shards, n.partition("/")[0])}
        restore_state(fit.phases, mine, everyone[0][1])
        told(fit)
        return len({n.partition("/")[0] for n in mine if "/" in n}), fit.phases.result()

    found = [go_on(ALONE)] if count == 1 else in_threads(count, go_on)
    assert [n for n, _ in found] == {1: [3], 2: [2, 2], 4: [1, 2, 2, 1]}[count]
    assert_same_result(found[0][1], everyone[0][2])


def test_a_state_has_entity_rows_where_it_says_so(one_thread: None) -> None:
    """Two graphs that differ in entities alone: just what has another shape is of entities."""

    def shapes(n_entities: int) -> dict[str, tuple[Any, ...]]:
        data = random_graph(n_entities)
        config = configure(configure(None, SHORT), {"pretrain.averaging": 1})
        fit = start_fit(Prepared(data, None), config)
        told(fit)
        return {name: (tuple(t.shape), has_entity_rows(name, t)) for name, t in fit.phases.tensors().items()}

    one, other = shapes(23), shapes(31)
    assert one.keys() == other.keys()
    for name, (shape, of_entities) in one.items():
        assert of_entities == (shape != other[name][0]) == (23 in shape), name


def test_whoever_is_asked_to_stop_all_stop_after_the_same_step(one_thread: None) -> None:
    """And go on from there to the same bits."""

    def work(processes: Processes, asked: int | None) -> tuple[int, list[torch.Tensor]]:
        stopping = {"steps": 0}

        def stop() -> bool:
            stopping["steps"] += 1
            return asked is not None and stopping["steps"] > asked

        fit = begin(processes, "sampled", stop if processes.rank == 1 else never)
        told(fit)
        if asked is None:
            return 0, tables(fit.phases.result())
        steps = fit.phases.pretraining.steps, fit.phases.steps_of_next_epoch
        state = {name: t.clone() for name, t in collect_state(fit.phases).items()}
        state = {name: processes_have(processes, name, t) for name, t in state.items()}
        later = begin(processes, "sampled")
        processes._agreed = False
        restore_state(later.phases, state, fit.phases.numbers())
        told(later)
        return steps, tables(later.phases.result())

    whole = in_threads(2, lambda processes: work(processes, None))
    stopped = in_threads(2, lambda processes: work(processes, 7))
    assert stopped[0][0] == stopped[1][0] != (0, 0)
    assert all(torch.equal(a, b) for a, b in zip(stopped[0][1], whole[0][1], strict=True))


def processes_have(processes: Processes, name: str, tensor: torch.Tensor) -> torch.Tensor:
    """What the first collected, in all of them."""
    if not has_entity_rows(name, tensor):
        return tensor
    whole = tensor if processes.rank == 0 else tensor.new_empty(GRAPH.n_entities, *tensor.shape[1:])
    return processes.broadcast(whole)


def test_ranks_of_a_divided_table_are_those_of_the_whole(one_thread: None) -> None:
    model = random_embeddings(GRAPH, "complex")
    for table in (model.entities, model.relations):  # sixteenths: any order of sums is exact
        table.mul_(16).round_().div_(16)
    model.entities[5] = model.entities[20]  # ties across processes
    model.entities[7] = torch.nan
    facts = GRAPH.reciprocal(GRAPH.train)
    whole = rank(model, facts, GRAPH.filter_index)

    def work(processes: Processes) -> Any:
        shards = deal(processes, GRAPH.n_entities)
        part = type(model)(model.score, shards.own(model.entities), model.relations, model.n_relations, shards=shards)
        return rank(part, facts, GRAPH.filter_index, memory=2**14)

    for ranks in in_threads(3, work):
        assert (ranks.pessimistic == whole.pessimistic).all() and (ranks.optimistic == whole.optimistic).all()


@pytest.mark.parametrize("variant", ["exact", "sampled"])
def test_a_step_makes_few_exchanges_and_counts_their_bytes(variant: str, one_thread: None) -> None:
    def work(processes: Processes) -> tuple[int, int]:
        phases = begin(processes, variant).phases
        tables, strengths, objective = phases.pretraining.embeddings, phases.rule_strengths(), phases.objective
        batch = objective.batches(10, torch.Generator().manual_seed(0))[0]
        processes.traffic = Traffic()
        compute_gradients(objective, tables, strengths, batch)
        return processes.traffic.collectives, processes.traffic.bytes

    found = in_threads(2, work)
    if variant == "exact":  # heads and gradients of 10 or 11 questions, 6 numbers each; log Z, the loss and a wish
        assert found[0] == found[1] and found[0][0] == 3
        assert found[0][1] in [2 * (8 * 6 * b) + 8 * (b + 2) for b in (10, 11)]
    else:  # rows there, gradients back; those of relations, the loss and a wish with them
        assert [each[0] for each in found] == [2, 2]
        common = 8 * (2 + 6 * len(relations_of_first_batch()))
        assert all((bytes_ - common) % (8 * 6) == 0 and bytes_ > common for _, bytes_ in found)


def test_the_next_step_is_planned_while_gradients_are_under_way(one_thread: None) -> None:
    """Once, and it is the step that anybody would plan who asks for it first."""

    def work(processes: Processes) -> None:
        phases = begin(processes, "sampled").phases
        objective, planned, plan = phases.objective, [], type(phases.objective)._plan

        def count(self: Any, items: torch.Tensor, drawn: torch.Tensor) -> Any:
            planned.append(items)
            return plan(self, items, drawn)

        objective._plan = count.__get__(objective)  # type: ignore[attr-defined]
        batches = objective.batches(30, torch.Generator().manual_seed(0))
        first = batches[0]
        assert len(planned) == 1
        compute_gradients(objective, phases.pretraining.embeddings, phases.rule_strengths(), first)
        assert len(planned) == 2
        second = batches[1]
        assert len(planned) == 2
        fresh = objective.batches(30, torch.Generator().manual_seed(0))[1]
        assert all(torch.equal(a.ids, b.ids) for a, b in zip(second.touched, fresh.touched, strict=True))
        assert torch.equal(second.given, fresh.given) and second.sent == fresh.sent
        last = len(batches) - 1
        compute_gradients(objective, phases.pretraining.embeddings, phases.rule_strengths(), batches[last])

    in_threads(2, work)


def relations_of_first_batch() -> torch.Tensor:
    objective = begin(ALONE, "sampled").phases.objective
    ids = objective.touched(objective.batches(10, torch.Generator().manual_seed(0))[0]).relations.ids
    assert ids is not None
    return ids


def test_ranges_cover_all_rows_once() -> None:
    for n, count in ((7, 3), (3, 3), (100, 7)):
        ranges = [Shards(Processes(place, count), n) for place in range(count)]
        assert [r.start for r in ranges] == [0, *(r.stop for r in ranges[:-1])] and ranges[-1].stop == n
        assert max(r.stop - r.start for r in ranges) == ranges[0].largest
        assert ranges[0].clip(0, n) == (0, ranges[0].stop) and ranges[-1].clip(0, 1) == (ranges[-1].start,) * 2
    with pytest.raises(ConfigError, match="2 entities cannot be dealt out to 3 processes"):
        deal(Processes(0, 3), 2)
