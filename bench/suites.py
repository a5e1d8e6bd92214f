"""What is measured: each suite runs contestants side by side and returns plain numbers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.growth import growth
from bench.neighbours import neighbours
from bench.peers import Peer
from bench.processes import processes
from bench.quality import plot, run_in_turns, summarise
from bench.scale import scale
from bench.workers import ROOT, Worker, WorkerFailed, summary, take_turns

__all__ = ["GRAPHS", "SUITES", "Plan", "data", "epochs", "equal_results", "evaluations", "memory", "serve"]

GRAPHS = ("fb15k-237", "wn18rr")
DIM = 100
BATCH = 1000  # queries a step; facts a step for the plain loop
EVALUATION_BATCH = 256  # facts at once, told to the peer explicitly: its own choice on a CPU is 32
TIES = ("realistic", "pessimistic")
VALIDATED_FACTS = 2000  # both sides of each, in the suite of time to quality
OUR_STEPS = 12  # of ours in a turn, at least
MIB = 2**20


@dataclass(frozen=True)
class Plan:
    """How much is measured, and where things go."""

    long: bool
    folder: Path  # for graph files and the log
    pykeen: Peer
    biggraph: Peer
    say: Callable[[str], None]
    rounds: int = 3
    turn: float = 1.0  # seconds that a turn should take in the short version
    minutes: float = 20.0  # of each contestant in the suite of time to quality, at most

    @property
    def log(self) -> Path:
        return self.folder / "workers.log"

    def worker(self, kind: str) -> Worker:
        peers = {"pykeen_worker": self.pykeen, "biggraph_worker": self.biggraph}
        return Worker(f"bench.{kind}", self.log, peers[kind].python if kind in peers else None)

    def steps(self, seconds_per_step: float, whole: int) -> int:
        """Steps of one turn: a whole epoch in the long version."""
        return whole if self.long else min(whole, max(2, round(self.turn / seconds_per_step)))


def epochs(plan: Plan) -> dict[str, Any]:
    """One epoch of ComplEx: ours, exact and rounded, PyKEEN's LCWA loop, the plain loop over facts, and the floor."""
    return {graph: _epoch(plan, graph) for graph in GRAPHS}


