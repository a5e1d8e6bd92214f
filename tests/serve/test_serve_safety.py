"""Who may ask, how much, and what a request can reach: nothing but what it is meant to."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from kgem.errors import ConfigError
from kgem.serve import page
from kgem.serve.app import create_app
from kgem.serve.explorer import Explorer
from kgem.serve.guard import BODY, HEADERS, QUERY, is_loopback, may_host
from kgem.serve.server import address_of, bind_socket, split_origin
from serving import HOSTILE, Client, client_of, write_run

DECISION = {"head": "e10", "relation": "r0", "tail": "e11", "decision": "accept", "kind": "missing"}


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Explorer:
    """One for all: no test here leaves a decision behind."""
    folder = tmp_path_factory.mktemp("run")
    return Explorer(write_run(folder), folder)


@pytest.fixture(scope="module")
def client(explorer: Explorer) -> Client:
    return client_of(explorer)


def raw(client: Client, method: str, path: str, headers: list[tuple[str, str]], *pieces: bytes, query: str = "") -> Any:
    """A request as no library would send it: status, headers, JSON."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers],
        "client": ("127.0.0.1", 5),
        "server": ("127.0.0.1", 8000),
    }
    sent: list[Any] = []
    waiting = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    waiting.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> Any:
        return waiting.pop(0) if waiting else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(client.app(scope, receive, send))
    body = b"".join(message.get("body", b"") for message in sent)
    return sent[0]["status"], {name.decode(): value.decode() for name, value in sent[0]["headers"]}, body


def refused(answer: Any, status: int, kind: str) -> None:
    assert answer.status_code == status and answer.json()["error"]["kind"] == kind, answer.text


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8000", "localhost", "LOCALHOST:9", "[::1]", "[::1]:8000", "127.1.2.3:1"]
)
def test_this_machine_may_ask_by_its_own_names(client: Client, host: str) -> None:
    assert client.get("/api/about", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:8000",
        "192.168.1.5:8000",
        "0.0.0.0",
        "",
        "localhost@evil.example",
        "evil.example#localhost",
        "localhost:port",
        "[::1",
        "127.0.0.1:8000:9",
        " localhost",
        "localhost/",
        "a" * 5000,
    ],
)
@pytest.mark.parametrize("path", ["/api/about", "/", "/openapi.json", "/nothing"])
def test_other_names_are_refused(client: Client, host: str, path: str) -> None:
    status, headers, body = raw(client, "GET", path, [("Host", host)])
    assert status == 403 and json.loads(body)["error"]["kind"] == "wrong-host"
    assert headers["content-security-policy"] == HEADERS["Content-Security-Policy"]


def test_no_name_or_two_are_refused(client: Client) -> None:
    for headers in ([], [("Host", "localhost"), ("Host", "localhost")]):
        assert raw(client, "GET", "/api/about", headers)[0] == 403


def test_names_that_were_given_and_addresses_if_others_may_ask() -> None:
    may = may_host(["box.lan"])
    assert may("BOX.lan:80") and not may("other.lan") and not may("10.0.0.1")
    remote = may_host(remote=True)
    assert remote("10.0.0.1:80") and remote("[fe80::1]:80") and not remote("evil.example") and not remote("10.0.0.1.x")
    assert [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "10.0.0.1", "x")] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("GET", "/static/index.html"),
        ("GET", "/api/about"),
        ("GET", "/api/predict"),
        ("GET", "/api/predict?head=nobody&relation=r0"),
        ("GET", "/nothing"),
        ("DELETE", "/api/review"),
        ("GET", "/openapi.json"),
        ("GET", "/api/review.tsv"),
    ],
)
def test_every_answer_tells_the_browser_to_be_strict(client: Client, method: str, path: str) -> None:
    answer = client.request(method, path)
    for name, value in HEADERS.items():
        assert answer.headers[name] == value
    assert answer.headers["cache-control"] in ("no-store", "no-cache")
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert "default-src 'none'" in HEADERS["Content-Security-Policy"] and "unsafe" not in str(HEADERS)


