"""A file is replaced as a whole or not at all; test_store.py and test_checkpoints.py have the same for folders."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kgem.files.atomic import write_file
from kgem.runs.run import check_free


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_whole_and_replaces_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    for content in (b"first", b"second"):
        before = path.read_bytes() if path.exists() else None
        with write_file(path) as file:
            file.write(content)
            file.flush()
            assert (path.read_bytes() if path.exists() else None) == before
        assert path.read_bytes() == content
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("moment", [0, 1])
def test_a_full_disk_or_an_interrupt_leaves_nothing_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """At the file itself the old one stays; at its folder the new one is in place already."""
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")
    sync, calls = os.fsync, iter(range(9))

    def full(handle: int) -> None:
        if next(calls) == moment:
            raise OSError(errno.ENOSPC, "full")
        sync(handle)

    with monkeypatch.context() as patched, pytest.raises(OSError, match="full"), write_file(path) as file:
        patched.setattr(os, "fsync", full)
        file.write(b"new")
    assert path.read_bytes() == (b"old", b"new")[moment]
    with pytest.raises(KeyboardInterrupt), write_file(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert path.read_bytes() == (b"old", b"new")[moment]
    assert names(tmp_path) == ["a.txt"]


def test_two_writers_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with write_file(path) as one, write_file(path) as other:
        for letter in (b"a", b"b"):
            one.write(letter)
            other.write(letter.upper())
    assert path.read_bytes() == b"ab"  # of the one that ended last
    assert names(tmp_path) == ["a.txt"]


def test_what_a_killed_writer_of_a_file_left_goes_with_the_next_one(tmp_path: Path) -> None:
    code = """
import os, signal, sys
from pathlib import Path
from kgem.files.atomic import write_file
with write_file(Path(sys.argv[1])) as file:
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.txt")], check=False)
    (left,) = names(tmp_path)
    with write_file(tmp_path / "a.txt.gz") as file:  # another file: it may have a writer of its own
        file.write(b"other")
    assert left in names(tmp_path)
    with write_file(tmp_path / "a.txt") as file, write_file(tmp_path / "a.txt") as other:  # nor one that is at work
        file.write(b"new")
        other.write(b"newer")
    assert names(tmp_path) == ["a.txt", "a.txt.gz"] and (tmp_path / "a.txt").read_bytes() == b"new"


def test_what_a_killed_writer_leaves_is_known_as_such(tmp_path: Path) -> None:
    """A run may begin in a folder with such leftovers and nothing else."""
    code = """
import os, signal, sys
from pathlib import Path
from kgem.files.atomic import replace_folder, write_file
folder = Path(sys.argv[1])
with replace_folder(folder / "graph"), write_file(folder / "config.toml"):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    left = names(tmp_path)
    assert len(left) == 2 and all(name.startswith(".") for name in left)
    check_free(tmp_path, force=False)
