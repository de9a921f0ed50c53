import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld.errors import ConfigError
from jumpyworld.ghm import GHMSpec
from jumpyworld.ghm.algorithm import from_checkpoint
from jumpyworld.storage.schema import to_json
from jumpyworld.storage.trees import to_arrays

S = jnp.asarray([[50.0, -20.0, 1000.0], [55.0, -19.0, 900.0], [48.0, -25.0, 1100.0]])
A = jnp.asarray([[0.1, -0.3], [0.9, 0.5], [-1.0, 0.0]])
Z = S[::-1] + 1.0


@eqx.filter_jit
def push(model, noise, s, a, z, gamma, **options):
    """Compiled once per shape: out of ``jit`` every call would compile its ODE loop anew."""
    return model.push(noise, s, a, z, gamma, **options)


@eqx.filter_jit
def sample(model, key, s, a, z, gamma, **options):
    return model.sample(key, s, a, z, gamma, **options)


GAMMA = jnp.asarray([0.9, 0.9, 0.9])


@pytest.fixture(scope="module")
def model(make_model, config):
    return make_model(config)


def test_one_state_and_a_batch_of_them(model, key):
    one = model.sample(key, S[0], A[0], Z[0], 0.9)
    assert one.shape == (3,) and one.dtype == jnp.float32
    rows = sample(model, key, S, A, Z, jnp.asarray([0.0, 0.5, 0.9]))
    assert rows.shape == (3, 3) and np.isfinite(rows).all()
    cube = sample(model, key, jnp.stack([S, S]), A, Z, 0.9)
    assert cube.shape == (2, 3, 3)


def test_arguments_are_broadcast_over_the_batch(model, key):
    noise = jax.random.normal(key, (3, 3))
    same = [jnp.tile(value[:1], (3, 1)) for value in (S, A, Z)]
    want = push(model, noise, *same, GAMMA)
    # What is given once is computed once, which may round the last bit otherwise.
    np.testing.assert_allclose(push(model, noise, same[0], A[0], Z[0], 0.9), want, rtol=1e-6)
    np.testing.assert_allclose(push(model, noise, S[0], A[0], Z[0], GAMMA), want, rtol=1e-6)


def test_rows_do_not_see_each_other(model, key):
    noise = jax.random.normal(key, (3, 3))
    together = push(model, noise, S, A, Z, GAMMA)
    for i in range(3):
        alone = push(model, noise[i], S[i], A[i], Z[i], GAMMA[i])
        np.testing.assert_allclose(together[i], alone, rtol=1e-5)


def test_sample_is_push_of_normal_noise_and_depends_on_the_key_alone(model, key):
    a = sample(model, key, S, A, Z, GAMMA)
    np.testing.assert_array_equal(a, sample(model, key, S, A, Z, GAMMA))
    pushed = push(model, jax.random.normal(key, (3, 3)), S, A, Z, GAMMA)
    np.testing.assert_allclose(a, pushed, rtol=1e-6)
    other = sample(model, jax.random.key(1), S, A, Z, GAMMA)
    assert np.abs(np.asarray(a - other)).min() > 0


def test_push_is_the_euler_scheme_written_out(model, key):
    noise = jax.random.normal(key, (3,))
    condition = model.condition(model.encode(S[0], A[0], Z[0]), S[0], jnp.float32(0.9))
    velocity = eqx.filter_jit(model.velocity)
    x = noise
    for i in range(model.eval_steps):
        x = x + velocity(x, jnp.float32(i / model.eval_steps), condition) / model.eval_steps
    want = model.state_normaliser.denormalise(x)
    np.testing.assert_allclose(push(model, noise, S[0], A[0], Z[0], GAMMA[0]), want, rtol=1e-5)


def test_a_paced_model_has_its_units_in_normaliser_and_frame_and_they_are_stored(
    make_model, config, change, key
):
    config = change(config, frame="moving", normaliser="paced")
    model = make_model(config)
    gains = np.asarray(model.state_normaliser.gains)
    assert np.ptp(gains) > 0.1
    np.testing.assert_array_equal(model.frame.gains, gains)
    x, t, d = jnp.asarray([3.0, 4.0, 5.0]), jnp.float32(0.5), jnp.ones(3)
    np.testing.assert_allclose(model.frame.inputs(x, t, x, d)[3:], x / gains, rtol=1e-6)
    document = {"config": to_json(config), "spec": GHMSpec.blank(3, 2).shapes()}
    again = from_checkpoint(document, to_arrays(model))
    np.testing.assert_array_equal(
        model.sample(key, S, A, Z, GAMMA), again.sample(key, S, A, Z, GAMMA)
    )


