"""TD-HC targets with the jumps drawn one step ahead, so that no ODE solve waits for another.

    step k    consistency rows drawn and jumped at step k - 1, all other rows fresh:
              one question to the policy for   A' of fresh rows,   A+ of those that wait
              one solve for   beta-bootstraps to t        (S', A', beta)
                              gamma-bootstraps to t       (S+, A+, gamma)    S+ from step k - 1
                              jumps to 1 of fresh rows    (S', A', beta)     kept for step k + 1

Drawn within the step (``losses.regressions``), a gamma-bootstrap starts where the jump ended, and a
step takes two solves in a row and asks the policy twice; here one of each, of as many rows.

Deviation: S+ comes from the target network of the step before. At the first step no row has jumped,
and consistency rows are plain ones (beta = gamma). So is a row whose jump went nowhere or whose
policy has no finite action after it, without a word: ``jumps=now`` refuses such a step, which here
would be refused in vain, as the rows that wait stay the same.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from jumpyworld.ghm.batch import Draws, GHMBatch, SupportsSample
from jumpyworld.ghm.config import GHMConfig
from jumpyworld.ghm.landing import FAR, land
from jumpyworld.ghm.losses import (
    Regression,
    Terms,
    batch_condition,
    one_step_target,
    regressions,
    rounded,
)
from jumpyworld.ghm.model import GeometricHorizonModel
from jumpyworld.ghm.spec import GHMSpec


class Jumped(eqx.Module):
    """Consistency rows that wait for their gradient step, H of them, in raw units.

    Attributes:
        batch: the rows.
        a_next: A' [H, da].
        s_plus: S+, where they jumped [H, d].
        beta: discounts of the jumps [H].
        gamma: discounts being learnt [H].
        ready: whether there are any yet.
    """

    batch: GHMBatch
    a_next: Float[Array, "H da"]
    s_plus: Float[Array, "H d"]
    beta: Float[Array, " H"]
    gamma: Float[Array, " H"]
    ready: Bool[Array, ""]

    @classmethod
    def none_yet(cls, config: GHMConfig, spec: GHMSpec) -> "Jumped | None":
        """Return what training starts with; None where it needs none."""
        rows = config.layout.hc
        if config.jumps == "now" or rows == 0:
            return None

        def blank(*widths: int) -> list[Array]:
            return [jnp.zeros((rows, width)) for width in widths]

        d, da = spec.observation_dim, spec.action_dim
        masks = jnp.zeros(rows) if config.use_masks else None
        batch = GHMBatch(*blank(d, da, d, da, spec.z_dim), masks=masks)
        if config.hindsight > 0:
            batch = dataclasses.replace(batch, on_the_way=blank(d)[0], span=jnp.ones(rows))
        a_next, s_plus = blank(da, d)
        # Two arrays, as each may be given away by itself.
        beta, gamma = jnp.zeros(rows), jnp.zeros(rows)
        return cls(batch, a_next, s_plus, beta, gamma, ready=jnp.zeros((), bool))


def regressions_ahead(
    target: GeometricHorizonModel,
    fresh: GHMBatch,
    draws: Draws,
    key: PRNGKeyArray,
    config: GHMConfig,
    policy: SupportsSample,
    waiting: Jumped,
) -> tuple[GHMBatch, Draws, Terms, Jumped]:
    """Return what a step learns from, and the rows that the next step will.

    Paper: the three terms of Eq. td-hc.

    Args:
        target: target network.
        fresh: rows in the order of ``config.layout``; the consistency rows among them jump.
        draws: times, discounts and noise.
        key: randomness of the policy.
        config: layout and solver.
        policy: whose future is learnt.
        waiting: the consistency rows of this step.

    Returns:
        Rows and draws with the consistency rows exchanged, their terms, and the rows that jumped.
    """
    target = rounded(target, config)
    hc, c = config.layout.hc, config.layout.conditional
    # Before any row has jumped nothing waits, and a bad jump is nowhere: nobody is asked there.
    landed = jnp.abs(target.state_normaliser.normalise(waiting.s_plus)) < FAR
    usable = waiting.ready & jnp.all(landed, axis=-1)
    places = jnp.where(usable[:, None], waiting.s_plus, fresh.next_observations[:hc])
    whose = jnp.where(usable[:, None], waiting.batch.z, fresh.z[:hc])
    asked = jnp.concatenate([fresh.next_observations[:c], places])
    actions = policy.sample(key, asked, jnp.concatenate([fresh.z[:c], whose]))
    a_fresh, a_plus = actions[:c], actions[c:]
    # A step that is undone restores the rows that wait. Were a bad jump or a bad action after one
    # among them, it would spoil every later try; such rows are plain ones, as at the first step.
    usable &= jnp.all(jnp.isfinite(a_plus), axis=-1)
    if not config.mask_action:
        a_fresh = jnp.concatenate([a_fresh, fresh.next_actions[c:]])
    # ``inside`` is about unconditional rows, which stay; ``known`` about none in particular.
    rows = dataclasses.replace(fresh, inside=None, known=None)
    first = jax.tree.map(lambda leaf: leaf[:hc], rows)
    unjumped = Jumped(
        first,
        a_fresh[:hc],
        first.next_observations,
        draws.gamma[:hc],
        draws.gamma[:hc],
        waiting.ready,
    )

    def choose(jumped, plain):
        if jumped.ndim == 0:  # ``ready`` itself
            return jumped
        of_rows = usable.reshape(-1, *(1,) * (jumped.ndim - 1))
        return jnp.where(jnp.broadcast_to(of_rows, jumped.shape), jumped, plain)

    now = jax.tree.map(choose, waiting, unjumped)
    a_plus = choose(a_plus, a_fresh[:hc])

    def exchange(rows, with_rows):
        return rows.at[: len(with_rows)].set(with_rows)

    batch = dataclasses.replace(jax.tree.map(exchange, rows, now.batch), inside=fresh.inside)
    a_next = exchange(a_fresh, now.a_next)
    used = eqx.tree_at(
        lambda d: (d.beta, d.gamma),
        draws,
        (exchange(draws.beta, now.beta), exchange(draws.gamma, now.gamma)),
    )

    z = batch.z[:c]
    conditions = (
        batch_condition(target, batch.next_observations, a_next, z, used.beta),
        batch_condition(target, now.s_plus, a_plus, z[:hc], now.gamma),
        batch_condition(target, first.next_observations, a_fresh[:hc], first.z, draws.beta[:hc]),
    )
    condition = jax.tree.map(lambda *parts: jnp.concatenate(parts), *conditions)
    t = jnp.concatenate([used.t, used.t[:hc]])
    ends = jnp.concatenate([t, jnp.ones_like(t[:hc])])
    noise = jnp.concatenate([draws.x0_beta, draws.x0_gamma, draws.x0_jump])
    steps, grid = config.train_steps, config.bootstrap_grid
    assert grid not in ("through", "every")  # the config has refused it
    flow = jax.vmap(lambda x0, t, c: target.flow(x0, t, c, num_steps=steps, grid=grid))
    x = flow(noise, ends, condition)
    x, jumps = x[: len(t)], x[len(t) :]
    v = jax.vmap(target.velocity)(x, t, jax.tree.map(lambda leaf: leaf[: len(t)], condition))

    one_step = one_step_target(
        target.state_normaliser.normalise(batch.one_step), draws.x0_one_step, draws.t
    )
    b = len(draws.t)
    terms = (one_step, Regression(x[:b], v[:b], t[:b]), Regression(x[b:], v[b:], t[b:]))
    s_plus = land(jumps, draws.beta[:hc], fresh.known, target.state_normaliser)
    after = Jumped(
        first,
        a_fresh[:hc],
        s_plus,
        draws.beta[:hc],
        draws.gamma[:hc],
        ready=jnp.ones((), bool),
    )
    return jax.lax.stop_gradient((batch, used, terms, after))


def targets(
    target: GeometricHorizonModel,
    batch: GHMBatch,
    draws: Draws,
    key: PRNGKeyArray,
    config: GHMConfig,
    policy: SupportsSample,
    waiting: Jumped | None,
) -> tuple[GHMBatch, Draws, Terms, Jumped | None]:
    """Return ``regressions_ahead``, or within the step what ``losses.regressions`` returns."""
    if waiting is None:
        return batch, draws, regressions(target, batch, draws, key, config, policy), None
    return regressions_ahead(target, batch, draws, key, config, policy, waiting)
