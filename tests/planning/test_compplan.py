"""CompPlan and its relatives on small finite problems with exact samplers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tabular_mdp import Tabular

from jumpyworld.errors import ConfigError, PlanError
from jumpyworld.planning import (
    GGPI,
    GPI,
    ActionPlan,
    BaseProposal,
    CompPlan,
    Elimination,
    ListProposal,
    OneZProposal,
    Task,
    Uniform,
    ZeroShot,
    effective_discounts,
    gsp_weights,
)

NUM_Z = 3


def table_reward(states, table):
    return table[states[..., 0].astype(int)]


def sequences(n):
    """All sequences of n policies, [3^n, n, 1]."""
    grid = np.indices((NUM_Z,) * n).reshape(n, -1).T
    return grid[..., None].astype(np.float32)


def horizons_of(betas):
    return [1 / (1 - beta) for beta in betas]


@pytest.fixture(scope="module")
def mdp():
    return Tabular.random(np.random.default_rng(0))


@pytest.fixture(scope="module")
def task():
    return Task(table_reward, np.asarray([0.0, 1.0, 0.2, 0.0]))


def tabular(mdp, kind=CompPlan, betas=(0.5, 0.8, 0.9), discount=0.9, **settings):
    return kind(
        mdp.model(betas),
        mdp.policy(),
        discount=discount,
        action_limit=None,
        **{"horizons": horizons_of(betas), **settings},
    )


def exact_values(mdp, task, betas, discount, z, actions, state=0):
    """Value of each candidate from the matrices."""
    reward = np.asarray(task.goal, np.float64)
    weights = gsp_weights(np.asarray(betas), discount)
    return np.asarray(
        [
            weights @ mdp.chained(sequence[:, 0].astype(int), betas)[:, state, int(a)] @ reward
            for sequence, a in zip(z, actions, strict=True)
        ]
    )


def first_actions(planner, key, task):
    """The candidates' first actions, as the planner draws them for this key."""
    open_key = jax.random.split(key, 3)[0]
    return eqx.filter_jit(planner.open)(open_key, jnp.zeros(1), task, None).actions


def decisive(chance, stays=0.0):
    """Action a leads to state a unless it stays; policy z takes action z with a chance."""
    policies = np.full((NUM_Z, 4, NUM_Z), (1 - chance) / (NUM_Z - 1))
    policies[np.arange(NUM_Z), :, np.arange(NUM_Z)] = chance
    return Tabular(stays * np.eye(4)[:, None] + (1 - stays) * np.eye(4)[:NUM_Z], policies)


def test_the_best_of_all_sequences_is_found(mdp, task, key):
    z, betas = sequences(3), (0.5, 0.8, 0.9)
    planner = tabular(mdp, betas=betas, proposal=ListProposal(z), search=Uniform(4000))
    plan = planner(key, np.zeros(1), task)
    values, spent = np.asarray(plan.candidate_values), np.asarray(plan.spent)
    assert values.shape == (27,) and plan.candidates.shape == (27, 3, 1)
    assert (spent == 4000).all() and spent.shape == (1, 27)
    assert int(plan.evaluations) == 27 * 4000 * 3
    assert float(plan.weight_sum) == pytest.approx(1.0)
    assert not plan.all_zero and plan.invalid == 0 and plan.memory is None
    best = int(plan.chosen)
    assert best == values.argmax() and float(plan.value) == values[best]
    np.testing.assert_array_equal(plan.z, z[best])
    # Each candidate's first action is its own; the best by the matrices is among the best here.
    actions = first_actions(planner, key, task)
    exact = exact_values(mdp, task, betas, 0.9, z, np.asarray(actions)[:, 0])
    np.testing.assert_allclose(values, exact, atol=4 * 0.5 / np.sqrt(4000))
    assert exact[best] >= exact.max() - 0.03
    # Bitwise the action that was scored.
    np.testing.assert_array_equal(plan.action, actions[best])


