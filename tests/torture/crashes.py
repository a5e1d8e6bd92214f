"""Every moment at which a command changes a file: killed, torn, without power, on a full or broken disk, cut short."""

from __future__ import annotations

import errno
import gc
import hashlib
import importlib
import importlib.util
import json
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torture import tracing
from torture.scenes import Scene, build_commands
from torture.tracing import Outcome, Unsynced

__all__ = ["FAULTS", "Found", "enumerate_faults", "rehearse", "warm_up"]


@dataclass(frozen=True)
class Fault:
    """What the n-th call meets."""

    kind: int
    error: int = 0
    power: bool = False  # what was not brought to disk is lost
    only: tuple[str, ...] = ()  # the calls that it makes sense for; none: all


HOUSEKEEPING = {"jemalloc_bg_thd", "polars-ooc-clea"}  # threads that polars starts and that nobody waits for
WRITES = ("write", "pwrite")
FAULTS = {
    "killed": Fault(tracing.KILL),
    "torn": Fault(tracing.TORN, only=WRITES),  # half of it was written
    "no power": Fault(tracing.KILL, power=True),
    "ENOSPC": Fault(tracing.FROM_HERE, errno.ENOSPC),  # and full it stays
    "EIO": Fault(tracing.ONCE, errno.EIO),
    "short": Fault(tracing.SHORT, only=WRITES),
}


@dataclass
class Found:
    """What became of the faults of one kind in one scene."""

    tried: int = 0
    same_at_once: int = 0  # the command came to its end all the same
    told: int = 0  # it ended with an error
    killed: int = 0
    states: int = 0  # different ones that a kill leaves
    left: Counter[str] = field(default_factory=Counter)  # hidden files that stay in the end, by name
    problems: list[str] = field(default_factory=list)


def warm_up(base: Path, scenes: list[Scene]) -> None:
    """Mutates: import here what the scenes import, so that a fork begins at once, and hide it from the collector, so
    that it copies few pages. No thread may be started."""
    found = base / "modules"
    for scene in scenes:
        root = _fresh(base / "root")

        def play(scene: Scene = scene, root: Path = root) -> None:
            try:
                scene.prepare(root)
                scene.act(root)
            finally:
                found.write_text("\n".join(sys.modules))

        outcome = tracing.run(play)
        if outcome.code:
            raise RuntimeError(f"{scene.name} fails without any fault:\n{outcome.output}")
        for name in found.read_text().split("\n"):
            importlib.import_module(name) if name not in sys.modules and _is_importable(name) else None
    threads = {(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()} - HOUSEKEEPING
    if len(threads) > 1:
        raise RuntimeError(f"threads are running that a fork would lack: {threads}")
    build_commands()
    gc.collect()
    gc.freeze()


def _is_importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError, AttributeError):
        return False


@dataclass(frozen=True)
class Rehearsal:
    """A scene without a fault: what is there before, the calls that change files, and what comes out."""

    scene: Scene
    template: Path
    calls: list[tuple[str, int]]  # what is called, and how many files would lose something without power
    wanted: Any
    moments: list[dict[bool, Path]]  # what is there before each call; True: without power. The same, the same folder

    def points(self, fault: Fault) -> list[int]:
        """The calls that the fault makes sense for, from 1."""
        return [
            at
            for at, (what, unsynced) in enumerate(self.calls, start=1)
            if (not fault.only or what in fault.only) and (not fault.power or unsynced)
        ]


def rehearse(base: Path, scene: Scene) -> Rehearsal:
    """Prepare the scene and play it once, undisturbed."""
    template, log = base / "template", base / "calls"
    _expect(tracing.run(lambda: scene.prepare(_fresh(template))), f"preparing {scene.name}")
    log.unlink(missing_ok=True)
    root, moments = _restore(base, template), _fresh(base / "moments")
    kept: list[dict[bool, Path]] = []

    def keep(unsynced: Unsynced) -> None:
        kept.append({power: _keep(root, moments, unsynced if power else {}) for power in (False, True)})

    _expect(tracing.run(lambda: scene.act(root), root, log=log, watch=keep), scene.name)
    wanted = _result(base, scene, root)
    calls = [line.split("\t") for line in log.read_text().splitlines()]
    return Rehearsal(scene, template, [(what, int(unsynced)) for what, unsynced, _ in calls], wanted, kept)


