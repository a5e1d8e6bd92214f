"""The epochs of a fit as TensorBoard shows them: numbers by phase, and how the learned strengths are distributed."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgem.errors import ConfigError, InputError
from kgem.settings import to_toml

if TYPE_CHECKING:
    from kgem.train.phases import ThreePhases
    from kgem.train.point_estimate import EpochRecord

__all__ = ["TensorBoard", "check_installed", "numbers_of"]

FLUSH_SECONDS = 10  # what is shown is at most so old
LOG = logging.getLogger(__name__)


def numbers_of(record: EpochRecord) -> dict[str, float | None]:
    """What an epoch amounted to, by name; what is not a finite number is None."""
    own = {name: getattr(record, name) for name in ("loss", "mrr", "best", "rate", "seconds")}
    numbers: dict[str, float | None] = own | dict(record.extra)
    return {name: x if x is not None and math.isfinite(x) else None for name, x in numbers.items()}


class TensorBoard:
    """Writes a folder that `tensorboard --logdir` shows, until it is closed; the extra must be installed.

    Steps are epochs, counted over all phases. A fit that goes on after `done` of them continues its curves; what was
    written of later ones is dropped. Where events can no longer be written there is a warning, and the fit goes on.
    """

    def __init__(self, folder: str | Path, done: int = 0) -> None:
        self._folder = Path(folder)
        self._done = done
        make = _writer()
        try:
            self._writer = make(str(folder), purge_step=done + 1 if done else None, flush_secs=FLUSH_SECONDS)
        except OSError as error:
            what = f"events for TensorBoard cannot be written: {error.strerror or error}"
            raise InputError(what, where=str(folder), remedy="choose a folder that you can write to") from error

    def write(self, phases: ThreePhases, phase: str, record: EpochRecord) -> None:
        """Add an epoch, while the phases stand as they were after it."""
        if self._writer is None:
            return
        try:
            self._add(phases, phase, numbers_of(record))
        except OSError as error:
            LOG.warning("%s: no more events for TensorBoard: %s", self._folder, error.strerror or error)
            self._writer = None

    def _add(self, phases: ThreePhases, phase: str, numbers: Mapping[str, float | None]) -> None:
        """Add the numbers of an epoch and, in EM, the strengths as they are after it."""
        if not self._done:
            text = "".join(f"    {line}\n" for line in to_toml(phases.config).splitlines())  # as code in Markdown
            self._writer.add_text("settings", text, 0)
        self._done += 1
        for name, value in numbers.items():
            if value is not None:
                self._writer.add_scalar(f"{phase}/{name}", value, self._done)
        if phase == "em" and phases.em is not None:
            for kind, strengths in zip(("entities", "relations"), phases.em.strengths, strict=True):
                logs = strengths.detach().log10().cpu()  # they span orders of magnitude
                self._writer.add_histogram(f"em/log10 strengths of {kind}", logs, self._done)

    def close(self) -> None:
        """Write what is still in memory."""
        if self._writer is not None:
            try:
                self._writer.close()
            except OSError as why:
                LOG.warning("%s: not all events for TensorBoard are written: %s", self._folder, why.strerror or why)


def check_installed() -> None:
    """An error if there is no TensorBoard."""
    _writer()


def _writer() -> Any:
    """torch's writer of events, which needs the package tensorboard."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        remedy = "install it: pip install 'kgem[tensorboard]'"
        raise ConfigError("TensorBoard is not installed", remedy=remedy) from error
    return SummaryWriter
