"""`kgem resume`: a run that was stopped goes on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kgem.cli.arguments import AsJson, Quiet, Threads
from kgem.cli.console import plain, say
from kgem.cli.opening import say_unfinished, treat_artifacts_as_input
from kgem.cli.progress import Progress
from kgem.cli.together import dismiss, follow, follows
from kgem.cli.training import emit_result, train
from kgem.errors import InputError

if TYPE_CHECKING:
    from kgem.runs.run import Run


def resume(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run that was stopped.")],
    threads: Threads = None,
    finish: Annotated[
        bool, typer.Option("--finish", help="No further epochs: make a model of what is there, marked as unfinished.")
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Go on with a run that was stopped or killed, as if it had not been.

    With as many threads as before, the tables become the same to the last bit. After --finish it can still go on.
    """
    if follows():
        return follow()
    with Progress("reading the run"), treat_artifacts_as_input():
        from kgem.runs.run import Run

        run = Run.open(folder)
    with run:
        finished = run.model()
        if finished is not None:
            dismiss()
            say(f"{plain(folder)}: this run is finished")
        else:
            if threads is not None:
                run.set_threads(threads)
            if finish:
                dismiss()
                with Progress("making a model of what is there"):
                    finished = run.finish(early=True)
                say_unfinished(finished, folder)
            else:
                _go_on_in_tensorboard(run)
                finished = train(run, quiet=quiet)
    return emit_result(finished, folder, as_json, quiet)


def _go_on_in_tensorboard(run: Run) -> None:
    """A run that was begun with TensorBoard goes on so, if it can."""
    if run.is_in_tensorboard:
        try:
            run.show_in_tensorboard()
        except InputError as error:
            say(f"warning: {plain(error.what)}: the run goes on without")
