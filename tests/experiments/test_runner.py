"""The runner with stub commands: order, sharing, resume, failure, several at once, interrupts."""

import json
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from jumpyworld.errors import ConfigError, DataError
from jumpyworld.experiments import runner
from jumpyworld.experiments.stages import Stage

# Writes a line to the journal when it begins and ends; fails, waits or saves as it is told.
STUB = """
import os, signal, sys, time
from pathlib import Path
name, journal, folder, *orders = sys.argv[1:]
def note(word):
    with open(journal, "a") as file:
        file.write(f"{word} {name}\\n")
note("begin")
Path(folder).mkdir(parents=True, exist_ok=True)
if "stubborn" in orders:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    note("deaf")
try:
    if "fail" in orders and not (Path(journal).parent / "mended").exists():
        print("some output")
        print("jumpy: error: the reason", file=sys.stderr)
        sys.exit(2)
    if "wait" in orders:
        deadline = time.monotonic() + 30
        while not (Path(journal).parent / "go").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
    if "rest" in orders:
        time.sleep(0.3)
except KeyboardInterrupt:
    note("saved")
    sys.exit(130)
note("end")
"""


class Bench:
    """A folder with the stub and its journal."""

    def __init__(self, folder: Path):
        self.folder, self.out = folder, folder / "out"
        self.stub, self.file = folder / "stub.py", folder / "journal"
        self.stub.write_text(STUB)
        self.prefix = [sys.executable, "-S", "-E", str(self.stub)]

    def stage(self, name, *needs, orders=(), folder=None):
        folder = folder or name
        words = (name, str(self.file), str(self.out / folder), *orders)
        return Stage(name, words, needs, folder)

    def run(self, stages, **keywords):
        self.said = []
        keywords = {"say": self.said.append, **keywords}
        return runner.run(stages, self.out, self.prefix, **keywords)

    @property
    def journal(self):
        return self.file.read_text().splitlines() if self.file.exists() else []


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def chain(bench, *orders):
    return [
        bench.stage("data/a"),
        bench.stage("policies/a", "data/a", orders=orders),
        bench.stage("models/a", "data/a", "policies/a"),
        bench.stage("policies/b", "data/a"),
    ]


def test_stages_run_in_order_and_not_again(bench):
    outcome = bench.run(chain(bench))
    names = ["data/a", "policies/a", "models/a", "policies/b"]
    assert outcome.done == names and not outcome.failed
    assert bench.journal == [f"{word} {name}" for name in names for word in ("begin", "end")]
    again = bench.run(chain(bench))
    assert again.finished == names and not again.done
    assert len(bench.journal) == 8
    assert bench.said == ["4 of 4 stages are finished"]


def test_what_is_stale_runs_again(bench):
    bench.run(chain(bench))
    changed = bench.run(chain(bench, "other"))
    assert changed.done == ["policies/a", "models/a"]
    assert changed.finished == ["data/a", "policies/b"]
    (bench.out / "models/a").rmdir()
    (bench.out / "stages/policies/b.json").write_text("{half")
    assert bench.run(chain(bench, "other")).done == ["models/a", "policies/b"]


def test_a_failure_is_one_line_and_stops_only_what_needs_it(bench):
    outcome = bench.run(chain(bench, "fail"))
    assert outcome.done == ["data/a", "policies/b"]
    assert outcome.blocked == ["models/a"]
    assert list(outcome.failed) == ["policies/a"]
    line = next(line for line in bench.said if "failed" in line)
    assert "exit status 2: jumpy: error: the reason (" in line and "\n" not in line
    assert str(bench.out / "logs/policies/a.log") in line
    assert "models/a: skipped, it needs policies/a" in bench.said
    (bench.folder / "mended").touch()
    outcome = bench.run(chain(bench, "fail"))
    assert outcome.done == ["policies/a", "models/a"]
    assert outcome.finished == ["data/a", "policies/b"]