@pytest.mark.parametrize("frame", ["absolute", "moving", "matched"])
def test_samples_are_in_raw_units(make_model, config, change, key, frame):
    # A field that is zero in the moving frame carries noise x0 to s + x0 in normalised units, in
    # the matched one to s + D x0.
    model = make_model(change(config, frame=frame))
    out = model.field.unet.project_out
    silent = eqx.tree_at(
        lambda m: (m.field.unet.project_out.weight, m.field.unet.project_out.bias),
        model,
        (jnp.zeros_like(out.weight), jnp.zeros_like(out.bias)),
    )
    noise = jax.random.normal(key, (3, 3))
    exact = frame == "matched"
    got = push(silent, noise, S, A, Z, GAMMA, **({"num_steps": 4000} if exact else {}))
    unit = model.state_normaliser.scale / model.state_normaliser.gains
    size = jax.vmap(model.frame.displacement)(GAMMA) if exact else jnp.ones((3, 3))
    still = jnp.broadcast_to(model.state_normaliser.offset, (3, 3))
    origin = still if frame == "absolute" else S
    moved = (got - origin) / (unit[None] * size)
    np.testing.assert_allclose(moved, noise, atol=0.01 if exact else 1e-3)


def test_every_argument_matters(model, key):
    noise = jax.random.normal(key, (3, 3))
    base = push(model, noise, S, A, Z, GAMMA)
    for other in (
        push(model, noise, S + 1, A, Z, GAMMA),
        push(model, noise, S, A + 0.3, Z, GAMMA),
        push(model, noise, S, A, Z + 3, GAMMA),
        push(model, noise, S, A, Z, GAMMA - 0.4),
        push(model, noise, S, A, Z, GAMMA, num_steps=9),
        push(model, noise, S, A, Z, GAMMA, solver="midpoint"),
        push(model, noise, S, None, None, GAMMA),
    ):
        assert np.abs(np.asarray(other - base)).max() > 1e-3


def test_discounts_above_the_range_are_refused_unless_asked_for(model, key):
    sample(model, key, S, A, Z, model.gamma_max)
    sample(model, key, S, A, Z, np.float64(np.float32(model.gamma_max)))
    for gamma in (0.999, jnp.asarray([0.1, 0.2, 0.999]), -0.1, 1.0, float("nan")):
        with pytest.raises(ConfigError, match="trained on"):
            model.sample(key, S, A, Z, gamma)
    out = sample(model, key, S, A, Z, 0.999, allow_extrapolation=True)
    assert np.isfinite(out).all()
    with pytest.raises(ConfigError, match="gamma=1"):
        model.sample(key, S, A, Z, 1.0, allow_extrapolation=True)


def test_a_traced_discount_gives_the_same_samples(model, key):
    want = model.sample(key, S[0], A[0], Z[0], 0.9)
    got = sample(model, key, S[0], A[0], Z[0], jnp.float32(0.9))
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_missing_and_misshapen_arguments_are_named(model, make_model, config, change, key):
    with pytest.raises(ConfigError, match="needs actions"):
        model.sample(key, S, None, Z, 0.9)
    with pytest.raises(ConfigError, match="no action"):
        model.sample(key, S, A, None, 0.9)
    with pytest.raises(ConfigError, match="states has shape"):
        model.sample(key, S[:, :2], A, Z, 0.9)
    with pytest.raises(ConfigError, match="actions has shape"):
        model.sample(key, S, S, Z, 0.9)
    with pytest.raises(ConfigError, match="z has shape"):
        model.sample(key, S, A, A, 0.9)
    keeps = make_model(change(config, mask_action=False))
    assert sample(keeps, key, S, A, None, GAMMA).shape == (3, 3)
    with pytest.raises(ConfigError, match="an action"):
        keeps.sample(key, S, None, None, 0.9)


def test_z_has_its_own_width_and_units(make_model, config, dataset, key):
    spec = GHMSpec.from_arrays(dataset.observations, dataset.starts, dataset.ends, 2, z_dim=4)
    assert not spec.z_is_state and spec.z_dim == 4
    model = make_model(config, spec=spec)
    # One-hot vectors are used as they are; states are standardised.
    one_hot = jnp.eye(4)[:3]
    np.testing.assert_array_equal(model.z_normaliser.standardise(one_hot), one_hot)
    assert sample(model, key, S, A, one_hot, GAMMA).shape == (3, 3)
    shared = make_model(config)
    np.testing.assert_array_equal(shared.z_normaliser.offset, shared.state_normaliser.offset)
    np.testing.assert_array_equal(shared.z_normaliser.scale, shared.state_normaliser.scale)


