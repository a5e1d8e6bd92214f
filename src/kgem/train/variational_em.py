"""Algorithm 2: variational EM, which fits a posterior and tunes every strength at once.

Beside Algorithm 1 there are three differences: noise is injected into the tables, its scale is learned
with the gradient of the entropy, and the strengths are updated after T_E epochs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kgem.config import EMConfig
from kgem.errors import Diverged
from kgem.model.embeddings import Embeddings
from kgem.model.joint import Gradients, clone_joint, empty_joint, stack, walk
from kgem.model.objective import Objective
from kgem.model.posterior import Gaussian
from kgem.model.prior import Prior, Strengths
from kgem.model.rows import ALL, Touched
from kgem.train.averaging import Averaging
from kgem.train.optimizer import Optimizer, Schedule
from kgem.train.point_estimate import (
    EpochRecord,
    Validate,
    copy_prefixed,
    copy_tables,
    default_batch_size,
    end_epoch,
    is_finite,
    strip_prefix,
)
from kgem.train.stopping import Asked, Collapse, EarlyStopping, Part, Settling, never

__all__ = ["Bound", "EMState", "elbo", "variational_em"]

SIDES = ("entities", "relations")
BLOCK = 2**16  # rows at a time
Pair = tuple[Tensor, Tensor]  # of entities, of relations
Norms = list[Tensor]  # ||x||_p^p of each row, one tensor per table


@dataclass
class EMState:
    """Everything Algorithm 2 needs to go on; posterior and strengths change in place."""

    means: Embeddings
    log_stds: Gradients  # xi, one tensor per table
    strengths: Strengths
    mean_optimizer: Optimizer
    std_optimizer: Optimizer
    generator: torch.Generator  # of the order of queries
    noise: torch.Generator
    stopping: EarlyStopping
    settling: Settling
    collapse: Collapse
    optima: Strengths  # 1/lambda of Eq. 17 after the last epoch; not a number before the first
    average: Embeddings  # of the means over the last steps: what is validated and kept
    best: Embeddings
    best_log_stds: Gradients
    scratch: tuple[Embeddings, Embeddings] | None = None  # a sample and its noise, where steps touch all rows
    steps: int = 0
    epoch: int = 0
    part: Part = field(default_factory=Part)  # of the epoch that it stands in
    pending: dict[str, Tensor] = field(default_factory=dict)  # and what its averages still lack, if it was left

    @classmethod
    def start(
        cls,
        means: Embeddings,
        strengths: Strengths,
        config: EMConfig,
        generator: torch.Generator,
        noise: torch.Generator,
    ) -> EMState:
        """Line 1: q around a pre-trained model."""
        log_stds = Gradients(*clone_joint(Gaussian.around(t, config.initial_std).log_std for t in means.tables()))
        return cls(
            means=means,
            log_stds=log_stds,
            strengths=strengths,
            mean_optimizer=Optimizer(config.optimizer, means.tables()),
            std_optimizer=Optimizer(config.optimizer, log_stds.tables()),
            generator=generator,
            noise=noise,
            stopping=EarlyStopping(config.patience, config.min_gain),
            settling=Settling(config.settled),
            collapse=Collapse(math.log(means.n_entities)),
            optima=Strengths(*(torch.full_like(lam, math.nan) for lam in strengths)),
            average=means.clone(),
            best=means.clone(),
            best_log_stds=Gradients(*clone_joint(log_stds)),
        )

    @property
    def posterior(self) -> tuple[Gaussian, Gaussian]:
        """q as it stands (Eqs. 12-13): of E, and of R."""
        entities, relations = self.means.tables()
        return Gaussian(entities, self.log_stds.entities), Gaussian(relations, self.log_stds.relations)

    def keep_as_best(self) -> None:
        """Mutates: q as it stands, around the averaged means, is the best so far."""
        copy_tables(self.average, self.best)
        for new, old in zip(self.log_stds, self.best_log_stds, strict=True):
            old.copy_(new)

    def release(self) -> None:
        """Mutates: from here on only q at its best is needed, with strengths and accumulators; the rest gives way."""
        self.means = self.average = self.best
        self.log_stds, self.scratch = self.best_log_stds, None
        self.mean_optimizer = self.mean_optimizer.moved_to(self.best.tables())
        self.std_optimizer = self.std_optimizer.moved_to(self.best_log_stds.tables())

    def tensors(self, *, copies: bool = True) -> dict[str, Tensor]:
        """Everything in the state that is a tensor, in copies or as it stands: with `numbers`, all `restore` needs."""
        groups = {
            "mean_optimizer": self.mean_optimizer.state(copies=copies),
            "std_optimizer": self.std_optimizer.state(copies=copies),
            "generator": {"order": self.generator.get_state(), "noise": self.noise.get_state()},
            "pending": self.pending,
        }
        tables = {name: tensor.clone() if copies else tensor for name, tensor in self._tables().items()}
        return tables | {f"{group}.{name}": t for group, named in groups.items() for name, t in named.items()}

    def numbers(self) -> dict[str, Any]:
        """Everything else in the state, for JSON."""
        return {
            "epoch": self.epoch,
            "steps": self.steps,
            "stopping": asdict(self.stopping),
            "settling": asdict(self.settling),
            "collapse": asdict(self.collapse),
            "part": asdict(self.part),
        }

    def restore(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Mutates: back to where `tensors` and `numbers` were taken; what follows is the same, bit for bit."""
        if "mean.entities" not in tensors:
            self.release()
        for name, table in self._tables().items():
            table.copy_(tensors[name])
        self.mean_optimizer.restore(strip_prefix("mean_optimizer.", tensors))
        self.std_optimizer.restore(strip_prefix("std_optimizer.", tensors))
        self.generator.set_state(tensors["generator.order"].cpu())
        self.noise.set_state(tensors["generator.noise"].cpu())
        self.epoch, self.steps = numbers["epoch"], numbers["steps"]
        self.stopping = EarlyStopping(**numbers["stopping"])
        self.settling = Settling(**numbers["settling"])
        self.collapse = Collapse(**numbers["collapse"])
        self.part = Part(**numbers.get("part", {}))
        self.pending = copy_prefixed("pending.", tensors)

    def _tables(self) -> dict[str, Tensor]:
        """The live tensors, by name; of a state that was released, those of q at its best."""
        groups = {
            "mean": self.means.tables(),
            "log_std": self.log_stds.tables(),
            "strengths": self.strengths,
            "optima": self.optima,
            "average": self.average.tables(),
            "best_mean": self.best.tables(),
            "best_log_std": self.best_log_stds.tables(),
        }
        if self.means is self.best:
            groups = {name: pair for name, pair in groups.items() if name not in ("mean", "log_std", "average")}
        return {f"{group}.{side}": t for group, pair in groups.items() for side, t in zip(SIDES, pair, strict=True)}