def _keep(root: Path, moments: Path, unsynced: Unsynced) -> Path:
    """A copy of what is there now, without what is not on disk; one folder for the same state."""
    taken = _fresh(moments / "taken")
    whole = hashlib.sha256()
    acknowledged = root.with_name("acknowledged")
    for path in (*sorted(root.rglob("*")), *([acknowledged] if acknowledged.exists() else [])):
        place, status = taken / path.relative_to(root.parent), path.lstat()
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            place.mkdir(exist_ok=True)
            content = b"folder"
        else:
            shutil.copy2(path, place)
            content = path.read_bytes()[: unsynced.get((status.st_dev, status.st_ino))]
            os.truncate(place, len(content))
        whole.update(repr((path.relative_to(root.parent), status.st_mode, content)).encode())
    (taken / root.name).mkdir(exist_ok=True)
    state = moments / whole.hexdigest()
    return state if state.exists() else taken.rename(state)


def enumerate_faults(base: Path, rehearsal: Rehearsal, fault: Fault, every: int = 1) -> Found:
    """Disturb the scene at its first, second, ... change of a file, or at every so-many-th of them.

    A process that is killed before a call leaves what is there then: that was kept in the rehearsal, and where two
    calls have the same before them, the user goes on once for both.
    """
    found, scene, known = Found(), rehearsal.scene, set[Path]()
    for at in rehearsal.points(fault)[::every]:
        found.tried += 1
        if fault.kind == tracing.KILL:
            state = rehearsal.moments[at - 1][fault.power]
            found.killed += 1
            if state in known:
                continue
            known.add(state)
            root = _bring_back(base, state)
            outcome = Outcome(code=-signal.SIGKILL, output="", what=rehearsal.calls[at - 1][0])
        else:
            root = _restore(base, rehearsal.template)
            outcome = tracing.run(lambda: scene.act(root), root, fault.kind, at, fault.error)  # noqa: B023
            found.killed += outcome.code < 0
        for problem in _judge(base, scene, root, outcome, rehearsal.wanted, found):
            found.problems.append(f"{scene.name}, call {at} ({outcome.what} {Path(outcome.path).name}): {problem}")
    found.states = len(known)
    return found


def _judge(base: Path, scene: Scene, root: Path, outcome: Outcome, wanted: Any, found: Found) -> Iterator[str]:
    """Mutates: count how it ended; what is wrong with that."""
    if outcome.crashed:
        yield f"crashed (code {outcome.code}): {_last_line(outcome)}"
    killed, told = outcome.code < 0, outcome.code > 0
    found.told += told
    found.same_at_once += outcome.code == 0
    if told and "error:" not in outcome.output:
        yield f"ended with code {outcome.code} and no word"
    answer = base / "answer"
    answer.unlink(missing_ok=True)

    def follow() -> None:
        if killed or told:
            scene.check(root, told)
            scene.go_on(root)
        answer.write_text(json.dumps(scene.result(root)))

    after = tracing.run(follow)
    if after.code:
        yield f"after code {outcome.code} it does not go on: {_last_line(after)}"
    elif json.loads(answer.read_text()) != wanted:
        yield f"after code {outcome.code} the result is another"
    found.left.update(_kind_of_leftover(path) for path in root.rglob(".*") if path.name != ".lock")


def _kind_of_leftover(path: Path) -> str:
    return f"{path.parent.name}/{path.name.split('.')[1]}…{path.suffix}"


def _result(base: Path, scene: Scene, root: Path) -> Any:
    answer = base / "answer"
    _expect(tracing.run(lambda: answer.write_text(json.dumps(scene.result(root)))), f"result of {scene.name}")
    return json.loads(answer.read_text())


def _restore(base: Path, template: Path) -> Path:
    """The same path each time: paths may be part of results."""
    root = base / "root"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(template, root)
    (base / "acknowledged").unlink(missing_ok=True)
    return root


def _bring_back(base: Path, state: Path) -> Path:
    """What a kill left, in its place."""
    root = base / "root"
    shutil.rmtree(root)
    shutil.copytree(state / "root", root)
    (base / "acknowledged").unlink(missing_ok=True)
    if (state / "acknowledged").exists():
        shutil.copy2(state / "acknowledged", base / "acknowledged")
    return root


def _fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    folder.with_name("acknowledged").unlink(missing_ok=True)
    return folder


def _expect(outcome: Outcome, what: str) -> None:
    if outcome.code:
        raise RuntimeError(f"{what} fails without any fault:\n{outcome.output}")


def _last_line(outcome: Outcome) -> str:
    lines = [line for line in outcome.output.splitlines() if line.strip()]
    return " | ".join(lines[-3:])[:600] if lines else f"code {outcome.code}, no output"
