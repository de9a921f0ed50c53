import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld import domains
from jumpyworld.cli.fidelity import print_tables
from jumpyworld.errors import ConfigError
from jumpyworld.evaluation.fidelity import (
    PRESETS,
    Fidelity,
    Pairs,
    Protocol,
    Rewards,
    Truth,
    compare_rewards,
    draw_truth,
    geometric_resample,
    in_places,
    measure_fidelity,
    model_samples,
    score,
    wall_share,
)
from jumpyworld.evaluation.sensitivity import Sensitivity
from jumpyworld.evaluation.study import Outcome, result_rows

P = 12
STARTS = np.linspace(0.0, 50.0, P, dtype=np.float32)[:, None]
PAIRS = Pairs(STARTS, STARTS, STARTS, STARTS)


class Walk:
    """A policy that does nothing, and the exact model of a walk that moves by one each step."""

    gamma_max = 0.99

    def __init__(self, error=0.0):
        self.error = error

    def sample(self, key, states, *rest):
        if len(rest) == 1:
            return jnp.zeros_like(states)
        gamma = rest[2]
        u = jax.random.uniform(key, states.shape, minval=1e-7)
        times = jnp.where(gamma > 0, jnp.floor(jnp.log(u) / jnp.log(gamma)) + 1, 1.0)
        return states + times + self.error


@pytest.fixture(scope="module")
def paths():
    walk = STARTS[:, None, None] + np.arange(1, 1501, dtype=np.float32)[None, None, :, None]
    return np.repeat(walk, 4, axis=1)


def test_presets_hold_the_papers_numbers():
    paper = PRESETS["paper"]
    assert (paper.pairs, paper.rollouts, paper.samples, paper.steps) == (256, 64, 2048, 1000)
    assert 0.995 in paper.gammas and 0.99 in paper.gammas
    quick = PRESETS["quick"]
    assert (quick.pairs, quick.rollouts, quick.samples) == (32, 16, 384)


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("pairs", 0, "pairs=0"),
        ("rollouts", 1, "rollouts=1"),
        ("samples", 0, "samples=0"),
        ("steps", 0, "steps=0"),
        ("gammas", (0.9, 1.2), "gamma=1.2"),
        ("gammas", (-0.1,), "gamma=-0.1"),
        ("gammas", (float("nan"),), "gamma=nan"),
        ("gammas", (), "at least one"),
        ("gammas", (0.9, 0.9), "each of them once"),
    ],
)
def test_a_protocol_refuses_what_cannot_be_measured(field, value, text):
    settings = {"pairs": 4, "rollouts": 2, "steps": 9, "samples": 8, "gammas": (0.9,)}
    with pytest.raises(ConfigError, match=text):
        Protocol(**settings | {field: value})


def test_geometric_times_have_their_law_and_start_at_one():
    paths = np.arange(1, 2001, dtype=float)[None, :, None]
    for gamma in (0.0, 0.5, 0.98):
        states, clipped = geometric_resample(np.random.default_rng(0), paths, gamma, 100_000)
        assert states.min() == 1.0 and clipped == 0.0
        assert states.mean() == pytest.approx(1 / (1 - gamma), rel=0.02)
        assert (states == 1).mean() == pytest.approx(1 - gamma, abs=0.005)
    _, clipped = geometric_resample(np.random.default_rng(0), paths[:, :200], 0.995, 100_000)
    assert clipped == pytest.approx(0.995**200, abs=0.005)


def test_the_floor_compares_two_halves_of_the_rollouts():
    # The second half of the rollouts lies 7 further out than the first.
    paths = np.zeros((3, 4, 5, 1), np.float32)
    paths[:, 2:] = 7.0
    truth = draw_truth(paths, (0.5,), 200, seed=0)
    assert (truth.halves[0] == 0).all() and (truth.halves[1] == 7).all()
    assert truth.samples.mean() == pytest.approx(3.5, abs=0.6)
    fact = score(truth, {"model": truth.halves[0]}, (0.5,), workers=1)["model"][0]
    assert fact.floor == pytest.approx(7.0) and fact.floor_ci95 == pytest.approx(0.0, abs=1e-9)
    assert fact.emd == pytest.approx(3.5, abs=0.6) and fact.ci95 > 0
    with pytest.raises(ConfigError, match="noise floor"):
        draw_truth(paths[:, :1], (0.5,), 10, seed=0)


