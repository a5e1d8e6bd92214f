"""Everything needed to go on bit for bit after kill -9: generations of checkpoints, the newest good one first."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgem.errors import ArtifactError, Damaged, InputError
from kgem.files.atomic import clear_leftovers, folders_in, remove_folder
from kgem.files.store import Others, Store, is_store, read_store, write_store

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Checkpoints", "read_checkpoint"]

KIND, VERSION = "checkpoint", 1
IN_PARTS = 2  # the version of those that several processes wrote
KEPT = 2  # the newest may turn out to be damaged


class Checkpoints:
    """The checkpoints of a run, one folder per saved step (`000012`), the newest KEPT of them on disk.

    Steps grow through all phases of a run. Hold the run's lock while saving.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._damaged: set[int] = set()  # found so by load_newest; the next save removes them

    def save(
        self, tensors: Mapping[str, Tensor], documents: Mapping[str, Any], step: int, others: Others | None = None
    ) -> None:
        """Write the checkpoint of this step, then remove those that are too old.

        Later ones are removed as well: they are of a run that was begun anew. `others` write parts of it.
        """
        if step < 0:
            raise InputError(f"no checkpoint can be of step {step}", remedy="steps count from 0")
        self._tidy()  # first: what killed writers left may fill the disk
        version = VERSION if others is None else IN_PARTS
        write_store(self._generation(step), tensors, documents, kind=KIND, version=version, others=others)
        steps = self.steps()
        for unwanted in set(steps).difference([s for s in steps if s <= step][-KEPT:]):
            self.remove(unwanted)

    def load_newest(self) -> tuple[Store, list[str]] | None:
        """The newest good checkpoint and a warning for each damaged one passed over; None if none was saved.

        Its tensors are mapped: it may have more of them than a fit has room for beside its own.
        """
        warnings: list[str] = []
        for step in reversed(self.steps()):
            try:
                return read_checkpoint(self._generation(step)), warnings
            except Damaged as error:
                self._damaged.add(step)
                warnings.append(f"passed over a damaged checkpoint: {error.where} {error.what}")
        if warnings:
            what = "\n  ".join(["all checkpoints are damaged", *warnings])
            raise ArtifactError(what, where=str(self.folder), remedy="fit again, into another folder or with --force")
        return None

    def steps(self) -> list[int]:
        """The steps with a checkpoint, good or damaged, ascending."""
        names = folders_in(self.folder) if self.folder.is_dir() else set()
        return sorted(int(name) for name in names if re.fullmatch(r"[0-9]{6,}", name))

    def _tidy(self) -> None:
        """Remove leftovers and what is damaged, so that neither counts among those to keep."""
        if self.folder.is_dir():
            with contextlib.suppress(OSError):
                clear_leftovers(self.folder)
            for step in self.steps():
                if step in self._damaged or not is_store(self._generation(step)):
                    self.remove(step)
        self._damaged.clear()

    def remove(self, step: int) -> None:
        """Remove a checkpoint if that can be: that an old one stays a while is no reason to end a run."""
        with contextlib.suppress(OSError):
            remove_folder(self._generation(step))

    def _generation(self, step: int) -> Path:
        return self.folder / f"{step:06d}"


def read_checkpoint(folder: Path, wanted: Callable[[str], bool] = lambda group: True) -> Store:
    """A checkpoint, whole or in parts, with mapped tensors; of its groups of tensors, those that are wanted."""
    return read_store(folder, kind=KIND, version=IN_PARTS, mapped=True, wanted=wanted)
