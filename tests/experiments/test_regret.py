"""What regret is, over states that a reference judges, breaks at or finds flat."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from dice import PRESET, Dice, Proposer, reward

from jumpyworld.errors import PlanError
from jumpyworld.evaluation.stats import wilson
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
    assert out["one"]["regret_over_first"] == 0 and out["one"]["regret_over_first_ci95"] == [0, 0]
    for name in ("regret", "agreement"):
        low, high = out["one"][f"{name}_ci95"]
        assert 0 <= low < out["one"][name] < high
    worse = out["elimination"]["regret"] - out["one"]["regret"]
    assert out["elimination"]["regret_over_first"] == pytest.approx(worse)


def test_picks_are_made_with_noise_of_their_own():
    """With the reference's noise its own search would agree with it everywhere."""
    few = PlanningPreset(16, (1.0,), "conditional", 4, 1, 0.9)
    planner = make_planner(METHODS[0], Dice(), Proposer(), few, 2**16)
    tasks = [Task(reward, -np.ones(1))] * 20
    out = measure_regret(planner, {"same": planner}, np.zeros((20, 1), np.float32), tasks)
    assert out["states"] == 20 and out["same"]["agreement"] < 1


def test_intervals_of_few_states_are_students_and_wilsons():
    rows = [(0.0, True), (0.5, False), (1.0, False)]
    found = bench_plan._summary(rows, [(0.0, True)] * 3)
    half = 4.302653 * 0.5 / 3**0.5  # t of two degrees of freedom, not 1.96
    assert found["regret"] == 0.5
    assert found["regret_ci95"] == pytest.approx([0, 0.5 + half])  # regret is never below 0
    assert found["regret_over_first_ci95"] == pytest.approx([0.5 - half, 0.5 + half])
    assert found["agreement"] == pytest.approx(1 / 3)
    assert found["agreement_ci95"] == pytest.approx(wilson(1, 3))
    assert bench_plan._summary(rows[:1], rows[:1]) == {}


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
    assert out == {"flat": 3, "broken": 0, "states": 0, "paper": {}}


class BrokenDice(Dice):
    """Lands nowhere, but for a share of the candidates."""

    def __init__(self, share):
        self.share = share

    def sample(self, key, states, actions, z, gamma, **options):
        found = super().sample(key, states, actions, z, gamma)
        return jnp.where((z < 0) & (found > self.share), jnp.nan, found)


def test_a_model_whose_candidates_are_not_finite_is_refused_at_its_first_state(tmp_path):
    tasks, states = [Task(reward, -np.ones(1))] * 3, np.zeros((3, 1), np.float32)

    def measure(share):
        planners = {"paper": make_planner(METHODS[0], BrokenDice(share), Proposer(), PRESET, 2**16)}
        store = References(tmp_path, {"share": share})
        return measure_regret(planners["paper"], planners, states, tasks, store=store)

    with pytest.raises(PlanError, match=r"state 0: .* of 16 candidates .*\(already"):
        measure(0.1)
    assert not list(tmp_path.rglob("*.npz"))  # nothing of it is kept
    assert measure(0.7)["states"] == 3  # some are no reason to stop
    values = np.concatenate([np.load(file)["values"] for file in tmp_path.rglob("*.npz")])
    assert 0 < np.isnan(values).mean() < 0.5
    # Candidates may be sound, and what becomes of them not.
    nothing = [Task(lambda states, goal: jnp.nan * states[..., 0], -np.ones(1))] * 3
    planner = make_planner(METHODS[0], Dice(), Proposer(), PRESET, 2**16)
    with pytest.raises(PlanError, match=r"state 0: .* 16 of 16 candidates .*\(as chains"):
        measure_regret(planner, {"paper": planner}, states, nothing)


def test_a_state_that_breaks_after_sound_ones_is_left_out_and_counted(monkeypatch):
    planner = make_planner(METHODS[0], Dice(), Proposer(), PRESET, 2**16)
    tasks, states = [Task(reward, -np.ones(1))] * 4, np.zeros((4, 1), np.float32)
    once, seen = bench_plan._reference, []

    def reference(*args):
        seen.append(once(*args))
        if len(seen) == 3:
            seen[-1].values[:9] = np.nan  # nine of sixteen
        return seen[-1]

    monkeypatch.setattr(bench_plan, "_reference", reference)
    out = measure_regret(planner, {"paper": planner}, states, tasks)
    assert (out["states"], out["flat"], out["broken"]) == (3, 0, 1)
