"""What a person decided about proposed facts, durably: an append-only log that any number of processes may share.

`review.tsv` begins with a line of column names; each further line is one decision. The last line about a fact counts,
and `undo` takes the decision back. Tabs, newlines, carriage returns and backslashes in labels are escaped. The last
column is a checksum of the others. A line that was not written to its end, has changed since, or makes no sense, is
passed over and told. Logs without that column, as version 0.1 wrote them and as people do, are read as they are.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, astuple, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from zlib import crc32

from kgem.errors import ArtifactError, InputError
from kgem.files.atomic import sync
from kgem.files.locks import open_locked

__all__ = ["DECISIONS", "FILE", "KINDS", "UNDO", "Decision", "Fact", "Review", "is_review"]

FILE = "review.tsv"
DECISIONS = ("accept", "reject", "skip")
UNDO = "undo"
KINDS = ("missing", "doubtful")  # a proposal of the model, or a fact that the graph has

Fact = tuple[str, str, str]  # labels of head, relation, tail

_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_PLAIN = {escaped[1]: plain for plain, escaped in _ESCAPES.items()}
_SPECIAL = re.compile(r"[\\\t\n\r]")
_ESCAPED = re.compile(r"\\(.?)", re.DOTALL)
# To its last letter, so that a time that was cut off is none.
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z")


@dataclass(frozen=True)
class Decision:
    """One decision about one fact."""

    head: str
    relation: str
    tail: str
    decision: str  # one of DECISIONS; in the log also UNDO
    kind: str  # one of KINDS
    time: str  # UTC, ISO 8601 with milliseconds

    @property
    def fact(self) -> Fact:
        return self.head, self.relation, self.tail

    def to_dict(self) -> dict[str, str]:
        """For JSON."""
        return asdict(self)


COLUMNS = (*(column.name for column in fields(Decision)), "check")
HEADER = "\t".join(COLUMNS).encode()
UNCHECKED = "\t".join(COLUMNS[:-1]).encode()  # of a log whose lines may go without a checksum


class Review:
    """The decisions in a run folder, those of other processes included; `name` is for a copy of another name."""

    def __init__(self, folder: str | Path, name: str = FILE) -> None:
        self.path = Path(folder) / name
        self._turn = threading.RLock()
        self._forget()

    def _forget(self) -> None:
        self._made: dict[Fact, Decision] = {}  # oldest first
        self._problems: dict[int, str] = {}  # by line
        self._read, self._lines = 0, 0  # bytes and lines that are known
        self._checked = False  # whether each line must have a checksum
        self._file: tuple[int, int] | None = None  # which one it was: device and inode

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """What is decided now, newest first."""
        with self._turn:
            self._refresh()
            return tuple(reversed(self._made.values()))

    @property
    def by_fact(self) -> Mapping[Fact, Decision]:
        """What is decided now."""
        with self._turn:
            self._refresh()
            return dict(self._made)

    @property
    def counts(self) -> dict[str, int]:
        """How many facts were accepted, rejected and skipped."""
        found = [each.decision for each in self.decisions]
        return {decision: found.count(decision) for decision in DECISIONS}

    @property
    def problems(self) -> tuple[str, ...]:
        """The lines that were passed over, and why."""
        with self._turn:
            self._refresh()
            return tuple(f"{self.path}:{line}: {what}" for line, what in sorted(self._problems.items()))

    def accepted(self, kind: str = "missing") -> list[Fact]:
        """The facts of a kind that were accepted, in the order of the decisions."""
        return self._facts("accept", kind)

    def rejected(self, kind: str = "doubtful") -> list[Fact]:
        """The facts of a kind that were rejected, in the order of the decisions."""
        return self._facts("reject", kind)

    def _facts(self, decision: str, kind: str) -> list[Fact]:
        return [each.fact for each in reversed(self.decisions) if (each.decision, each.kind) == (decision, kind)]

    def decide(
        self, head: str, relation: str, tail: str, decision: str, kind: str, time: datetime | None = None
    ) -> Decision | None:
        """Mutates: note a decision, on disk when this returns; None after `undo`."""
        _check("decision", decision, (*DECISIONS, UNDO))
        _check("kind", kind, KINDS)
        made = Decision(head, relation, tail, decision, kind, _stamp(time or datetime.now(UTC)))
        line = _to_line(made)
        with self._turn:
            self._refresh()  # first: a file of something else is refused
            try:
                self._append(line)
                self._refresh()
            except OSError as error:
                remedy = "make room on the disk, or check the permissions of file and folder"
                what = f"the decision cannot be written: {error.strerror}"
                raise ArtifactError(what, where=str(self.path), remedy=remedy) from error
            return self._made.get(made.fact)

    def tsv(self) -> str:
        """What is decided now as a file of the same form, oldest first."""
        lines = [HEADER, *(_to_line(each) for each in reversed(self.decisions))]
        return "".join(line.decode() + "\n" for line in lines)

    def _append(self, line: bytes) -> None:
        new = not self.path.exists()
        with open_locked(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, fcntl.LOCK_EX) as handle:
            end = os.fstat(handle).st_size
            torn = end > 0 and os.pread(handle, 1, end - 1) != b"\n"  # its writer was killed
            header = b"" if end else HEADER + b"\n"
            try:
                _write(handle, b"\n" * torn + header + line + b"\n")
                os.fsync(handle)
                if new:
                    sync(self.path.parent)
            except OSError:
                with contextlib.suppress(OSError):  # a decision that is told to have failed must not count
                    os.ftruncate(handle, end)
                raise

    def _refresh(self) -> None:
        """Mutates: take in what was appended since the last look, by whomever."""
        try:
            with open_locked(self.path, os.O_RDONLY, fcntl.LOCK_SH) as handle:
                state = os.fstat(handle)
                file = state.st_dev, state.st_ino
                if file != self._file or state.st_size < self._read:  # another file has taken its place
                    self._forget()
                    self._file = file
                with open(handle, "rb", closefd=False) as log:
                    log.seek(self._read)
                    fresh = log.read()
        except FileNotFoundError:
            return self._forget()
        except OSError as error:
            remedy = "check the permissions of file and folder"
            raise ArtifactError(f"cannot be read: {error.strerror}", where=str(self.path), remedy=remedy) from error
        *lines, rest = fresh.split(b"\n")
        if self._read == 0:
            _check_header([*lines, rest][0], self.path)
        for place, line in enumerate(lines, self._lines + 1):
            self._take(place, line)
        self._lines += len(lines)
        self._read += len(fresh) - len(rest)
        self._take(self._lines + 1, rest)  # may lack no more than its newline; taken again once it has that
        return None

    def _take(self, place: int, line: bytes) -> None:
        line = line.removeprefix(b"\xef\xbb\xbf" if place == 1 else b"").removesuffix(b"\r")
        self._problems.pop(place, None)
        if line in (HEADER, UNCHECKED):
            self._checked = line == HEADER
        if line in (b"", HEADER, UNCHECKED):
            return
        try:
            made = _parse(line, self._checked)
        except ValueError as error:
            self._problems[place] = f"passed over: {error}"
            return
        self._made.pop(made.fact, None)
        if made.decision != UNDO:
            self._made[made.fact] = made


def is_review(path: Path) -> bool:
    """Whether a file begins as a review does."""
    try:
        with path.open("rb") as file:
            _check_header(file.readline(256), path)
    except (OSError, InputError):
        return False
    return True


def _check_header(line: bytes, path: Path) -> None:
    """An error if the first line is of something else than a review; a review may have been cut off within it."""
    found = line.removeprefix(b"\xef\xbb\xbf").rstrip(b"\r\n")
    if not HEADER.startswith(found):
        what = f"is not a review: its first line is not {' '.join(COLUMNS)}"
        raise InputError(what, where=str(path), remedy="move it away, or give a file that kgem serve wrote")


def _check(name: str, given: str, choices: Iterable[str]) -> None:
    if given not in choices:
        raise InputError(f"no {name} is called {given!r}", remedy=f"one of {', '.join(choices)}")


def _stamp(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _to_line(made: Decision) -> bytes:
    try:
        line = "\t".join(_SPECIAL.sub(lambda found: _ESCAPES[found[0]], field) for field in astuple(made)).encode()
        return b"%b\t%08x" % (line, crc32(line))
    except UnicodeEncodeError as error:
        raise InputError("a label is not text that can be written", remedy="labels are text in UTF-8") from error


def _parse(line: bytes, checked: bool) -> Decision:
    """The decision in a line without its newline; a ValueError says why there is none."""
    try:
        columns = line.decode().split("\t")
    except UnicodeDecodeError:
        raise ValueError("not text in UTF-8") from None
    if len(columns) == len(COLUMNS):
        said, _, check = line.rpartition(b"\t")
        if check != b"%08x" % crc32(said):
            raise ValueError("its checksum is not that of the line")
        columns.pop()
    elif len(columns) != len(COLUMNS) - 1 or checked:
        raise ValueError(f"{len(columns)} columns instead of {len(COLUMNS)}")
    made = Decision(*(_ESCAPED.sub(_unescape, column) for column in columns))
    for name, given, choices in (("decision", made.decision, (*DECISIONS, UNDO)), ("kind", made.kind, KINDS)):
        if given not in choices:
            raise ValueError(f"no {name} is called {given!r}")
    if not _TIME.fullmatch(made.time):
        raise ValueError(f"not a whole time: {made.time!r}")
    return made


def _unescape(found: re.Match[str]) -> str:
    if found[1] not in _PLAIN:
        raise ValueError(f"no such escape: {found[0]!r}")
    return _PLAIN[found[1]]


def _write(handle: int, content: bytes) -> None:
    while content:
        content = content[os.write(handle, content) :]
