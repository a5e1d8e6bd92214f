"""A run folder: a fit on disk that can be killed at any moment and goes on as if it had not been.

config.toml   all settings
graph/        what the run began with, a store: the graph, the settings, the tables of an earlier run if it goes on
              from one; nothing else is needed
log.jsonl     one record per epoch
checkpoints/  the newest states
tensorboard/  events for TensorBoard, if wanted
model/        the fitted model, at the end
"""

from __future__ import annotations

import gc
import json
import logging
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

from pydantic import ValidationError

from kgem.answer.artifact import explain_damage, graph_documents, graph_tensors, read_graph
from kgem.answer.model import Model, load
from kgem.config import Config
from kgem.errors import ArtifactError, ConfigError, Damaged, InputError
from kgem.files.atomic import clear_leftovers, remove_folder, write_file
from kgem.files.checkpoints import Checkpoints
from kgem.files.locks import lock_run
from kgem.files.run_folder import (
    BOARD,
    CHECKPOINTS,
    CONFIG,
    GRAPH,
    LOG_FILE,
    MODEL,
    REPORT,
    RUN_KIND,
    RUN_VERSION,
    read_log,
    to_log_line,
)
from kgem.files.store import Store, is_store, read_document, read_kind, read_store, write_store
from kgem.model.processes import ALONE, Processes
from kgem.runs.fitting import Prepared, finish
from kgem.runs.parts import save_together
from kgem.runs.tensorboard import TensorBoard, numbers_of
from kgem.runs.together import END, GO_ON, RESULT, Begun, current_job, start_together
from kgem.settings import differences, read_toml, to_toml
from kgem.train.driver import Fit
from kgem.train.phases import PHASES
from kgem.train.point_estimate import strip_prefix
from kgem.train.stopping import Asked, never
from kgem.train.warm_start import WarmStart

__all__ = ["Run", "check_free", "clear_run", "find_origin", "is_run", "read_log"]

KIND, VERSION = RUN_KIND, RUN_VERSION
WARM = "warm/"  # before the names of the tables that a run goes on from
SAVING_SHARE = 20  # a checkpoint may take at most one part in so many of the time
SLOW_SAVING = 1.0  # seconds of a checkpoint from which a stop does with that of the last epoch, if there is one
LENGTHS = {  # what a time budget chooses
    *(f"{phase}.epochs" for phase in PHASES),
    *(
        f"{race}.{name}"
        for race in ("pretrain", "retrain", "distil")
        for name in ("trial_epochs", "final_epochs", "candidates")
    ),
    "pretrain.extensions",
    "companions.mixes",
}
_UNBEGUN = re.compile(r"\.lock|\..*\.kgem-(tmp|old)")  # what a run that was killed while it was made leaves

LOG = logging.getLogger(__name__)


