"""Drawing transitions on the device, as a pure function of (seed, step).

The whole dataset lives on the device and batch k is drawn from ``batch_key(seed, k)`` alone, so a
run that resumes at step k sees the batches it would have seen without the interruption.

Shapes: N states, V rows with a successor, B batch, d observation and da action dimensions.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jumpyworld.data.dataset import Dataset
from jumpyworld.errors import data_error


class DeviceData(eqx.Module):
    """A dataset as device arrays, a pytree to pass into jitted functions.

    Attributes:
        observations: states, float32 [N, d].
        actions: actions, float32 [N, da].
        valid_indices: rows that have a successor, int32 [V].
        start_of_row: first row of each row's trajectory, int32 [N].
        end_of_row: last row of each row's trajectory, int32 [N].
        masks: 0 where the transition out of a row reached a true end, else 1, float32 [N]; None
            where the source does not say.
    """

    observations: Float[Array, "N d"]
    actions: Float[Array, "N da"]
    valid_indices: Int[Array, " V"]
    start_of_row: Int[Array, " N"]
    end_of_row: Int[Array, " N"]
    masks: Float[Array, " N"] | None = None


class Batch(eqx.Module):
    """Transitions (s, a, s', a'); s' is the next state, or the one several rows ahead.

    Attributes:
        index: row of s, int32 [B]; gathers anything else the dataset knows about it.
        next_index: row of s', int32 [B].
        observations: s [B, d].
        actions: a [B, da].
        next_observations: s' [B, d].
        next_actions: a' [B, da], the action taken at s'; where s' ends its trajectory this is the
            recorded one too, unless the source did not store it (``extras["padded"]``).
    """

    index: Int[Array, " B"]
    next_index: Int[Array, " B"]
    observations: Float[Array, "B d"]
    actions: Float[Array, "B da"]
    next_observations: Float[Array, "B d"]
    next_actions: Float[Array, "B da"]


def device_data(dataset: Dataset) -> DeviceData:
    """Copy a dataset to the default device.

    Raises:
        DataError: it has no transition, or more rows than 32-bit indices can count.
    """
    if dataset.num_states >= 2**31:
        raise data_error(dataset.source, f"{dataset.num_states} rows do not fit 32-bit indices")
    if dataset.num_transitions == 0:
        raise data_error(dataset.source, "has no transition to sample")
    rows = dataset.lengths + 1
    masks = dataset.extras.get("masks")
    return DeviceData(
        observations=jnp.asarray(dataset.observations),
        actions=jnp.asarray(dataset.actions),
        valid_indices=jnp.asarray(dataset.valid_indices.astype(np.int32)),
        start_of_row=jnp.asarray(np.repeat(dataset.starts.astype(np.int32), rows)),
        end_of_row=jnp.asarray(np.repeat(dataset.ends.astype(np.int32), rows)),
        masks=None if masks is None else jnp.asarray(masks, jnp.float32),
    )


def batch_key(seed: int, step: Int[Array, ""] | int) -> PRNGKeyArray:
    """Return the key of batch ``step``, which depends on nothing else.

    Args:
        seed: the run's seed.
        step: number of the batch; may be traced, as inside ``lax.scan``.
    """
    return jax.random.fold_in(jax.random.key(seed), step)


def sample_transitions(
    data: DeviceData, key: PRNGKeyArray, batch_size: int, ahead: int = 1
) -> Batch:
    """Draw transitions uniformly, with replacement, never across a trajectory's end.

    Paper: no masking at terminals. Only rows with a successor are drawn.

    Args:
        data: the dataset on the device.
        key: randomness.
        batch_size: B.
        ahead: rows from s to s', fewer where the trajectory ends before; which rows are drawn does
            not depend on it.
    """
    return gather_transitions(data, sample_valid(data, key, (batch_size,)), ahead)


def gather_transitions(data: DeviceData, index: Int[Array, " B"], ahead: int = 1) -> Batch:
    """Return the transitions that start at the given rows [B], which must have a successor."""
    later = index + 1 if ahead == 1 else jnp.minimum(index + ahead, data.end_of_row[index])
    return Batch(
        index=index,
        next_index=later,
        observations=data.observations[index],
        actions=data.actions[index],
        next_observations=data.observations[later],
        next_actions=data.actions[later],
    )


def sample_valid(data: DeviceData, key: PRNGKeyArray, shape: tuple[int, ...]) -> Int[Array, "..."]:
    """Draw rows that have a successor, uniformly, int32 of the given shape."""
    # Integers, because a float32 uniform has 2^23 values and would leave rows of larger sets out.
    place = jax.random.randint(key, shape, 0, data.valid_indices.shape[0])
    return data.valid_indices[place]