def test_pages_of_other_sites_get_no_answer(client: Client) -> None:
    for site in ("cross-site", "same-site"):
        refused(client.get("/api/about", headers={"Sec-Fetch-Site": site}), 403, "wrong-origin")
    assert client.get("/", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200  # a link to the page
    assert client.get("/api/about", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200
    preflight = client.request(
        "OPTIONS", "/api/review", headers={"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    )
    refused(preflight, 403, "wrong-origin")


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:8000", "http://127.0.0.1:9000", "http://127.0.0.1"]
)
def test_pages_of_other_sites_cannot_decide(client: Client, explorer: Explorer, origin: str) -> None:
    refused(client.post("/api/review", json=DECISION, headers={"Origin": origin}), 403, "wrong-origin")
    assert not explorer.review.path.exists()


def test_our_own_page_and_programs_can_decide(client: Client, explorer: Explorer) -> None:
    fact = explorer.model.missing_facts(1)[0]
    body = {"head": fact.head, "relation": fact.relation, "tail": fact.tail, "decision": "skip", "kind": "missing"}
    for headers in ({}, {"Origin": "http://127.0.0.1:8000"}, {"Origin": "HTTP://LOCALHOST:1", "Host": "localhost:1"}):
        assert client.post("/api/review", json=body, headers=headers).status_code == 200
    explorer.review.path.unlink()


def test_behind_a_proxy_the_page_has_another_name_and_can_decide(explorer: Explorer) -> None:
    shown = "https://graph.example.org"
    named = Client(create_app(explorer, may_host([split_origin(shown)]), shown))
    for host in ("graph.example.org", "localhost:8000"):  # as proxies pass it on
        assert named.get("/api/about", headers={"Host": host}).status_code == 200
        for origin in ("https://evil.example", "https://graph.example.org:1", "https://graph.example.org.evil.example"):
            refused(
                named.post("/api/review", json=DECISION, headers={"Host": host, "Origin": origin}), 403, "wrong-origin"
            )
        done = named.post("/api/review", json=DECISION | {"head": "?"}, headers={"Host": host, "Origin": shown.upper()})
        refused(done, 404, "unknown-label")  # it came as far as its labels
    refused(named.get("/api/about", headers={"Host": "evil.example"}), 403, "wrong-host")
    assert not explorer.review.path.exists()


@pytest.mark.parametrize(
    "wrong", ["graph.example.org", "https://", "https://a.org/kgem", "ftp://a.org", "https://a b", ""]
)
def test_an_origin_is_a_whole_site(wrong: str) -> None:
    with pytest.raises(ConfigError, match="--origin"):
        split_origin(wrong)


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
def test_only_json_can_decide(client: Client, kind: str) -> None:
    body = json.dumps(DECISION).encode()
    refused(client.post("/api/review", content=body, headers={"Content-Type": kind}), 415, "wrong-type")


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (b"", 422, "bad-parameter"),
        (b"{", 400, "bad-request"),
        (b"\xff\xfe", 400, "bad-request"),
        (b"[" * 20_000, 400, "bad-request"),
        (b'{"head":' * 2_000, 400, "bad-request"),
        (b"null", 422, "bad-parameter"),
        (b"[]", 422, "bad-parameter"),
        (b"NaN", 422, "bad-parameter"),
        (b"1" * 9_000, None, None),
        (json.dumps(DECISION | {"decision": "maybe"}).encode(), 422, "bad-parameter"),
        (json.dumps(DECISION | {"kind": ["missing"]}).encode(), 422, "bad-parameter"),
        (json.dumps(DECISION | {"more": 1}).encode(), 422, "bad-parameter"),
        (json.dumps(DECISION | {"\ud800": 1}).encode(), 422, "bad-parameter"),
        (json.dumps(DECISION | {"head": "\ud800"}).encode(), 422, "bad-parameter"),
        (json.dumps(DECISION | {"head": "x" * 5000}).encode(), 422, "bad-parameter"),
        (json.dumps(DECISION | {"head": ""}).encode(), 422, "bad-parameter"),
        (json.dumps(DECISION | {"head": "nobody"}).encode(), 404, "unknown-label"),
        (json.dumps(DECISION | {"relation": "e10"}).encode(), 404, "unknown-label"),
        (json.dumps({key: DECISION[key] for key in ("head", "tail")}).encode(), 422, "bad-parameter"),
        (b"x" * (BODY + 1), 413, "too-large"),
    ],
)
def test_bodies_that_make_no_sense(
    client: Client, explorer: Explorer, body: bytes, status: int | None, kind: str | None
) -> None:
    answer = client.post("/api/review", content=body, headers={"Content-Type": "application/json"})
    if status is None:
        assert answer.status_code in (400, 422)
    else:
        refused(answer, status, str(kind))
    assert not explorer.review.path.exists()


def test_a_body_is_counted_whatever_length_it_says(client: Client) -> None:
    headers = [("Host", "localhost"), ("Content-Type", "application/json")]
    chunk = b" " * (BODY // 2)
    for announced in ([], [("Content-Length", "10")]):
        status, _, body = raw(client, "POST", "/api/review", headers + announced, chunk, chunk, chunk)
        assert status == 413 and json.loads(body)["error"]["kind"] == "too-large"
    for length in ("-1", "many", "9" * 500, "²"):
        assert raw(client, "POST", "/api/review", [*headers, ("Content-Length", length)], b"{}")[0] == 413


@pytest.mark.parametrize(
    ("path", "status", "kind", "says"),
    [
        ("predict", 422, "bad-parameter", "head"),
        ("predict?head=e10&relation=r0&tail=e11", 422, "bad-parameter", "head"),
        ("predict?head=e10&relation=nothing", 404, "unknown-label", "nothing"),
        ("predict?head=e10&relation=r0&top=0", 422, "bad-parameter", "top"),
        ("predict?head=e10&relation=r0&top=1001", 422, "bad-parameter", "top"),
        ("predict?head=e10&relation=r0&top=1e400", 422, "bad-parameter", "top"),
        ("predict?head=e10&relation=r0&top=99999999999999999999999", 422, "bad-parameter", "top"),
        ("predict?head=e10&relation=r0&mode=best", 422, "bad-parameter", "mode"),
        ("predict?head=e10&relation=r0&new_only=perhaps", 422, "bad-parameter", "new_only"),
        ("predict?head=e10&relation=r0&sort=up", 422, "bad-parameter", "sort"),
        (f"predict?relation=r0&head={'x' * 4097}", 422, "bad-parameter", "head"),
        ("predict?head=%ff%fe&relation=r0", 404, "unknown-label", "entity"),
        ("predict?head=%00&relation=r0", 404, "unknown-label", "entity"),
        ("entity", 422, "bad-parameter", "label"),
        ("entity?label=", 422, "bad-parameter", "label"),
        ("entity?label=nobody", 404, "unknown-label", "nobody"),
        ("entity?label=e10&limit=-1", 422, "bad-parameter", "limit"),
        ("similar?entity=nobody", 404, "unknown-label", "nobody"),
        ("entities?limit=0", 422, "bad-parameter", "limit"),
        (f"entities?q={'x' * 257}", 422, "bad-parameter", "q"),
        ("strengths?limit=20001", 422, "bad-parameter", "limit"),
        ("metrics?split=all", 422, "bad-parameter", "split"),
        ("missing?relation=nothing", 404, "unknown-label", "nothing"),
        ("doubtful?top=1001", 422, "bad-parameter", "top"),
        (f"entities?{'q=x&' * (QUERY // 4 + 1)}", 414, "too-long", "query"),
        ("", 404, "not-found", ""),
        ("about/", 404, "not-found", ""),
        ("../about", 404, "not-found", ""),
    ],
)
def test_one_clear_error_for_each_kind_of_bad_request(
    client: Client, path: str, status: int, kind: str, says: str
) -> None:
    answer = client.get(f"/api/{path}") if ".." not in path else client.get("/api/%2e%2e/about")
    refused(answer, status, kind)
    assert says in answer.json()["error"]["message"] and answer.json()["error"]["remedy"]


def test_other_methods_are_refused(client: Client) -> None:
    for method in ("PUT", "DELETE", "PATCH", "POST"):
        answer = client.request(method, "/api/about", json={})
        refused(answer, 405, "wrong-method")
        assert answer.headers["allow"] == "GET"
    for method in ("TRACE", "OPTIONS", "DELETE"):  # without a body
        refused(client.request(method, "/api/review"), 405, "wrong-method")


def test_an_unknown_label_is_told_with_its_neighbours(client: Client) -> None:
    answer = client.get("/api/predict", params={"head": "E 10", "relation": "r0"})
    assert answer.status_code == 404 and answer.json()["error"]["suggestions"]
    answer = client.get("/api/entity", params={"label": "ile de france"})
    assert answer.json()["error"]["suggestions"][0] == "Île-de-France"
    long = client.get("/api/entity", params={"label": "y" * 4000}).json()["error"]
    assert len(long["message"]) < 200


@pytest.mark.parametrize(
    "path",
    [
        "/static/",
        "/static/nothing.js",
        "/static/../app.py",
        "/static/../../../../pyproject.toml",
        "/static//etc/passwd",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static/js/../../guard.py",
        "/static/\x00",
        "/static/index.html/",
        "/etc/passwd",
        "//etc/passwd",
        "/static",
        "/index.html",
        "/review.tsv",
        "/model/model.json",
    ],
)
def test_no_path_reaches_a_file_that_is_not_of_the_page(client: Client, path: str) -> None:
    status, _, body = raw(client, "GET", path, [("Host", "localhost")])
    assert status == 404 and json.loads(body)["error"]["kind"] == "not-found"


def test_the_page_and_its_files(client: Client) -> None:
    files = page.read_files()
    index = client.get("/")
    assert index.content == files["index.html"].content and index.headers["content-type"] == "text/html; charset=utf-8"
    for name, file in files.items():
        answer = client.get(f"/static/{name}")
        assert answer.content == file.content and answer.headers["content-type"] == file.type
        again = client.get(f"/static/{name}", headers={"If-None-Match": answer.headers["etag"]})
        assert again.status_code == 304 and not again.content
    assert {name.rpartition(".")[2] for name in files} >= {"html", "css", "js"}
    head = client.request("HEAD", "/")
    assert head.status_code == 200 and int(head.headers["content-length"]) == len(index.content)


def test_files_of_unknown_types_are_not_served(tmp_path: Path) -> None:
    (tmp_path / "js").mkdir()
    for name in ("a.js", "js/b.js", "c.py", "d.js~", ".hidden"):
        (tmp_path / name).write_text("x")
    assert set(page.read_files(tmp_path)) == {"a.js", "js/b.js"}
    assert page.read_files(tmp_path / "nothing") == {}


def test_labels_come_back_as_they_are(client: Client) -> None:
    for label in HOSTILE:
        answer = client.get("/api/entity", params={"label": label})
        assert answer.json()["label"] == label and answer.headers["content-type"] == "application/json"


def test_addresses_to_open() -> None:
    with bind_socket("0.0.0.0", 0) as anywhere, bind_socket("localhost", 0) as here:
        assert address_of(anywhere) == f"http://127.0.0.1:{anywhere.getsockname()[1]}/"
        assert address_of(here).startswith(("http://127.0.0.1:", "http://[::1]:"))


@pytest.mark.usefixtures("unexpected_errors")
def test_an_error_in_the_explorer_itself_is_told_and_noted(
    explorer: Explorer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*given: Any) -> None:
        raise RuntimeError("a secret path: /home/somebody")

    monkeypatch.setattr(explorer, "about", broken)
    answer = client_of(explorer).get("/api/about")
    assert answer.status_code == 500 and answer.json()["error"]["kind"] == "internal"
    assert "secret" not in answer.text and "a secret path" in caplog.text
    assert answer.headers["x-content-type-options"] == "nosniff"
