"""The linear layer, the activation and the MLP that every network here is made of.

Modules are un-batched: they take one vector, and callers ``vmap``.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

Activation = Callable[[Float[Array, "..."]], Float[Array, "..."]]


def mish(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return x tanh(softplus(x)), elementwise.

    Paper: the hidden activation of the GHM hyperparameter table. With w = e^x (e^x + 2) the
    hyperbolic tangent is w / (w + 2): one exponential instead of three transcendental functions,
    four times faster on a CPU. Above 20 the ratio is 1 to machine precision in float32 and 64.
    Computed, and returned, in at least 32 bits: in 16 the ratio loses its digits, and the next
    layer rounds anyway.
    """
    x = at_least_float32(x)
    e = jnp.exp(jnp.minimum(x, 20.0))
    w = e * (e + 2.0)
    return x * (w / (w + 2.0))


def at_least_float32(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return x in float32 if it has fewer bits."""
    return x.astype(jnp.float32) if x.dtype.itemsize < 4 else x


class Linear(eqx.Module):
    """An affine map x -> x W + b; W starts uniform with variance gain^2 / inputs, b at 0.

    Stored as [inputs, outputs] so that a vmapped call is a plain row-major product, which costs no
    transposition. The product is computed in the dtype of the weights.

    Attributes:
        weight: W [inputs, outputs].
        bias: b [outputs], or None.
    """

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"] | None

    def __init__(
        self, inputs: int, outputs: int, *, key: PRNGKeyArray, gain: float = 1.0, bias: bool = True
    ):
        limit = gain * (3.0 / max(inputs, 1)) ** 0.5
        self.weight = limit * jax.random.uniform(key, (inputs, outputs), minval=-1.0, maxval=1.0)
        self.bias = jnp.zeros(outputs) if bias else None

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        """Apply the map to one vector [inputs]."""
        y = x.astype(self.weight.dtype) @ self.weight
        return y if self.bias is None else y + self.bias


class MLP(eqx.Module):
    """Linear layers with an activation between them and none after the last.

    Attributes:
        layers: the linear layers.
        activation: elementwise function between layers.
    """

    layers: tuple[Linear, ...]
    activation: Activation = eqx.field(static=True)

    def __init__(
        self,
        inputs: int,
        widths: tuple[int, ...],
        *,
        key: PRNGKeyArray,
        activation: Activation = mish,
        final_gain: float = 1.0,
    ):
        """Build the layers.

        Args:
            inputs: width of the input.
            widths: width of each layer; the last one is the output.
            key: randomness.
            activation: elementwise function between layers.
            final_gain: factor on the last layer's initial weights; 0 makes the output 0.
        """
        dims = (inputs, *widths)
        keys = jax.random.split(key, len(widths))
        gains = (1.0,) * (len(widths) - 1) + (final_gain,)
        self.layers = tuple(
            Linear(dims[i], dims[i + 1], key=keys[i], gain=gains[i]) for i in range(len(widths))
        )
        self.activation = activation

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        """Map one vector [inputs] to [widths[-1]]."""
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.layers[-1](x)
