"""Every setting, its default and its bounds: frozen, typed, checked when made; no torch import."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

__all__ = [
    "NONE",
    "RECIPES",
    "CompanionsConfig",
    "Config",
    "DistilConfig",
    "EMConfig",
    "ModelConfig",
    "PretrainConfig",
    "RaceConfig",
    "RetrainConfig",
    "RunConfig",
    "SharedConfig",
    "TrainConfig",
    "exact_operations",
    "paper_recipe",
]

NONE = "none"  # how text says that a setting has no value
AFFORDABLE = 3e13  # operations of an exact epoch: some five minutes of two cores
WORTH_SAMPLING = 4  # entities for each candidate: from here on a sampled step takes a third of an exact one, or less
DENSE = 5  # questions for each entity: on sparser graphs a sampled race leaves less (docs/method.md, section 10)
MANY_NUMBERS = 2**26  # in a table: from here on memory counts
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]


class Section(BaseModel):
    """A group of settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _none(cls, given: Any) -> Any:
        """TOML and command lines have no null: there it is written as text."""
        return {k: None if v == NONE else v for k, v in given.items()} if isinstance(given, dict) else given

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth(cls, value: Any, info: ValidationInfo) -> Any:
        """True is 1 to Python, but not to whoever writes dim = true."""
        assert info.field_name is not None
        if isinstance(value, bool) and cls.model_fields[info.field_name].annotation is not bool:
            raise ValueError("neither true nor false is a value of it")
        return value


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
    batch_size: int | None = Field(None, ge=1, description="questions per step; none: about 250 steps an epoch")
    optimizer: str = Field("adagrad", description="adagrad, row-adagrad (one accumulator per row), adam or sgd")
    learning_rate: float = Field(0.3, gt=0, description="at the start")
    half_life: float | None = Field(None, gt=0, description="rate * (a / (epoch + a))^0.5; none: constant")
    averaging: float = Field(0.0, ge=0, description="epochs over which the tables are averaged; 0: not at all")
    patience: int = Field(5, ge=1, description="validations without gain before stopping")
    min_gain: float = Field(1e-4, ge=0, description="what counts as a gain in MRR")
    validate_every: int = Field(1, ge=1, description="epochs between validations")


class RaceConfig(TrainConfig):
    """Runs of Algorithm 1 whose strengths are settled by a race; what races says the phase."""

    candidates: tuple[Any, ...] = ()
    trial_epochs: int = Field(
        5, ge=1, description="epochs that each candidate of the race gets, or fewer if it falls behind"
    )
    final_epochs: int = Field(10, ge=1, description="epochs after which the better of the two that lead goes on")


class PretrainConfig(RaceConfig):
    """Phase 1: a point estimate with strengths by rule."""

    averaging: float = Field(1.0, ge=0, description="epochs over which the tables are averaged; 0: not at all")
    loss: Literal["softmax", "margin"] = Field(
        "softmax", description="exact, over all entities (Eq. 10), or the early models' hinge on random tails"
    )
    margin: float = Field(1.0, gt=0, description="of the margin loss: by how much facts are to score higher")
    negatives: int = Field(10, ge=1, description="of the margin loss: random tails per fact")
    rule: Literal["conventional", "uniform"] = Field("conventional", description="strength * n (Eq. 6), or * mean(n)")
    strength: float = Field(0.03, gt=0, description="the shared factor lambda")
    candidates: tuple[Positive, ...] = Field(
        (1.0, 3.0, 10.0), min_length=1, description="multiples of the strength that race on validation; (1): no race"
    )
    extensions: int = Field(
        4, ge=0, description="further candidates that may join, one at a time, while the strongest or weakest leads"
    )
    final_epochs: int = Field(15, ge=1, description="epochs after which the better of the two that lead goes on")


class EMConfig(TrainConfig):
    """Phase 2: a run of Algorithm 2."""

    averaging: float = Field(1.0, ge=0, description="epochs over which the means are averaged; 0: not at all")
    learning_rate: float = Field(0.1, gt=0, description="for means, at the start")
    patience: int = Field(10, ge=1, description="validations without gain before stopping; half of it once settled")
    std_learning_rate: float = Field(0.1, gt=0, description="for log standard deviations, at the start")
    half_life: float | None = Field(25.0, gt=0, description="rate * (a / (epoch + a))^0.5; none: constant")
    strength_rate: float = Field(0.5, gt=0, le=1, description="alpha_lambda: weight of the newest optimum")
    initial_std: float = Field(0.2, gt=0, description="sigma at the start")
    initial_strengths: Literal["optimal", "pretrain"] = Field(
        "optimal", description="Eq. 17 for the pre-trained tables, or the strengths of pre-training (the paper)"
    )
    carry_accumulators: bool = Field(True, description="go on with pre-training's accumulators: no shock at the start")
    e_epochs: int = Field(0, ge=0, description="T_E: epochs before the strengths move")
    beta: float | None = Field(
        None,
        gt=0,
        le=1,
        description="weight of prior and entropy; 1 is the paper, none: a quarter of what makes the learned prior "
        "weigh as much as that of pre-training",
    )
    m_step: Literal["sample", "exact", "gradient"] = Field(
        "sample",
        description="Eq. 17 from the step's sample (the paper), or once per epoch from its exact expectation, "
        "or gradient steps on log lambda (slow)",
    )
    samples: int = Field(1, ge=1, description="S: draws from q per step; 1 is the paper")
    settled: float = Field(
        0.01, ge=0, description="stop when Eq. 17's optimum moves by less (median, relative) for 3 epochs; 0: never"
    )
    restarts: int = Field(2, ge=0, description="new starts after a collapse, each with a quarter of beta; 0: report it")


