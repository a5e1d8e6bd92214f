"""Bytes in and out: files, streams and standard input, compressed or not; writing is all or nothing."""

from __future__ import annotations

import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

import zstandard

from kgem.errors import TriplesError
from kgem.files.atomic import write_file

__all__ = ["CODECS", "STDIN", "Codec", "Source", "split_suffix", "write_to"]

STDIN = "-"
_PIECE = 1 << 14  # compressed bytes handed to zstd at a time


@dataclass(frozen=True)
class Codec:
    """A compression: how its files begin, how to read and to write them."""

    magic: bytes
    reader: Callable[[IO[bytes]], Any]  # these give streams of bytes, too
    writer: Callable[[IO[bytes]], Any]


class _ZstdStream(io.RawIOBase):
    """zstd frames one after another; unlike the library's own reader it notices a truncated one."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._frame: Any = None
        self._left = b""  # compressed, behind the end of a frame
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and self._feed():
            pass
        n = min(len(buffer), len(self._ready))
        buffer[:n] = self._ready[:n]
        self._ready = self._ready[n:]
        return n

    def _feed(self) -> bool:
        piece = self._left or self._raw.read(_PIECE)
        self._left = b""
        if not piece:
            if self._frame is not None:
                raise EOFError("the last zstd frame is not complete")
            return False
        frame = self._frame or zstandard.ZstdDecompressor().decompressobj()
        self._ready = memoryview(frame.decompress(piece))
        self._left = frame.unused_data if frame.eof else b""
        self._frame = None if frame.eof else frame
        return True


CODECS: dict[str, Codec] = {
    ".gz": Codec(
        b"\x1f\x8b",
        gzip.open,
        # No time and no name inside: equal facts give equal files.
        lambda raw: gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0),
    ),
    ".xz": Codec(b"\xfd7zXZ\x00", lzma.LZMAFile, partial(lzma.LZMAFile, mode="wb")),
    ".zst": Codec(
        b"\x28\xb5\x2f\xfd",
        lambda raw: io.BufferedReader(_ZstdStream(raw)),
        lambda raw: zstandard.ZstdCompressor(write_checksum=True).stream_writer(raw, closefd=False),
    ),
}


def split_suffix(name: str) -> tuple[str, str]:
    """A file's name without the suffix of its compression, and that suffix ('' for none)."""
    suffix = Path(name).suffix.lower()
    return (name[: -len(suffix)], suffix) if suffix in CODECS else (name, "")


@dataclass(frozen=True)
class Source:
    """Where facts come from: a path, standard input, or a stream opened by the caller."""

    name: str
    path: Path | None = None
    stream: IO[bytes] | None = None

    @classmethod
    def of(cls, given: str | Path | IO[bytes]) -> Source:
        """What the caller gave: a path, '-', or a binary stream."""
        if isinstance(given, (str, Path)):
            if str(given) == STDIN:
                return cls("<stdin>", stream=sys.stdin.buffer)
            return cls(str(given), path=Path(given))
        if isinstance(given, io.TextIOBase) or not hasattr(given, "read"):
            what = f"cannot read facts from {type(given).__name__}"
            one = "a path, '-', a stream opened in binary mode, a frame, an (n, 3) array, a list of tuples"
            remedy = f"give {one}, an RDF graph, a TriplesFactory, or a dict with one of these for each split"
            raise TriplesError(what, remedy=remedy)
        name = getattr(given, "name", None)
        return cls(name if isinstance(name, str) else "<stream>", stream=given)

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """The decompressed bytes; what goes wrong while they are read is a TriplesError."""
        with _report_errors(self.name), ExitStack() as stack:
            raw, start = self._start(stack)
            codec = _find_codec(self.name, start)
            yield codec.reader(raw) if codec else raw

    def _start(self, stack: ExitStack) -> tuple[IO[bytes], bytes]:
        """The stream as it is, and its first bytes, which stay in it."""
        try:
            if self.stream is None:
                assert self.path is not None
                raw = stack.enter_context(self.path.open("rb"))
            elif hasattr(self.stream, "peek"):
                raw = cast("io.BufferedReader", self.stream)
            else:
                raw = io.BufferedReader(cast("io.RawIOBase", self.stream))
                stack.callback(raw.detach)  # the stream stays the caller's: do not close it
            return raw, raw.peek(8)
        except ValueError as error:  # a path with a NUL byte, a stream that is closed
            raise OSError(str(error)) from error


def _find_codec(name: str, start: bytes) -> Codec | None:
    """By what the file begins with (no text begins like that), else by its name."""
    by_magic = (codec for codec in CODECS.values() if start.startswith(codec.magic))
    return next(by_magic, CODECS.get(split_suffix(name)[1]))


@contextmanager
def _report_errors(name: str) -> Iterator[None]:
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
        raise TriplesError(
            f"the compressed data is damaged or cut short: {error}", where=name, remedy="get the file anew"
        ) from error
    except FileNotFoundError as error:
        remedy = "check the path; it is taken from the current folder"
        raise TriplesError("no such file", where=name, remedy=remedy) from error
    except IsADirectoryError as error:
        raise TriplesError("is a folder", where=name, remedy="give a file") from error
    except OSError as error:
        raise TriplesError(f"cannot be read: {error}", where=name, remedy="check the file") from error


@contextmanager
def write_to(target: Path) -> Iterator[IO[bytes]]:
    """A stream to `target`, compressed as its name says; the file appears only when all went well."""
    codec = CODECS.get(split_suffix(target.name)[1])
    try:
        with write_file(target) as raw, codec.writer(raw) if codec else nullcontext(raw) as stream:
            yield stream
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        remedy = "check the folder, its permissions and the room on the disk"
        raise TriplesError(what, where=str(target), remedy=remedy) from error
