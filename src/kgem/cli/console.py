"""What is asked for goes to stdout, all other text to stderr; an error is one message and an exit code."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from kgem.errors import KgemError

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

PIPE_WIDTH = 120  # columns where there is no terminal to ask
BETWEEN = 3  # blanks between the columns of a table
NARROWEST = 12  # columns of text, before a table becomes wider than the terminal

WRONG_PATH = (  # errors of the system that are the user's to put right
    errno.EACCES,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
)

NO_MEMORY = "there is not enough memory for this\n  lower the dimension, or use a machine that has more"


def plain(text: object) -> str:
    """Text from a file or a user, safe to show: control characters become visible escapes."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in str(text))


def emit(*things: Any) -> None:
    """Print to stdout what was asked for: text or rich's tables."""
    _print(sys.stdout, things)


def emit_json(value: Any) -> None:
    """Print a value to stdout as JSON."""
    utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    emit_text(json.dumps(value, indent=2, ensure_ascii=not utf8, allow_nan=False) + "\n")


def emit_text(text: str) -> None:
    """Print text to stdout as it is, control characters of labels included: for programs."""
    with _ignore_closed_pipe(sys.stdout):
        sys.stdout.write(text)
        sys.stdout.flush()


def emit_bytes(file: Path) -> None:
    """Copy a file to stdout as it is."""
    with _ignore_closed_pipe(sys.stdout), file.open("rb") as content:
        shutil.copyfileobj(content, sys.stdout.buffer)
        sys.stdout.flush()


def say(*things: Any) -> None:
    """Print to stderr: what happens, what was found on the way."""
    wrap = sys.stderr.isatty()
    _print(sys.stderr, [paragraph(thing) if wrap and isinstance(thing, str) else thing for thing in things])


def can_draw() -> bool:
    """Whether stderr is a terminal on which bars can move."""
    return sys.stderr.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def heading(text: str, *, space: bool = True) -> Text:
    """A title above a table, with an empty line before it."""
    from rich.text import Text

    return Text("\n" * space + plain(text), style="bold")


def paragraph(text: str) -> Text:
    """Prose, wrapped between words on a terminal and on one line elsewhere."""
    from rich.text import Text

    return Text(plain(text))


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, left: int = 1) -> Table:
    """A table whose first `left` columns hold text and the others numbers; whole numbers get their commas."""
    from rich import box
    from rich.table import Table

    cells = [[_cell(value) for value in row] for row in rows]
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for place, name in enumerate(columns):
        longest = max(map(len, (name, *(row[place] for row in cells))))
        if place < left:
            made.add_column(name, overflow="fold", min_width=min(longest, NARROWEST))
        else:
            made.add_column(name, justify="right", no_wrap=True, min_width=longest)
    for row in cells:
        made.add_row(*row)
    return made


@contextmanager
def report_errors() -> Iterator[None]:
    """Whatever is raised inside ends the process with one message and its exit code; no traceback.

    KGEM_DEBUG=1 shows the traceback as well.
    """
    try:
        yield
    except KgemError as error:
        _end(error.message, error.exit_code, error)
    except MemoryError as error:
        _end(NO_MEMORY, 1, error)
    except OSError as error:
        wrong = error.errno in WRONG_PATH
        remedy = "check the path" if wrong else "make room on the disk, or try again"
        where = "" if error.filename is None else f"{_short(str(error.filename))}: "
        _end(f"{where}{error.strerror or error}\n  {remedy}", 2 if wrong else 1, error)
    except Exception as error:
        if isinstance(error, RuntimeError) and re.search("out of memory|allocate memory", str(error)):  # torch's words
            _end(NO_MEMORY, 1, error)
        what = f"an error that kgem did not expect: {type(error).__name__}: {error}"
        _end(f"{what}\n  please report it, with what KGEM_DEBUG=1 shows", 1, error)


def _short(path: str, most: int = 200) -> str:
    return path if len(path) <= most else f"{path[:most]}..."


def _end(message: str, code: int, error: BaseException) -> None:
    if os.environ.get("KGEM_DEBUG", "0") not in ("", "0"):
        import traceback

        traceback.print_exception(error)
    say(f"error: {plain(message)}")
    sys.exit(code)


def _cell(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        return plain(value)
    return f"{value:,}"


def _print(file: IO[str], things: Sequence[Any]) -> None:
    with _ignore_closed_pipe(file):
        for thing in things:
            file.write(thing + "\n" if isinstance(thing, str) else _render(thing, file))
        file.flush()


def _render(thing: Any, file: IO[str]) -> str:
    """A table or text as rich shows it on this file; labels may look like markup and are taken as they are."""
    from rich.console import Console
    from rich.text import Text

    width = None if file.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    console = Console(file=file, width=width, markup=False, highlight=False, emoji=False)
    if not isinstance(thing, Text):  # numbers are whole, even where lines then break
        wide = console.options.update_width(10 * PIPE_WIDTH)
        least = _narrowest(thing) if width is None else console.measure(thing, options=wide).minimum
        console.width = max(console.width, least)
    with console.capture() as capture:
        console.print(thing, soft_wrap=isinstance(thing, Text) and not file.isatty())
    return capture.get()


def _narrowest(thing: Table) -> int:
    """The width of a table on a terminal whose long words, as addresses, go on in the next line."""
    return sum(column.min_width or 0 for column in thing.columns) + BETWEEN * (len(thing.columns) - 1)


@contextmanager
def _ignore_closed_pipe(file: IO[str]) -> Iterator[None]:
    """Goes on without this output when nobody reads it any more, as behind `| head`; exit codes stay what they are."""
    try:
        yield
    except BrokenPipeError:
        # What is still buffered goes nowhere too, or it would fail again when Python ends.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, file.fileno())
        os.close(nowhere)
