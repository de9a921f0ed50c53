import sys
from pathlib import Path

import pytest

# Shared helpers are plain modules beside the tests.
sys.path.append(str(Path(__file__).parent))

from jumpyworld.domains.generate.ant_expert import AntExpert


@pytest.fixture(scope="module")
def expert():
    return AntExpert.load()
