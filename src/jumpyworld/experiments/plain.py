"""The TD-HC loss written straight from Algorithm 1: every term alone, nothing shared, no tricks.

``bench_train`` measures how much faster ``ghm.losses`` is; a test shows that both are the same
number for the same random draws.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jumpyworld.errors import ConfigError
from jumpyworld.flows import integrate, interpolate
from jumpyworld.ghm.batch import GHMBatch, SupportsSample, sample_draws
from jumpyworld.ghm.config import GHMConfig
from jumpyworld.ghm.losses import batch_condition, mixture_weights
from jumpyworld.ghm.model import Condition, GeometricHorizonModel

_WRITTEN_OUT = {
    "bootstrap_grid": "scaled",
    "loss_units": "state",
    "reduction": "sum",
    "mask_action": True,
    "uncond_source": "bootstrap",
    "use_masks": False,
    "step_power": 0.0,
    "curriculum": 0.0,
    "hindsight": 0.0,
    "landings": 0,
}


def plain_loss(
    model: GeometricHorizonModel,
    target: GeometricHorizonModel,
    batch: GHMBatch,
    key: PRNGKeyArray,
    config: GHMConfig,
    policy: SupportsSample,
) -> Float[Array, ""]:
    """Return the loss of ``ghm.losses.td_hc_loss`` at the same key.

    Paper: Algorithm 1 and Eq. td-hc.

    Raises:
        ConfigError: for settings that are not written out here.
    """
    for name, value in _WRITTEN_OUT.items():
        if getattr(config, name) != value:
            raise ConfigError(f"{name}={getattr(config, name)}: the plain loss has {value} alone")
    draw_key, policy_key = jax.random.split(key)
    next_key, plus_key = jax.random.split(policy_key)
    draws = sample_draws(draw_key, config, model.observation_dim, batch.observations.dtype)
    hc, c = config.layout.hc, config.layout.conditional
    z, t = batch.z[:c], draws.t
    w_one, w_beta, w_gamma = mixture_weights(draws.beta, draws.gamma)

    def flow(x0, t_end, condition: Condition):
        def solve(x0, t_end, condition):
            def field(x, t):
                return target.velocity(x, t, condition)

            steps, solver = config.train_steps, config.solver
            return integrate(field, x0, t_end, num_steps=steps, solver=solver)

        return jax.vmap(solve)(x0, t_end, condition)

    def error(x, velocity, rows):
        condition = batch_condition(model, batch.observations, batch.actions[:c], z, draws.gamma)
        condition = jax.tree.map(lambda leaf: leaf[:rows], condition)
        v = jax.vmap(model.velocity)(x, t[:rows], condition)
        return jnp.sum(jnp.square(v - jax.lax.stop_gradient(velocity)), axis=-1)

    x1 = target.state_normaliser.normalise(batch.next_observations)
    x_t = interpolate(draws.x0_one_step, x1, t)
    total = jnp.sum(w_one * error(x_t, x1 - draws.x0_one_step, len(t)))

    a_next = policy.sample(next_key, batch.next_observations[:c], z)
    later = batch_condition(target, batch.next_observations, a_next, z, draws.beta)
    x_t = jax.lax.stop_gradient(flow(draws.x0_beta, t, later))
    v_t = jax.vmap(target.velocity)(x_t, t, later)
    total = total + jnp.sum(w_beta * error(x_t, v_t, len(t)))
    if hc == 0:
        return total / config.batch_size

    first = jax.tree.map(lambda leaf: leaf[:hc], later)
    jump = flow(draws.x0_jump, jnp.ones_like(t[:hc]), first)
    s_plus = jax.lax.stop_gradient(target.state_normaliser.denormalise(jump))
    a_plus = policy.sample(plus_key, s_plus, z[:hc])
    encoded = jax.vmap(target.encode)(s_plus, a_plus, z[:hc])
    after = jax.vmap(target.condition)(encoded, s_plus, draws.gamma[:hc])
    x_t = jax.lax.stop_gradient(flow(draws.x0_gamma, t[:hc], after))
    v_t = jax.vmap(target.velocity)(x_t, t[:hc], after)
    total = total + jnp.sum(w_gamma[:hc] * error(x_t, v_t, hc))
    return total / config.batch_size
