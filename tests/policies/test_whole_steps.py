"""One whole step of each policy against NumPy: its goals, its losses and the rate of its target.

The rows, goals and noise are drawn here by the laws that the paper and the public code state, from
the keys that a step splits its own into; another law gives other goals, and so another loss. TD
critics are in ``test_td_losses``.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from loss_parts import (
    assert_target_moves,
    extraction_numpy,
    flow_numpy,
    fresh_optimiser,
    sigmoid,
    softplus,
    units_of,
)

from jumpyworld import policies
from jumpyworld.data.relabel import GoalMixture, sample_goal_indices
from jumpyworld.data.sampling import sample_transitions
from jumpyworld.policies import crl, networks, sharsa

SIZE, DISCOUNT, AHEAD = 64, 0.9, 10


class Step:
    """One step of an algorithm, and what a second version of it needs: draws and units."""

    def __init__(self, name, walks, shaken, quick, **changes):
        dataset, self.data, spec = walks
        algorithm = policies.get(name)
        base = {"batch_size": SIZE, "discount": DISCOUNT, "normalise": "standard"}
        self.config = algorithm.config.preset("debug", **{**base, **changes})
        self.before = fresh_optimiser(shaken(lambda k: algorithm.init(k, self.config, spec)))
        self.key = jax.random.key(2)
        step = quick(lambda s, k: algorithm.step(s, self.data, k, self.config))
        self.after, self.metrics = step(self.before, self.key)
        self.x = units_of(self.before, dataset.observations)
        self.a = dataset.actions.astype(np.float64)
        self._ends = np.repeat(dataset.ends, dataset.lengths + 1)

    def rows(self, key):
        return np.asarray(sample_transitions(self.data, key, SIZE).index)

    def goals(self, key, rows, **shares):
        kinds = dict.fromkeys(("current", "geometric", "uniform", "random"), 0.0)
        mixture = GoalMixture(**{**kinds, **shares}, discount=DISCOUNT)
        return np.asarray(sample_goal_indices(self.data, key, jnp.asarray(rows), mixture))

    def on_the_way(self, rows, goals=None):
        """AHEAD rows on, no further than the end, or than the goal where it lies in the future."""
        later = np.minimum(rows + AHEAD, self._ends[rows])
        if goals is None:
            return later
        return np.where((goals >= rows) & (goals <= later), goals, later)

    def check(self, **want):
        for name, value in want.items():
            got = self.metrics[name.replace("_", "/", 1)]
            np.testing.assert_allclose(got, value, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    "changes",
    [{}, {"critic": "binary", "negatives": "dataset"}, {"actor_aggregation": "min"}],
    ids=str,
)
def test_crl(walks, oracle, shaken, quick, changes):
    step = Step("crl", walks, shaken, quick, **changes)
    row_key, goal_key, negative_key, actor_key, loss_key = jax.random.split(step.key, 5)
    row = step.rows(row_key)
    goal = step.goals(goal_key, row, geometric=1.0)
    actor_goal = step.goals(actor_key, row, geometric=0.5, random=0.5)
    s, a, x = step.x[row], step.a[row], step.x
    critic = step.before.networks.critic
    how = np.min if "actor_aggregation" in changes else np.mean

    def f(s, a, g):
        phi, psi = oracle.ensemble(critic.phi, s, a), oracle.ensemble(critic.psi, g)
        return np.einsum("eim,ejm->eij", phi, psi) / np.sqrt(phi.shape[-1])

    logits = f(s, a, x[goal])
    if "negatives" in changes:
        others = f(s, a, x[step.goals(negative_key, row, random=1.0)])
        logits = np.where(np.eye(SIZE, dtype=bool), logits, others)
    own = np.diagonal(logits, axis1=1, axis2=2)
    top = np.log(np.exp(logits).sum(2))
    loss = (top - own).mean() + 0.1 * (top**2).mean()
    if "critic" in changes:
        loss = softplus(logits).mean() - own.sum() / logits.size
    step.check(critic_loss=loss, critic_accuracy=(logits.argmax(2) == np.arange(SIZE)).mean())
    step.check(
        **extraction_numpy(
            oracle,
            step.before.networks.actors,
            lambda action: how(np.diagonal(f(s, action, x[actor_goal]), axis1=1, axis2=2), 0),
            (s, a, x[actor_goal]),
            loss_key,
            step.config,
        )
    )


def test_binary_has_no_penalty_unless_given():
    config = crl.CRLConfig
    assert config().penalty == config.preset("paper").penalty == 0.1
    assert config(critic="binary").penalty == 0
    assert config(critic="binary", logsumexp_penalty=0.2).penalty == 0.2
    assert config(logsumexp_penalty=0.0).penalty == 0


def test_gcbc(walks, oracle, shaken, quick):
    step = Step("gcbc", walks, shaken, quick)
    row_key, goal_key, flow_key = jax.random.split(step.key, 3)
    row = step.rows(row_key)
    goal = step.goals(goal_key, row, geometric=1.0)
    noise = networks.draw_flow(flow_key, jnp.zeros((SIZE, 2)))
    field = step.before.policy.field
    step.check(actor_loss=flow_numpy(oracle, field, *noise, step.a[row], step.x[row], step.x[goal]))


def levels_numpy(step, oracle, key, policy, **shares):
    """The two cloning losses of HFBC and SHARSA, and the rows."""
    row_key, goal_key, high_key, low_key = jax.random.split(key, 4)
    row = step.rows(row_key)
    goal = step.goals(goal_key, row, **shares)
    s, way = step.x[row], step.x[step.on_the_way(row, goal)]
    high = networks.draw_flow(high_key, jnp.zeros((SIZE, 3)))
    low = networks.draw_flow(low_key, jnp.zeros((SIZE, 2)))
    ahead = step.x[step.on_the_way(row)]
    return row, {
        "high_loss": flow_numpy(oracle, policy.high, *high, way, s, step.x[goal]),
        "low_loss": flow_numpy(oracle, policy.low.field, *low, step.a[row], s, ahead),
    }


def test_hfbc(walks, oracle, shaken, quick):
    step = Step("hfbc", walks, shaken, quick, lookahead=AHEAD)
    _, want = levels_numpy(step, oracle, step.key, step.before.policy, geometric=1.0)
    step.check(**want)


def test_sharsa(walks, oracle, shaken, quick):
    changes = {"actor_goals": "geometric", "target_aggregation": "min", "actor_trajectory": 0.8}
    step = Step("sharsa", walks, shaken, quick, lookahead=AHEAD, **changes)
    batch_key, value_key = jax.random.split(step.key)
    before, x = step.before, step.x
    shares = {"geometric": 0.8, "random": 0.2}
    row, levels = levels_numpy(step, oracle, batch_key, before.policy.hierarchy, **shares)
    goal = step.goals(value_key, row, current=0.2, uniform=0.5, random=0.3)
    later = step.on_the_way(row, goal)
    next_v = sigmoid(oracle.net(before.value, x[later], x[goal])[:, 0])
    y = DISCOUNT ** (later - row) * np.where(later == goal, 1, next_v)
    logits = oracle.ensemble(before.policy.critic, x[row], x[later], x[goal])[..., 0]
    q = sigmoid(oracle.ensemble(before.target, x[row], x[later], x[goal])[..., 0])
    v = oracle.net(before.value, x[row], x[goal])[:, 0]
    step.check(
        critic_loss=(softplus(logits) - y * logits).mean(),
        value_loss=(softplus(v) - q.min(0) * v).mean(),
        **levels,
    )
    assert_target_moves(before.target, step.after.target, step.after.policy.critic, 0.05)


@pytest.mark.parametrize(
    "law, shares", [("uniform", (0, 0, 0.75, 0.25)), ("geometric", (0, 0.75, 0, 0.25))]
)
def test_laws_of_sharsas_high_level(law, shares):
    """The shares of current, geometric, uniform and random goals."""
    config = sharsa.SHARSAConfig(actor_trajectory=0.75, actor_goals=law, discount=DISCOUNT)
    mixture = sharsa.actor_mixture(config)
    assert mixture.shares == shares and mixture.discount == DISCOUNT


def test_hiql(walks, oracle, shaken, quick):
    step = Step("hiql", walks, shaken, quick, lookahead=AHEAD, representation_dim=4)
    row_key, value_key, actor_key = jax.random.split(step.key, 3)
    row = step.rows(row_key)
    goal = step.goals(value_key, row, current=0.2, geometric=0.5, random=0.3)
    high_goal = step.goals(actor_key, row, uniform=1.0)
    nets, x = step.before.networks, step.x
    s, s_next, g = x[row], x[row + 1], x[goal]
    low_g, high_g = x[step.on_the_way(row)], x[high_goal]
    way = x[step.on_the_way(row, high_goal)]

    def phi(s, g):
        out = oracle.net(nets.value.phi, s, g)
        return 2 * out / np.linalg.norm(out, axis=1, keepdims=True)

    def v(s, g, heads=nets.value.heads):
        return oracle.ensemble(heads, s, phi(s, g))[..., 0]

    def cloned(advantage, mean, x):
        return np.minimum(np.exp(3 * advantage), 100) * ((x - mean) ** 2).sum(1) / 2

    mask, target = (goal != row).astype(float), step.before.target
    backup = mask * (DISCOUNT * v(s_next, g, target) - 1)
    advantage = backup.min(0) - v(s, g, target).mean(0)
    side = np.where(advantage >= 0, 0.7, 0.3)
    low_advantage = (v(s_next, low_g) - v(s, low_g)).mean(0)
    high_advantage = (v(way, high_g) - v(s, high_g)).mean(0)
    low_mean, high_mean = oracle.net(nets.low, s, phi(s, low_g)), oracle.net(nets.high, s, high_g)
    step.check(
        value_loss=(side * (backup - v(s, g)) ** 2).sum(0).mean(),
        low_loss=cloned(low_advantage, low_mean, step.a[row]).mean(),
        high_loss=cloned(high_advantage, high_mean, phi(s, way)).mean(),
    )
    heads = step.after.networks.value.heads
    assert_target_moves(target, step.after.target, heads, 0.05)
