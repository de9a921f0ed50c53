"""What one loss is computed on: rows of data, and the random numbers drawn for them.

Shapes: B rows, H consistency rows, d state, da action, dz policy-encoding dimensions.
"""

from typing import Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from jumpyworld.ghm.config import GHMConfig
from jumpyworld.ghm.discounts import longest_discount, sample_betas, sample_discounts


class SupportsSample(Protocol):
    """A policy: raw states [B, d] and encodings [B, dz] to raw actions [B, da]."""

    def sample(
        self, key: PRNGKeyArray, states: Float[Array, "B d"], z: Float[Array, "B dz"]
    ) -> Float[Array, "B da"]:
        """Draw one action per row."""
        ...


class GHMBatch(eqx.Module):
    """Transitions and the policy each row is asked about, in raw units.

    Attributes:
        observations: S [B, d].
        actions: A [B, da].
        next_observations: S', where bootstraps start [B, d].
        next_actions: the dataset's A' [B, da]; used only where masked rows keep their action.
        z: policy encodings [B, dz]; ignored on unconditional rows.
        inside: for ``uncond_source="trajectory"`` alone, whether the state in
            ``next_observations`` was reached at a geometric time [U], on the U unconditional rows.
        masks: for ``use_masks`` alone, 0 where S' is a true end, else 1 [B].
        on_the_way: for ``hindsight`` alone, the state of the first term [B, d]; elsewhere it is S'.
        span: for ``hindsight`` alone, steps from S to S' [B].
        known: for ``landings`` alone, states of the data where jumps may end [N, d].
    """

    observations: Float[Array, "B d"]
    actions: Float[Array, "B da"]
    next_observations: Float[Array, "B d"]
    next_actions: Float[Array, "B da"]
    z: Float[Array, "B dz"]
    inside: Bool[Array, " U"] | None = None
    masks: Float[Array, " B"] | None = None
    on_the_way: Float[Array, "B d"] | None = None
    span: Float[Array, " B"] | None = None
    known: Float[Array, "N d"] | None = None

    @property
    def one_step(self) -> Float[Array, "B d"]:
        """States of the first term [B, d]."""
        return self.next_observations if self.on_the_way is None else self.on_the_way


class Draws(eqx.Module):
    """The random numbers of one loss: one time per row, noise of its own for each term.

    Attributes:
        t: flow times [B], shared by the terms of a row; with ``bootstrap_grid="every"`` the shifts
            of the rows' grids.
        gamma: discounts [B].
        beta: shorter discounts [B]; equal to gamma outside consistency rows.
        x0_one_step: noise of the one-step term [B, d].
        x0_beta: noise of the beta-bootstrap [B, d].
        x0_jump: noise of S+ [H, d].
        x0_gamma: noise of the gamma-bootstrap [H, d].
    """

    t: Float[Array, " B"]
    gamma: Float[Array, " B"]
    beta: Float[Array, " B"]
    x0_one_step: Float[Array, "B d"]
    x0_beta: Float[Array, "B d"]
    x0_jump: Float[Array, "H d"]
    x0_gamma: Float[Array, "H d"]


def sample_draws(
    key: PRNGKeyArray,
    config: GHMConfig,
    dim: int,
    dtype=jnp.float32,
    step: Int[Array, ""] | None = None,
) -> Draws:
    """Draw times, discounts and noise for one batch.

    Args:
        key: randomness.
        config: batch layout and laws.
        dim: d.
        dtype: of the arrays.
        step: gradient steps done, which a curriculum needs; None for its end.
    """
    rows, hc = config.batch_size, config.layout.hc
    t_key, gamma_key, beta_key, *noise_keys = jax.random.split(key, 7)
    ends = (config.gamma_min, config.gamma_max)
    longest = config.gamma_max if step is None else longest_discount(step, config)
    top = jnp.full((rows,), longest, dtype)
    gamma = sample_discounts(gamma_key, top, config.gamma_sampler, *ends)
    beta = sample_betas(beta_key, gamma[:hc], config.beta_sampler, *ends)
    noise = [
        jax.random.normal(noise_key, (n, dim), dtype)
        for noise_key, n in zip(noise_keys, (rows, rows, hc, hc), strict=True)
    ]
    t = jax.random.uniform(t_key, (rows,), dtype)
    return Draws(t, gamma, jnp.concatenate([beta, gamma[hc:]]), *noise)
