"""Every setting, its default and its bounds: frozen, typed, checked when made; no torch import."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["ModelConfig", "TrainConfig"]


class Section(BaseModel):
    """A group of settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class ModelConfig(Section):
    """The model: Section 2 of the paper."""

    score: str = Field("complex", description="score function, see kgem.model.scores")
    dim: int = Field(100, ge=1, description="embedding dimension K")
    p: Literal[2, 3] = Field(3, description="norm of the regulariser, Eq. 8")
    reciprocal: bool = Field(True, description="reciprocal facts (Eq. 7), or both softmaxes of Eq. 5 on one vector")
    init_scale: float = Field(1e-3, gt=0, description="standard deviation of the initial entries")


class TrainConfig(Section):
    """A run of Algorithm 1."""

    epochs: int = Field(100, ge=0, description="at most this many")
    batch_size: int = Field(500, ge=1, description="queries per step")
    optimizer: str = Field("adagrad", description="adagrad, adam or sgd")
    learning_rate: float = Field(0.1, gt=0, description="at the start")
    half_life: float | None = Field(25.0, gt=0, description="rate * (a / (epoch + a))^0.5; none: constant")
    patience: int = Field(10, ge=1, description="validations without gain before stopping")
    min_gain: float = Field(1e-4, ge=0, description="what counts as a gain in MRR")
    validate_every: int = Field(1, ge=1, description="epochs between validations")
