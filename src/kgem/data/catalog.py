"""Benchmark graphs by name: where their files are, here or in public, verified when they are downloaded."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import os
import shutil
import tarfile
import tempfile
import tomllib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any

from kgem.data.cache import cache_folder
from kgem.errors import CatalogError
from kgem.files.atomic import replace_folder
from kgem.files.store import hash_file

__all__ = ["CATALOG", "Counts", "Entry", "Remote", "fetch", "find_entry", "graphs_folder", "locate"]

FILES = {"train": "train.txt", "valid": "valid.txt", "test": "test.txt"}
TIMEOUT = 30  # seconds without an answer


@dataclass(frozen=True)
class Remote:
    """A public file: its path below the entry's base address; "sha256:" or "git-blob:" and the digest."""

    path: str
    digest: str


@dataclass(frozen=True)
class Counts:
    """How large the graph is once read."""

    entities: int
    relations: int
    train: int
    valid: int
    test: int


@dataclass(frozen=True)
class Entry:
    """One graph: three public files, or one archive with three members, or none where there is no address."""

    name: str
    citation: str
    licence: str
    counts: Counts
    base: str = ""
    remotes: Mapping[str, Remote] = field(default_factory=dict)  # per split, or one called "archive"
    embedded: bool = False

    @property
    def addresses(self) -> tuple[str, ...]:
        """What is downloaded."""
        return tuple(self.base + remote.path for remote in self.remotes.values())


def _read_catalog() -> dict[str, Entry]:
    text = files("kgem.data").joinpath("catalog.toml").read_text("utf-8")
    entries = {}
    for name, said in tomllib.loads(text).items():
        remotes = {split: Remote(**remote) for split, remote in said.pop("remotes", {}).items()}
        entries[name] = Entry(name, counts=Counts(**said.pop("counts")), remotes=remotes, **said)
    return entries


CATALOG = _read_catalog()


def find_entry(name: str) -> Entry:
    """The entry of that name, whatever its case; an unknown one is an error that suggests others."""
    wanted = name.strip().casefold()
    if wanted in CATALOG:
        return CATALOG[wanted]
    near = difflib.get_close_matches(wanted, CATALOG, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(sorted(CATALOG))}"
    raise CatalogError(f"the catalogue has no graph called {name!r}", remedy=hint)


def graphs_folder() -> Path:
    """Where downloaded graphs are kept, one folder each."""
    return cache_folder().parent / "graphs"


def locate(name: str, *, download: bool = True, progress: Any = None, base: str | None = None) -> dict[str, Path]:
    """The files of a graph by split: from KGEM_DATA, else from the cache, else downloaded.

    The embedded graph is one file, called "all", whose fourth column names the split. `progress` is an object
    as tqdm's (total, update, reset, close); `base` replaces the public address, for a mirror.
    """
    graph = find_entry(name)
    if graph.embedded:
        return {"all": Path(str(files("kgem.data").joinpath(f"{graph.name}.tsv")))}
    given = _find_given(graph)
    if given:
        return given
    kept = _find_files(graphs_folder() / graph.name)
    if kept:
        return kept
    if not download:
        raise _absent(graph, "is not on this machine")
    return fetch(name, progress=progress, base=base)


def fetch(name: str, *, progress: Any = None, base: str | None = None) -> dict[str, Path]:
    """Download a graph into the cache, verify it, and only then put it in its place, whole."""
    graph = find_entry(name)
    if graph.embedded:
        return locate(name)
    if base is not None:
        graph = replace(graph, base=base)
    if not graph.remotes:
        raise _absent(graph, "has no public address")
    target = graphs_folder() / graph.name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{graph.name}-") as folder:
            fresh = Path(folder) / "graph"
            fresh.mkdir()
            _download(graph, fresh, Path(folder), progress)
            with replace_folder(target) as new:
                for file in fresh.iterdir():
                    file.rename(new / file.name)
    except OSError as error:
        raise _absent(graph, f"could not be downloaded ({_reason(error)})") from error
    return {split: target / file for split, file in FILES.items()}