def variational_em(
    state: EMState,
    objective: Objective,
    prior: Prior,
    config: EMConfig,
    validate: Validate | None = None,
    stop: Asked = never,
) -> Iterator[EpochRecord]:
    """Algorithm 2, epoch after epoch from wherever the state stands; mutates it. Ends when settled or collapsed.

    Asked to stop it ends after the step, or without the end of a validation; the state can go on from there.
    """
    schedule = Schedule(config.learning_rate, config.half_life)
    while state.epoch < config.epochs and not is_finished(state, config) and not stop():
        begun, order = time.perf_counter() - state.part.seconds, state.generator.get_state()
        loss = run_epoch(state, objective, prior, config, stop)
        if not math.isfinite(loss):
            raise Diverged(f"the loss is not a number in EM epoch {state.epoch + 1}", remedy="lower em.learning_rate")
        ended, mrr = end_epoch(state, config, validate, stop, order, begun)
        if not ended:
            return
        state.collapse.update(loss, signal_to_noise(state))
        if validate is None or (mrr is not None and state.stopping.update(mrr, state.epoch)):
            state.keep_as_best()
        norms = exact_norms(state, prior)
        expected = objective.expected_loss(loss, state.posterior, state.means)
        bound = elbo(state, prior, expected * objective.n_facts, norms)
        drift = take_optima(state, prior, norms)
        # While the strengths are held, q settles to them: that is not yet the end.
        state.settling.update(drift if state.epoch > config.e_epochs else math.inf, bound.elbo)
        extra = bound._asdict() | {"elbo": bound.elbo}
        extra |= {"drift": drift} if math.isfinite(drift) else {}
        extra |= {"collapsed": 1.0} if state.collapse.done else {}
        rate = schedule.at(state.epoch)
        best = state.stopping.best if state.stopping.best_epoch else None
        yield EpochRecord(state.epoch, loss, rate, time.perf_counter() - begun, mrr, best, extra)


