"""Dataset: ids, splits and indexes against obvious versions with dicts; loading from whatever holds a graph."""

from __future__ import annotations

import gzip
import lzma
import os
import threading
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgem.data import cache
from kgem.data.catalog import CATALOG, Counts
from kgem.data.dataset import SPLITS, Dataset, QueryIndex, Vocabulary, reciprocal
from kgem.errors import DatasetError, InputError, TriplesError, UnknownLabel

Fact = tuple[str, str, str]
TRAIN: list[Fact] = [("a", "r", "b"), ("b", "r", "a"), ("a", "s", "c")]
VALID: list[Fact] = [("c", "r", "a")]
TEST: list[Fact] = [("b", "s", "d"), ("a", "r", "c")]
id_facts = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2), st.integers(0, 6)), max_size=60)


def frame(facts: Iterable[Fact]) -> pl.DataFrame:
    return pl.DataFrame(list(facts), schema={c: pl.String for c in ("head", "relation", "tail")}, orient="row")


def graph() -> Dataset:
    return Dataset.from_frames(frame(TRAIN), frame(VALID), frame(TEST))


def text(facts: Iterable[Fact], separator: str = "\t") -> str:
    return "".join(separator.join(fact) + "\n" for fact in facts)


def write_folder(folder: Path, names: tuple[str, str, str] = ("train.txt", "valid.txt", "test.txt")) -> Path:
    folder.mkdir(exist_ok=True)
    for name, facts in zip(names, (TRAIN, VALID, TEST), strict=True):
        (folder / name).write_text(text(facts))
    return folder


def labelled(data: Dataset, split: str) -> list[Fact]:
    return list(data.frame(split).iter_rows())


# The indexes


@settings(deadline=None)
@given(id_facts)
def test_query_index_equals_a_dict(facts: list[tuple[int, int, int]]) -> None:
    index = QueryIndex.build(np.array(facts, dtype=np.int32).reshape(-1, 3), 7, 3)
    expected: dict[tuple[int, int], set[int]] = {}
    for h, r, t in facts:
        expected.setdefault((h, r), set()).add(t)
    assert len(index) == len(expected) == len(index.counts)
    found = {
        (int(h), int(r)): index.tails_of(i).tolist()
        for i, (h, r) in enumerate(zip(index.heads, index.relations, strict=True))
    }
    assert found == {query: sorted(tails) for query, tails in expected.items()}
    assert index.counts.sum() == len(set(facts)) == len(index.tails)


@settings(deadline=None)
@given(id_facts, st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2)), max_size=20))
def test_find_and_gather_equal_a_dict(facts: list[tuple[int, int, int]], queries: list[tuple[int, int]]) -> None:
    index = QueryIndex.build(np.array(facts, dtype=np.int32).reshape(-1, 3), 7, 3)
    expected: dict[tuple[int, int], set[int]] = {}
    for h, r, t in facts:
        expected.setdefault((h, r), set()).add(t)
    asked = np.array(queries, dtype=np.int32).reshape(-1, 2)
    places = index.find(asked[:, 0], asked[:, 1])
    for (h, r), place in zip(queries, places, strict=True):
        assert (place >= 0) == ((h, r) in expected)
        assert index.tails_of(int(place)).tolist() == sorted(expected.get((h, r), ()))
    rows, tails = index.gather(places)
    pairs = [(i, t) for i, query in enumerate(queries) for t in sorted(expected.get(query, ()))]
    assert list(zip(rows.tolist(), tails.tolist(), strict=True)) == pairs


def test_an_index_too_large_to_number_is_an_error() -> None:
    with pytest.raises(DatasetError, match="more than the index can number"):
        QueryIndex.build(np.zeros((1, 3), dtype=np.int32), 2**31, 4)


