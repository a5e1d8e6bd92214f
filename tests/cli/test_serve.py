"""`kgem serve` as a process: it can be opened, killed, started twice and stopped, and says what is wrong."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from driving import complete
from kgem.answer.model import load
from kgem.cli import serve as command
from kgem.runs.configure import configure
from kgem.runs.fitting import Prepared
from kgem.runs.review import Review
from kgem.runs.run import Run
from kgem.serve.explorer import Explorer
from obvious import random_graph
from serving import client_of, write_run

Kgem = Callable[..., tuple[int, str, str]]


class Server:
    """A running `kgem serve`."""

    def __init__(self, folder: Path, *options: str) -> None:
        call = [sys.executable, "-c", "from kgem.cli import main; main()", "serve", str(folder), *options]
        self.process = subprocess.Popen(call, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.said = ""
        assert self.process.stderr is not None
        while not (found := re.search(r"http://\S+/", self.said)):
            line = self.process.stderr.readline()
            assert line, f"ended with {self.process.wait()}: {self.said}"
            self.said += line
        self.address = found[0]

    def get(self, path: str, **params: Any) -> Any:
        answer = httpx.get(f"{self.address}api/{path}", params=params, timeout=30)
        assert answer.status_code in (200, 202), answer.text
        return answer.json()

    def missing(self) -> list[dict[str, Any]]:
        while (found := self.get("missing"))["state"] != "ready":
            time.sleep(0.05)
        facts: list[dict[str, Any]] = found["facts"]
        return facts

    def decide(self, fact: dict[str, Any], decision: str) -> None:
        body = {name: fact[name] for name in ("head", "relation", "tail")} | {"decision": decision, "kind": "missing"}
        answer = httpx.post(f"{self.address}api/review", json=body, timeout=30)
        assert answer.status_code == 200, answer.text

    def end(self, sent: signal.Signals) -> tuple[int, str]:
        """Exit code and what was said after the address."""
        self.process.send_signal(sent)
        out, err = self.process.communicate(timeout=30)
        assert out == ""
        return self.process.returncode, err


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[Server]:
    server = Server(folder, *options)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.end(signal.SIGKILL)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run for many tests."""
    folder = tmp_path_factory.mktemp("run")
    write_run(folder)
    return folder


def test_decisions_survive_kills(tmp_path: Path) -> None:
    """Ten decisions and a kill: all ten are there. A kill while requests are under way: all that were answered are."""
    write_run(tmp_path)
    choices = ["accept", "reject", "skip", "accept", "accept", "reject", "accept", "skip", "accept", "reject"]
    with serving(tmp_path) as server:
        facts = server.missing()
        for fact, choice in zip(facts, choices, strict=False):
            server.decide(fact, choice)
        code, _ = server.end(signal.SIGKILL)
        assert code == -signal.SIGKILL
    with serving(tmp_path) as again:
        found = again.get("review")
        assert found["counts"] == {"accept": 5, "reject": 3, "skip": 2} and found["problems"] == []
        made = [(*_fact(each), each["decision"]) for each in reversed(found["decisions"])]
        assert made == [(*_fact(fact), choice) for fact, choice in zip(facts, choices, strict=False)]
        assert [fact["decision"] for fact in again.missing()[:10]] == choices
        answered = _decide_until_killed(again, facts[10:])
    review = Review(tmp_path)
    since = [made.fact for made in reversed(review.decisions)][10:]
    assert review.problems == () and answered == since[: len(answered)]
    assert len(answered) >= 10 and len(since) - len(answered) <= 1