@pytest.mark.parametrize("linear_mix", [False, True])
def test_conditioning_once_per_solve_equals_conditioning_at_every_step(
    make_model, config, change, key, linear_mix
):
    model = make_model(change(config, linear_mix=linear_mix))
    noise = jax.random.normal(key, (3,))

    @jax.jit
    def afresh(x, t):
        condition = model.condition(model.encode(S[0], A[0], Z[0]), S[0], jnp.float32(0.9))
        return model.velocity(x, t, condition)

    x = noise
    for i in range(model.eval_steps):
        x = x + afresh(x, jnp.float32(i / model.eval_steps)) / model.eval_steps
    want = model.state_normaliser.normalise(push(model, noise, S[0], A[0], Z[0], GAMMA[0]))
    np.testing.assert_allclose(x, want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("z_dim", [None, 4])
def test_a_stored_model_gives_the_same_samples(make_model, config, dataset, key, z_dim):
    spec = GHMSpec.from_arrays(dataset.observations, dataset.starts, dataset.ends, 2, z_dim=z_dim)
    model = make_model(config, spec=spec)
    arrays = {name: np.asarray(leaf) for name, leaf in to_arrays(model).items()}
    document = {"config": to_json(config), "spec": spec.shapes()}
    loaded = from_checkpoint(document, arrays)
    z = Z if z_dim is None else jnp.eye(4)[:3]
    np.testing.assert_array_equal(
        sample(loaded, key, S, A, z, GAMMA), sample(model, key, S, A, z, GAMMA)
    )


def test_spec_measures_the_data_and_refuses_nonsense(dataset, spec):
    np.testing.assert_allclose(spec.mean, dataset.observations.mean(0), rtol=1e-4)
    np.testing.assert_allclose(spec.std, dataset.observations.std(0), rtol=1e-3)
    assert spec.z_is_state and spec.z_dim == spec.observation_dim == 3
    assert spec.shapes() == {"observation_dim": 3, "action_dim": 2, "z_dim": None}
    with pytest.raises(ConfigError, match="do not fit"):
        GHMSpec(2, spec.mean, spec.std[:2], spec.displacements)
    with pytest.raises(ConfigError, match="together"):
        GHMSpec(2, spec.mean, spec.std, spec.displacements, z_mean=spec.mean)


def test_slow_dimensions_are_seen_larger_by_a_power_of_their_gain(make_model, config, change):
    s, a, z = S[0], A[0], Z[0]
    plain = make_model(change(config, normaliser="paced"))
    model = make_model(change(config, normaliser="paced", input_power=0.5))
    units = model.state_normaliser
    larger = jnp.sqrt(units.gains)
    assert np.ptp(larger) > 0.1
    want = model.field.encoder.first(
        units.standardise(s) * larger, a, units.standardise(z) * larger
    )
    np.testing.assert_allclose(model.encode(s, a, z), want, rtol=1e-5)
    want = plain.field.encoder.first(units.standardise(s), a, units.standardise(z))
    np.testing.assert_array_equal(plain.encode(s, a, z), want)


def test_a_moving_z_is_seen_from_the_state_and_a_missing_one_is_its_token(
    make_model, config, change
):
    model = make_model(change(config, frame="moving", z_frame="moving"))
    plain = make_model(change(config, frame="moving"))
    s, a, z = S[0], A[0], Z[0]
    units = model.state_normaliser
    towards = model.frame.towards(units.normalise(s), units.normalise(z))
    first = model.field.encoder.first
    want = first(units.standardise(s), a, jnp.concatenate([units.standardise(z), towards]))
    np.testing.assert_allclose(model.encode(s, a, z), want, rtol=1e-5)
    assert model.z_dim == plain.z_dim == 3
    weights = model.field.encoder.z.weight
    assert weights.shape[0] == 2 * plain.field.encoder.z.weight.shape[0]
    np.testing.assert_array_equal(
        model.encode(s, None, None), first(units.standardise(s), None, None)
    )
    with pytest.raises(ConfigError, match="z_frame=moving: must be absolute where z is no state"):
        make_model(change(config, z_frame="moving"), spec=GHMSpec.blank(3, 2, 4))
    with pytest.raises(ConfigError, match="z_frame=moving: must be absolute with z_source=one_hot"):
        change(config, z_frame="moving", z_source="one_hot")
