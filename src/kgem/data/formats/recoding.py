"""Text in other encodings than UTF-8, made into UTF-8 while it is read."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

from kgem.data.rows import Intake, Problem
from kgem.data.streams import Source
from kgem.errors import TriplesError

__all__ = ["open_text", "refuse_text_options"]

PIECE = 1 << 20  # bytes decoded at a time


@contextmanager
def open_text(source: Source, intake: Intake) -> Iterator[IO[bytes]]:
    """The decompressed bytes of a text file as UTF-8."""
    encoding = intake.options.encoding
    with source.open() as stream:
        same = encoding is None or codecs.lookup(encoding).name == "utf-8"
        yield stream if same else cast("IO[bytes]", io.BufferedReader(_Recoded(stream, str(encoding), intake)))


def refuse_text_options(intake: Intake, what: str) -> None:
    """An error if an option for text files is given for a source that is none."""
    given = [name for name in ("delimiter", "encoding") if getattr(intake.options, name) is not None]
    if given:
        remedy = f"leave out {' and '.join(f'--{name}' for name in given)}: it is for TSV and CSV"
        raise TriplesError(f"{what} has no {' and no '.join(given)} to choose", where=intake.source, remedy=remedy)


class _Recoded(io.RawIOBase):
    """A stream of text in some encoding as one in UTF-8; bytes that are no text end it with an error."""

    def __init__(self, stream: IO[bytes], encoding: str, intake: Intake) -> None:
        self._stream, self._encoding, self._intake = stream, encoding, intake
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._ready = memoryview(b"")
        self._line = 1
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and not self._ended:
            self._feed()
        n = min(len(buffer), len(self._ready))
        buffer[:n] = self._ready[:n]
        self._ready = self._ready[n:]
        return n

    def _feed(self) -> None:
        piece = self._stream.read(PIECE)
        self._ended = not piece
        try:
            text = self._decoder.decode(piece, final=self._ended)
        except UnicodeError as error:
            raise self._explain(error) from error
        self._line += text.count("\n")
        self._ready = memoryview(text.encode("utf-8", "surrogatepass"))

    def _explain(self, error: UnicodeError) -> TriplesError:
        line, what = self._line, f"is not text in {self._encoding}"
        if isinstance(error, UnicodeDecodeError):
            before = error.object[: error.start].decode(self._encoding, "ignore")
            line, what = line + before.count("\n"), f"{what} (0x{error.object[error.start]:02x})"
        return self._intake.error(Problem(line, what, "name its encoding: --encoding"), may_skip=False)
