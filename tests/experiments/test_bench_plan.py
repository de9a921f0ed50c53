from importlib import resources
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld.cli import run
from jumpyworld.experiments import bench_plan
from jumpyworld.experiments.bench_plan import (
    METHODS,
    Method,
    make_planner,
    measure_regret,
    regret,
)
from jumpyworld.experiments.references import References
from jumpyworld.planning import Task
from jumpyworld.planning.presets import PlanningPreset
from jumpyworld.storage.rows import read_rows

PRESET = PlanningPreset(16, (1.0,), "conditional", 64, 1, 0.9)


class Proposer:
    """A policy whose actions do not matter."""

    def sample(self, key, states, z):
        return jax.random.uniform(key, states.shape)


class Dice:
    """Lands on 1 with the chance that z says; with a negative z, on a random chance."""

    observation_dim = 1

    def sample(self, key, states, actions, z, gamma, **options):
        thrown = jax.random.uniform(key, z.shape)
        return jnp.where(z < 0, thrown, (thrown < z).astype(states.dtype))


def reward(states, goal):
    return states[..., 0]


def test_regret_by_hand():
    values = np.asarray([0.0, 0.5, 1.0, 0.5])
    assert regret(values, 2) == 0.0 and regret(values, 1) == 1.0 and regret(values, 0) == 2.0
    assert regret(np.zeros(3), 1) == 0.0


def test_candidates_that_the_reference_cannot_judge_do_not_hide_regret():
    values = np.asarray([0.0, 0.5, 1.0, np.nan])
    assert regret(values, 1) == 1.0 and regret(values, 0) == 2.0
    assert regret(values, 3) == 2.0  # as bad as the worst


def test_many_chains_choose_better_than_one_and_elimination_nearly_as_well():
    methods = {
        "one": (Method("one", ""), 1),
        "uniform": (Method("uniform", ""), 64),
        "elimination": (Method("elimination", "", elimination=True), 64),
    }

    def planner(method, samples):
        preset = PlanningPreset(16, (1.0,), "conditional", samples, 1, 0.9)
        return make_planner(method, Dice(), Proposer(), preset, 2**16)

    planners = {name: planner(*how) for name, how in methods.items()}
    reference = planner(METHODS[0], 4096)
    tasks = [Task(reward, -np.ones(1))] * 40  # a negative goal makes the model throw dice
    out = measure_regret(reference, planners, np.zeros((40, 1), np.float32), tasks)
    assert out["states"] == 40 and out["flat"] == 0
    assert out["one"]["regret"] > 0.25 > 0.1 > out["uniform"]["regret"]
    assert out["elimination"]["regret"] < 0.15
    assert out["uniform"]["agreement"] > out["one"]["agreement"]
    # Paired with the first planner, on the same states.
    assert out["one"]["regret_over_first"] == out["one"]["regret_over_first_ci95"] == 0.0
    worse = out["elimination"]["regret"] - out["one"]["regret"]
    assert out["elimination"]["regret_over_first"] == pytest.approx(worse)


