"""Planners in real environments: pairing, independence, replanning, nothing compiled twice."""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multinomial

from jumpyworld import domains
from jumpyworld.errors import ConfigError, DataError
from jumpyworld.evaluation.decisions import DecisionLog
from jumpyworld.evaluation.lockstep import Lockstep
from jumpyworld.evaluation.planned import (
    Contender,
    Outcomes,
    Results,
    difference_fields,
    success_fields,
)
from jumpyworld.evaluation.planners import make_planner, planner_settings
from jumpyworld.evaluation.stats import Z95, paired_difference, wilson
from jumpyworld.evaluation.success import Success, episode_seed, evaluate
from jumpyworld.planning import (
    GGPI,
    GPI,
    AbstractPlanner,
    CompPlan,
    GoalProposal,
    HighLevelProposal,
    MixtureProposal,
    OneZProposal,
    Plan,
    Uniform,
    ZeroShot,
)
from jumpyworld.policies import ScriptedGoalPolicy

MEDIUM = domains.get("pointmaze-medium")


class Drift(eqx.Module):
    """A model that knows no walls: lands between here and z, the nearer to z the longer."""

    noise: float = eqx.field(static=True, default=0.3)

    def sample(self, key, states, actions, z, gamma, **options):
        target = states if z is None else z
        return (
            states + gamma * (target - states) + self.noise * jax.random.normal(key, states.shape)
        )


class Random(eqx.Module):
    def sample(self, key, states, z):
        return jax.random.uniform(key, states.shape, minval=-1.0)


