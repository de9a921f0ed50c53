"""Any policy from outside: a function on NumPy arrays, whatever computes it.

    policy = from_callable(fn, observation_dim=29, action_dim=8, z_dim=29)
    fn(states [B, d], z [B, k]) -> actions [B, da]

Eagerly ``fn`` is simply called. Inside ``jit``, ``vmap``, ``scan`` or a training loop it becomes a
host callback, so that a PyTorch, ONNX or hand-written controller can be modelled and planned with.
Each call costs a trip to the host: batch as much as you can.

What ``fn`` returns is checked every time. A wrong shape, a NaN or an action outside [-1, 1] raises
ConfigError; inside ``jit`` JAX wraps it in its own error, whose text has ours.
"""

import math
from collections.abc import Callable
from numbers import Integral
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jumpyworld.errors import ConfigError
from jumpyworld.policies.base import AbstractPolicy, as_key

# Rounding of a tanh in another precision is not an error.
TOLERANCE = 1e-4


class OutsidePolicy(AbstractPolicy):
    """A function of the host in the shape of a policy; made by ``from_callable``."""

    fn: Callable[..., Any] = eqx.field(static=True)
    name: str = eqx.field(static=True)
    widths: tuple[int, int, int] = eqx.field(static=True)
    takes_seed: bool = eqx.field(static=True)
    clip: bool = eqx.field(static=True)

    @property
    def observation_dim(self) -> int:
        """Width d of a state."""
        return self.widths[0]

    @property
    def action_dim(self) -> int:
        """Width da of an action."""
        return self.widths[1]

    @property
    def z_dim(self) -> int:
        """Width k of z."""
        return self.widths[2]

    def act(self, key, s, z, temperature):
        """Return one action; ``fn`` has no temperature."""
        return self.sample(key, s, z)

    def sample(self, key, states, z):
        """Return one action per row, from one call of ``fn`` for all rows."""
        states, z = self._inputs(states, z)
        shape = jnp.broadcast_shapes(states.shape[:-1], z.shape[:-1])
        states = jnp.broadcast_to(states, (*shape, self.observation_dim))
        z = jnp.broadcast_to(z, (*shape, self.z_dim))
        seed = jax.random.bits(as_key(key), (), jnp.uint32)
        if not any(isinstance(x, Tracer) for x in (seed, states, z)):
            return jnp.asarray(self._call(len(shape), seed, states, z))
        out = jax.ShapeDtypeStruct((*shape, self.action_dim), self.dtype)
        # Under vmap all arguments get the new leading axis, and still one call answers.
        return jax.pure_callback(
            lambda *args: self._call(len(shape), *args),
            out,
            seed,
            states,
            z,
            vmap_method="broadcast_all",
        )

    def sample_actions(self, observations, goals=None, seed=None, temperature=1.0):
        """Return actions by OGBench's convention, without compiling anything."""
        if goals is None or seed is None:
            missing = "goals" if goals is None else "a seed"
            raise ConfigError(f"sample_actions: {self.name} needs {missing}")
        return self.sample(seed, observations, goals)

    def _call(self, ndim: int, seed: Any, states: Any, z: Any) -> np.ndarray:
        """Call ``fn`` on rows, once for each seed if it takes one.

        Args:
            ndim: leading dimensions of ``states`` that one seed covers.
            seed: uint32 [...].
            states: [..., *batch, d].
            z: [..., *batch, k].
        """
        seeds, states, z = np.asarray(seed), np.asarray(states), np.asarray(z)
        outer, batch = states.shape[: states.ndim - 1 - ndim], states.shape[:-1]
        groups = math.prod(outer) if self.takes_seed else 1
        s_rows = states.reshape(groups, -1, self.observation_dim)
        z_rows = z.reshape(groups, -1, self.z_dim)
        seeds = np.broadcast_to(seeds, outer).reshape(-1)
        extra = [(int(seeds[i]),) if self.takes_seed else () for i in range(groups)]
        actions = [
            self._check(self.fn(s_rows[i], z_rows[i], *extra[i]), s_rows.shape[1])
            for i in range(groups)
        ]
        return np.concatenate(actions).reshape(*batch, self.action_dim)

    def _check(self, actions: Any, rows: int) -> np.ndarray:
        try:
            array = np.asarray(actions, dtype=np.float64)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ConfigError(f"policy {self.name}: returned no array ({error})") from error
        if array.shape != (rows, self.action_dim):
            raise ConfigError(
                f"policy {self.name}: returned actions of shape {array.shape}, "
                f"not ({rows}, {self.action_dim})"
            )
        bad = ~np.isfinite(array)
        if bad.any():
            row, column = np.argwhere(bad)[0]
            raise ConfigError(
                f"policy {self.name}: returned {array[row, column]} in {bad.sum()} entries, "
                f"first in row {row}, column {column}"
            )
        outside = np.abs(array) > 1 + TOLERANCE
        if outside.any() and not self.clip:
            row, column = np.argwhere(outside)[0]
            raise ConfigError(
                f"policy {self.name}: returned {array[row, column]:g} in row {row}, column "
                f"{column}; actions must lie in [-1, 1] (clip=True clips them)"
            )
        return np.clip(array, -1, 1).astype(self.dtype)


def from_callable(
    fn: Callable[..., Any],
    *,
    observation_dim: int,
    action_dim: int,
    z_dim: int,
    name: str | None = None,
    takes_seed: bool = False,
    clip: bool = False,
) -> OutsidePolicy:
    """Turn a function on NumPy arrays into a policy.

    Args:
        fn: (states float32 [B, d], z float32 [B, k]) to actions [B, da], raw units; an array or
            anything that NumPy can read (a PyTorch tensor on the CPU, without gradient).
        observation_dim: d.
        action_dim: da.
        z_dim: k.
        name: how messages call it; the function's own name by default.
        takes_seed: call ``fn(states, z, seed)`` with an int in [0, 2^32) drawn from the key; for
            policies that draw random numbers, which must come from it alone.
        clip: clip actions outside [-1, 1] instead of refusing them.

    Raises:
        ConfigError: ``fn`` cannot be called, or a width is no whole number from 1.
    """
    name = name or str(getattr(fn, "__name__", type(fn).__name__))
    widths = (observation_dim, action_dim, z_dim)
    if not callable(fn):
        raise ConfigError(f"policy {name}: {type(fn).__name__} cannot be called")
    if not all(isinstance(width, Integral) and width >= 1 for width in widths):
        raise ConfigError(f"policy {name}: widths {widths} must be whole numbers, at least 1")
    return OutsidePolicy(fn, name, widths, takes_seed, clip)
