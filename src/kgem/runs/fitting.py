"""From a graph and settings to a Model: splits where there are none, validation, all phases, the mode to answer in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kgem.answer.judge import Judge
from kgem.answer.model import Model, affordable_samples
from kgem.answer.proposals import Decided, learn_ranker
from kgem.config import Config
from kgem.data.dataset import Dataset
from kgem.data.splits import make_split
from kgem.evaluate.averaging import BlendScorer
from kgem.evaluate.validation import affordable_questions, make_validator
from kgem.model.processes import ALONE, Processes
from kgem.model.scores import get_score
from kgem.runs.mode_choice import ModeChoice, choose_mode
from kgem.runs.tensorboard import TensorBoard
from kgem.train.driver import Fit
from kgem.train.machine import settle, use_threads
from kgem.train.memory import Memory, fit_memory
from kgem.train.phases import FitResult
from kgem.train.point_estimate import EpochRecord
from kgem.train.stopping import Asked, never
from kgem.train.warm_start import WarmStart

__all__ = ["OnEpoch", "Prepared", "finish", "fit_in_memory", "needed_memory", "prepare", "start_fit"]

OnEpoch = Callable[[str, EpochRecord], None]  # hears the phase and what its epoch amounted to


@dataclass(frozen=True, eq=False)
class Prepared:
    """A graph to fit, and how it was split if it had to be."""

    data: Dataset
    split: Mapping[str, Any] | None  # seed and report of the split; None if the graph came with its splits
    warm: WarmStart | None = None  # what an earlier fit knew, if this one goes on from it
    update: Mapping[str, Any] | None = None  # and which one that was, with what is new, for JSON


def fit_in_memory(
    prepared: Prepared, config: Config, progress: OnEpoch | None = None, tensorboard: str | Path | None = None
) -> Model:
    """A fit from its start to a model, with nothing on disk."""
    fit = start_fit(prepared, settle(prepared.data, config))
    with ExitStack() as stack:
        board = None if tensorboard is None else stack.enter_context(closing(TensorBoard(tensorboard)))
        for phase, record in fit.epochs():
            if board is not None:
                board.write(fit.phases, phase, record)
            if progress is not None:
                progress(phase, record)
    return finish(fit.phases.result(), prepared, fit.phases.config, fit.seconds)


def start_fit(
    prepared: Prepared, config: Config, spent: float = 0.0, stop: Asked = never, processes: Processes = ALONE
) -> Fit:
    """A fit of this graph at its start, validated on the facts that it has for that."""
    validate = make_validator(prepared.data, config.seed, config.train.validation, stop)
    validate_blend = None if validate is None else (lambda one, other: validate(BlendScorer([one, other])))
    return Fit(prepared.data, config, validate, validate_blend, prepared.warm, spent, stop, processes)


def needed_memory(data: Dataset, config: Config) -> Memory:
    """What a fit of this graph holds, phase by phase."""
    score, dim = get_score(config.model.score), config.model.dim
    rows = data.n_relations * (2 if config.model.reciprocal else 1) + score.shared_rows(dim)
    widths = score.entity_width(dim), score.relation_width(dim)
    return fit_memory(config, data.n_entities, len(data.train), len(data.query_index), widths, rows)


def prepare(data: Any, seed: int = 0, valid: float = 0.1, test: float = 0.1) -> Prepared:
    """The graph, split if it has no validation facts. A test split that it came with stays as it is."""
    graph = data if isinstance(data, Dataset) else Dataset.load(data)
    if len(graph.valid) or not valid:
        return Prepared(graph, None)
    given = graph.test
    made, report = make_split(replace(graph, test=given[:0], extra={}), valid, 0.0 if len(given) else test, seed)
    if len(given):
        made = replace(made, test=given)
    return Prepared(made, {"seed": seed, **asdict(report)})


def finish(result: FitResult, prepared: Prepared, config: Config, seconds: float) -> Model:
    """The model of a fit that is done, or was ended: mode chosen on validation, temperatures fitted, ranks measured."""
    update = dict(prepared.update or {})
    past = update.pop("proposals", {})  # decisions of people about those of earlier models
    model = Model(
        data=prepared.data,
        config=config,
        point=result.point,
        posterior=result.posterior,
        learned=result.strengths,
        mode="point",
        n_samples=affordable_samples(result.posterior),
        provenance={
            "split": prepared.split,
            "shared": result.shared,
            "mix": list(result.mix),
            **({} if result.student is None else {"student": list(result.student)}),
            "beta": result.beta,
            "epochs": dict(result.epochs),
            "events": list(result.events),
            "seconds": seconds,
            **({"unfinished": list(result.missing)} if result.missing else {}),
            **({} if prepared.update is None else {"update": update}),
        },
    )
    with use_threads(config.run.threads):
        choice = choose_mode(model)
        model = replace(
            model,
            mode=choice.mode,
            validation=choice.validation,
            temperatures=choice.temperatures,
            decided=Decided.from_dict(past.get("decided", {})),
            rejected=tuple((h, r, t) for h, r, t in past.get("rejected", ())),
        )
        model = replace(model, ranker=learn_ranker(model.mode_scorer(), model.decided))
        model = replace(model, learned_judge=Judge.learn(model.mode_scorer(), seed=config.seed))
        return replace(model, metrics=_measure(model, choice))


def _measure(model: Model, choice: ModeChoice) -> dict[str, Any]:
    """Figures of validation and test by split; those that the choice was made by are not made again."""
    most = affordable_questions(model.data.n_entities)
    made = {} if choice.evaluation is None else {"valid": choice.evaluation}
    splits = [split for split in ("valid", "test") if len(model.data.split(split))]
    return {split: (made.get(split) or model.evaluate(split, most=most)).to_dict() for split in splits}
