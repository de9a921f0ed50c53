"""Each loss against numbers by hand, and against NumPy in float64 from the networks' weights."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld.data.relabel import GoalMixture
from jumpyworld.policies import crl, gc1s, gcbc, gctd3, hfbc, hiql, networks, sharsa
from jumpyworld.policies.base import PolicySpec

SPEC = PolicySpec(3, 2, (0.0,) * 3, (1.0,) * 3)
B, D, DA = 12, 3, 2


def softplus(x):
    return np.logaddexp(0, x)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.fixture(scope="module")
def rows(oracle):
    """States, goals, next states, subgoals, and two sets of actions."""
    s, g, s_next, w = (oracle.normal(i, B, D) for i in range(4))
    a, a_next = (np.clip(oracle.normal(i, B, DA), -1, 1) for i in (4, 5))
    return s, g, s_next, w, a, a_next


# --- flows: GC-BC and HFBC


def test_the_net_is_what_numpy_computes(oracle, shaken, quick):
    for layer_norm in (True, False):
        net = shaken(lambda k, norm=layer_norm: networks.Net(4, (8, 6), 3, key=k, layer_norm=norm))
        x = oracle.normal(0, 5, 4)
        got = quick(jax.vmap(lambda v, net=net: net(v[:1], v[1:])))(x)
        np.testing.assert_allclose(got, oracle.net(net, x), atol=1e-5)


def test_an_ensemble_is_its_members(oracle, shaken, quick):
    ensemble = shaken(
        lambda key: networks.Ensemble(2, lambda k: networks.Net(4, (8,), 3, key=k), key=key)
    )
    x = oracle.normal(0, 5, 4)
    got = quick(jax.vmap(lambda v: ensemble(v), out_axes=1))(x)
    np.testing.assert_allclose(got, oracle.ensemble(ensemble, x), atol=1e-5)
    assert not np.allclose(got[0], got[1])
    values = jnp.array([1.0, 4.0])
    assert networks.aggregate(values, "mean") == 2.5
    assert networks.aggregate(values, "min") == 1.0


def test_flow_matching_by_hand():
    # A field that always says 2 per dimension; data 3, noise 1: velocity 2, no error.
    field = eqx.tree_at(
        lambda n: (n.layers[0].weight, n.layers[0].bias),
        networks.Net(4, (), 2, key=jax.random.key(0)),
        (jnp.zeros((4, 2)), jnp.full(2, 2.0)),
    )
    x0, t, condition = jnp.ones(2), jnp.array(0.25), jnp.zeros(1)
    assert networks.flow_matching_loss(field, x0, jnp.full(2, 3.0), t, condition) == 0
    # Data 4: velocity 3, error 1 in each of two dimensions.
    assert networks.flow_matching_loss(field, x0, jnp.full(2, 4.0), t, condition) == 2
    np.testing.assert_allclose(networks.flow_map(field, x0, condition, 10), [3, 3], atol=1e-6)


def cloning_numpy(oracle, field, s, g, x1, x0, t):
    x0, t = np.asarray(x0, np.float64), np.asarray(t, np.float64)[:, None]
    velocity = oracle.net(field, (1 - t) * x0 + t * x1, t, s, g)
    return ((velocity - (x1 - x0)) ** 2).sum(1).mean()


def test_cloning_against_numpy(rows, key, oracle, shaken, quick):
    s, g, _, _, a, _ = rows
    field = shaken(lambda k: networks.Net(DA + 1 + 2 * D, (16, 16), DA, key=k, layer_norm=True))
    x0, t = networks.draw_flow(key, jnp.asarray(a))
    got = quick(gcbc.cloning_loss)(field, s, g, a, x0, t)
    np.testing.assert_allclose(got, cloning_numpy(oracle, field, s, g, a, x0, t), rtol=1e-5)


def test_hierarchy_against_numpy(rows, key, oracle, shaken, quick):
    s, g, ahead, w, a, _ = rows
    policy = shaken(lambda k: hfbc.init_policy(k, hfbc.HFBCConfig(hidden=(16, 16)), SPEC))
    high, low = networks.draw_flow(key, jnp.asarray(w)), networks.draw_flow(key, jnp.asarray(a))
    batch = hfbc.HFBCBatch(s, a, g, w, ahead, high, low)
    loss, metrics = quick(hfbc.hierarchy_loss)(policy.high, policy.low.field, batch)
    want_high = cloning_numpy(oracle, policy.high, s, g, w, *high)
    want_low = cloning_numpy(oracle, policy.low.field, s, ahead, a, *low)
    np.testing.assert_allclose(metrics["high/loss"], want_high, rtol=1e-5)
    np.testing.assert_allclose(metrics["low/loss"], want_low, rtol=1e-5)
    np.testing.assert_allclose(loss, want_high + want_low, rtol=1e-5)


def test_subgoals_stop_at_goals_and_ends(walks):
    data = walks[1]  # trajectories: rows 0-30, 31-32, 33-80
    index = jnp.array([0, 0, 0, 0, 20, 31, 33, 33, 5])
    goals = jnp.array([40, 7, 25, 26, 30, 32, 0, 33, 2])
    got = hfbc.subgoal_rows(data, index, goals, 25)
    # elsewhere, sooner, just there, later, past the end, short one, another's, itself, behind
    assert got.tolist() == [25, 7, 25, 25, 30, 32, 58, 33, 30]


def test_hfbc_batches_are_rows_of_one_trajectory(walks, key):
    dataset, data, _ = walks
    config = hfbc.HFBCConfig(batch_size=500, lookahead=10)
    mixture = GoalMixture(0.0, 1.0, 0.0, 0.0, 0.95)
    index, batch = hfbc.draw_batch(data, key, config, mixture, lambda x: x)
    row_of = {tuple(row): i for i, row in enumerate(dataset.observations.tolist())}
    find = lambda x: np.array([row_of[tuple(row)] for row in np.asarray(x).tolist()])  # noqa: E731
    n, w, g, ahead = np.asarray(index), find(batch.w), find(batch.g), find(batch.ahead)
    ends = np.repeat(dataset.ends, dataset.lengths + 1)[n]
    assert np.array_equal(find(batch.s), n)
    assert (g > n).all() and (g <= ends).all()
    assert np.array_equal(w, np.minimum(n + 10, g))
    assert np.array_equal(ahead, np.minimum(n + 10, ends))
    np.testing.assert_array_equal(batch.a, dataset.actions[n])


# --- TD critics


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
    args = jnp.array(reached), jnp.array(next_q)
    assert gctd3.critic_target(*args, config) == pytest.approx(want)
    assert jax.grad(gctd3.critic_target, argnums=1)(*args, config) == 0


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
    goals, reached = map(np.asarray, gctd3.draw_critic_goals(data, key, index, config))
    place = 41 if success_on == "next" else 40
    assert np.array_equal(reached, goals == place)
    share = np.bincount(goals, minlength=81) / len(goals)
    want = np.zeros(81)
    want[place] += 0.2
    want[np.asarray(dataset.valid_indices)] += 0.3 / dataset.num_transitions
    offsets = np.arange(1, 40)
    want[40 + offsets] += 0.5 * 0.1 * 0.9 ** (offsets - 1)
    want[80] += 0.5 * 0.9**39
    np.testing.assert_allclose(share, want, atol=4e-3)
    only = gctd3.GCTD3Config(goal_current=1.0, goal_trajectory=0.0, success_on=success_on)
    goals, reached = gctd3.draw_critic_goals(data, key, index, only)
    assert (goals == place).all() and reached.all()


def test_actor_goals_are_half_random(walks, key):
    from jumpyworld.policies.fql import FQLConfig, draw_actor_goals

    dataset, data, _ = walks
    index = jnp.full(50_000, 40, jnp.int32)
    goals = draw_actor_goals(data, key, index, FQLConfig(discount=0.9))
    first = np.asarray(goals)[:, 0]
    future = np.isin(first, dataset.observations[41:81, 0]).mean()
    assert future == pytest.approx(0.5 + 0.5 * 39 / dataset.num_transitions, abs=0.01)
    assert not np.isin(dataset.observations[dataset.ends[:2], 0], first).any()


@pytest.mark.parametrize("module, aggregation", [(gctd3, "min"), (gc1s, "mean")])
def test_a_whole_td_step_against_numpy(walks, oracle, shaken, quick, module, aggregation):
    """The step's critic loss, from its own draws, for either source of the next action."""
    dataset, data, spec = walks
    config = module.GCTD3Config if module is gctd3 else module.GC1SConfig
    config = config.preset("debug", discount=0.9, aggregation=aggregation)
    state = shaken(lambda k: module.init(k, config, spec))
    key = jax.random.key(2)
    keys = jax.random.split(key, 5)
    _, metrics = quick(lambda s, k: module.step(s, data, k, config))(state, key)
    row = np.asarray(gctd3.sample_transitions(data, keys[0], config.batch_size).index)
    goal, _ = map(np.asarray, gctd3.draw_critic_goals(data, keys[1], jnp.asarray(row), config))
    units, a = state.normaliser, dataset.actions
    x = (dataset.observations - np.asarray(units.offset)) / np.asarray(units.scale)
    if module is gc1s:
        a_next = a[row + 1]
    else:
        noise = jax.random.normal(keys[3], (config.batch_size, 2))
        a_next = np.clip(
            oracle.net(state.networks.actors.student, noise, x[row + 1], x[goal]), -1, 1
        )
    next_q = oracle.ensemble(state.target, x[row + 1], a_next, x[goal])[..., 0]
    next_q = next_q.mean(0) if aggregation == "mean" else next_q.min(0)
    target = (goal == row + 1) + 0.9 * next_q
    q = oracle.ensemble(state.networks.critic, x[row], a[row], x[goal])[..., 0]
    np.testing.assert_allclose(metrics["critic/loss"], ((q - target) ** 2).mean(), rtol=1e-4)
    np.testing.assert_allclose(metrics["critic/target_mean"], target.mean(), rtol=1e-4)
    np.testing.assert_allclose(metrics["critic/target_max"], target.max(), rtol=1e-4)


