import sys
from pathlib import Path

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

sys.path.append(str(Path(__file__).parent))


@pytest.fixture(scope="session", autouse=True)
def compiled_once(tmp_path_factory):
    """Keep compiled programs for the whole session: most tests train the same small model."""
    folder = str(tmp_path_factory.mktemp("programs"))
    names = {
        "jax_compilation_cache_dir": folder,
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in names}
    for name, value in names.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    yield folder
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.fixture(scope="session")
def straight(tmp_path_factory):
    """The run that was never interrupted."""
    from toy_runs import run

    folder = tmp_path_factory.mktemp("straight") / "run"
    result, warnings = run(folder)
    assert result.status == "finished" and result.step == 60 and not warnings
    return folder
