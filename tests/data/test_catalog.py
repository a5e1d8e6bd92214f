"""The catalogue: right numbers, KGEM_DATA first, downloads verified and never half used."""

from __future__ import annotations

import hashlib
import io
import os
import socket
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kgem.data import catalog
from kgem.data.catalog import CATALOG, Remote, fetch, find_entry, graphs_folder, locate
from kgem.errors import CatalogError

TEXT = {"train": b"a\tr\tb\nb\tr\tc\n", "valid": b"a\tr\tc\r\n", "test": "ä\tr\tb\n".encode()}
CONTENT = {f"{split}.txt": text for split, text in TEXT.items()}


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGEM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KGEM_DATA", raising=False)
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)


class Site:
    """A web server on this machine: what it has, and what it was asked for."""

    def __init__(self) -> None:
        self.pages: dict[str, bytes] = {}
        self.cut: set[str] = set()  # pages whose body stops half way
        self.asked: list[str] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.lstrip("/")
                site.asked.append(path)
                body = site.pages.get(path)
                if body is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: len(body) // 2] if path in site.cut else body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self.server.server_port}/"


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


def tar(members: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for name, link in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, link
            archive.addfile(info)
    return out.getvalue()


def sha256(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def git_blob(content: bytes) -> str:
    return "git-blob:" + hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def offer_files(site: Site, monkeypatch: pytest.MonkeyPatch, digest=sha256) -> None:
    """The site has wn18 as three files, and the catalogue their digests."""
    site.pages |= {f"wn18/{split}.txt": text for split, text in TEXT.items()}
    remotes = {split: Remote(f"wn18/{split}.txt", digest(text)) for split, text in TEXT.items()}
    monkeypatch.setitem(CATALOG, "wn18", replace(CATALOG["wn18"], remotes=remotes))


def offer_archive(site: Site, monkeypatch: pytest.MonkeyPatch, archive: bytes) -> None:
    """The site has umls as an archive, and the catalogue its digest."""
    site.pages["umls.tar.gz"] = archive
    remotes = {"archive": Remote("umls.tar.gz", sha256(archive))}
    monkeypatch.setitem(CATALOG, "umls", replace(CATALOG["umls"], remotes=remotes))


def contents(found: dict[str, Path]) -> dict[str, bytes]:
    return {split: path.read_bytes() for split, path in found.items()}


def nothing_kept() -> bool:
    return not graphs_folder().exists() or not list(graphs_folder().iterdir())


def test_entries_are_complete() -> None:
    asked = "fb15k fb15k-237 wn18 wn18rr umls nations kinship codex-s codex-m codex-l yago3-10 fb13 world"
    assert set(CATALOG) == set(asked.split())
    for name, graph in CATALOG.items():
        assert graph.name == name and graph.licence and graph.citation
        assert set(graph.remotes) in (set(), {"archive"}, {"train", "valid", "test"})
        assert all(address.startswith("https://") for address in graph.addresses)
        for remote in graph.remotes.values():
            kind, _, digest = remote.digest.partition(":")
            assert len(digest) == {"sha256": 64, "git-blob": 40}[kind]
            assert set(digest) <= set("0123456789abcdef")
    assert {name for name, graph in CATALOG.items() if not graph.remotes} == {"fb13", "world"}
    digests = [remote.digest for graph in CATALOG.values() for remote in graph.remotes.values()]
    assert len(set(digests)) == len(digests)


def test_world_is_embedded_and_has_its_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGEM_DATA", "/nonexistent")  # the embedded graph asks nobody
    assert fetch("world") == locate("World", download=False)
    rows = [line.split("\t") for line in locate("world")["all"].read_text("utf-8").splitlines()[1:]]
    counts = CATALOG["world"].counts
    assert len({e for row in rows for e in (row[0], row[2])}) == counts.entities
    assert len({row[1] for row in rows}) == counts.relations
    for split in ("train", "valid", "test"):
        assert sum(row[3] == split for row in rows) == getattr(counts, split)


def test_unknown_name_suggests() -> None:
    with pytest.raises(CatalogError, match=r"fb15k237.*\n.*fb15k-237"):
        locate("fb15k237")
    with pytest.raises(CatalogError, match=r"there are codex-l, .*yago3-10"):
        find_entry("zzz")


def test_kgem_data_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: Site) -> None:
    folder = tmp_path / "data" / "wn18"
    folder.mkdir(parents=True)
    for name, text in CONTENT.items():
        (folder / name).write_bytes(text)
    monkeypatch.setenv("KGEM_DATA", str(folder.parent))
    found = locate("WN18", base=site.base)
    assert found == {split: folder / f"{split}.txt" for split in TEXT} and not site.asked


def test_kgem_data_without_the_graph_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: Site) -> None:
    monkeypatch.setenv("KGEM_DATA", str(tmp_path))
    offer_files(site, monkeypatch)
    assert contents(locate("wn18", base=site.base)) == TEXT


