"""Networks that the policies share, the flow they parametrise, and the gradient step.

    velocity     v(x, t | c)         one MLP over the concatenation of x, t and the condition c
    loss         |v(X_t, t | c) - (X_1 - X_0)|^2,   X_t = (1 - t) X_0 + t X_1
    map          X_0 -> X_1          Euler steps, nothing clipped inside

Paper: eqs. of GC-BC and HFBC in the appendix on base policies, whose fields miss the argument X_t;
a field without it cannot carry noise to data, so it is an input here.

Networks are un-batched (callers ``vmap``). Shapes: n inputs, m outputs, E ensemble members.
"""

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from jumpyworld.flows import Solver, integrate, interpolate, target_velocity
from jumpyworld.nn import Linear
from jumpyworld.nn.mlp import at_least_float32
from jumpyworld.policies.base import Metrics

T = TypeVar("T")
Aggregation = Literal["mean", "min"]
Rate = float | optax.Schedule


class Net(eqx.Module):
    """MLP with GELU between layers and, if asked, LayerNorm after each GELU (OGBench's order).

    Attributes:
        layers: the linear layers.
        norms: one LayerNorm per hidden layer, or none.
    """

    layers: tuple[Linear, ...]
    norms: tuple[eqx.nn.LayerNorm, ...]

    def __init__(
        self,
        inputs: int,
        hidden: tuple[int, ...],
        outputs: int,
        *,
        key: PRNGKeyArray,
        layer_norm: bool = False,
        final_gain: float = 1.0,
    ):
        """Build the layers.

        Args:
            inputs: width of all inputs together.
            hidden: width of each hidden layer.
            outputs: width of the output.
            key: randomness.
            layer_norm: whether hidden layers are normalised.
            final_gain: factor on the last layer's initial weights.
        """
        widths = (inputs, *hidden, outputs)
        keys = jax.random.split(key, len(widths) - 1)
        gains = (1.0,) * len(hidden) + (final_gain,)
        self.layers = tuple(
            Linear(widths[i], widths[i + 1], key=keys[i], gain=gains[i]) for i in range(len(keys))
        )
        self.norms = tuple(eqx.nn.LayerNorm(width) for width in hidden) if layer_norm else ()

    def __call__(self, *inputs: Float[Array, " _"]) -> Float[Array, " m"]:
        """Map the concatenation of vectors to [m]."""
        x = jnp.concatenate(inputs)
        for i, layer in enumerate(self.layers[:-1]):
            x = jax.nn.gelu(at_least_float32(layer(x)))
            x = self.norms[i](x) if self.norms else x
        return self.layers[-1](x)

    @property
    def outputs(self) -> int:
        """Width m of the output."""
        return self.layers[-1].weight.shape[-1]

    def with_inner_layers(self, dtype) -> "Net":
        """Return the network with the products between hidden layers in ``dtype``."""
        inner = jax.tree.map(lambda weight: weight.astype(dtype), self.layers[1:-1])
        layers = (*self.layers[:1], *inner, *self.layers[1:][-1:])
        return eqx.tree_at(lambda net: net.layers, self, layers)


class Ensemble(eqx.Module):
    """Independent copies of one network, their weights stacked along a leading axis.

    Attributes:
        members: a ``Net`` whose arrays have a leading axis of E.
    """

    members: Net

    def __init__(self, size: int, make: Callable[[PRNGKeyArray], Net], *, key: PRNGKeyArray):
        self.members = eqx.filter_vmap(make)(jax.random.split(key, size))

    def __call__(self, *inputs: Float[Array, " _"]) -> Float[Array, "E m"]:
        """Return what each member says of the same inputs."""
        return eqx.filter_vmap(lambda net: net(*inputs))(self.members)


def aggregate(values: Float[Array, " E"], how: Aggregation) -> Float[Array, ""]:
    """Return one value for an ensemble's, their mean or their minimum."""
    return jnp.mean(values) if how == "mean" else jnp.min(values)


def flow_matching_loss(
    field: Net,
    x0: Float[Array, " m"],
    x1: Float[Array, " m"],
    t: Float[Array, ""],
    condition: Float[Array, " c"],
) -> Float[Array, ""]:
    """Return |v(X_t, t | c) - (X_1 - X_0)|^2 for one sample.

    Args:
        field: the velocity.
        x0: noise [m].
        x1: data [m].
        t: time in [0, 1].
        condition: [c].
    """
    error = field(interpolate(x0, x1, t), t[None], condition) - target_velocity(x0, x1)
    return jnp.sum(jnp.square(error))


def flow_map(
    field: Net,
    x0: Float[Array, " m"],
    condition: Float[Array, " c"],
    num_steps: int,
    solver: Solver = "euler",
) -> Float[Array, " m"]:
    """Carry noise x0 [m] to t = 1."""
    end, velocity = jnp.ones((), x0.dtype), lambda x, t: field(x, t[None], condition)
    return integrate(velocity, x0, end, num_steps=num_steps, solver=solver)


def draw_flow(
    key: PRNGKeyArray, like: Float[Array, "B m"]
) -> tuple[Float[Array, "B m"], Float[Array, " B"]]:
    """Draw noise x0 [B, m] and times t [B] for flow matching against data ``like``."""
    noise_key, time_key = jax.random.split(key)
    x0 = jax.random.normal(noise_key, like.shape, like.dtype)
    return x0, jax.random.uniform(time_key, like.shape[:1], like.dtype)


def clip_action(a: Float[Array, "*batch da"]) -> Float[Array, "*batch da"]:
    """Bring actions into [-1, 1]; after the last ODE step only."""
    return jnp.clip(a, -1.0, 1.0)


def frozen(tree: T) -> T:
    """Return a tree through which no gradient passes."""
    return jax.tree.map(jax.lax.stop_gradient, tree)


def copy(tree: T) -> T:
    """Return a tree with arrays of its own, so that donating one never invalidates the other."""
    return jax.tree.map(jnp.copy, tree)


def polyak(target: T, online: T, rate: float) -> T:
    """Return ``target + rate (online - target)``."""
    return jax.tree.map(lambda old, new: old + rate * (new - old), target, online)


def start_optimiser(networks: Any, learning_rate: Rate) -> optax.OptState:
    """Return Adam's state for networks, all of whose arrays are trained.

    One Adam for all networks of a policy: where losses share none, it acts as several.
    """
    return optax.adam(learning_rate).init(networks)


def descend(
    loss_fn: Callable[[T], tuple[Float[Array, ""], Metrics]],
    networks: T,
    opt_state: optax.OptState,
    learning_rate: Rate,
) -> tuple[T, optax.OptState, Metrics]:
    """Take one gradient step.

    Args:
        loss_fn: networks to (loss, metrics).
        networks: all of whose arrays are trained.
        opt_state: the optimiser's.
        learning_rate: Adam's, a number or a function of the steps done.

    Returns:
        Networks, optimiser state, and the metrics with ``loss`` and ``grad/norm``.
    """
    (loss, metrics), grads = eqx.filter_value_and_grad(loss_fn, has_aux=True)(networks)
    # Optax raises a float to an integer power, which strict promotion (as in tests) would refuse.
    with jax.numpy_dtype_promotion("standard"):
        updates, opt_state = optax.adam(learning_rate).update(grads, opt_state)
    metrics = {"loss": loss, **metrics, "grad/norm": optax.tree.norm(grads)}
    return eqx.apply_updates(networks, updates), opt_state, metrics