def is_finished(state: EMState, config: EMConfig) -> bool:
    """Whether validation has stopped gaining for good, q has collapsed, or strengths and ELBO have settled.

    The means may gain long after the strengths have settled: then half the patience decides.
    """
    idle = state.stopping.best_epoch == 0 or state.stopping.waited >= config.patience // 2
    return state.stopping.done or state.collapse.done or (state.settling.done and idle)


def run_epoch(state: EMState, objective: Objective, prior: Prior, config: EMConfig, stop: Asked = never) -> float:
    """Lines 3-9 for every query once; mutates the state. Returns the expected data term of L / N'."""
    batches = objective.batches(config.batch_size or default_batch_size(objective.n_items), state.generator)
    mean_rate, std_rate, strength_rate = (
        Schedule(rate, config.half_life)
        for rate in (config.learning_rate, config.std_learning_rate, config.strength_rate)
    )
    update = M_STEPS.get(config.m_step) if state.epoch >= config.e_epochs else None
    averaging = Averaging(state.means, state.average, state.steps, config.averaging * len(batches), state.pending)
    for step in range(state.part.steps, len(batches)):
        if stop():
            state.pending = averaging.pause() if config.averaging else {}
            return state.part.loss
        batch, now = batches[step], state.epoch + step / len(batches)
        estimate = estimate_gradients(state, objective, prior, batch, config, with_norms=update is not None)
        if not math.isfinite(estimate.loss):
            return estimate.loss
        if config.averaging:
            averaging.before_step(objective.touched(batch), estimate.rows[0])
        e_step(state, estimate, mean_rate.at(now), std_rate.at(now), objective.touched(batch))
        state.steps += 1
        if update is not None:
            update(state, prior, estimate.norms, strength_rate.at(now), objective.n_facts)
        state.part.loss += estimate.loss * len(batch)
        state.part.steps = step + 1
    averaging.finish() if config.averaging else copy_tables(state.means, state.average)
    state.pending = {}
    if config.m_step == "exact" and state.epoch >= config.e_epochs:
        m_step(state, prior, exact_norms(state, prior))
    finite = state.means.shards.all(all(map(is_finite, (*state.means.tables(), *state.log_stds))))
    return state.part.loss / objective.n_items if finite else math.nan


class Estimate(NamedTuple):
    """What one sample of q, or the mean of several, says about a minibatch."""

    loss: float  # the data term of L / N'
    means: Gradients  # of L / N' under noise, with respect to the means
    log_stds: Gradients  # likewise, with respect to xi, less that of the entropy
    norms: Norms  # of the sample's rows: the paper's estimate of Eq. 17's expectation
    rows: tuple[Pair, Pair]  # the touched rows of means and xi as they are


def estimate_gradients(
    state: EMState, objective: Objective, prior: Prior, batch: Any, config: EMConfig, *, with_norms: bool
) -> Estimate:
    """Lines 4-7: gradients of the (tempered) negative ELBO / N' from S samples; their memory is used again."""
    beta = 1.0 if config.beta is None else config.beta
    first = estimate_once(state, objective, prior, batch, beta, with_norms)
    if config.samples == 1:
        return first
    loss, sums = first.loss, [t.clone() for t in (*first.means, *first.log_stds, *first.norms)]
    for _ in range(config.samples - 1):
        more = estimate_once(state, objective, prior, batch, beta, with_norms)
        loss += more.loss
        for total, t in zip(sums, (*more.means, *more.log_stds, *more.norms), strict=True):
            total.add_(t)
    for total in sums:
        total.div_(config.samples)
    return Estimate(loss / config.samples, Gradients(*sums[:2]), Gradients(*sums[2:4]), sums[4:], first.rows)


