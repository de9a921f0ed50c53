import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))


@pytest.fixture(scope="package", autouse=True)
def compiled_once(keep_programs):
    """Keep compiled programs: most tests train the same small model."""
    with keep_programs() as folder:
        yield folder


@pytest.fixture(scope="package")
def straight(tmp_path_factory):
    """The run that was never interrupted."""
    from toy_runs import run

    folder = tmp_path_factory.mktemp("straight") / "run"
    result, warnings = run(folder)
    assert result.status == "finished" and result.step == 60 and not warnings
    return folder
