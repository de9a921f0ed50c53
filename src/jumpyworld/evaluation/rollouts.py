"""The truth that a model is compared with: real rollouts of its policy.

Every rollout has a key of its own, (key, pair, repeat), so that it does not depend on who runs
beside it or on how many processes there are. Rollouts are the dearest part of a measurement: they
are made a block of pairs at a time, and a ``RolloutStore`` keeps each block as soon as it is there,
for the next model or for the same command after an interruption.

Shapes: P pairs, R rollouts of each, T steps, d state and da action dimensions.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from jumpyworld.domains import CubeDomain, Domain
from jumpyworld.domains.versions import simulator_versions
from jumpyworld.errors import ConfigError, DataError, unwritable
from jumpyworld.evaluation.lockstep import Lockstep
from jumpyworld.evaluation.pairs import Pairs
from jumpyworld.storage import npz
from jumpyworld.storage.manifest import sha256_json
from jumpyworld.storage.runs import Warn, python_warning

# Environments in memory at once. A maze takes 2 MB, a scene with cubes 160 MB.
MAZES_AT_ONCE, CUBES_AT_ONCE = 512, 64


class RolloutStore:
    """Blocks of rollouts in a folder named after everything that decides them."""

    def __init__(self, folder: Path, identity: dict[str, Any], warn: Warn = python_warning):
        """Remember where blocks go; nothing is read or written yet.

        Args:
            folder: home of all rollouts; those of this identity get a folder in it.
            identity: plain values that decide the rollouts, from ``identity_of``.
            warn: called with one line for each block that is damaged and will be made again.
        """
        self._sha256 = sha256_json(identity)
        self.folder = Path(folder) / self._sha256[:16]
        self._warn = warn

    def read(self, block: slice, shape: tuple[int, ...]) -> Float[np.ndarray, "p R T d"] | None:
        """Return the states of a block of pairs, or None if they must be made."""
        path = self._path(block)
        if not path.exists():
            return None
        try:
            arrays = npz.read_npz(path)
            states, identity = arrays.get("states"), arrays.get("identity")
            if states is None or identity is None or bytes(identity).decode() != self._sha256:
                raise DataError(f"{path}: not the rollouts that its name says")
            if states.shape != shape or states.dtype != np.float32:
                raise DataError(f"{path}: holds {states.dtype}{states.shape}, not float32{shape}")
        except (DataError, UnicodeDecodeError) as error:
            self._warn(f"{error}; rolling out again")
            return None
        return states

    def write(self, block: slice, states: Float[np.ndarray, "p R T d"]) -> None:
        """Keep the states of a block of pairs."""
        identity = np.frombuffer(self._sha256.encode(), np.uint8)
        columns = {
            "states": npz.Column(states.shape, np.dtype("<f4"), lambda: [states]),
            "identity": npz.Column(identity.shape, identity.dtype, lambda: [identity]),
        }
        path = self._path(block)
        try:
            npz.write_npz(path, columns)
        except OSError as error:
            raise unwritable(path, error) from error

    def _path(self, block: slice) -> Path:
        return self.folder / f"pairs-{block.start:04d}-{block.stop:04d}.npz"


def identity_of(
    domain: Domain,
    policy_fingerprint: str,
    pairs: Pairs,
    *,
    seed: int,
    repeats: int,
    steps: int,
    first_actions: Float[np.ndarray, "P da"] | None = None,
) -> dict[str, Any]:
    """Return all that decides rollouts, as plain values: what a store is named after."""
    return {
        "domain": domain.name,
        "policy": policy_fingerprint,
        "pairs": pairs.fingerprint,
        "first_actions": None if first_actions is None else first_actions.tolist(),
        "seed": seed,
        "repeats": repeats,
        "steps": steps,
        "simulator": simulator_versions(),
    }


def rollouts(
    domain: Domain,
    policy,
    pairs: Pairs,
    key: PRNGKeyArray,
    *,
    repeats: int,
    steps: int,
    workers: int | None = None,
    first_actions: Float[np.ndarray, "P da"] | None = None,
    store: RolloutStore | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Float[np.ndarray, "P R T d"]:
    """Roll the policy out from every pair's state to its goal, without stopping there.

    Args:
        domain: where.
        policy: ``sample(key, state, goal)``, one state at a time.
        pairs: starts and goals.
        key: randomness of the policy.
        repeats: R, rollouts of each pair.
        steps: T.
        workers: processes; as many as cores by default.
        first_actions: taken first instead of the policy's, one for each pair [P, da].
        store: where blocks are looked up and kept.
        progress: called with (simulator steps done, all); a block found in the store is done.

    Returns:
        States after 1 to T steps, float32 [P, R, T, d].
    """
    if repeats < 1 or steps < 1:
        raise ConfigError(f"{repeats} rollouts of {steps} steps: both must be at least 1")
    blocks = _blocks(domain, len(pairs), repeats)
    out = np.empty((len(pairs), repeats, steps, domain.observation_dim), np.float32)
    missing = []
    for block in blocks:
        saved = store.read(block, out[block].shape) if store else None
        if saved is None:
            missing.append(block)
        else:
            out[block] = saved
    todo = sum(len(out[block]) for block in missing) * repeats * steps
    total = len(pairs) * repeats * steps
    progress(total - todo, total)
    if not missing:
        return out
    act = _actor(policy, key, pairs, repeats, first_actions)
    lanes = max(len(out[block]) for block in missing) * repeats
    with Lockstep(domain, lanes, workers=workers, terminate_at_goal=False) as envs:
        for block in missing:
            count = len(out[block]) * repeats
            # The last block may be smaller; spare environments repeat its rollouts.
            rows = np.resize(np.arange(block.start * repeats, block.stop * repeats), lanes)
            states, _ = envs.reset([_episode(pairs, int(row), repeats) for row in rows])
            for t in range(steps):
                states, _ = envs.step(act(rows, t, states))
                out[block][:, :, t] = states[:count].reshape(-1, repeats, states.shape[-1])
                todo -= count
                progress(total - todo, total)
            if store:
                store.write(block, out[block])
    return out


def _blocks(domain: Domain, pairs: int, repeats: int) -> list[slice]:
    """Cut the pairs into blocks that fit into memory; the same ones on every machine."""
    lanes = CUBES_AT_ONCE if isinstance(domain, CubeDomain) else MAZES_AT_ONCE
    size = max(1, lanes // repeats)
    return [slice(i, min(i + size, pairs)) for i in range(0, pairs, size)]


def _episode(pairs: Pairs, row: int, repeats: int) -> dict[str, Any]:
    pair = row // repeats
    # float: a simulator state that was stored in 32 bits is sent as text.
    return {
        "seed": row,
        "qpos": pairs.qpos[pair].astype(float).tolist(),
        "qvel": pairs.qvel[pair].astype(float).tolist(),
    }


def _actor(policy, key: PRNGKeyArray, pairs: Pairs, repeats: int, first_actions):
    """Return a function of (rows [E], t, states [E, d]) to actions [E, da]."""

    def act(rows, t, states):
        if t == 0 and first_actions is not None:
            return first_actions[rows // repeats]
        goals = jnp.asarray(pairs.goals[rows // repeats])
        rows = jnp.asarray(rows, jnp.int32)
        return np.asarray(_sample(policy, key, rows, jnp.int32(t), jnp.asarray(states), goals))

    return act


# The policy is an argument, not a closure: its weights would be compiled in as constants.
@eqx.filter_jit
def _sample(policy, key, rows, t, states, goals):
    keys = jax.vmap(lambda row: jax.random.fold_in(jax.random.fold_in(key, row), t))(rows)
    return jax.vmap(policy.sample)(keys, states, goals)
