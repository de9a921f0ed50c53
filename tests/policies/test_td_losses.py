"""Losses of TD critics and contrastive ones, against hand and NumPy in float64."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from loss_parts import (
    SPEC,
    B,
    assert_target_moves,
    extraction_numpy,
    fresh_optimiser,
    linear_ensemble,
    sigmoid,
    softplus,
    units_of,
)

from jumpyworld.data.relabel import GoalMixture, sample_goal_indices
from jumpyworld.policies import crl, gc1s, gctd3, networks


@pytest.mark.parametrize(
    "reached, next_q, changes, want",
    [
        (False, 4.0, {}, 2.0),
        (True, 4.0, {}, 3.0),
        (True, 4.0, {"mask_at_goal": True}, 1.0),
        (False, 4.0, {"mask_at_goal": True}, 2.0),
        (True, 0.8, {"critic_loss": "bce"}, 1.0),
        (True, 0.8, {}, 1.4),
        (False, -0.8, {"critic_loss": "bce"}, 0.0),
    ],
)
def test_td_targets_by_hand(reached, next_q, changes, want):
    config = gctd3.GCTD3Config(discount=0.5, **changes)
    args = jnp.array(0 if reached else 1), jnp.array(1), jnp.array(next_q)
    assert gctd3.critic_target(*args, config) == pytest.approx(want)
    assert jax.grad(gctd3.critic_target, argnums=2)(*args, config) == 0


def test_td_errors_by_hand():
    # Two critics, s + 2a and g.
    critic = linear_ensemble([1, 2, 0], [0, 0, 1])

    def errors(s, a, g, target, kind):
        columns = [jnp.array(x)[:, None] for x in (s, a, g)]
        each = jax.vmap(lambda *row: gctd3.critic_error(critic, *row, kind))
        return each(*columns, jnp.array(target))

    # They say (3, 1) where the target is 0, and (-2, 4) where it is 1.
    got = errors([1.0, 0.0], [1.0, -1.0], [1.0, 4.0], [0.0, 1.0], "squared")
    np.testing.assert_allclose(got, [(9 + 1) / 2, (9 + 9) / 2])
    # As probabilities they say (3/4, 1/2) where it is 1/2, and (1/4, 3/4) where it is 1.
    log3, log2, log4 = math.log(3), math.log(2), math.log(4)
    got = errors([log3, log3], [0.0, -log3], [0.0, log3], [0.5, 1.0], "bce")
    np.testing.assert_allclose(
        got, [(log4 - log3 / 2 + log2) / 2, (log4 + log4 - log3) / 2], rtol=1e-6
    )


@pytest.mark.parametrize("kind", ["squared", "bce"])
def test_td_errors_against_numpy(rows, oracle, shaken, quick, kind):
    s, g, _, _, a, _ = rows
    critic = shaken(
        lambda key: networks.Ensemble(
            2, lambda k: networks.Net(8, (16, 16), 1, key=k, layer_norm=True), key=key
        )
    )
    target = np.random.default_rng(0).uniform(size=B).astype(np.float32)
    errors = jax.vmap(lambda *row: gctd3.critic_error(critic, *row, kind))
    got = quick(errors)(s, a, g, target)
    out = oracle.ensemble(critic, s, a, g)[..., 0]
    squared = (out - target) ** 2
    entropy = -target * np.log(sigmoid(out)) - (1 - target) * np.log(1 - sigmoid(out))
    np.testing.assert_allclose(got, (squared if kind == "squared" else entropy).mean(0), atol=1e-5)
    values = quick(jax.vmap(lambda *row: gctd3.critic_values(critic, *row, kind), 0, 1))(s, a, g)
    np.testing.assert_allclose(values, out if kind == "squared" else sigmoid(out), atol=1e-5)


@pytest.mark.parametrize("success_on", ["next", "current"])
def test_td_goals_are_the_papers_mixture(walks, key, success_on):
    dataset, data, _ = walks
    config = gctd3.GCTD3Config(discount=0.9, success_on=success_on)
    index = jnp.full(200_000, 40, jnp.int32)  # far from the end of its trajectory at row 80
    goals, wait = map(np.asarray, gctd3.draw_critic_goals(data, key, index, config))
    place = 41 if success_on == "next" else 40
    assert np.array_equal(wait, goals - place)
    share = np.bincount(goals, minlength=81) / len(goals)
    want = np.zeros(81)
    want[place] += 0.2
    want[np.asarray(dataset.valid_indices)] += 0.3 / dataset.num_transitions
    offsets = np.arange(1, 40)
    want[40 + offsets] += 0.5 * 0.1 * 0.9 ** (offsets - 1)
    want[80] += 0.5 * 0.9**39
    np.testing.assert_allclose(share, want, atol=4e-3)
    only = gctd3.GCTD3Config(goal_current=1.0, goal_trajectory=0.0, success_on=success_on)
    goals, wait = gctd3.draw_critic_goals(data, key, index, only)
    assert (goals == place).all() and (wait == 0).all()


def test_actor_goals_are_half_random(walks, key):
    from jumpyworld.policies.fql import FQLConfig, draw_actor_goals

    dataset, data, _ = walks
    index = jnp.full(50_000, 40, jnp.int32)
    goals = draw_actor_goals(data, key, index, FQLConfig(discount=0.9))
    first = np.asarray(goals)[:, 0]
    future = np.isin(first, dataset.observations[41:81, 0]).mean()
    assert future == pytest.approx(0.5 + 0.5 * 39 / dataset.num_transitions, abs=0.01)
    assert not np.isin(dataset.observations[dataset.ends[:2], 0], first).any()


@pytest.mark.parametrize(
    "module, target_how, actor_how, kind, value",
    [
        (gctd3, np.min, np.mean, "squared", "q"),
        (gc1s, np.mean, np.min, "squared", "q"),
        (gc1s, np.min, np.mean, "bce", "q"),
        (gctd3, np.mean, np.min, "bce", "log"),
        (gc1s, np.min, np.mean, "bce", "logit"),
    ],
)
def test_a_whole_td_step_against_numpy(
    walks, oracle, shaken, quick, module, target_how, actor_how, kind, value
):
    """The step's losses and its target's rate, for either source of the next action."""
    dataset, data, spec = walks
    config = module.GCTD3Config if module is gctd3 else module.GC1SConfig
    config = config.preset(
        "debug",
        discount=0.9,
        normalise="standard",
        target_aggregation=target_how.__name__,
        actor_aggregation=actor_how.__name__,
        critic_loss=kind,
        actor_value=value,
    )
    state = fresh_optimiser(shaken(lambda k: module.init(k, config, spec)))
    key = jax.random.key(2)
    keys = jax.random.split(key, 5)
    after, metrics = quick(lambda s, k: module.step(s, data, k, config))(state, key)
    row = np.asarray(gctd3.sample_transitions(data, keys[0], config.batch_size).index)
    goal, _ = map(np.asarray, gctd3.draw_critic_goals(data, keys[1], jnp.asarray(row), config))
    x, a = units_of(state, dataset.observations), dataset.actions
    if module is gc1s:
        a_next = a[row + 1]
    else:
        noise = jax.random.normal(keys[3], (config.batch_size, 2))
        a_next = np.clip(
            oracle.net(state.networks.actors.student, noise, x[row + 1], x[goal]), -1, 1
        )
    next_q = oracle.ensemble(state.target, x[row + 1], a_next, x[goal])[..., 0]
    next_q = next_q if kind == "squared" else sigmoid(next_q)
    target = (goal == row + 1) + 0.9 * target_how(next_q, 0)
    out = oracle.ensemble(state.networks.critic, x[row], a[row], x[goal])[..., 0]
    if kind == "squared":
        loss = ((out - target) ** 2).mean()
    else:
        target = np.clip(target, 0, 1)
        loss = (softplus(out) - target * out).mean()
    future = GoalMixture(current=0, geometric=0.5, random=0.5, discount=0.9)
    actor_g = x[np.asarray(sample_goal_indices(data, keys[2], jnp.asarray(row), future))]

    def climbed(action):
        out = oracle.ensemble(state.networks.critic, x[row], action, actor_g)[..., 0]
        if kind == "squared" or value == "logit":
            return actor_how(out, 0)
        q = actor_how(sigmoid(out), 0)
        return q if value == "q" else np.log(q)

    rows = x[row], a[row], actor_g
    want = extraction_numpy(oracle, state.networks.actors, climbed, rows, keys[4], config)
    want |= {"critic_loss": loss, "critic_target_mean": target.mean()}
    for name, number in (want | {"critic_target_max": target.max()}).items():
        got = metrics[name.replace("_", "/", 1)]
        np.testing.assert_allclose(got, number, rtol=1e-5, atol=1e-5, err_msg=name)
    assert_target_moves(state.target, after.target, after.networks.critic, 0.05)


# --- CRL


def test_infonce_by_hand():
    for size in (1, 5, 64):
        equal = jnp.full((size, size), 3.0)
        assert crl.infonce(equal) == pytest.approx(math.log(size), abs=1e-5)
    logits = jnp.log(jnp.array([[3.0, 1.0], [1.0, 1.0]]))
    assert crl.infonce(logits) == pytest.approx(-0.5 * (math.log(3 / 4) + math.log(1 / 2)))
    assert crl.binary(jnp.zeros((4, 4))) == pytest.approx(math.log(2))
    assert crl.infonce(1e3 * (2 * jnp.eye(4) - 1)) == 0
    # As probabilities 3/4, 1/2 in the first row and 1/2, 1/4 in the second: wanted 1 0 and 0 1.
    log2, log3, log4 = math.log(2), math.log(3), math.log(4)
    logits = jnp.array([[log3, 0.0], [0.0, -log3]])
    assert crl.binary(logits) == pytest.approx((log4 - log3 + log2 + log2 + log4) / 4)


def test_the_penalty_by_hand():
    # Sums of exp f: e in the first row of one critic, 1 elsewhere, so squares 1, 0, 0, 0.
    rows = [[[math.log(math.e / 2)] * 2, [-math.log(2)] * 2], [[-math.log(2)] * 2] * 2]
    for kind, loss in (("infonce", math.log(2)), ("binary", None)):
        logits = jnp.array(rows)
        free = crl.contrastive_loss(logits, crl.CRLConfig(critic=kind, logsumexp_penalty=0.0))
        held = crl.contrastive_loss(logits, crl.CRLConfig(critic=kind, logsumexp_penalty=0.2))
        assert held - free == pytest.approx(0.2 / 4, abs=1e-6)
        assert loss is None or free == pytest.approx(loss)


@pytest.mark.parametrize("kind", ["infonce", "binary"])
@pytest.mark.parametrize("penalty", [0.0, 0.1])
def test_contrastive_against_numpy(rows, oracle, shaken, quick, kind, penalty):
    s, g, _, _, a, _ = rows
    config = crl.CRLConfig(hidden=(16, 16), latent_dim=8, critic=kind, logsumexp_penalty=penalty)
    critic = shaken(lambda k: crl.ContrastiveCritic(config, SPEC, key=k))
    phi, psi = oracle.ensemble(critic.phi, s, a), oracle.ensemble(critic.psi, g)
    want = np.einsum("eim,ejm->eij", phi, psi) / np.sqrt(8)
    logits, values = quick(lambda c: (c.logits(s, a, g), jax.vmap(c.values, 0, 1)(s, a, g)))(critic)
    np.testing.assert_allclose(logits, want, atol=1e-5)
    np.testing.assert_allclose(values, np.diagonal(want, axis1=1, axis2=2), atol=1e-5)
    top = np.log(np.exp(want).sum(2))
    eye = np.eye(B)
    losses = {
        "infonce": (top - np.diagonal(want, axis1=1, axis2=2)).mean(),
        "binary": -(eye * np.log(sigmoid(want)) + (1 - eye) * np.log(sigmoid(-want))).mean(),
    }
    got = crl.contrastive_loss(logits, config)
    np.testing.assert_allclose(got, losses[kind] + penalty * (top**2).mean(), rtol=1e-5)


def test_dataset_negatives_keep_the_positive():
    negatives, positives = jnp.zeros((2, 3, 3)), jnp.arange(6.0).reshape(2, 3)
    mixed = crl.with_positives(negatives, positives)
    np.testing.assert_array_equal(jnp.diagonal(mixed, axis1=1, axis2=2), positives)
    assert mixed.sum() == positives.sum()
