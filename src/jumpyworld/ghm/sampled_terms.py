"""The TD-HC loss with one term per row, drawn with its weight, instead of all terms weighted.

      E_{gamma ~ p} [ (1 - gamma) one-step + gamma bootstraps ]
    = E[1 - gamma] E_{gamma ~ (1 - gamma) p} [one-step] + E[gamma] E_{gamma ~ gamma p} [bootstraps]

so a fixed share E[1 - gamma] of the rows learns the one-step term alone, at discounts drawn where
that term matters, and the rest bootstraps. A consistency row that bootstraps draws whether it takes
the second or the third term, with odds (1 - gamma) to (gamma - beta). Rows weigh about the same: no
work is done for a term that is then multiplied by .004. At the paper's law of discounts half of the
target network's work is saved, and more than half of the online network's.

With ``jumps="ahead"`` a consistency row is drawn, and jumps, one step before it is learnt from: its
S+ then comes from the target of that step, and no ODE solve waits for another.

Deviation: same expectation as Eq. td-hc and Algorithm 1, another estimator; ``terms="sampled"``.

Rows stand in this order: consistency, plain, one-step (all with a z), then unconditional bootstraps
and unconditional one-steps. Shapes: B rows, d state dimensions.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from jumpyworld.errors import ConfigError
from jumpyworld.ghm.batch import GHMBatch, SupportsSample
from jumpyworld.ghm.config import GHMConfig
from jumpyworld.ghm.discounts import law_cdf, sample_discounts
from jumpyworld.ghm.losses import Metrics, Regression, batch_condition, one_step_target
from jumpyworld.ghm.model import GeometricHorizonModel

GRID = 4096


@dataclass(frozen=True)
class SampledLayout:
    """Rows of a batch by kind, in their order.

    Counts are rounded; ``weights`` gives every kind its exact share of the loss all the same.

    Attributes:
        hc: rows that bootstrap with beta < gamma.
        plain: rows that bootstrap with beta = gamma.
        one_step: rows with a z that learn the next state.
        uncond_bootstrap: unconditional rows that bootstrap; with ``uncond_source="trajectory"``
            all of them, of which those whose trajectory goes on long enough then learn from it.
        uncond_one_step: unconditional rows that learn the next state.
        share: E[1 - gamma], the one-step term's share of the loss.
        nominal: rows of the weighted loss by kind: consistency, plain, unconditional.
    """

    hc: int
    plain: int
    one_step: int
    uncond_bootstrap: int
    uncond_one_step: int
    share: float
    nominal: tuple[int, int, int]

    @classmethod
    def of(cls, config: GHMConfig) -> "SampledLayout":
        """Split the batch of a configuration; every kind that it has gets at least one row.

        Raises:
            ConfigError: a kind has a single row, which cannot be both.
        """
        gamma, cdf = _law(config)
        share = float(np.sum(np.diff(cdf) * (1.0 - 0.5 * (gamma[1:] + gamma[:-1]))))
        rows = config.layout
        nominal = (rows.hc, rows.plain, rows.unconditional)
        if 1 in nominal:
            raise ConfigError(
                f"batch_size={config.batch_size}: terms=sampled needs no or at least two rows of "
                f"each kind, not {nominal} (consistency, plain, unconditional)"
            )

        def one_steps(count: int) -> int:
            return min(max(round(share * count), 1), count - 1) if count else 0

        hc = rows.hc - one_steps(rows.hc)
        plain = rows.plain - one_steps(rows.plain)
        uncond = rows.unconditional
        if config.uncond_source == "bootstrap":
            uncond -= one_steps(rows.unconditional)
        conditional = rows.conditional - hc - plain
        return cls(hc, plain, conditional, uncond, rows.unconditional - uncond, share, nominal)

    @property
    def weights(self) -> np.ndarray:
        """The weight of each row's error in the loss, in the order of the rows; they sum to one."""
        hc, plain, uncond = np.asarray(self.nominal) / sum(self.nominal)
        uncond_share = self.share if self.uncond_one_step else 0.0
        kinds = (
            (self.hc, hc * (1.0 - self.share)),
            (self.plain, plain * (1.0 - self.share)),
            (self.one_step, (hc + plain) * self.share),
            (self.uncond_bootstrap, uncond * (1.0 - uncond_share)),
            (self.uncond_one_step, uncond * uncond_share),
        )
        return np.concatenate([np.full(count, mass / max(count, 1)) for count, mass in kinds])

    @property
    def conditional(self) -> int:
        """Rows that have a z."""
        return self.hc + self.plain + self.one_step

    @property
    def bootstraps(self) -> np.ndarray:
        """Which rows bootstrap, in their order."""
        without_z = self.conditional + np.arange(self.uncond_bootstrap)
        return np.concatenate([np.arange(self.hc + self.plain), without_z])

    @property
    def one_steps(self) -> np.ndarray:
        """Which rows learn the next state, in their order."""
        return np.setdiff1d(np.arange(sum(self.nominal)), self.bootstraps)


