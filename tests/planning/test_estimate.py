"""Lemma gsp q-function: chained samples of exact models estimate the value without bias."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tabular_mdp import Tabular

from jumpyworld.planning import (
    BaseProposal,
    CompPlan,
    GoalProposal,
    Task,
    Uniform,
    discounts_of_horizons,
    effective_discounts,
    estimate,
    gsp_weights,
)
from jumpyworld.planning.estimate import Question
from jumpyworld.planning.repertoire import Repertoire

SAMPLES = 20_000
candidate_totals = eqx.filter_jit(estimate.candidate_totals)
chain_states = eqx.filter_jit(estimate.chain_states)
chain_values = eqx.filter_jit(estimate.chain_values)


def table_reward(states, table):
    return table[states[..., 0].astype(int)]


def ask(mdp, reward, betas, discount, state=0.0, tail="truncate"):
    return Question(
        Repertoire(mdp.model(betas), mdp.policy(), action_limit=None),
        Task(table_reward, reward),
        jnp.asarray([state], jnp.float32),
        jnp.asarray(betas, jnp.float32),
        jnp.asarray(gsp_weights(np.asarray(betas), discount, tail), jnp.float32),
    )


def as_z(sequence):
    return jnp.asarray(sequence, jnp.float32)[:, None]


def within_four_errors(values, exact):
    values = np.asarray(values, np.float64)
    error = values.std(ddof=1) / np.sqrt(len(values))
    assert abs(values.mean() - exact) <= 4 * error + 1e-6, (values.mean(), exact, error)


@pytest.mark.parametrize(("seed", "n"), [(0, 1), (1, 3), (2, 3), (3, 3), (4, 6)])
def test_unbiased(seed, n, key):
    """Against Q of the switching policy from the chain on (state, phase)."""
    rng = np.random.default_rng(seed)
    mdp, discount = Tabular.random(rng), 0.9
    alphas = np.append(rng.uniform(0.1, 0.9, n - 1), 0.0)
    sequence, reward = rng.integers(0, 3, n), rng.normal(size=4)
    question = ask(mdp, reward, effective_discounts(alphas, discount), discount)
    values = chain_values(key, question, jnp.ones(1), as_z(sequence), SAMPLES)
    exact = mdp.switching_measure(sequence, alphas, discount)[0, 1] @ reward
    within_four_errors(values, exact)


def test_truncated_and_absorbed_tails(key):
    """The planning table's kind: no beta equals the discount."""
    mdp = Tabular.random(np.random.default_rng(9))
    reward, betas = np.asarray([1.0, 0.0, 0.5, 0.0]), discounts_of_horizons([2, 4, 3])
    laws = mdp.chained([0, 1, 2], betas)[:, 0, 2]
    for tail in ("truncate", "absorb"):
        question = ask(mdp, reward, betas, 0.95, tail=tail)
        values = chain_values(key, question, jnp.full(1, 2.0), as_z([0, 1, 2]), SAMPLES)
        exact = gsp_weights(betas, 0.95, tail) @ laws @ reward
        within_four_errors(values, exact)


def test_v_is_the_mean_of_q_over_first_actions(key):
    mdp = Tabular.random(np.random.default_rng(3))
    reward, betas = np.random.default_rng(4).normal(size=4), discounts_of_horizons([2, 5, 3])
    question, z = ask(mdp, reward, betas, 0.9), as_z([1, 2, 0])
    v_key, q_key = jax.random.split(key)
    v = np.asarray(chain_values(v_key, question, None, z, SAMPLES), np.float64)
    q = [
        np.asarray(chain_values(k, question, jnp.full(1, float(a)), z, SAMPLES), np.float64)
        for a, k in enumerate(jax.random.split(q_key, 3))
    ]
    chances = mdp.policies[1, 0]
    mean = sum(p * values.mean() for p, values in zip(chances, q, strict=True))
    error = np.sqrt(
        v.var() + sum(p**2 * values.var() for p, values in zip(chances, q, strict=True))
    )
    assert abs(v.mean() - mean) <= 4 * error / np.sqrt(SAMPLES)
    # The three are far enough apart for this to mean something.
    assert np.ptp([values.mean() for values in q]) > 10 * error / np.sqrt(SAMPLES)