def test_what_is_drawn_does_not_depend_on_the_other_discounts(paths, key):
    alone, beside = draw_truth(paths, (0.9,), 20, 3), draw_truth(paths, (0.5, 0.9), 20, 3)
    np.testing.assert_array_equal(alone.samples[0], beside.samples[1])
    np.testing.assert_array_equal(alone.halves[:, 0], beside.halves[:, 1])
    one = model_samples(Walk(), Walk(), PAIRS, (0.9,), key, 20)
    two = model_samples(Walk(), Walk(), PAIRS, (0.5, 0.9), key, 20)
    np.testing.assert_array_equal(one[0], two[1])
    assert not np.array_equal(alone.samples, draw_truth(paths, (0.9,), 20, 4).samples)


def test_an_exact_model_scores_the_noise_floor_and_a_wrong_one_its_error(paths, key):
    for fact in measure_fidelity(Walk(), Walk(), PAIRS, paths, (0.5, 0.9), key, samples=500):
        assert fact.emd < 1.3 * fact.floor + fact.ci95
        assert 0 < fact.ci95 < fact.emd and 0 < fact.floor_ci95 < fact.floor
    wrong, exact = (
        measure_fidelity(model, Walk(), PAIRS, paths, (0.9,), key, samples=200)[0]
        for model in (Walk(100.0), Walk())
    )
    assert wrong.emd == pytest.approx(100.0, abs=2.0) and exact.emd < 2.0
    assert wrong.floor == exact.floor


def test_discounts_above_the_models_range_need_leave(paths, key):
    with pytest.raises(ConfigError, match=r"gamma=0\.998.*trained up to 0\.99"):
        measure_fidelity(Walk(), Walk(), PAIRS, paths, (0.5, 0.998), key, samples=8)
    facts = measure_fidelity(
        Walk(), Walk(), PAIRS, paths, (0.998,), key, samples=8, allow_extrapolation=True
    )
    assert facts[0].clipped == pytest.approx(0.998**1500, abs=0.15)


def test_samples_that_are_not_finite_are_named(key):
    with pytest.raises(ConfigError, match=r"gamma=0\.5.*not all finite"):
        model_samples(Walk(float("nan")), Walk(), PAIRS, (0.5,), key, 8)


def test_the_number_of_workers_changes_nothing(paths, key):
    truth = draw_truth(paths, (0.5, 0.9), 30, seed=0)
    models = {"a": model_samples(Walk(), Walk(), PAIRS, (0.5, 0.9), key, 30)}
    models["b"] = models["a"] + 1
    seen = []
    one = score(truth, models, (0.5, 0.9), workers=1, progress=lambda *now: seen.append(now))
    assert one == score(truth, models, (0.5, 0.9), workers=2)
    assert seen[-1] == (3 * 2 * P, 3 * 2 * P)  # the floor only once


def test_walls_by_hand():
    domain = domains.get("pointmaze-medium")
    grid = domain.grid
    free = np.array([grid.centre_of(cell) for cell in grid.free_cells])
    wall = np.array([grid.centre_of((0, 0)), (1e3, 1e3)])
    assert wall_share(domain, free) == 0.0
    assert wall_share(domain, wall) == 1.0
    assert wall_share(domain, np.concatenate([free[:6], wall])) == pytest.approx(0.25)
    ant = domains.get("antmaze-medium")
    states = np.zeros((2, 3, 29), np.float32)
    states[..., :2] = free[0]
    states[1, :, :2] = wall[0]
    assert wall_share(ant, states) == pytest.approx(0.5)
    assert wall_share(domains.get("cube-1"), np.zeros((3, 28))) is None


