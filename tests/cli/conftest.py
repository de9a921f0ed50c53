import shutil
import sys
from pathlib import Path

import pytest

# Shared helpers are plain modules beside the tests.
sys.path.append(str(Path(__file__).parent))

from tiny_runs import TINY, jumpy, train_ghm, write_walks


@pytest.fixture(scope="module")
def programs(keep_programs):
    """Compile each program once: tests train the same few models again and again."""
    with keep_programs() as folder:
        yield folder


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A pointmaze's data, other data of the same shape, and data of another shape."""
    folder = tmp_path_factory.mktemp("place")
    write_walks(folder / "pointmaze-medium-navigate-v0.npz")
    write_walks(folder / "other" / "pointmaze-medium-navigate-v0.npz", seed=1)
    write_walks(folder / "wide.npz", d=5, da=3)
    return folder


@pytest.fixture(scope="module")
def data(place):
    return place / "pointmaze-medium-navigate-v0.npz"


@pytest.fixture(scope="module")
def straight(place, data):
    """GC-BC after four steps without a stop; a checkpoint after each."""
    out = place / "straight"
    words = ("train", "policy", "gcbc", "--dataset", data, "--out", out, *TINY)
    assert jumpy(*words, "--steps", 4, "--save-every", 1, "--log-every", 2) == 0
    return out


@pytest.fixture(scope="module")
def model(place, data, straight):
    """A geometric horizon model of that policy."""
    out = place / "model"
    assert train_ghm(data, straight, out, "--steps", 2) == 0
    return out


@pytest.fixture
def copied(straight, tmp_path):
    """A run of one's own to go on with, or to damage."""
    return Path(shutil.copytree(straight, tmp_path / "run"))
