"""A real server on loopback, for tests of the viewer."""

import json
import threading
import time

import httpx

from jumpyworld.viewer.candidates import Effort
from jumpyworld.viewer.engine import Engine
from jumpyworld.viewer.server import make_server

QUICK = Effort(8, ((8, 4), (4, 8), (2, 16)), ode_steps=1, explained=8, samples=32)
HORIZONS = {"proposal": "paper", "horizons": [50, 50, 100, 100], "discount": 0.995}
TOKEN = "correct horse+battery&staple%41="  # all that a URL would read as something else
BRIDGES = {"proposal": "bridge", "horizons": [150] * 6, "discount": 0.998}


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