def _law(config: GHMConfig) -> tuple[np.ndarray, np.ndarray]:
    """Return a grid of discounts, fine where horizons are long, and the law's CDF on it."""
    low, high = -np.log1p(-config.gamma_min), -np.log1p(-config.gamma_max)
    gamma = -np.expm1(-np.linspace(low, high, GRID))
    return gamma, law_cdf(gamma, config.gamma_sampler, config.gamma_min, config.gamma_max)


def sample_tilted(
    key: PRNGKeyArray, count: int, config: GHMConfig, *, bootstrap: bool
) -> Float[Array, " count"]:
    """Draw discounts from the configured law times gamma (bootstraps) or 1 - gamma (one-steps)."""
    gamma, cdf = _law(config)
    middle = 0.5 * (gamma[1:] + gamma[:-1])
    mass = np.diff(cdf) * (middle if bootstrap else 1.0 - middle)
    tilted = np.concatenate([[0.0], np.cumsum(mass) / mass.sum()])
    u = jax.random.uniform(key, (count,))
    return jnp.interp(u, jnp.asarray(tilted, jnp.float32), jnp.asarray(gamma, jnp.float32))


def draw_discounts(key: PRNGKeyArray, config: GHMConfig) -> Float[Array, " B"]:
    """Draw every row's discount, where its kind of term matters."""
    layout, keys = SampledLayout.of(config), jax.random.split(key, 3)
    boot, ones, c = layout.bootstraps, layout.one_steps, layout.conditional
    gamma = jnp.zeros(config.batch_size)
    gamma = gamma.at[boot].set(sample_tilted(keys[0], len(boot), config, bootstrap=True))
    gamma = gamma.at[ones].set(sample_tilted(keys[1], len(ones), config, bootstrap=False))
    if config.uncond_source == "trajectory":
        top = jnp.full((config.batch_size - c,), config.gamma_max)
        ends = (config.gamma_min, config.gamma_max)
        gamma = gamma.at[c:].set(sample_discounts(keys[2], top, config.gamma_sampler, *ends))
    return gamma


class Jumped(eqx.Module):
    """Consistency rows that know where they bootstrap: after their jump, or from S' itself.

    Attributes:
        s, a, z, gamma: what the online network is asked about [H, ...].
        s_boot, a_boot, discount: where the target's flow starts: (S', A', beta) or (S+, A+, gamma).
        ready: whether the rows hold anything yet; before the first step they do not.
    """

    s: Float[Array, "H d"]
    a: Float[Array, "H da"]
    z: Float[Array, "H dz"]
    gamma: Float[Array, " H"]
    s_boot: Float[Array, "H d"]
    a_boot: Float[Array, "H da"]
    discount: Float[Array, " H"]
    ready: Bool[Array, ""]

    @classmethod
    def none_yet(cls, rows: int, d: int, da: int, dz: int) -> "Jumped":
        """Return what ``jumps="ahead"`` starts with."""
        shapes = ((rows, d), (rows, da), (rows, dz), (rows,), (rows, d), (rows, da), (rows,))
        return cls(*map(jnp.zeros, shapes), ready=jnp.zeros((), bool))