def test_several_at_once_but_never_two_in_one_folder(bench):
    stages = [bench.stage(name, orders=("rest",), folder="shared") for name in ("r/1", "r/2")]
    stages += [bench.stage("other", orders=("rest",))]
    bench.run(stages, jobs=3)
    journal = bench.journal
    assert set(journal[:2]) == {"begin r/1", "begin other"}
    assert journal.index("end r/1") < journal.index("begin r/2")
    assert journal.index("begin other") < journal.index("end r/1")


def test_no_more_than_asked_at_once(bench):
    bench.run([bench.stage(str(n), orders=("rest",)) for n in range(4)], jobs=2)
    running = most = 0
    for line in bench.journal:
        running += 1 if line.startswith("begin") else -1
        most = max(most, running)
    assert most == 2


def test_a_command_that_cannot_start_is_no_hang(bench):
    bench.prefix = ["/no/such/program"]
    with pytest.raises(FileNotFoundError):
        bench.run(chain(bench))


def test_bad_input(bench):
    with pytest.raises(ConfigError, match="jobs=0: must be at least 1"):
        bench.run(chain(bench), jobs=0)
    bench.out.write_text("a file")
    with pytest.raises(DataError, match="cannot be written"):
        bench.run(chain(bench))


SWEEP = """
    import sys
    from pathlib import Path
    from jumpyworld.experiments import runner
    from jumpyworld.experiments.stages import Stage
    out, stub, journal, grace, *orders = sys.argv[1:]
    stages = [
        Stage(name, (name, journal, f"{out}/{name}", "wait", *orders), (), name)
        for name in ("one", "two", "three")
    ]
    prefix = [sys.executable, "-S", "-E", stub]
    try:
        runner.run(stages, Path(out), prefix, jobs=2, grace=float(grace))
    except KeyboardInterrupt:
        sys.exit(130)
"""


def sweep(bench, grace=30, *orders):
    script = bench.folder / "sweep.py"
    script.write_text(textwrap.dedent(SWEEP))
    words = [bench.out, bench.stub, bench.file, grace, *orders]
    return subprocess.Popen([sys.executable, str(script), *map(str, words)])


def wait_for(bench, condition):
    deadline = time.monotonic() + 60
    while not condition(bench.journal):
        assert time.monotonic() < deadline, bench.journal
        time.sleep(0.02)


def test_an_interrupt_lets_stages_save_and_the_same_call_continues(bench):
    process = sweep(bench)
    wait_for(bench, lambda lines: len(lines) == 2)
    with pytest.raises(ConfigError, match="another sweep is running here"):
        bench.run(chain(bench))
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert sorted(bench.journal[2:]) == ["saved one", "saved two"]
    assert not (bench.out / "stages").exists()
    (bench.folder / "go").touch()
    assert sweep(bench).wait(60) == 0
    ends = [line for line in bench.journal if line.startswith("end")]
    assert sorted(ends) == ["end one", "end three", "end two"]
    record = json.loads((bench.out / "stages/one.json").read_text())
    assert record["command"][0] == "one"


def test_a_stage_that_does_not_listen_is_killed(bench):
    process = sweep(bench, 0.3, "stubborn")
    wait_for(bench, lambda lines: sum("deaf" in line for line in lines) == 2)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    before = len(bench.journal)
    (bench.folder / "go").touch()
    time.sleep(0.3)
    assert len(bench.journal) == before


def test_what_a_killed_sweep_leaves_running_keeps_the_next_one_out(bench):
    """Two writers in one folder would be worse than waiting."""
    process = sweep(bench)
    wait_for(bench, lambda lines: len(lines) == 2)
    process.kill()
    process.wait(30)
    with pytest.raises(ConfigError, match="left behind"):
        bench.run(chain(bench))
    (bench.folder / "go").touch()
    wait_for(bench, lambda lines: len([line for line in lines if "end" in line]) == 2)
    for _ in range(100):
        time.sleep(0.05)  # the last line is written a little before the process is gone
        try:
            assert len(bench.run(chain(bench)).done) == 4
            return
        except ConfigError:
            continue
    raise AssertionError("the lock outlived the stages")