def test_kgem_data_with_half_a_graph_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wn18").mkdir()
    (tmp_path / "wn18" / "train.txt").write_bytes(TEXT["train"])
    monkeypatch.setenv("KGEM_DATA", str(tmp_path))
    with pytest.raises(CatalogError, match=r"lacks valid\.txt, test\.txt"):
        locate("wn18")
    monkeypatch.setenv("KGEM_DATA", str(tmp_path / "mistyped"))
    with pytest.raises(CatalogError, match="KGEM_DATA does not name a folder"):
        locate("wn18")


@pytest.mark.parametrize("digest", [sha256, git_blob])
def test_three_files(site: Site, monkeypatch: pytest.MonkeyPatch, digest) -> None:
    offer_files(site, monkeypatch, digest)
    found = locate("wn18", base=site.base)
    assert contents(found) == TEXT
    assert found["train"].parent == graphs_folder() / "wn18"
    assert [kept.name for kept in graphs_folder().iterdir()] == ["wn18"]  # nothing temporary is left
    asked = len(site.asked)
    assert locate("wn18", base=site.base) == found and len(site.asked) == asked == 3
    found["train"].write_bytes(b"spoilt")
    assert contents(fetch("wn18", base=site.base)) == TEXT  # fetching again mends


@pytest.mark.parametrize("prefix", ["", "umls/", "./"])
def test_archive(site: Site, monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    members = {f"{prefix}{name}": text for name, text in CONTENT.items()}
    offer_archive(site, monkeypatch, tar(members | {f"{prefix}readme.md": b"x", f"{prefix}._train.txt": b"x"}))
    found = locate("umls", base=site.base)
    assert contents(found) == TEXT
    assert {file.name for file in found["train"].parent.iterdir()} == set(CONTENT)


def test_archive_cannot_write_elsewhere(site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    offer_archive(site, monkeypatch, tar({"../../train.txt": b"evil", **CONTENT}))
    with pytest.raises(CatalogError, match="doubtful member"):
        locate("umls", base=site.base)
    offer_archive(site, monkeypatch, tar(CONTENT | {"/etc/evil.txt": b"evil", "../evil.txt": b"evil"}))
    assert contents(locate("umls", base=site.base)) == TEXT
    assert not list(tmp_path.rglob("evil.txt"))


def test_archive_with_a_link_or_without_a_member(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    two = {name: CONTENT[name] for name in ("train.txt", "valid.txt")}
    for links in ({}, {"test.txt": "/etc/passwd"}):
        offer_archive(site, monkeypatch, tar(two, links))
        with pytest.raises(CatalogError, match=r"has no test\.txt"):
            locate("umls", base=site.base)
        assert nothing_kept()


def test_archive_that_is_none(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tar({f"{i}{name}": os.urandom(5000) for i in range(3) for name in CONTENT} | CONTENT)
    for archive in (b"", b"not an archive", whole[:-4000]):
        offer_archive(site, monkeypatch, archive)
        with pytest.raises(CatalogError, match=r"cannot be read|could not be"):
            locate("umls", base=site.base)
        assert nothing_kept()


@pytest.mark.parametrize("digest", [sha256, git_blob])
def test_wrong_hash_keeps_nothing(site: Site, monkeypatch: pytest.MonkeyPatch, digest) -> None:
    offer_files(site, monkeypatch, digest)
    site.pages["wn18/test.txt"] = b"a\tr\tb\n"
    with pytest.raises(CatalogError, match=r"damaged or has changed") as caught:
        locate("wn18", base=site.base)
    assert caught.value.where == f"{site.base}wn18/test.txt" and nothing_kept()
    site.pages["wn18/test.txt"] = TEXT["test"]
    assert contents(locate("wn18", base=site.base)) == TEXT


def test_truncated_download_keeps_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    offer_files(site, monkeypatch)
    site.cut.add("wn18/valid.txt")
    with pytest.raises(CatalogError):
        locate("wn18", base=site.base)
    assert nothing_kept()


def test_missing_page_keeps_the_old_graph(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    offer_files(site, monkeypatch)
    found = fetch("wn18", base=site.base)
    del site.pages["wn18/test.txt"]
    with pytest.raises(CatalogError, match="404"):
        fetch("wn18", base=site.base)
    assert contents(found) == TEXT


@pytest.mark.parametrize("name", ["wn18", "umls"])
def test_no_network_says_which_files_to_put_where(name: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        base = f"http://127.0.0.1:{unused.getsockname()[1]}/"
        with pytest.raises(CatalogError) as caught:
            locate(name, base=base)
    message = caught.value.message
    for part in (
        "could not be downloaded",
        "train.txt, valid.txt, test.txt",
        f"DIR/{name}",
        "KGEM_DATA=DIR",
        base,
    ):
        assert part in message
    assert caught.value.exit_code == 2 and nothing_kept()


def test_without_download_or_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CatalogError, match=r"not on this machine[\s\S]*FB15k-237\.tar\.gz"):
        locate("fb15k-237", download=False)
    monkeypatch.setenv("KGEM_DATA", str(tmp_path))
    with pytest.raises(CatalogError, match=r"no public address[\s\S]*fb13"):
        locate("fb13")


def test_another_process_may_be_first(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    offer_files(site, monkeypatch)
    whole = catalog._download

    def slower(graph, fresh, scratch, progress) -> None:
        whole(graph, fresh, scratch, progress)
        other = graphs_folder() / "wn18"
        other.mkdir()
        for name, text in CONTENT.items():
            (other / name).write_bytes(text)

    monkeypatch.setattr(catalog, "_download", slower)
    assert contents(fetch("wn18", base=site.base)) == TEXT


def test_progress_is_told(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    class Progress:
        total = 0
        seen = 0

        def update(self, n: int) -> None:
            self.seen += n

        def reset(self) -> None:
            pass

        def close(self) -> None:
            pass

    offer_files(site, monkeypatch)
    progress = Progress()
    locate("wn18", base=site.base, progress=progress)
    assert progress.seen >= sum(map(len, TEXT.values()))


def test_import_is_light() -> None:
    code = "import sys, kgem.data.catalog; assert not {'pooch', 'requests', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_digests_and_counts_are_those_of_the_graphs(benchmark_graphs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGEM_DATA", str(benchmark_graphs))
    present = [name for name in CATALOG if (benchmark_graphs / name).is_dir()]
    assert present
    for name in present:
        graph, found = CATALOG[name], locate(name, download=False)
        for split, path in found.items():
            content = path.read_bytes()
            assert content.count(b"\n") == getattr(graph.counts, split), (name, split)
            if split in graph.remotes:  # not for archives: their members may have other line ends
                assert sha256(content) == graph.remotes[split].digest, (name, split)