class Run:
    """A run folder that this process has for itself, from `create` or `open` until `close`."""

    def __init__(
        self, folder: Path, held: ExitStack, prepared: Prepared, config: Config, saved: Store | None = None
    ) -> None:
        self.folder = folder
        self.prepared = prepared
        self.config = config
        self.records: list[dict[str, Any]] = list(saved.documents["log"]) if saved else []
        self._held = held  # the lock, and what else is let go at the end
        self._saved = saved
        self._checkpoints = Checkpoints(folder / CHECKPOINTS)
        self._saved_at, self._saving = time.monotonic(), 0.0  # when the last one was written, how long it took
        self._saved_step = len(self.records)
        self._log_is_whole = False
        self._board: TensorBoard | None = None
        self.stop: Asked = never  # looked at between steps; to be set before `fit` is asked for
        self.processes: Processes = ALONE  # with which it is fitted; likewise

    @classmethod
    def create(
        cls, folder: Path, prepared: Prepared, config: Config, *, force: bool = False, origin: str = "fit"
    ) -> Run:
        """A new run; one that is there gives way only with `force`, and other files never do."""
        check_free(folder, force)
        _make(folder)
        with ExitStack() as held:
            held.enter_context(lock_run(folder))
            check_free(folder, force)  # again: it may have been made a moment ago
            clear_run(folder)
            documents = graph_documents(prepared.data) | {
                "run": {
                    "config": config.model_dump(mode="json"),
                    "split": prepared.split,
                    "origin": origin,
                    "update": prepared.update,
                    "job": current_job(),
                }
            }
            # With what a run goes on from in its own folder, it needs the earlier one no longer.
            warm = {} if prepared.warm is None else prepared.warm.tensors()
            tensors = graph_tensors(prepared.data) | {f"{WARM}{name}": tensor for name, tensor in warm.items()}
            write_store(folder / GRAPH, tensors, documents, kind=KIND, version=VERSION)
            _write_text(folder / CONFIG, to_toml(config))
            return cls(folder, held.pop_all(), prepared, config)

    @classmethod
    def open(cls, folder: Path) -> Run:
        """The run in this folder, as it was when its newest good checkpoint was written."""
        if not is_store(folder / GRAPH):
            what = "is a file, not a run folder" if folder.is_file() else "there is no run in this folder"
            raise InputError(what, where=str(folder), remedy=f"begin one: kgem fit GRAPH --out {folder}")
        with ExitStack() as held:
            held.enter_context(lock_run(folder))
            with suppress(OSError):  # what a killed process left takes room, and stays if it cannot be removed
                clear_leftovers(folder / CHECKPOINTS)
            prepared, began_with = _read_graph(folder)
            saved, warnings = Checkpoints(folder / CHECKPOINTS).load_newest() or (None, [])
            for warning in warnings:
                LOG.warning("%s; an older one is used", warning)
            config = _config(saved.documents["run"]["config"], folder) if saved else began_with
            _check_config(folder, config)
            return cls(folder, held.pop_all(), prepared, config, saved)

    def close(self) -> None:
        """Let others work in the folder."""
        self._board = None
        self._held.close()

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def set_threads(self, threads: int) -> None:
        """Mutates: the run goes on with so many threads, which is written down; to be called before its epochs."""
        said = {"threads": threads, "remeasure": False}
        self.config = self.config.model_copy(update={"run": self.config.run.model_copy(update=said)})
        _write_text(self.folder / CONFIG, to_toml(self.config))

    def show_in_tensorboard(self) -> None:
        """Mutates: from here on epochs are written for TensorBoard as well, in a run that goes on as in a new one."""
        self._board = TensorBoard(self.folder / BOARD, len(self.records))
        self._held.callback(self._board.close)

    @property
    def is_in_tensorboard(self) -> bool:
        """Whether the run was begun so."""
        return (self.folder / BOARD).is_dir()

    def model(self) -> Model | None:
        """The model if the run is at its end and its model is whole; a damaged one is told and made anew."""
        if not is_store(self.folder / MODEL):
            return None
        try:
            model = load(self.folder / MODEL, self.config.device)
            return None if model.unfinished else model
        except Damaged as error:
            LOG.warning("%s: %s; it is made again from the newest checkpoint", error.where, error.what)
            return None

    @cached_property
    def fit(self) -> Fit:
        """The fit, as far as it had come."""
        begun = Begun(self.prepared, self.config, 0.0, folder=self.folder)
        if self._saved:
            documents = self._saved.documents
            spent = float(documents["run"]["seconds"])
            state = self._saved.tensors, documents["fit"], self._saved.folder
            begun = Begun(self.prepared, self.config, spent, *state, self.folder)
        try:
            fit = start_together(begun, self.stop, self.processes)
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            if not self._saved:
                raise
            what = f"was saved in a way that this kgem does not know ({type(error).__name__}: {error})"
            remedy = "go on with the kgem that began the run, or begin it anew: kgem fit GRAPH --out FOLDER"
            raise ArtifactError(what, where=str(self.folder / CHECKPOINTS), remedy=remedy) from error
        self._saved = None  # its tables are in the phases now
        return fit

    @property
    def is_stopped(self) -> bool:
        """Whether a stop was asked for, in this process or in one that it works with."""
        return self.fit.stop()

    def epochs(self) -> Iterator[dict[str, Any]]:
        """Mutates: epoch after epoch to the end of the fit, each a record of the log; checkpoints when they are due.

        Whoever stops in between calls `save`; when `stop` is asked for they end within a step. A checkpoint that cannot
        be written when it is due is a warning.
        """
        fit = self.fit
        self._write_log()
        for phase, record in fit.epochs():
            flat = {"phase": phase, "candidate": fit.phases.candidate, "epoch": record.epoch, **numbers_of(record)}
            self.records.append(flat)
            self._append_log(flat)
            if self._board is not None:
                self._board.write(fit.phases, phase, record)
            lengths_chosen = fit.phases.config is not self.config
            yield flat
            if lengths_chosen or self._due():
                self._try_to_save()
            self.processes.tell(GO_ON)

    def save_at_stop(self) -> None:
        """Mutates: a checkpoint of the fit as it stands; if that is slow, the last epoch's will do if it is there."""
        if self._saved_step < len(self.records) or self._saving <= SLOW_SAVING:
            self.save()

    def save_epochs(self) -> None:
        """Mutates: a checkpoint if there is none of the last epoch; one that cannot be written is a warning."""
        if len(self.records) > self._saved_step:
            self._try_to_save()

    @property
    def steps_of_next_epoch(self) -> int:
        """How far the run has come beyond the last epoch of its log."""
        return self.fit.phases.steps_of_next_epoch

    def finish(self, *, early: bool = False) -> Model:
        """Mutates: the model of a fit whose epochs have all been, written to the folder; `early`: of what is there."""
        self.save_epochs()  # what is left takes a while on a large graph, too
        self._write_log()  # on disk before the model is: what was appended may be lost without power
        fit = self.fit
        if early and not self.records:
            what, remedy = "there is nothing to make a model of: no epoch has ended", f"kgem resume {self.folder}"
            raise InputError(what, where=str(self.folder), remedy=remedy)
        if early and fit.phases.missing:
            fit.phases.end_here()
        self.processes.tell(RESULT)
        result, config, seconds = fit.phases.result(), fit.phases.config, fit.seconds
        self.dismiss()
        del fit, self.fit
        gc.collect()  # the states of all phases, many times the size of the model
        model = finish(result, self.prepared, config, seconds)
        model.save(self.folder / MODEL, force=True)
        for step in [] if model.unfinished else self._checkpoints.steps()[:-1]:
            self._checkpoints.remove(step)
        return model

    def dismiss(self) -> None:
        """Mutates: the processes that it was fitted with may go; from here on it is alone."""
        self.processes.tell(END)
        self.processes = ALONE

    def _due(self) -> bool:
        wait = self.config.run.checkpoint_seconds
        return not wait or time.monotonic() - self._saved_at >= max(wait, SAVING_SHARE * self._saving)

    def _try_to_save(self) -> None:
        try:
            self.save()
        except ArtifactError as error:
            self._saved_at = time.monotonic()  # it is tried again after a while
            LOG.warning("no checkpoint of epoch %d: %s", len(self.records), error.message)

    def save(self) -> None:
        """Mutates: a checkpoint of the fit as it stands."""
        begun = time.monotonic()
        fit = self.fit
        if fit.phases.config is not self.config:  # lengths were chosen: on disk before the run goes on
            _write_text(self.folder / CONFIG, to_toml(fit.phases.config))
            self.config = fit.phases.config
        documents = {
            "fit": fit.phases.numbers(),
            "log": self.records,
            "run": {"config": self.config.model_dump(mode="json"), "seconds": fit.seconds},
        }
        save_together(self._checkpoints, fit.phases, documents, len(self.records), self.processes)
        self._saved_at, self._saved_step = time.monotonic(), len(self.records)
        self._saving = self._saved_at - begun

    def _write_log(self) -> None:
        """The log as of the checkpoint: epochs that are run again are not in it twice."""
        try:
            _write_text(self.folder / LOG_FILE, "".join(map(to_log_line, self.records)))
            self._log_is_whole = True
        except ArtifactError as error:
            self._log_is_whole = False  # the next epoch writes all of it
            LOG.warning("%s", error.message)

    def _append_log(self, record: Mapping[str, Any]) -> None:
        if not self._log_is_whole:
            return self._write_log()
        try:
            with (self.folder / LOG_FILE).open("a", encoding="utf-8") as file:
                file.write(to_log_line(record))
        except OSError as error:
            self._log_is_whole = False
            LOG.warning("%s: cannot be written: %s", self.folder / LOG_FILE, error.strerror)
        return None


