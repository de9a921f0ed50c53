"""Who may ask, and how much."""

import json
import socket
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from served import HORIZONS
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from jumpyworld.cli import run
from jumpyworld.errors import ConfigError
from jumpyworld.viewer.engine import WAITING
from jumpyworld.viewer.fields import BadRequestError, Fields, parse
from jumpyworld.viewer.guard import BODY_BYTES, Door

SCENE = {"model": "m0"}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "example.org"])
def test_other_addresses_than_loopback_need_a_token(host):
    with pytest.raises(ConfigError, match="token"):
        Door(host)
    assert Door(host, token="0123456789abcdef").token
    with pytest.raises(ConfigError, match="at least 16"):
        Door(host, token="short")


def test_the_command_refuses_before_it_loads_anything(capsys):
    assert run(["view", "nowhere", "--host", "0.0.0.0"]) == 2
    assert "give a --token" in capsys.readouterr().err


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "0.0.0.0"]
)
def test_a_rebound_name_is_refused(door, host):
    for method, path in (("GET", "/"), ("GET", "/api/status"), ("POST", "/api/scene")):
        answer = door.http.request(method, path, headers={"host": host})
        assert answer.status_code == 403, (method, path)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_another_site_is_refused(door, headers):
    assert door.post("scene", SCENE, **headers).status_code == 403


def test_only_json_is_read(door):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert door.post("scene", SCENE, **{"content-type": kind}).status_code == 415


def test_a_stream_needs_our_origin(door):
    address = door.base.replace("http", "ws") + "api/play"
    for origin in (None, "http://evil.example"):
        with pytest.raises(InvalidStatus, match="403"):
            connect(address, origin=origin, proxy=None)


def test_the_token_opens_the_api_and_nothing_else_does(guarded):
    token = "correct horse battery"
    assert guarded.http.get("/").status_code == 200  # the page itself holds no secret
    assert guarded.address.endswith(f"#token={token}")
    for wrong in (
        "",
        "Bearer",
        "Bearer wrong",
        f"Bearer {token[:-1]}",
        f"Bearer {token}x",
        "Basic x",
    ):
        headers = {"authorization": wrong}
        assert guarded.http.get("/api/status", headers=headers).status_code == 401
    right = {"authorization": f"Bearer {token}"}
    assert guarded.http.get("/api/status", headers=right).status_code == 200
    address = guarded.base.replace("http", "ws") + "api/play"
    for wish in ({}, {"token": "wrong"}, {"token": 5}):
        with connect(address, origin=guarded.base.rstrip("/"), proxy=None) as stream:
            stream.send(json.dumps(wish))
            assert "token" in json.loads(stream.recv())["done"]


def test_every_answer_keeps_the_page_to_itself(door):
    for path in ("/", "/main.js", "/api/status", "/nothing"):
        headers = door.http.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff" and "server" not in headers


@pytest.mark.parametrize(
    "path",
    [
        "/..%2f..%2fapp.py", "/../app.py", "/static/../app.py", "//etc/passwd", "/%2e%2e/app.py",
        "/C:%5Cwindows", "/http://evil.example/", "/app.py", "/.git/config",
    ],
)  # fmt: skip
def test_only_the_pages_own_files_are_served(door, path):
    assert door.http.get(path).status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"null", b"{", b"\xff\xfe", b'{"model": "m0"', b'{"model": NaN}',
        b'{"model": "m0", "model": "m0"}', b"[" * 60_000, b'{"model": "../m0"}',
        b'{"model": ["m0"]}', b'{"model": "m0", "more": 1}', b'{"model": 1e999}',
        b'{"model": "http://evil.example/"}',
    ],
)  # fmt: skip
def test_odd_bodies_are_refused(door, body):
    assert door.post("scene", body).status_code == 400


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("plan", {"horizons": [50, 50]}),
        ("plan", {"horizons": [0.5, 50, 100, 100]}),
        ("plan", {"horizons": "50"}),
        ("plan", {"discount": 1.0}),
        ("plan", {"discount": True}),
        ("plan", {"seed": -1}),
        ("plan", {"seed": 1.5}),
        ("step", {"count": 51}),
        ("step", {"replan_every": 0}),
        ("reset", {"task": 6}),
        ("reset", {"task": "1"}),
        ("goal", {"places": []}),
        ("goal", {"places": [[0, 0]] * 9}),
        ("goal", {"places": [[0, 0, 0]]}),
        ("goal", {"places": [[0, 1e9]]}),
        ("goal", {"places": [["0", "0"]]}),
        ("paint", {"cells": [[1, 1, 5.0]]}),
        ("paint", {"cells": [[1.0, 1, 0.5]]}),
        ("paint", {"cells": [[1, 1, 1.0]] * 2001}),
        ("samples", {"source": "file"}),
        ("samples", {"horizon": 0}),
    ],
)
def test_values_out_of_range_are_refused_by_name(door, name, change):
    good = {
        "plan": {"seed": 0, **HORIZONS},
        "step": {"seed": 0, "count": 1, "replan_every": 1, **HORIZONS},
        "reset": {"task": 1, "seed": 0},
        "goal": {"places": [[0, 0]]},
        "paint": {"cells": []},
        "samples": {"source": "goal", "horizon": 10, "seed": 0},
    }[name]
    answer = door.post(name, {"model": "m0", **good, **change})
    assert answer.status_code == 400 and next(iter(change)) in answer.json()["error"]