def test_places_leave_out_what_no_plan_asks_about():
    ant = domains.get("antmaze-medium")
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(1, 2, 30, 29)).astype(np.float32)
    truth = Truth(samples, np.stack([samples, samples + 1]), np.zeros(1))
    astray = samples.copy()
    astray[..., 2:] += 100.0  # right in x and y, wrong in the 27 others
    ahead = samples.copy()
    ahead[..., 0] += 3.0
    narrowed = in_places(ant, truth, {"astray": astray, "ahead": ahead})
    assert narrowed is not None and narrowed[0].samples.shape == (1, 2, 30, 2)
    facts = score(*narrowed, (0.9,), workers=1)
    assert facts["astray"][0].emd == pytest.approx(0.0, abs=1e-6)
    assert facts["ahead"][0].emd == pytest.approx(3.0, abs=1e-5)
    assert facts["ahead"][0].floor == pytest.approx(np.sqrt(2), abs=1e-5)
    assert score(truth, {"astray": astray}, (0.9,), workers=1)["astray"][0].emd > 500
    point = Truth(samples[..., :2], np.stack([samples[..., :2]] * 2), np.zeros(1))
    assert in_places(domains.get("pointmaze-medium"), point, {}) is None


def test_rewards_by_hand():
    point = domains.get("pointmaze-medium")  # within 1 of the goal
    goals = np.array([[0.0, 0.0], [8.0, 0.0]], np.float32)
    near, far = [0.9, 0.0], [1.1, 0.0]
    samples = goals[None, :, None] + np.array([near, near, far, far], np.float32)
    samples[0, 1] = goals[1] + far  # the second pair's never arrive
    truth = goals[None, :, None] + np.array([near, far, far, far], np.float32)
    (found,) = compare_rewards(point, samples, truth, goals, (0.9,))
    assert (found.gamma, found.model, found.truth) == (0.9, 0.25, 0.25)
    # Pairs differ by +.25 and -.25: Student's interval of two values, 12.706 sd / sqrt(2).
    assert found.ci95 == pytest.approx(12.7062 * 0.25, rel=1e-4)

    cubes = domains.get("cube-2")
    goal = np.zeros((2, cubes.observation_dim), np.float32)
    state = np.zeros((2, 2, 3, cubes.observation_dim), np.float32)
    state[1, :, :, 19:22] = 1.0  # the first cube out of place, the second in it
    found = compare_rewards(cubes, state, state[::-1], goal, (0.5, 0.9))
    assert [(f.model, f.truth) for f in found] == [(2.0, 1.0), (1.0, 2.0)]


def test_an_outcome_as_a_row_and_as_tables(capsys):
    outcome = Outcome(
        fidelity={"td-hc": [Fidelity(0.9, 3.0, 0.5, 2.0, 0.25, 0.0)]},
        places={"td-hc": [Fidelity(0.9, 0.7, 0.8, 0.4, 0.125, 0.0)]},
        rewards={"td-hc": [Rewards(0.9, 0.25, 0.375, 0.0625)]},
        walls={"td-hc": [None], "truth": [None]},
        sensitivity={"truth": [Sensitivity(0.8, 1.0, 2.0)], "td-hc": [Sensitivity(0.8, 0.5, 2.0)]},
        files=[],
        minutes={},
    )
    (row,) = result_rows(outcome, "td-hc")["rows"]
    assert row["emd"] == 3.0 and row["ci95"] == [2.5, 3.5]
    assert row["place_emd"] == 0.7 and row["place_ci95"] == [0.0, 1.5]
    assert row["place_floor"] == 0.4 and row["place_floor_ci95"] == [0.275, 0.525]
    assert (row["reward"], row["truth_reward"]) == (0.25, 0.375)
    assert row["reward_diff_ci95"] == [-0.1875, -0.0625] and "walls" not in row
    print_tables(outcome)
    whole, task, felt = capsys.readouterr().out.strip().split("\n\n")
    assert whole.split()[-6:] == ["10", "3", "0.5", "2", "0.25", "0.0%"]
    assert task.splitlines()[0].startswith("what decides the task")
    assert task.split()[-8:] == ["0.7", "0.8", "0.4", "0.125", "-", "-", "0.25", "0.375"]
    assert felt.split()[-3:] == ["0.5", "2", "0.25"]