class Terms(eqx.Module):
    """One regression per row; those with a z come first.

    Attributes:
        s: S, raw units [B, d].
        a, z: of the rows that have them [C, ...].
        gamma, t: discounts and flow times [B].
        points: X_t and velocities to learn [B, d].
        weight: of the row's error in the loss [B].
    """

    s: Float[Array, "B d"]
    a: Float[Array, "C da"]
    z: Float[Array, "C dz"]
    gamma: Float[Array, " B"]
    t: Float[Array, " B"]
    points: Regression
    weight: Float[Array, " B"]


def sampled_terms_loss(
    model: GeometricHorizonModel, terms: Terms, config: GHMConfig
) -> tuple[Float[Array, ""], Metrics]:
    """Return an unbiased estimate of ``losses.td_hc_loss``, given what ``draw_terms`` drew."""
    if config.precision == "bf16":
        model = model.with_inner_layers(jnp.bfloat16)
    layout = SampledLayout.of(config)
    condition = batch_condition(model, terms.s, terms.a, terms.z, terms.gamma)
    v = jax.vmap(model.velocity)(terms.points.x, terms.t, condition)
    error = jnp.sum(jnp.square(v - terms.points.velocity), axis=-1)
    if config.reduction == "mean":
        error = error / v.shape[-1]
    loss = jnp.sum(terms.weight * error)
    boot, ones, c = layout.bootstraps, layout.one_steps, layout.conditional
    return loss, {
        "loss/one_step": jnp.mean(error[ones]),
        "loss/bootstrap": jnp.mean(error[boot]),
        "loss/unconditional": jnp.sum(error[c:]) / max(config.batch_size - c, 1),
        "velocity/online_norm": _mean_norm(v),
        "velocity/target_norm": _mean_norm(terms.points.velocity),
        "discount/gamma_mean": jnp.mean(terms.gamma),
    }


def draw_terms(
    target: GeometricHorizonModel,
    batch: GHMBatch,
    gamma: Float[Array, " B"],
    key: PRNGKeyArray,
    config: GHMConfig,
    policy: SupportsSample,
    before: Jumped | None = None,
) -> tuple[Terms, Jumped | None]:
    """Draw one term per row and compute its regression: all of the target network's work.

    Args:
        target: target network.
        batch: B rows; the last ``config.layout.unconditional`` are asked without z and action.
        gamma: ``draw_discounts(...)`` [B].
        key: randomness.
        config: layout, laws, solver.
        policy: whose future is learnt.
        before: for ``jumps="ahead"``, the consistency rows of the step before.

    Returns:
        The terms, and for ``jumps="ahead"`` the consistency rows of the next step.
    """
    if config.precision == "bf16":
        target = target.with_inner_layers(jnp.bfloat16)
    layout, rows = SampledLayout.of(config), config.batch_size
    t_key, noise_key, bootstrap_key = jax.random.split(key, 3)
    boot, ones = layout.bootstraps, layout.one_steps
    t = jax.random.uniform(t_key, (rows,))
    x1 = target.state_normaliser.normalise(batch.next_observations)
    direct = one_step_target(x1, jax.random.normal(noise_key, x1.shape), t)
    points, now, after = _bootstrap(
        target, batch, gamma[boot], t[boot], bootstrap_key, config, layout, policy, before
    )
    hc, c = layout.hc, layout.conditional
    cut, cut_ones = layout.hc + layout.plain, layout.one_step
    if batch.inside is not None:
        reached = batch.inside[:, None]
        points = jax.tree.map(
            lambda boots, all_rows: boots.at[cut:].set(
                jnp.where(reached, all_rows[c:], boots[cut:])
            ),
            points,
            direct,
        )
    one_step = jax.tree.map(lambda leaf: leaf[ones], direct)

    def in_order(boots, ones):
        return jnp.concatenate([boots[:cut], ones[:cut_ones], boots[cut:], ones[cut_ones:]])

    weight = jnp.asarray(layout.weights, jnp.float32)
    weight = weight.at[:hc].multiply(now.ready.astype(jnp.float32))
    terms = Terms(
        s=batch.observations.at[:hc].set(now.s),
        a=batch.actions[:c].at[:hc].set(now.a),
        z=batch.z[:c].at[:hc].set(now.z),
        gamma=gamma.at[:hc].set(now.gamma),
        t=t,
        points=jax.tree.map(in_order, points, one_step),
        weight=weight,
    )
    return jax.lax.stop_gradient((terms, after))