class RetrainConfig(RaceConfig):
    """Phase 3: a point estimate with the learned strengths."""

    half_life: float | None = Field(10.0, gt=0, description="rate * (a / (epoch + a))^0.5; none: constant")
    averaging: float = Field(1.0, ge=0, description="epochs over which the tables are averaged; 0: not at all")
    start: Literal["warm", "fresh"] = Field("warm", description="from the EM means, or from random tables")
    judge: Literal["blend", "point"] = Field(
        "blend", description="what validation sees: the tables together with the means of q, or alone"
    )
    candidates: tuple[tuple[NotNegative, NotNegative], ...] = Field(
        ((1.0, 0.0), (5.0, 0.0), (1.0, 0.3), (1.0, 1.0)),
        min_length=1,
        description="(a, c) of the strengths a * learned + c * shared * n that race on validation; (1, 0) is the paper",
    )
    fall_back: bool = Field(True, description="keep the pre-trained tables where re-training does not beat them")


class CompanionsConfig(TrainConfig):
    """Before distillation: models from other random tables, which only teach."""

    averaging: float = Field(1.0, ge=0, description="epochs over which the tables are averaged; 0: not at all")
    mixes: tuple[tuple[NotNegative, NotNegative], ...] = Field(
        ((1.0, 0.3), (1.0, 1.0)),
        description="(a, c) of the strengths a * learned + c * shared * n, one for each; (): none",
    )
    sampled_epochs: int = Field(
        15,
        ge=0,
        description="of each, its first ones, where races are sampled (train.races): with a sampled softmax, too",
    )


class DistilConfig(RaceConfig):
    """After phase 3: one model learns what the re-trained one, the means of q and companions say together."""

    epochs: int = Field(100, ge=0, description="at most this many; 0: not at all")
    patience: int = Field(10, ge=1, description="validations without gain before stopping")
    accumulators: float = Field(
        0.1,
        gt=0,
        le=1,
        description="of those of the model that a student begins as: the smaller, the larger are its first steps",
    )
    half_life: float | None = Field(10.0, gt=0, description="rate * (a / (epoch + a))^0.5; none: constant")
    averaging: float = Field(1.0, ge=0, description="epochs over which the tables are averaged; 0: not at all")
    candidates: tuple[tuple[NotNegative, NotNegative], ...] = Field(
        ((0.3, 0.0), (1.0, 0.3)),
        min_length=1,
        description="(a, c) of the strengths a * learned + c * shared * n that race on validation",
    )
    weight: float = Field(0.9, ge=0, le=1, description="of what they say together, beside the facts")
    memory: float = Field(
        4.0,
        ge=0,
        description="GiB for what they say about all questions, a byte for each answer; if it needs more, half of the "
        "questions of each step are taught",
    )

    def kept_bytes(self, n_questions: int, n_entities: int) -> int:
        """Of what its teachers say about all questions, if that is kept."""
        wanted = n_questions * n_entities if self.epochs else 0
        return wanted if wanted <= self.memory * 2**30 else 0


