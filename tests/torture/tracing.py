"""A child of this process whose n-th change to files below a folder meets a fault; the tracer is in tracer.c."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["COUNT", "FROM_HERE", "KILL", "ONCE", "SHORT", "TORN", "Outcome", "Unsynced", "run", "why_not"]

COUNT, KILL, TORN, ONCE, FROM_HERE, SHORT = range(6)  # what the call meets, as in tracer.c
FILES, PATH = 4096, 4096
SECONDS = 1800  # a child that takes longer hangs; the machine may be busy
CRASHED = 99  # exit code of a child that raised what nobody expects
Action = Callable[[], object]
Unsynced = dict[tuple[int, int], int]  # device, inode: bytes that are on disk
Watch = Callable[[Unsynced], object]
_BEFORE = ctypes.CFUNCTYPE(None)


class _File(ctypes.Structure):
    _fields_ = [
        ("device", ctypes.c_ulong),
        ("inode", ctypes.c_ulong),
        ("synced", ctypes.c_long),
        ("dirty", ctypes.c_int),
    ]


class _Report(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_int),
        ("error", ctypes.c_int),
        ("at", ctypes.c_long),
        ("count", ctypes.c_long),
        ("fired", ctypes.c_int),
        ("status", ctypes.c_int),
        ("n_files", ctypes.c_int),
        ("what", ctypes.c_char * 32),
        ("path", ctypes.c_char * PATH),
        ("files", _File * FILES),
        ("log", ctypes.c_char_p),
        ("before", _BEFORE),
    ]

    @property
    def unsynced(self) -> Unsynced:
        files = [self.files[i] for i in range(self.n_files)]
        return {(each.device, each.inode): each.synced for each in files if each.dirty}


@dataclass(frozen=True)
class Outcome:
    """How a child ended, and what it met."""

    code: int  # of its exit; -n: a signal ended it
    output: str
    count: int = 0  # of calls that change files below the folder
    fired: bool = False
    what: str = ""  # the call that met the fault
    path: str = ""

    @property
    def crashed(self) -> bool:
        """Whether it ended in a way that no user should see."""
        strange = "Traceback" in self.output or "kgem did not expect" in self.output
        return strange or self.code == CRASHED or (self.code < 0 and self.code != -signal.SIGKILL)


def why_not() -> str | None:
    """Why nothing can be traced here; None where it can."""
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        return "the tracer is for Linux on x86-64"
    if not shutil.which("cc"):
        return "the tracer needs a C compiler, cc"
    try:
        return None if run(lambda: None, Path("/nowhere")).code == 0 else "processes cannot be traced here"
    except (OSError, subprocess.CalledProcessError) as error:
        return f"processes cannot be traced here: {error}"


@cache
def _tracer() -> ctypes.CDLL:
    source = Path(__file__).with_name("tracer.c")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "tracer.so"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, source], check=True, capture_output=True)
        return ctypes.CDLL(str(library))


def run(
    action: Action,
    root: Path | None = None,
    kind: int = COUNT,
    at: int = 0,
    error: int = 0,
    log: Path | None = None,
    watch: Watch | None = None,
) -> Outcome:
    """Run the action in a fork of this process, traced if there is a root; `log` gets a line per call, and `watch` is
    called before each of them, while the child stands still."""
    tracer = _tracer() if root is not None else None
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if not child:
            _act(action, tracer, output.fileno())
        report = _Report(kind=kind, error=error, at=at, log=None if log is None else os.fsencode(log))
        if watch is not None:
            report.before = _BEFORE(lambda: watch(report.unsynced) and None)
        if tracer is None:
            report.status = os.waitpid(child, 0)[1]
        elif failed := tracer.trace(child, os.fsencode(str(root)), ctypes.byref(report)):
            os.kill(child, signal.SIGKILL)
            raise OSError(failed, os.strerror(failed))
        output.seek(0)
        said = output.read().decode(errors="replace")
    return Outcome(
        code=os.waitstatus_to_exitcode(report.status),
        output=said,
        count=report.count,
        fired=bool(report.fired),
        what=report.what.decode(),
        path=os.fsdecode(report.path),
    )


def _act(action: Action, tracer: ctypes.CDLL | None, output: int) -> None:
    """In the child: everything said goes to the output, and the end is here."""
    code = CRASHED
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)
        if tracer is not None and (failed := tracer.stop_for_tracer()):
            raise OSError(failed, os.strerror(failed))
        action()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