def test_query_and_filter_index_of_a_graph() -> None:
    data = graph()
    a, b, c, d = (data.entities.id(x) for x in "abcd")
    r, s = data.relations.id("r"), data.relations.id("s")
    n = data.n_relations
    known = data.filter_index.tails_of(int(data.filter_index.find([a], [r])[0]))
    assert known.tolist() == [b, c]  # b from train, c from test
    trained = data.query_index.tails_of(int(data.query_index.find([a], [r])[0]))
    assert trained.tolist() == [b]
    back = data.filter_index.tails_of(int(data.filter_index.find([d], [s + n])[0]))
    assert back.tolist() == [b]
    assert data.query_index.find([d], [s + n]).tolist() == [-1]
    assert len(data.query_index.tails) == 2 * len(TRAIN)


def test_reciprocal_facts() -> None:
    """Eq. 7."""
    facts = np.array([[0, 1, 2], [3, 0, 3]], dtype=np.int32)
    assert reciprocal(facts, 5).tolist() == [[0, 1, 2], [3, 0, 3], [2, 6, 0], [3, 5, 3]]


# Vocabularies and the graph itself


def test_vocabulary() -> None:
    words = Vocabulary(("France", "Germany", "Greece"), "entity")
    assert (len(words), words[1], words.id("Greece"), "france" in words) == (3, "Germany", 2, False)
    assert words.ids(["Greece", "France"]).tolist() == [2, 0]
    with pytest.raises(UnknownLabel, match="did you mean 'France'"):
        words.id("Frnace")
    with pytest.raises(UnknownLabel, match="'France'"):
        words.id("france")


def test_labels_and_counts() -> None:
    data = graph()
    assert data.entities.labels == ("a", "b", "c", "d") and data.relations.labels == ("r", "s")
    assert data.entity_counts.tolist() == [3, 2, 1, 0]
    assert data.relation_counts.tolist() == [2, 1]
    for split, facts in zip(SPLITS, (TRAIN, VALID, TEST), strict=True):
        assert labelled(data, split) == facts
    assert "4 entities, 2 relations, 3 / 1 / 2 facts" in repr(data)
    with pytest.raises(DatasetError, match="train, valid, test"):
        data.split("dev")


def test_duplicates_are_dropped_in_order_and_counted() -> None:
    data = Dataset.from_frames(frame([TRAIN[2], TRAIN[0], TRAIN[2], TRAIN[0]]), test=frame(TEST * 2))
    assert labelled(data, "train") == [TRAIN[2], TRAIN[0]]
    assert data.duplicates == {"train": 2, "test": 2}


def test_numbers_are_labels_too() -> None:
    data = Dataset.from_frames(pl.DataFrame({"head": [10, 9], "relation": [1, 1], "tail": [9, 8]}))
    assert data.entities.labels == ("10", "8", "9")


def test_nothing_can_be_changed() -> None:
    facts = np.array([[0, 0, 1]], dtype=np.int32)
    none = np.empty((0, 3), dtype=np.int32)
    data = Dataset("g", Vocabulary(("a", "b")), Vocabulary(("r",), "relation"), facts, none, none)
    facts[0] = 7
    assert data.train.tolist() == [[0, 0, 1]]
    for array in (data.train, data.entity_counts, data.query_index.tails, data.query_index.offsets):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(AttributeError):
        data.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize("fact", [[0, 0, 2], [0, 1, 1], [-1, 0, 0]])
def test_ids_outside_the_vocabulary(fact: list[int]) -> None:
    none = np.empty((0, 3), dtype=np.int32)
    with pytest.raises(DatasetError, match="an id in column"):
        Dataset("g", Vocabulary(("a", "b")), Vocabulary(("r",), "relation"), np.array([fact]), none, none)


def test_no_training_facts() -> None:
    with pytest.raises(DatasetError, match="no facts"):
        Dataset.from_frames(frame([]), test=frame(TEST))


def test_content_hash_knows_labels_facts_and_splits() -> None:
    assert graph().content_hash == graph().content_hash
    others = [
        Dataset.from_frames(frame(TRAIN), frame(TEST), frame(VALID)),
        Dataset.from_frames(frame(TRAIN), frame(VALID), frame(TEST[:1])),
        Dataset.from_frames(frame([(h.upper(), r, t.upper()) for h, r, t in TRAIN]), frame(VALID), frame(TEST)),
    ]
    assert len({graph().content_hash, *(other.content_hash for other in others)}) == 4


