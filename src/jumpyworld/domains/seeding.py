"""Episodes that a seed really fixes.

OGBench's mazes draw start, goal and task from NumPy's *global* generator, and its cube scenes draw
actions, inside ``reset``, from an action space that is made anew (and unseeded) at every access. So
``env.reset(seed=5)`` alone gives another episode each time. ``SeededReset`` seeds everything that a
reset draws from and leaves the caller's global generator as it found it.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np


@contextlib.contextmanager
def global_numpy_seed(seed: int) -> Iterator[None]:
    """Seed NumPy's global generator inside the block and restore it afterwards.

    The one place where this package touches global random state: OGBench reads it.
    """
    saved = np.random.get_state()  # noqa: NPY002
    # OGBench's mazes draw starts and goals from this generator and offer no other way to fix them.
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(saved)  # noqa: NPY002


class SeededReset(gymnasium.Wrapper):
    """Make the whole episode sequence a function of one seed.

    ``reset(seed=s)`` starts the sequence of ``s``; ``reset()`` goes on to its next episode.
    """

    def __init__(self, env: gymnasium.Env, seed: int):
        super().__init__(env)
        self._episode_seeds = np.random.default_rng(seed)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        """Reset with every source of randomness seeded; see the class."""
        if seed is not None:
            self._episode_seeds = np.random.default_rng(seed)
        episode_seed = int(self._episode_seeds.integers(2**31))
        self.unwrapped.action_space.seed(episode_seed)
        with global_numpy_seed(episode_seed):
            return self.env.reset(seed=episode_seed, options=options)
