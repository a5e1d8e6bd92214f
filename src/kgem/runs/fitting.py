"""From a graph and settings to a Model: splits where there are none, validation, the three phases, the best mode."""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from kgem.config import Config
from kgem.data.dataset import Dataset, IntArray, LongArray
from kgem.data.splits import make_split
from kgem.errors import ConfigError
from kgem.evaluate.averaging import BlendScorer
from kgem.evaluate.calibration import fit_temperature
from kgem.evaluate.metrics import summarise
from kgem.evaluate.blocks import Scorer
from kgem.evaluate.ranking import rank
from kgem.train.optimizer import OPTIMIZERS
from kgem.train.phases import PHASES, FitResult, OnEpoch, ThreePhases
from kgem.train.point_estimate import EpochRecord, default_batch_size
from kgem.train.warm_start import WarmStart
from kgem.model.embeddings import Embeddings
from kgem.model.scores import get_score
from kgem.settings import allowed
from kgem.train.budget import within_budget
from kgem.answer.modes import MODES
from kgem.answer.model import Model, affordable_samples
from kgem.runs.tensorboard import TensorBoard

__all__ = ["Prepared", "Training", "check_device", "choose_mode", "finish", "fit", "prepare", "settings", "validator"]

VALIDATION_QUERIES = 20_000  # of a huge validation split, as many are ranked after each epoch
CONTEST_QUERIES, CONTEST_CELLS, FEWEST = 4096, 2**26, 256  # likewise for the choice of the mode, where scores are kept
BLOCK_CELLS = 2**21  # scores that are made at a time: few enough for the cache

Progress = Callable[[str, EpochRecord], None]  # hears the phase and what its epoch amounted to


@dataclass(frozen=True, eq=False)
class Prepared:
    """A graph to fit, and how it was split if it had to be."""

    data: Dataset
    split: Mapping[str, Any] | None  # seed and report of the split; None if the graph came with its splits
    warm: WarmStart | None = None  # what an earlier fit knew, if this one goes on from it
    update: Mapping[str, Any] | None = None  # and which one that was, with what is new, for JSON


def fit(
    data: Any,
    model: str | None = None,
    dim: int | None = None,
    seed: int | None = None,
    *,
    config: Config | None = None,
    progress: Progress | None = None,
    tensorboard: str | Path | None = None,
    valid: float = 0.1,
    test: float = 0.1,
    **overrides: Any,
) -> Model:
    """Fit a graph through all three phases.

    `data` is a Dataset or anything that Dataset.load takes. `model`, `dim` and `seed` go before the `config`, and so do
    overrides, as nested dicts (`em={"beta": 0.3}`) or dotted (`**{"em.beta": 0.3}`). A graph without validation facts
    is split: `valid` and `test` are the shares, or numbers of facts, that are kept from training. `tensorboard` is a
    folder for TensorBoard's events.
    """
    named = {"model.score": model, "model.dim": dim, "seed": seed}
    chosen = settings(config, {**{k: v for k, v in named.items() if v is not None}, **overrides})
    prepared = prepare(data, chosen.seed, valid, test)
    with ExitStack() as stack:
        board = None if tensorboard is None else stack.enter_context(TensorBoard(tensorboard))

        def on_epoch(phases: ThreePhases, phase: str, record: EpochRecord) -> None:
            if board is not None:
                board(phases, phase, record)
            if progress is not None:
                progress(phase, record)

        training = Training(prepared.data, chosen, on_epoch)
        training.run()
    return finish(training.phases.result(), prepared, training.phases.config, seconds=training.seconds)


