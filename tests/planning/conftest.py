import sys
from pathlib import Path

import jax
import pytest

# Shared helpers are plain modules beside the tests.
sys.path.append(str(Path(__file__).parent))


@pytest.fixture(scope="package", autouse=True)
def compiled_in_a_hurry():
    """Halve the time to compile: programs here are many, and run once."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
