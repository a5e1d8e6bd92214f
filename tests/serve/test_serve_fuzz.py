"""Requests made up from the API's own description, and questions with labels that exist: nothing gives a 5xx.

A longer run: KGEM_FUZZ=500 pytest tests/serve/test_serve_fuzz.py -s (examples for each address; it says how many
requests it made).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from kgem.serve.app import create_app
from kgem.serve.explorer import Explorer
from kgem.serve.guard import may_host
from serving import HOSTILE, Client, write_run

ASKED = ("about", "entities", "relations", "predict", "entity", "similar", "metrics", "missing", "doubtful")
EXAMPLES = int(os.environ.get("KGEM_FUZZ", "20"))
CAREFUL = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="KGEM_FUZZ" not in os.environ,
    database=None,
    suppress_health_check=list(HealthCheck),
)


class Counted:
    """An application that counts its answers by status, and lives until the last test whoever says that it starts."""

    def __init__(self, app: Any) -> None:
        self.app, self.answers = app, dict[int, int]()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for state in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{state}.complete"})
            return

        async def note(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.answers[message["status"]] = self.answers.get(message["status"], 0) + 1
            await send(message)

        await self.app(scope, receive, note)


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counted]:
    folder = tmp_path_factory.mktemp("run")
    explorer = Explorer(write_run(folder), folder)
    made = Counted(create_app(explorer, may_host(["testserver"])))
    yield made
    explorer.jobs.stop()
    assert made.answers and max(made.answers) < 500
    print(f"\n{sum(made.answers.values()):,} requests, answers by status: {dict(sorted(made.answers.items()))}")


@pytest.fixture(scope="module")
def api(counted: Counted) -> Any:
    return schemathesis.openapi.from_asgi("/openapi.json", counted)


ADDRESSES = [("GET", name) for name in (*ASKED, "strengths", "curves", "calibration", "review", "review.tsv")]


@pytest.mark.parametrize(("method", "name"), [*ADDRESSES, ("POST", "review")])
@pytest.mark.parametrize("kind", list(GenerationMode))
def test_requests_made_up_from_the_description(api: Any, method: str, name: str, kind: GenerationMode) -> None:
    """Requests as the description allows them, and as it does not: the answers are those that it says there are."""
    operation = api[f"/api/{name}"][method]

    @CAREFUL
    @given(operation.as_strategy(generation_mode=kind))
    def ask(case: Any) -> None:
        response = case.call()
        beyond = name == "predict" or response.status_code in (413, 414)  # of three two, and bytes, it cannot say
        case.validate_response(response, excluded_checks=[positive_data_acceptance, negative_data_rejection] * beyond)

    try:
        ask()
    except Unsatisfiable:
        assert name in ("about", "curves", "review.tsv") and kind == GenerationMode.NEGATIVE  # nothing can be wrong


LABELS = st.sampled_from([*HOSTILE, "e10", "e11", "r0", "r1", "<b>r</b>\t/..", ""]) | st.text(max_size=6)
VALUES = LABELS | st.sampled_from(["auto", "bayes", "blend", "true", "0", "-1", "7", "1000", "1e9", "test", "nan"])
NAMES = st.sampled_from(
    ["head", "relation", "tail", "label", "entity", "q", "top", "limit", "mode", "split", "new_only"]
)


@CAREFUL
@given(path=st.sampled_from(ASKED), params=st.dictionaries(NAMES, VALUES, max_size=4))
def test_questions_with_labels_that_exist(counted: Counted, path: str, params: dict[str, str]) -> None:
    encoded = "&".join(f"{name}={quote(value, errors='surrogatepass')}" for name, value in params.items())
    answer = Client(counted).get(f"/api/{path}?{encoded}")
    assert answer.status_code in (200, 202, 404, 422), answer.text
    assert ("error" in answer.json()) == (answer.status_code >= 400)


DECISIONS = st.sampled_from(["accept", "reject", "skip", "undo"])


@CAREFUL
@given(head=LABELS, relation=LABELS, tail=LABELS, decision=DECISIONS, kind=st.sampled_from(["missing", "doubtful"]))
def test_decisions_with_labels_that_exist(counted: Counted, **body: str) -> None:
    answer = Client(counted).post("/api/review", json=body)
    assert answer.status_code in (200, 404, 409, 422), answer.text
