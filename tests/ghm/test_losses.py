import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld.ghm import GHMBatch, GHMConfig, GHMSpec, mixture_weights
from jumpyworld.ghm.batch import Draws, sample_draws
from jumpyworld.ghm.losses import matching_loss, regressions, td_hc_loss

KEY = jax.random.key(3)
# Compiled once per configuration and shared by the tests.
compiled_loss = eqx.filter_jit(matching_loss)
compiled_regressions = eqx.filter_jit(regressions)
compiled_gradient = eqx.filter_jit(
    eqx.filter_grad(lambda both, *rest: matching_loss(*both, *rest)[0])
)


def draws_for(config, seed=1):
    return sample_draws(jax.random.key(seed), config, 3)


def loss_of(model, target, batch, config, policy, draws=None):
    draws = draws_for(config) if draws is None else draws
    return compiled_loss(model, target, batch, draws, KEY, config, policy)


# The draws


def test_times_are_shared_and_noise_is_not(config):
    draws = draws_for(config)
    hc, k = config.layout.hc, config.batch_size
    assert draws.t.shape == draws.gamma.shape == draws.beta.shape == (k,)
    assert draws.x0_jump.shape == draws.x0_gamma.shape == (hc, 3)
    noises = [draws.x0_one_step[:hc], draws.x0_beta[:hc], draws.x0_jump, draws.x0_gamma]
    for i, one in enumerate(noises):
        for other in noises[i + 1 :]:
            assert np.abs(np.asarray(one - other)).min() > 0
    assert np.all(draws.beta[:hc] < draws.gamma[:hc])
    np.testing.assert_array_equal(draws.beta[hc:], draws.gamma[hc:])


def test_all_terms_of_a_row_are_at_the_same_time(make_model, make_batch, config, policy):
    """The field is made linear in t alone, so that its value tells the time it was asked at."""
    model = make_model(config)
    seen = []

    def record(self, x, t, condition):
        jax.debug.callback(lambda t: seen.append(np.asarray(t)), t)
        return jnp.zeros_like(x)

    class Probe(type(model)):
        velocity = record

    probe = object.__new__(Probe)
    for name, value in vars(model).items():
        object.__setattr__(probe, name, value)
    draws = draws_for(config)
    jax.block_until_ready(loss_of(probe, model, make_batch(config), config, policy, draws))
    jax.effects_barrier()
    hc = config.layout.hc
    times = np.sort(np.concatenate([np.ravel(t) for t in seen]))
    want = np.sort(np.concatenate([draws.t, draws.t, draws.t[:hc]]))
    np.testing.assert_array_equal(times, want)


# The loss


def constant(model, value):
    """Return the model with a field that is ``value`` everywhere."""
    return eqx.tree_at(
        lambda m: (m.field.unet.project_out.weight, m.field.unet.project_out.bias),
        model,
        (jnp.zeros_like(model.field.unet.project_out.weight), jnp.asarray(value)),
    )


class Still:
    """A policy that does nothing."""

    def sample(self, key, states, z):
        return jnp.zeros_like(states)


def two_rows():
    """Return a batch of two rows, which begin at the origin, and its draws."""
    s_next = jnp.asarray([[1.0, 0.0], [2.0, 2.0]])
    batch = GHMBatch(jnp.zeros((2, 2)), jnp.zeros((2, 2)), s_next, jnp.zeros((2, 2)), s_next)
    draws = Draws(
        t=jnp.asarray([0.5, 0.3]),
        gamma=jnp.asarray([0.5, 0.9]),
        beta=jnp.asarray([0.2, 0.9]),
        x0_one_step=jnp.asarray([[0.0, 1.0], [1.0, 1.0]]),
        x0_beta=jnp.zeros((2, 2)),
        x0_jump=jnp.zeros((1, 2)),
        x0_gamma=jnp.zeros((1, 2)),
    )
    return batch, draws


TWO_ROWS = {
    "width": 16, "stages": 1, "embed_dim": 8, "batch_size": 2, "hc_fraction": 0.5,
    "uncond_fraction": 0.0, "normaliser": "identity", "train_steps": 2,
}  # fmt: skip