def _epoch(plan: Plan, graph: str) -> dict[str, Any]:
    plan.say(f"  {graph}")
    contestants = {"ours": "ours", "rounded": "ours", "pykeen": "pykeen_worker"}
    if plan.long or graph == GRAPHS[0]:
        contestants["plain"] = "plain"
    if plan.long:
        contestants["lean"] = "lean"
    with _contestants(plan, graph, contestants) as (workers, about), plan.worker("floor") as floor:
        queries, facts = about["queries"], 2 * about["facts"]["train"]
        items = {"ours": queries, "rounded": queries, "pykeen": queries, "plain": facts, "lean": facts}
        workers["rounded"].ask("round_products")
        steps, turns = {}, {}
        for name, worker in workers.items():
            worker.ask("steps", steps=1)  # buffers, page faults, the peer's index
            warm = worker.ask("steps", steps=1)["seconds"]
            whole = -(-items[name] // BATCH)
            # Ours also does once an epoch what a turn of a dozen steps would count ten times over.
            steps[name] = max(plan.steps(warm, whole), min(whole, OUR_STEPS) if name in ("ours", "rounded") else 0)
            turns[name] = _turn(worker, steps[name], items[name])
        rates: list[dict[str, float]] = []

        def measure_floor() -> float:
            rates.append(floor.ask("rates", n_entities=about["entities"], width=2 * DIM)["gflops"])
            return _floor_seconds(about, max(rates[-1].values()))

        taken = take_turns({**turns, "floor": measure_floor}, plan.rounds)
        result: dict[str, Any] = {name: summary(seconds) for name, seconds in taken.items()}
        for name, worker in workers.items():
            result[name] |= {"steps_per_turn": steps[name], "items": items[name], **_memory(worker)}
        best = {product: max(rate[product] for rate in rates) for product in rates[0]}
        result["floor"] |= {"gflops": best, "seconds": _floor_seconds(about, max(best.values()))}
        result["ratios"] = {
            name: {by: result[name][by] / result["ours"][by] for by in ("best", "median")}
            for name in ("rounded", "pykeen", "plain", "lean")
            if name in result
        }
        result["ratios"]["floor"] = {by: result["ours"][by] / result["floor"]["seconds"] for by in ("best", "median")}
        return {"graph": _counts(about), "dim": DIM, "batch": BATCH, "whole_epochs": plan.long, **result}


def _turn(worker: Worker, steps: int, items: int, request: str = "steps") -> Callable[[], float]:
    """Seconds of an epoch, from some of its steps."""

    def turn() -> float:
        answer = worker.ask(request, steps=steps)
        return float(answer["seconds"] * items / answer["items"])

    return turn


def _floor_seconds(about: dict[str, Any], gflops: float) -> float:
    """Three products of Q x D by D x N_e."""
    return float(3 * 2 * about["queries"] * about["entities"] * 2 * DIM / (gflops * 1e9))


def em(plan: Plan) -> dict[str, Any]:
    """A step of variational EM against one of a point estimate, in the same process, in turns."""
    graph = GRAPHS[0]
    plan.say(f"  {graph}")
    with _contestants(plan, graph, {"ours": "ours"}) as (workers, about):
        worker = workers["ours"]
        turns = {}
        for name in ("steps", "em_steps"):
            worker.ask(name, steps=2)
            turns[name] = _turn(worker, max(8, plan.steps(0.12, 30)), about["queries"], name)
        taken = take_turns(turns, plan.rounds)
        point, variational = (summary(taken[name]) for name in ("steps", "em_steps"))
        ratio = {by: variational[by] / point[by] for by in ("best", "median")}
        return {"graph": _counts(about), "dim": DIM, "batch": BATCH, "point": point, "em": variational, "ratio": ratio}


def evaluations(plan: Plan) -> dict[str, Any]:
    """Filtered ranks of the test set, both sides: ours against PyKEEN's, from the same tables."""
    return {graph: _evaluation(plan, graph) for graph in GRAPHS}


def _evaluation(plan: Plan, graph: str) -> dict[str, Any]:
    plan.say(f"  {graph}")
    contestants = {"ours": "ours", "pykeen": "pykeen_worker"}
    with _contestants(plan, graph, contestants, trained=True) as (workers, about):
        whole = about["facts"]["test"]
        sample = whole if plan.long else min(whole, 4 * EVALUATION_BATCH)
        fixed, turns = {}, {}
        for name, worker in workers.items():
            worker.ask("evaluate", facts=EVALUATION_BATCH, batch=EVALUATION_BATCH)
            fixed[name] = worker.ask("evaluate", facts=1, batch=EVALUATION_BATCH)["seconds"]
            turns[name] = _evaluation_turn(worker, sample, whole, fixed[name])
        taken = take_turns(turns, plan.rounds)
        result: dict[str, Any] = {}
        for name, worker in workers.items():
            result[name] = summary(taken[name]) | {"fixed_seconds": fixed[name], "mrr": worker.last["mrr"]}
            result[name] |= _memory(worker)
        result["ours"]["extra_bytes"] = workers["ours"].last["extra_bytes"]
        if "pykeen" in result:
            ours, peer = result["ours"], result["pykeen"]
            result["ratios"] = {"pykeen": {by: peer[by] / ours[by] for by in ("best", "median")}}
            apart = {ties: abs(ours["mrr"][ties] - peer["mrr"][ties]) for ties in TIES}
            result["mrr_difference"] = apart
        return {"graph": _counts(about), "facts": sample, "of": whole, "batch": EVALUATION_BATCH, **result}


def _evaluation_turn(worker: Worker, sample: int, whole: int, fixed: float) -> Callable[[], float]:
    """Seconds for the whole test set: what one fact costs already is paid once, the rest per fact."""

    def turn() -> float:
        seconds = worker.ask("evaluate", facts=sample, batch=EVALUATION_BATCH)["seconds"]
        return float(seconds if sample == whole else fixed + (seconds - fixed) * whole / sample)

    return turn


def memory(plan: Plan) -> dict[str, Any]:
    """Ours on FB15K: the peak of fitting, and what evaluation adds, under its default limit and under a tight one."""
    about = _export(plan, "fb15k")
    result: dict[str, Any] = {"graph": _counts(about), "dim": DIM}
    with plan.worker("ours") as worker:
        worker.ask("load", path=about["path"], batch=BATCH)
        steps = plan.steps(1.0, -(-about["queries"] // BATCH))
        result["fit"] = worker.ask("steps", steps=steps)["peak_bytes"]
        facts = about["facts"]["test"] if plan.long else 2000
        limits = {"1 GiB": 1024 * MIB, "64 MiB": 64 * MIB}
        answers = {name: worker.ask("evaluate", facts=facts, batch=0, memory=limit) for name, limit in limits.items()}
        result["evaluation"] = {
            name: {"limit": limits[name], "extra_bytes": answer["extra_bytes"]} for name, answer in answers.items()
        }
    if plan.long:
        result["whole_fit"] = _whole_fit("fb15k", DIM)
    return result


def _whole_fit(graph: str, dim: int) -> dict[str, Any]:
    """All phases through the command line, in a child of a fresh process: its peak is then its own."""
    command = [sys.executable, "-m", "bench.whole_fit", graph, str(dim)]
    answer: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return answer


def equal_results(plan: Plan) -> dict[str, Any]:
    """The loss after one pass beside the obvious version's."""
    graphs = ("umls", "fb15k-237") if plan.long else ("umls",)
    with plan.worker("ours") as worker:
        return {
            f"{graph} {dtype}": worker.ask(
                "one_pass", graph=graph, dim=20, batch=100 if graph == "umls" else BATCH, dtype=dtype
            )
            for graph in graphs
            for dtype in ("float32", "float64")
        }


def _growth(plan: Plan) -> dict[str, Any]:
    with plan.worker("ours") as worker:
        return growth(worker, plan.folder, plan.long)


def _neighbours(plan: Plan) -> dict[str, Any]:
    graphs = ("codex-s", "fb15k-237") if plan.long else ("codex-s",)
    return neighbours(graphs, DIM, rounds=1)


def quality(plan: Plan, graph: str = GRAPHS[0]) -> dict[str, Any]:
    """Seconds of training until some MRRs on validation: all of ours, and PyKEEN with published settings and ours."""
    contestants = {"ours": "ours", "pykeen": "pykeen_worker", "alike": "pykeen_worker"}
    with _contestants(plan, graph, contestants) as (workers, about):
        asked = {"graph": graph, "facts": VALIDATED_FACTS}

        def train(name: str, worker: Worker) -> Callable[[float], dict[str, Any]]:
            settings = {"alike": True} if name == "alike" else {}
            return lambda seconds: worker.ask("train_for", seconds=seconds, **asked, **settings)

        curves = run_in_turns({name: train(name, worker) for name, worker in workers.items()}, plan.minutes)
    plot(curves, graph, plan.folder)
    return {"graph": _counts(about), "dim": DIM, "facts": VALIDATED_FACTS, "minutes": plan.minutes, **summarise(curves)}


def _scale(plan: Plan) -> dict[str, Any]:
    return scale(plan.worker, plan.biggraph, plan.folder, plan.long, plan.say)


def data(plan: Plan) -> dict[str, Any]:
    """From text to a ready graph: FB15K, and ten million made-up facts over a million entities."""
    command = [sys.executable, "-m", "bench.bench_data"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise WorkerFailed(f"bench.bench_data ended with code {done.returncode}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def serve(plan: Plan) -> dict[str, Any]:
    """The explorer: an answer to one client, and fifty clients at once."""
    command = [sys.executable, "-m", "bench.serve_load", "20" if plan.long else "2"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise WorkerFailed(f"bench.serve_load ended with code {done.returncode}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@contextmanager
def _contestants(
    plan: Plan, graph: str, kinds: dict[str, str], *, trained: bool = False
) -> Iterator[tuple[dict[str, Worker], dict[str, Any]]]:
    """Workers that have loaded the graph, those of peers that are not here left out.

    trained: with tables after some steps of ours, so that ranks mean something.
    """
    about = _export(plan, graph)
    path = about["path"]
    with ExitStack() as stack:
        workers = {
            name: stack.enter_context(plan.worker(kind))
            for name, kind in kinds.items()
            if kind != "pykeen_worker" or plan.pykeen.python
        }
        if trained:
            ours = workers["ours"]
            ours.ask("load", path=path, batch=BATCH)
            ours.ask("steps", steps=10)
            path = str(plan.folder / f"{graph}-trained.npz")
            ours.ask("save", path=path)
        for worker in workers.values():
            worker.send("load", path=path, batch=BATCH)
        for worker in workers.values():
            worker.versions = worker.answer()
        yield workers, about


def _export(plan: Plan, graph: str) -> dict[str, Any]:
    """The graph file, written at first use, and its counts."""
    path = plan.folder / f"{graph}.npz"
    kept = path.with_suffix(".json")
    if not kept.exists():
        with plan.worker("ours") as worker:
            about = worker.ask("export", graph=graph, path=str(path), dim=DIM)
        about.pop("peak_bytes")
        kept.write_text(json.dumps(about | {"name": graph, "path": str(path)}))
    counts: dict[str, Any] = json.loads(kept.read_text())
    return counts


def _counts(about: dict[str, Any]) -> dict[str, Any]:
    """For the results, where a scratch folder means nothing."""
    return {key: value for key, value in about.items() if key != "path"}


def _memory(worker: Worker) -> dict[str, Any]:
    return {
        "peak_bytes": worker.last["peak_bytes"],
        "imports_bytes": worker.hello["peak_bytes"],
        "versions": {key: worker.versions[key] for key in ("torch", "pykeen") if key in worker.versions},
    }


def _processes(plan: Plan) -> dict[str, Any]:
    """Several processes that fit one model together."""
    return processes(plan.long, plan.rounds, plan.say)


# One entry per suite, in the order they run.
SUITES: dict[str, Callable[[Plan], dict[str, Any]]] = {
    "epoch": epochs,
    "em": em,
    "evaluation": evaluations,
    "memory": memory,
    "equal": equal_results,
    "neighbours": _neighbours,
    "quality": quality,
    "growth": _growth,
    "scale": _scale,
    "processes": _processes,
    "data": data,
    "serve": serve,
}
