"""Where commands write: what replaces a file is on disk before it does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kgem.cli.output import fill_folder


def test_a_file_is_on_disk_before_it_takes_the_place_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.txt").write_text("old")
    synced: list[tuple[int, str]] = []  # inode, and what the old place held then
    monkeypatch.setattr(
        os, "fsync", lambda handle: synced.append((os.fstat(handle).st_ino, (tmp_path / "out" / "a.txt").read_text()))
    )
    with fill_folder(tmp_path / "out") as fresh:
        (fresh / "a.txt").write_text("new")
    inode = (tmp_path / "out" / "a.txt").stat().st_ino
    assert synced == [(inode, "old"), ((tmp_path / "out").stat().st_ino, "new")]
