"""Benchmark graphs by name: where their files are, here or in public, verified when they are downloaded."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any

from kgem.data.cache import cache_folder
from kgem.errors import CatalogError
from kgem.files.atomic import replace_folder

__all__ = ["CATALOG", "Counts", "Entry", "Remote", "fetch", "find_entry", "graphs_folder", "locate"]

FILES = {"train": "train.txt", "valid": "valid.txt", "test": "test.txt"}
TIMEOUT = 30  # seconds without an answer

CONVE = "https://github.com/TimDettmers/ConvE/raw/master/"
ROTATE = "https://raw.githubusercontent.com/DeepGraphLearning/KnowledgeGraphEmbedding/master/data/"
CODEX = "https://raw.githubusercontent.com/tsafavi/codex/master/data/triples/"

WORDNET = "WordNet 3.0 licence"
UNSTATED = "not stated"


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


def _three(folder: str, kind: str, train: str, valid: str, test: str) -> dict[str, Remote]:
    digests = {"train": train, "valid": valid, "test": test}
    return {split: Remote(f"{folder}/{FILES[split]}", f"{kind}:{d}") for split, d in digests.items()}


def _archive(path: str, sha256: str) -> dict[str, Remote]:
    return {"archive": Remote(path, f"sha256:{sha256}")}


_ENTRIES = (
    Entry(
        "world",
        "facts about countries; comes with kgem",
        "MIT (countryinfo) and Unicode License V3 (CLDR)",
        Counts(1292, 19, 4055, 386, 386),
        embedded=True,
    ),
    Entry(
        "fb15k",
        "Bordes et al. 2013",
        "CC-BY 2.5 (Freebase)",
        Counts(14951, 1345, 483142, 50000, 59071),
        ROTATE,
        _three(
            "FB15k",
            "sha256",
            "f9cdfd2685f6483bd3a499d433919b15d62f0715c6cf18b2ca30c2aa5c47a704",
            "471929cde9cf74b1caa8348c2b601c8010d6b2f2a56bae49b4ebfd14c9bce855",
            "5b60b4de325482c3368e22d0b7452d465b09a610fea0ce3768d8b1e8b5a7e42a",
        ),
    ),
    Entry(
        "fb15k-237",
        "Toutanova and Chen 2015, as in ConvE",
        "Microsoft research data licence: non-commercial",
        Counts(14541, 237, 272115, 17535, 20466),
        CONVE,
        _archive("FB15k-237.tar.gz", "311df7930f842a02979eaa7a802484a6afe62303c07f915f1e6edbc30cbe05e8"),
    ),
    Entry(
        "wn18",
        "Bordes et al. 2014",
        WORDNET,
        Counts(40943, 18, 141442, 5000, 5000),
        ROTATE,
        _three(
            "wn18",
            "sha256",
            "24c9b02dc57d3ae8ca8467ce355995edee7be8eddc3bd070ee34d3c6fc3c95eb",
            "13347bfb5e17d1cae003e0bfe29b4716d3ab748e8cfb6af997138d37da3a51dc",
            "d22c19d176d4ba6a6f0d0c6bfce39ab3c16e3b20e1df6f9efe0d9ed86542fa10",
        ),
    ),
    Entry(
        "wn18rr",
        "Dettmers et al. 2018 (ConvE)",
        WORDNET,
        Counts(40943, 11, 86835, 3034, 3134),
        CONVE,
        _archive("WN18RR.tar.gz", "1eb9152f804c140d163462c0d49f65e5a0b30ab5fbb375c5e3353c11a6249060"),
    ),
    Entry(
        "umls",
        "Unified Medical Language System, as in ConvE",
        UNSTATED,
        Counts(135, 46, 5216, 652, 661),
        CONVE,
        _archive("umls.tar.gz", "26223aa91f0ec8db2324e0f489b9a4425e04d1d0df72ce5cfd62af4b91aee6fd"),
    ),
    Entry(
        "kinship",
        "kinship of the Alyawarra, as in ConvE",
        UNSTATED,
        Counts(104, 25, 8544, 1068, 1074),
        CONVE,
        _archive("kinship.tar.gz", "a3cb9ca67213eb38133aebc12901195e283d844ebd59f1a6cbf2d4fa12ced4e6"),
    ),
    Entry(
        "nations",
        "relations between nations, as in ConvE",
        UNSTATED,
        Counts(14, 55, 1592, 199, 201),
        CONVE,
        _archive("nations.tar.gz", "feb3e3e027103089934ea7dfb67d2048d8a43e65d6757a86f2e037acb66f640b"),
    ),
    Entry(
        "codex-s",
        "Safavi and Koutra 2020",
        "MIT",
        Counts(2034, 42, 32888, 1827, 1828),
        CODEX,
        _three(
            "codex-s",
            "sha256",
            "64f93b7f314f3936a6f65739721429db3f6a7c8f5a1e1104ec3bb544f7434f59",
            "3831c0e57daef03c3a18cdd1a72e370b496f696c5218883d35c7d2ab8a6a772c",
            "27127fcb34688c4778e88a39ef3c9b540807da846021e9d9685660ac1838aca1",
        ),
    ),
    Entry(
        "codex-m",
        "Safavi and Koutra 2020",
        "MIT",
        Counts(17050, 51, 185584, 10310, 10311),
        CODEX,
        _three(
            "codex-m",
            "sha256",
            "d99c3437ab51690391a26d96976adf6e5494dba7ef6902e77000551bfa566556",
            "11c323096367354940846b9ed940c5dabddc1d20a70474222babe7e7fd28b28d",
            "0575ce05e4ce915e395bb4f708e8df9547989dd4c8c71407cbfd78c19daffcf7",
        ),
    ),
    Entry(
        "codex-l",
        "Safavi and Koutra 2020",
        "MIT",
        Counts(77951, 69, 551193, 30622, 30622),
        CODEX,
        _three(
            "codex-l",
            "git-blob",
            "be8735738ba4728430922c630f25bf01bcc9eaac",
            "3e5cec60786324253038169b05ecec82dc1358a8",
            "1303c431701b3f0d2e116467c7fb7b0f210ce869",
        ),
    ),
    Entry(
        "yago3-10",
        "Mahdisoltani et al. 2015, as in ConvE and RotatE",
        UNSTATED,
        Counts(123182, 37, 1079040, 5000, 5000),
        ROTATE,
        _three(
            "YAGO3-10",
            "git-blob",
            "1543056ff5af6d3bf841510129529e91e9a8627c",
            "c9fd7c76478e901e3fc09bed0fdf19a8a3020b56",
            "509c864adc123211e6372bc1a4833d05b9d1b8b3",
        ),
    ),
    Entry(
        "fb13",
        "Socher et al. 2013, the positive facts",
        UNSTATED,
        Counts(75043, 13, 316232, 5908, 23733),
    ),
)
CATALOG: dict[str, Entry] = {each.name: each for each in _ENTRIES}


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


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _git_blob(path: Path) -> str:
    """The id that git gives a file's content: sha1 over a header with its size, then the content."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


DIGESTS = {"sha256": _sha256, "git-blob": _git_blob}


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