def _fact(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["head"], row["relation"], row["tail"]


def _decide_until_killed(server: Server, facts: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """The facts whose decision was answered before the server was killed, in the midst of it."""
    answered: list[tuple[str, str, str]] = []

    def reviewer() -> None:
        for fact in facts:
            try:
                server.decide(fact, "accept")
            except httpx.HTTPError:
                return
            answered.append(_fact(fact))

    thread = threading.Thread(target=reviewer)
    thread.start()
    while len(answered) < 10:
        time.sleep(0.01)
    server.end(signal.SIGKILL)
    thread.join(30)
    return answered


def test_ctrl_c_stops_it_cleanly_also_at_work(run: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    with serving(run, "--port", str(port)) as server:
        assert "random" in server.said and server.address == f"http://127.0.0.1:{port}/"
        httpx.get(f"{server.address}api/doubtful", timeout=30)
        code, said = server.end(signal.SIGINT)
        assert code == 0 and "Traceback" not in said


def test_what_was_decided_is_learned(tmp_path: Path, kgem: Kgem) -> None:
    """From the review to `kgem update`: accepted proposals become training facts, facts that were dropped go."""
    once = {f"{phase}.epochs": 1 for phase in ("pretrain", "em", "retrain", "companions", "distil")}
    small = {"model.dim": 3, "pretrain.candidates": [1.0], "retrain.candidates": [[1.0, 0.0]], "run.threads": 1}
    with Run.create(tmp_path / "a", Prepared(random_graph(), None), configure(None, once | small)) as run:
        complete(run)
    explorer = Explorer(load(tmp_path / "a"), tmp_path / "a")
    client = client_of(explorer)

    def proposed(kind: str) -> list[dict[str, Any]]:
        while (found := client.get(f"/api/{kind}?top=1000").json())["state"] != "ready":
            time.sleep(0.01)
        return [{name: fact[name] for name in ("head", "relation", "tail", "known")} for fact in found["facts"]]

    accepted, rejected = proposed("missing")[:2]
    dropped, kept = [fact for fact in proposed("doubtful") if fact["known"] == "train"][:2]
    for fact, decision in ((accepted, "accept"), (rejected, "reject"), (dropped, "reject"), (kept, "accept")):
        kind = "missing" if fact.pop("known") is None else "doubtful"
        assert client.post("/api/review", json=fact | {"decision": decision, "kind": kind}).status_code == 200
    explorer.jobs.stop()

    once_more = [word for phase in ("em", "retrain", "distil") for word in ("--set", f"{phase}.epochs=1")]
    code, _, err = kgem("update", tmp_path / "a", tmp_path / "a" / "review.tsv", *once_more, "--threads", 1, "-q")
    assert code == 0, err
    before, after = (set(load(tmp_path / name).data.frame("train").rows()) for name in ("a", "a-2"))
    assert after - before == {_fact(accepted)} and before - after == {_fact(dropped)}


def test_a_port_that_is_taken(run: Path, kgem: Kgem) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        code, out, err = kgem("serve", run, "--port", taken)
    assert (code, out) == (2, "") and str(taken) in err and "--port" in err


@pytest.fixture(scope="module")
def served(run: Path) -> Iterator[Server]:
    with serving(run) as server:
        yield server


def test_missing_facts_are_looked_for_before_anybody_asks(served: Server) -> None:
    while (pending := served.get("about")["review"]["pending"]) is None:
        time.sleep(0.05)
    facts = served.get("missing", top=1000)["facts"]
    assert 0 < pending == sum(fact["decision"] is None for fact in facts)


def test_two_servers_of_one_run_share_its_review(served: Server, run: Path) -> None:
    """One is a process of its own, the other in that of the tests; both decide at the same time."""
    facts = served.missing()[:20]
    other = client_of(Explorer(load(run), run))

    def decide(place: int) -> None:
        fact = {name: facts[place][name] for name in ("head", "relation", "tail")}
        if place % 2:
            served.decide(fact, "accept")
        else:
            assert other.post("/api/review", json=fact | {"decision": "accept", "kind": "missing"}).status_code == 200

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(decide, range(20)))
    assert served.get("review")["counts"] == other.get("/api/review").json()["counts"]
    assert served.get("review")["counts"] == {"accept": 20, "reject": 0, "skip": 0}
    served.decide(facts[0], "undo")
    assert _fact(facts[0]) not in [_fact(made) for made in other.get("/api/review").json()["decisions"]]
    assert len(Review(run).accepted()) == 19 and Review(run).problems == ()


def test_many_clients_at_once_get_their_answers(served: Server) -> None:
    def ask(place: int) -> int:
        params = {"head": f"e{10 + place % 9}", "relation": f"r{place % 3}"}
        return httpx.get(f"{served.address}api/predict", params=params, timeout=60).status_code

    with ThreadPoolExecutor(25) as pool:
        assert set(pool.map(ask, range(50))) == {200}


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"\x16\x03\x01\x02\x00 hello\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", b"403"),
        (b"GET /static/../server.py HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", b"404"),
        (b"GET /api/about HTTP/1.0\r\n\r\n", b"403"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 200_000 + b"\r\n\r\n", b"400"),
    ],
    ids=["no-http", "other-host", "path", "no-host", "long"],
)
def test_requests_that_no_browser_sends(served: Server, request_: bytes, status: bytes) -> None:
    host, port = served.address.removeprefix("http://").rstrip("/").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(request_)
        answer = connection.recv(1000)
    assert answer.split()[1] == status, answer
    assert served.get("about")["name"] == "random"


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.org", ""])
def test_addresses_that_others_reach_must_be_meant(run: Path, kgem: Kgem, host: str) -> None:
    code, _, err = kgem("serve", run, "--host", host)
    assert code == 2 and "--allow-remote" in err


