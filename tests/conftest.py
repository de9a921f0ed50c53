"""What every test relies on: the CPU, two fake devices, strict promotion, no network."""

import contextlib
import ctypes
import os
import socket
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# Tests compile many programs and run each once or twice, so they compile them without optimisation,
# in half the time; but not those that train for thousands of steps or promise the same bits.
OPTIMISED = (
    "theory/",
    "policies/test_learning.py",
    "policies/test_corridor.py",
    "training/",
)
# Workers take whole files, in this order: a long one, begun last, would leave the other idle.
ORDER = (*OPTIMISED, "experiments/", "ghm/", "cli/", "policies/", "domains/", "planning/", "")


last_file = [None]


def place(item):
    return item.path.relative_to(Path(__file__).parent).as_posix()


def pytest_collection_modifyitems(items):
    def rank(item):
        return next(i for i, start in enumerate(ORDER) if place(item).startswith(start))

    items.sort(key=rank)


def resident_gigabytes():
    path = Path("/proc/self/statm")
    return int(path.read_text().split()[1]) * 4096 / 1e9 if path.exists() else 0.0


@pytest.hookimpl(tryfirst=True)  # before fixtures of any scope
def pytest_runtest_setup(item):
    hurry = not place(item).startswith(OPTIMISED)
    other = hurry != jax.config.values["jax_disable_most_optimizations"]
    begins = item.path != last_file[0]
    # Caches do not tell the two kinds of program apart, and keep all of them: gigabytes in the end.
    if other or (begins and resident_gigabytes() > 3):
        jax.clear_caches()
        # What was freed goes back only now; else every later file would compile all again.
        getattr(ctypes.CDLL(None), "malloc_trim", int)(0)
        jax.config.update("jax_disable_most_optimizations", hurry)
    last_file[0] = item.path
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = str(int(hurry))  # processes of the test


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Fail a test that would reach another machine."""
    connect = socket.socket.connect

    def guarded(self, address):
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise AssertionError(f"a test tried to reach {address}")
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture
def key():
    return jax.random.key(0)


@pytest.fixture(scope="session")
def keep_programs(tmp_path_factory):
    """Return a context in which compiled programs are kept in a folder, which it gives.

    For tests that train one small model again and again, also in processes of their own. Elsewhere
    programs differ, and keeping them takes more time than it saves.
    """
    folder = str(tmp_path_factory.mktemp("programs"))
    names = {
        "jax_compilation_cache_dir": folder,
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }

    @contextlib.contextmanager
    def kept():
        before = {name: jax.config.values[name] for name in names}
        for name, value in names.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()
        yield folder
        for name, value in before.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()

    return kept
