"""What requests may say and answers have, for checking the ones and describing the others (/openapi.json)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from kgem.answer.modes import AUTO, ModeName
from kgem.answer.predict import Answer
from kgem.answer.similar import Similar
from kgem.evaluate.metrics import Evaluation, Metrics
from kgem.serve.explorer import MOST_FACTS

LABEL = 4096  # characters
TYPED = 256  # characters that somebody types to find a label

SplitName = Literal["train", "valid", "test"]
DecisionName = Literal["accept", "reject", "skip"]
Kind = Literal["missing", "doubtful"]
# An empty field of a form is one that was not filled in: no label is empty.
Label = Annotated[Annotated[str, Field(max_length=LABEL)] | None, BeforeValidator(lambda given: given or None)]
GivenLabel = Annotated[str, Field(min_length=1, max_length=LABEL)]


class _Params(BaseModel):
    """Of a request: a name that is not known is an error."""

    model_config = ConfigDict(extra="forbid")


class LabelParams(_Params):
    q: Annotated[str, Field(max_length=TYPED, description="What the label has in it, somewhere.")] = ""
    limit: Annotated[int, Field(ge=1, le=1000)] = 20


class RelationParams(LabelParams):
    limit: Annotated[int, Field(ge=1, le=1000)] = 200


class PredictParams(_Params):
    head: Label = None
    relation: Label = None
    tail: Label = None
    top: Annotated[int, Field(ge=1, le=1000)] = 10
    new_only: Annotated[bool, Field(description="Leave out what the graph has already.")] = False
    mode: ModeName = AUTO


class JudgeParams(_Params):
    head: GivenLabel
    relation: GivenLabel
    tail: GivenLabel
    mode: ModeName = AUTO


class EntityParams(_Params):
    label: GivenLabel
    limit: Annotated[int, Field(ge=0, le=10_000, description="Of its facts.")] = 100


class SimilarParams(_Params):
    entity: GivenLabel
    top: Annotated[int, Field(ge=1, le=1000)] = 10
    mode: ModeName = AUTO


class StrengthsParams(_Params):
    limit: Annotated[int, Field(ge=1, le=20_000, description="Of entities, and of relations.")] = 5000


class SplitParams(_Params):
    split: SplitName = "test"


class FactsParams(_Params):
    relation: Annotated[Label, Field(description="Only of this relation.")] = None
    top: Annotated[int, Field(ge=1, le=MOST_FACTS)] = 200


class ReviewParams(_Params):
    limit: Annotated[int, Field(ge=0, le=10_000)] = 200


class NewDecision(_Params):
    head: GivenLabel
    relation: GivenLabel
    tail: GivenLabel
    decision: Literal[DecisionName, "undo"]
    kind: Kind


class Error(BaseModel):
    kind: str
    message: str
    remedy: str | None
    suggestions: list[str]


class ErrorReply(BaseModel):
    error: Error


class WorkingReply(BaseModel):
    state: Literal["working"]
    done: int
    of: int


class _Model(BaseModel):
    score: str
    dim: int
    p: int


class _Graph(BaseModel):
    entities: int
    relations: int
    facts: dict[SplitName, int]


class _Question(BaseModel):
    head: str | None = None
    relation: str | None = None
    tail: str | None = None


class _ReviewCounts(BaseModel):
    pending: int | None
    accepted: int
    rejected: int
    skipped: int


class AboutReply(BaseModel):
    name: str
    run: str
    path: str  # of its folder, from where the server was started
    version: str
    model: _Model
    mode: str
    modes: list[str]
    mode_meanings: dict[str, str]
    unfinished: str | None  # of a fit that was ended early: what it lacks
    graph: _Graph
    examples: list[_Question]
    metrics: dict[Literal["valid", "test"], Metrics | None]
    review: _ReviewCounts


class _Label(BaseModel):
    label: str
    frequency: int


class _Relation(_Label):
    category: str


class LabelsReply(BaseModel):
    total: int
    items: list[_Label]


class RelationsReply(BaseModel):
    total: int
    items: list[_Relation]


class PredictionReply(BaseModel):
    head: str | None
    relation: str | None
    tail: str | None
    asked: Literal["head", "relation", "tail"]
    meaning: str
    mode: str
    temperature: float
    entropy: float | None
    answers: list[Answer]


class SimilarReply(BaseModel):
    entity: str
    items: list[Similar]


class _Point(_Label):
    strength: float


class _Line(BaseModel):
    constant: float
    scale: float | None
    slope: float | None


class _Lines(_Line):
    relations: _Line


class StrengthsReply(BaseModel):
    entities: list[_Point]
    relations: list[_Point]
    total: int
    line: _Lines
    slope: float | None


class _Epoch(BaseModel):
    model_config = ConfigDict(extra="allow")
    epoch: int
    candidate: int = 0
    mrr: float | None = None
    loss: float | None = None


class _Phase(BaseModel):
    name: str
    epochs: list[_Epoch]


class CurvesReply(BaseModel):
    phases: list[_Phase]


@dataclass(frozen=True, kw_only=True)
class MetricsReply(Evaluation):
    state: Literal["ready"]


class _Curve(BaseModel):
    edges: list[float]
    counts: list[int]
    confidence: list[float | None]
    accuracy: list[float | None]


class CalibrationReply(BaseModel):
    state: Literal["ready"]
    temperature: float
    n: int
    top: int
    log_loss: float | None
    log_loss_before: float | None
    ece: float | None
    ece_before: float | None
    ece_pairs: float | None
    ece_pairs_before: float | None
    curve: _Curve
    curve_before: _Curve
    curve_pairs: _Curve


class _Fact(BaseModel):
    head: str
    relation: str
    tail: str


class _FactToReview(_Fact):
    probability: float
    share: float | None
    side: Literal["head", "tail"]
    known: SplitName | None
    chance: float | None
    against: list[str]
    like: list[tuple[str, str, str]]
    decision: DecisionName | None


class JudgementReply(_Fact):
    mode: str
    chance: float
    low: float
    high: float
    rank_tail: int
    rank_head: int
    against: list[str]
    like: list[tuple[str, str, str]]
    known: SplitName | None


class _RelationToReview(BaseModel):
    relation: str
    pending: int


class FactsReply(BaseModel):
    state: Literal["ready"]
    facts: list[_FactToReview]
    relations: list[_RelationToReview]


class _Decision(_Fact):
    decision: DecisionName
    kind: Kind
    time: str


class ReviewReply(BaseModel):
    counts: dict[DecisionName, int]
    decisions: list[_Decision]
    problems: list[str]


class DecisionReply(BaseModel):
    counts: dict[DecisionName, int]
    decision: _Decision | None


def describe(model: Any, *errors: int, working: bool = False) -> dict[int | str, dict[str, Any]]:
    """The answers of an address for /openapi.json: its own, that it is worked on, and errors."""
    found: dict[int | str, dict[str, Any]] = {200: {"model": model}}
    if working:
        found[202] = {"model": WorkingReply}
    return found | {status: {"model": ErrorReply} for status in (400, 403, 414, 422, *errors)}
