"""Locks between processes: a descriptor that is locked while it is open, and one process per run folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from kgem.errors import ArtifactError, InputError, RunBusy

__all__ = ["RunLock", "open_locked"]

LOCK = ".lock"


@contextlib.contextmanager
def open_locked(path: Path, flags: int, lock: int) -> Iterator[int]:
    """A descriptor of a file or folder with fcntl's LOCK_SH or LOCK_EX; the system unlocks it when a process dies."""
    handle = os.open(path, flags | os.O_CLOEXEC, 0o666)
    try:
        with contextlib.suppress(OSError):  # some network disks cannot lock
            fcntl.flock(handle, lock)
        yield handle
    finally:
        os.close(handle)


class RunLock:
    """Keeps other processes out of a run folder while inside; the system lets go of it when the process dies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._handle: int | None = None

    def __enter__(self) -> RunLock:
        handle = self._open()
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise self._busy(handle) from error
        except OSError as error:
            os.close(handle)
            raise self._cannot_lock(error) from error
        with contextlib.suppress(OSError):  # a full disk: the lock holds without the number
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        self._handle = handle
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go; the file stays, because a process that is waiting to open it must find the same one."""
        if self._handle is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._handle, 0)
            os.close(self._handle)
            self._handle = None

    def _open(self) -> int:
        try:
            return os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError as error:
            raise InputError("there is no such run folder", where=str(self.folder), remedy="check the path") from error
        except OSError as error:
            raise self._cannot_lock(error) from error

    def _busy(self, handle: int) -> RunBusy:
        number = os.pread(handle, 20, 0).decode(errors="replace").strip()
        os.close(handle)
        who = f"process {number}" if number else "another process"
        remedy = "wait until it has ended, stop it, or give another folder"
        return RunBusy(f"{who} is working in this run folder", where=str(self.folder), remedy=remedy)

    def _cannot_lock(self, error: OSError) -> ArtifactError:
        remedy = "check the folder's permissions, or use a folder on a local disk"
        return ArtifactError(f"cannot be locked: {error.strerror}", where=str(self.folder / LOCK), remedy=remedy)
