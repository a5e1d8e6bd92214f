"""One run of several processes: the first has the folder and tells the others, which follow it, what to do."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from kgem.answer.artifact import graph_documents, graph_tensors, make_graph
from kgem.config import Config
from kgem.files.run_folder import GRAPH, RUN_KIND, RUN_VERSION
from kgem.files.store import read_document, read_kind
from kgem.model.processes import Processes
from kgem.model.shards import WHOLE
from kgem.runs.fitting import Prepared, start_fit
from kgem.runs.parts import SAVE, look_for_folder, read_part, write_part
from kgem.train.driver import Fit
from kgem.train.point_estimate import strip_prefix
from kgem.train.stopping import Asked, never
from kgem.train.warm_start import WarmStart
from kgem.train.whole_state import collect_state, own_state, restore_state

__all__ = ["END", "GO_ON", "RESULT", "Begun", "current_job", "follow", "is_of_this_job", "start_together"]

FIT, GO_ON, RESULT, END = "fit", "go on", "result", "end"  # what the first tells the others
GRAPH_PART, WARM_PART, STATE_PART = "graph/", "warm/", "state/"


@dataclass(frozen=True, eq=False)
class Begun:
    """A run as it is when its processes begin: what they must know to fit it."""

    prepared: Prepared
    config: Config
    spent: float  # seconds so far
    tensors: Mapping[str, Tensor] | None = None  # of the state that it goes on from, whole or in parts
    numbers: Mapping[str, Any] | None = None
    checkpoint: Path | None = None  # where that state is
    folder: Path | None = None  # of the run


def start_together(begun: Begun, stop: Asked, processes: Processes) -> Fit:
    """The fit as far as it had come, in every process that follows as in this, the first."""
    if processes.count > 1:
        processes.tell(FIT)
        look_for_folder(begun.folder, processes)
        _tell(begun, processes)
    return _start(begun, stop, processes)


def follow(processes: Processes, stop: Asked = never) -> None:
    """By all but the first: a part of the fit that the first tells of, until it says that this is the end."""
    if processes.listen() == END:
        return
    look_for_folder(None, processes)
    fit = _start(_hear(processes), stop, processes)
    for _ in fit.epochs():
        if not _obey(fit, processes):
            return
    while _obey(fit, processes):
        pass


def _obey(fit: Fit, processes: Processes) -> bool:
    """Whatever the first says, until the fit is to go on; False if it is to end."""
    while (order := processes.listen()) not in (GO_ON, END):
        if order == SAVE:
            collect_state(fit.phases)
        elif order == RESULT:
            fit.phases.result()
        else:
            write_part(fit.phases, order, processes)
    return bool(order == GO_ON)


def _start(begun: Begun, stop: Asked, processes: Processes) -> Fit:
    fit = start_fit(begun.prepared, begun.config, begun.spent, processes.agree_to_stop(stop), processes)
    if begun.tensors is not None and begun.numbers is not None:
        restore_state(fit.phases, begun.tensors, begun.numbers)
    return fit


def _tell(begun: Begun, processes: Processes) -> None:
    prepared = begun.prepared
    warm = {} if prepared.warm is None else prepared.warm.tensors()
    from_files = processes.in_one_folder or begun.tensors is None
    state = {} if from_files or begun.tensors is None else dict(own_state(WHOLE, begun.tensors))
    groups = {GRAPH_PART: graph_tensors(prepared.data), WARM_PART: warm, STATE_PART: state}
    documents = graph_documents(prepared.data) | {
        "config": begun.config.model_dump(mode="json"),
        "spent": begun.spent,
        "age": None if prepared.warm is None else prepared.warm.epochs,
        "numbers": begun.numbers,
        "checkpoint": str(begun.checkpoint.absolute()) if from_files and begun.checkpoint else None,
    }
    processes.share({f"{part}{name}": t for part, group in groups.items() for name, t in group.items()}, documents)


def _hear(processes: Processes) -> Begun:
    tensors, documents = processes.share()
    config = Config.model_validate(documents["config"])
    data = make_graph(strip_prefix(GRAPH_PART, tensors), documents, documents["dataset"])
    warm = None
    if documents["age"] is not None:
        warm = WarmStart.from_tensors(strip_prefix(WARM_PART, tensors), documents["age"], config.device)
    state = strip_prefix(STATE_PART, tensors) or None
    if documents["checkpoint"] is not None:
        state = read_part(Path(documents["checkpoint"]), data.n_entities, processes)
    return Begun(Prepared(data, None, warm), config, documents["spent"], state, documents["numbers"])


def current_job() -> str | None:
    """Which start of torchrun this process belongs to, the same after it restarted its processes; None without one."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return None
    return f"{os.environ.get('TORCHELASTIC_RUN_ID', 'none')} {socket.gethostname()} {os.getppid()}"


def is_of_this_job(folder: Path) -> bool:
    """Whether the run in this folder was begun by the torchrun that restarted this process: then it is to go on."""
    if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) == 0 or read_kind(folder / GRAPH) != RUN_KIND:
        return False
    document = read_document(folder / GRAPH, "run", kind=RUN_KIND, version=RUN_VERSION)
    return bool(document.get("job") == current_job())