def test_v_ranks_sequences_whatever_the_first_action(task, key):
    """With policies that do not insist on an action, Q is far from V."""
    mdp, z, betas = decisive(0.5), sequences(2), (0.2, 0.5)
    planner = tabular(
        mdp, betas=betas, discount=0.5, proposal=ListProposal(z), search=Uniform(4000),
        objective="v",
    )  # fmt: skip
    plan = planner(key, np.zeros(1), task)
    q = np.stack([exact_values(mdp, task, betas, 0.5, z, np.full(9, a)) for a in range(3)], 1)
    v = (mdp.policies[z[:, 0, 0].astype(int), 0] * q).sum(1)
    tolerance = 4 * 0.5 / np.sqrt(4000)
    np.testing.assert_allclose(plan.candidate_values, v, atol=tolerance)
    # Whatever the first actions: none of them alone is worth as much.
    assert np.abs(q - v[:, None]).min() > tolerance
    assert float(plan.action[0]) in (0.0, 1.0, 2.0)


class Tosses(eqx.Module):
    """One of two actions, whatever z is."""

    def sample(self, key, states, z):
        return jax.random.bernoulli(key, 0.5, states.shape).astype(states.dtype)


def test_the_fresh_chains_of_v_draw_their_own_first_actions(key):
    """From 0 the corridor leads to where the action points: Q is 0 or 1, and V between them."""
    planner = CompPlan(
        Corridor(), Tosses(), horizons=(1,), discount=0.5, tail="absorb", objective="v",
        proposal=BaseProposal(4), search=Uniform(4, fresh=400),
    )  # fmt: skip
    plan = planner(key, np.zeros(1), Task(lambda states, goal: states[..., 0], np.zeros(1)))
    assert float(plan.value) == pytest.approx(0.5, abs=0.1)


class ConstantAction(eqx.Module):
    """z is the action: the policies that make planning over policies planning over actions."""

    def sample(self, key, states, z):
        return z


class Corridor(eqx.Module):
    """Deterministic: s' = s + a. Where the discount is 0 the model is one step of it."""

    def sample(self, key, states, actions, z, gamma):
        return states + actions


class CorridorStep(eqx.Module):
    def sample(self, key, states, actions):
        return states + actions


def at_two(states):
    return (states[..., 0] == 2).astype(jnp.float32) - 0.1 * jnp.abs(states[..., 0])


def test_switching_at_every_step_is_control_over_primitive_actions(key):
    """alpha = 1 everywhere: the value is the discounted return of the action sequence."""
    moves = np.stack(np.meshgrid(*[[-1.0, 0.0, 1.0]] * 4, indexing="ij"), -1).reshape(-1, 4, 1)
    betas = effective_discounts(np.ones(4), 0.9)
    planner = CompPlan(
        Corridor(),
        ConstantAction(),
        horizons=horizons_of(betas),
        discount=0.9,
        proposal=ListProposal(moves),
        search=Uniform(1),
    )
    plan = planner(key, np.zeros(1), Task(at_two))
    visited = np.cumsum(moves[..., 0], axis=1)
    rewards = (visited == 2) - 0.1 * np.abs(visited)
    returns = (rewards * 0.9 ** np.arange(4)).sum(1)
    np.testing.assert_allclose(plan.candidate_values, (1 - 0.9) * returns, atol=1e-6)
    assert int(plan.chosen) == returns.argmax()
    np.testing.assert_array_equal(plan.z[:, 0], [1, 1, 0, 0])
    np.testing.assert_array_equal(plan.action, [1])


class Wanderer(eqx.Module):
    """Moves at random; its goal tells nothing."""

    def sample(self, key, states, z):
        return jnp.round(jax.random.uniform(key, states.shape, minval=-1.49, maxval=1.49))


def test_actionplan_is_the_same_with_rollouts_of_the_base_policy(key):
    planner = ActionPlan(CorridorStep(), Wanderer(), discount=0.9, action_horizon=4, candidates=512)
    task = Task(lambda states, goal: at_two(states), goal=np.zeros(1))
    plan = planner(key, np.zeros(1), task)
    np.testing.assert_array_equal(plan.action, [1])
    assert float(plan.value) == pytest.approx(0.1 * (-0.1 + 0.8 * (0.9 + 0.81 + 0.729)), abs=1e-5)
    assert int(plan.evaluations) == 512 * 4
    assert plan.z.shape == (4, 1) and (plan.z == 0).all()