@pytest.mark.parametrize(("reduction", "want"), [("sum", 3.0), ("mean", 1.5)])
def test_hand_computed_loss_on_two_rows(make_model, reduction, want):
    config, spec = GHMConfig(**TWO_ROWS, reduction=reduction), GHMSpec.blank(2, 2)
    online = constant(make_model(config, spec=spec), [1.0, 2.0])
    target = constant(make_model(config, spec=spec), [0.0, 2.0])
    batch, draws = two_rows()
    # Row 0: 0.5 |(1,2) - (1,-1)|^2 + (0.3125 + 0.1875) |(1,2) - (0,2)|^2 = 4.5 + 0.5.
    # Row 1: 0.1 |(1,2) - (1, 1)|^2 + 0.9 |(1,2) - (0,2)|^2               = 0.1 + 0.9.
    loss, metrics = loss_of(online, target, batch, config, Still(), draws)
    np.testing.assert_allclose(loss, want, rtol=1e-6)
    scale = 1.0 if reduction == "sum" else 0.5
    for name, value in (("one_step", 5.0), ("beta_bootstrap", 1.0), ("gamma_bootstrap", 1.0)):
        np.testing.assert_allclose(metrics[f"loss/{name}"], scale * value, rtol=1e-6)


@pytest.mark.parametrize("units, power", [("state", 0.0), ("frame", 0.0), ("state", 0.5)])
def test_hand_computed_loss_in_a_moving_frame(make_model, units, power):
    """With w = 0 the field is the state itself, so that bootstraps point to where they begin."""
    config = GHMConfig(**TWO_ROWS, frame="moving", loss_units=units, step_power=power)
    model = constant(make_model(config, spec=GHMSpec.blank(2, 2)), [0.0, 0.0])
    table = jnp.broadcast_to(jnp.asarray([3.0, 0.1]), model.frame.displacements.shape)
    model = eqx.tree_at(lambda m: m.frame.displacements, model, table)
    batch, draws = two_rows()
    x, y = (1.0, 1.0) if units == "state" else (1 / (1 + 3.0**2), 1 / (1 + 0.1**2))
    if power:  # one over a step of each, 1/3 and 10, over their mean
        x, y = 2 / 31, 60 / 31
    # Row 0: 0.5 |(1,-1)|^2 + 0.3125 |(1,0)|^2 + 0.1875 |(1,0)|^2.
    # Row 1: 0.1 |(1, 1)|^2 + 0.9 |(2,2)|^2.
    want = 0.5 * (x + y) + 0.5 * x + 0.1 * (x + y) + 0.9 * 4 * (x + y)
    loss, _ = loss_of(model, model, batch, config, Still(), draws)
    np.testing.assert_allclose(loss, want / 2, rtol=1e-5)


def test_with_beta_equal_to_gamma_it_is_td_flow(make_model, make_batch, config, change, policy):
    flow = change(config, hc_fraction=0.0)
    model, target, batch = make_model(config), make_model(config, seed=1), make_batch(config)
    draws = draws_for(config)
    equal = eqx.tree_at(lambda d: d.beta, draws, draws.gamma)
    none = eqx.tree_at(lambda d: (d.x0_jump, d.x0_gamma), equal, (draws.x0_jump[:0],) * 2)
    want, _ = loss_of(model, target, batch, flow, policy, none)
    got, _ = loss_of(model, target, batch, config, policy, equal)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    different, _ = loss_of(model, target, batch, config, policy, draws)
    assert abs(float(different - want)) > 1e-4


@pytest.mark.parametrize("kind", ["absolute", "matched"])
def test_loss_is_the_weighted_sum_of_its_terms_row_by_row(
    make_model, make_batch, config, change, policy, kind
):
    """Algorithm 1, one row at a time, on the regressions that the term functions return."""
    matched = kind == "matched"
    config = change(config, frame=kind, loss_units="frame" if matched else "state")
    model, target, batch = make_model(config), make_model(config, seed=1), make_batch(config)
    draws = draws_for(config)
    one, beta, gamma = compiled_regressions(target, batch, draws, KEY, config, policy)
    c = config.layout.conditional
    total = 0.0
    row = eqx.filter_jit(
        lambda x, t, s, a, z, g: model.velocity(x, t, model.condition(model.encode(s, a, z), s, g))
    )
    for k in range(config.batch_size):
        az = (batch.actions[k], batch.z[k]) if k < c else (None, None)
        terms = [one, beta] + ([gamma] if k < config.layout.hc else [])
        weights = mixture_weights(float(draws.beta[k]), float(draws.gamma[k]))
        for term, weight in zip(terms, weights, strict=False):
            t = draws.t[k]
            v = row(term.x[k], t, batch.observations[k], *az, draws.gamma[k])
            d = model.frame.displacement(draws.gamma[k])
            unit = d / jnp.sqrt((1 - t) ** 2 + (t * d) ** 2) if matched else 1.0
            total += weight * float(jnp.sum(((v - term.velocity[k]) / unit) ** 2))
    got, _ = loss_of(model, target, batch, config, policy)
    np.testing.assert_allclose(got, total / config.batch_size, rtol=1e-4)