def _bootstrap(
    target: GeometricHorizonModel,
    batch: GHMBatch,
    gamma: Float[Array, " R"],
    t: Float[Array, " R"],
    key: PRNGKeyArray,
    config: GHMConfig,
    layout: SampledLayout,
    policy: SupportsSample,
    before: Jumped | None,
) -> tuple[Regression, Jumped, Jumped | None]:
    """Return the regressions of rows that bootstrap, their consistency rows, and the next ones.

    With ``jumps="ahead"`` the jumps of new consistency rows are rows of the same ODE solve as all
    bootstraps, and are used by the next step: half of the evaluations in a row.
    """
    hc, c = layout.hc, layout.hc + layout.plain
    boot = layout.bootstraps
    keys = jax.random.split(key, 6)
    s_next, z = batch.next_observations[boot], batch.z[:c]
    ends = (config.gamma_min, config.gamma_max)
    beta = sample_discounts(keys[0], gamma[:hc], config.beta_sampler, *ends)
    # Given that a row bootstraps, it jumps first with chance (gamma - beta) / (1 - beta).
    jumps = jax.random.uniform(keys[1], beta.shape) < (gamma[:hc] - beta) / (1.0 - beta)
    a_next = policy.sample(keys[2], s_next[:c], z)

    def flow(x0, t_end, condition):
        grid = "fixed" if config.bootstrap_grid == "fixed" else "scaled"
        steps = config.train_steps
        return jax.vmap(lambda *row: target.flow(*row, num_steps=steps, grid=grid))(
            x0, t_end, condition
        )

    def noise(key, rows):
        return jax.random.normal(key, (rows, target.observation_dim))

    def jumped(x) -> Jumped:
        s_plus = target.state_normaliser.denormalise(x)
        a_plus = policy.sample(keys[4], s_plus, z[:hc])
        pick = jumps[:, None]
        return Jumped(
            s=batch.observations[:hc],
            a=batch.actions[:hc],
            z=z[:hc],
            gamma=gamma[:hc],
            s_boot=jnp.where(pick, s_plus, s_next[:hc]),
            a_boot=jnp.where(pick, a_plus, a_next[:hc]),
            discount=jnp.where(jumps, gamma[:hc], beta),
            ready=jnp.ones((), bool),
        )

    start = batch_condition(target, s_next[:hc], a_next[:hc], z[:hc], beta)
    if before is not None:
        now = before
    elif hc > 0:
        now = jumped(flow(noise(keys[5], hc), jnp.ones_like(beta), start))
    else:
        now = Jumped.none_yet(0, s_next.shape[1], a_next.shape[1], z.shape[1])
    condition = batch_condition(
        target,
        s_next.at[:hc].set(now.s_boot),
        a_next.at[:hc].set(now.a_boot),
        z.at[:hc].set(now.z),
        gamma.at[:hc].set(now.discount),
    )
    x0 = noise(keys[3], len(boot))
    if before is None:
        x, after = flow(x0, t, condition), None
    else:
        both = jax.tree.map(lambda *parts: jnp.concatenate(parts), condition, start)
        ends_at = jnp.concatenate([t, jnp.ones_like(beta)])
        x = flow(jnp.concatenate([x0, noise(keys[5], hc)]), ends_at, both)
        x, after = x[: len(boot)], jumped(x[len(boot) :])
    return Regression(x, jax.vmap(target.velocity)(x, t, condition)), now, after


def _mean_norm(v: Float[Array, "rows d"]) -> Float[Array, ""]:
    return jnp.mean(jnp.sqrt(jnp.sum(jnp.square(v), axis=-1)))
