"""Which softmax a fit is trained with, exact or sampled, and what that changes in the settings of its phases."""

from __future__ import annotations

from functools import cached_property

import torch

from kgem.config import Config, exact_operations
from kgem.data.dataset import Dataset
from kgem.errors import ConfigError
from kgem.model.embeddings import Embeddings
from kgem.model.objective import SoftmaxObjective
from kgem.model.prior import Prior, similar_strengths
from kgem.model.sampled import SampledObjective
from kgem.model.sampled_shards import ShardedObjective
from kgem.model.sampling import Candidates
from kgem.model.shards import WHOLE
from kgem.train.variational_em import EMState

__all__ = ["Softmax", "sampled_settings", "say_softmax", "unseen_are_prior"]

SECTIONS = ("pretrain", "em", "retrain", "distil")


class Softmax:
    """The objective of all phases, and the exact one beside it for those epochs that are to be exact."""

    def __init__(self, data: Dataset, config: Config, like: Embeddings, prior: Prior) -> None:
        self._index, self._like, self._prior = data.query_index, like, prior
        self._products = torch.bfloat16 if config.run.products == "bfloat16" else None
        self._config = config.train
        self._counts = torch.tensor(data.entity_counts)
        size = len(self._index), like.n_entities, like.entities.shape[1]
        self.is_sampled = config.train.is_sampled(*size)
        self.samples_races = config.train.samples_races(*size) and _can_sample_races(config)

    @cached_property
    def objective(self) -> SoftmaxObjective | SampledObjective:
        """What the phases minimise."""
        return self.sampled if self.is_sampled else self.exact

    @cached_property
    def sampled(self) -> SampledObjective:
        """Estimated from candidates."""
        candidates = Candidates(self._counts, self._config.candidates, self._config.exponent)
        kind = SampledObjective if self._like.shards.n_rows is None else ShardedObjective
        return kind(self._index, self._like, self._prior, candidates, products=self._products)

    @cached_property
    def exact(self) -> SoftmaxObjective:
        """Over all entities."""
        return SoftmaxObjective(self._index, self._like, self._prior, products=self._products)


def _can_sample_races(config: Config) -> bool:
    """Adam changes all rows in every step; a time budget takes the epochs of a phase to be equally long."""
    optimizers = {config.pretrain.optimizer, config.retrain.optimizer}
    return "adam" not in optimizers and config.run.time_budget is None


def sampled_settings(config: Config, data: Dataset, width: int) -> Config:
    """The settings of a fit: those given, or where the softmax is sampled what its steps can do.

    Adagrad has one accumulator per row, if that is wanted; Eq. 17 is exact and once per epoch, because a step sees few
    of the rows; there are no companions, and students do not race, because memory is at its limit then.
    """
    if not config.train.is_sampled(len(data.query_index), data.n_entities, width):
        return config
    changes, by_row = {}, config.train.accumulates_rows(data.n_entities, width)
    for name in SECTIONS:
        section = getattr(config, name)
        if section.optimizer == "adam":
            raise ConfigError(
                "Adam changes all rows in every step, which a sampled softmax is there to avoid",
                where=f"{name}.optimizer",
                remedy=f"{name}.optimizer = adagrad, or train.softmax = exact",
            )
        changed = {"optimizer": "row-adagrad"} if by_row and section.optimizer == "adagrad" else {}
        changes[name] = section.model_copy(update=changed)
    changes["em"] = changes["em"].model_copy(update={"m_step": "exact"})
    changes["distil"] = changes["distil"].model_copy(update={"candidates": config.distil.candidates[:1]})
    changes["companions"] = config.companions.model_copy(update={"mixes": ()})
    return config.model_copy(update=changes)


def say_softmax(config: Config, data: Dataset, width: int) -> str:
    """Which softmax it is, and why, in one line."""
    operations = exact_operations(len(data.query_index), data.n_entities, width)
    why = "" if config.train.softmax == "auto" else f" (train.softmax = {config.train.softmax})"
    cost = f"an exact epoch has {operations:.1e} operations"
    if config.train.is_sampled(len(data.query_index), data.n_entities, width):
        return f"sampled softmax, {config.train.candidates:,} candidates a step{why}: {cost}"
    races = config.train.samples_races(len(data.query_index), data.n_entities, width) and _can_sample_races(config)
    until_won = f", in races sampled with {config.train.candidates:,} candidates a step" if races else ""
    return f"exact softmax over all entities{why}{until_won}: {cost}"


def unseen_are_prior(state: EMState, objective: SampledObjective, prior: Prior) -> None:
    """Mutates q at its best: rows without facts are the prior of symbols with few facts, of which nothing is known."""
    sides = zip(
        objective.unseen,
        objective.occurrences,
        state.strengths,
        state.best.tables(),
        state.best_log_stds,
        (state.best.shards, WHOLE),
        strict=True,
    )
    for unseen, counts, strengths, means, log_stds, shards in sides:
        if len(unseen) and len(unseen) < len(counts):
            whole = shards.whole(strengths)
            whole[unseen] = similar_strengths(counts.cpu().numpy(), whole, counts[unseen].cpu().numpy())
            strengths.copy_(shards.own(whole))
            mine = shards.own(counts) == 0
            means[mine] = 0.0
            log_stds[mine] = prior.closest_log_std(strengths[mine], means.shape[1]).to(means.dtype)[:, None]
