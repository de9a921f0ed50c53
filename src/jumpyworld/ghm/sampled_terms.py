"""The TD-HC loss with one term per row, drawn with its weight, instead of all terms weighted.

      E_{gamma ~ p} [ (1 - gamma) one-step + gamma bootstraps ]
    = E[1 - gamma] E_{gamma ~ (1 - gamma) p} [one-step] + E[gamma] E_{gamma ~ gamma p} [bootstraps]

so a fixed share E[1 - gamma] of the rows learns the one-step term alone, at discounts drawn where
that term matters, and the rest bootstraps. A consistency row that bootstraps draws whether it takes
the second or the third term, with odds (1 - gamma) to (gamma - beta). Rows weigh about the same: no
work is done for a term that is then multiplied by .004. At the paper's law of discounts half of the
target network's work is saved, and more than half of the online network's.

Deviation: same expectation as Eq. td-hc and Algorithm 1, another estimator; ``terms="sampled"``.

Rows stand in this order: consistency, plain, one-step (all with a z), then unconditional bootstraps
and unconditional one-steps. Shapes: B rows, d state dimensions.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

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
        uncond_bootstrap: unconditional rows that bootstrap.
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
        uncond = rows.unconditional - one_steps(rows.unconditional)
        conditional = rows.conditional - hc - plain
        return cls(hc, plain, conditional, uncond, rows.unconditional - uncond, share, nominal)

    @property
    def weights(self) -> np.ndarray:
        """The weight of each row's error in the loss, in the order of the rows; they sum to one."""
        hc, plain, uncond = np.asarray(self.nominal) / sum(self.nominal)
        kinds = (
            (self.hc, hc * (1.0 - self.share)),
            (self.plain, plain * (1.0 - self.share)),
            (self.one_step, (hc + plain) * self.share),
            (self.uncond_bootstrap, uncond * (1.0 - self.share)),
            (self.uncond_one_step, uncond * self.share),
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


def sampled_terms_loss(
    model: GeometricHorizonModel,
    target: GeometricHorizonModel,
    batch: GHMBatch,
    key: PRNGKeyArray,
    config: GHMConfig,
    policy: SupportsSample,
) -> tuple[Float[Array, ""], Metrics]:
    """Return an unbiased estimate of ``losses.td_hc_loss`` that computes one term per row.

    Args:
        model: online network.
        target: target network; no gradient reaches it.
        batch: B rows; the last ``config.layout.unconditional`` are asked without z and action.
        key: randomness.
        config: layout, laws, solver.
        policy: whose future is learnt.
    """
    if config.precision == "bf16":
        model, target = (net.with_inner_layers(jnp.bfloat16) for net in (model, target))
    layout, rows = SampledLayout.of(config), config.batch_size
    keys = jax.random.split(key, 5)
    boot = layout.bootstraps
    ones = np.setdiff1d(np.arange(rows), boot)
    gamma = jnp.zeros(rows).at[boot].set(sample_tilted(keys[0], len(boot), config, bootstrap=True))
    gamma = gamma.at[ones].set(sample_tilted(keys[3], len(ones), config, bootstrap=False))
    t = jax.random.uniform(keys[1], (rows,))
    x1 = target.state_normaliser.normalise(batch.next_observations[ones])
    noise = jax.random.normal(keys[4], x1.shape)
    one_step = jax.lax.stop_gradient(one_step_target(x1, noise, t[ones]))
    drawn = jax.lax.stop_gradient(
        _bootstrap(target, batch, boot, gamma[boot], t[boot], keys[2], config, layout, policy)
    )
    c = layout.conditional
    condition = batch_condition(model, batch.observations, batch.actions[:c], batch.z[:c], gamma)
    order = np.concatenate([boot, ones])
    points, wanted = (
        jnp.concatenate([getattr(drawn, name), getattr(one_step, name)])
        for name in ("x", "velocity")
    )
    spread = jax.tree.map(lambda leaf: leaf[order], (t, condition))
    v = jax.vmap(model.velocity)(points, *spread)
    error = jnp.sum(jnp.square(v - wanted), axis=-1)
    if config.reduction == "mean":
        error = error / v.shape[-1]
    bootstrap, one = jnp.split(error, [len(boot)])
    loss = jnp.sum(jnp.asarray(layout.weights[order], error.dtype) * error)
    return loss, {
        "loss/one_step": jnp.mean(one),
        "loss/bootstrap": jnp.mean(bootstrap),
        "loss/unconditional": jnp.mean(bootstrap[layout.hc + layout.plain :]),
        "velocity/online_norm": jnp.mean(jnp.sqrt(jnp.sum(jnp.square(v), axis=-1))),
        "velocity/target_norm": jnp.mean(jnp.sqrt(jnp.sum(jnp.square(drawn.velocity), axis=-1))),
        "discount/gamma_mean": jnp.mean(gamma),
    }


def _bootstrap(
    target: GeometricHorizonModel,
    batch: GHMBatch,
    boot: np.ndarray,
    gamma: Float[Array, " R"],
    t: Float[Array, " R"],
    key: PRNGKeyArray,
    config: GHMConfig,
    layout: SampledLayout,
    policy: SupportsSample,
) -> Regression:
    """Return the second or third term's regression of each row that bootstraps."""
    hc, c, steps = layout.hc, layout.hc + layout.plain, config.train_steps
    keys = jax.random.split(key, 6)
    s_next, z = batch.next_observations[boot], batch.z[boot[:c]]
    ends = (config.gamma_min, config.gamma_max)
    beta = sample_discounts(keys[0], gamma[:hc], config.beta_sampler, *ends)
    # Given that a row bootstraps, it jumps first with chance (gamma - beta) / (1 - beta).
    jumps = jax.random.uniform(keys[1], beta.shape) < (gamma[:hc] - beta) / (1.0 - beta)
    a_next = policy.sample(keys[2], s_next[:c], z)
    condition = batch_condition(target, s_next, a_next, z, jnp.concatenate([beta, gamma[hc:]]))

    def flow(x0, t_end, condition):
        def solve(x0, t_end, condition):
            grid = "fixed" if config.bootstrap_grid == "fixed" else "scaled"
            return target.flow(x0, t_end, condition, num_steps=steps, grid=grid)

        return jax.vmap(solve)(x0, t_end, condition)

    shape = (len(boot), target.observation_dim)
    ends_at = t.at[:hc].set(jnp.where(jumps, 1.0, t[:hc]))
    x = flow(jax.random.normal(keys[3], shape), ends_at, condition)
    v = jax.vmap(target.velocity)(x, t, condition)
    if hc == 0:
        return Regression(x, v)
    s_plus = target.state_normaliser.denormalise(x[:hc])
    a_plus = policy.sample(keys[4], s_plus, z[:hc])
    encoded = jax.vmap(target.encode)(s_plus, a_plus, z[:hc])
    after = jax.vmap(target.condition)(encoded, s_plus, gamma[:hc])
    x_after = flow(jax.random.normal(keys[5], (hc, shape[1])), t[:hc], after)
    v_after = jax.vmap(target.velocity)(x_after, t[:hc], after)
    picked = jumps[:, None]
    return Regression(
        x.at[:hc].set(jnp.where(picked, x_after, x[:hc])),
        v.at[:hc].set(jnp.where(picked, v_after, v[:hc])),
    )