def is_run(folder: Path) -> bool:
    """Whether the folder says that it is a run folder; nothing is checked."""
    return read_kind(folder / GRAPH) == KIND


def find_origin(folder: Path) -> str | None:
    """Which command began the run in this folder; None if there is none."""
    if not is_run(folder):
        return None
    return str(read_document(folder / GRAPH, "run", kind=KIND, version=VERSION)["origin"])


def check_free(folder: Path, force: bool) -> None:
    """An error if a run cannot begin in this folder."""
    if folder.exists() and not folder.is_dir():
        raise InputError("is a file, not a folder", where=str(folder), remedy="name a folder for the run")
    if is_run(folder):
        if not force:
            remedy = f"go on with it: kgem resume {folder}; or give another --out; or replace it: --force"
            raise InputError("there is a run in this folder already", where=str(folder), remedy=remedy)
        return
    others = [path.name for path in folder.iterdir() if not _UNBEGUN.fullmatch(path.name)] if folder.is_dir() else []
    if others:
        what = f"the folder has files in it that are of no run ({', '.join(sorted(others)[:3])})"
        raise InputError(what, where=str(folder), remedy="name a new or an empty folder")


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        remedy = "choose a folder that you can write to"
        raise InputError(f"cannot be made: {error.strerror}", where=str(folder), remedy=remedy) from error


