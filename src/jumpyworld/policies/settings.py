"""What is decided before a policy trains: settings that all share, and what its data look like.

Presets differ between domains by the paper's sweep tables, which each algorithm's settings hold.

Shapes: N rows, d state, da action.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar, get_args

import numpy as np
import optax
from jaxtyping import Float

from jumpyworld.domains import registry
from jumpyworld.errors import ConfigError
from jumpyworld.nn import Normaliser, cosine_rate, make_normaliser

Size = Literal["paper", "base", "small", "debug"]
Table = dict[str, tuple[Any, tuple[Any, ...]]]
"""field -> (our default, the values that the paper sweeps)."""
C = TypeVar("C", bound="PolicyConfig")
# Rows that a policy may look ahead: more than any trajectory has, and rows are counted in 32 bits.
MAX_SPAN = 1_000_000


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
