"""Replaces a file or a folder as a whole: whenever the writer is killed, there is the old one or the new one.

A new file is written under a hidden name beside its place and renamed. A new folder is filled likewise; the old one
steps aside to another hidden name, the new one is renamed into place, the old one goes. `locate` and the next writer
know what to do about each moment in between. Errors are the system's own (OSError): the caller words them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from kgem.files.locks import open_locked

__all__ = ["clear_leftovers", "folders_in", "is_at", "locate", "remove_folder", "replace_folder", "sync", "write_file"]

OLD, TEMPORARY = "kgem-old", "kgem-tmp"  # stepped aside, still good; not yet whole or no longer wanted
_ASIDE = re.compile(rf"\.(?P<name>.+)\.(?P<role>{OLD}|{TEMPORARY})")


@contextlib.contextmanager
def write_file(path: Path) -> Iterator[IO[bytes]]:
    """A binary stream whose content becomes the file, in place of the one that may be there, if all goes well."""
    _remove_unfinished(path)
    new, file = _open_unfinished(path)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            new.replace(path)  # before it is closed: until then nobody takes it for one that a killed writer left
        sync(path.parent)
    finally:
        with contextlib.suppress(OSError):
            new.unlink()


@contextlib.contextmanager
def replace_folder(folder: Path) -> Iterator[Path]:
    """An empty folder to fill with files; it takes the place of `folder` if all goes well."""
    place = _place(folder)
    place.parent.mkdir(parents=True, exist_ok=True)
    with _sole_writer(place.parent) as parent:
        _recover(place)
        new = _aside(place, TEMPORARY)
        try:
            new.mkdir()
            yield new
            for path in (*new.iterdir(), new):
                sync(path)
            if place.exists():
                place.rename(_aside(place, OLD))
            new.rename(place)
            os.fsync(parent)
        finally:
            _recover(place)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def locate(folder: Path) -> tuple[Path, int] | None:
    """Where the folder is now, aside if a replacement was cut off, and a descriptor of it, for the caller to close."""
    place = _place(folder)
    for candidate in (place, _aside(place, OLD), place):  # a writer may finish between the first two looks
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return candidate, os.open(candidate, os.O_RDONLY)
    return None


def is_at(handle: int, place: Path) -> bool:
    """Whether the folder with this descriptor is still there; while it is open, no other one can be taken for it."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return os.path.samestat(os.fstat(handle), place.stat())
    return False


def remove_folder(folder: Path) -> None:
    """Remove a folder, if it is there, at once: if this is killed midway, it is gone all the same."""
    place = _place(folder)
    with _sole_writer(place.parent):
        _recover(place)
        with contextlib.suppress(FileNotFoundError):
            place.rename(_aside(place, TEMPORARY))
        _recover(place)


def clear_leftovers(parent: Path) -> None:
    """Remove what killed writers left in this folder, and put back what they had moved aside."""
    with _sole_writer(parent):
        for name in {match["name"] for match in _asides(parent)}:
            _recover(parent / name)


def folders_in(parent: Path) -> set[str]:
    """The names of the folders in this one, with those that a killed writer had moved aside."""
    here = {path.name for path in parent.iterdir() if path.is_dir() and not _ASIDE.fullmatch(path.name)}
    return here | {match["name"] for match in _asides(parent) if match["role"] == OLD}


def _open_unfinished(path: Path) -> tuple[Path, IO[bytes]]:
    """A new file under a hidden name beside the path, locked as long as it is open."""
    while True:
        new = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.{TEMPORARY}")
        file = new.open("xb")
        with contextlib.suppress(OSError):  # some network disks cannot lock
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return new, file
        file.close()  # another writer found it before it was locked


def _remove_unfinished(path: Path) -> None:
    """Remove what killed writers of this file left: what nobody holds a lock on."""
    unfinished = re.compile(rf"\.{re.escape(path.name)}\.\d+-[0-9a-f]{{8}}\.{TEMPORARY}")
    with contextlib.suppress(OSError):
        for found in [each for each in path.parent.iterdir() if unfinished.fullmatch(each.name)]:
            with contextlib.suppress(OSError), found.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found.unlink()


def _place(folder: Path) -> Path:
    """Where the folder really is, so that its siblings are beside it."""
    return folder.resolve() if folder.is_symlink() or folder.name in ("", "..") else folder


def _aside(place: Path, role: str) -> Path:
    return place.with_name(f".{place.name}.{role}")


def _asides(parent: Path) -> list[re.Match[str]]:
    return [match for path in parent.iterdir() if (match := _ASIDE.fullmatch(path.name))]


def _recover(place: Path) -> None:
    """Tidy up after a writer, whatever moment it ended at: a folder that stepped aside goes back or goes for good."""
    old, temporary = _aside(place, OLD), _aside(place, TEMPORARY)
    shutil.rmtree(temporary, ignore_errors=True)
    if old.exists():
        old.rename(temporary if place.exists() else place)
        shutil.rmtree(temporary, ignore_errors=True)


def _sole_writer(parent: Path) -> contextlib.AbstractContextManager[int]:
    """The folder, open and locked against other writers."""
    return open_locked(parent, os.O_RDONLY, fcntl.LOCK_EX)
