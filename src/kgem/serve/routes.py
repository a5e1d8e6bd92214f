"""The addresses under /api: each hands its parameters to the explorer, on a thread that is free."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Body, Depends, Query, Request
from starlette.responses import Response

from kgem.answer.entity import EntityView
from kgem.answer.predict import Query as Question
from kgem.serve import schema
from kgem.serve.explorer import Explorer
from kgem.serve.jobs import Job
from kgem.serve.replies import reply
from kgem.serve.schema import describe

__all__ = ["Desk", "router"]

GRACE = 0.15  # seconds that a job gets to be done before the answer is that it is being worked on
POLL = 0.01

T = TypeVar("T")


class Desk:
    """An explorer and the few threads that may compute at the same time."""

    def __init__(self, explorer: Explorer, pool: Executor) -> None:
        self.explorer, self._pool = explorer, pool

    async def compute(self, work: Callable[..., T], *given: Any) -> T:
        """What keeps a core busy: waits until a thread is free."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._with_names, work, *given)

    async def compute_now(self, work: Callable[..., T], *given: Any) -> T:
        """What takes little time, or waits for the disk: not in one queue with what computes."""
        return await asyncio.to_thread(self._with_names, work, *given)

    def _with_names(self, work: Callable[..., T], *given: Any) -> T:
        """What work gives, with the names of the labels in it."""
        named: T = self.explorer.add_names(work(*given))
        return named

    async def job(
        self, begin: Callable[[], Job | dict[str, Any]], to_document: Callable[[Any], dict[str, Any]]
    ) -> Response:
        """The result of work in the background, or how far it is."""
        job = begin()
        if isinstance(job, dict):
            return reply(self.explorer.add_names({"state": "ready", **to_document(job)}))
        waited = 0.0
        while not job.finished.is_set() and waited < GRACE:
            await asyncio.sleep(POLL)
            waited += POLL
        if not job.finished.is_set():
            return reply({"state": "working", "done": job.done, "of": job.of}, 202)
        return reply(self.explorer.add_names({"state": "ready", **to_document(job.value())}))


def _get_desk(request: Request) -> Desk:
    desk: Desk = request.app.state.desk
    return desk


At = Annotated[Desk, Depends(_get_desk)]

router = APIRouter(prefix="/api")


@router.get("/about", responses=describe(schema.AboutReply))
async def about(at: At) -> Response:
    """Which run this is, and what can be asked first."""
    return reply(await at.compute_now(at.explorer.about))


@router.get("/entities", responses=describe(schema.LabelsReply))
async def entities(at: At, given: Annotated[schema.LabelParams, Query()]) -> Response:
    """Entities by what their label has in it: exact, then beginnings, words, anything; the most frequent first."""
    return reply(await at.compute_now(at.explorer.entities, given.q, given.limit))


@router.get("/relations", responses=describe(schema.RelationsReply))
async def relations(at: At, given: Annotated[schema.RelationParams, Query()]) -> Response:
    """Relations by what their label has in it."""
    return reply(await at.compute_now(at.explorer.relations, given.q, given.limit))


@router.get("/predict", responses=describe(schema.PredictionReply, 404))
async def predict(at: At, given: Annotated[schema.PredictParams, Query()]) -> Response:
    """The most probable answers to a question: give two of head, relation and tail."""
    question = Question(given.head, given.relation, given.tail)
    return reply(await at.compute(at.explorer.predict, question, given.top, given.new_only, given.mode))


@router.get("/judge", responses=describe(schema.JudgementReply, 404))
async def judge(at: At, given: Annotated[schema.JudgeParams, Query()]) -> Response:
    """How credible a fact is, its ranks from both sides, and what speaks against it."""
    fact = given.head, given.relation, given.tail
    return reply(await at.compute(at.explorer.judge, *fact, given.mode))


@router.get("/entity", responses=describe(EntityView, 404))
async def entity(at: At, given: Annotated[schema.EntityParams, Query()]) -> Response:
    """One entity as a whole: facts, what is expected of it, neighbours, strength."""
    return reply(await at.compute(at.explorer.entity, given.label, given.limit))


@router.get("/similar", responses=describe(schema.SimilarReply, 404))
async def similar(at: At, given: Annotated[schema.SimilarParams, Query()]) -> Response:
    """The entities whose vectors point the same way."""
    return reply(await at.compute(at.explorer.similar, given.entity, given.top, given.mode))


@router.get("/strengths", responses=describe(schema.StrengthsReply))
async def strengths(at: At, given: Annotated[schema.StrengthsParams, Query()]) -> Response:
    """Learned strengths against frequency, an even sample if there are too many."""
    return reply(await at.compute(at.explorer.strengths, given.limit))


@router.get("/curves", responses=describe(schema.CurvesReply))
async def curves(at: At) -> Response:
    """The log of the fit, phase by phase."""
    return reply(await at.compute(at.explorer.curves))


@router.get("/metrics", responses=describe(schema.MetricsReply, 429, working=True))
async def metrics(at: At, given: Annotated[schema.SplitParams, Query()]) -> Response:
    """Filtered ranks as figures: overall, by tie rule, side, category, frequency and relation."""
    return await at.job(lambda: at.explorer.metrics(given.split), dict)


@router.get("/calibration", responses=describe(schema.CalibrationReply, 429, working=True))
async def calibration(at: At, given: Annotated[schema.SplitParams, Query()]) -> Response:
    """How far the probabilities can be trusted, as trained and with the fitted temperature."""
    return await at.job(lambda: at.explorer.calibration(given.split), dict)


@router.get("/missing", responses=describe(schema.FactsReply, 404, 429, working=True))
async def missing(at: At, given: Annotated[schema.FactsParams, Query()]) -> Response:
    """The most probable facts that the graph does not have, with the decisions about them."""
    return await at.job(
        lambda: at.explorer.missing(given.relation),
        lambda facts: at.explorer.add_decisions(facts, given.top, "missing"),
    )


@router.get("/doubtful", responses=describe(schema.FactsReply, 404, 429, working=True))
async def doubtful(at: At, given: Annotated[schema.FactsParams, Query()]) -> Response:
    """The least probable facts that the graph has, with the decisions about them."""
    return await at.job(
        lambda: at.explorer.doubtful(given.relation),
        lambda facts: at.explorer.add_decisions(facts, given.top, "doubtful"),
    )


@router.get("/review", responses=describe(schema.ReviewReply))
async def review(at: At, given: Annotated[schema.ReviewParams, Query()]) -> Response:
    """The decisions so far, newest first."""
    return reply(await at.compute_now(at.explorer.decisions, given.limit))


@router.post("/review", responses=describe(schema.DecisionReply, 404, 409, 413, 415, 503))
async def decide(at: At, given: Annotated[schema.NewDecision, Body()]) -> Response:
    """Decide about a fact; it is on disk before the answer comes."""
    fact = given.head, given.relation, given.tail
    return reply(await at.compute_now(at.explorer.decide, *fact, given.decision, given.kind))


@router.get(
    "/review.tsv",
    response_class=Response,
    responses=describe(None, 503) | {200: {"content": {"text/tab-separated-values": {"schema": {"type": "string"}}}}},
)
async def review_tsv(at: At) -> Response:
    """What is decided now, as a file for `kgem update`."""
    text = await at.compute_now(at.explorer.review.tsv)
    headers = {"Content-Disposition": 'attachment; filename="review.tsv"'}
    return Response(text.encode(), headers=headers, media_type="text/tab-separated-values; charset=utf-8")
