"""Locks between processes: a descriptor that is locked while it is open, and one process per run folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from kgem.errors import ArtifactError, InputError, RunBusy

__all__ = ["is_locked", "lock_run", "open_locked"]

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


@contextlib.contextmanager
def lock_run(folder: Path) -> Iterator[None]:
    """Keeps other processes out of a run folder while inside; the system lets go of it when the process dies."""
    path = folder / LOCK
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except FileNotFoundError as error:
        raise InputError("there is no such run folder", where=str(folder), remedy="check the path") from error
    except OSError as error:
        raise _cannot_lock(path, error) from error
    try:
        _take(handle, folder)
        with contextlib.suppress(OSError):  # a full disk: the lock holds without the number
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        try:
            yield
        finally:  # the file stays, because a process that is waiting to open it must find the same one
            with contextlib.suppress(OSError):
                os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def is_locked(folder: Path) -> bool:
    """Whether a process works in a run folder now."""
    try:
        handle = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # some network disks cannot lock
        return False
    finally:
        os.close(handle)
    return False


def _take(handle: int, folder: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        number = os.pread(handle, 20, 0).decode(errors="replace").strip()
        who = f"process {number}" if number else "another process"
        remedy = "wait until it has ended, stop it, or give another folder"
        raise RunBusy(f"{who} is working in this run folder", where=str(folder), remedy=remedy) from error
    except OSError as error:
        raise _cannot_lock(folder / LOCK, error) from error


def _cannot_lock(path: Path, error: OSError) -> ArtifactError:
    remedy = "check the folder's permissions, or use a folder on a local disk"
    return ArtifactError(f"cannot be locked: {error.strerror}", where=str(path), remedy=remedy)