def test_chains_begin_with_the_given_action_and_draw_none_after_the_last_segment(key):
    mdp = Tabular.random(np.random.default_rng(0))
    question = ask(mdp, np.zeros(4), [0.5, 0.5, 0.5], 0.9)
    states, actions = chain_states(key, question, jnp.full(1, 2.0), as_z([0, 1, 2]), 7)
    assert states.shape == (3, 7, 1) and actions.shape == (3, 7, 1)
    assert (actions[0] == 2).all() and len(np.unique(actions[1:])) > 1


class Recorder:
    """A model that goes nowhere and keeps what it was asked with."""

    def __init__(self):
        self.asked = []

    def sample(self, key, states, actions, z, gamma, **options):
        self.asked.append(options)
        return states


@pytest.mark.parametrize(
    "options",
    [{}, {"solver": "midpoint"}, {"num_steps": 3}, {"solver": "euler", "num_steps": 2}],
)
def test_the_planners_ode_settings_reach_the_model(options, key):
    """Those that are set, in chains and proposals alike; the others are left to the model."""
    model, policy = Recorder(), Tabular.random(np.random.default_rng(0)).policy()
    planner = CompPlan(
        model, policy, horizons=(2, 3), discount=0.9, proposal=GoalProposal(2), **options
    )
    planner.plan(key, jnp.zeros(1), Task(table_reward, jnp.zeros(1)), None)
    assert len(model.asked) >= 2 and all(asked == options for asked in model.asked)


class Goes(eqx.Module):
    """A model that lands on the action; it has nothing to round."""

    def with_inner_layers(self, dtype):
        return self

    def sample(self, key, states, actions, z, gamma):
        return actions


class Digits(eqx.Module):
    """A policy whose only action has as many digits as its layers."""

    dtype: str = eqx.field(static=True, default="float32")

    def with_inner_layers(self, dtype):
        return Digits(jnp.dtype(dtype).name)

    def sample(self, key, states, z):
        return jnp.full(states.shape, 0.7, self.dtype).astype(states.dtype)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_in_chains_the_policy_is_rounded_too_and_acts_in_its_own_precision(precision, key):
    planner = CompPlan(
        Goes(), Digits(), horizons=(1,), discount=0.5, tail="absorb", objective="v",
        proposal=BaseProposal(2), search=Uniform(2), precision=precision,
    )  # fmt: skip
    plan = planner(key, np.zeros(1), Task(lambda states, goal: states[..., 0], np.zeros(1)))
    assert plan.action == np.float32(0.7)
    dtype = jnp.bfloat16 if precision == "bf16" else jnp.float32
    assert plan.value == jnp.asarray(0.7, dtype).astype(jnp.float32)


class Stepped(eqx.Module):
    """A policy whose only action tells in how many steps it was solved."""

    steps: int = eqx.field(static=True, default=10)

    def with_flow_steps(self, num_steps):
        return Stepped(num_steps)

    def sample(self, key, states, z):
        return jnp.full(states.shape, self.steps / 100)


@pytest.mark.parametrize("steps", [None, 3])
def test_in_chains_the_policys_flow_may_take_fewer_steps_and_acts_in_its_own(steps, key):
    planner = CompPlan(
        Goes(), Stepped(), horizons=(1,), discount=0.5, tail="absorb", objective="v",
        proposal=BaseProposal(2), search=Uniform(2), policy_steps=steps,
    )  # fmt: skip
    plan = planner(key, np.zeros(1), Task(lambda states, goal: states[..., 0], np.zeros(1)))
    assert plan.action == np.float32(0.1)
    assert plan.value == np.float32((steps or 10) / 100)


def test_common_noise_and_chunks(key):
    mdp = Tabular.random(np.random.default_rng(0))
    question = ask(mdp, np.arange(4.0), [0.5, 0.8, 0.6], 0.9)
    z = jax.random.randint(key, (11, 3, 1), 0, 3).astype(jnp.float32)
    z = z.at[1].set(z[0])

    def totals(common, rows):
        asked = dataclasses.replace(question, max_rows=rows)
        return candidate_totals(key, asked, jnp.zeros((11, 1)), z, 8, common_noise=common)

    whole = {common: totals(common, 1000) for common in (True, False)}
    assert whole[True].shape == (11,)
    # The first two are the same sequence.
    assert whole[True][0] == whole[True][1]
    assert whole[False][0] != whole[False][1]
    for common in (True, False):
        np.testing.assert_allclose(totals(common, 24), whole[common], rtol=1e-6)
