import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld.errors import ConfigError
from jumpyworld.nn import ContextEncoder, DiscountEmbedding, TimeEmbedding, sinusoid


def test_sinusoid_spans_the_frequencies_that_its_scale_asks_for():
    t = np.linspace(0, 1, 20_001, dtype=np.float32)
    for scale in (1.0, 1000.0):
        features = np.asarray(jax.vmap(lambda t, s=scale: sinusoid(t, 8, s))(jnp.asarray(t)))
        assert features.shape == (20_001, 8)
        fastest = features[:, 0]
        np.testing.assert_allclose(fastest, np.cos(scale * t), atol=2e-4)
        turns = np.sum(np.abs(np.diff(np.sign(fastest)))) / 4
        assert abs(turns - scale / (2 * np.pi)) <= 0.5
    # Cosines first, sines second; the slowest turns max_period^(1 - 2/size) times slower.
    slowest = sinusoid(jnp.float32(1.0), 4, 100.0)[1]
    np.testing.assert_allclose(slowest, np.cos(1.0), rtol=1e-5)


def test_time_embedding_tells_close_times_apart(key):
    embed = TimeEmbedding(16, size=8, scale=1000.0, key=key)
    a, b = embed(jnp.float32(0.50)), embed(jnp.float32(0.51))
    assert a.shape == (16,)
    assert float(jnp.linalg.norm(a - b)) > 0.1 * float(jnp.linalg.norm(a))


@pytest.mark.parametrize("kind", ["gamma", "log_horizon"])
def test_discount_embedding_appends_the_three_features_and_stays_finite(key, kind):
    embed = DiscountEmbedding(16, size=8, scale=10.0, kind=kind, key=key)
    assert embed.mlp.layers[0].weight.shape == (8 + 3, 16)
    gamma = jnp.asarray([0.0, 0.5, 0.996, 0.9999])
    assert np.isfinite(jax.vmap(embed)(gamma)).all()
    g = jnp.float32(0.9)
    seen = g if kind == "gamma" else -jnp.log(1 - g) / np.float32(np.log(1000))
    inputs = jnp.concatenate([sinusoid(seen, 8, 10.0), jnp.stack([g, 1 - g, -jnp.log(1 - g)])])
    np.testing.assert_allclose(embed(g), embed.mlp(inputs), rtol=2e-4, atol=1e-5)


def test_encoder_is_one_mlp_over_the_concatenation(key):
    encoder = ContextEncoder(3, 2, 5, 16, key=key)
    s, a, z = jnp.arange(3.0), jnp.arange(2.0), jnp.arange(5.0)
    joined = jnp.concatenate([p.weight for p in (encoder.state, encoder.action, encoder.z)])
    first = jnp.concatenate([s, a, z]) @ joined + encoder.state.bias
    np.testing.assert_allclose(encoder.first(s, a, z), first, rtol=1e-5)
    np.testing.assert_allclose(encoder(s, a, z), encoder.finish(first), rtol=1e-5)
    # As one layer would have been initialised.
    wide = ContextEncoder(30, 20, 50, 400, key=key)
    stds = [float(jnp.std(p.weight)) for p in (wide.state, wide.action, wide.z)]
    np.testing.assert_allclose(stds, [0.1] * 3, rtol=0.05)


def test_tokens_stand_for_what_is_missing_and_learn(key):
    encoder = ContextEncoder(3, 2, 5, 16, key=key)
    s, a, z = jnp.arange(3.0), jnp.arange(2.0), jnp.arange(5.0)
    outputs = [encoder(s, *rest) for rest in ((a, z), (None, z), (a, None), (None, None))]
    for i, one in enumerate(outputs):
        for other in outputs[i + 1 :]:
            assert float(jnp.abs(one - other).max()) > 1e-3
    grads = eqx.filter_grad(lambda e: jnp.sum(e(s, None, None) ** 2))(encoder)
    assert float(jnp.abs(grads.action_token).max()) > 0
    assert float(jnp.abs(grads.z_token).max()) > 0
    assert float(jnp.abs(grads.z.weight).max()) == 0


def test_encoder_without_z_has_no_tokens(key):
    encoder = ContextEncoder(3, 2, 0, 16, key=key)
    assert encoder.z is None and encoder.z_token is None and encoder.action_token is None
    assert encoder(jnp.zeros(3), jnp.zeros(2), None).shape == (16,)
    with pytest.raises(ConfigError, match="no token"):
        encoder(jnp.zeros(3), None, None)
