"""How long to train, how often to save and log. None of it but the seeds changes the result."""

import math
from dataclasses import dataclass

from jumpyworld.errors import ConfigError


@dataclass(frozen=True)
class TrainingConfig:
    """Settings of the training loop that are the same for every algorithm."""

    steps: int | None = 100_000
    """Gradient steps in all; may be raised later, and the run goes on. None: until ``minutes``."""
    minutes: float | None = None
    """Time box of one call, compilation included: save and stop after this long. None: no limit."""
    seed: int = 0
    """Fixes the result: initial weights, batches and noise."""
    num_seeds: int = 1
    """Train the seeds seed, seed + 1, ... at once, as one batch of models."""
    save_every: int = 10_000
    """Steps between checkpoints: what a crash can cost."""
    keep: int = 3
    """Newest checkpoints that are kept."""
    keep_steps: tuple[int, ...] = ()
    """Steps at which to save and whose checkpoints are kept for good."""
    log_every: int = 1_000
    """Steps averaged in one row of the log; where a run ends in between, its last row has fewer."""
    chunk: int = 100
    """Most steps between two looks at the clock and at signals; the result is the same for any."""

    def __post_init__(self):
        """Refuse settings with which nothing could be trained."""
        if self.steps is None and self.minutes is None:
            raise ConfigError("steps and minutes are both None: give one, or training never ends")
        if self.steps is not None and not 0 < self.steps < 2**31:
            raise ConfigError(f"steps is {self.steps}: it must be at least 1 and below 2^31")
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise ConfigError(f"minutes is {self.minutes}: it must be above 0")
        for name in ("num_seeds", "save_every", "keep", "log_every", "chunk"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}: it must be at least 1")
        if self.seed < 0 or self.seed + self.num_seeds > 2**32:
            raise ConfigError(f"seed is {self.seed}: seeds lie in [0, 2^32)")
        if any(step < 1 for step in self.keep_steps):
            raise ConfigError(f"keep_steps is {self.keep_steps}: steps count from 1")

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds trained at once."""
        return tuple(range(self.seed, self.seed + self.num_seeds))
