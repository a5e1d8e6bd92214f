"""Decisions about facts: what is noted is on disk, whatever is in the labels and whenever the writer is killed."""

from __future__ import annotations

import multiprocessing
import os
import zlib
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kgem.errors import ArtifactError, InputError
from kgem.runs.review import COLUMNS, DECISIONS, KINDS, UNCHECKED, UNDO, Decision, Review, is_review

NOON = datetime(2024, 5, 1, 12, 0, tzinfo=UTC)
NASTY = "tab\tnewline\nreturn\rback\\slash\\t \u2028 \x00 é <script>"
HEADER = "\t".join(COLUMNS)
LABELS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@pytest.fixture(autouse=True)
def quick_disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests are not about the disk, which takes its time to sync."""
    if "synced" not in request.node.name:
        monkeypatch.setattr(os, "fsync", lambda handle: None)


def obvious(log: list[tuple[tuple[str, str, str], str, str]]) -> list[tuple[tuple[str, str, str], str, str]]:
    """What counts of a log, newest first: the last entry about each fact, unless it takes the decision back."""
    newest: list[tuple[tuple[str, str, str], str, str]] = []
    for entry in reversed(log):
        if entry[0] not in [fact for fact, _, _ in newest]:
            newest.append(entry)
    return [entry for entry in newest if entry[1] != UNDO]


def summary(review: Review) -> list[tuple[tuple[str, str, str], str, str]]:
    return [(each.fact, each.decision, each.kind) for each in review.decisions]


def test_a_new_folder_has_no_decisions_and_gets_no_file_by_looking(tmp_path: Path) -> None:
    review = Review(tmp_path)
    assert review.decisions == () and review.counts == {"accept": 0, "reject": 0, "skip": 0}
    assert review.accepted() == review.rejected() == [] and review.problems == ()
    assert list(tmp_path.iterdir()) == []


def test_a_decision_is_a_line_of_the_file(tmp_path: Path) -> None:
    made = Review(tmp_path).decide("a", "r", "b", "accept", "missing", NOON)
    assert made == Decision("a", "r", "b", "accept", "missing", "2024-05-01T12:00:00.000Z")
    line = "a\tr\tb\taccept\tmissing\t2024-05-01T12:00:00.000Z"
    assert (tmp_path / "review.tsv").read_text() == f"{HEADER}\n{line}\t{zlib.crc32(line.encode()):08x}\n"


def test_times_are_told_in_utc(tmp_path: Path) -> None:
    local = NOON.astimezone(timezone(timedelta(hours=5)))
    made = Review(tmp_path).decide("a", "r", "b", "skip", "missing", local)
    assert made is not None and made.time == "2024-05-01T12:00:00.000Z"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.tuples(LABELS, st.just("r"), st.sampled_from(["x", NASTY])),
            st.sampled_from([*DECISIONS, UNDO]),
            st.sampled_from(KINDS),
        ),
        max_size=12,
    )
)
def test_the_last_decision_counts_and_undo_takes_it_back(
    tmp_path_factory: pytest.TempPathFactory, log: list[tuple[tuple[str, str, str], str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("run")
    review = Review(folder)
    for fact, decision, kind in log:
        made = review.decide(*fact, decision, kind)
        assert (made is None) == (decision == UNDO)
        assert made is None or (made.fact, made.decision, made.kind) == (fact, decision, kind)
    assert summary(review) == summary(Review(folder)) == obvious(log)
    assert review.accepted("missing") == [fact for fact, d, k in obvious(log)[::-1] if (d, k) == ("accept", "missing")]
    assert review.rejected("doubtful") == [f for f, d, k in obvious(log)[::-1] if (d, k) == ("reject", "doubtful")]
    assert sum(review.counts.values()) == len(obvious(log))
    (folder / "copy.tsv").write_bytes(review.tsv().encode())
    assert summary(Review(folder, "copy.tsv")) == obvious(log)


def test_every_cut_of_the_file_leaves_the_whole_lines(tmp_path: Path) -> None:
    """Killed at any byte: what was told to be decided before is there, and the next decision is not harmed."""
    review = Review(tmp_path)
    for tail in ("x", NASTY, "z"):
        review.decide("a", "r", tail, "accept", "missing", NOON)
    whole = review.path.read_bytes()
    ends = [len(HEADER.encode()) + 1, *(i + 1 for i, byte in enumerate(whole) if byte == 10)][1:]
    for cut in range(len(whole) + 1):
        folder = tmp_path / str(cut)
        folder.mkdir()
        (folder / "review.tsv").write_bytes(whole[:cut])
        torn = Review(folder)
        # A line that lacks only its newline is whole.
        assert len(torn.decisions) == max(0, sum(cut >= end - 1 for end in ends) - 1), cut
        assert len(torn.problems) == (cut not in (0, len(UNCHECKED), *ends) and cut + 1 not in ends), cut
        before = len(torn.decisions)
        torn.decide("b", "r", "c", "reject", "doubtful", NOON)
        assert len(torn.decisions) == len(Review(folder).decisions) == before + 1
        assert torn.rejected("doubtful") == [("b", "r", "c")]


def test_lines_that_make_no_sense_are_passed_over_and_told(tmp_path: Path) -> None:
    time = "2024-05-01T12:00:00.000Z"
    good = f"a\tr\tb\taccept\tmissing\t{time}"
    bad = [
        "a\tr\tb",
        f"a\tr\tb\tperhaps\tmissing\t{time}",
        f"a\tr\tb\taccept\tnew\t{time}",
        "a\tr\tb\taccept\tmissing\t2024",
        f"a\\x\tr\tb\taccept\tmissing\t{time}",
        f"a\\\tr\tb\taccept\tmissing\t{time}",
    ]
    old = UNCHECKED.decode()
    lines = [old, *bad, "", good, old]  # two files one after another have the names twice
    (tmp_path / "review.tsv").write_bytes("\r\n".join(lines).encode() + b"\n\xff\xfe\t\n")
    review = Review(tmp_path)
    assert review.accepted() == [("a", "r", "b")]
    assert [line.split(":")[1] for line in review.problems] == ["2", "3", "4", "5", "6", "7", "11"]
    assert all(line.startswith(f"{review.path}:") for line in review.problems)


def test_a_flipped_bit_is_never_another_decision_without_a_word(tmp_path: Path) -> None:
    review = Review(tmp_path)
    for tail, decision in (("x", "accept"), (NASTY, "reject")):
        review.decide("a", "r", tail, decision, "missing", NOON)
    whole, fine = review.path.read_bytes(), summary(review)
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        review.path.write_bytes(changed)
        again = Review(tmp_path)
        try:
            assert summary(again) == fine or again.problems, bit
        except InputError as error:
            assert "is not a review" in str(error)


def test_a_log_without_checksums_is_read_and_what_is_decided_from_then_on_has_them(tmp_path: Path) -> None:
    line = "a\tr\tb\taccept\tmissing\t2024-05-01T12:00:00.000Z"
    path = tmp_path / "review.tsv"
    path.write_text(f"{UNCHECKED.decode()}\n{line}\n")
    Review(tmp_path).decide("a", "r", "c", "reject", "missing", NOON)
    review = Review(tmp_path)
    assert (len(review.decisions), review.problems) == (2, ())
    path.write_text(path.read_text().replace("reject", "accept"))
    assert [each.tail for each in Review(tmp_path).decisions] == ["b"] and "checksum" in Review(tmp_path).problems[0]
    path.write_text(f"{HEADER}\n{line}\n")  # a checked log has no such lines
    assert not Review(tmp_path).decisions and "6 columns instead of 7" in Review(tmp_path).problems[0]


def test_a_file_of_something_else_is_refused_and_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "review.tsv"
    path.write_text("France\tborders\tSpain\n")
    assert not is_review(path) and not is_review(tmp_path / "none.tsv")
    with pytest.raises(InputError, match="is not a review"):
        _ = Review(tmp_path).decisions
    with pytest.raises(InputError, match="is not a review"):
        Review(tmp_path).decide("a", "r", "b", "accept", "missing")
    assert path.read_text() == "France\tborders\tSpain\n"


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    Review(tmp_path).decide("a", "r", "b", "accept", "missing")
    path = tmp_path / "review.tsv"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert is_review(path) and Review(tmp_path).accepted() == [("a", "r", "b")] and not Review(tmp_path).problems


@pytest.mark.parametrize(("decision", "kind"), [("maybe", "missing"), ("", "missing"), ("accept", "new")])
def test_unknown_words_are_errors_and_write_nothing(tmp_path: Path, decision: str, kind: str) -> None:
    with pytest.raises(InputError, match="one of"):
        Review(tmp_path).decide("a", "r", "b", decision, kind)
    assert list(tmp_path.iterdir()) == []


def test_a_label_that_is_no_text_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="UTF-8"):
        Review(tmp_path).decide("\ud800", "r", "b", "accept", "missing")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fails_is_told_and_the_decision_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    review = Review(tmp_path)
    review.decide("a", "r", "b", "accept", "missing")
    before = review.path.read_bytes()

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ArtifactError, match="No space left"):
        review.decide("a", "r", "c", "accept", "missing")
    monkeypatch.undo()
    assert review.path.read_bytes() == before
    assert len(review.decisions) == 1


def test_each_decision_is_synced_before_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    sync = os.fsync

    def noted(handle: int) -> None:
        synced.append(os.fstat(handle).st_ino)
        sync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    review = Review(tmp_path)
    review.decide("a", "r", "b", "accept", "missing")
    assert synced == [review.path.stat().st_ino, tmp_path.stat().st_ino]  # a new file's name is in its folder
    review.decide("a", "r", "c", "accept", "missing")
    assert synced[2:] == [review.path.stat().st_ino]


def test_a_first_decision_whose_folder_cannot_be_synced_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(handle: int) -> None:
        if os.fstat(handle).st_ino == tmp_path.stat().st_ino:
            raise OSError(5, "Input/output error")

    review = Review(tmp_path)
    with monkeypatch.context() as patched, pytest.raises(ArtifactError, match="Input/output error"):
        patched.setattr(os, "fsync", broken)
        review.decide("a", "r", "b", "accept", "missing")
    assert review.decisions == Review(tmp_path).decisions == ()
    review.decide("a", "r", "b", "reject", "missing")
    assert summary(Review(tmp_path)) == [(("a", "r", "b"), "reject", "missing")]


def test_two_reviewers_of_one_folder_see_each_other(tmp_path: Path) -> None:
    one, two = Review(tmp_path), Review(tmp_path)
    one.decide("a", "r", "b", "accept", "missing")
    two.decide("a", "r", "c", "reject", "missing")
    one.decide("a", "r", "b", "undo", "missing")
    assert summary(one) == summary(two) == [(("a", "r", "c"), "reject", "missing")]


def test_a_file_that_was_replaced_or_removed_is_read_anew(tmp_path: Path) -> None:
    review = Review(tmp_path)
    for tail in "bcd":
        review.decide("a", "r", tail, "accept", "missing")
    other = Review(tmp_path, "other.tsv")
    other.decide("x", "r", "y", "skip", "missing")
    other.path.replace(review.path)
    assert summary(review) == [(("x", "r", "y"), "skip", "missing")]
    review.path.unlink()
    assert review.decisions == ()
    review.decide("a", "r", "b", "accept", "missing")
    assert len(review.decisions) == 1


def decide_many(folder: Path, who: str) -> None:
    review = Review(folder)
    for place in range(40):
        review.decide(who, "r", f"{place} {'long ' * 50}", "accept", "missing")


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=decide_many, args=(tmp_path, who)) for who in "abc"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(30)
        assert writer.exitcode == 0
    review = Review(tmp_path)
    assert review.problems == () and review.counts["accept"] == 120
    assert (tmp_path / "review.tsv").read_text().count(HEADER) == 1
