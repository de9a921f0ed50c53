import sys
from pathlib import Path

import jax
import pytest

# Shared helpers are plain modules beside the tests.
sys.path.append(str(Path(__file__).parent))

import chromium
from served import QUICK, TOKEN, Server
from stand_ins import bridged, drifting, exact, save_untrained

from jumpyworld import data, domains, loading
from jumpyworld.cli import run
from jumpyworld.viewer import server as serving
from jumpyworld.viewer.guard import Door
from jumpyworld.viewer.session import Program, Session


def pytest_collection_modifyitems(items):
    """Leave the browser tests out where there is no browser, each by its name."""
    if chromium.executable() is not None:
        return
    for item in items:
        if item.path.name == "test_page.py" and item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.skip(reason=f"no Chromium, left out: {item.name}"))


@pytest.fixture(scope="package", autouse=True)
def compiled_in_a_hurry():
    """Halve the time to compile: programs here are many, and run once."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="package")
def maze():
    """A pointmaze with an exact model, everything compiled."""
    server = Server([exact("pointmaze-medium")], QUICK, Door(port=0))
    server.wait("samples", "paper", "painting", "behaviour")
    yield server
    server.stop()


@pytest.fixture(scope="package")
def bridges():
    """The maze with what walks through it know: painting and the rest may still compile."""
    server = Server([bridged("pointmaze-medium")], QUICK, Door(port=0))
    server.wait("samples", "bridge")
    yield server
    server.stop()


@pytest.fixture(scope="package")
def cubes():
    """Two cubes on a table, with a model that drifts; painting may still compile."""
    server = Server([drifting("cube-2")], QUICK, Door(port=0))
    server.wait("samples", "paper")
    yield server
    server.stop()


@pytest.fixture(scope="package")
def ants(tmp_path_factory):
    """What ``jumpy view`` shows of an ant: its own data and policy, and a model that knows nothing.

    Only painting and the rest may still compile.
    """
    home = tmp_path_factory.mktemp("ants")
    logs, policy = str(home / "data"), str(home / "gcbc")
    few = ["--dataset", logs, "--preset", "debug", "--steps", "2"]
    assert run(["data", "generate", "antmaze-medium", "--episodes", "2", "--out", logs]) == 0
    assert run(["train", "policy", "gcbc", *few, "--out", policy]) == 0
    found = data.load(logs)
    model = save_untrained(
        home / "ghm", found.observations, found.actions.shape[1],
        domain=domains.get("antmaze-medium").name,
        policy=loading.fingerprint(policy), policy_name="gcbc",
    )  # fmt: skip
    engines = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serving, "serve", lambda engine, door, ready: engines.append(engine))
        assert run(["view", model, policy, "--precedents", logs]) == 0
    server = Server(list(engines[0].models.values()), QUICK, Door(port=0))
    server.wait("samples", "bridge")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def door():
    """The maze again, compiling nothing: for what is refused before anything is computed."""
    names = ("samples", "paper", "painting", "behaviour")
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
    server = Server([], QUICK, Door(port=0, token=TOKEN))
    yield server
    server.stop()
