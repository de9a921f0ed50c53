"""What every policy is: the interface, the settings they share, and the way back from a file.

A policy maps a state and a goal z to an action. ``act`` handles one state; ``sample`` and OGBench's
``sample_actions`` are derived from it. States, goals and actions are in raw units; whatever
normalisation a policy was trained with is inside it.

Each algorithm's module has the same five names: a frozen config, ``init(key, config, spec)``,
``step(state, data, key, config)``, ``inference_model(state)`` and ``from_checkpoint``. Some have
``probe(state, data, key, config)`` besides: metrics that are computed for rows of the log alone.

Shapes: B batch, d state, k goal (a state, so k = d, for all policies trained here), da action.
"""

import abc
import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from jumpyworld.domains import registry
from jumpyworld.errors import ConfigError
from jumpyworld.nn import Normaliser, cosine_rate, make_normaliser
from jumpyworld.storage import schema, trees

Metrics = dict[str, Float[Array, ""]]
Size = Literal["paper", "base", "small", "debug"]
Table = dict[str, tuple[Any, tuple[Any, ...]]]
"""field -> (our default, the values that the paper sweeps)."""
C = TypeVar("C", bound="PolicyConfig")
# Rows that a policy may look ahead: more than any trajectory has, and rows are counted in 32 bits.
MAX_SPAN = 1_000_000


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


@dataclass(frozen=True)
class PolicySpec:
    """What a policy must know about its data before it sees any; plain values.

    Attributes:
        observation_dim: d.
        action_dim: da.
        observation_mean: of each state dimension, raw units, d values.
        observation_std: of each state dimension, raw units, d values.
    """

    observation_dim: int
    action_dim: int
    observation_mean: tuple[float, ...]
    observation_std: tuple[float, ...]

    def __post_init__(self):
        for name in ("observation_mean", "observation_std"):
            if len(getattr(self, name)) != self.observation_dim:
                raise ConfigError(
                    f"spec: {name} has {len(getattr(self, name))} values for "
                    f"{self.observation_dim} dimensions"
                )

    @classmethod
    def from_arrays(
        cls, observations: Float[np.ndarray, "N d"], actions: Float[np.ndarray, "N da"]
    ) -> "PolicySpec":
        """Measure a dataset's states [N, d] and actions [N, da]."""
        # float64: sums of millions of float32 values lose digits.
        mean = observations.mean(0, dtype=np.float64)
        std = observations.std(0, dtype=np.float64)
        return cls(
            observations.shape[1], actions.shape[1], tuple(mean.tolist()), tuple(std.tolist())
        )

    def normaliser(self, kind: Literal["none", "standard"]) -> Normaliser:
        """Return the change of units of a config's ``normalise``."""
        return make_normaliser(
            "identity" if kind == "none" else "standard",
            np.asarray(self.observation_mean, np.float32),
            np.asarray(self.observation_std, np.float32),
        )


