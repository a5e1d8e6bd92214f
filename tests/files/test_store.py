"""Stores: what goes in comes out, exactly; whatever is wrong with the files is noticed and said."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from kgem.errors import ArtifactError, Damaged
from kgem.files import atomic, store
from kgem.files.store import read_store, write_store

DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
]


def content(seed: int = 0) -> tuple[dict[str, Tensor], dict[str, Any]]:
    noise = torch.Generator().manual_seed(seed)
    tensors = {
        "entities": torch.randn(7, 6, generator=noise),
        "em/means": torch.randn(7, 6, generator=noise).double(),
        "em/noise": noise.get_state(),
    }
    return tensors, {"config": {"dim": 3, "seed": seed}, "vocabulary": ["", "Åland", "日本", 'a\t"b']}


def write(folder: Path, seed: int = 0, **kwargs: Any) -> None:
    write_store(folder, *content(seed), **{"kind": "model", "version": 3, **kwargs})


def read(folder: Path, **kwargs: Any) -> store.Store:
    return read_store(folder, **{"kind": "model", "version": 3, **kwargs})


def same_bits(one: Tensor, other: Tensor) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return one.contiguous().numpy(force=True).tobytes() == other.contiguous().numpy(force=True).tobytes()


def assert_holds(folder: Path, seed: int) -> None:
    """The folder has exactly the content of this seed, and nothing is left beside it."""
    tensors, documents = content(seed)
    found = read(folder)
    assert found.documents == documents
    assert found.tensors.keys() == tensors.keys()
    assert all(same_bits(found.tensors[name], tensor) for name, tensor in tensors.items())
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_round_trip_and_files(tmp_path: Path) -> None:
    write(tmp_path / "a" / "model")
    assert_holds(tmp_path / "a" / "model", 0)
    names = set(snapshot(tmp_path / "a" / "model"))
    data = {"tensors.safetensors", "em.safetensors", "config.json", "vocabulary.json"}
    assert names == data | {"manifest.json", "manifest.sha256"}
    manifest = read(tmp_path / "a" / "model").manifest
    assert (manifest.kind, manifest.version, set(manifest.files)) == ("model", 3, data)
    record = manifest.files["config.json"]
    content_of_file = (tmp_path / "a" / "model" / "config.json").read_bytes()
    assert (record.sha256, record.size) == (hashlib.sha256(content_of_file).hexdigest(), len(content_of_file))


def test_whoever_may_read_the_folder_may_read_its_files(tmp_path: Path) -> None:
    write(tmp_path / "s")
    (tmp_path / "plain.txt").write_text("")
    usual = (tmp_path / "plain.txt").stat().st_mode & 0o777
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "s").iterdir()} == {usual}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_keeps_every_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    size = torch.empty(0, dtype=dtype).element_size()
    noise = torch.randint(0, 2 if dtype == torch.bool else 256, (24 * size,), dtype=torch.uint8)
    given = noise.view(dtype).reshape(4, 6)  # any bits at all: NaNs with a payload, negative zeros
    shapes = {"table": given, "scalar": given[0, 0], "empty": given[:0], "column": given[:, 1], "turned": given.T}
    write_store(tmp_path / "s", shapes, {}, kind="k", version=1)
    found = read_store(tmp_path / "s", kind="k", version=1).tensors
    assert found.keys() == shapes.keys()
    for name, tensor in shapes.items():
        assert found[name].dtype == dtype
        assert found[name].shape == tensor.shape
        bits = tensor.contiguous().reshape(-1).view(torch.uint8)
        assert torch.equal(found[name].contiguous().reshape(-1).view(torch.uint8), bits)


def test_tensors_come_back_as_torch_would_make_them(tmp_path: Path) -> None:
    """Products of unaligned tables may round differently: a resumed run must not get such ones."""
    tensors = {f"g/{n}": torch.randn(n, 3) for n in range(1, 9)} | {"odd": torch.zeros(3, dtype=torch.uint8)}
    write_store(tmp_path / "s", tensors, {}, kind="k", version=1)
    for tensor in read_store(tmp_path / "s", kind="k", version=1).tensors.values():
        assert tensor.data_ptr() % 64 == 0
        assert tensor.is_contiguous()
        tensor.add_(1)  # and may be changed


def test_mapped_tensors_are_the_files_and_outlive_them(tmp_path: Path) -> None:
    """Of a checkpoint that is larger than memory only what is copied from is read; a fit then removes old ones."""
    write(tmp_path / "a")
    copied, mapped = read(tmp_path / "a"), read(tmp_path / "a", mapped=True)
    write(tmp_path / "a", seed=1)
    shutil.rmtree(tmp_path / "a")
    assert mapped.tensors.keys() == copied.tensors.keys()
    for name, tensor in copied.tensors.items():
        assert same_bits(mapped.tensors[name], tensor)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux")
def test_mapped_tensors_take_no_memory_until_they_are_looked_at(tmp_path: Path) -> None:
    write_store(tmp_path / "a", {"large": torch.ones(2**22)}, {}, kind="model", version=3)
    mapped = read(tmp_path / "a", mapped=True)
    maps = Path("/proc/self/smaps").read_text().split("tensors.safetensors")[1]
    private = next(line for line in maps.splitlines() if line.startswith("Private_Dirty"))
    assert mapped.tensors["large"].sum() == 2**22 and private.split()[1] == "0"


def test_shared_conjugated_and_trained_tensors(tmp_path: Path) -> None:
    table = torch.randn(5, 4, requires_grad=True)
    complex_table = torch.randn(3, 2, dtype=torch.complex64)
    tensors = {"a": table, "best/a": table, "rows": table[1:3], "conjugate": complex_table.conj()}
    write_store(tmp_path / "s", tensors, {}, kind="k", version=1)
    found = read_store(tmp_path / "s", kind="k", version=1).tensors
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())
    assert not found["a"].requires_grad


def test_documents_keep_numbers_order_and_odd_text(tmp_path: Path) -> None:
    document = {
        "z": 0.1 + 0.2,
        "a": float("-inf"),
        "big": 2**70,
        "lone": "\udcff",
        "nested": [[], {}, None, True, "\0"],
    }
    write_store(tmp_path / "s", {}, {"d": document, "text": "x"}, kind="k", version=1)
    found = read_store(tmp_path / "s", kind="k", version=1).documents
    assert found == {"d": document, "text": "x"}
    assert list(found["d"]) == list(document)


def test_equal_content_gives_equal_bytes(tmp_path: Path) -> None:
    write(tmp_path / "a")
    tensors, documents = content()
    backwards = dict(reversed(tensors.items())), dict(reversed(documents.items()))
    write_store(tmp_path / "b", *backwards, kind="model", version=3)
    assert snapshot(tmp_path / "a") == snapshot(tmp_path / "b")


@pytest.mark.parametrize("mapped", [False, True])
def test_a_flipped_bit_anywhere_is_noticed(tmp_path: Path, mapped: bool) -> None:
    """In each file, at every byte of small ones and at 75 places and more of the others."""
    write(tmp_path / "s")
    for path in (tmp_path / "s").iterdir():
        good = path.read_bytes()
        for place in {*range(0, len(good), 1 + len(good) // 150), len(good) - 1}:
            bad = bytearray(good)
            bad[place] ^= 1 << place % 8
            path.write_bytes(bad)
            with pytest.raises(Damaged):
                read(tmp_path / "s", mapped=mapped)
        path.write_bytes(good)
    assert_holds(tmp_path / "s", 0)


def test_cut_short_longer_or_missing(tmp_path: Path) -> None:
    write(tmp_path / "s")
    for path in (tmp_path / "s").iterdir():
        good = path.read_bytes()
        for length in (0, 1, len(good) // 2, len(good) - 1):
            path.write_bytes(good[:length])
            with pytest.raises(Damaged, match=r"cut short|does not agree"):
                read(tmp_path / "s")
        path.write_bytes(good + b"\0")
        with pytest.raises(Damaged, match=r"longer|does not agree"):
            read(tmp_path / "s")
        path.unlink()
        with pytest.raises(Damaged, match=f"{path.name}: is missing\n  restore"):
            read(tmp_path / "s")
        path.write_bytes(good)
    (tmp_path / "s" / "notes.txt").write_text("not ours")
    assert read(tmp_path / "s").documents == content()[1]


def test_two_good_files_exchanged_are_noticed(tmp_path: Path) -> None:
    write(tmp_path / "a", 1)
    write(tmp_path / "b", 2)
    shutil.copy(tmp_path / "a" / "em.safetensors", tmp_path / "b" / "em.safetensors")
    with pytest.raises(Damaged, match=r"em.safetensors: is damaged"):
        read(tmp_path / "b")


def test_wrong_kind_newer_older_and_absent(tmp_path: Path) -> None:
    write(tmp_path / "s")
    with pytest.raises(ArtifactError, match="this is a model, not a checkpoint") as caught:
        read(tmp_path / "s", kind="checkpoint")
    assert not isinstance(caught.value, Damaged)
    with pytest.raises(ArtifactError, match=r"has format 3.*\n.*upgrade") as caught:
        read(tmp_path / "s", version=2)
    assert not isinstance(caught.value, Damaged)
    assert read(tmp_path / "s", version=4).manifest.version == 3
    for nowhere in (tmp_path / "t", tmp_path / "s" / "config.json" / "x"):
        with pytest.raises(ArtifactError, match="there is no model here"):
            read(nowhere)
    with pytest.raises(Damaged, match=r"config.json/manifest.json: is missing"):
        read(tmp_path / "s" / "config.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(Damaged, match=r"manifest.json: is missing"):
        read(tmp_path / "empty")


def forge(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the manifest as someone would who knows about the seal."""
    manifest = json.loads((folder / "manifest.json").read_text())
    changed = change(manifest)
    text = json.dumps(manifest if changed is None else changed).encode()
    (folder / "manifest.json").write_bytes(text)
    (folder / "manifest.sha256").write_text(f"{hashlib.sha256(text).hexdigest()}  manifest.json\n")


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["files"].update({"../secret.json": {"sha256": "", "size": 0}}),
        lambda m: m["files"].update({"/etc/x.json": {"sha256": "", "size": 0}}),
        lambda m: m["files"].update({"run.sh": {"sha256": "", "size": 0}}),
        lambda m: m["files"].update({"a.json": {"sha256": ""}}),
        lambda m: m.pop("kind") and None,
        lambda m: m.update(version="new"),
        lambda m: m.update(files=[]),
        lambda m: [],
    ],
)
def test_a_manifest_that_kgem_did_not_write(tmp_path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    (tmp_path / "secret.json").write_text("1")
    write(tmp_path / "s")
    forge(tmp_path / "s", change)
    with pytest.raises(Damaged, match="not a manifest that kgem wrote"):
        read(tmp_path / "s")


@pytest.mark.parametrize(
    ("name", "what"), [("config.json", "not JSON"), ("em.safetensors", "not in safetensors format")]
)
def test_hashes_that_fit_a_wrong_content(tmp_path: Path, name: str, what: str) -> None:
    write(tmp_path / "s")
    (tmp_path / "s" / name).write_bytes(b"{{{{{{{{{{{{")
    record = {"sha256": hashlib.sha256(b"{" * 12).hexdigest(), "size": 12}
    forge(tmp_path / "s", lambda m: m["files"].update({name: record}))
    with pytest.raises(Damaged, match=what):
        read(tmp_path / "s")


@pytest.mark.parametrize("name", ["", "/a", "a/", "a/b/c", "../a", "a b/c", "tensors/a", ".a/b"])
def test_names_of_tensors(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not a name"):
        write_store(tmp_path / "s", {name: torch.zeros(1)}, {}, kind="k", version=1)


@pytest.mark.parametrize("name", ["", "manifest", "../a", ".a", "a/b"])
def test_names_of_documents(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not names"):
        write_store(tmp_path / "s", {}, {name: 1}, kind="k", version=1)


def test_replaces_a_store_but_nothing_else(tmp_path: Path) -> None:
    write(tmp_path / "s", 1)
    write(tmp_path / "s", 2)
    assert_holds(tmp_path / "s", 2)
    mine = tmp_path / "mine"
    mine.mkdir()
    write(mine, 1)  # an empty folder is as good as none
    shutil.rmtree(mine)
    mine.mkdir()
    (mine / "thesis.tex").write_text("years of work")
    with pytest.raises(ArtifactError, match="not overwritten"):
        write(mine)
    assert (mine / "thesis.tex").read_text() == "years of work"
    (tmp_path / "file").write_text("x")
    with pytest.raises(ArtifactError, match="is a file"):
        write(tmp_path / "file")
    with pytest.raises(ArtifactError, match="cannot be written"):
        write(tmp_path / "file" / "s")


def test_through_a_link(tmp_path: Path) -> None:
    write(tmp_path / "real" / "s", 1)
    (tmp_path / "link").symlink_to(tmp_path / "real" / "s")
    write(tmp_path / "link", 2)
    assert (tmp_path / "link").is_symlink()
    assert_holds(tmp_path / "real" / "s", 2)
    assert read(tmp_path / "link").documents == content(2)[1]


def test_all_is_on_disk_before_it_is_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file, then the new folder, then the renames, then the parent: no power cut leaves an empty file."""
    write(tmp_path / "s", 1)
    events: list[str] = []
    sync, rename = os.fsync, Path.rename

    def log_sync(handle: int) -> None:
        events.append(Path(f"/proc/self/fd/{handle}").readlink().name)
        sync(handle)

    def log_rename(self: Path, target: Path) -> Path:
        events.append(f"{self.name} -> {target.name}")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", log_sync)
    monkeypatch.setattr(Path, "rename", log_rename)
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("needs /proc to tell which file is meant")
    write(tmp_path / "s", 2)
    new = ".s.kgem-tmp"
    files = set(snapshot(tmp_path / "s"))
    assert set(events[: len(files)]) == files
    assert events[len(files) :] == [new, "s -> .s.kgem-old", f"{new} -> s", tmp_path.name, f".s.kgem-old -> {new}"]


def test_a_full_disk_at_any_moment_leaves_the_old_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "s", 1)
    sync = os.fsync
    moments = len(snapshot(tmp_path / "s")) + 1  # each file, the folder
    for moment in range(moments):
        calls = iter(range(100))

        def full(handle: int, calls: Any = calls, moment: int = moment) -> None:
            if next(calls) == moment:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            sync(handle)

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(ArtifactError, match=r"the disk is full.*\n.*make room"):
            write(tmp_path / "s", 2)
        assert_holds(tmp_path / "s", 1)
    monkeypatch.setattr(os, "fsync", sync)
    write(tmp_path / "s", 2)
    assert_holds(tmp_path / "s", 2)


def test_an_interrupt_leaves_the_old_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C at either rename, or a document that is not JSON: the old store, and nothing beside it."""
    write(tmp_path / "s", 1)
    rename = Path.rename
    for moment in (0, 1):
        calls = iter(range(100))

        def interrupted(self: Path, target: Path, calls: Any = calls, moment: int = moment) -> Path:
            if next(calls) == moment:
                raise KeyboardInterrupt
            return rename(self, target)

        with monkeypatch.context() as patched:
            patched.setattr(Path, "rename", interrupted)
            with pytest.raises(KeyboardInterrupt):
                write(tmp_path / "s", 2)
        assert_holds(tmp_path / "s", 1)
    with pytest.raises(TypeError):
        write_store(tmp_path / "s", {}, {"d": object()}, kind="k", version=1)
    assert_holds(tmp_path / "s", 1)


def run(script: str, *arguments: object, wrapper: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    helpers = f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\nimport test_store as t\n"
    command = [*wrapper, sys.executable, "-c", helpers + textwrap.dedent(script), *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment, check=False)


def test_a_really_full_disk(tmp_path: Path) -> None:
    """A disk of 300 kB of its own, where the system allows that: safetensors and the documents both hit its end."""
    wrapper = ("unshare", "--map-root-user", "--mount")
    if not shutil.which("unshare") or subprocess.run([*wrapper, "true"], capture_output=True, check=False).returncode:
        pytest.skip("may not mount here")
    script = """
        import subprocess, torch
        from pathlib import Path
        disk = Path(sys.argv[1])
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", disk], check=True)
        t.write(disk / "s", 1)
        for tensors, documents in (({"a": torch.zeros(200_000)}, {}), ({}, {"d": "x" * 400_000})):
            try:
                t.write_store(disk / "s", tensors, documents, kind="model", version=3)
            except t.ArtifactError as error:
                print(error.what)
            t.assert_holds(disk / "s", 1)
        t.write(disk / "s", 2)
        t.assert_holds(disk / "s", 2)
    """
    done = run(script, tmp_path, wrapper=wrapper)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["the disk is full: nothing was written"] * 2


def test_killed_at_every_single_step(tmp_path: Path) -> None:
    """A child dies, without any clean-up, at its k-th touch of the file system, for all k: old or new, never else."""
    script = """
        import os
        from pathlib import Path
        folder = Path(sys.argv[1]) / "s"
        TOUCHES = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.scandir", "shutil.rmtree"}

        def dies_at(k):
            seen = 0
            def hook(event, arguments):
                nonlocal seen
                if event in TOUCHES and "site-packages" not in str(arguments):
                    seen += 1
                    if seen > k:
                        os._exit(9)
            sys.addaudithook(hook)

        t.write(folder, 1)
        t.read(folder)
        previous, outcomes, k = 1, [], 0
        while True:
            seed = 2 + k
            child = os.fork()
            if child == 0:
                dies_at(k)
                t.write(folder, seed)
                os._exit(0)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            assert code in (0, 9), code
            found = t.read(folder).documents["config"]["seed"]  # as the crash left it
            assert found in (previous, seed), (k, found)
            assert t.atomic.folders_in(folder.parent) == {"s"}
            t.atomic.clear_leftovers(folder.parent)
            t.assert_holds(folder, found)
            outcomes.append("new" if found == seed else "old")
            previous, k = found, k + 1
            if code == 0:
                break
        print(*outcomes)
    """
    done = run(script, tmp_path)
    assert done.returncode == 0, done.stderr
    outcomes = done.stdout.split()
    assert len(outcomes) > 20
    assert outcomes.count("old") > 10
    assert outcomes.count("new") > 3  # killed while the old one was being removed


def test_a_writer_puts_back_what_a_killed_one_moved_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "s", 1)
    (tmp_path / "s").rename(tmp_path / ".s.kgem-old")
    shutil.copytree(tmp_path / ".s.kgem-old", tmp_path / ".s.kgem-tmp")
    assert read(tmp_path / "s").documents == content(1)[1]
    assert atomic.folders_in(tmp_path) == {"s"}

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patched, pytest.raises(ArtifactError, match="disk is full"):
        patched.setattr(os, "fsync", full)
        write(tmp_path / "s", 2)
    assert_holds(tmp_path / "s", 1)


def test_remove_is_all_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "s")
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", lambda *_, **__: None)  # killed before anything is deleted
        atomic.remove_folder(tmp_path / "s")
    assert atomic.folders_in(tmp_path) == set()
    atomic.clear_leftovers(tmp_path)
    atomic.remove_folder(tmp_path / "s")  # not there: nothing to do
    assert not list(tmp_path.iterdir())


def test_reading_while_others_write(tmp_path: Path) -> None:
    """Two writers and a reader at once: every read gives one of the contents, whole."""
    folder = tmp_path / "s"
    write(folder, 0)
    failures: list[BaseException] = []

    def writer(seeds: range) -> None:
        try:
            for seed in seeds:
                write(folder, seed)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=writer, args=(seeds,)) for seeds in (range(1, 11), range(11, 21))]
    for thread in threads:
        thread.start()
    reads = 0
    while any(thread.is_alive() for thread in threads):
        found = read(folder)
        tensors, documents = content(found.documents["config"]["seed"])
        assert found.documents == documents
        assert all(same_bits(found.tensors[name], tensor) for name, tensor in tensors.items())
        reads += 1
    for thread in threads:
        thread.join()
    assert not failures
    assert reads > 3
    assert read(folder).documents["config"]["seed"] in (10, 20)


def test_importing_it_does_not_import_torch() -> None:
    command = "import sys, kgem.files.store, kgem.files.checkpoints; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", command], check=False).returncode == 0