def test_one_policy_for_ever_is_gpi(mdp, task, key):
    """(1, 0, ...) and a single jump at the discount have the value of one policy."""
    discount, single = 0.9, np.arange(3.0)[:, None]
    state, reward = np.zeros(1), np.asarray(task.goal, np.float64)
    gpi = GPI(
        mdp.model((discount,)),
        mdp.policy(),
        discount=discount,
        proposal=ListProposal(single, 1),
        search=Uniform(4000),
        action_limit=None,
    )
    betas = effective_discounts(np.asarray([1.0, 0.0, 0.0]), discount)
    chain = tabular(
        mdp, betas=betas, proposal=ListProposal(single, 3), search=Uniform(4000), objective="v"
    )
    exact = np.einsum(
        "za,zap,p->z",
        mdp.policies[:, 0],
        np.stack([mdp.successor_measure(z, discount)[0] for z in range(3)]),
        reward,
    )
    plan = chain(key, state, task)
    np.testing.assert_allclose(plan.candidate_values, exact, atol=4 * 0.5 / np.sqrt(4000))
    assert plan.weight_sum == pytest.approx(1)
    plan = gpi(key, state, task)
    assert plan.z.shape == (1, 1) and plan.weight_sum == pytest.approx(1)
    opened = first_actions(gpi, key, task)
    q = [mdp.successor_measure(z, discount)[0, int(a)] @ reward for z, a in enumerate(opened[:, 0])]
    np.testing.assert_allclose(plan.candidate_values, q, atol=4 * 0.5 / np.sqrt(4000))


class Trained(eqx.Module):
    """A model with a largest trained discount."""

    gamma_max: float = eqx.field(static=True, default=0.8)

    def sample(self, key, states, actions, z, gamma):
        return states + actions


def test_gpi_and_ggpi_set_horizons_and_nothing_else(mdp):
    one, many = ListProposal([[0.0]], 1), ListProposal([[0.0]], 3)
    gpi = GPI(Trained(), ConstantAction(), discount=0.99, proposal=one)
    np.testing.assert_allclose(gpi.betas, [0.8], rtol=1e-6)
    chain = GPI(Trained(), ConstantAction(), discount=0.99, proposal=many, horizons=(2, 3, 5))
    like = CompPlan(Trained(), ConstantAction(), discount=0.99, proposal=many, horizons=(2, 3, 5))
    np.testing.assert_array_equal(chain.weights, like.weights)
    ggpi = GGPI(
        mdp.model((0.63, 0.9)), mdp.policy(), alpha=0.3, num_segments=3, discount=0.9, proposal=many
    )
    np.testing.assert_allclose(ggpi.betas, [0.63, 0.63, 0.9], rtol=1e-6)
    ratio = (0.9 - 0.63) / 0.37
    np.testing.assert_allclose(ggpi.weights, [0.1 / 0.37, ratio * 0.1 / 0.37, ratio**2], rtol=1e-5)
    # The last policy is never left, though the model is not asked beyond what it was trained for.
    beyond = GGPI(
        Trained(), ConstantAction(), alpha=0.5, num_segments=3, discount=0.9, proposal=many
    )
    np.testing.assert_allclose(beyond.betas, [0.45, 0.45, 0.8], rtol=1e-6)
    ratio = (0.9 - 0.45) / 0.55
    closed = [0.1 / 0.55, ratio * 0.1 / 0.55, ratio**2]
    np.testing.assert_allclose(beyond.weights, closed, rtol=1e-5)
    assert float(beyond.weights.sum()) == pytest.approx(1)
    for discount in (0, 1, 2, 5, float("nan"), None):
        with pytest.raises(ConfigError, match=f"discount={discount}: must"):
            GPI(Trained(), ConstantAction(), discount=discount, proposal=one)
        with pytest.raises(ConfigError, match=f"discount={discount}: must"):
            GPI(Corridor(), ConstantAction(), discount=discount, proposal=one)
        with pytest.raises(ConfigError, match=f"discount={discount}: must"):
            GGPI(
                Corridor(), mdp.policy(), alpha=0.5, num_segments=2, discount=discount, proposal=one
            )
    for alpha in (0.0, 1.0, float("nan")):
        with pytest.raises(ConfigError, match="alpha"):
            GGPI(Trained(), mdp.policy(), alpha=alpha, num_segments=2, discount=0.7, proposal=many)


