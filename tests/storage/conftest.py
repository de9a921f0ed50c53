import sys
from pathlib import Path

import pytest

# Shared helpers are plain modules beside the tests: scripts that run as processes use them too.
sys.path.append(str(Path(__file__).parent))


@pytest.fixture
def folder(tmp_path):
    from checkpoint_samples import save_step

    return save_step(tmp_path / "run", 1)