@pytest.fixture(scope="module", autouse=True)
def compiled_in_a_hurry():
    """Halve the time to compile: programs here are many, and small."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="module")
def policy():
    return ScriptedGoalPolicy(MEDIUM.grid, noise=0.2)


def compose(policy, **settings):
    settings = {"horizons": (5, 20), "discount": 0.98, "search": Uniform(2), **settings}
    return CompPlan(Drift(), policy, proposal=GoalProposal(4), **settings)


@pytest.fixture(scope="module")
def run():
    """Return a function that evaluates in four environments, which all tests here share."""
    with Lockstep(MEDIUM, 4, workers=1) as envs:

        def run(actor, **settings):
            settings = {"episodes": 1, "tasks": (1, 3), "max_steps": 6, "envs": envs, **settings}
            return evaluate(MEDIUM, actor, **settings)

        yield run


def paths(success):
    return [np.stack(trace.states) for trace in success.traces]


def test_a_scripted_policy_solves_every_task_and_a_random_one_none(run, policy):
    solved = run(policy, tasks=None, max_steps=250)
    assert solved.mean == 1.0 and solved.task_ids == (1, 2, 3, 4, 5)
    lost = run(Random(), tasks=None, max_steps=40)
    assert lost.mean == 0.0 and (lost.steps == 40).all()


def test_planners_meet_the_same_starts_goals_and_noise(run, policy):
    plain, zero, plan = (
        run(actor, episodes=2, record=2) for actor in (policy, ZeroShot(policy), compose(policy))
    )
    for a, b, c in zip(plain.traces, zero.traces, plan.traces, strict=True):
        np.testing.assert_array_equal(a.states[0], c.states[0])
        np.testing.assert_array_equal(a.goal, c.goal)
        np.testing.assert_array_equal(np.stack(a.states), np.stack(b.states))
    assert len({tuple(trace.goal) for trace in plan.traces}) == 4
    # As OGBench itself starts the episode of that seed.
    env = MEDIUM.make_env(0)
    start, info = env.reset(seed=episode_seed(0, 3, 1), options={"task_id": 3})
    np.testing.assert_array_equal(plan.traces[3].states[0], np.float32(start))
    np.testing.assert_array_equal(plan.traces[3].goal, np.float32(info["goal"]))


def test_an_episode_does_not_depend_on_who_runs_beside_it(run, policy):
    """Nor on workers, on how many are planned for at once, or on waves."""
    settings = {"include_base": True, "warm_start": 1, "margin": 0.1}
    planner, turns = compose(policy, **settings), compose(policy, **settings, max_rows=28)
    many = run(planner, episodes=3, record=3, envs=None, workers=2, replan_every=2)
    assert planner.environments_at_once > 6
    assert turns.environments_at_once == 2
    few = run(turns, tasks=(3,), episodes=2, record=2, replan_every=2)
    for a, b in zip(paths(few), paths(many)[3:5], strict=True):
        np.testing.assert_array_equal(a, b)
    waves = run(turns, episodes=3, record=3, replan_every=2)
    assert (waves.decisions.batch, many.decisions.batch) == (2, 6)
    assert waves.decisions.plans == many.decisions.plans == 6 * 3
    for a, b in zip(paths(waves), paths(many), strict=True):
        np.testing.assert_array_equal(a, b)
    assert waves.decisions.dithering == many.decisions.dithering
    other = run(planner, episodes=3, record=3, replan_every=2, seed=1)
    assert not np.array_equal(paths(other)[0], paths(many)[0])


def test_nothing_is_compiled_after_the_first_plan_and_the_first_step_between(run, policy):
    """Although episodes end at different times."""
    compiled, after = [], {}

    def listen(name, duration, **_):
        if "backend_compile" in name:
            compiled.append(name)

    def progress(done, total):
        after.setdefault(len(after), len(compiled))

    planner = compose(policy, warm_start=1, max_rows=30)
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        ended = run(
            planner, tasks=(3, 5), episodes=2, max_steps=200, replan_every=4, progress=progress
        )
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert len(set(ended.steps.ravel().tolist())) > 1 and ended.outcomes.any()
    assert after[0] > 0 and after[1] == len(compiled)
    assert len(after) == ended.steps.max()


class EastThenNorth(AbstractPlanner):
    """Plans a step east and follows it north."""

    def plan(self, key, state, task, memory):
        plan = ZeroShot(Random()).plan(key, state, task, memory)
        return dataclasses.replace(plan, action=jnp.asarray([0.5, 0.0]))

    def act_between(self, key, state, plan: Plan):
        return jnp.asarray([0.0, 0.25])


def test_between_plans_the_policy_acts_and_not_the_plan(run):
    ended = run(EastThenNorth(), tasks=(1,), max_steps=7, replan_every=3, record=1)
    (trace,) = ended.traces
    assert trace.plan_steps == [0, 3, 6] and len(trace.z) == len(trace.actions) == 3
    moves = np.diff(np.stack(trace.states), axis=0)
    east, north = [0.1, 0.0], [0.0, 0.05]
    wanted = [east, north, north, east, north, north, east]
    np.testing.assert_allclose(moves, wanted, atol=1e-3)
    assert ended.decisions.plans == 3 and ended.decisions.plan_ms is not None


def test_what_plans_say_is_counted(run, policy):
    """With horizons of one step nothing finds the far goals of tasks 1 and 3."""
    blind = run(compose(policy, horizons=(1, 1)), episodes=2)
    assert blind.decisions.all_zero == 1.0 and blind.decisions.plans == 4 * 6
    seeing = run(compose(policy, horizons=(40, 40)), episodes=2).decisions
    assert seeing.all_zero < 0.5 and seeing.z1_distance is not None
    assert seeing.evaluations == 4 * 2 * 2 + 4 * 2 and seeing.invalid == 0
    fields = success_fields(blind)
    assert fields["all_zero"] == 1.0 and fields["decisions"] == 24
    interval = [round(end, 4) for end in wilson(0, 2)]
    assert fields["tasks"][1] == {"task": 3, "episodes": 2, "successes": 0, "ci95": interval}
    assert "all_zero" not in success_fields(run(policy, max_steps=2))
    # Subgoals one step of the model away, and so within the policy's first five steps.
    near = run(compose(policy, horizons=(5, 40)), episodes=2, max_steps=12).decisions
    assert near.z1_reached is not None and 0 <= near.z1_reached <= 1
    assert run(policy, max_steps=2).decisions.z1_reached is None


def test_nearness_is_a_reward_where_the_goal_is_beyond_the_horizons(run, policy):
    blind = compose(policy, horizons=(1, 1))
    near = run(blind, episodes=1, reward="neg-distance").decisions
    assert near.all_zero == 0.0 and near.plans == 2 * 6
    assert run(blind, episodes=1, reward="indicator").decisions.all_zero == 1.0


def test_decisions_by_hand():
    log = DecisionLog(MEDIUM, jump=2.0)
    rows = np.asarray([0, 3])
    base = ZeroShot(Random()).plan(jax.random.key(0), jnp.zeros(2), _task([0.0, 0.0]), None)

    def plans(*z):
        stacked = jax.tree.map(lambda x: np.stack([np.asarray(x)] * len(z)), base)
        stacked = dataclasses.replace(stacked, all_zero=np.asarray([True] * len(z)))
        return dataclasses.replace(stacked, z=np.asarray(z, np.float32)[:, None])

    log.add(0, rows, np.zeros((2, 2)), plans([3.0, 4.0], [0.0, 1.0]))
    log.add(1, rows, np.zeros((2, 2)), plans([3.0, 5.0], [0.0, 4.0]))
    log.add(2, rows[1:], np.zeros((1, 2)), plans([0.0, 3.5]))
    log.begin(4)
    log.add(0, rows[1:], np.zeros((1, 2)), plans([0.0, 0.0]))
    found = log.summary()
    assert (found.plans, found.all_zero, found.dithering) == (6, 1.0, 1 / 3)
    assert found.z1_distance == pytest.approx((5 + 1 + np.sqrt(34) + 4 + 3.5 + 0) / 6)
    assert found.plan_ms is None and found.jump == 2.0


def _task(goal):
    from jumpyworld.planning import goal_task

    return goal_task(MEDIUM, np.asarray(goal, np.float32))


def test_the_interval_of_a_paired_difference_by_hand():
    # Of 10 episodes we win 4 that they lose, they win 1 that we lose: 12 with the added ones.
    ours = np.asarray([1, 1, 1, 1, 0, 1, 1, 0, 0, 0], bool)
    theirs = np.asarray([0, 0, 0, 0, 1, 1, 1, 0, 0, 0], bool)
    diff, (low, high) = paired_difference(ours, theirs)
    half = Z95 * np.sqrt((7 / 12 - (3 / 12) ** 2) / 12)
    assert diff == pytest.approx(0.3)
    np.testing.assert_allclose((low, high), (0.25 - half, 0.25 + half), rtol=1e-12)
    # The other way round it is the mirror image; the shape of the episodes does not matter.
    mirrored, (low2, high2) = paired_difference(theirs.reshape(5, 2), ours.reshape(5, 2))
    np.testing.assert_allclose((mirrored, low2, high2), (-diff, -high, -low))
    # No episode differs: an interval that still has a width, and more episodes narrow it.
    widths = []
    for n in (10, 100, 1000):
        diff, (low, high) = paired_difference(np.ones(n, bool), np.ones(n, bool))
        assert diff == 0 and low == -high < 0
        widths.append(high - low)
    assert widths == sorted(widths, reverse=True) and widths[-1] < 0.01
    assert paired_difference([True] * 100, [False] * 100)[1][0] > 0.9
    with pytest.raises(ValueError, match="no pairs"):
        paired_difference([True], [True, False])


@pytest.mark.parametrize("n", [50, 100])
@pytest.mark.parametrize("shares", [(0.1, 0), (0.02, 0), (0.1, 0.1), (0.3, 0.02), (0.9, 0)])
def test_the_interval_of_a_paired_difference_covers(n, shares):
    """Over all that can happen, it holds the truth 19 times of 20, or nearly so."""
    won, lost = shares
    truth, held = won - lost, 0.0
    for w, k in itertools.product(range(n + 1), range(n + 1)):
        chance = multinomial.pmf([w, k, n - w - k], n, [won, lost, 1 - won - lost])
        if w + k <= n and chance > 1e-6:
            ours, theirs = np.arange(n) < w, (np.arange(n) >= w) & (np.arange(n) < w + k)
            low, high = paired_difference(ours, theirs)[1]
            held += chance * (low <= truth <= high)
    assert held > 0.935


def outcome(success, steps=5):
    success = np.asarray(success, bool)
    log = DecisionLog(MEDIUM)
    return Success(success, np.full(success.shape, steps), (2, 4), log.summary())


EPISODES = {"seed": 0, "tasks": [2, 4], "episodes": 3, "max_steps": 9}


def test_outcomes_are_kept_and_found_again(tmp_path):
    results = Results(tmp_path / "out")
    zero = Contender("zero-shot", {"policy": "a"}, EPISODES)
    assert results.finished(zero) is None and results.find(zero) is None
    results.prepare()
    results.write(zero, outcome([[1, 0, 1], [0, 0, 1]]), {"kind": "success", "mean": 0.5})
    again = Results(tmp_path / "out")
    found = again.finished(zero)
    assert found is not None and found.success.tolist() == [
        [True, False, True],
        [False] * 2 + [True],
    ]
    assert again.rows[zero.id]["mean"] == 0.5
    # Fewer of its episodes pair with another's; other seeds, policies or limits do not.
    some = Contender("zero-shot", {"policy": "a"}, {**EPISODES, "tasks": [4], "episodes": 2})
    part = again.find(some)
    assert part is not None and part.success.tolist() == [[False, False]]
    for change in ({"seed": 1}, {"max_steps": 8}, {"episodes": 4}, {"tasks": [4, 5]}):
        assert again.find(Contender("zero-shot", {"policy": "a"}, {**EPISODES, **change})) is None
    assert again.find(Contender("zero-shot", {"policy": "b"}, EPISODES)) is None
    # A damaged file is not believed: the contender must run again.
    again.path(zero).write_text('{"success": [1]}')
    assert again.finished(zero) is None and again.find(zero) is None
    again.path(zero).write_text("no JSON")
    assert again.finished(zero) is None and again.find(zero) is None
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="no folder"):
        Results(tmp_path / "file")


def test_the_fields_of_a_difference():
    ours, theirs = (Outcomes(np.asarray(s, bool), np.zeros((1, 2))) for s in ([[1, 1]], [[1, 0]]))
    fields = difference_fields("zero-shot", ours, theirs)
    assert fields["baseline"] == "zero-shot" and fields["diff"] == 0.5
    low, high = fields["diff_ci95"]
    assert low == round(0.25 - Z95 * np.sqrt((3 / 4 - 1 / 16) / 4), 4) and high == 1.0


class Hierarchy(eqx.Module):
    def sample(self, key, states, z):
        return jnp.zeros_like(states)

    def propose(self, key, states, goals):
        return goals


def test_planners_by_name():
    settings = planner_settings(MEDIUM, "gcbc", candidates=8, samples=3)
    assert (settings.horizons, settings.discount) == ((50.0, 50.0, 100.0, 100.0, 200.0), 0.999)
    policy, model = Hierarchy(), Drift()
    planner = make_planner("compplan", settings, policy, ghm=model)
    assert isinstance(planner, CompPlan) and isinstance(planner.proposal, GoalProposal)
    assert planner.num_candidates == 8 and planner.search == Uniform(3)
    gpi = make_planner("gpi", settings, policy, ghm=model)
    assert isinstance(gpi, GPI) and len(gpi.betas) == 1
    chain = dataclasses.replace(settings, gpi_chain=True)
    chained = make_planner("gpi", chain, policy, ghm=model)
    assert isinstance(chained, GPI) and isinstance(chained.proposal, OneZProposal)
    ggpi = make_planner("ggpi", settings, policy, ghm=model)
    assert isinstance(ggpi, GGPI)
    np.testing.assert_allclose(ggpi.betas[:4], 0.98, atol=1e-6)
    action = make_planner("actionplan", settings, policy, world_model=model)
    assert isinstance(action, CompPlan) and len(action.betas) == 25 and action.num_candidates == 8

    # HFBC's conditional proposals are its high level's; cubes' are unconditional.
    assert planner_settings(MEDIUM, "hfbc").proposal == "high-level"
    assert planner_settings(domains.get("cube-2"), "hfbc").proposal == "unconditional"
    high = dataclasses.replace(settings, proposal="high-level")
    made = make_planner("compplan", high, policy, ghm=model)
    assert isinstance(made, CompPlan) and isinstance(made.proposal, HighLevelProposal)
    whole = Hierarchy()
    low = make_planner("compplan", high, policy, ghm=model, whole=whole)
    assert low.base is whole and low.proposal.policy is whole and low.repertoire.policy is policy
    assert make_planner("zero-shot", high, policy, whole=whole).policy is whole
    # Actions are proposed by pi_g, and a low level is not pi_g: far goals are none of its subgoals.
    steps = make_planner("actionplan", high, policy, world_model=model, whole=whole)
    assert steps.repertoire.policy is whole
    mixed = make_planner(
        "compplan", dataclasses.replace(settings, proposal="mixture"), policy, ghm=model
    )
    assert isinstance(mixed, CompPlan) and isinstance(mixed.proposal, MixtureProposal)
    assert mixed.num_candidates == 8
    for kind in ("goal", "unconditional", "high-level", "mixture"):
        ends = dataclasses.replace(settings, proposal=kind, append_goal=True)
        made = make_planner("compplan", ends, policy, ghm=model).proposal
        parts = made.parts if kind == "mixture" else (made,)
        assert all(part.append_goal for part in parts)
    assert "append_goal" in ends.used_by("compplan")
    assert "append_goal" not in settings.used_by("compplan")
    rounds = planner_settings(MEDIUM, "gcbc", search="elimination", candidates=256).rounds
    assert rounds == ((256, 16), (32, 48), (4, 192))


def test_only_what_a_planner_uses_tells_two_runs_apart():
    settings = planner_settings(MEDIUM, "gcbc")
    changed = dataclasses.replace(settings, action_horizon=7, alpha=0.1, max_rows=1)
    for name in ("zero-shot", "compplan", "gpi"):
        assert settings.used_by(name) == changed.used_by(name)
    for name in ("ggpi", "actionplan"):
        assert settings.used_by(name) != changed.used_by(name)


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"search": "elimination", "samples": 4}, "samples=4"),
        ({"rounds": ((4, 4),)}, "rounds"),
    ],
)
def test_settings_that_contradict_are_refused(asked, text):
    with pytest.raises(ConfigError, match=text):
        planner_settings(MEDIUM, "gcbc", **asked)


def test_missing_models_are_named():
    settings = planner_settings(MEDIUM, "gcbc")
    with pytest.raises(ConfigError, match="ghm is missing"):
        make_planner("compplan", settings, Hierarchy())
    with pytest.raises(ConfigError, match="world-model is missing"):
        make_planner("actionplan", settings, Hierarchy(), ghm=Drift())


@pytest.mark.parametrize(
    "asked", [{"episodes": 0}, {"tasks": (6,)}, {"tasks": ()}, {"tasks": (1, 1)},
              {"max_steps": 0}, {"replan_every": 0}],
)  # fmt: skip
def test_numbers_out_of_range_are_refused(asked, run, policy):
    with pytest.raises(ConfigError, match=next(iter(asked))):
        run(policy, **asked)
