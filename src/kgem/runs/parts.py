"""Checkpoints of several processes: each writes and reads its own rows where all see the folder of the run.

Where they do not, as on machines without a common disk, the first writes and reads all rows.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kgem.errors import ArtifactError
from kgem.files.checkpoints import Checkpoints, read_checkpoint
from kgem.files.store import TENSORS, FileRecord, system_error, write_group
from kgem.model.processes import Processes
from kgem.model.shards import deal
from kgem.train.phases import ThreePhases
from kgem.train.whole_state import collect_state, is_needed, name_part, take_part

__all__ = ["SAVE", "look_for_folder", "read_part", "save_together", "write_part"]

SAVE, PART = "save", "part"  # what the first tells the others: to bring their rows, or to write them to a folder
SEEN = ".seen.kgem-tmp"  # what all look for
UNKNOWN = -1  # an error without a number of the system's


def look_for_folder(folder: Path | None, processes: Processes) -> None:
    """Mutates: whether all processes see the folder that the first has; the others give none."""
    if processes.rank:
        said = processes.share()[1]
    else:
        path, content = (folder or Path()) / SEEN, secrets.token_hex(16)
        with suppress(OSError):
            path.write_text(content)
        said = processes.share(documents={"path": str(path.absolute()), "content": content})[1]
    sees = False
    with suppress(OSError, ValueError):
        sees = Path(said["path"]).read_text() == said["content"]
    processes.in_one_folder = bool(processes.sum(torch.tensor([float(sees)])) == processes.count)
    if processes.rank == 0:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def save_together(
    checkpoints: Checkpoints, phases: ThreePhases, documents: Mapping[str, Any], step: int, processes: Processes
) -> None:
    """By the first: the checkpoint of this step; the others do what they are told."""
    if processes.in_one_folder:
        checkpoints.save(take_part(phases), documents, step, partial(_ask_for_parts, processes))
        return
    processes.tell(SAVE)
    checkpoints.save(collect_state(phases), documents, step)


def write_part(phases: ThreePhases, order: list[str], processes: Processes) -> None:
    """By the others: their rows, to the folder that the first named; it hears what became of them."""
    part = name_part(phases.shards)
    rows = {name.removeprefix(f"{part}/"): t for name, t in take_part(phases).items()}
    number, record = 0, FileRecord("", 0)
    try:
        record = write_group(Path(order[1]), part, rows)
    except ArtifactError as error:
        cause = error.__cause__
        number = (system_error(cause) if isinstance(cause, Exception) else None) or UNKNOWN
    digest = list(bytes.fromhex(record.sha256)) or [0] * 32
    processes.collect(torch.tensor([number, record.size, *digest]))


def read_part(folder: Path, n_entities: int, processes: Processes) -> dict[str, Tensor]:
    """By the others: of a checkpoint that the first found to be good, the files that this process needs."""
    return read_checkpoint(folder, partial(is_needed, deal(processes, n_entities))).tensors


def _ask_for_parts(processes: Processes, folder: Path) -> Callable[[], dict[str, FileRecord]]:
    """The others begin to write; what it returns waits for them."""
    processes.tell([PART, str(folder.absolute())])
    return partial(_hear_of_parts, processes, folder)


def _hear_of_parts(processes: Processes, folder: Path) -> dict[str, FileRecord]:
    every = processes.collect(torch.zeros(2 + 32, dtype=torch.int64))
    assert every is not None
    files = {}
    for rank, (number, size, *digest) in enumerate(every.tolist()):
        if number:
            why = "unknown" if number == UNKNOWN else os.strerror(number)
            what = f"process {rank} of {processes.count} could not write its part: {why}"
            raise ArtifactError(what, where=str(folder), remedy="make room on its disk, or check its permissions")
        if rank:
            files[f"rows-{rank}-of-{processes.count}{TENSORS}"] = FileRecord(bytes(digest).hex(), size)
    return files
