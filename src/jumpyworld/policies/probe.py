"""A number that reveals a critic whose slopes are noise; read once per row of the training log.

    actor/slope_agreement   mean cosine between the two critics' gradients in the action, at the
                            student's actions for the actor's goals

Both critics see the same data and begin with other weights: where their slopes agree they come from
the data, and near 0 the actor climbs noise, however small the critics' loss. That they agree does
not make them right: what both were taught wrongly they agree on.

Shapes: B rows, d state and goal, da action, E = 2 critics.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jumpyworld.data.sampling import DeviceData, sample_transitions
from jumpyworld.nn import Normaliser
from jumpyworld.policies.base import Metrics
from jumpyworld.policies.fql import FQLConfig, draw_actor_goals, student_action
from jumpyworld.policies.networks import Net, clip_action

ROWS = 256
Values = Callable[[Array, Array, Array], Float[Array, " E"]]
"""(s [d], a [da], g [d]) to each critic's output. Logits will do: they rise where values do."""


def slope_agreement(
    values: Values, s: Float[Array, "B d"], a: Float[Array, "B da"], g: Float[Array, "B d"]
) -> Float[Array, ""]:
    """Return the mean cosine between the gradients of two critics in the action."""
    slopes = jax.vmap(jax.jacrev(values, argnums=1))(s, a, g)
    sizes = jnp.linalg.norm(slopes, axis=-1, keepdims=True)
    first, second = jnp.moveaxis(slopes / jnp.maximum(sizes, 1e-12), 1, 0)
    return jnp.mean(jnp.sum(first * second, axis=-1))


def extraction_probe(
    student: Net,
    values: Values,
    normaliser: Normaliser,
    data: DeviceData,
    key: PRNGKeyArray,
    config: FQLConfig,
) -> Metrics:
    """Return the number above; changes nothing.

    Args:
        student: the actor.
        values: the two critics.
        normaliser: units of states and goals.
        data: dataset on the device.
        key: randomness.
        config: settings, static.
    """
    row_key, goal_key, noise_key = jax.random.split(key, 3)
    batch = sample_transitions(data, row_key, min(ROWS, config.batch_size))
    s = normaliser.normalise(batch.observations)
    g = normaliser.normalise(draw_actor_goals(data, goal_key, batch.index, config))
    noise = jax.random.normal(noise_key, batch.actions.shape, batch.actions.dtype)
    a = clip_action(jax.vmap(student_action, (None, 0, 0, 0))(student, s, g, noise))
    return {"actor/slope_agreement": slope_agreement(values, s, a, g)}
