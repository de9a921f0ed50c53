"""What every policy is: the interface, and the way back from a file.

A policy maps a state and a goal z to an action. ``act`` handles one state; ``sample`` and OGBench's
``sample_actions`` are derived from it. States, goals and actions are in raw units; whatever
normalisation a policy was trained with is inside it.

Each algorithm's module has the same five names: a frozen config, ``init(key, config, spec)``,
``step(state, data, key, config)``, ``inference_model(state)`` and ``from_checkpoint``. Some have
``probe(state, data, key, config)`` besides: metrics that are computed for rows of the log alone.

Shapes: B batch, d state, k goal (a state, so k = d, for all policies trained here), da action.
"""

import abc
import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from jumpyworld.errors import ConfigError
from jumpyworld.policies.settings import PolicyConfig, PolicySpec, renewed
from jumpyworld.storage import schema, trees

Metrics = dict[str, Float[Array, ""]]
C = TypeVar("C", bound=PolicyConfig)


class AbstractPolicy(eqx.Module):
    """A stochastic map from state and goal to an action in [-1, 1]^da.

    ``temperature`` scales the noise of policies whose noise is added to a mean; for a flow the
    noise is what decides between modes, so flow policies ignore it.
    """

    default_temperature: ClassVar[float] = 1.0

    @property
    @abc.abstractmethod
    def observation_dim(self) -> int:
        """Width d of a state."""

    @property
    @abc.abstractmethod
    def action_dim(self) -> int:
        """Width da of an action."""

    @property
    def z_dim(self) -> int:
        """Width k of z; a goal is a state unless a policy says otherwise."""
        return self.observation_dim

    @property
    def dtype(self) -> Any:
        """Dtype in which the policy computes: that of its weights."""
        weights = [leaf for leaf in jax.tree.leaves(self) if eqx.is_inexact_array(leaf)]
        return weights[0].dtype if weights else jnp.dtype(jnp.float32)

    @abc.abstractmethod
    def act(
        self,
        key: PRNGKeyArray,
        s: Float[Array, " d"],
        z: Float[Array, " k"],
        temperature: Float[Array, ""],
    ) -> Float[Array, " da"]:
        """Draw one action for one state and goal."""

    def sample(
        self,
        key: PRNGKeyArray,
        states: Float[Array, "*batch d"],
        z: Float[Array, "*batch k"],
    ) -> Float[Array, "*batch da"]:
        """Draw one action per row, in raw units; leading dimensions are broadcast.

        Args:
            key: randomness; a batch of one gives what the lone state gives.
            states: [d] or [B, d].
            z: goal or subgoal, [k] or [B, k].

        Raises:
            ConfigError: a width is wrong.
        """
        return self._sample(key, states, z, self.default_temperature)

    def sample_actions(
        self,
        observations: Float[Array, "*batch d"],
        goals: Float[Array, "*batch k"] | None = None,
        seed: PRNGKeyArray | None = None,
        temperature: float = 1.0,
    ) -> Float[Array, "*batch da"]:
        """Draw actions by the convention of OGBench's agents, so that its own loop can drive us.

        Args:
            observations: [d] or [B, d].
            goals: [k] or [B, k].
            seed: a key, typed or the older array of two uint32.
            temperature: scale of the noise; flow policies ignore it.
        """
        if goals is None or seed is None:
            missing = "goals" if goals is None else "a seed"
            raise ConfigError(f"sample_actions: {type(self).__name__} needs {missing}")
        return self._sample(seed, observations, goals, temperature)

    def with_inner_layers(self, dtype) -> "AbstractPolicy":
        """Return the policy with the inner layers of its networks in ``dtype``, say bfloat16."""

        def is_network(node: Any) -> bool:
            return node is not self and hasattr(node, "with_inner_layers")

        def inner(node: Any) -> Any:
            return node.with_inner_layers(dtype) if is_network(node) else node

        return jax.tree.map(inner, self, is_leaf=is_network)

    def _sample(self, key, states, z, temperature) -> Array:
        temperature = jnp.asarray(temperature, self.dtype)
        act = functools.partial(_act_on_rows, self, as_key(key), temperature)
        return over_rows(act, *self._inputs(states, z))

    def _inputs(self, states, z) -> tuple[Array, Array]:
        """Return both in the policy's dtype, of the right widths."""
        arrays = []
        wanted = {"states": (states, self.observation_dim), "z": (z, self.z_dim)}
        for name, (value, width) in wanted.items():
            array = jnp.asarray(value, self.dtype)
            if array.ndim < 1 or array.shape[-1] != width:
                raise ConfigError(
                    f"{type(self).__name__}: {name} has shape {array.shape}, the width is {width}"
                )
            arrays.append(array)
        return arrays[0], arrays[1]


def in_fewer_steps(policy: Any, num_steps: int) -> Any:
    """Return a policy with its flows solved in so many midpoint steps, two evaluations each.

    For actions that are only imagined, in a model's targets and in a planner's chains: of the
    policy that ships two such steps come nearer to its flow than the ten Euler steps it acts by.

    Args:
        policy: one that solves a flow for an action.
        num_steps: of the midpoint rule.

    Raises:
        ConfigError: no step, or a policy that solves no flow.
    """
    with_flow_steps = getattr(policy, "with_flow_steps", None)
    if num_steps < 1 or with_flow_steps is None:
        wrong = "must be at least 1" if num_steps < 1 else f"{type(policy).__name__} has no flow"
        raise ConfigError(f"policy_steps={num_steps}: {wrong}")
    return with_flow_steps(num_steps)


def over_rows(
    function: Callable[..., Float[Array, "rows m"]], *arrays: Float[Array, "*batch n"]
) -> Float[Array, "*batch m"]:
    """Apply a function of rows [rows, n] to arrays with any leading dimensions, broadcast."""
    shape = jnp.broadcast_shapes(*(array.shape[:-1] for array in arrays))
    rows = [
        jnp.broadcast_to(array, (*shape, array.shape[-1])).reshape(-1, array.shape[-1])
        for array in arrays
    ]
    out = function(*rows)
    return out.reshape(*shape, out.shape[-1])


def as_key(seed: PRNGKeyArray) -> PRNGKeyArray:
    """Return a typed key for a typed one or for the older array of uint32 words."""
    array = jnp.asarray(seed)
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        return array
    if array.dtype != jnp.uint32 or array.ndim != 1:
        raise ConfigError(f"seed of type {array.dtype}{array.shape}: give a jax.random key")
    return jax.random.wrap_key_data(array)


# Compiled, because an ODE solve outside jit is compiled anew at every call.
@eqx.filter_jit
def _act_on_rows(policy: AbstractPolicy, key, temperature, states, z) -> Array:
    keys = jax.random.split(key, states.shape[0])
    return jax.vmap(lambda k, s, g: policy.act(k, s, g, temperature))(keys, states, z)


def rebuild(
    config_type: type[C],
    make: Callable[[PRNGKeyArray, C, PolicySpec], PyTree],
    document: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
) -> Any:
    """Return the policy that a checkpoint's description and arrays make.

    Args:
        config_type: class of ``document["config"]``.
        make: (key, config, spec) to a policy of the right structure; only shapes are computed.
        document: with the JSON data ``config`` and ``spec``.
        arrays: named arrays of the policy, all of them and no others.

    Raises:
        CheckpointError: they do not fit.
    """
    config = schema.from_json(config_type, renewed(config_type, document.get("config")), "config")
    spec = schema.from_json(PolicySpec, document.get("spec"), "spec")
    template = eqx.filter_eval_shape(lambda: make(jax.random.key(0), config, spec))
    return trees.from_arrays(template, arrays)