# --- CRL


def test_infonce_by_hand():
    for size in (1, 5, 64):
        equal = jnp.full((size, size), 3.0)
        assert crl.infonce(equal) == pytest.approx(math.log(size), abs=1e-5)
    logits = jnp.log(jnp.array([[3.0, 1.0], [1.0, 1.0]]))
    assert crl.infonce(logits) == pytest.approx(-0.5 * (math.log(3 / 4) + math.log(1 / 2)))
    assert crl.binary(jnp.zeros((4, 4))) == pytest.approx(math.log(2))
    assert crl.infonce(1e3 * (2 * jnp.eye(4) - 1)) == 0


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


# --- HIQL


def test_expectiles_and_weights_by_hand():
    advantage, error = jnp.array([2.0, -2.0, 0.0]), jnp.array([1.0, 3.0, 2.0])
    np.testing.assert_allclose(
        hiql.expectile_loss(advantage, error, 0.7), [0.7, 0.3 * 9, 0.7 * 4], rtol=1e-6
    )
    assert hiql.weight(jnp.array(0.0), 3.0) == 1
    assert hiql.weight(jnp.array(math.log(2.0)), 2.0) == pytest.approx(4)
    assert hiql.weight(jnp.array(50.0), 3.0) == 100
    assert jax.grad(hiql.weight)(jnp.array(0.1), 3.0) == 0
    np.testing.assert_allclose(
        hiql.to_sphere(jnp.array([3.0, 4.0])), np.sqrt(2) * np.array([0.6, 0.8])
    )
    assert np.isfinite(jax.grad(lambda x: hiql.to_sphere(x)[0])(jnp.zeros(2))).all()


