"""Where candidates come from; and the real models behind the interface."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld import domains, ghm, policies
from jumpyworld.errors import ConfigError, PlanError
from jumpyworld.planning import (
    PAPER,
    ActionPlan,
    BaseProposal,
    CompPlan,
    GoalProposal,
    HighLevelProposal,
    ListProposal,
    MixtureProposal,
    OneZProposal,
    Task,
    UnconditionalProposal,
    Uniform,
    fast_search,
    goal_task,
    planning_preset,
)
from jumpyworld.planning.estimate import Question
from jumpyworld.planning.repertoire import Repertoire

GOAL = jnp.asarray([5.0, 5.0])


class Aims(eqx.Module):
    """The action is z, so that a model can tell whose action it was given."""

    def sample(self, key, states, z):
        return z


class Traces(eqx.Module):
    """Moves by beta along x if it was given the goal's action and z, along y if neither."""

    def sample(self, key, states, actions, z, gamma):
        if z is None:
            return states + gamma * jnp.asarray([[0.0, 1.0]])
        ours = (actions == GOAL[None]).all(-1) & (z == GOAL[None]).all(-1)
        moved = jnp.where(ours[:, None], jnp.asarray([[1.0, 0.0]]), jnp.nan)
        return states + gamma * moved


def question(goal=GOAL):
    ask = Repertoire(Traces(), Aims(), action_limit=None)
    task = Task(lambda states, goal=None: states[..., 0], goal)
    return Question(ask, task, jnp.zeros(2), jnp.asarray([0.5, 0.25]), jnp.ones(2))


def draw(proposal, asked, key):
    return np.asarray(eqx.filter_jit(proposal.sample)(key, asked))


def test_goal_proposals_chain_the_model_of_pi_g_at_the_betas(key):
    z = draw(GoalProposal(3), question(), key)
    np.testing.assert_allclose(z, np.tile([[0.5, 0.0], [0.75, 0.0]], (3, 1, 1)))
    z = draw(GoalProposal(3, append_goal=True), question(), key)
    np.testing.assert_allclose(z[:, 0], np.tile([0.5, 0.0], (3, 1)))
    np.testing.assert_allclose(z[:, 1], np.tile(GOAL, (3, 1)))
    # A goal of its own goes before the task's.
    z = draw(GoalProposal(1, goal=np.asarray(GOAL)), question(jnp.ones(2)), key)
    assert np.isfinite(z).all()
    with pytest.raises(PlanError, match="GoalProposal: goal=None"):
        draw(GoalProposal(1), question(None), key)


def test_unconditional_proposals_do_not_know_the_goal(key):
    for goal in (GOAL, jnp.ones(2), None):
        z = draw(UnconditionalProposal(2), question(goal), key)
        np.testing.assert_allclose(z, np.tile([[0.0, 0.5], [0.0, 0.75]], (2, 1, 1)))
    needy = eqx.tree_at(lambda q: q.repertoire.model, question(), NeedsAction())
    with pytest.raises(ConfigError, match="mask_action=False"):
        draw(UnconditionalProposal(2), needy, key)


class NeedsAction(Traces):
    mask_action: bool = eqx.field(static=True, default=False)


class High(eqx.Module):
    def propose(self, key, states, goals):
        return states + 0.5 * (goals - states)


def test_high_level_proposals_chain_subgoals(key):
    z = draw(HighLevelProposal(High(), 2), question(), key)
    np.testing.assert_allclose(z[0], [[2.5, 2.5], [3.75, 3.75]])
    with pytest.raises(ConfigError, match="no high level"):
        HighLevelProposal(Aims(), 2)


def test_mixtures_are_all_parts_in_order(key):
    mixture = MixtureProposal(
        (BaseProposal(), UnconditionalProposal(2), ListProposal(np.ones((3, 2, 2))))
    )
    assert mixture.count == 6 and mixture.jumps(2) == 4
    z = draw(mixture, question(), key)
    np.testing.assert_array_equal(z[0], np.tile(GOAL, (2, 1)))
    np.testing.assert_array_equal(z[3:], 1)
    with pytest.raises(ConfigError, match="sequences of 3 for 2 horizons"):
        draw(ListProposal(np.ones((1, 3, 2))), question(), key)


def test_one_z_is_any_of_its_sequence(key):
    sequence = [[0.0, 0.0], [1.0, 1.0]]
    z = draw(OneZProposal(ListProposal(np.tile(sequence, (64, 1, 1)))), question(), key)
    assert (z == z[:, :1]).all()
    assert 16 < (z[:, 0, 0] == 1).sum() < 48


