import json
import sys
import threading
import time
from pathlib import Path

import httpx
import jax
import pytest

# Shared helpers are plain modules beside the tests.
sys.path.append(str(Path(__file__).parent))

from stand_ins import drifting, exact

from jumpyworld.viewer.engine import Engine
from jumpyworld.viewer.guard import Door
from jumpyworld.viewer.server import make_server
from jumpyworld.viewer.session import Program, Session
from jumpyworld.viewer.thinking import Effort

QUICK = Effort(8, ((8, 4), (4, 8), (2, 16)), ode_steps=1, explained=8, samples=32)


@pytest.fixture(scope="package", autouse=True)
def compiled_in_a_hurry():
    """Halve the time to compile: programs here are many, and run once."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


class Server:
    """A real server on loopback, in a thread, and a client for it."""

    def __init__(self, models, effort, door):
        self.engine = Engine(models, effort)
        self._server, socket, self.address = make_server(self.engine, door)
        self.base = self.address.split("#")[0]
        self._thread = threading.Thread(target=self._server.run, args=([socket],), daemon=True)
        self._thread.start()
        self.http = httpx.Client(base_url=self.base, timeout=60, trust_env=False)

    def post(self, name, body, **headers):
        headers = {"content-type": "application/json", **headers}
        content = body if isinstance(body, bytes | str) else json.dumps(body)
        return self.http.post(f"/api/{name}", content=content, headers=headers)

    def ask(self, name, **body):
        answer = self.post(name, {"model": "m0", **body})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def wait(self, *programs, model="m0", seconds=240):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            models = self.http.get("/api/status").json()["models"]
            found = next(m for m in models if m["id"] == model)
            assert found["failed"] is None, found
            if found["ready"] and set(programs) <= set(found["compiled"]):
                return
            time.sleep(0.1)
        raise TimeoutError(programs)

    def stop(self):
        self.http.close()
        self._server.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive()


@pytest.fixture(scope="package")
def maze():
    """A pointmaze with an exact model, everything compiled."""
    server = Server([exact("pointmaze-medium")], QUICK, Door(port=0))
    server.wait("samples", "plans", "painting", "behaviour")
    yield server
    server.stop()


@pytest.fixture(scope="package")
def cubes():
    """Two cubes on a table, with a model that drifts; painting may still compile."""
    server = Server([drifting("cube-2")], QUICK, Door(port=0))
    server.wait("samples", "plans")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def door():
    """The maze again, compiling nothing: for what is refused before anything is computed."""
    names = ("samples", "plans", "painting", "behaviour")
    with pytest.MonkeyPatch.context() as patch:
        nothing = [Program(name, lambda: None, first=True) for name in names]
        patch.setattr(Session, "programs", lambda self: nothing)
        server = Server([exact("pointmaze-medium")], QUICK, Door(port=0))
        server.wait(*names)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def guarded():
    """A server with a token, and no models."""
    server = Server([], QUICK, Door(port=0, token="correct horse battery"))
    yield server
    server.stop()
