"""The API says what the library says, in JSON."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kgem.answer.entity import entity_view
from kgem.answer.features import Known, nearest_facts
from kgem.answer.model import Model
from kgem.data.names import Names
from kgem.errors import FitError
from kgem.report.calibration import measure_calibration
from kgem.report.history import find_run
from kgem.runs.review import Review
from kgem.serve.explorer import Explorer
from obvious import random_graph
from serving import HOSTILE, RECORDS, Client, client_of, write_run
from small_models import random_model


def get(client: Client, path: str, status: int = 200, **params: Any) -> Any:
    answer = client.get(f"/api/{path}", params=params)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


def ready(client: Client, path: str, **params: Any) -> Any:
    """What comes of work in the background."""
    for _ in range(400):
        answer = client.get(f"/api/{path}", params=params)
        if answer.status_code != 202:
            assert answer.status_code == 200 and answer.json()["state"] == "ready", answer.text
            return answer.json()
        assert answer.json()["state"] == "working"
        time.sleep(0.02)
    raise AssertionError(f"{path} never became ready")


def same(document: Any, wanted: Any) -> bool:
    """Equal after a way through JSON."""
    return bool(document == json.loads(json.dumps(wanted)))


def error(client: Client, path: str, status: int, **params: Any) -> Any:
    found = get(client, path, status, **params)
    assert found.keys() == {"error"} and found["error"].keys() == {"kind", "message", "remedy", "suggestions"}
    assert found["error"]["message"]
    return found["error"]


def missing_fact(client: Client) -> dict[str, str]:
    fact = ready(client, "missing")["facts"][0]
    return {name: fact[name] for name in ("head", "relation", "tail")}


def test_about_the_run(client: Client, explorer: Explorer) -> None:
    about = get(client, "about")
    data = explorer.model.data
    assert (about["name"], about["run"], about["mode"]) == ("random", "run", "point")
    assert about["model"] == {"score": "complex", "dim": 4, "p": 3}
    assert about["graph"]["facts"] == {"train": len(data.train), "valid": len(data.valid), "test": len(data.test)}
    assert about["metrics"] == {"valid": None, "test": None}
    assert about["review"] == {"pending": None, "accepted": 0, "rejected": 0, "skipped": 0}
    for question in about["examples"]:
        assert len(get(client, "predict", **question)["answers"]) == 10
    proposed = ready(client, "missing", top=1000)["facts"]
    assert get(client, "about")["review"]["pending"] == len(proposed) > 0


def test_a_fact_is_judged(client: Client, explorer: Explorer) -> None:
    head, relation, tail = explorer.model.data.frame("test").row(0)
    found = get(client, "judge", head=head, relation=relation, tail=tail)
    (wanted,) = explorer.model.judge([(head, relation, tail)], uncertainty=True)
    scorer, data = explorer.model.mode_scorer("point"), explorer.model.data
    like = nearest_facts(scorer, Known.everything(data), data.ids([(head, relation, tail)])[0])
    document = wanted.to_dict() | {"mode": "point", "like": [list(data.label(fact)) for fact in like]}
    assert like and same(found, {name: value for name, value in document.items() if name != "note"})
    assert error(client, "judge", 404, head="nobody", relation=relation, tail=tail)["kind"] == "unknown-label"
    error(client, "judge", 422, head=head, relation=relation)


def test_labels_while_somebody_types(client: Client, explorer: Explorer) -> None:
    assert get(client, "entities", q="ILE")["items"][0]["label"] == "Île-de-France"
    some = get(client, "entities", q="e1", limit=3)
    assert [item["label"] for item in some["items"]] and some["total"] == 10 and len(some["items"]) == 3
    every = get(client, "entities", limit=1000)
    frequencies = [item["frequency"] for item in every["items"]]
    assert every["total"] == len(every["items"]) == explorer.model.data.n_entities
    assert frequencies == sorted(frequencies, reverse=True)
    relations = get(client, "relations")["items"]
    assert len(relations) == 4 and {item["category"] for item in relations} <= {"1-1", "1-N", "N-1", "N-N"}


@pytest.mark.parametrize(
    "question",
    [
        {"head": "e10", "relation": "r0"},
        {"relation": "r1", "tail": "e10", "top": 3},
        {"head": "e10", "tail": "e12"},
        {"head": "e10", "relation": "r0", "new_only": True, "mode": "bayes"},
        {"head": HOSTILE[0], "relation": "<b>r</b>\t/..", "tail": ""},
        {"relation": "r2", "tail": HOSTILE[3], "mode": "blend"},
    ],
)
def test_answers_are_those_of_the_library(client: Client, explorer: Explorer, question: dict[str, Any]) -> None:
    asked = {name: value for name, value in question.items() if value != ""}
    for _ in range(2):  # computed, and remembered
        assert same(get(client, "predict", **question), explorer.model.predict(**asked).to_dict())


def test_a_relation_of_a_large_graph_has_no_intervals(
    client: Client, explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kgem.serve.explorer.SAMPLED_SCORES", 10)
    answers = get(client, "predict", head="e10", tail="e12")["answers"]
    assert len(answers) == 4 and {answer["low"] for answer in answers} == {None}
    assert get(client, "predict", head="e10", relation="r0")["answers"][0]["low"] is not None


def test_an_entity_as_a_whole(client: Client, explorer: Explorer) -> None:
    for label in ("e10", *HOSTILE):
        strengths = explorer.model.strengths.entities.array
        view = entity_view(explorer.model.mode_scorer(), strengths, label, facts=3)
        assert same(get(client, "entity", label=label, limit=3), view.to_dict())


def test_similar_entities(client: Client, explorer: Explorer) -> None:
    found = get(client, "similar", entity=HOSTILE[0], top=3)
    assert found["entity"] == HOSTILE[0]
    assert [item["label"] for item in found["items"]] == [s.label for s in explorer.model.similar(HOSTILE[0], 3)]


def test_strengths_against_frequency(client: Client, explorer: Explorer) -> None:
    found = get(client, "strengths")
    strengths, data = explorer.model.strengths, explorer.model.data
    assert {p["label"]: p["strength"] for p in found["entities"]} == dict(strengths.entities.items())
    assert {p["label"]: p["frequency"] for p in found["relations"]} == {
        label: int(n) for label, n in zip(data.relations, data.relation_counts, strict=True)
    }
    assert found["line"]["constant"] > 0 and found["slope"] == found["line"]["slope"]
    few = get(client, "strengths", limit=5)
    assert len(few["entities"]) == 5 and few["total"] == data.n_entities and few["line"] == found["line"]


def test_curves_of_the_phases(client: Client) -> None:
    phases = get(client, "curves")["phases"]
    assert [phase["name"] for phase in phases] == ["pretrain", "em"]
    assert phases[1]["epochs"][1] == {key: value for key, value in RECORDS[2].items() if key != "phase"}


@pytest.mark.parametrize("text", ["", "not JSON\n", "[1]\n3\n{}\n", '{"phase": "em", "epoch": 1, "mrr": NaN}\n'])
def test_a_log_that_is_damaged_does_no_harm(tmp_path: Path, text: str) -> None:
    model = write_run(tmp_path)
    (tmp_path / "log.jsonl").write_text(text)
    phases = get(client_of(Explorer(model, tmp_path)), "curves")["phases"]
    assert phases == ([{"name": "em", "epochs": [{"epoch": 1, "mrr": None}]}] if "NaN" in text else [])


def test_figures_are_measured_in_the_background(client: Client, explorer: Explorer) -> None:
    for split in ("test", "valid", "train"):
        found = ready(client, "metrics", split=split)
        assert same(found, {"state": "ready", **explorer.model.evaluate(split).to_dict()})
        assert same(
            ready(client, "calibration", split=split),
            {"state": "ready", **measure_calibration(explorer.model, split, "point").to_dict()},
        )


def test_figures_of_the_fit_are_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_run(tmp_path)
    kept = model.evaluate("test").to_dict() | {"unseen_targets": 77}
    model = write_run(tmp_path / "other", metrics={"test": kept})
    monkeypatch.setattr(Model, "evaluate", None)
    client = client_of(Explorer(model, tmp_path / "other"))
    assert get(client, "metrics")["unseen_targets"] == 77
    assert get(client, "about")["metrics"]["test"] == kept["overall"]


def test_missing_and_doubtful_facts(client: Client, explorer: Explorer) -> None:
    for path, wanted in (
        ("missing", explorer.model.missing_facts(1000)),
        ("doubtful", explorer.model.doubtful_facts(1000)),
    ):
        rows = [fact.to_dict() | {"decision": None} for fact in wanted]
        assert same(ready(client, path, top=1000)["facts"], rows)
        assert same(ready(client, path, top=3)["facts"], rows[:3])
        pending = Counter(fact.relation for fact in wanted)
        for only in ({}, {"relation": "r1"}):  # also beside the facts of one relation: to go to another from there
            shown = ready(client, path, top=3, **only)["relations"]
            assert {each["relation"]: each["pending"] for each in shown} == pending
            assert [each["pending"] for each in shown] == sorted(pending.values(), reverse=True)
    some = ready(client, "missing", relation="r1")["facts"]
    assert same(
        some, [f.to_dict() | {"decision": None} for f in explorer.model.missing_facts(1000, relations=["r1"])[:200]]
    )
    assert {fact["relation"] for fact in ready(client, "doubtful", relation="r2")["facts"]} == {"r2"}


def test_work_is_done_once_and_tells_how_far_it_is(
    client: Client, explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, go_on = [], threading.Event()

    def slow(self: Model, *given: Any, progress: Any, **more: Any) -> list[Any]:
        calls.append(given)
        progress(3, 7)
        assert go_on.wait(20)
        return []

    monkeypatch.setattr(Model, "missing_facts", slow)
    assert get(client, "missing", 202) == {"state": "working", "done": 3, "of": 7}
    assert get(client, "missing", 202, top=5)["state"] == "working"
    assert get(client, "predict", head="e10", relation="r0")["answers"]  # meanwhile
    go_on.set()
    assert ready(client, "missing") == {"state": "ready", "facts": [], "relations": []} and len(calls) == 1


def test_work_that_fails_says_so_and_can_be_tried_again(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Model, *given: Any, **more: Any) -> list[Any]:
        raise FitError("some facts have a score that is not a finite number", remedy="fit the model anew")

    monkeypatch.setattr(Model, "doubtful_facts", fail)
    found = error(client, "doubtful", 503)
    assert found["kind"] == "failed" and "finite" in found["message"] and found["remedy"] == "fit the model anew"
    monkeypatch.undo()
    assert ready(client, "doubtful")["facts"]


def test_too_much_work_is_refused(client: Client, explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explorer.jobs, "_most_waiting", 0)
    answer = client.get("/api/missing")
    assert answer.status_code == 429 and answer.headers["retry-after"] and answer.json()["error"]["kind"] == "busy"


def test_decisions_are_noted_and_shown_with_the_facts(client: Client, explorer: Explorer) -> None:
    fact = missing_fact(client)
    for decision in ("skip", "reject", "accept"):
        answer = client.post("/api/review", json={**fact, "decision": decision, "kind": "missing"})
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert found["counts"] == {"accept": 0, "reject": 0, "skip": 0} | {decision: 1}
        assert found["decision"] | {"time": ""} == {**fact, "decision": decision, "kind": "missing", "time": ""}
        assert Review(explorer.folder).decisions[0].decision == decision  # on disk
    assert ready(client, "missing")["facts"][0]["decision"] == "accept"
    assert get(client, "about")["review"]["accepted"] == 1
    assert get(client, "review")["decisions"][0]["decision"] == "accept"
    assert get(client, "review", limit=0)["decisions"] == []
    tsv = client.get("/api/review.tsv")
    assert tsv.headers["content-type"] == "text/tab-separated-values; charset=utf-8"
    assert tsv.headers["content-disposition"] == 'attachment; filename="review.tsv"'
    assert tsv.text == explorer.review.tsv() and tsv.text.count("\n") == 2
    undone = client.post("/api/review", json={**fact, "decision": "undo", "kind": "missing"}).json()
    assert undone == {"counts": {"accept": 0, "reject": 0, "skip": 0}, "decision": None}
    assert ready(client, "missing")["facts"][0]["decision"] is None


def test_facts_with_hostile_labels_can_be_decided(client: Client, explorer: Explorer) -> None:
    facts = [fact for fact in ready(client, "missing", top=1000)["facts"] if fact["head"] in HOSTILE][:20]
    assert facts
    for fact in facts:
        body = {name: fact[name] for name in ("head", "relation", "tail")} | {"decision": "accept", "kind": "missing"}
        assert client.post("/api/review", json=body).status_code == 200
    assert Review(explorer.folder).accepted() == [(f["head"], f["relation"], f["tail"]) for f in facts]


def test_a_decision_must_be_of_the_right_kind(client: Client, explorer: Explorer) -> None:
    known = ready(client, "doubtful")["facts"][0]
    fact = {name: known[name] for name in ("head", "relation", "tail")}
    refused = client.post("/api/review", json={**fact, "decision": "accept", "kind": "missing"})
    assert refused.status_code == 409 and refused.json()["error"]["kind"] == "wrong-kind"
    refused = client.post("/api/review", json={**missing_fact(client), "decision": "reject", "kind": "doubtful"})
    assert refused.status_code == 409 and refused.json()["error"]["kind"] == "wrong-kind"
    assert not explorer.review.path.exists()
    assert client.post("/api/review", json={**fact, "decision": "reject", "kind": "doubtful"}).status_code == 200
    assert explorer.review.rejected("doubtful") == [tuple(fact.values())]


def test_to_undo_what_is_not_decided_changes_nothing(client: Client, explorer: Explorer) -> None:
    body = {**missing_fact(client), "decision": "undo", "kind": "missing"}
    assert client.post("/api/review", json=body).json()["decision"] is None
    assert not explorer.review.path.exists()


def test_a_decision_about_labels_that_are_gone_can_be_undone(client: Client, explorer: Explorer) -> None:
    explorer.review.decide("gone", "r0", "e1", "accept", "missing")
    body = {"head": "gone", "relation": "r0", "tail": "e1", "decision": "undo", "kind": "missing"}
    assert client.post("/api/review", json=body).json()["counts"]["accept"] == 0
    assert client.post("/api/review", json=body).status_code == 404


def test_decisions_of_another_process_are_seen(client: Client, explorer: Explorer) -> None:
    fact = missing_fact(client)
    Review(explorer.folder).decide(*fact.values(), "accept", "missing")
    assert ready(client, "missing")["facts"][0]["decision"] == "accept"


def test_a_disk_that_is_full_is_told(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    fact = missing_fact(client)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    answer = client.post("/api/review", json={**fact, "decision": "accept", "kind": "missing"})
    assert answer.status_code == 503 and answer.json()["error"]["kind"] == "not-saved"
    assert "No space" in answer.json()["error"]["message"] and answer.json()["error"]["remedy"]
    monkeypatch.undo()
    assert get(client, "review")["counts"]["accept"] == 0


def test_a_line_that_was_cut_off_is_told(client: Client, explorer: Explorer) -> None:
    explorer.review.decide("e10", "r0", "e11", "skip", "missing")
    with explorer.review.path.open("a") as file:
        file.write("e10\tr0\te12\tacc")
    found = get(client, "review")
    assert len(found["decisions"]) == 1 and "review.tsv:3: passed over" in found["problems"][0]
    assert str(explorer.folder) not in found["problems"][0]


def test_the_review_is_in_the_run_folder_whatever_part_of_it_is_given(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    assert find_run(tmp_path / "run") == tmp_path / "run"
    (tmp_path / "run" / "graph").mkdir()
    (tmp_path / "run" / "graph" / "manifest.json").write_text('{"kind": "kgem-run"}')
    assert find_run(tmp_path / "run" / "model") == find_run(tmp_path / "run") == tmp_path / "run"


def test_the_description_has_every_address_and_no_page_of_others(client: Client) -> None:
    described = client.get("/openapi.json").json()
    asked = {"about", "entities", "relations", "predict", "judge", "entity", "similar", "missing", "doubtful", "review"}
    looked_at = {"strengths", "curves", "metrics", "calibration", "review.tsv"}
    assert set(described["paths"]) == {f"/api/{name}" for name in asked | looked_at}
    assert set(described["paths"]["/api/review"]) == {"get", "post"}
    for path in ("/docs", "/redoc", "/docs/oauth2-redirect"):
        assert client.get(path).status_code == 404


# Names


def test_symbols_are_asked_by_name_and_every_answer_brings_the_names_of_its_labels(tmp_path: Path) -> None:
    names = Names({"e1": "Berlin", "e2": "Paris", "e3": "Paris", "r0": "knows"})
    client = client_of(Explorer(random_model(random_graph().with_names(names)), tmp_path / "named"))
    found = get(client, "predict", head="Berlin", relation="knows", top=100)
    assert (found["head"], found["relation"]) == ("e1", "r0")
    assert found["names"]["e1"] == ["Berlin", "e1"] and found["names"]["r0"] == ["knows", "r0"]
    assert set(found["names"]) == {"e1", "r0"} | {a["label"] for a in found["answers"] if a["label"] in ("e2", "e3")}
    assert [item["label"] for item in get(client, "entities", q="berl")["items"]] == ["e1"]
    assert get(client, "entity", label="Berlin")["label"] == "e1"
    assert get(client, "similar", entity="Berlin")["entity"] == "e1"
    unsure = get(client, "entity", 404, label="Paris")
    assert unsure["error"]["suggestions"] == ["e2", "e3"] and unsure["names"]["e2"] == ["Paris", "e2"]
    assert "more than one entity is called 'Paris'" in unsure["error"]["message"]
    plain = client_of(Explorer(random_model(), tmp_path / "plain"))
    assert "names" not in get(plain, "entity", label="e1")
