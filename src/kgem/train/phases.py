"""Section 3.2: pre-train, variational EM, re-train; then distil. A machine of phases that can stop and go on anywhere.

Re-training fits a point estimate with the learned strengths. The mean of q was trained under noise, which
acts like a further regulariser that grows with how often a symbol occurs (docs/method.md); a point estimate
misses it. So the re-training strengths are

    lambda = a * learned + c * shared * n,

with the shared strength that pre-training settled on. (a, c) is settled by a short race on validation MRR: every
candidate re-trains a few epochs from the EM means, the best two some more, and the one that leads goes on. a = 1,
c = 0 is the paper's recipe. Pre-training settles its one shared strength the same way; while the strongest or the
weakest of its candidates leads, a further one joins, so that a start that is ten times off ends at the same place.
Where no re-training beats the pre-trained tables, these are what the fit leaves behind.

Re-training leaves two models, which answer better together than either alone, and with companions better still
(train/companions.py); distillation makes one of them all (train/distillation.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from kgem.config import Config, EMConfig, TrainConfig
from kgem.data.dataset import Dataset
from kgem.errors import Collapsed
from kgem.model.embeddings import Embeddings
from kgem.model.objective import MarginObjective, Objective
from kgem.model.posterior import Gaussian, Posterior
from kgem.model.prior import Prior, Strengths, conventional_strengths, uniform_strengths
from kgem.model.processes import ALONE, Processes
from kgem.model.sampled import SampledObjective
from kgem.model.scores import get_score
from kgem.model.shards import WHOLE, Shards, deal
from kgem.train.companions import Companions
from kgem.train.distillation import Distillation, Mix
from kgem.train.point_estimate import EpochRecord, PointState, Validate, copy_tables, point_estimate, strip_prefix
from kgem.train.race import Race, add_prefix
from kgem.train.softmax import Softmax, sampled_settings, unseen_are_prior
from kgem.train.stopping import Asked, never
from kgem.train.variational_em import EMState, variational_em
from kgem.train.warm_start import WarmStart, measure_em, measure_point

__all__ = ["PHASES", "FitResult", "ThreePhases"]

PHASES = ("pretrain", "em", "retrain", "companions", "distil")
PRETRAINED = (0.0, 1.0)  # the (a, c) of pre-training's strengths
WEIGHT_OF_PRIOR = 0.25  # of what noise and prior of q do together
LEAST_BETA = 0.01  # a prior that weighs nothing would let q run away
NEGATIVES = "negatives"  # the generator of random tails, in a checkpoint
STREAMS = ("init", "pretrain", "em", "noise", "retrain", "negatives", "distil")  # of random numbers
COMPANIONS = 2**40  # where theirs begin: a number for each seed and each of at most 2^10 companions
RULES = {"conventional": conventional_strengths, "uniform": uniform_strengths}

LOG = logging.getLogger(__name__)

AnyState = TypeVar("AnyState", EMState, Race[Any], Companions)
ValidateBlend = Callable[[Embeddings, Embeddings], float]


@dataclass(frozen=True, eq=False)
class FitResult:
    """What a fit leaves behind."""

    point: Embeddings  # distilled or re-trained tables, or the pre-trained ones if these are better
    posterior: Posterior  # q after EM, at its best on validation
    strengths: Strengths  # learned by EM
    mix: Mix  # the (a, c) that re-training settled on
    student: Mix | None  # and that of distillation; none without it
    beta: float  # the tempering of EM
    epochs: dict[str, int]  # spent in each phase, trials and restarts included
    events: tuple[dict[str, Any], ...]  # what the settings do not tell: restarts, where it fell back, where it began
    shared: float  # the multiple of the shared strength that pre-training settled on
    missing: tuple[str, ...] = ()  # phases that had not come to their end


class ThreePhases:
    """A fit in progress. `epochs` carries it to its end; `tensors` and `numbers` are all that a checkpoint needs."""

    def __init__(
        self,
        data: Dataset,
        config: Config,
        validate: Validate | None = None,
        warm: WarmStart | None = None,
        validate_blend: ValidateBlend | None = None,
        stop: Asked = never,
        processes: Processes = ALONE,
    ) -> None:
        """`validate_blend` judges two models that answer together: re-training may be for such a pair.

        Asked to `stop`, epochs end within a step; so must `validate`, whose figure is then not used. Of several
        `processes` each has a range of the rows of entities; they do the same at the same time.
        """
        self._stop = stop
        shards = deal(processes, data.n_entities)
        self._warm = None if warm is None else warm.own(shards)
        self.phase = "pretrain"
        self._validate = validate
        self._validate_blend = validate_blend
        self.config, self._data = config, data
        score = get_score(config.model.score)
        self.prior = Prior(config.model.p, score.complex)
        self._start = self._random_tables(self._generator("init"), shards)
        self.softmax = Softmax(data, config, self._start, self.prior)
        self.objective = self.softmax.objective
        self._counts = (data.entity_counts, self._start.relation_occurrences(data.relation_counts))
        self._negatives = self._generator("negatives")
        self.pretraining_objective = self._pretraining_objective(data)
        self.pretraining_race: Race[float] = Race(self._start_pretraining(), self.settings.pretrain.candidates)
        self.epochs_spent = dict.fromkeys(PHASES[:3], 0)  # the others count if they are wanted
        self.events: list[dict[str, Any]] = []
        self.em: EMState | None = None
        self.race: Race[Mix] | None = None
        self.companions: Companions | None = None
        self.distillation: Distillation | None = None

    @property
    def shards(self) -> Shards:
        """The rows of entities that this process has."""
        return self._start.shards

    @property
    def settings(self) -> Config:
        """The settings as the phases use them: a sampled softmax changes some."""
        return sampled_settings(self.config, self._data, self._start.entities.shape[1])

    def _random_tables(self, generator: torch.Generator, shards: Shards) -> Embeddings:
        """Algorithm 1, line 1."""
        config = self.config
        return Embeddings.random(
            get_score(config.model.score),
            self._data.n_entities,
            self._data.n_relations,
            config.model.dim,
            generator=generator,
            reciprocal=config.model.reciprocal,
            scale=config.model.init_scale,
            dtype=getattr(torch, config.dtype),
            device=config.device,
            shards=shards,
        )

    def _generator(self, purpose: str) -> torch.Generator:
        """A stream of its own for each purpose, so that phases do not depend on each other's lengths."""
        return torch.Generator().manual_seed(self.config.seed * len(STREAMS) + STREAMS.index(purpose))

    def _pretraining_objective(self, data: Dataset) -> Objective:
        """What phase 1 minimises: the softmax of the later phases, or the margin loss of the early models."""
        config = self.settings.pretrain
        if config.loss == "softmax":
            return self.objective
        return MarginObjective(
            data.query_index,
            self._start,
            self.prior,
            generator=self._negatives,
            margin=config.margin,
            negatives=config.negatives,
        )

    @property
    def pretraining(self) -> PointState:
        """Phase 1 as it stands."""
        return self.pretraining_race.state

    @property
    def shared_factor(self) -> float:
        """The multiple of the shared strength that leads the race of pre-training."""
        return self.pretraining_race.candidates[self.pretraining_race.leader]

    @property
    def is_sampling(self) -> bool:
        """Whether the epochs that are under way have a sampled softmax."""
        if self.phase == "companions" and self.companions is not None:
            return self.companions.is_sampling
        race = {"pretrain": self.pretraining_race, "retrain": self.race}.get(self.phase)
        objective = self.objective if race is None else self._objective_of(race)
        return isinstance(objective, SampledObjective)

    def will_race(self, phase: str) -> bool:
        """Whether candidates of pre-training or re-training are still to run before somebody has won."""
        race = {"pretrain": self.pretraining_race, "retrain": self.race}[phase]
        return len(getattr(self.settings, phase).candidates) > 1 and (race is None or race.stage != "won")

    @property
    def candidate(self) -> int | None:
        """Whose turn it is in the race of this phase, or among companions; none in EM."""
        if self.phase == "companions":
            return 0 if self.companions is None else self.companions.turn
        races = {"pretrain": self.pretraining_race, "retrain": self.race, "distil": self.students}
        race = races.get(self.phase)
        return None if race is None else race.turn

    def rule_strengths(self, factor: float = 1.0) -> Strengths:
        """Eq. 6, or its uniform variant, for both tables."""
        config = self.settings.pretrain
        like = self._start.entities
        rule = RULES[config.rule]
        both = Strengths(*(rule(n, factor * config.strength, like.dtype).to(like.device) for n in self._counts))
        return both._replace(entities=self._start.shards.own(both.entities))

    def epochs(self, last: str = PHASES[-1]) -> Iterator[tuple[str, EpochRecord]]:
        """Mutates: epoch after epoch, each with its phase, from wherever the fit stands to the end of the last phase.

        Whoever drives it may stop after any epoch, and go on with another call. When `stop` is asked for they end in
        the middle of one, and the state is where it then stands.
        """
        phases = {
            "pretrain": self._pretrain,
            "em": self._variational_em,
            "retrain": self._retrain,
            "companions": self._train_companions,
            "distil": self._distil,
        }
        for phase in PHASES[: PHASES.index(last) + 1]:
            if self.phase != phase:
                continue
            for record in phases[phase]():
                self.epochs_spent[phase] = self.epochs_spent.get(phase, 0) + 1
                yield phase, record

    @property
    def missing(self) -> tuple[str, ...]:
        """The phases that have not come to their end."""
        coming = () if self.phase == "done" else PHASES[PHASES.index(self.phase) :]
        wanted = {"companions": self.settings.n_companions, "distil": self.settings.distil.epochs}
        return tuple(phase for phase in coming if wanted.get(phase, True))

    def end_here(self) -> None:
        """Mutates: what is there stands for what has not been; not to go on from.

        A race is won by whoever is ahead. Without an epoch of EM, q and strengths are those that EM starts with.
        Without re-training the pre-trained tables stay, and in an update those of the earlier fit.
        """
        self.pretraining_race.end_here()
        if self.em is None or not self.em.epoch or self.em.collapse.done:
            self.em = self._start_em(measured=False)
        if self.students is not None:
            self.students.end_here()
        if self.race is not None and (self.race.kept or self.race.state.epoch):
            self.race.end_here()
            if self.phase == "retrain":
                self._fall_back(self.race.state)
        elif self._warm is not None:
            self.race = Race(self._start_retraining(measured=False), self.settings.retrain.candidates[:1])
        else:
            start = PointState.start(self.pretraining.best.clone(), self.settings.retrain, self._generator("retrain"))
            self.race = Race(start, [PRETRAINED])

    def result(self) -> FitResult:
        """Tables, posterior and strengths of a fit that is done, or was ended; with all rows in the first process."""
        assert self.em is not None and self.race is not None
        means, log_stds, collect = self.em.best, self.em.best_log_stds, self._start.shards.collect
        entities = Gaussian(collect(means.entities), collect(log_stds.entities))
        mix, student = self.race.candidates[self.race.leader], self.students
        point = self.race.state.best if self.distillation is None else self.distillation.best
        return FitResult(
            point=point if self.shards is WHOLE else replace(point, entities=collect(point.entities), shards=WHOLE),
            posterior=Posterior(entities, Gaussian(means.relations, log_stds.relations)),
            strengths=self.em.strengths._replace(entities=collect(self.em.strengths.entities)),
            mix=PRETRAINED if self.fell_back else mix,
            student=None if student is None else student.candidates[student.leader],
            beta=self.em_config().beta or 1.0,
            epochs=dict(self.epochs_spent),
            events=tuple(self.events),
            shared=self.shared_factor,
            missing=self.missing,
        )

    def tensors(self, *, copies: bool = True) -> dict[str, Tensor]:
        """Everything in the fit that is a tensor, in copies or as it stands: with `numbers`, all `restore` needs."""
        states = {
            name: t
            for part, state in self._states().items()
            for name, t in add_prefix(part, state.tensors(copies=copies)).items()
        }
        return states | {NEGATIVES: self._negatives.get_state()}

    def numbers(self) -> dict[str, Any]:
        """Everything else in the fit, for JSON."""
        return {
            "phase": self.phase,
            "epochs": dict(self.epochs_spent),
            "events": [dict(event) for event in self.events],
            **{part: state.numbers() for part, state in self._states().items()},
        }

    def restore(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Mutates a fit of the same graph and settings: back to where `tensors` and `numbers` were taken."""
        self.phase = numbers["phase"]
        self.epochs_spent = dict(numbers["epochs"])
        self.events = [dict(event) for event in numbers["events"]]

        def back(part: str, state: AnyState) -> AnyState:
            state.restore(strip_prefix(f"{part}.", tensors), numbers[part])
            return state

        back("pretraining", self.pretraining_race)  # before EM begins: a phase that is done may have let go of much
        if "em" in numbers:
            self.em = back("em", self._start_em(measured=False))
        if "race" in numbers:
            start = self._start_retraining(measured=False)
            self.race = back("race", Race(start, self.settings.retrain.candidates))
        if "companions" in numbers:
            self.companions = back("companions", self._start_companions())
        if "students" in numbers or "student" in numbers:
            self.distillation = self._start_distillation()
            self.distillation.restore(tensors, numbers)
        self._negatives.set_state(tensors[NEGATIVES].cpu())

    @property
    def steps_of_next_epoch(self) -> int:
        """How many steps there have been since the last epoch ended."""
        parts = {"pretrain": "pretraining", "retrain": "race", "distil": "students"}
        found = self._states().get(parts.get(self.phase, self.phase))
        state = found.state if isinstance(found, Race | Companions) else found
        return 0 if state is None else state.part.steps

    def _states(self) -> dict[str, EMState | Race[Any] | Companions]:
        """The states of the phases that have begun."""
        states = {
            "pretraining": self.pretraining_race,
            "em": self.em,
            "race": self.race,
            "companions": self.companions,
            "students": self.students,
        }
        return {part: state for part, state in states.items() if state is not None}

    def _release(self, finished: PointState | EMState) -> None:
        """Mutates: of tables that are large, a phase that is done keeps only what is needed later."""
        if self.softmax.is_sampled:
            finished.release()

    def _pretrain(self) -> Iterator[EpochRecord]:
        config, race = self.settings.pretrain, self.pretraining_race
        race.limit_to(config.candidates)
        start, anew = self._start_pretraining, self.softmax.samples_races
        yield from race.epochs(config, start, self._pretrain_one, config.extensions, self._stop, anew)
        if not self._stop():
            self._release(race.state)
            self.phase = "em"

    def _pretrain_one(self, state: PointState, factor: float, config: TrainConfig) -> Iterator[EpochRecord]:
        strengths, objective = self.rule_strengths(factor), self._objective_of(self.pretraining_race)
        return point_estimate(state, objective, strengths, config, self._validate, self._stop)

    def _objective_of(self, race: Race[Any]) -> Objective:
        """What candidates of a race minimise: until somebody has won, an estimate of the softmax may do."""
        objective = self.pretraining_objective if race is self.pretraining_race else self.objective
        estimated = self.softmax.samples_races and race.stage != "won" and objective is self.objective
        return self.softmax.sampled if estimated else objective

    def _start_pretraining(self) -> PointState:
        self._negatives.set_state(self._generator("negatives").get_state())  # the same tails for every candidate
        start = self._start.clone()
        if self._warm is not None:
            q = self._warm.posterior
            start = self._start.with_tables(q.entities.mean.clone(), q.relations.mean.clone())
        return PointState.start(start, self.settings.pretrain, self._generator("pretrain"))

    def _start_em(self, *, measured: bool = True, stop: Asked = never) -> EMState:
        """Phase 2 at its beginning; whoever restores another state has no need for measured accumulators.

        They take an epoch; after a stop the state is not to be used.
        """
        config, means = self.settings.em, self.pretraining.best.clone()
        if self._warm is not None:
            return self._go_on_with_em(means, self._warm, measured, stop)
        strengths = self.rule_strengths(self.shared_factor)
        if config.initial_strengths == "optimal":
            optima = (
                self.prior.optimal_inverse_strengths(self.prior.expected_norm(q.mean, q.log_std), q.mean.shape[1])
                for q in (Gaussian.around(table, config.initial_std) for table in means.tables())
            )
            strengths = Strengths(*(optimum.reciprocal() for optimum in optima))
        state = EMState.start(means, strengths, config, self._generator("em"), self._generator("noise"))
        if config.carry_accumulators and config.optimizer == self.settings.pretrain.optimizer:
            state.mean_optimizer.restore(self.pretraining.optimizer.state(copies=False))
        return state

    def _go_on_with_em(self, means: Embeddings, warm: WarmStart, measured: bool, stop: Asked) -> EMState:
        """EM from q and strengths of an earlier fit. Validation may know nothing of new symbols: the latest counts."""
        config, strengths = self.em_config(), Strengths(*(lam.clone() for lam in warm.strengths))
        state = EMState.start(means, strengths, config, self._generator("em"), self._generator("noise"))
        for log_stds in (state.log_stds, state.best_log_stds):
            log_stds.entities.copy_(warm.posterior.entities.log_std)
            log_stds.relations.copy_(warm.posterior.relations.log_std)
        state.stopping.latest = True
        if measured and config.carry_accumulators:
            measure_em(state, self.objective, self.prior, config, warm, stop)
        return state

    def em_config(self) -> EMConfig:
        """The settings of EM as it stands: a quarter of beta for every collapse so far."""
        config = self.settings.em
        return config.model_copy(update={"beta": (config.beta or self.tempering()) / 4**self.collapses})

    def tempering(self) -> float:
        """A quarter of the beta at which EM's prior weighs as much as that of pre-training, and at most 1.

        With the strengths of Eq. 17 every row has lambda ||x||^p = K', so that the tempered prior has the weight
        beta * K' * rows, where pre-training has the sum of its lambda ||x||^p. A quarter of that, because q's noise
        regularises too (docs/method.md).
        """
        tables = self.pretraining.best.tables()
        rule = self.rule_strengths(self.shared_factor)
        weights = [float((lam * self.prior.norm(x)).sum()) for lam, x in zip(rule, tables, strict=True)]
        numbers = self._start.n_entities * tables[0].shape[1] + tables[1].numel()
        fair = (self._start.shards.sum(weights[0]) + weights[1]) / numbers
        return min(max(WEIGHT_OF_PRIOR * fair, LEAST_BETA), 1.0)

    @property
    def collapses(self) -> int:
        """How often EM has begun anew."""
        return sum(event["event"] == "collapse" for event in self.events)

    def _variational_em(self) -> Iterator[EpochRecord]:
        if self.em is None:
            start = self._start_em(stop=self._stop)
            if self._stop():
                return
            self.em = start
            del start  # which gives way if EM begins anew
        while True:
            config = self.em_config()
            yield from variational_em(self.em, self.objective, self.prior, config, self._validate, self._stop)
            if self._stop():
                return
            if not self.em.collapse.done:
                break
            self.em = self._recover(self.em, config)
        if isinstance(self.objective, SampledObjective):
            unseen_are_prior(self.em, self.objective, self.prior)
        self._release(self.em)
        self.phase = "retrain"

    def _recover(self, collapsed: EMState, config: EMConfig) -> EMState:
        """EM anew, with a smaller beta; mutates the events; raises when that has been tried enough."""
        what = f"q fell back to the prior in epoch {collapsed.epoch} of variational EM (beta = {config.beta:g})"
        if self.collapses >= config.restarts:
            raise Collapsed(
                f"{what}: it predicts no better than chance and its means drown in its noise",
                where="phase em",
                remedy="lower em.beta to a quarter, with em.initial_strengths = optimal and em.e_epochs = 0; "
                "if that does not help, lower model.dim: the graph may have too few facts, or nothing to learn",
            )
        self.events.append({"event": "collapse", "phase": "em", "epoch": collapsed.epoch, "beta": config.beta})
        LOG.warning("%s; it starts again from the pre-trained tables with beta = %g", what, self.em_config().beta)
        return self._start_em()

    def _start_retraining(self, *, measured: bool = True, stop: Asked = never) -> PointState:
        assert self.em is not None
        config = self.settings.retrain
        if self._warm is not None and config.start == "warm":
            return self._go_on_with_retraining(self.em.best, self._warm, measured, stop)
        start = self.em.best.clone() if config.start == "warm" else self._start.clone()
        return PointState.start(start, config, self._generator("retrain"))

    def _go_on_with_retraining(self, means: Embeddings, warm: WarmStart, measured: bool, stop: Asked) -> PointState:
        """Re-training from the tables of an earlier fit, and for new symbols from the EM means; the latest counts."""
        config = self.settings.retrain
        tables = zip(warm.new, means.tables(), warm.point, strict=True)
        start = means.with_tables(*(torch.where(new[:, None], mean, old) for new, mean, old in tables))
        state = PointState.start(start, config, self._generator("retrain"))
        state.stopping.latest = True
        if measured and self.settings.em.carry_accumulators:
            strengths = self.retraining_strengths(*config.candidates[0])
            measure_point(state, self.objective, strengths, config, warm, stop)
        return state

    def retraining_strengths(self, a: float, c: float) -> Strengths:
        """a * learned + c * shared * n, where shared * n is what pre-training settled on (Eq. 6)."""
        assert self.em is not None
        rule = self.rule_strengths(self.shared_factor)
        return Strengths(*(a * lam + c * other for lam, other in zip(self.em.strengths, rule, strict=True)))

    def _retrain(self) -> Iterator[EpochRecord]:
        config = self.settings.retrain
        if self.race is None:
            race = Race(self._start_retraining(stop=self._stop), config.candidates)
            if self._stop():
                return
            self.race = race  # alone holds its state, which gives way after each heat
        self.race.limit_to(config.candidates)
        anew = self.softmax.samples_races
        yield from self.race.epochs(config, self._start_retraining, self._retrain_one, stop=self._stop, anew=anew)
        if not self._stop() and self._fall_back(self.race.state):
            self._release(self.race.state)
            self.phase = "companions"

    def _retrain_one(self, state: PointState, mix: Mix, config: TrainConfig) -> Iterator[EpochRecord]:
        assert self.race is not None
        strengths, objective = self.retraining_strengths(*mix), self._objective_of(self.race)
        return point_estimate(state, objective, strengths, config, self._retraining_validator(), self._stop)

    @property
    def fell_back(self) -> bool:
        """Whether the pre-trained tables were better than the re-trained ones."""
        return any(event["event"] == "fallback" for event in self.events)

    def _fall_back(self, retrained: PointState) -> bool:
        """Mutates: the pre-trained tables again, if what re-training is judged by says that they are better.

        Whether that is settled: not if a stop was asked for meanwhile.
        """
        validate = self._retraining_validator()
        if not self.settings.retrain.fall_back or validate is None or self._warm or not retrained.stopping.best_epoch:
            return True
        mrr, best = validate(self.pretraining.best), retrained.stopping.best
        if mrr > best and not self._stop():
            copy_tables(self.pretraining.best, retrained.best)
            self.events.append({"event": "fallback", "phase": "retrain", "mrr": mrr, "retrained": best})
            LOG.info("the pre-trained tables are better than the re-trained ones (MRR %.4f, %.4f)", mrr, best)
        return not self._stop()

    def _train_companions(self) -> Iterator[EpochRecord]:
        if self.settings.n_companions:
            if self.companions is None:
                self.companions = self._start_companions()
            self.companions.config = self.settings.companions  # a time budget may have shortened it
            yield from self.companions.epochs()
        if not self._stop():
            self.phase = "distil"

    def _start_companions(self) -> Companions:
        return Companions(
            config=self.settings.companions,
            softmax=self.softmax,
            strengths=self.retraining_strengths,
            tables=lambda generator: self._random_tables(generator, self.shards),
            seed=COMPANIONS + 2**10 * self.config.seed,
            validate=self._validate,
            stop=self._stop,
        )

    def _distil(self) -> Iterator[EpochRecord]:
        if self.settings.distil.epochs:
            if self.distillation is None:
                self.distillation = self._start_distillation()
            self.distillation.config = self.settings  # a time budget may have shortened it
            yield from self.distillation.epochs()
        if not self._stop():
            self.phase = "done"

    def _start_distillation(self) -> Distillation:
        assert self.em is not None and self.race is not None
        return Distillation(
            retrained=self.race.state,
            em=self.em,
            pretrained=self.pretraining.best,
            companions=() if self.companions is None else self.companions.trained,
            strengths=self.retraining_strengths,
            config=self.settings,
            softmax=self.softmax,
            generator=lambda: self._generator("distil"),
            validate=self._validate,
            stop=self._stop,
            is_update=self._warm is not None,
            events=self.events,
        )

    @property
    def students(self) -> Race[Mix] | None:
        """The race of distillation, once it has begun."""
        return None if self.distillation is None else self.distillation.race

    def _retraining_validator(self) -> Validate | None:
        """What re-training is validated by: its tables, alone or together with the means of q."""
        validate_blend, em = self._validate_blend, self.em
        if self.settings.retrain.judge != "blend" or validate_blend is None or em is None:
            return self._validate
        return lambda tables: validate_blend(tables, em.best)