def test_a_time_box_stops_and_says_how_far_it_came(monkeypatch):
    planners = {"paper": make_planner(METHODS[0], Dice(), Proposer(), PRESET, 2**16)}
    tasks, states = [Task(reward, -np.ones(1))] * 9, np.zeros((9, 1), np.float32)
    clock = iter(range(0, 900, 60))  # a minute between two looks at it
    monkeypatch.setattr(bench_plan, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    out = measure_regret(planners["paper"], planners, states, tasks, minutes=4)
    assert out["states"] == 4 and "regret" in out["paper"]


def test_a_reference_is_kept_and_goes_on_where_it_stopped(tmp_path, monkeypatch):
    planners = {"few": make_planner(METHODS[0], Dice(), Proposer(), PRESET, 2**16)}
    tasks, states = [Task(reward, -np.ones(1))] * 6, np.zeros((6, 1), np.float32)

    def measure(count, identity="same", warn=None):
        store = References(tmp_path, {"who": identity}, warn)
        return measure_regret(planners["few"], planners, states[:count], tasks[:count], store=store)

    whole = measure_regret(planners["few"], planners, states, tasks)
    judged = []
    once = bench_plan._reference
    monkeypatch.setattr(bench_plan, "_reference", lambda *args: judged.append(1) or once(*args))
    measure(4)  # as far as an interrupted run came
    assert len(judged) == 4 and len(list(tmp_path.rglob("state-*.npz"))) == 4
    assert measure(6) == whole and len(judged) == 6
    assert measure(6) == whole and len(judged) == 6
    # What is damaged is judged again, with a warning; another identity has a folder of its own.
    said = []
    sorted(tmp_path.rglob("state-*.npz"))[2].write_bytes(b"half a fi")
    assert measure(6, warn=said.append) == whole and len(judged) == 7 and len(said) == 1
    measure(1, "other")
    assert len(judged) == 8 and len(list(tmp_path.iterdir())) == 2


def test_states_where_all_candidates_are_alike_are_left_out_and_counted():
    planners = {"paper": make_planner(METHODS[0], Dice(), Proposer(), PRESET, 2**16)}
    tasks = [Task(lambda states, goal: 0.0 * states[..., 0], -np.ones(1))] * 3
    out = measure_regret(planners["paper"], planners, np.zeros((3, 1), np.float32), tasks)
    assert out == {"flat": 3, "states": 0, "paper": {}}


def test_the_command_writes_a_row_per_method(tmp_path, capsys):
    flags = "bench plan --domain pointmaze-medium --preset debug --candidates 8 --samples 4"
    only = ["--only", "paper", "fast", "--rounds", "2", "--out", str(tmp_path)]
    assert run([*flags.split(), *only]) == 0
    rows = read_rows(tmp_path / "speed.jsonl")
    assert [row["method"] for row in rows] == ["paper", "fast"]
    assert rows[0]["speedup"] == 1.0 and rows[0]["evaluations"] == (8 * 4 + 8) * 5 * 20
    assert "evaluations" in capsys.readouterr().out


def test_regret_of_a_trained_model_is_about_the_reward_that_was_asked_for(tmp_path):
    shipped, logged, kept = (
        resources.files("jumpyworld") / "demo",
        tmp_path / "data",
        tmp_path / "k",
    )
    run(["data", "generate", "pointmaze-large", "--episodes", "2", "--out", str(logged)])
    flags = "bench plan --domain pointmaze-large --candidates 8 --samples 4 --rounds 1 --states 2"
    flags += " --only paper --pairs in-support --reward neg-distance --reference-precision bf16"
    flags += f" --ghm {shipped / 'ghm'} --policy {shipped / 'gcbc'} --dataset {logged}"
    assert run([*flags.split(), "--reference", str(kept), "--out", str(tmp_path)]) == 0
    (row,) = read_rows(tmp_path / "speed.jsonl")
    assert row["states"] == 2 and row["regret"] >= 0
    assert (row["reward"], row["reference_precision"]) == ("neg-distance", "bf16")
    values = [np.load(file)["values"] for file in kept.rglob("state-*.npz")]
    assert len(values) == 2 and np.all(np.concatenate(values) < 0)  # a count is never below 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["plan", "--only", "magic"], "--only magic"),
        (["plan", "--rounds", "0"], "--rounds 0"),
        (["plan", "--minutes", "0"], "--minutes 0"),
        (["plan", "--policy", "scripted"], "give all three"),
        (["plan", "--pairs", "in-support"], "--pairs in-support: has no effect without --ghm"),
        (["plan", "--reward", "indicator"], "--reward indicator: has no effect without --ghm"),
        (["plan", "--states", "20"], "--states 20: has no effect without --ghm"),
        (["plan", "--minutes", "3"], "--minutes 3: has no effect without --ghm"),
        (["plan", "--reference", "kept"], "--reference kept: has no effect without --ghm"),
        (["train", "--only", "magic"], "--only magic"),
        (["train", "--batches", "0"], "--batches"),
    ],
)
def test_bad_flags_are_one_line(flags, message, capsys):
    assert run(["bench", *flags]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