@pytest.fixture(scope="module")
def hiql_setting(rows, shaken, quick):
    s, g, s_next, w, a, _ = rows
    config = hiql.HIQLConfig(hidden=(16, 16), representation_dim=4, discount=0.9)
    state = shaken(lambda k: hiql.init(k, config, SPEC))
    reached = np.arange(B) % 4 == 0
    batch = hiql.HIQLBatch(
        *map(jnp.asarray, (s, a, s_next, g, reached, w, g[::-1].copy(), s_next[::-1].copy()))
    )
    return config, state, batch


def test_hiql_against_numpy(hiql_setting, oracle, quick):
    config, state, b = hiql_setting
    nets = state.networks

    def phi(s, g):
        x = oracle.net(nets.value.phi, s, g)
        return x * 2 / np.sqrt((x**2).sum(1, keepdims=True))

    def v(heads, s, g):
        return oracle.ensemble(heads, s, phi(s, g))[..., 0]

    mask = 1 - np.asarray(b.reached, np.float64)
    next_v = v(state.target, b.s_next, b.value_g)
    advantage = -mask + 0.9 * mask * next_v.min(0) - v(state.target, b.s, b.value_g).mean(0)
    error = -mask + 0.9 * mask * next_v - v(nets.value.heads, b.s, b.value_g)
    value = (np.where(advantage >= 0, 0.7, 0.3) * error**2).sum(0)
    mean_v = lambda s, g: v(nets.value.heads, s, g).mean(0)  # noqa: E731
    low_weight = np.minimum(np.exp(3 * (mean_v(b.s_next, b.low_g) - mean_v(b.s, b.low_g))), 100)
    low = oracle.net(nets.low, b.s, phi(b.s, b.low_g))
    low = low_weight * ((b.a - low) ** 2).sum(1) / 2
    high_weight = np.minimum(np.exp(3 * (mean_v(b.high_w, b.high_g) - mean_v(b.s, b.high_g))), 100)
    high = oracle.net(nets.high, b.s, b.high_g)
    high = high_weight * ((phi(b.s, b.high_w) - high) ** 2).sum(1) / 2
    each = quick(jax.vmap(lambda r: hiql.row_loss(nets, state.target, r, config)))
    loss, metrics = each(b)
    np.testing.assert_allclose(metrics["value/loss"], value, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(metrics["low/loss"], low, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(metrics["high/loss"], high, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(loss, value + low + high, rtol=1e-4)


def test_hiql_stop_gradients(hiql_setting, norm, quick):
    config, state, batch = hiql_setting

    @quick
    def gradients(networks, target):
        def total(both, name):
            each = jax.vmap(lambda r: hiql.row_loss(*both, r, config)[1][name])
            return jnp.sum(each(batch))

        names = ("value/loss", "low/loss", "high/loss")
        return {name: jax.grad(total)((networks, target), name) for name in names}

    for name, (online, target) in gradients(state.networks, state.target).items():
        sizes = {part: norm(getattr(online, part)) for part in ("value", "low", "high")}
        trained = name.split("/")[0]
        assert sizes.pop(trained) > 0
        assert set(sizes.values()) == {0.0}, f"{name} reaches {sizes}"
        assert norm(target) == 0


def test_hiql_batches(walks, key):
    dataset, data, _ = walks
    config = hiql.HIQLConfig(batch_size=4000, lookahead=10, discount=0.9)
    batch = hiql.draw_batch(data, key, config, lambda x: x)
    row_of = {tuple(row): i for i, row in enumerate(dataset.observations.tolist())}
    find = lambda x: np.array([row_of[tuple(row)] for row in np.asarray(x).tolist()])  # noqa: E731
    n, goal, high = find(batch.s), find(batch.value_g), find(batch.high_g)
    ends = np.repeat(dataset.ends, dataset.lengths + 1)[n]
    assert np.array_equal(find(batch.s_next), n + 1)
    assert np.array_equal(np.asarray(batch.reached), goal == n)
    assert np.mean(goal == n) == pytest.approx(0.2 + 0.3 / dataset.num_transitions, abs=0.02)
    assert (high > n).all() and (high <= ends).all()
    assert np.array_equal(find(batch.high_w), np.minimum(n + 10, high))
    assert np.array_equal(find(batch.low_g), np.minimum(n + 10, ends))


# --- SHARSA


def test_sharsa_targets_by_hand():
    target = jax.vmap(sharsa.critic_target, (0, 0, 0, None))
    steps, reached = jnp.array([0, 2, 2, 3]), jnp.array([True, True, False, False])
    got = target(steps, reached, jnp.full(4, 0.4), 0.5)
    np.testing.assert_allclose(got, [1.0, 0.25, 0.1, 0.05], rtol=1e-6)
    assert sharsa.cross_entropy(jnp.array(0.0), jnp.array(0.3)) == pytest.approx(math.log(2))


@pytest.fixture(scope="module")
def sharsa_setting(rows, shaken, quick):
    s, g, _, w, _, _ = rows
    config = sharsa.SHARSAConfig(hidden=(16, 16), discount=0.9)
    state = shaken(lambda k: sharsa.init(k, config, SPEC))
    steps = jnp.arange(B, dtype=jnp.int32)
    return config, state, sharsa.ValueBatch(*map(jnp.asarray, (s, g, w)), steps, steps % 3 == 0)


@pytest.mark.parametrize("aggregation", ["mean", "min"])
def test_sharsa_against_numpy(sharsa_setting, oracle, quick, aggregation):
    config, state, b = sharsa_setting
    config = dataclasses.replace(config, aggregation=aggregation)
    next_v = sigmoid(oracle.net(state.value, b.w, b.g)[:, 0])
    y = 0.9 ** np.arange(B) * np.where(np.arange(B) % 3 == 0, 1, next_v)
    logits = oracle.ensemble(state.policy.critic, b.s, b.w, b.g)[..., 0]
    critic = (softplus(logits) - y * logits).mean(0)
    q = sigmoid(oracle.ensemble(state.target, b.s, b.w, b.g)[..., 0])
    q = q.mean(0) if aggregation == "mean" else q.min(0)
    v = oracle.net(state.value, b.s, b.g)[:, 0]
    value = softplus(v) - q * v
    nets = state.networks
    each = quick(jax.vmap(lambda r: sharsa.value_losses(nets, state.target, r, config)))
    losses, metrics = each(b)
    np.testing.assert_allclose(metrics["critic/loss"], critic, atol=1e-5)
    np.testing.assert_allclose(metrics["value/loss"], value, atol=1e-5)
    np.testing.assert_allclose(losses, critic + value, atol=2e-5)


def test_sharsa_stop_gradients(sharsa_setting, norm, quick):
    config, state, batch = sharsa_setting

    def gradient(name):
        def total(both):
            return jnp.sum(
                jax.vmap(lambda r: sharsa.value_losses(*both, r, config)[1][name])(batch)
            )

        return quick(jax.grad(total))((state.networks, state.target))

    online, target = gradient("critic/loss")
    assert norm(online.value) == norm(target) == 0 < norm(online.critic)
    online, target = gradient("value/loss")
    assert norm(online.critic) == norm(target) == 0 < norm(online.value)


def test_sharsa_value_batches(walks, key):
    dataset, data, _ = walks
    index = jnp.full(50_000, 40, jnp.int32)
    config = sharsa.SHARSAConfig(lookahead=10)
    batch = sharsa.draw_value_batch(data, key, index, config, lambda x: x)
    steps, reached = np.asarray(batch.steps), np.asarray(batch.reached)
    assert steps.min() == 0 and steps.max() == 10
    assert reached[steps < 10].all()
    np.testing.assert_array_equal(batch.w, dataset.observations[40 + steps])
    # Reached: the state itself, or a uniform or random goal among the next ten rows.
    chance = 0.3 / dataset.num_transitions
    assert np.mean(steps == 0) == pytest.approx(0.2 + chance, abs=0.01)
    assert np.mean(reached) == pytest.approx(0.2 + 0.5 * 10 / 40 + 11 * chance, abs=0.01)


def test_sharsa_takes_the_best_subgoal(sharsa_setting, oracle):
    config, state, b = sharsa_setting
    policy, s, g, key = state.policy, b.s[0], b.g[0], jax.random.key(5)
    keys = jax.random.split(key, config.num_subgoals)
    draw = jax.vmap(lambda k: policy.hierarchy.subgoal(k, s, g))
    draws, best = jax.jit(lambda: (draw(keys), policy.subgoal(key, s, g)))()
    tile = lambda x: np.tile(np.asarray(x), (config.num_subgoals, 1))  # noqa: E731
    score = oracle.ensemble(policy.critic, tile(s), draws, tile(g))[..., 0].min(0)
    np.testing.assert_array_equal(best, draws[score.argmax()])
