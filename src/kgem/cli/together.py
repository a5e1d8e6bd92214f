"""A command that torchrun started in several processes: the first leads, speaks and writes, the others follow."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kgem.cli.watch import asked_to_stop
from kgem.errors import ConfigError, KgemError, PeerLost

if TYPE_CHECKING:
    from kgem.runs.run import Run


def follows() -> bool:
    """Whether this process is one of several, and not the first."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and os.environ.get("RANK", "0") != "0"


def follow() -> None:
    """Work with the first process until it has no more to do; says nothing unless something goes wrong here alone."""
    from kgem.runs.together import follow as follow_run
    from kgem.train.joining import join_processes

    try:
        with asked_to_stop() as stop, join_processes() as processes:
            stop.shown = stop.waits = True  # the first process says so
            follow_run(processes, lambda: stop.asked)
    except PeerLost:
        raise
    except KgemError as error:  # in all processes, and the first tells it
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


@contextmanager
def lead(run: Run) -> Iterator[None]:
    """Inside, the run is fitted by all processes that torchrun started, if it did."""
    from kgem.train.joining import join_processes

    if follows():
        what = "this command works in one process"
        raise ConfigError(what, remedy="start it without torchrun; kgem fit, resume and update take several")
    with join_processes() as processes:
        run.processes = processes
        try:
            yield
        finally:
            with suppress(PeerLost):
                run.dismiss()


def dismiss() -> None:
    """There is nothing to do for the other processes."""
    from kgem.runs.together import END
    from kgem.train.joining import join_processes

    with join_processes() as processes:
        processes.tell(END)


def goes_on_by_itself(folder: Path) -> bool:
    """Whether torchrun started this process again, and the run in this folder is the one that it began."""
    if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) == 0:
        return False
    from kgem.runs.together import is_of_this_job

    return is_of_this_job(folder)