def test_an_address_that_is_not_of_this_machine(run: Path, kgem: Kgem) -> None:
    code, _, err = kgem("serve", run, "--host", "192.0.2.1", "--allow-remote")
    assert code == 2 and "192.0.2.1" in err
    code, _, err = kgem("serve", run, "--origin", "graph.example.org")
    assert code == 2 and "--origin" in err and "https://graph.example.org" in err
    code, _, err = kgem("serve", run, "--host", "no such name", "--allow-remote")
    assert code == 2 and "no such name" in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nothing"], "nothing"),
        (["."], "neither a run nor a saved model"),
        (["{run}", "--port", "70000"], "65535"),
        (["{run}", "--device", "quantum"], "--device"),
        ([], "RUN"),
    ],
)
def test_wrong_arguments(
    run: Path, tmp_path: Path, kgem: Kgem, monkeypatch: pytest.MonkeyPatch, words: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = kgem("serve", *(word.format(run=run) for word in words))
    assert (code, out) == (2, "") and says in err


def test_a_review_that_is_none_is_told_before_it_starts(tmp_path: Path, kgem: Kgem) -> None:
    write_run(tmp_path)
    (tmp_path / "review.tsv").write_text("France\tborders\tSpain\n")
    code, _, err = kgem("serve", tmp_path)
    assert code == 2 and "review.tsv" in err


def test_without_the_extra_it_says_what_to_install(run: Path, kgem: Kgem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    code, _, err = kgem("serve", run)
    assert code == 2 and "fastapi" in err and "uvicorn" in err and "pip install 'kgem[serve]'" in err


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the server is started with; it ends at once."""
    found: dict[str, Any] = {}

    def answer(explorer: Any, listening: socket.socket, *, on_start: Callable[[str], None], **more: Any) -> None:
        found.update(more, bound=listening.getsockname()[0])
        on_start("http://127.0.0.1:5/")

    monkeypatch.setattr("kgem.serve.server.answer", answer)
    return found


@pytest.mark.parametrize("works", [True, False])
@pytest.mark.usefixtures("told")
def test_open_opens_the_browser(run: Path, kgem: Kgem, monkeypatch: pytest.MonkeyPatch, works: bool) -> None:
    opened: list[str] = []

    def browser(address: str) -> bool:
        opened.append(address)
        return works

    monkeypatch.setattr("webbrowser.open", browser)
    code, _, err = kgem("serve", run, "--open")
    assert code == 0 and opened == ["http://127.0.0.1:5/"] and ("browser" in err) == (not works)
    kgem("serve", run)
    assert len(opened) == 1


def test_others_may_ask_if_that_is_meant(run: Path, kgem: Kgem, told: dict[str, Any]) -> None:
    assert kgem("serve", run, "--host", "0.0.0.0", "--allow-remote")[0] == 0
    assert told == {"names": ("0.0.0.0",), "remote": True, "bound": "0.0.0.0", "origin": None}
    assert kgem("serve", run)[0] == 0
    assert told == {"names": ("127.0.0.1",), "remote": False, "bound": "127.0.0.1", "origin": None}


@pytest.mark.usefixtures("told")
def test_a_line_that_was_cut_off_is_told_at_the_start(tmp_path: Path, kgem: Kgem) -> None:
    write_run(tmp_path)
    Review(tmp_path).decide("e10", "r0", "e11", "skip", "missing")
    with (tmp_path / "review.tsv").open("a") as file:
        file.write("e10\tr0")
    assert "review.tsv:3" in kgem("serve", tmp_path)[2]
