"""The extraction: its two limits, what carries gradients, what must not matter."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from loss_parts import linear_net

from jumpyworld.data.sampling import sample_transitions
from jumpyworld.policies import fql
from jumpyworld.policies.networks import descend, flow_map, start_optimiser
from jumpyworld.policies.probe import extraction_probe, slope_agreement
from jumpyworld.policies.settings import PolicySpec

SPEC = PolicySpec(3, 2, (0.0,) * 3, (1.0,) * 3)
B = 16


def config(**changes):
    return fql.FQLConfig(**{"hidden": (32, 32), "flow_steps": 4, **changes})


@pytest.fixture(scope="module")
def setting(oracle, shaken):
    actors = shaken(lambda k: fql.Actors(config(), SPEC, key=k))
    s, g = oracle.normal(0, B, 3), oracle.normal(1, B, 3)
    return actors, s, jnp.clip(oracle.normal(2, B, 2), -1, 1), g


def quadratic(s, a, g):
    return 2.0 + jnp.sum(a * g[:2]) - jnp.sum(jnp.square(a))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("normalise_q", [True, False])
def test_loss_against_numpy(setting, key, oracle, quick, reduction, normalise_q):
    actors, s, a, g = setting
    settings = config(distill_reduction=reduction, normalise_q=normalise_q, distill_coefficient=0.3)
    loss, metrics = quick(lambda x: fql.extraction_loss(x, quadratic, s, a, g, key, settings))(
        actors
    )
    flow_key, noise_key = jax.random.split(key)
    k0, k1 = jax.random.split(flow_key)
    x0, t = np.asarray(jax.random.normal(k0, (B, 2))), np.asarray(jax.random.uniform(k1, (B,)))
    x_t = (1 - t[:, None]) * x0 + t[:, None] * a
    behaviour = ((oracle.net(actors.behaviour, x_t, t[:, None], s) - (a - x0)) ** 2).sum(1).mean()
    noise = np.asarray(jax.random.normal(noise_key, (B, 2)))
    teacher = noise.astype(np.float64)
    for i in range(4):
        teacher += oracle.net(actors.behaviour, teacher, np.full((B, 1), i / 4), s) / 4
    student = oracle.net(actors.student, noise, s, g)
    act = np.clip(student, -1, 1)
    q = 2 + (act * g[:, :2]).sum(1) - (act**2).sum(1)
    square = (student - np.clip(teacher, -1, 1)) ** 2
    distill = square.mean() if reduction == "mean" else square.sum(1).mean()
    actor = -q.mean() / (np.abs(q).mean() if normalise_q else 1) + 0.3 * distill
    np.testing.assert_allclose(metrics["behaviour/loss"], behaviour, rtol=1e-5)
    np.testing.assert_allclose(metrics["actor/distill"], distill, rtol=1e-5)
    np.testing.assert_allclose(loss, behaviour + actor, rtol=1e-5)
    np.testing.assert_allclose(metrics["actor/saturation"], (np.abs(student) > 1).mean(), atol=1e-6)


def test_value_term_by_hand():
    q = jnp.array([1.0, -3.0])
    assert fql.value_term(q, False) == 1.0
    assert fql.value_term(q, True) == 0.5
    # Two rows, mean |Q| = 2, held fixed: -1/2 / 2 each.
    np.testing.assert_allclose(jax.grad(fql.value_term)(q, True), [-0.25, -0.25])
    assert np.isfinite(fql.value_term(jnp.zeros(3), True))


def test_distillation_by_hand():
    student = jnp.array([[1.0, 2.0], [0.0, 0.0]])
    teacher = jnp.array([[0.0, 0.0], [3.0, -1.0]])
    # Squares (1, 4) and (9, 1): 15 over four numbers, or 5 and 10 over two rows.
    assert fql.distill_term(student, teacher, "mean") == 3.75
    assert fql.distill_term(student, teacher, "sum") == 7.5


def test_the_loss_by_hand(key):
    """Fields that do nothing: the teacher is the noise, the student is 1/2 and Q is 2a - 5."""
    nothing, half = linear_net([[0.0]] * 3, [0.0]), linear_net([[0.0]] * 3, [0.5])
    settings = config(distill_coefficient=0.3)
    actors = eqx.tree_at(
        lambda a: (a.behaviour, a.student),
        fql.Actors(settings, PolicySpec(1, 1, (0.0,), (1.0,)), key=key),
        (nothing, half),
    )
    s = g = jnp.zeros((4, 1))
    a = jnp.array([[1.0], [-1.0], [0.5], [0.0]])
    value = lambda s, a, g: 2 * a[0] - 5  # noqa: E731
    loss, metrics = fql.extraction_loss(actors, value, s, a, g, key, settings)
    flow_key, noise_key = jax.random.split(key)
    x0 = np.asarray(jax.random.normal(jax.random.split(flow_key)[0], (4, 1)))
    behaviour = ((np.asarray(a) - x0) ** 2).mean()  # of one that stands still
    noise = np.clip(np.asarray(jax.random.normal(noise_key, (4, 1))), -1, 1)
    distill = ((0.5 - noise) ** 2).mean()
    # Q is -4 in every row, so its term is +1 whatever its size.
    assert metrics["actor/q"] == pytest.approx(-4)
    assert metrics["actor/distill"] == pytest.approx(distill, rel=1e-5)
    assert loss == pytest.approx(behaviour + 1 + 0.3 * distill, rel=1e-5)


def test_scaling_q_leaves_the_gradient(setting, key, quick):
    actors, s, a, g = setting

    def gradient(scale):
        value = lambda s, a, g: scale * quadratic(s, a, g)  # noqa: E731
        loss = lambda x: fql.extraction_loss(x, value, s, a, g, key, config())[0]  # noqa: E731
        return jax.tree.leaves(quick(jax.grad(loss))(actors))

    for small, large in zip(gradient(1.0), gradient(100.0), strict=True):
        np.testing.assert_allclose(small, large, atol=1e-6, rtol=1e-4)


def test_which_term_trains_which_network(setting, key, norm, quick):
    actors, s, a, g = setting

    def gradient(name):
        loss = lambda x: fql.extraction_loss(x, quadratic, s, a, g, key, config())[1][name]  # noqa: E731
        return quick(jax.grad(loss))(actors)

    assert norm(gradient("actor/loss").behaviour) == 0 < norm(gradient("actor/loss").student)
    assert norm(gradient("actor/distill").behaviour) == 0
    assert (
        norm(gradient("behaviour/loss").student) == 0 < norm(gradient("behaviour/loss").behaviour)
    )


def test_the_teacher_does_not_see_the_goal(setting, key, shaken, quick):
    actors, s, a, g = setting
    loss = quick(lambda g: fql.extraction_loss(actors, quadratic, s, a, g, key, config())[1])
    assert loss(g)["behaviour/loss"] == loss(-3 * g)["behaviour/loss"]
    # It has no input that the goal could enter by, unless asked.
    assert actors.behaviour.layers[0].weight.shape[0] == 2 + 1 + 3
    asked = config(bc_goal=True)
    actors = shaken(lambda k: fql.Actors(asked, SPEC, key=k))
    assert actors.behaviour.layers[0].weight.shape[0] == 2 + 1 + 3 + 3
    loss = quick(lambda g: fql.extraction_loss(actors, quadratic, s, a, g, key, asked)[1])
    assert loss(g)["behaviour/loss"] != loss(-3 * g)["behaviour/loss"]


def test_teacher_is_clipped_only_at_the_end(setting):
    actors, s, _, _ = setting
    x0 = jnp.array([4.0, -4.0])
    free = flow_map(actors.behaviour, x0, s[0], 4)
    assert jnp.abs(free).max() > 1
    np.testing.assert_array_equal(
        fql.teacher_action(actors.behaviour, s[0], x0, 4), jnp.clip(free, -1, 1)
    )


def test_slopes_agree_by_hand(setting):
    """Two critics with slopes along g and c: the cosine between them, whatever their sizes."""
    _, s, a, g = setting
    along = lambda c: lambda s, a, g: jnp.stack([jnp.sum(a * g[:2]), 1e3 * jnp.sum(a * c(g))])  # noqa: E731
    turned = lambda g: jnp.stack([-g[1], g[0]])  # noqa: E731
    for other, want in (
        (lambda g: g[:2], 1.0),
        (lambda g: -g[:2], -1.0),
        (turned, 0.0),
        (lambda g: g[:2] + turned(g), 0.5**0.5),
        (lambda g: 0 * g[:2], 0.0),
    ):
        assert slope_agreement(along(other), s, a, g) == pytest.approx(want, abs=1e-5)


def test_slopes_are_asked_at_the_students_actions_in_the_networks_units(walks, key):
    """Slopes s + a and g: what is measured follows from the rows, the units and the noise."""
    _, data, spec = walks
    settings = config(batch_size=32, discount=0.9, normalise="standard")
    actors, units = fql.Actors(settings, spec, key=key), spec.normaliser("standard")
    values = lambda s, a, g: jnp.stack([jnp.sum(a * s[:2] + a * a / 2), jnp.sum(a * g[:2])])  # noqa: E731
    got = extraction_probe(actors.student, values, units, data, key, settings)
    row_key, goal_key, noise_key = jax.random.split(key, 3)
    index = sample_transitions(data, row_key, 32).index
    goals = fql.draw_actor_goals(data, goal_key, index, settings)
    offset, scale = np.asarray(units.offset), np.asarray(units.scale)
    s, g = ((np.asarray(x) - offset) / scale for x in (data.observations[index], goals))
    noise = jax.random.normal(noise_key, (32, 2))
    a = np.clip(jax.vmap(actors.student)(noise, jnp.asarray(s), jnp.asarray(g)), -1, 1)
    unit = lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)  # noqa: E731
    want = (unit(s[:, :2] + a) * unit(g[:, :2])).sum(1).mean()
    assert got["actor/slope_agreement"] == pytest.approx(want, abs=1e-5)


def fit_student(actors, settings, value, s, a, g, steps):
    @eqx.filter_jit
    def train(actors, opt_state):
        def body(i, carry):
            key = jax.random.fold_in(jax.random.key(1), i)
            loss = lambda x: fql.extraction_loss(x, value, s, a, g, key, settings)  # noqa: E731
            actors, opt_state, _ = descend(loss, *carry, 1e-2)
            return actors, opt_state

        return jax.lax.fori_loop(0, steps, body, (actors, opt_state))

    return train(actors, start_optimiser(actors, 1e-2))[0]


def test_two_limits(setting, key):
    """lambda large: the student is the teacher; lambda = 0: it maximises a concave Q."""
    actors, s, a, g = setting
    s, a, g = (jnp.tile(x[:8], (16, 1)) for x in (s, a, g))
    bounded = 0.5 * jnp.tanh(g)
    cloned = fit_student(
        actors, config(distill_coefficient=1e3), quadratic, s, a, bounded, steps=1500
    )
    noise = jax.random.normal(key, (len(s), 2))
    teacher = jax.vmap(fql.teacher_action, (None, 0, 0, None))(cloned.behaviour, s, noise, 4)
    student = jax.vmap(fql.student_action, (None, 0, 0, 0))(cloned.student, s, bounded, noise)
    spread = float(jnp.mean(jnp.square(teacher - teacher.mean(0)[None])))
    assert jnp.mean(jnp.square(student - teacher)) < 0.05 * spread

    greedy = fit_student(
        actors, config(distill_coefficient=0.0), quadratic, s, a, bounded, steps=600
    )
    act = jax.vmap(fql.student_action, (None, 0, 0, 0))(greedy.student, s, bounded, noise)
    # The maximiser of a.g - |a|^2 is g / 2.
    assert jnp.mean(jnp.square(act - bounded[:, :2] / 2)) < 1e-2