def test_equal_switching_probabilities_are_ggpi(task, key):
    """Against the policy that switches, on the chain of states and phases."""
    mdp, z, alpha, reward = decisive(0.9, 0.8), sequences(3), 0.3, np.asarray(task.goal, np.float64)
    ggpi = GGPI(
        mdp.model((0.63, 0.9)), mdp.policy(), alpha=alpha, num_segments=3, discount=0.9,
        proposal=ListProposal(z), search=Uniform(4000), action_limit=None,
    )  # fmt: skip
    actions = np.asarray(first_actions(ggpi, key, task))[:, 0].astype(int)

    def switching(alpha):
        return np.asarray(
            [
                mdp.switching_measure(sequence[:, 0].astype(int), [alpha] * 3, 0.9)[0, a] @ reward
                for sequence, a in zip(z, actions, strict=True)
            ]
        )

    values, tolerance = ggpi(key, np.zeros(1), task).candidate_values, 4 * 0.5 / np.sqrt(4000)
    np.testing.assert_allclose(values, switching(alpha), atol=tolerance)
    for other in (alpha / 2, 2 * alpha):
        assert np.abs(values - switching(other)).max() > 2 * tolerance


def test_repeating_one_z_is_gpi_over_a_chain(mdp, task, key):
    """gpi_chain equals CompPlan with equal z, bitwise."""
    betas = (0.5, 0.8, 0.9)
    singles = ListProposal(np.arange(3.0)[:, None], 3)
    settings = {"betas": betas, "search": Uniform(16)}
    plain = tabular(mdp, proposal=singles, **settings)(key, np.zeros(1), task)
    chain = tabular(mdp, kind=GPI, proposal=singles, **settings)(key, np.zeros(1), task)
    np.testing.assert_array_equal(plain.candidate_values, chain.candidate_values)
    np.testing.assert_array_equal(plain.z, chain.z)
    mixed = OneZProposal(ListProposal(sequences(3)))
    plan = tabular(mdp, proposal=mixed, **settings)(key, np.zeros(1), task)
    assert (plan.candidates == plan.candidates[:, :1]).all()
    assert len(np.unique(plan.candidates)) == 3


def test_zero_shot_asks_the_policy_alone(key):
    task = Task(lambda states, goal: at_two(states), goal=np.ones(1))
    planner = ZeroShot(ConstantAction())
    plan = planner(key, np.zeros(1), task)
    assert plan.action == 1 and plan.z.shape == (1, 1) and int(plan.evaluations) == 0
    assert planner.follow(key, np.ones(1), plan) == 1
    goals = Task(task.reward, np.asarray([[1.0], [0.0], [0.0]]))
    batch = planner.batch(jax.random.split(key, 3), np.zeros((3, 1)), goals)
    np.testing.assert_array_equal(batch.action[:, 0], [1, 0, 0])
    with pytest.raises(PlanError, match="goal=None"):
        planner(key, np.zeros(1), Task(at_two))


def test_base_proposals_differ_in_their_first_action(key):
    task = Task(lambda states, goal: at_two(states), goal=np.zeros(1))
    planner = CompPlan(
        Corridor(), Wanderer(), horizons=(1,), discount=0.5, proposal=BaseProposal(64),
        search=Elimination(((64, 1), (4, 1))),
    )  # fmt: skip
    plan = planner(key, np.ones(1), task)
    assert plan.action == 1 and (plan.candidates == 0).all()
    assert plan.spent.shape == (2, 64)
    np.testing.assert_array_equal(plan.spent.sum(1), [64, 4])
