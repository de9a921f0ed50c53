"""A generator that is killed or runs out of disk: files are whole or absent."""

import errno
import os
import signal
import subprocess
import sys
import time

import pytest
from small_sets import digests, small

from jumpyworld import domains
from jumpyworld.domains.generate import runner
from jumpyworld.domains.generate.runner import Request, generate
from jumpyworld.errors import DataError

COMMAND = [
    sys.executable, "-m", "jumpyworld.cli", "data", "generate", "pointmaze-medium",
    "--episodes", "24", "--workers", "2", "--seed", "4", "--out",
]  # fmt: skip


def alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def parts_of(folder):
    """Episodes made so far, by name, with what identifies the very file."""
    # By their first letter: a temporary file, whose name begins with a dot, may vanish at any time.
    stats = {path.name: path.stat() for path in folder.glob(".*.parts/[tv]*-0*")}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in stats.items()}


def test_killed_runs_continue_to_the_same_files(tmp_path):
    """Three kills, each after some further episodes; workers go down with their parent, and no
    episode that was there is made again."""
    killed = tmp_path / "killed"
    kept = {}
    for wanted in (3, 9, 15):
        process = subprocess.Popen(
            [*COMMAND, killed], stderr=subprocess.DEVNULL, start_new_session=True
        )
        deadline = time.monotonic() + 120
        while len(parts_of(killed)) < wanted and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)  # the parent alone: its workers must notice
        process.wait()
        while alive(process.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not alive(process.pid), "workers outlived their parent"
        assert not list(killed.glob("*.npz"))
        now = parts_of(killed)
        assert len(now) >= wanted and kept.items() <= now.items()
        kept = now
    subprocess.run([*COMMAND, killed], check=True, stderr=subprocess.DEVNULL)
    generate(Request.make(domains.get("pointmaze-medium"), 4, 24), tmp_path / "whole", workers=1)
    assert digests(killed) == digests(tmp_path / "whole")


def test_a_kill_while_the_final_file_is_written_leaves_nothing_in_the_end(tmp_path):
    code = (
        "import os, signal, sys\n"
        "import jumpyworld.storage.npz as npz\n"
        "write = npz._write_blocks\n"
        "def die(w, name, column):\n"
        "    write(w, name, column)\n"
        "    if name == 'qvel': os.kill(os.getpid(), signal.SIGKILL)\n"
        "npz._write_blocks = die\n"
        "from jumpyworld.cli import main\n"
        "if __name__ == '__main__': main(sys.argv[1:])\n"
    )
    script = tmp_path / "die.py"
    script.write_text(code)
    out = tmp_path / "out"
    command = ["data", "generate", "pointmaze-medium", "--episodes", "2", "--out", str(out)]
    killed = subprocess.run([sys.executable, script, *command], stderr=subprocess.DEVNULL)
    assert killed.returncode == -signal.SIGKILL
    assert list(out.glob(".*.tmp")) and not list(out.glob("*.npz"))
    generate(Request.make(domains.get("pointmaze-medium"), 0, 2), out, workers=1)
    assert len(list(out.iterdir())) == 3


def test_ctrl_c_keeps_what_was_made(tmp_path):
    process = subprocess.Popen(
        [*COMMAND, tmp_path], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".*/train-0*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)  # an impatient user
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command continues" in errors and "Traceback" not in errors
    assert list(tmp_path.glob(".*/train-*")) and not list(tmp_path.glob("*.npz"))


def test_a_damaged_part_is_made_again(tmp_path, monkeypatch):
    generate(small("pointmaze-medium"), tmp_path / "whole", workers=1)
    monkeypatch.setattr(runner, "_assemble", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        generate(small("pointmaze-medium"), tmp_path / "again", workers=1)
    monkeypatch.undo()
    parts = sorted((tmp_path / "again").glob(".*/train-*"))
    assert len(parts) == 3
    parts[0].write_bytes(parts[0].read_bytes()[:-100])
    damaged = bytearray(parts[1].read_bytes())
    damaged[300] ^= 1
    parts[1].write_bytes(damaged)
    generate(small("pointmaze-medium"), tmp_path / "again", workers=1)
    assert digests(tmp_path / "again") == digests(tmp_path / "whole")


def test_a_full_disk_leaves_no_file_under_the_final_name(tmp_path, monkeypatch):
    import jumpyworld.storage.npz as npz

    write = npz._write_blocks

    def full(_, name, column):
        if name == "qvel":
            raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "x"))
        write(_, name, column)

    monkeypatch.setattr(npz, "_write_blocks", full)
    with pytest.raises(DataError, match="cannot write the data set: No space left on device"):
        generate(small("pointmaze-medium"), tmp_path, workers=1)
    assert [p.name for p in tmp_path.iterdir()] == [".pointmaze-medium-navigate-v0.parts"]
    monkeypatch.undo()
    generate(small("pointmaze-medium"), tmp_path, workers=1)
    assert len(list(tmp_path.iterdir())) == 3


def test_a_real_limit_on_file_size_is_one_clear_line(tmp_path):
    """The system itself refuses to write on, as it does on a full disk or over a quota."""
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000));"
    run = f"{limit} from jumpyworld.cli import main; main(sys.argv[1:])"
    command = [
        sys.executable, "-c", run, "data", "generate", "pointmaze-medium",
        "--episodes", "1", "--workers", "1", "--out", tmp_path,
    ]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 2
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("jumpy: error:") and "cannot write" in last
    assert not list(tmp_path.glob("*.npz"))
