"""The TD-HC loss, one function per term; TD-Flow is the case without consistency rows.

    for each row k, with t, gamma and beta <= gamma drawn once and noise afresh for each term:
      one-step          X_t = (1-t) X_0 + t S'              target  S' - X_0
      beta-bootstrap    X_t = psi_t(X_0 | S', A', beta)     target  v_t(X_t | S', A', beta)
      gamma-bootstrap   S+  = psi_1(X_0'' | S', A', beta),  A+ ~ pi_z(S+)
                        X_t = psi_t(X_0 | S+, A+, gamma)    target  v_t(X_t | S+, A+, gamma)
      loss_k = sum over terms of weight(beta, gamma) * |v_t(X_t | S, A, gamma) - target|^2

Paper: Eq. td-hc and Algorithm 1 (Eq. td-flow for beta = gamma). Targets come from the target
network and carry no gradient. The first rows of a batch have beta < gamma; on all others
beta = gamma, the second weight is gamma and the third is 0, so that term is not computed at all.

The beta-bootstrap and the jump S+ follow the same field from the same state, one to t and one to 1,
so both are rows of one ODE solve. With ``bootstrap_grid="through"`` they are the same row: S+ is
the end of the path whose velocity at t is the second term's target. Each term keeps its
expectation; the noise of the two is no longer independent.

``bootstrap_grid="every"`` learns from all N = ``train_steps`` points of such a path, whose
velocities are known anyway: the times of a row are (u + i) / N for i below N, with u in the place
of t, and its loss is the mean over them. One of them, drawn at random, is a uniform time on the
grid that ``through`` would have, so the expectation is that of ``through``. The one-step term is
taken at the same times, on one straight path.

Deviation: A' ~ pi_z(. | S') as in Eq. td-hc, where Algorithm 1 takes the dataset's. Unconditional
rows lose the action as well as z, as in the proposal figure, so they need no A'; with
``mask_action=False`` they keep the action and bootstrap with the dataset's, as in the text. With
``uncond_source="trajectory"`` their S' is the state at a geometric time of the same trajectory: a
sample of the measure itself, with the whole weight on the first term; where the trajectory ended
before, S' is its last state, with the whole weight on the second.

Everything about x is in the model's normalised units; policies see and return raw units.
Shapes: B rows, H consistency rows, C rows with a z, d state, da action, dz encoding dimensions.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jumpyworld.flows import interpolate, target_velocity
from jumpyworld.ghm.batch import Draws, GHMBatch, SupportsSample, sample_draws
from jumpyworld.ghm.config import GHMConfig
from jumpyworld.ghm.landing import land
from jumpyworld.ghm.model import Condition, GeometricHorizonModel

Metrics = dict[str, Float[Array, ""]]


class Regression(eqx.Module):
    """Points and the velocities to learn there, in normalised units.

    The points are the term's rows in their order; with several times per row, all rows at the
    first time, then all at the second, and so on.

    Attributes:
        x: X_t [points, d].
        velocity: target [points, d].
        t: times [points].
    """

    x: Float[Array, "points d"]
    velocity: Float[Array, "points d"]
    t: Float[Array, " points"]


Terms = tuple[Regression, Regression, Regression | None]
"""One-step, beta-bootstrap and gamma-bootstrap; None without consistency rows."""


def mixture_weights(beta, gamma, span=None):
    """Return the weights of the three TD-HC terms; they sum to one.

    Paper: Eqs. hc-bellman and td-hc. At ``beta == gamma`` they are exactly (1 - gamma, gamma, 0),
    the weights of TD-Flow. Works on floats and on NumPy and JAX arrays, and keeps their dtype.

    Args:
        beta: shorter discount, ``0 <= beta <= gamma``.
        gamma: discount being learnt, in ``[0, 1)``.
        span: steps after which the bootstraps start, whole numbers; None for one (paper). See
            ``hindsight``.

    Returns:
        Weights of the one-step, beta-bootstrap and gamma-bootstrap terms.
    """
    later = gamma if span is None else gamma**span
    return (
        1.0 - later,
        later * ((1.0 - gamma) / (1.0 - beta)),
        later * ((gamma - beta) / (1.0 - beta)),
    )


def one_step_target(
    s_next: Float[Array, "B d"], x0: Float[Array, "B d"], t: Float[Array, " B"]
) -> Regression:
    """Return the one-step term's regression: conditional flow matching on the next state.

    Paper: Eq. td-hc, first term.

    Args:
        s_next: S' in normalised units [B, d].
        x0: noise [B, d].
        t: times [B].
    """
    return Regression(interpolate(x0, s_next, t), target_velocity(x0, s_next), t)


def beta_bootstrap_target(
    target: GeometricHorizonModel,
    next_condition: Condition,
    x0: Float[Array, "B d"],
    t: Float[Array, " B"],
    x0_jump: Float[Array, "H d"],
    config: GHMConfig,
) -> tuple[Regression, Float[Array, "H d"]]:
    """Return the beta-bootstrap's regression: the target's own flow, one step later; and jumps.

    Paper: Eq. td-hc, second term; with beta = gamma the second term of Eq. td-flow. The jumps are
    S+ ~ psi_1(. | S', A', beta) of its third term, S'' in Algorithm 1.

    Args:
        target: target network.
        next_condition: of (S', A', beta) under the target, batched [B].
        x0: noise [B, d].
        t: times, or shifts of the grids [B].
        x0_jump: noise of the jumps, which start from the first H rows [H, d].
        config: ODE steps and solver.

    Returns:
        The regression [B points per time], and the jumps in normalised units [H, d].
    """
    hc, steps = len(x0_jump), config.train_steps
    if config.bootstrap_grid == "through":
        through = jax.vmap(lambda x0, t, c: target.flow_through(x0, t, c, num_steps=steps))
        x_t, v_t, end = through(x0, t, next_condition)
        return Regression(x_t, v_t, t), end[:hc]
    if config.bootstrap_grid == "every":
        along = jax.vmap(
            lambda x0, u, c: target.flow_along(x0, u, c, num_steps=steps), out_axes=(1, 1, 1, 0)
        )
        *points, end = along(x0, t, next_condition)
        return Regression(*(jnp.concatenate(leaf) for leaf in points)), end[:hc]
    grid = config.bootstrap_grid
    flow = jax.vmap(lambda x0, t, c: target.flow(x0, t, c, num_steps=steps, grid=grid))
    both = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf[:hc]]), next_condition)
    ends = jnp.concatenate([t, jnp.ones_like(t[:hc])])
    x = flow(jnp.concatenate([x0, x0_jump]), ends, both)
    x_t, jumps = x[: len(x0)], x[len(x0) :]
    return Regression(x_t, jax.vmap(target.velocity)(x_t, t, next_condition), t), jumps


def gamma_bootstrap_target(
    target: GeometricHorizonModel,
    s_plus: Float[Array, "H d"],
    a_plus: Float[Array, "H da"],
    z: Float[Array, "H dz"],
    gamma: Float[Array, " H"],
    x0: Float[Array, "H d"],
    t: Float[Array, " H"],
    config: GHMConfig,
) -> Regression:
    """Return the gamma-bootstrap's regression: the target's flow from where the jump ended.

    Paper: Eq. td-hc, third term.

    Args:
        target: target network.
        s_plus: S+ in raw units [H, d].
        a_plus: A+ ~ pi_z(. | S+) [H, da].
        z: policy encodings [H, dz].
        gamma: discounts [H].
        x0: noise [H, d].
        t: times, or shifts of the grids [H].
        config: ODE steps and solver.
    """
    encoded = jax.vmap(target.encode)(s_plus, a_plus, z)
    condition = jax.vmap(target.condition)(encoded, s_plus, gamma)
    return beta_bootstrap_target(target, condition, x0, t, x0[:0], config)[0]


def batch_condition(
    model: GeometricHorizonModel,
    states: Float[Array, "B d"],
    actions: Float[Array, "rows da"],
    z: Float[Array, "C dz"],
    gamma: Float[Array, " B"],
) -> Condition:
    """Return the conditions of a batch whose rows from C on are unconditional.

    Args:
        model: online or target network.
        states: raw units [B, d].
        actions: raw units; [C, da] where unconditional rows have none, else [B, da].
        z: raw units, of the first C rows [C, dz].
        gamma: discounts [B].
    """
    c = z.shape[0]
    rest = actions[c:] if actions.shape[0] > c else None
    encoded = jnp.concatenate(
        [
            jax.vmap(model.encode)(states[:c], actions[:c], z),
            jax.vmap(model.encode)(states[c:], rest, None),
        ]
    )
    return jax.vmap(model.condition)(encoded, states, gamma)


def regressions(
    target: GeometricHorizonModel,
    batch: GHMBatch,
    draws: Draws,
    key: PRNGKeyArray,
    config: GHMConfig,
    policy: SupportsSample,
) -> Terms:
    """Return the regressions of the three terms; all of it is the target network's work.

    Args:
        target: target network.
        batch: rows in the order of ``config.layout``.
        draws: times, discounts and noise.
        key: randomness of the policy.
        config: layout and solver.
        policy: whose future is learnt.

    Returns:
        One-step and beta-bootstrap [B] and gamma-bootstrap [H] regressions, as many times as a row
        has times; None for the last without consistency rows. No gradient passes them.
    """
    target = rounded(target, config)
    hc, c = config.layout.hc, config.layout.conditional
    next_key, plus_key = jax.random.split(key)
    s_next, z = batch.next_observations, batch.z[:c]
    a_next = policy.sample(next_key, s_next[:c], z)
    if not config.mask_action:
        a_next = jnp.concatenate([a_next, batch.next_actions[c:]])
    condition = batch_condition(target, s_next, a_next, z, draws.beta)

    beta, jumps = beta_bootstrap_target(
        target, condition, draws.x0_beta, draws.t, draws.x0_jump, config
    )
    # At the times of the bootstraps; one noise per row, so its points lie on one straight path.
    ends = draws.x0_one_step, target.state_normaliser.normalise(batch.one_step)
    x0, x1 = (jnp.concatenate([x] * config.times_per_row) for x in ends)
    one_step = one_step_target(x1, x0, beta.t)
    if hc == 0:
        return jax.lax.stop_gradient((one_step, beta, None))
    s_plus = land(jumps, draws.beta[:hc], batch.known, target.state_normaliser)
    a_plus = policy.sample(plus_key, s_plus, z[:hc])
    gamma = gamma_bootstrap_target(
        target, s_plus, a_plus, z[:hc], draws.gamma[:hc], draws.x0_gamma, draws.t[:hc], config
    )
    return jax.lax.stop_gradient((one_step, beta, gamma))


def rounded(model: GeometricHorizonModel, config: GHMConfig) -> GeometricHorizonModel:
    """Return the model in the precision that its training computes in."""
    return model if config.precision == "fp32" else model.with_inner_layers(jnp.bfloat16)


def matching_loss(
    model: GeometricHorizonModel,
    target: GeometricHorizonModel,
    batch: GHMBatch,
    draws: Draws,
    key: PRNGKeyArray,
    config: GHMConfig,
    policy: SupportsSample,
) -> tuple[Float[Array, ""], Metrics]:
    """Return the TD-HC loss for given draws; see ``td_hc_loss``."""
    terms = regressions(target, batch, draws, key, config, policy)
    return regression_loss(model, terms, batch, draws, config)


def regression_loss(
    model: GeometricHorizonModel, terms: Terms, batch: GHMBatch, draws: Draws, config: GHMConfig
) -> tuple[Float[Array, ""], Metrics]:
    """Return the weighted sum of the terms' errors; all of it is the online network's work.

    Paper: Eq. td-hc, given its targets.
    """
    hc, c = config.layout.hc, config.layout.conditional
    model = rounded(model, config)
    _, beta, gamma = terms
    actions = batch.actions[:c] if config.mask_action else batch.actions
    condition = batch_condition(model, batch.observations, actions, batch.z[:c], draws.gamma)
    # One pass over the points of all terms: a third of the launches of one pass each.
    there = [term for term in terms if term is not None]
    n = config.times_per_row
    counts = [len(term.x) // n for term in there]
    points = jax.tree.map(lambda *parts: jnp.concatenate(parts), *there)
    spread = jax.tree.map(
        lambda leaf: jnp.concatenate([leaf[:rows] for rows in counts for _ in range(n)]), condition
    )
    v = jax.vmap(model.velocity)(points.x, points.t, spread)
    square = jnp.square(v - points.velocity)
    if config.loss_units == "frame":
        square = square / jax.vmap(model.frame.unit)(points.t, spread.displacement) ** 2
    if config.step_power > 0:
        square = square * model.frame.dimension_weights(config.step_power)[None]
    error = jnp.sum(square, axis=-1)
    if config.reduction == "mean":
        error = error / v.shape[-1]
    parts = jnp.split(error, [n * counts[0], n * (counts[0] + counts[1])])
    errors = [jnp.mean(part.reshape(n, -1), axis=0) for part in parts]

    w_one, w_beta, w_gamma = mixture_weights(draws.beta, draws.gamma, batch.span)
    if batch.masks is not None:
        w_beta, w_gamma = batch.masks * w_beta, batch.masks * w_gamma
        w_one = 1.0 - w_beta - w_gamma
    if batch.inside is not None:
        inside = batch.inside.astype(w_one.dtype)
        w_one, w_beta = w_one.at[c:].set(inside), w_beta.at[c:].set(1.0 - inside)
    total = jnp.sum(w_one * errors[0]) + jnp.sum(w_beta * errors[1])
    metrics = {}
    if gamma is not None:
        total = total + jnp.sum(w_gamma[:hc] * errors[2])
        metrics = {"loss/gamma_bootstrap": jnp.mean(errors[2])}
    loss = total / config.batch_size
    return loss, {
        **metrics,
        "loss/one_step": jnp.mean(errors[0]),
        "loss/beta_bootstrap": jnp.mean(errors[1]),
        "loss/unconditional": jnp.sum(errors[1][c:]) / max(config.batch_size - c, 1),
        "velocity/online_norm": _mean_norm(v),
        "velocity/target_norm": _mean_norm(beta.velocity),
        "discount/gamma_mean": jnp.mean(draws.gamma),
        "discount/beta_mean": jnp.mean(draws.beta),
    }


def td_hc_loss(
    model: GeometricHorizonModel,
    target: GeometricHorizonModel,
    batch: GHMBatch,
    key: PRNGKeyArray,
    config: GHMConfig,
    policy: SupportsSample,
) -> tuple[Float[Array, ""], Metrics]:
    """Return the TD-HC loss of one batch; with ``hc_fraction=0`` it is the TD-Flow loss.

    Paper: Eq. td-hc over the batch of Algorithm 1.

    Args:
        model: online network, theta.
        target: target network, theta-bar; no gradient reaches it.
        batch: B rows; the first are consistency rows, the last unconditional ones.
        key: randomness.
        config: layout, laws, solver, reduction.
        policy: whose future is learnt.

    Returns:
        Mean loss over rows, and metrics as scalars.
    """
    draw_key, policy_key = jax.random.split(key)
    draws = sample_draws(draw_key, config, model.observation_dim, batch.observations.dtype)
    return matching_loss(model, target, batch, draws, policy_key, config, policy)


def _mean_norm(v: Float[Array, "rows d"]) -> Float[Array, ""]:
    return jnp.mean(jnp.sqrt(jnp.sum(jnp.square(v), axis=-1)))