def test_consistency_rows_bootstrap_from_the_jump(make_model, make_batch, config, policy):
    """The third term's regression, followed by hand: S+, A+, then the flow at gamma from there."""
    target, batch, draws = make_model(config), make_batch(config), draws_for(config)
    *_, gamma = compiled_regressions(target, batch, draws, KEY, config, policy)
    hc, c = config.layout.hc, config.layout.conditional
    next_key, plus_key = jax.random.split(KEY)
    s_next, z = batch.next_observations, batch.z
    a_next = policy.sample(next_key, s_next[:c], z[:c])[:hc]
    s_plus = target.push(
        draws.x0_jump, s_next[:hc], a_next, z[:hc], draws.beta[:hc], num_steps=config.train_steps
    )
    a_plus = policy.sample(plus_key, s_plus, z[:hc])

    @jax.jit
    def follow(x, t, s, a, z, g):
        condition = target.condition(target.encode(s, a, z), s, g)
        x = target.flow(x, t, condition, num_steps=config.train_steps)
        return x, target.velocity(x, t, condition)

    for i in range(hc):
        row = draws.x0_gamma[i], draws.t[i], s_plus[i], a_plus[i], z[i], draws.gamma[i]
        x, u = follow(*row)
        np.testing.assert_allclose(gamma.x[i], x, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(gamma.velocity[i], u, rtol=1e-3, atol=2e-3)


# Who sees what


def test_policy_is_asked_in_raw_units_about_conditional_rows_only(
    make_model, make_batch, config, policy
):
    asked = []

    class Probe:
        def sample(self, key, states, z):
            asked.append((np.asarray(states), np.asarray(z)))
            return policy.sample(key, states, z)

    batch, model = make_batch(config), make_model(config)
    regressions(model, batch, draws_for(config), KEY, config, Probe())
    hc, c = config.layout.hc, config.layout.conditional
    (s_next, z), (s_plus, z_plus) = asked
    np.testing.assert_array_equal(s_next, batch.next_observations[:c])
    np.testing.assert_array_equal(z, batch.z[:c])
    np.testing.assert_array_equal(z_plus, batch.z[:hc])
    # Raw units: near the data, whose dimensions lie around 50, -20 and 1000.
    assert s_plus.shape == (hc, 3)
    np.testing.assert_allclose(s_plus.mean(0), [50, -20, 1000], atol=300)
    assert s_plus[:, 2].min() > 100 and s_plus[:, 1].max() < 10


def test_another_policy_changes_conditional_targets_and_no_masked_one(
    make_model, make_batch, config, policy, policy_class
):
    target, batch, draws = make_model(config), make_batch(config), draws_for(config)
    run = compiled_regressions
    one, beta, gamma = run(target, batch, draws, KEY, config, policy)
    one2, beta2, gamma2 = run(target, batch, draws, KEY, config, policy_class(-0.9))
    c = config.layout.conditional
    np.testing.assert_array_equal(one.velocity, one2.velocity)
    assert np.abs(np.asarray(beta.velocity - beta2.velocity))[:c].max(1).min() > 1e-5
    np.testing.assert_array_equal(beta.velocity[c:], beta2.velocity[c:])
    assert np.abs(np.asarray(gamma.velocity - gamma2.velocity)).max(1).min() > 1e-5


def scrambled(batch, rows, fields):
    def scramble(leaf):
        return leaf.at[rows].set(leaf[rows][::-1] * 1.5 + 0.1)

    return eqx.tree_at(
        lambda b: [getattr(b, f) for f in fields],
        batch,
        [scramble(getattr(batch, f)) for f in fields],
    )


def test_masked_rows_do_not_see_action_or_z(make_model, make_batch, config, policy):
    model, target, batch = make_model(config), make_model(config, seed=1), make_batch(config)
    masked = slice(config.layout.conditional, None)
    loss, _ = loss_of(model, target, batch, config, policy)
    for fields in (["z"], ["actions"], ["next_actions"], ["z", "actions", "next_actions"]):
        other, _ = loss_of(model, target, scrambled(batch, masked, fields), config, policy)
        np.testing.assert_array_equal(loss, other)
    for field in ("z", "actions"):
        seen = scrambled(batch, slice(0, config.layout.conditional), [field])
        assert float(loss_of(model, target, seen, config, policy)[0]) != float(loss)


def test_masked_rows_may_keep_the_action(make_model, make_batch, config, change, policy):
    config = change(config, mask_action=False)
    model, target, batch = make_model(config), make_model(config, seed=1), make_batch(config)
    masked = slice(config.layout.conditional, None)
    loss, _ = loss_of(model, target, batch, config, policy)
    hidden, _ = loss_of(model, target, scrambled(batch, masked, ["z"]), config, policy)
    np.testing.assert_array_equal(loss, hidden)
    for field in ("actions", "next_actions"):
        other, _ = loss_of(model, target, scrambled(batch, masked, [field]), config, policy)
        assert float(other) != float(loss)


def test_gradient_reaches_tokens_and_network_but_never_the_target(
    make_model, make_batch, config, policy
):
    model, target, batch = make_model(config), make_model(config, seed=1), make_batch(config)
    draws = draws_for(config)

    rest = (batch, draws, KEY, config, policy)
    online, averaged = compiled_gradient((model, target), *rest)
    for name, leaf in jax.tree_util.tree_leaves_with_path(online.field):
        assert float(jnp.abs(leaf).max()) > 0, name
    assert float(jnp.abs(online.field.encoder.action_token).max()) > 0
    assert float(jnp.abs(online.field.encoder.z_token).max()) > 0
    assert all(float(jnp.abs(leaf).max()) == 0 for leaf in jax.tree.leaves(averaged))
    # Also where online and target are one model.
    online, averaged = compiled_gradient((model, model), *rest)
    assert all(float(jnp.abs(leaf).max()) == 0 for leaf in jax.tree.leaves(averaged))


def test_tokens_get_no_gradient_without_masked_rows(make_model, make_batch, config, change, policy):
    config = change(config, uncond_fraction=0.0)
    model, batch = make_model(config), make_batch(config)
    rest = (batch, draws_for(config), KEY, config, policy)
    tokens = compiled_gradient((model, model), *rest)[0].field.encoder
    assert float(jnp.abs(tokens.action_token).max()) == float(jnp.abs(tokens.z_token).max()) == 0


def test_the_paper_settings_run_and_metrics_are_finite_scalars(make_model, make_batch, policy):
    config = GHMConfig.preset("paper", width=16, stages=1, embed_dim=8, batch_size=12)
    model, batch = make_model(config), make_batch(config)
    loss, metrics = eqx.filter_jit(td_hc_loss)(model, model, batch, KEY, config, policy)
    assert np.isfinite(loss) and loss.shape == ()
    assert all("/" in name and np.shape(v) == () for name, v in metrics.items())
    assert all(np.isfinite(v) for v in metrics.values())
    assert {
        "loss/gamma_bootstrap",
        "velocity/target_norm",
        "velocity/online_norm",
    } <= metrics.keys()


# Cheaper ways to the same targets


def test_a_path_through_t_serves_both_bootstraps(make_model, make_batch, config, change, policy):
    """S+ is the end of the path whose velocity at t is the second term's target."""
    config = change(config, bootstrap_grid="through", train_steps=3)
    target, batch, draws = make_model(config), make_batch(config), draws_for(config)
    _, beta, gamma = compiled_regressions(target, batch, draws, KEY, config, policy)
    hc, c = config.layout.hc, config.layout.conditional
    next_key, plus_key = jax.random.split(KEY)
    s_next, z = batch.next_observations, batch.z
    a_next = policy.sample(next_key, s_next[:c], z[:c])

    @jax.jit
    def follow(x0, t, s, a, z, g):
        return target.flow_through(
            x0, t, target.condition(target.encode(s, a, z), s, g), num_steps=3
        )

    ends = []
    for i in range(c):
        row = draws.x0_beta[i], draws.t[i], s_next[i], a_next[i], z[i], draws.beta[i]
        x, v, end = follow(*row)
        np.testing.assert_allclose(beta.x[i], x, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(beta.velocity[i], v, rtol=1e-3, atol=1e-3)
        ends.append(end)
    s_plus = target.state_normaliser.denormalise(jnp.stack(ends[:hc]))
    a_plus = policy.sample(plus_key, s_plus, z[:hc])
    for i in range(hc):
        row = draws.x0_gamma[i], draws.t[i], s_plus[i], a_plus[i], z[i], draws.gamma[i]
        np.testing.assert_allclose(gamma.x[i], follow(*row)[0], rtol=1e-3, atol=2e-3)


def test_sixteen_bit_products_give_nearly_the_same_loss_and_fp32_gradients(
    make_model, make_batch, config, change, policy
):
    half = change(config, precision="bf16")
    model, target, batch = make_model(config), make_model(config, seed=1), make_batch(config)

    def value_and_gradient(config):
        loss = lambda m: td_hc_loss(m, target, batch, KEY, config, policy)[0]  # noqa: E731
        value, gradient = eqx.filter_jit(eqx.filter_value_and_grad(loss))(model)
        return value, jax.tree.leaves(gradient.field)

    (want, full), (got, rounded) = value_and_gradient(config), value_and_gradient(half)
    assert got.dtype == jnp.float32 and 0 < abs(float(got - want)) < 0.02 * float(want)
    assert all(leaf.dtype == jnp.float32 for leaf in rounded)
    a, b = (np.concatenate([np.ravel(leaf) for leaf in tree]) for tree in (full, rounded))
    assert np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b) > 0.999