@given(st.dictionaries(st.text(max_size=8), st.none() | st.integers() | st.text(max_size=8)))
@settings(max_examples=50, deadline=None)
def test_no_request_gets_past_the_fields(values):
    fields = Fields(values)
    with pytest.raises(BadRequestError):
        fields.word("model", ("m0",))
        fields.end()


def test_parse_takes_plain_objects():
    assert parse(b'{"a": [1, 2.5, "x"]}') == {"a": [1, 2.5, "x"]}


def test_bodies_are_bounded(door):
    assert door.post("scene", b" " * (BODY_BYTES + 1)).status_code == 400
    # One that promises a body and never sends it holds no thread and no turn.
    with socket.create_connection(("127.0.0.1", door.http.base_url.port)) as slow:
        head = "POST /api/scene HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 50\r\n"
        slow.sendall(f"{head}Content-Type: application/json\r\n\r\n{{".encode())
        assert door.ask("scene")["kind"] == "maze"


def test_a_long_message_closes_the_stream(door):
    address = door.base.replace("http", "ws") + "api/play"
    with connect(address, origin=door.base.rstrip("/"), proxy=None) as stream:
        stream.send("x" * 100_000)
        with pytest.raises(ConnectionClosed):
            stream.recv(timeout=20)


def test_the_queue_is_short_and_recovers(door):
    begun, go = threading.Event(), threading.Event()

    def hold():
        begun.set()
        go.wait(60)

    door.engine._pool.submit(hold)
    assert begun.wait(60)
    codes = []
    askers = [
        threading.Thread(target=lambda: codes.append(door.post("scene", SCENE).status_code))
        for _ in range(WAITING + 5)
    ]
    for asker in askers:
        asker.start()
    refused = askers[0]
    while codes.count(503) < 5 and refused is not None:
        threading.Event().wait(0.02)
    assert door.http.get("/api/status").json()["waiting"] == WAITING
    go.set()
    for asker in askers:
        asker.join(60)
    assert sorted(codes) == [200] * WAITING + [503] * 5
    assert door.ask("scene")["kind"] == "maze"


def test_before_it_is_ready_it_says_so(door):
    session = door.engine.session("m0")
    session.compiled.discard("paper")
    try:
        answer = door.post("plan", {"model": "m0", "seed": 0, **HORIZONS})
        assert answer.status_code == 503 and "compiling" in answer.json()["error"]
        assert answer.headers["retry-after"] == "1"
    finally:
        session.compiled.add("paper")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/nothing", 404),
        ("POST", "/api/nothing", 404),
        ("GET", "/api/plan", 405),
        ("PUT", "/api/plan", 405),
        ("POST", "/api/status", 405),
        ("GET", "/api/play", 404),
        ("GET", "/api/", 404),
    ],
)
def test_unknown_requests_and_wrong_methods_are_json_too(door, method, path, status):
    answer = door.http.request(method, path, headers={"content-type": "application/json"})
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json" and answer.json()["error"]
    if status == 405:
        assert answer.headers["allow"] in answer.json()["error"]


def test_outside_of_the_requests_nothing_is_json(door):
    answer = door.http.get("/nothing")
    assert answer.status_code == 404 and answer.headers["content-type"].startswith("text/plain")


def test_a_defect_of_ours_is_json_and_tells_nothing(door, monkeypatch, caplog):
    session = door.engine.session("m0")
    monkeypatch.setattr(session, "reset", lambda *_: 1 / 0)
    answer = door.post("reset", {"model": "m0", "task": 1, "seed": 0})
    assert answer.status_code == 500
    assert "ZeroDivisionError" in answer.json()["error"] and "division" not in answer.text