class SharedConfig(Section):
    """What all phases share: the softmax over all entities."""

    softmax: Literal["auto", "exact", "sampled"] = Field(
        "auto",
        description="over all entities, or estimated from candidates, whose step costs the same however many entities "
        "there are; auto: exact while an epoch takes at most 3e13 operations: 6 * questions * entities * K', with K' "
        "at least 64",
    )
    races: Literal["auto", "exact", "sampled"] = Field(
        "auto",
        description="of an exact softmax: that of races, until somebody has won; auto: sampled where there are more "
        "than four times as many entities as candidates, five questions for each of them, and no time budget",
    )
    candidates: int = Field(2048, ge=1, description="sampled: entities that the questions of a step share, on average")
    exponent: float = Field(0.5, ge=0, le=1, description="sampled: chances of entities grow with their facts to this")
    accumulators: Literal["auto", "row", "number"] = Field(
        "auto",
        description="sampled, of Adagrad: one for each row, or for each number, which learns faster and takes half as "
        "much memory again; auto: for each number while the table of entities has at most 2^26 of them",
    )
    exact_epochs: int = Field(0, ge=0, description="sampled: at most so many exact epochs at the end of distillation")
    validation: int | None = Field(
        None,
        ge=1,
        description="questions that are ranked after each epoch, each against all entities; none: 20,000, and of more "
        "than 50,000 entities fewer, down to 2,000",
    )

    def is_sampled(self, n_questions: int, n_entities: int, width: int) -> bool:
        """Whether the softmax is sampled."""
        return self.softmax == "sampled" or (
            self.softmax == "auto" and exact_operations(n_questions, n_entities, width) > AFFORDABLE
        )

    def samples_races(self, n_questions: int, n_entities: int, width: int) -> bool:
        """Whether races have a sampled softmax where their winners have an exact one."""
        worth_it = n_entities > WORTH_SAMPLING * self.candidates and n_questions >= DENSE * n_entities
        wanted = self.races == "sampled" or (self.races == "auto" and worth_it)
        return wanted and not self.is_sampled(n_questions, n_entities, width)

    def accumulates_rows(self, n_entities: int, width: int) -> bool:
        """Whether Adagrad has one accumulator for each row only."""
        return self.accumulators == "row" or (self.accumulators == "auto" and n_entities * width > MANY_NUMBERS)


def exact_operations(n_questions: int, n_entities: int, width: int) -> int:
    """Of an epoch of the exact softmax: three products; below a width of 64 passes over the scores take the time."""
    return 6 * n_questions * n_entities * max(width, 64)


class RunConfig(Section):
    """How a fit is carried out; nothing here changes what it aims at."""

    checkpoint_seconds: float = Field(
        60.0, ge=0, description="at least so long between checkpoints, and 20 times what one takes; 0: every epoch"
    )
    threads: int | None = Field(
        None,
        ge=1,
        description="of the CPU; none: the fewest that are within 10 % of the fastest, by some steps at the start, or "
        "what OMP_NUM_THREADS or torch.set_num_threads say",
    )
    remeasure: bool = Field(
        False, description="choose threads again when epochs become much slower; on where they were measured"
    )
    products: Literal["auto", "exact", "bfloat16"] = Field(
        "auto",
        description="the matrix products of training: as exact as dtype, or rounded to bfloat16, nearly twice as fast "
        "on processors with instructions for it (avx512_bf16, amx_bf16), slower on others; auto: rounded where some "
        "steps at the start say that it is faster; validation stays exact",
    )
    time_budget: float | None = Field(None, gt=0, description="seconds that epochs are to fit into; none: no limit")


class Config(Section):
    """All settings of a fit."""

    model: ModelConfig = ModelConfig()
    pretrain: PretrainConfig = PretrainConfig()
    em: EMConfig = EMConfig()
    retrain: RetrainConfig = RetrainConfig()
    companions: CompanionsConfig = CompanionsConfig()
    distil: DistilConfig = DistilConfig()
    train: SharedConfig = SharedConfig()
    run: RunConfig = RunConfig()
    seed: int = Field(0, ge=0, description="of all random numbers")
    device: str = Field("cpu", description="cpu, cuda or cuda:N")
    dtype: Literal["float32", "float64"] = Field("float32", description="of all tables")

    @property
    def n_companions(self) -> int:
        """Models that are trained to teach only."""
        return len(self.companions.mixes) if self.distil.epochs and self.companions.epochs else 0

    @model_validator(mode="after")
    def _one_precision(self) -> Config:
        if self.dtype == "float64" and self.run.products == "bfloat16":
            raise ValueError("dtype float64 asks for more digits than run.products bfloat16 leaves: choose one of them")
        return self


def paper_recipe() -> dict[str, Any]:
    """The paper's recipe as its authors' code has it, as overrides: no tempering, T_E epochs, no race.

    Adagrad does not care about the scale of the loss, so that the authors' rates hold for L / N' as they are.
    """
    authors = {"batch_size": 100, "learning_rate": 0.02, "half_life": 25.0, "averaging": 0.0}
    return {
        "pretrain": authors | {"candidates": (1.0,)},
        "em": authors
        | {
            "std_learning_rate": 0.1,
            "strength_rate": 0.5,
            "initial_std": 0.2,
            "initial_strengths": "pretrain",
            "carry_accumulators": False,
            "e_epochs": 50,
            "epochs": 200,
            "patience": 100,  # longer than T_E: the strengths must get their turn
            "beta": 1.0,
            "m_step": "sample",
            "samples": 1,
            "restarts": 0,  # a restart lowers beta
        },
        "retrain": authors | {"start": "warm", "judge": "point", "candidates": ((1.0, 0.0),), "fall_back": False},
        "companions": {"mixes": ()},
        "distil": {"epochs": 0},
    }


RECIPES = {"default": dict, "paper": paper_recipe}