class Training:
    """The three phases of a graph, validated, with lengths that fit into the time budget if there is one.

    Lengths are chosen after the first epoch of each phase, when its speed is known. `on_epoch` hears of an epoch when
    they are in `phases.config`, so that a checkpoint has them.
    """

    def __init__(
        self,
        data: Dataset,
        config: Config,
        on_epoch: OnEpoch | None = None,
        spent: float = 0.0,
        warm: WarmStart | None = None,
    ) -> None:
        self.spent = spent  # seconds before this process
        self._begun = time.perf_counter()
        self._on_epoch = on_epoch
        validate = validator(data, config.seed)
        together = None if validate is None else (lambda one, other: validate(BlendScorer([one, other])))
        self.phases = ThreePhases(data, config, validate, self._after_epoch, warm, together)

    @property
    def seconds(self) -> float:
        """What the fit has taken so far, in all processes that worked on it."""
        return self.spent + time.perf_counter() - self._begun

    def run(self) -> None:
        """Mutates: the phases, from wherever they stand to their end."""
        while True:
            try:
                return self.phases.run()
            except _NewLengths:  # go on from the same state with the settings that are there now
                continue

    def seconds_per_epoch(self, steps: int = 3) -> float:
        """An estimate from a few steps whose results are thrown away."""
        phases, config = self.phases, self.phases.config.pretrain
        size = config.batch_size or default_batch_size(phases.objective.n_items)
        batches = phases.objective.batches(size, torch.Generator().manual_seed(0))
        tables, strengths = phases.pretraining.embeddings, phases.rule_strengths()
        phases.objective(tables, strengths, batches[0])  # the first is slower
        begun = time.perf_counter()
        for batch in batches[:steps]:
            phases.objective(tables, strengths, batch)
        return (time.perf_counter() - begun) / len(batches[:steps]) * len(batches)

    def _after_epoch(self, phases: ThreePhases, phase: str, record: EpochRecord) -> None:
        config = phases.config
        if config.run.time_budget is not None and phases.epochs[phase] == 1:
            phases.config = within_budget(config, phase, record.seconds, config.run.time_budget - self.seconds)
        if self._on_epoch is not None:
            self._on_epoch(phases, phase, record)
        if phases.config is not config:
            raise _NewLengths


class _NewLengths(Exception):
    """The settings of the phase that runs have changed."""


def settings(config: Config | None, overrides: Mapping[str, Any]) -> Config:
    """The configuration with some settings changed; keys may be dotted, values nested dicts."""
    content = (config or Config()).model_dump()
    for key, value in overrides.items():
        *sections, name = key.split(".")
        place = content
        for section in sections:
            place = place.get(section, {})
            if not isinstance(place, dict):
                raise ConfigError(
                    f"{section!r} of {key!r} is a setting, not a section", remedy="settings are those of kgem.Config"
                )
        if sections and not place:
            raise ConfigError(f"there is no section {'.'.join(sections)!r}", remedy=f"one of {_sections(content)}")
        both = isinstance(value, Mapping) and isinstance(place.get(name), dict)
        place[name] = {**place[name], **value} if both else value
    try:
        changed = Config.model_validate(content)
    except ValidationError as error:
        raise _explained(error) from error
    get_score(changed.model.score)
    for phase in PHASES:
        _check_optimizer(f"{phase}.optimizer", getattr(changed, phase).optimizer)
    check_device(changed.device)
    return changed


def _check_optimizer(setting: str, name: str) -> None:
    if name not in OPTIMIZERS:
        raise ConfigError(f"{setting} = {name!r}: there is no such optimiser", remedy=f"one of {', '.join(OPTIMIZERS)}")


def _explained(error: ValidationError) -> ConfigError:
    """The first thing that is wrong with the settings."""
    first = error.errors()[0]
    name = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        known = [f"{s}.{k}" for s, v in Config().model_dump().items() for k in (v if isinstance(v, dict) else ())]
        near = difflib.get_close_matches(name, [*known, *Config.model_fields], n=3)
        remedy = f"did you mean {', '.join(near)}?" if near else "settings are those of kgem.Config"
        return ConfigError(f"there is no setting {name!r}", remedy=remedy)
    said = first["msg"].removeprefix("Value error, ")
    may_be = allowed(*first["loc"])
    remedy = f"it may be: {may_be}" if may_be else "docs/settings.md says what settings may be"
    return ConfigError(f"{name} = {first['input']!r}: {said}" if name else said, remedy=remedy)


def check_device(device: str) -> None:
    """An error if nothing can be computed there."""
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError) as error:  # torch built without CUDA asserts
        raise ConfigError(
            f"the device {device!r} cannot be used here", remedy="cpu, or cuda where there is a GPU"
        ) from error


def _sections(content: Mapping[str, Any]) -> str:
    return ", ".join(name for name, value in content.items() if isinstance(value, dict))