def _find_given(graph: Entry) -> dict[str, Path] | None:
    """The files in the folder that KGEM_DATA names; half a graph there is an error, none is not."""
    value = os.environ.get("KGEM_DATA")
    if not value:
        return None
    root = Path(value).expanduser()
    if not root.is_dir():
        raise CatalogError(
            "KGEM_DATA does not name a folder",
            where=value,
            remedy="set it to a folder with one folder per graph, or unset it",
        )
    folder = root / graph.name
    if not folder.is_dir():
        return None
    found = _find_files(folder)
    if not found:
        lacking = [file for file in FILES.values() if not (folder / file).is_file()]
        raise CatalogError(
            f"the graph {graph.name} lacks {', '.join(lacking)}",
            where=str(folder),
            remedy="put the files there, or remove the folder",
        )
    return found


def _find_files(folder: Path) -> dict[str, Path] | None:
    found = {split: folder / file for split, file in FILES.items()}
    return found if all(path.is_file() for path in found.values()) else None


def _download(graph: Entry, fresh: Path, scratch: Path, progress: Any) -> None:
    """Fill the folder `fresh` with the three files, every download verified."""
    if "archive" not in graph.remotes:
        for split, remote in graph.remotes.items():
            _download_file(graph.base + remote.path, fresh / FILES[split], remote.digest, progress)
        return
    remote = graph.remotes["archive"]
    archive = scratch / "archive.tar.gz"
    _download_file(graph.base + remote.path, archive, remote.digest, progress)
    _extract(archive, fresh, graph.base + remote.path)


def _download_file(url: str, path: Path, digest: str, progress: Any) -> None:
    import pooch  # here and not above: it brings requests, which `kgem --help` can do without

    pooch.HTTPDownloader(progressbar=progress or False, timeout=TIMEOUT)(url, str(path), None)
    kind, _, wanted = digest.partition(":")
    got = DIGESTS[kind](path)
    if got != wanted:
        raise CatalogError(
            f"the download is damaged or has changed: its {kind} is {got}, not {wanted}",
            where=url,
            remedy="try again; nothing of it was kept",
        )


def _git_blob(path: Path) -> str:
    """The id that git gives a file's content: sha1 over a header with its size, then the content."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


DIGESTS = {"sha256": hash_file, "git-blob": _git_blob}


def _extract(archive: Path, fresh: Path, url: str) -> None:
    """Copy the three members, wherever in the archive they are, to names of our own, and nothing else."""
    found: set[str] = set()
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                name = PurePosixPath(member.name).name
                source = tar.extractfile(member) if member.isreg() and name in FILES.values() else None
                if source is None:
                    continue
                if name in found or ".." in PurePosixPath(member.name).parts:
                    raise tarfile.TarError(f"a doubtful member {member.name!r}")
                found.add(name)
                with source, (fresh / name).open("wb") as out:
                    shutil.copyfileobj(source, out)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise CatalogError(f"the archive cannot be read: {error}", where=url, remedy="try again") from error
    lacking = set(FILES.values()) - found
    if lacking:
        raise CatalogError(
            f"the archive has no {', '.join(sorted(lacking))}", where=url, remedy="the source has changed"
        )


def _absent(graph: Entry, why: str) -> CatalogError:
    """The error that says which files to put where."""
    root = os.environ.get("KGEM_DATA")
    folder = (Path(root).expanduser() if root else Path("DIR")) / graph.name
    lines = [f"put {', '.join(FILES.values())} (head<TAB>relation<TAB>tail) into the folder {folder}"]
    if not root:
        lines.append("and set KGEM_DATA=DIR, where DIR is a folder of your choice")
    if graph.remotes:
        lines.append("they are in the archive" if "archive" in graph.remotes else "they are at")
        lines += [f"  {address}" for address in graph.addresses]
    else:
        lines.append(f"origin: {graph.citation}")
    return CatalogError(f"the graph {graph.name} {why}", remedy="\n  ".join(lines))


def _reason(error: OSError) -> str:
    """The first line of a network error, without the layers around it."""
    text = str(error)
    with contextlib.suppress(AttributeError, IndexError, TypeError):
        text = str(error.args[0].reason)
    return text.splitlines()[0] if text else type(error).__name__