def estimate_once(
    state: EMState, objective: Objective, prior: Prior, batch: Any, beta: float, with_norms: bool
) -> Estimate:
    """Lines 4-7 for one sample of the touched rows, whose memory the gradients for xi then take."""
    touched = objective.touched(batch)
    means, log_stds, sample = draw(state, touched)
    rows = means.tables(), log_stds.tables()
    norms = sample_norms(sample, prior) if with_norms else []
    tempered = Strengths(*(beta * lam for lam in touched.of(state.strengths)))
    loss, gradients = objective(sample, tempered, batch)
    for_xi = Gradients(*sample.tables())
    entropy = beta / objective.n_facts
    if touched is ALL:
        for x, mean, gradient in walk(sample, means, gradients):
            # The sample differs from the mean by sigma * eps, just the factor that the gradient for xi needs.
            torch.addcmul(x.new_tensor(-entropy), x.sub_(mean), gradient, out=x)
        return Estimate(loss, gradients, for_xi, norms, rows)
    for x, mean, gradient, share in zip(sample.tables(), means.tables(), gradients, touched.shares, strict=True):
        x.sub_(mean).mul_(gradient).sub_(entropy * share)
    return Estimate(loss, gradients, for_xi, norms, rows)


def sample_norms(sample: Embeddings, prior: Prior) -> Norms:
    """||x||_p^p of the rows of both tables, at once if they have the same width."""
    both = stack(sample)
    if both is None:
        return [prior.norm(table) for table in sample.tables()]
    return list(torch.split(prior.norm(both), [len(table) for table in sample.tables()]))


def draw(state: EMState, touched: Touched = ALL) -> tuple[Embeddings, Gradients, Embeddings]:
    """Line 4: the touched rows of q's means and of xi, and one sample of them, which is scratch."""
    if touched is ALL:
        state.scratch = state.scratch or (state.means.clone(), state.means.clone())
        means, log_stds, (sample, noise) = state.means, state.log_stds, state.scratch
    else:
        means = state.means.with_tables(*touched.of(state.means.tables()))
        log_stds = Gradients(*touched.of(state.log_stds))
        sample, noise = (means.with_tables(*empty_joint(means.tables())) for _ in range(2))
    if state.means.shards.n_rows is not None:
        draw_shard(state, touched, means, log_stds, sample)
        return means, log_stds, sample
    for mean, log_std, out, noise_out in walk(means, log_stds, sample, noise):
        Gaussian(mean, log_std).sample(state.noise, out, noise_out)
    return means, log_stds, sample


def draw_shard(state: EMState, touched: Touched, means: Embeddings, log_stds: Gradients, sample: Embeddings) -> None:
    """Mutates the sample: of the rows that this process has, with the noise that they have in a single one."""
    shards, tables = state.means.shards, zip(means.tables(), log_stds, sample.tables(), strict=True)
    if touched is not ALL:
        for (mean, log_std, out), rows in zip(tables, touched, strict=True):
            part = None if rows.part is None else (rows.part[0] * mean.shape[1], rows.part[1] * mean.shape[1])
            Gaussian(mean, log_std).sample(state.noise, out, part=part)
        return
    width, before = means.entities.shape[1], state.noise.get_state()
    n_entities = means.n_entities * width
    for (mean, log_std, out), first in zip(tables, (shards.start * width, n_entities), strict=True):
        state.noise.set_state(before)  # one draw for both tables
        Gaussian(mean, log_std).sample(state.noise, out, part=(first, n_entities + means.relations.numel()))