def test_presets_are_the_papers_table():
    assert len(PAPER) == 35
    row = planning_preset("antmaze-giant-navigate-v0", "crl")
    assert (row.candidates, row.samples, row.discount) == (256, 256, 0.999)
    assert row.horizons == (50, 50, 100, 100, 200) and row.proposal == "conditional"
    row = planning_preset("cube-4", "hfbc")
    assert (row.candidates, row.samples, row.horizons) == (32, 128, (25,) * 7)
    assert planning_preset("cube-1", "gc1s").horizons == (20, 80)
    assert planning_preset("cube-4", "gcbc").horizons == (20, 20, 20, 20, 80)
    assert planning_preset("antmaze-large", "hfbc").horizons == (25,) * 24
    assert planning_preset("pointmaze-large", "scripted") == PAPER["antmaze-large", "gcbc"]
    for row in PAPER.values():
        assert row.replan_every == 1
        assert fast_search(row.candidates).rounds[0][0] == row.candidates
    assert fast_search(32).rounds == ((32, 16), (4, 64))
    assert fast_search(256).rounds == ((256, 16), (32, 48), (4, 192))
    assert fast_search(1024).rounds == ((1024, 4), (128, 8), (32, 32), (8, 128))
    assert fast_search(1).rounds == ((1, 16), (1, 64))
    with pytest.raises(ConfigError, match="unknown domain"):
        planning_preset("nowhere", "crl")


@pytest.fixture(scope="module")
def spec():
    return ghm.GHMSpec(2, np.zeros(2), np.ones(2), np.ones((len(ghm.HORIZONS), 2)))


def test_the_trained_models_fit_the_interface(spec, key):
    """Untrained weights: shapes, counts and the planner's own ODE settings."""
    model = ghm.GeometricHorizonModel(ghm.GHMConfig.preset("debug"), spec, key=key)
    policy = policies.ScriptedGoalPolicy(domains.get("pointmaze-medium").grid, reach=3)
    task = goal_task(domains.get("pointmaze-medium"), np.ones(2))
    planner = CompPlan(
        model,
        policy,
        horizons=(5, 10),
        discount=0.95,
        proposal=MixtureProposal((GoalProposal(4), UnconditionalProposal(4))),
        search=Uniform(3),
        solver="midpoint",
        num_steps=2,
        precision="bf16",
    )
    plan = planner(key, np.zeros(2), task)
    assert plan.action.shape == (2,) and plan.z.shape == (2, 2)
    assert int(plan.evaluations) == (8 * 3 + 8) * 2 * (2 * 2)
    with pytest.raises(PlanError, match="state: has 3 values"):
        planner(key, np.zeros(3), task)
    with pytest.raises(ConfigError, match="1000 steps"):
        CompPlan(model, policy, horizons=(1000,), discount=0.9999, proposal=GoalProposal(4))
    world = ghm.WorldModel(ghm.WorldModelConfig.preset("debug"), spec, key=key)
    actions = ActionPlan(world, policy, discount=0.95, action_horizon=3, candidates=4)
    plan = actions(key, np.zeros(2), task)
    assert int(plan.evaluations) == 4 * 3 * world.eval_steps and np.isfinite(plan.action).all()


def test_a_hierarchy_is_planned_with_through_its_low_level(spec, key):
    """z is a subgoal, the high level proposes; without a plan the whole hierarchy acts."""
    algorithm = policies.get("hfbc")
    config = algorithm.config.preset("debug", "pointmaze-medium")
    told = policies.PolicySpec(2, 2, (0.0, 0.0), (1.0, 1.0))
    hfbc = algorithm.inference_model(algorithm.init(key, config, told))
    planner = CompPlan(
        ghm.GeometricHorizonModel(ghm.GHMConfig.preset("debug"), spec, key=key),
        hfbc.low,
        base=hfbc,
        horizons=(5, 5, 5),
        discount=0.95,
        proposal=HighLevelProposal(hfbc, 4),
        search=Uniform(2),
    )
    far = goal_task(domains.get("pointmaze-medium"), np.full(2, 1e4))
    plan = planner(key, np.zeros(2), far)
    assert plan.all_zero and np.isfinite(plan.action).all()
    assert int(plan.evaluations) == 4 * 2 * 3 * 4
    assert planner.follow(key, np.zeros(2), plan).shape == (2,)


def test_rewards_of_a_goal_task():
    """Two cubes, one at its place and one 3 cm and 4 cm off in two directions."""
    cube = domains.get("cube-2")
    goal = np.zeros(cube.observation_dim, np.float32)
    state = goal.copy()
    state[[28, 29]] = 0.3, 0.4
    states = jnp.stack([jnp.asarray(goal), jnp.asarray(state)])

    def rewards(name):
        return np.asarray(goal_task(cube, goal, name).rewards(states))

    np.testing.assert_allclose(rewards("count"), [2, 1])
    np.testing.assert_allclose(rewards("indicator"), [1, 0])
    np.testing.assert_allclose(rewards("neg-distance"), [0, -0.5], atol=1e-6)
    # One function for one domain: another goal compiles nothing.
    one, other = (goal_task(cube, place, "neg-distance").reward for place in (goal, state))
    assert one == other and hash(one) == hash(other)
    with pytest.raises(ConfigError, match="reward='far'"):
        goal_task(cube, goal, "far")
