"""Who may ask, and how much."""

import asyncio
import json
import logging
import socket
import threading
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from served import HORIZONS, QUICK, TOKEN, Server
from starlette.websockets import WebSocketDisconnect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from jumpyworld.cli import run
from jumpyworld.cli.view import View
from jumpyworld.errors import ConfigError
from jumpyworld.viewer.engine import WAITING, Engine
from jumpyworld.viewer.fields import BadRequestError, Fields, parse
from jumpyworld.viewer.guard import BODY_BYTES, Door
from jumpyworld.viewer.play import _send
from jumpyworld.viewer.server import make_server

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


def test_a_name_without_a_token_is_refused_by_its_own_flag(capsys):
    assert run(["view", "nowhere", "--name", "mybox"]) == 2
    said = capsys.readouterr().err
    assert "--name mybox: needs a --token" in said and "--host" not in said


def test_a_name_is_known_in_any_case():
    server = Server([], QUICK, Door(port=0, token=TOKEN, names=("MyBox",)))
    try:
        for host in ("mybox", "MyBox:8642", "MYBOX:1"):
            assert server.http.get("/", headers={"host": host}).status_code == 200, host
    finally:
        server.stop()
    assert "other.example" in Door("Other.Example", token=TOKEN).hosts()


def test_a_refused_name_hears_of_the_flag(door):
    answer = door.http.get("/", headers={"host": "mybox:8642"})
    assert answer.status_code == 403 and "--name" in answer.json()["error"]


@pytest.mark.parametrize(
    ("host", "names", "shown"),
    [
        ("127.0.0.1", ("mybox",), "127.0.0.1"),
        ("0.0.0.0", (), "127.0.0.1"),
        ("", (), "127.0.0.1"),
        ("::", (), "[::1]"),
        ("::1", (), "[::1]"),
        ("0.0.0.0", ("mybox", "other"), "mybox"),
        ("mybox", (), "mybox"),
    ],
)
def test_the_printed_address_can_be_asked_for(host, names, shown):
    door = Door(host, token=TOKEN, names=names)
    assert door.shown() == shown and shown in door.hosts()
    assert not door.hosts() & {"", "0.0.0.0", "[::]"}


def test_the_server_prints_that_address():
    _, listening, address = make_server(Engine([], QUICK), Door("0.0.0.0", 0, TOKEN))
    listening.close()
    assert urlsplit(address).hostname == "127.0.0.1"


@pytest.mark.parametrize(
    ("host", "name", "told"),
    [("0.0.0.0", (), True), ("0.0.0.0", ("mybox",), False), ("127.0.0.1", (), False)],
)
def test_who_listens_everywhere_hears_of_names(capsys, host, name, told):
    View(host=host, name=name)._announce("http://mybox:8642/")
    said = capsys.readouterr()
    assert "http://mybox:8642/ " in said.out and ("--name" in said.err) == told


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
    token = TOKEN
    assert guarded.http.get("/").status_code == 200  # the page itself holds no secret
    # The page reads it as URLSearchParams does, which is what parse_qs does too.
    assert parse_qs(urlsplit(guarded.address).fragment, strict_parsing=True) == {"token": [token]}
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


def stream_of(server):
    address = server.base.replace("http", "ws") + "api/play"
    return connect(address, origin=server.base.rstrip("/"), proxy=None)


def answer_to(server, hello):
    """Return the stream's only answer to a first message."""
    with stream_of(server) as stream:
        stream.send(hello)
        return json.loads(stream.recv(timeout=20))["done"]


@pytest.fixture
def logged(monkeypatch, caplog):
    """What the server would write in its terminal."""
    monkeypatch.setattr(logging.getLogger("uvicorn"), "propagate", True)
    return caplog


@pytest.mark.parametrize(
    ("hello", "answer"),
    [
        ("{}", "token"),
        ('{"token": "wrong"}', "token"),
        ('{"token": 5}', "token"),
        ('{"token": "\\ud800"}', "token"),  # half a character
        ('{"token": "\u00e9"}', "token"),
        (b"{}", "must be text"),
        ("[]", "must be an object"),
    ],
)
def test_a_wrong_hello_is_answered_and_leaves_no_traceback(guarded, logged, hello, answer):
    assert answer in answer_to(guarded, hello)
    assert logged.records == []


def test_text_that_is_no_text_closes_the_stream_and_leaves_no_traceback(guarded, logged):
    with stream_of(guarded) as stream:
        stream.send(b'{"token": "\xff"}', text=True)
        with pytest.raises(ConnectionClosed) as closed:
            stream.recv(timeout=20)
    assert closed.value.rcvd.code == 1007
    assert logged.records == []
    logging.getLogger("uvicorn.error").error("Exception in ASGI application")
    assert len(logged.records) == 1, "a defect is told as ever"


def test_a_frame_for_a_stream_that_is_closed_is_no_defect():
    class Closed:
        async def send_json(self, value):
            raise RuntimeError("Unexpected ASGI message 'websocket.send'")

    with pytest.raises(WebSocketDisconnect):
        asyncio.run(_send(Closed(), {}))


def test_a_stranger_does_not_keep_the_stage(guarded):
    right = json.dumps({"token": TOKEN, "model": "m0"})
    with stream_of(guarded):  # says nothing
        assert answer_to(guarded, right).startswith("model: must be one of")


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
