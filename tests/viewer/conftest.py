import sys
from pathlib import Path

import jax
import pytest

# Shared helpers are plain modules beside the tests.
sys.path.append(str(Path(__file__).parent))

import chromium
from served import QUICK, Server
from stand_ins import bridged, drifting, exact

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
    server = Server([], QUICK, Door(port=0, token="correct horse battery"))
    yield server
    server.stop()
