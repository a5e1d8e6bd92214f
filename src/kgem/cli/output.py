"""Where commands write: nothing is overwritten unless asked for, and files appear whole or not at all."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kgem.errors import InputError
from kgem.files.atomic import remove_folder, replace_folder, sync
from kgem.report.formatting import list_some

SHOWN = 4  # names of files in an error


def refuse_existing(path: Path, force: bool) -> None:
    """An error if a file is there already and may not be overwritten, or its folder is not there."""
    if path.exists() and not force:
        raise InputError("is there already", where=str(path), remedy="choose another name, or overwrite it: --force")
    if not path.absolute().parent.is_dir():
        raise InputError("there is no such folder", where=str(path.parent), remedy="make it first")


def refuse_taken(folder: Path, force: bool) -> None:
    """An error if what should be a folder is none, or has files in it that may not be overwritten."""
    if folder.exists() and not folder.is_dir():
        raise InputError("is a file, not a folder", where=str(folder), remedy="name a folder")
    taken = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if taken and not force:
        raise InputError(
            f"the folder has files in it ({list_some(taken, SHOWN)})",
            where=str(folder),
            remedy="choose another folder, or overwrite what has the same name: --force",
        )


@contextmanager
def fill_folder(target: Path) -> Iterator[Path]:
    """An empty folder; what is written to it goes to `target` when all went well, beside what is there already."""
    target = target.absolute()  # '.' has neither a name nor a parent
    try:
        if not target.exists():
            with replace_folder(target) as fresh:
                yield fresh
            return
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as scratch:
            fresh = Path(scratch)
            yield fresh
            _refuse_strangers(target, fresh)
            for path in sorted(fresh.iterdir()):
                sync(path)  # before it takes the place of one that is whole
                if path.is_dir() and (target / path.name).is_dir():
                    remove_folder(target / path.name)
                path.replace(target / path.name)
            sync(target)
    except OSError as error:
        remedy = "choose a folder that you can write to, on a disk with room"
        raise InputError(f"cannot be written: {error.strerror or error}", where=str(target), remedy=remedy) from error


def _refuse_strangers(target: Path, fresh: Path) -> None:
    """An error if a file that stays would be taken for a split of the graph that is written."""
    from kgem.data.sources import ALIASES, OPENKE

    new = {path.name for path in fresh.iterdir()}
    old = {path.name for path in target.iterdir()} - new
    strange = sorted(name for name in old if name.split(".")[0].casefold() in ALIASES or name in OPENKE)
    if strange:
        raise InputError(
            f"{list_some(strange, SHOWN)} would be taken for a part of the graph that is written",
            where=str(target),
            remedy="move it away, or choose another folder",
        )
