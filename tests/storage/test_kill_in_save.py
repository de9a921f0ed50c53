import subprocess
import sys
from pathlib import Path


def test_a_kill_at_any_line_of_a_save_leaves_a_whole_checkpoint(tmp_path):
    script = Path(__file__).with_name("kill_in_save.py")
    command = [sys.executable, str(script), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    kills, before_it_was_there = map(int, done.stdout.split()[-2:])
    assert kills > 150, "every line of the save and of the removal of older checkpoints"
    assert 0 < before_it_was_there < kills
