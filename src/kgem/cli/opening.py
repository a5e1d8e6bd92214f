"""Opens the model that a command is about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kgem.answer.unfinished import describe_missing
from kgem.cli.console import plain, say
from kgem.cli.progress import Progress
from kgem.errors import ArtifactError, ConfigError, InputError
from kgem.files.run_folder import CONFIG, GRAPH, MODEL
from kgem.files.store import MANIFEST, SEAL

if TYPE_CHECKING:
    from kgem.answer.model import Model


def open_model(run: Path, device: str = "cpu") -> Model:
    """The model in a folder; one that is not there, or cannot be used, is wrong input."""
    if not run.is_dir():
        what = "is a file, not a folder" if run.exists() else "there is no such folder"
        usual = Path("runs") / run  # where a fit puts it that is not told where
        remedy = f"did you mean {plain(usual)}?" if usual.is_dir() else "give the folder of a run or of a saved model"
        raise InputError(what, where=str(run), remedy=remedy)
    if not any((run / part).exists() for part in (MANIFEST, SEAL, MODEL, GRAPH, CONFIG)):
        remedy = f"give the folder of one; kgem runs {plain(run)} lists the runs in it"
        raise InputError("is neither a run nor a saved model", where=str(run), remedy=remedy)
    with Progress(f"loading {run}"), treat_artifacts_as_input():
        from kgem.answer.model import load
        from kgem.runs.configure import check_device

        try:
            check_device(device)
        except ConfigError as error:
            raise ConfigError(error.what, where="--device", remedy=error.remedy) from error
        model = load(run, device)
    say_unfinished(model, run)
    return model


def say_unfinished(model: Model, folder: Path) -> None:
    """Where a model was made of a fit that was stopped: what it lacks, and how to go on."""
    if model.unfinished:
        say(f"note: {describe_missing(model)}; to go on with it: kgem resume {plain(folder)}")


@contextmanager
def treat_artifacts_as_input() -> Iterator[None]:
    """Inside, files of kgem's own that cannot be used are what the user gave: wrong input."""
    try:
        yield
    except ArtifactError as error:
        raise InputError(error.what, where=error.where, remedy=error.remedy) from error
