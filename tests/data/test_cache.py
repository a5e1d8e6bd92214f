"""The binary cache: what goes in comes out; damage, change and age are noticed."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from kgem.data import cache


def graph(seed: int = 0, n: int = 50) -> cache.Parsed:
    rng = np.random.default_rng(seed)
    labels = {"entity": ("", "Åland", "a\tb", "日本"), "relation": ("r",)}
    facts = {s: rng.integers(0, 4, (size, 3)).astype(np.int32) for s, size in (("train", n), ("test", 0))}
    return cache.Parsed(labels, facts, {"reports": [{"rows": seed}]})


def files_in(folder: Path) -> list[Path]:
    return sorted((folder / "parsed").glob("*.safetensors"))


def test_round_trip(own_cache: Path) -> None:
    given = graph()
    assert cache.load("a") is None
    assert cache.store("a", given)
    found = cache.load("a")
    assert found is not None
    assert (found.labels, found.notes) == (given.labels, given.notes)
    assert found.facts.keys() == given.facts.keys()
    for split, facts in given.facts.items():
        assert found.facts[split].dtype == np.int32
        np.testing.assert_array_equal(found.facts[split], facts)
    assert len(files_in(own_cache)) == 1
    assert not list(own_cache.rglob("*.partial"))


@pytest.mark.parametrize("place", [0, 8, 60, -1])
def test_a_flipped_bit_is_noticed_wherever_it_is(own_cache: Path, place: int) -> None:
    cache.store("a", graph())
    [path] = files_in(own_cache)
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    assert cache.load("a") is None
    assert cache.store("a", graph())
    assert cache.load("a") is not None


def test_truncated_or_without_its_hash(own_cache: Path) -> None:
    cache.store("a", graph())
    [path] = files_in(own_cache)
    path.write_bytes(path.read_bytes()[:-10])
    assert cache.load("a") is None
    cache.store("a", graph())
    path.with_suffix(".sha256").unlink()
    assert cache.load("a") is None


def test_labels_that_cannot_be_told_apart_are_not_kept() -> None:
    assert not cache.store("a", cache.Parsed({"entity": ("a\0b", "c")}, {}))
    assert not cache.store("a", cache.Parsed({"entity": ()}, {}))
    assert cache.load("a") is None


def test_the_least_recently_used_goes_first(own_cache: Path) -> None:
    for number, key in enumerate("abc"):
        cache.store(key, graph(number))
        os.utime(own_cache / "parsed" / f"{key}.safetensors", (1000 + number, 1000 + number))
    size = files_in(own_cache)[0].stat().st_size
    assert cache.load("a") is not None  # now b is the oldest
    cache.store("d", graph(3), limit=int(3.5 * size))
    assert [path.stem for path in files_in(own_cache)] == ["a", "c", "d"]
    assert len(list((own_cache / "parsed").glob("*.sha256"))) == 3
    assert not cache.store("e", graph(4), limit=size // 2)
    assert len(files_in(own_cache)) == 3


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("KGEM_CACHE", str(tmp_path / "file"))
    assert not cache.store("a", graph())
    assert cache.load("a") is None


def test_the_key_knows_content_split_extension_and_options(tmp_path: Path) -> None:
    one, two = tmp_path / "one.tsv", tmp_path / "two.tsv"
    one.write_text("a\tr\tb\n")
    two.write_text("a\tr\tc\n")
    key = cache.cache_key({"train": one}, {"header": False})
    other = tmp_path / "elsewhere.tsv"
    other.write_bytes(one.read_bytes())
    assert cache.cache_key({"train": other}, {"header": False}) == key
    other.rename(tmp_path / "elsewhere.csv")
    different = [
        cache.cache_key({"train": two}, {"header": False}),
        cache.cache_key({"test": one}, {"header": False}),
        cache.cache_key({"train": one}, {"header": True}),
        cache.cache_key({"train": tmp_path / "elsewhere.csv"}, {"header": False}),
    ]
    assert key not in different and len(set(different)) == len(different)


def test_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KGEM_CACHE", str(tmp_path))
    assert cache.cache_folder() == tmp_path / "parsed"
    monkeypatch.delenv("KGEM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    assert tmp_path not in {cache.cache_folder()} and "kgem" in cache.cache_folder().parts


def test_writers_at_the_same_time(own_cache: Path) -> None:
    """The same content read from two places differs in its notes: a reader gets one of the two, or nothing."""

    def work(i: int) -> int | None:
        assert cache.store("a", graph(seed=i % 2))
        found = cache.load("a")
        return None if found is None else found.notes["reports"][0]["rows"]

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(work, range(80))) <= {0, 1, None}
    assert not list(own_cache.rglob("*.partial"))