@dataclass(frozen=True)
class PolicyConfig:
    """Settings that all policies have. Where the paper is silent they follow public code.

    Attributes:
        hidden: units of each hidden layer. Paper silent.
        batch_size: rows per gradient step. Paper silent.
        learning_rate: Adam's. Paper silent.
        discount: of hindsight goals and of values, in [0, 1).
        gradient_steps: length of a full run.
        final_lr_fraction: learning rate after ``gradient_steps`` over the first one, reached along
            a cosine; 1 keeps it constant. Paper silent.
        normalise: units the networks see: ``none`` (raw) or ``standard``. Paper silent.
    """

    hidden: tuple[int, ...] = (512, 512, 512, 512)
    batch_size: int = 256
    learning_rate: float = 3e-4
    discount: float = 0.99
    gradient_steps: int = 1_000_000
    final_lr_fraction: float = 1.0
    normalise: Literal["none", "standard"] = "none"
    # Fields of earlier versions, and those that took their value over: for old checkpoints.
    renamed: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def __post_init__(self):
        # Without a hidden layer a policy is linear, which nobody asks for by an empty list.
        some = bool(self.hidden) and all(width >= 1 for width in self.hidden)
        self.require("hidden", some, "one or more widths of at least 1")
        self.require("discount", 0 <= self.discount < 1, "in [0, 1)")
        # Adam computes in float32, where a larger one is infinite.
        finite = 0 < self.learning_rate <= float(np.finfo(np.float32).max)
        self.require("learning_rate", finite, "above 0 and finite in 32 bits")
        self.require("final_lr_fraction", 0 <= self.final_lr_fraction <= 1, "in [0, 1]")
        counts = ("batch_size", "gradient_steps", "flow_steps", "num_subgoals", "latent_dim")
        spans = ("lookahead", "n_step")
        weights = ("distill_coefficient", "logsumexp_penalty", "high_alpha", "low_alpha")
        shares = ("actor_trajectory", "goal_current", "goal_trajectory", "target_rate")
        for field in dataclasses.fields(self):
            value, choices = getattr(self, field.name), get_args(field.type)
            if field.name in counts:
                self.require(field.name, value >= 1, "at least 1")
            elif field.name in spans:
                self.require(field.name, 1 <= value <= MAX_SPAN, f"from 1 to {MAX_SPAN}")
            elif field.name in weights:
                self.require(field.name, value is None or value >= 0, "at least 0")
            elif field.name in shares:
                self.require(field.name, 0 <= value <= 1, "in [0, 1]")
            elif choices and choices[-1] is not Ellipsis:
                self.require(field.name, value in choices, f"one of {', '.join(choices)}")

    def require(self, name: str, ok: bool, what: str) -> None:
        """Raise ConfigError about a field unless ``ok``."""
        if not ok:
            raise ConfigError(f"{name}={getattr(self, name)}: must be {what}")

    @property
    def rate(self) -> float | optax.Schedule:
        """Adam's learning rate, a function of the steps done where it falls."""
        return cosine_rate(self.learning_rate, self.gradient_steps, self.final_lr_fraction)

    @classmethod
    def paper_table(cls, domain: str) -> Table:
        """Return the paper's row for a domain's alias: our default and the values swept.

        A policy that the paper does not have needs no row.
        """
        del domain
        return {}

    @classmethod
    def sweep(cls, domain: str) -> dict[str, tuple[Any, ...]]:
        """Return the values that the paper sweeps on a domain, by field."""
        return {name: values for name, (_, values) in cls.paper_table(alias(domain)).items()}

    @classmethod
    def preset(cls: type[C], name: Size = "paper", domain: str = "antmaze-medium", **changes) -> C:
        """Return a named configuration.

        Args:
            name: ``paper``; ``base`` (minutes on a GPU), ``small`` (a CPU) or ``debug`` are ours.
            domain: name or alias; one that the paper does not have takes antmaze-medium's values.
            changes: fields to set.
        """
        if name not in _SIZES:
            raise ConfigError(f"preset {name!r}: must be one of {', '.join(_SIZES)}")
        fields = {field.name for field in dataclasses.fields(cls)}
        table = cls.paper_table(alias(domain)).items()
        size = {field: value for field, value in _SIZES[name].items() if field in fields}
        return cls(**{**{field: default for field, (default, _) in table}, **size, **changes})


_SIZES: dict[str, dict[str, Any]] = {
    "paper": {},
    "base": {
        "hidden": (512, 512, 512, 512),
        "latent_dim": 512,
        "batch_size": 1024,
        "gradient_steps": 40_000,
    },
    "small": {
        "hidden": (128, 128, 128),
        "latent_dim": 64,
        "batch_size": 256,
        "learning_rate": 1e-3,
        "target_rate": 0.02,
        "gradient_steps": 8_000,
        "normalise": "standard",
    },
    "debug": {
        "hidden": (16, 16),
        "latent_dim": 8,
        "batch_size": 16,
        "learning_rate": 1e-3,
        "target_rate": 0.05,
        "flow_steps": 3,
        "num_subgoals": 4,
        "gradient_steps": 20,
    },
}


def alias(domain: str) -> str:
    """Return the paper's name of a domain, or the name itself where it is not registered."""
    try:
        return registry.get(domain).alias
    except ConfigError:
        return domain


def renewed(config_type: type[PolicyConfig], stored: Any) -> Any:
    """Return stored settings with fields of earlier versions under the names of today."""
    if not isinstance(stored, dict):
        return stored
    for old, names in config_type.renamed.items():
        if old in stored and not any(name in stored for name in names):
            rest = {name: value for name, value in stored.items() if name != old}
            stored = {**rest, **dict.fromkeys(names, stored[old])}
    return stored


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