def test_two_more_columns_are_not_dropped_in_silence() -> None:
    with pytest.raises(DatasetError, match="x, y"):
        Dataset.from_frames(frame(TRAIN).with_columns(x=1, y=2))


# Loading


def test_a_file_is_all_for_training(tmp_path: Path) -> None:
    (tmp_path / "my.graph.tsv").write_text(text(TRAIN))
    data = Dataset.load(tmp_path / "my.graph.tsv")
    assert data.name == "my"
    assert labelled(data, "train") == TRAIN and not len(data.valid) and not len(data.test)
    [report] = data.reports
    assert (report.rows_read, report.kept) == (3, 3)
    assert Dataset.load(str(tmp_path / "my.graph.tsv"), name="other").name == "other"


@pytest.mark.parametrize(
    "names",
    [
        ("train.txt", "valid.txt", "test.txt"),
        ("train.tsv", "validation.tsv", "test.tsv"),
        ("Train.tsv", "dev.txt", "TEST.txt"),
    ],
)
def test_a_folder(tmp_path: Path, names: tuple[str, str, str]) -> None:
    folder = write_folder(tmp_path / "nice", names)
    (folder / "README.md").write_text("not facts")
    (folder / "test_notes.txt").write_text("not facts")
    (folder / "train.log").write_text("not facts")
    data = Dataset.load(folder)
    assert data.name == "nice" and data.content_hash == graph().content_hash
    assert len(data.reports) == 3


def test_a_folder_of_compressed_files_of_several_formats(tmp_path: Path) -> None:
    (tmp_path / "train.tsv.gz").write_bytes(gzip.compress(text(TRAIN).encode()))
    (tmp_path / "valid.csv.xz").write_bytes(lzma.compress(text(VALID, ",").encode()))
    frame(TEST).write_parquet(tmp_path / "test.parquet")
    assert Dataset.load(tmp_path).content_hash == graph().content_hash