def e_step(state: EMState, estimate: Estimate, mean_rate: float, std_rate: float, touched: Touched = ALL) -> None:
    """Lines 6-7: a gradient step on means and log standard deviations; mutates both."""
    means, log_stds = estimate.rows
    state.mean_optimizer.step(estimate.means, mean_rate, touched, means)
    state.std_optimizer.step(estimate.log_stds, std_rate, touched, log_stds)


def m_step(state: EMState, prior: Prior, norms: Norms, rate: float = 1.0, n_facts: int = 1) -> None:
    """Line 9 with Eq. 17: 1/lambda moves by `rate` towards its optimum, whatever N'; mutates the strengths."""
    for norm, table, lam in zip(norms, state.means.tables(), state.strengths, strict=True):
        optimum = prior.optimal_inverse_strengths(norm, table.shape[1])
        lam.reciprocal_().lerp_(optimum, rate).reciprocal_()


def gradient_m_step(state: EMState, prior: Prior, norms: Norms, rate: float, n_facts: int) -> None:
    """The slow alternative to line 9: a step on log lambda up the gradient of Eq. 16 / N'; mutates the strengths."""
    for norm, table, lam in zip(norms, state.means.tables(), state.strengths, strict=True):
        slope = (table.shape[1] - lam * norm) / (prior.p * n_facts)  # lambda d/dlambda of Eq. 16
        lam.mul_(slope.mul_(rate).exp_())


M_STEPS: dict[str, Callable[[EMState, Prior, Norms, float, int], None]] = {
    "sample": m_step,
    "gradient": gradient_m_step,
}


def exact_norms(state: EMState, prior: Prior) -> Norms:
    """E_q ||x||_p^p of each row, without sampling."""
    return [prior.expected_norm(gaussian.mean, gaussian.log_std) for gaussian in state.posterior]


def take_optima(state: EMState, prior: Prior, norms: Norms) -> float:
    """Note Eq. 17's optimum for q as it stands; returns by how much 1/lambda moved, relative, median over symbols.

    The strengths themselves follow the noise of single samples and would never seem to settle.
    """
    changes = []
    for norm, table, old in zip(norms, state.means.tables(), state.optima, strict=True):
        new = prior.optimal_inverse_strengths(norm, table.shape[1])
        changes.append((new / old - 1).abs())
        old.copy_(new)
    changes[0] = state.means.shards.whole(changes[0])
    return float(torch.cat(changes).median())


def signal_to_noise(state: EMState) -> float:
    """Mean square of the entities' means over that of their standard deviations."""
    q = state.posterior[0]
    blocks = zip(torch.split(q.mean, BLOCK), torch.split(q.log_std, BLOCK), strict=True)
    squares = [(mean.square().sum(), log_std.mul(2).exp_().sum()) for mean, log_std in blocks]
    signal, noise = (state.means.shards.sum(sum(map(float, each))) for each in zip(*squares, strict=True))
    return signal / noise if noise else math.inf


class Bound(NamedTuple):
    """The evidence lower bound (Eq. 14) in its parts, every constant kept; nats over all of S'."""

    log_likelihood: float
    prior: float
    entropy: float

    @property
    def elbo(self) -> float:
        return self.log_likelihood + self.prior + self.entropy


def elbo(state: EMState, prior: Prior, expected_loss: float, norms: Norms | None = None) -> Bound:
    """Eq. 14 for q as it stands, given the expected data term of L and, if they are known, the expected norms."""
    norms = exact_norms(state, prior) if norms is None else norms
    totals: tuple[Callable[[float], float], ...] = state.means.shards.sum, float  # entities may be those of one process
    log_prior = 0.0
    for norm, table, lam, total in zip(norms, state.means.tables(), state.strengths, totals, strict=True):
        log_prior += total(float(prior.log_normaliser(lam, table.shape[1])))
        log_prior -= total(float((lam * norm).sum(dtype=torch.float64))) / prior.p
    entropies = zip(state.posterior, totals, strict=True)
    return Bound(-expected_loss, log_prior, sum(total(float(gaussian.entropy())) for gaussian, total in entropies))
