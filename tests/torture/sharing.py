"""Several processes at one run folder, one review log, one cache, some of them killed: nothing is lost or mixed up."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

from torture import tracing
from torture.scenes import NOON, SCENES, fingerprint, write_graph

__all__ = ["share_cache", "share_review", "share_run"]

Work = Callable[[], object]
UNENDING = 10**6  # decisions of somebody who will be killed


def _start(work: Work, output: Path) -> int:
    """A process that does the work; what it says goes to a file."""
    child = os.fork()
    if not child:
        code = tracing.CRASHED
        try:
            said = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(said, 1)
            os.dup2(said, 2)
            signal.alarm(tracing.SECONDS)
            work()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except BaseException as error:
            print(f"Traceback: {type(error).__name__}: {error}", file=sys.stderr)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return child


def _wait(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _is_running(child: int) -> bool:
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def _fresh(base: Path) -> Path:
    root = base / "root"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    for name in ("said", "acknowledged"):
        (base / name).unlink(missing_ok=True)
    return root


def _reference(base: Path) -> object:
    """The run that nobody disturbed."""
    root = _fresh(base)
    write_graph(root)
    outcome = tracing.run(lambda: SCENES["fit"].act(root))
    assert outcome.code == 0, outcome.output
    return fingerprint(root / "run")


def share_run(base: Path, rounds: int, seed: int = 0) -> tuple[Counter[str], list[str]]:
    """Three processes fit into one folder, or go on with it, while a fourth reads; at times one is killed at work."""
    begun = time.monotonic()
    wanted, rng = _reference(base), random.Random(seed)
    span = time.monotonic() - begun  # of a fit
    ends: Counter[str] = Counter()
    problems = []
    for number in range(rounds):
        root, said = _fresh(base), base / "said"
        write_graph(root)
        workers = [_start(lambda: SCENES["fit"].go_on(root), said) for _ in range(3)]  # noqa: B023
        reader = _start(lambda: _read_models(root), said)  # noqa: B023
        if rng.random() < 0.5:
            time.sleep(span * rng.random())
            if at_work := [worker for worker in workers if _is_running(worker)]:  # two of them are told soon, and end
                os.kill(rng.choice(at_work), signal.SIGKILL)
        codes = [_wait(worker) for worker in workers]
        (root / "stop").touch()
        codes.append(_wait(reader))
        ends.update(
            "killed" if code < 0 else {0: "done", 2: "told that it is busy"}.get(code, "failed") for code in codes
        )
        output = said.read_text()
        if "Traceback" in output or "did not expect" in output or set(codes) - {0, 2, -signal.SIGKILL}:
            problems.append(f"round {number}: codes {codes}: {output[-400:]}")
        after = tracing.run(lambda: SCENES["fit"].go_on(root))  # noqa: B023
        if after.code or fingerprint(root / "run") != wanted:
            problems.append(f"round {number}: code {after.code}, or another result: {after.output[-300:]}")
    return ends, problems


def _read_models(root: Path) -> None:
    """Load the model as often as can be; it is there whole or not at all."""
    from kgem.answer.model import load
    from kgem.errors import ArtifactError, Damaged

    while not (root / "stop").exists():
        try:
            load(root / "run")
        except Damaged:
            if (root / "run" / ".lock").exists():  # a folder that was made a moment ago is nobody's yet
                raise
        except ArtifactError:  # not there yet
            time.sleep(0.05)


def share_review(base: Path, rounds: int, writers: int = 4, each: int = 25) -> tuple[Counter[str], list[str]]:
    """Processes decide at once, and one is killed: all that was acknowledged is there, whole."""
    ends: Counter[str] = Counter()
    problems = []
    for number in range(rounds):
        root, said = _fresh(base), base / "said"
        rng = random.Random(number)
        counts = [UNENDING, *[each] * (writers - 1)]  # the first one is killed in the midst of them
        workers = [_start(lambda who=who: _decide(root, who, counts[who]), said) for who in range(writers)]  # type: ignore[misc]  # noqa: B023
        time.sleep(0.2 * rng.random())
        os.kill(workers[0], signal.SIGKILL)
        codes = [_wait(worker) for worker in workers]
        outcome = tracing.run(lambda: _check_review(root, writers))  # noqa: B023
        ends.update("killed" if code < 0 else "done" for code in codes)
        if outcome.code or set(codes) - {0, -signal.SIGKILL}:
            problems.append(f"round {number}: codes {codes}: {outcome.output[-400:]} {said.read_text()[-300:]}")
    return ends, problems


def _decide(root: Path, who: int, each: int) -> None:
    from kgem.runs.review import Review

    review = Review(root)
    for number in range(each):
        review.decide(f"writer {who}", "r", f"{number}", "accept", "missing", NOON)
        with (root / f"acknowledged-{who}").open("a") as file:
            file.write("1")


def _check_review(root: Path, writers: int) -> None:
    from kgem.runs.review import Review

    review = Review(root)
    found = Counter(each.head for each in review.decisions)
    for who in range(writers):
        path = root / f"acknowledged-{who}"
        done = path.stat().st_size if path.exists() else 0
        assert found[f"writer {who}"] - done in (0, 1), f"{found[f'writer {who}']} of {done} decisions are there"
    assert len(review.problems) <= 1, review.problems  # a line that was cut off when its writer was killed


def share_cache(base: Path, rounds: int) -> tuple[Counter[str], list[str]]:
    """Processes load graphs through one cache that has room for one of them: each gets its own graph."""
    ends: Counter[str] = Counter()
    problems = []
    for number in range(rounds):
        root, said = _fresh(base), base / "said"
        for graph in range(2):
            (root / f"{graph}").mkdir()
            write_graph(root / f"{graph}", n=60 + 30 * graph)
        workers = [_start(lambda graph=graph: _load_often(root, graph % 2), said) for graph in range(4)]  # type: ignore[misc]  # noqa: B023
        if number % 2:
            time.sleep(0.1)
            os.kill(workers[0], signal.SIGKILL)
        codes = [_wait(worker) for worker in workers]
        ends.update("killed" if code < 0 else "done" if code == 0 else "failed" for code in codes)
        if set(codes) - {0, -signal.SIGKILL}:
            problems.append(f"round {number}: codes {codes}: {said.read_text()[-400:]}")
    return ends, problems


def _load_often(root: Path, graph: int) -> None:
    from kgem.data import cache
    from kgem.data.dataset import Dataset

    source = root / f"{graph}" / "graph.tsv"
    wanted = Dataset.load(source).content_hash
    keep = cache.store
    with (
        patch.object(cache, "WORTH_BYTES", 0),
        patch.object(cache, "store", lambda key, parsed: keep(key, parsed, limit=4000)),
        patch.dict(os.environ, KGEM_CACHE=str(root / "cache")),
    ):
        for _ in range(20):
            assert Dataset.load(source).content_hash == wanted