def test_a_folder_with_only_train(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text(text(TRAIN))
    data = Dataset.load(tmp_path)
    assert len(data.train) == 3 and not len(data.valid)


def test_two_files_for_one_split(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "g")
    (folder / "dev.tsv").write_text(text(VALID))
    with pytest.raises(DatasetError, match=r"2 files could be the split valid: dev\.tsv, valid\.txt"):
        Dataset.load(folder)


def test_a_folder_without_train(tmp_path: Path) -> None:
    (tmp_path / "facts.tsv").write_text(text(TRAIN))
    with pytest.raises(DatasetError, match="no training facts") as caught:
        Dataset.load(tmp_path)
    assert "train.tsv" in caught.value.message and str(tmp_path) in caught.value.message


def write_openke(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    entities, relations = "abcd", "rs"
    (folder / "entity2id.txt").write_text("4\n" + "".join(f"{x}\t{i}\n" for i, x in enumerate(entities)))
    (folder / "relation2id.txt").write_text("2\n" + "".join(f"{x}\t{i}\n" for i, x in enumerate(relations)))
    for split, facts in zip(SPLITS, (TRAIN, VALID, TEST), strict=True):
        rows = [f"{entities.index(h)} {entities.index(t)} {relations.index(r)}\n" for h, r, t in facts]
        (folder / f"{split}2id.txt").write_text(f"{len(rows)}\n" + "".join(rows))


def test_an_openke_folder(tmp_path: Path) -> None:
    write_openke(tmp_path / "ids")
    data = Dataset.load(tmp_path / "ids")
    assert data.name == "ids" and data.content_hash == graph().content_hash


def test_a_folder_with_both_labels_and_ids_is_ambiguous(tmp_path: Path) -> None:
    write_openke(tmp_path)
    write_folder(tmp_path)
    with pytest.raises(DatasetError, match="2 files could be the split train"):
        Dataset.load(tmp_path)
    assert Dataset.load(tmp_path, format="openke").content_hash == graph().content_hash


def with_split_column() -> pl.DataFrame:
    rows = [(*fact, name) for facts, name in ((TRAIN, "train"), (VALID, "dev"), (TEST, "Test")) for fact in facts]
    return pl.DataFrame(rows, schema=["head", "relation", "tail", "split"], orient="row")


@pytest.mark.parametrize("name", ["g.tsv", "g.csv", "g.parquet", "g.tsv.gz"])
def test_a_file_with_a_column_called_split(tmp_path: Path, name: str) -> None:
    path, facts = tmp_path / name, with_split_column()
    if path.suffix == ".parquet":
        facts.write_parquet(path)
    else:
        content = facts.write_csv(separator="," if path.suffix == ".csv" else "\t").encode()
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    data = Dataset.load(path, header=path.suffix != ".parquet")
    assert data.content_hash == graph().content_hash
    assert not data.extra


def test_a_split_that_is_not_one() -> None:
    facts = with_split_column().with_columns(split=pl.lit("holdout"))
    with pytest.raises(DatasetError, match="'holdout'"):
        Dataset.load(facts)


def test_frames_and_arrays() -> None:
    assert Dataset.load(with_split_column()).content_hash == graph().content_hash
    assert labelled(Dataset.load(frame(TRAIN)), "train") == TRAIN
    assert labelled(Dataset.load(pd.DataFrame(TRAIN, columns=["head", "relation", "tail"])), "train") == TRAIN
    assert labelled(Dataset.load(np.array(TRAIN)), "train") == TRAIN


def test_a_fourth_column_is_kept_or_an_error(tmp_path: Path) -> None:
    path = tmp_path / "g.tsv"
    path.write_text("head\trelation\ttail\tweight\na\tr\tb\t0.5\nb\tr\tc\t2\n")
    data = Dataset.load(path, header=True, extra="weight")
    assert data.frame("train").columns == ["head", "relation", "tail", "weight"]
    assert [float(x) for x in data.extra["train"]] == [0.5, 2.0]
    with pytest.raises(TriplesError):
        Dataset.load(path, header=True)


def test_the_embedded_graph() -> None:
    data, expected = Dataset.load("world"), CATALOG["world"].counts
    assert data.name == "world"
    assert (data.n_entities, data.n_relations) == (expected.entities, expected.relations)
    assert [len(data.split(s)) for s in SPLITS] == [expected.train, expected.valid, expected.test]
    assert not data.extra


def test_a_path_wins_over_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "world")
    monkeypatch.chdir(tmp_path)
    assert Dataset.load("world").content_hash == graph().content_hash


def test_neither_a_path_nor_a_name(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"neither a file.*\n.*wn18"):
        Dataset.load("wn81")
    (tmp_path / "facts.tsv").write_text(text(TRAIN))
    with pytest.raises(DatasetError, match=r"facts\.tsv"):
        Dataset.load(tmp_path / "fact.tsv")
    with pytest.raises(InputError):
        Dataset.load("")


def test_bad_rows_are_skipped_only_if_asked(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "g")
    (folder / "test.txt").write_text("a\tr\n" + text(TEST))
    with pytest.raises(TriplesError, match=r"test\.txt:1"):
        Dataset.load(folder)
    data = Dataset.load(folder, skip_bad=True)
    assert labelled(data, "test") == TEST
    assert data.reports[2].skipped == 1


# The cache


def test_the_second_time_comes_from_the_cache(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "WORTH_BYTES", 1)
    folder = write_folder(tmp_path / "g")
    (folder / "train.txt").write_text(text([*TRAIN, TRAIN[0]]))
    first = Dataset.load(folder)
    assert len(list(own_cache.rglob("*.safetensors"))) == 1
    monkeypatch.setattr(Dataset, "from_frames", None)  # from here on parsing fails
    second = Dataset.load(folder, name="again")
    assert second.content_hash == first.content_hash and second.name == "again"
    assert second.reports == first.reports and second.duplicates == first.duplicates
    assert second.duplicates["train"] == 1
    assert not second.train.flags.writeable
    for changed in ({"cache": False}, {"skip_bad": True}):
        with pytest.raises(TypeError):
            Dataset.load(folder, **changed)


@pytest.mark.parametrize("ids", [False, True])
def test_a_report_from_the_cache_names_the_file_that_was_asked_for(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch, ids: bool
) -> None:
    monkeypatch.setattr(cache, "WORTH_BYTES", 1)
    for name in ("here", "there"):
        write_openke(tmp_path / name) if ids else write_folder(tmp_path / name)
    here, there = Dataset.load(tmp_path / "here"), Dataset.load(tmp_path / "there")
    assert len(list(own_cache.rglob("*.safetensors"))) == 1
    assert [r.source.replace("/here/", "/there/") for r in here.reports] == [r.source for r in there.reports]
    assert all(Path(report.source).is_file() for report in there.reports)


def test_a_damaged_cache_and_a_changed_file_are_read_again(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "WORTH_BYTES", 1)
    folder = write_folder(tmp_path / "g")
    expected = Dataset.load(folder).content_hash
    [kept] = own_cache.rglob("*.safetensors")
    kept.write_bytes(kept.read_bytes()[:-3])
    assert Dataset.load(folder).content_hash == expected
    (folder / "test.txt").write_text(text(TEST[:1]))
    assert len(Dataset.load(folder).test) == 1


def test_small_graphs_and_graphs_with_an_extra_column_are_not_cached(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Dataset.load(write_folder(tmp_path / "g"))
    monkeypatch.setattr(cache, "WORTH_BYTES", 1)
    (tmp_path / "w.tsv").write_text("a\tr\tb\t1\n")
    Dataset.load(tmp_path / "w.tsv", extra="weight")
    Dataset.load(frame(TRAIN))
    assert not list(own_cache.rglob("*.safetensors"))


# Benchmark graphs, as in their SOURCES.md: entities, relations, facts per split

COUNTS = {
    "fb15k": (14_951, 1_345, [483_142, 50_000, 59_071]),
    "fb15k-237": (14_541, 237, [272_115, 17_535, 20_466]),
    "wn18": (40_943, 18, [141_442, 5_000, 5_000]),
    "wn18rr": (40_943, 11, [86_835, 3_034, 3_134]),
    "umls": (135, 46, [5_216, 652, 661]),
    "codex-s": (2_034, 42, [32_888, 1_827, 1_828]),
    "nations": (14, 55, [1_592, 199, 201]),
    "fb13": (75_043, 13, [316_232, 5_908, 23_733]),
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts_of_benchmark_graphs(benchmark_graphs: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGEM_DATA", str(benchmark_graphs))
    data = Dataset.load(name, cache=False)
    entities, relations, facts = COUNTS[name]
    assert CATALOG[name].counts == Counts(entities, relations, *facts)
    assert (data.n_entities, data.n_relations) == (entities, relations)
    assert [len(data.split(s)) for s in SPLITS] == facts
    assert [report.kept for report in data.reports] == facts
    assert dict(data.duplicates) == dict.fromkeys(SPLITS, 0)


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    """As in `kgem data check <(command)`."""
    path = tmp_path / "pipe.tsv"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=("a\tr\tb\n",))
    writer.start()
    assert Dataset.load(path).entities.labels == ("a", "b")
    writer.join()


def test_suggestions_have_the_text_inside_the_frequent_ones_first() -> None:
    labels = ("dumpy", "lumpy", "numpoly", "python3-numpy", "python3-numpy-dbg", "r-numpy-bridge-and-more", "zlib")
    counts = np.array([1, 1, 1, 50, 2, 900, 3])
    vocabulary = Vocabulary(labels)
    assert vocabulary.suggest("numpy", counts=counts)[:2] == ["r-numpy-bridge-and-more", "python3-numpy"]
    assert vocabulary.suggest("numpy")[:2] == ["python3-numpy", "python3-numpy-dbg"]
    assert vocabulary.suggest("numpolly")[0] == "numpoly"
    assert vocabulary.suggest("NumPoly") == ["numpoly"] and vocabulary.suggest("") == []