def clear_run(folder: Path) -> None:
    """Remove a run, and nothing else that may be in its folder; the graph, by which it is known, last."""
    for name in (CONFIG, LOG_FILE, REPORT):
        (folder / name).unlink(missing_ok=True)
    for name in (MODEL, CHECKPOINTS, BOARD, GRAPH):
        remove_folder(folder / name)


def _read_graph(folder: Path) -> tuple[Prepared, Config]:
    store = read_store(folder / GRAPH, kind=KIND, version=VERSION)
    with explain_damage(folder / GRAPH, "run"):
        run = store.documents["run"]
        config, update = _config(run["config"], folder), run.get("update")
        tables = strip_prefix(WARM, store.tensors)
        warm = WarmStart.from_tensors(tables, update["age"], config.device) if update else None
        return Prepared(read_graph(store, store.documents["dataset"]), run["split"], warm, update), config


def _config(content: Mapping[str, Any], folder: Path) -> Config:
    try:
        return Config.model_validate_json(json.dumps(content))
    except ValidationError as error:
        first = error.errors()[0]
        what = f"this kgem does not take the run's setting {'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise ArtifactError(what, where=str(folder), remedy="go on with the kgem that began the run") from error


def _check_config(folder: Path, config: Config) -> None:
    """The settings file must still say what the run goes by: one that was edited would have no effect."""
    path = folder / CONFIG
    if not path.exists():
        return _write_text(path, to_toml(config))
    remedy = f"remove {path} to go on with the old settings, or begin anew: kgem fit GRAPH --config {path} --out FOLDER"
    try:
        said = Config.model_validate(read_toml(path))
    except (ConfigError, ValidationError) as error:
        raise ConfigError("was changed and no longer makes sense", where=str(path), remedy=remedy) from error
    changed = set(differences(said, config))
    written_first = {"run.threads", "run.remeasure"} | (LENGTHS if config.run.time_budget is not None else set())
    if changed <= written_first:  # the run was killed before the checkpoint that would have them
        return _write_text(path, to_toml(config)) if changed else None
    if changed:
        what = f"was changed since the run began ({', '.join(sorted(changed)[:3])}); a run keeps its settings"
        raise ConfigError(what, where=str(path), remedy=remedy)
    return None


def _write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    try:
        with write_file(path) as file:
            file.write(text.encode())
    except OSError as error:
        remedy = "make room on the disk, or check the folder's permissions"
        raise ArtifactError(f"cannot be written: {error.strerror}", where=str(path), remedy=remedy) from error