def prepare(data: Any, seed: int = 0, valid: float = 0.1, test: float = 0.1) -> Prepared:
    """The graph, split if it has no validation facts. A test split that it came with stays as it is."""
    graph = data if isinstance(data, Dataset) else Dataset.load(data)
    if len(graph.valid) or not valid:
        return Prepared(graph, None)
    given = graph.test
    made, report = make_split(replace(graph, test=given[:0], extra={}), valid, 0.0 if len(given) else test, seed)
    if len(given):
        made = replace(made, test=given)
    return Prepared(made, {"seed": seed, **report.to_dict()})


def validator(data: Dataset, seed: int = 0) -> Callable[[Scorer | Embeddings], float] | None:
    """Filtered MRR on validation, on a fixed sample of it if it is huge; None without validation facts."""
    if not len(data.valid):
        return None
    facts = _sample(data.reciprocal(data.valid), VALIDATION_QUERIES, seed)
    return lambda model: _mrr(model, facts, data)


def finish(
    result: FitResult, prepared: Prepared, config: Config, *, seconds: float | None = None, samples: int | None = None
) -> Model:
    """The model of a fit that is done: its mode chosen on validation, its temperatures fitted."""
    data = prepared.data
    model = Model(
        data=data,
        config=config,
        point=result.point,
        posterior=result.posterior,
        learned=result.strengths,
        mode="point",
        n_samples=samples or affordable_samples(result.posterior),
        provenance={
            "split": prepared.split,
            "shared": result.shared,
            "mix": list(result.mix),
            "beta": result.beta,
            "epochs": dict(result.epochs),
            "events": list(result.events),
            "seconds": seconds,
            **({} if prepared.update is None else {"update": dict(prepared.update)}),
        },
    )
    validation, temperatures = choose_mode(model)
    mode = max(validation, key=lambda name: validation[name], default="point")
    return replace(model, mode=mode, validation=validation, temperatures=temperatures)


def choose_mode(model: Model) -> tuple[dict[str, float], dict[str, float]]:
    """Filtered validation MRR and fitted temperature of each mode, on the same sample of questions."""
    data = model.data
    if not len(data.valid):
        return {}, {}
    affordable = max(FEWEST, min(CONTEST_QUERIES, CONTEST_CELLS // data.n_entities))
    facts = _sample(data.reciprocal(data.valid), affordable, model.config.seed)
    validation, temperatures = {}, {}
    for mode in MODES:
        scorer = _KeptScores(model.scorer(mode), facts, 2 * data.n_relations)
        validation[mode] = _mrr(scorer, facts, data)
        temperatures[mode] = fit_temperature(scorer, facts, data.filter_index)
    return validation, temperatures


class _KeptScores:
    """A scorer that has the scores of some facts' queries ready: they are asked for again and again."""

    def __init__(self, scorer: Scorer, facts: IntArray, n_relations: int) -> None:
        self.n_entities, self.like = scorer.n_entities, scorer.like
        self.bytes_per_query = self.bytes_per_entity = 0
        self._n_relations = n_relations
        self._keys = np.unique(self._key(facts[:, 0], facts[:, 1]))
        self._scores = self.like.new_empty(len(self._keys), self.n_entities)
        step = max(1, BLOCK_CELLS // self.n_entities)
        for start in range(0, len(self._keys), step):
            part = self._keys[start : start + step]
            heads, relations = (torch.from_numpy(ids).to(self.like.device) for ids in np.divmod(part, n_relations))
            write = scorer.prepare(heads, relations)
            write(0, self.n_entities, self._scores[start : start + step])

    def _key(self, heads: Any, relations: Any) -> LongArray:
        return np.asarray(heads, dtype=np.int64) * self._n_relations + np.asarray(relations, dtype=np.int64)

    def prepare(self, heads: Tensor, relations: Tensor) -> Callable[[int, int, Tensor], None]:
        rows = np.searchsorted(self._keys, self._key(heads.cpu().numpy(), relations.cpu().numpy()))
        places = torch.from_numpy(rows).to(self.like.device)

        def write(start: int, stop: int, block: Tensor) -> None:
            block.copy_(self._scores[places, start:stop])

        return write


def _sample(facts: IntArray, most: int, seed: int) -> IntArray:
    """All of the facts, or a random sample of them."""
    if len(facts) <= most:
        return facts
    return facts[np.sort(np.random.default_rng(seed).choice(len(facts), most, replace=False))]


def _mrr(scorer: Scorer | Embeddings, facts: IntArray, data: Dataset) -> float:
    return summarise(rank(scorer, facts, data.filter_index).of("pessimistic")).mrr
