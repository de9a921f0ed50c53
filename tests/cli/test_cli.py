"""The command as a user meets it: a process, its output, its exit status."""

import json
import os
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld import __version__, cli
from jumpyworld.cli import run


def jumpy(*arguments, **kwargs):
    command = [sys.executable, "-m", "jumpyworld.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **kwargs)


def test_help_answers_within_a_second():
    """Processor time, so that a busy machine does not decide; and no heavy module is imported."""
    code = (
        "import sys, time\n"
        "from jumpyworld.cli import run\n"
        "try:\n    run(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = [m for m in ('jax', 'ogbench', 'matplotlib') if m in sys.modules]\n"
        "print(time.process_time(), heavy)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    seconds, heavy = result.stdout.splitlines()[-1].split(" ", 1)
    assert float(seconds) < 1.0
    assert heavy == "[]"


@pytest.mark.parametrize("words", [["--help"], ["data", "--help"], ["data", "generate", "--help"]])
def test_help_of_every_depth(words, capsys):
    with pytest.raises(SystemExit) as stop:
        run(words)
    assert stop.value.code == 0
    assert "usage: jumpy" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("eval --domian x --policy p", ["--domain STR", "Unrecognized options: --domian x"]),
        ("eval --domain x --policy p --planner foo", ["'foo'", "--planner", "'compplan'"]),
        (
            "train ghm --dataset d --out o --policy p --steps many",
            ["error: --steps many: must be a whole number\n"],
        ),
        ("eval --domain x --policy p --episodes 2.5", ["error: --episodes 2.5: must be a whole"]),
        ("eval --domain x --policy p --margin few", ["error: --margin few: must be a number\n"]),
        ("eval --domain x --policy p --discount a", ["error: --discount a: must be a number\n"]),
        ("eval --domain x --policy p --horizons 5 b", ["--horizons 5 b: must be numbers\n"]),
        ("eval --domain x --policy p --horizons a'b 3", ["--horizons a'b 3: must be numbers\n"]),
        ("eval --domain x --policy p --margin it's", ["error: --margin it's: must be a number\n"]),
        ("eval --domain x --policy p --tasks 1 x", ["error: --tasks 1 x: must be numbers\n"]),
        ("eval --domain x --policy p --tasks 1.5", ["--tasks 1.5: must be whole numbers\n"]),
        ("data generate", ["Missing from jumpy data generate: STR", "antmaze-large"]),
        ("train", ["Expected one of {policy, ghm, world-model}"]),
        ("evil", ["Unrecognized options: evil", "demo, data, train"]),
    ],
)
def test_a_wrong_command_line_gets_one_line(words, said, capsys):
    with pytest.raises(SystemExit) as stop:
        run(words.split())
    assert stop.value.code == 2
    line = capsys.readouterr().err
    assert line.startswith("jumpy: error: ")
    assert line.count("\n") == 1
    assert all(part in line for part in said), line


def test_info_prints_versions_devices_and_folders():
    start = time.monotonic()
    facts = json.loads(jumpy("info", "--json").stdout)
    assert facts["packages"]["ogbench"] == metadata.version("ogbench")
    assert facts["packages"]["jumpyworld"] == __version__
    assert facts["devices"]["0"].startswith("cpu")
    assert Path(facts["folders"]["package"], "cli").is_dir()
    assert "jumpyworld" in jumpy("info").stdout
    assert time.monotonic() - start < 60


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["data", "generate", "antmaze-huge"], "unknown domain 'antmaze-huge'"),
        (["data", "generate", "cube-1", "--episodes", "0"], "--episodes 0: must be at least 1"),
        (["data", "generate", "cube-1", "--workers", "0"], "--workers 0: must be at least 1"),
        (["data", "generate", "cube-1", "--seed", "-3"], "--seed -3: must not be negative"),
        (
            ["data", "generate", "cube-1", "--expert", "e.safetensors"],
            "--expert e.safetensors: cube-1 has no ant",
        ),
        (["demo", "--fast", "--seed", "-3"], "--seed -3: must be a whole number, at least 0"),
    ],
)
def test_bad_input_is_one_line_and_a_status(words, message, tmp_path, capsys):
    assert run([*words, "--out", str(tmp_path / "new")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("jumpy: error: ") and message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--minutes", "nan"], "--minutes nan: must be positive and finite"),
        (["--seed", "-1"], "--seed -1: must not be negative"),
        (["--out", "{folder}"], "is a folder"),
        (["--out", "{folder}/file/e.safetensors"], "cannot be written"),
        (["--out", "{folder}/file"], "file: exists"),
    ],
)
def test_training_an_expert_checks_before_it_spends_minutes(words, message, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    words = [word.format(folder=tmp_path) for word in words]
    out = [] if "--out" in words else ["--out", str(tmp_path / "e.safetensors")]
    assert run(["data", "train-expert", "ant", "--minutes", "9", *out, *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_version():
    assert jumpy("--version").stdout == f"jumpyworld {__version__}\n"


@pytest.mark.parametrize("words", [["data", "generate", "pointmaze-medium"], ["demo", "--fast"]])
def test_unwritable_folder_is_named(words, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert run([*words, "--out", str(tmp_path / "file")]) == 2
    error = capsys.readouterr().err
    assert f"--out {tmp_path / 'file'}: cannot " in error and error.count("\n") == 1


@pytest.mark.parametrize(
    "greedy", [lambda _: np.ones(2**50), lambda _: jax.block_until_ready(jnp.ones(2**46))]
)
def test_what_does_not_fit_into_memory_is_told_in_a_line(greedy, monkeypatch, capsys):
    monkeypatch.setattr(cli, "parse", greedy)
    assert run(["info"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("jumpy: error: not enough memory: ") and said.count("\n") == 1


def test_other_errors_of_the_machine_stay_what_they_are(monkeypatch):
    def broken(_):
        raise RuntimeError("INTERNAL: a bug")

    monkeypatch.setattr(cli, "parse", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        run(["info"])


def test_an_interruption_counts_from_the_first_word(monkeypatch, capsys):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "parse", interrupted)
    try:
        status = run(["info"])
    except KeyboardInterrupt:  # it would end all tests
        pytest.fail("the interruption escaped")
    assert status == 130
    assert capsys.readouterr().err == "jumpy: interrupted\n"


@pytest.mark.parametrize("words", [["data", "list"], ["eval", "--help"], ["--version"]])
def test_a_reader_that_leaves_ends_the_command_quietly(words):
    process = subprocess.Popen(
        [sys.executable, "-m", "jumpyworld.cli", *words],
        env={**os.environ, "PYTHONUNBUFFERED": "1"},  # a short answer is written at once, too
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    with process.stderr:
        assert process.wait() == 1
        assert b"Traceback" not in process.stderr.read()
