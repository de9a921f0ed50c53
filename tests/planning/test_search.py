"""How chains are spent: rounds, ties, NaN, margins, memory, budgets."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bandit import TASK, Coin, NoAction, bandit, heads_with_goal

from jumpyworld.errors import ConfigError
from jumpyworld.planning import (
    AbstractProposal,
    Elimination,
    Task,
    Uniform,
    ZeroShot,
    fast_search,
)
from jumpyworld.planning.search import Pool, open_pool
from jumpyworld.planning.standing import best_first, best_of


def quality(plans, chances):
    picked = np.take_along_axis(chances, np.asarray(plans.chosen)[:, None], 1)[:, 0]
    spread = chances.max(1) - chances.mean(1)
    return ((picked - chances.mean(1)) / spread).mean()


def decide_many(search, chances, key):
    """One plan for each row of chances, as ``batch`` does for environments."""

    @eqx.filter_jit
    def plan(planner, key, z):
        planner = eqx.tree_at(lambda p: p.proposal.z, planner, z[:, None, None])
        return planner.plan(key, jnp.zeros(1), TASK, None)

    keys, planner = jax.random.split(key, len(chances)), bandit(chances[0], search)
    return jax.vmap(plan, in_axes=(None, 0, 0))(planner, keys, jnp.asarray(chances, jnp.float32))


def test_elimination_decides_like_the_papers_search_at_a_tenth_of_the_chains(key):
    """The bandit of 256 candidates with Beta(1.2, 6) chances, 100 times."""
    chances = np.random.default_rng(0).beta(1.2, 6, size=(100, 256))
    uniform = decide_many(Uniform(256), chances, key)
    # With the same noise for all, coins would be compared without any noise at all.
    rounds = decide_many(Elimination(fast_search(256).rounds, common_noise=False), chances, key)
    few = decide_many(Uniform(16), chances, key)
    assert quality(uniform, chances) > 0.98
    assert quality(rounds, chances) > quality(uniform, chances) - 0.015
    assert quality(few, chances) < quality(rounds, chances) - 0.05
    spent = np.asarray(rounds.spent)[0]
    assert spent.shape == (3, 256) and spent.sum() * 10 < 256 * 256
    np.testing.assert_array_equal(spent.sum(1), [256 * 16, 32 * 48, 4 * 192])
    # Rounds are nested, and the winner played in all of them.
    assert ((spent[1] > 0) <= (spent[0] > 0)).all() and ((spent[2] > 0) <= (spent[1] > 0)).all()
    assert spent[2, int(rounds.chosen[0])] == 192


def test_the_winner_is_judged_anew(key):
    """Of equal coins the luckiest wins; fresh chains do not believe its luck."""
    chances = np.full((50, 256), 0.2)
    lucky = decide_many(Uniform(16), chances, key)
    fresh = decide_many(Uniform(16, fresh=400), chances, key)
    assert np.asarray(lucky.value).mean() > 0.4
    assert np.asarray(fresh.value).mean() == pytest.approx(0.2, abs=0.02)
    np.testing.assert_array_equal(lucky.chosen, fresh.chosen)
    assert int(fresh.evaluations[0]) == 256 * 16 + 400


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_never_wins(bad, key):
    chances = [1.0, 1.0, 0.3, 0.0]

    def reward(states):
        return jnp.where(states[..., 0] > 0, bad, 0.25)

    plan = bandit(chances, Elimination(((4, 64), (3, 64))))(key, np.zeros(1), Task(reward))
    assert plan.chosen == 3 and plan.value == 0.25 and plan.invalid == 3
    assert not np.isfinite(plan.candidate_values[:3]).any()


class LostCoin(Coin):
    """Knows nothing of one z."""

    def sample(self, key, states, actions, z, gamma):
        return jnp.where(z == 0.25, jnp.nan, super().sample(key, states, actions, z, gamma))


class LostHand(NoAction):
    """Has no action for one z."""

    def sample(self, key, states, z):
        return jnp.where(z == 0.25, jnp.nan, super().sample(key, states, z))


def danger(states):
    return -(states[..., 0] > 0).astype(states.dtype)


@pytest.mark.parametrize("parts", [{"model": LostCoin()}, {"policy": LostHand()}])
def test_what_is_not_finite_on_the_way_is_no_safe_place(parts, key):
    """To an indicator NaN is an innocent zero, which is here the best value of all."""
    chances = [[0.9, 0.9], [0.5, 0.5], [0.0, 0.25]]
    planner = bandit(chances, Uniform(64), horizons=(5, 10), **parts)
    plan = planner(key, np.zeros(1), Task(danger))
    assert plan.chosen == 1 and plan.value < 0 and plan.invalid == 1
    assert np.isnan(plan.candidate_values).tolist() == [False, False, True]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_none_of_which_is_finite_are_not_zero(bad, key):
    def reward(states, goal):
        return jnp.full(states.shape[:-1], bad, states.dtype)

    aim = Task(reward, goal=np.full(1, 0.5), aim=True)
    plan = bandit([0.1, 0.9], Uniform(4), warm_start=1)(key, np.zeros(1), aim)
    assert bool(plan.all_invalid) and not bool(plan.all_zero) and np.isnan(plan.value)
    assert plan.invalid == 4 and plan.chosen == -1 and plan.z == 0.5
    assert not bool(plan.memory.valid)
    other = bandit([0.1, 0.9], Uniform(4), when_all_zero="candidate")(key, np.zeros(1), aim)
    assert bool(other.all_invalid) and other.chosen == 0 and other.z == np.float32(0.1)
    fine = bandit([0.0, 0.0], Uniform(4))(key, np.zeros(1), Task(heads_with_goal, aim.goal))
    assert bool(fine.all_zero) and not bool(fine.all_invalid) and fine.value == 0


@pytest.mark.parametrize("search", [Uniform(4), Elimination(((3, 4), (1, 4)))])
@pytest.mark.parametrize("margin", [0.0, 0.5])
@pytest.mark.parametrize("value", [0.0, np.nan])
def test_a_candidate_is_followed_where_nothing_is_found_and_the_base_stands_among_them(
    search, margin, value, key
):
    """The base policy stands first, so the first of the equals would be it."""

    def reward(states, goal):
        return jnp.full(states.shape[:-1], value, states.dtype)

    settings = {"include_base": True, "margin": margin}
    aim = Task(reward, goal=np.full(1, 0.5), aim=True)
    plan = bandit([0.1, 0.9], search, when_all_zero="candidate", **settings)(key, np.zeros(1), aim)
    assert plan.chosen == 1 and plan.z == np.float32(0.1)
    np.testing.assert_array_equal(plan.value, value)
    assert bool(plan.all_zero) == (value == 0) and bool(plan.all_invalid) == np.isnan(value)
    base = bandit([0.1, 0.9], search, **settings)(key, np.zeros(1), aim)
    assert base.chosen == -1 and base.z == 0.5
    # Where the base policy is what is worth most, it is chosen.
    heads = Task(heads_with_goal, goal=np.ones(1), aim=True)
    found = bandit([0.0, 0.1], search, when_all_zero="candidate", **settings)
    assert found(key, np.zeros(1), heads).chosen == 0


def test_one_broken_environment_does_not_lose_the_others(key):
    """Its candidates are NaN themselves: whatever ``when_all_zero`` says, the base policy acts."""

    def reward(states, goal):
        return jnp.where(goal[0] > 0, jnp.nan, states[..., 0])

    planner = bandit([0.1, 0.9], Uniform(64), when_all_zero="candidate")
    broken = eqx.tree_at(lambda p: p.proposal.z, planner, planner.proposal.z * jnp.nan)
    goals, keys, states = np.asarray([[0.0], [1.0]]), jax.random.split(key, 2), np.zeros((2, 1))
    plans = planner.batch(keys, states, Task(reward, goals, aim=True))
    assert plans.all_invalid.tolist() == [False, True] and plans.all_zero.tolist() == [False, False]
    assert plans.chosen.tolist() == [1, 0] and np.isfinite(plans.action).all()
    plans = broken.batch(keys, states, Task(reward, goals, aim=True))
    assert plans.chosen.tolist() == [-1, -1] and np.isfinite(plans.z).all()
    assert np.isnan(plans.value).all() and plans.all_invalid.all()


def test_where_the_last_round_breaks_those_before_it_are_chosen_from(key):
    """A pool by hand: the two of the last round met NaN there."""
    totals, spent = jnp.asarray([jnp.nan, 2.0, jnp.nan]), jnp.asarray([[4, 4, 4], [4, 0, 4]])
    alive, nobody = jnp.asarray([True, False, True]), jnp.zeros(3, bool)
    pool = Pool(jnp.zeros((3, 1, 1)), jnp.zeros((3, 1)), totals, spent, alive, nobody)
    assert best_of(pool, 0.0)[0] == 1


def pool_of(means, alive, samples=4):
    """A pool by hand, after as many samples of each candidate."""
    means = jnp.asarray(means)
    return Pool(
        z=jnp.arange(len(means), dtype=float)[:, None, None],
        actions=jnp.zeros((len(means), 1)),
        totals=means * samples,
        spent=jnp.full((1, len(means)), samples, jnp.int32),
        alive=jnp.asarray(alive),
        protected=jnp.zeros(len(means), bool),
    )


def test_the_eliminated_do_not_win():
    """Few chains may have flattered one that others, with more chains by now, were ahead of."""
    pool = pool_of([0.9, 0.3, 0.5, 0.8], [False, True, True, False])
    best, scores = best_of(pool, 0.0)
    assert best == 2 and scores.tolist() == [-np.inf, np.float32(0.3), 0.5, -np.inf]


@pytest.mark.parametrize(("another", "best"), [(-0.95, 0), (-0.85, 1)])
def test_a_margin_of_values_below_zero_is_a_share_of_their_size(another, best):
    """Of -1, a tenth more is -0.9; what is worth no more than that does not replace it."""
    pool = pool_of([-1.0, another], [True, True])
    pool = eqx.tree_at(lambda p: p.protected, pool, jnp.asarray([True, False]))
    assert best_of(pool, 0.1)[0] == best


def test_rounds_do_not_share_their_noise(key):
    """Or a second round would repeat the first, and its chains tell nothing."""
    once = bandit([0.5] * 8, Uniform(16))(key, np.zeros(1), TASK)
    twice = bandit([0.5] * 8, Uniform(32, slices=2))(key, np.zeros(1), TASK)
    assert (twice.candidate_values != once.candidate_values).any()


class Narrow(AbstractProposal):
    """Answers in whichever dtype it holds."""

    z: jax.Array

    @property
    def count(self):
        return len(self.z)

    def sample(self, key, question):
        return self.z


def far_away(states):
    return states[..., 0] - 50.0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_values_of_z_in_16_bits_lose_nothing(dtype, key):
    """2,000 rewards of -50 are beyond float16."""
    wide, task = bandit([0.25, 0.5, 0.75], Elimination(((3, 2000), (1, 100)))), Task(far_away)
    z = wide.proposal.z.astype(dtype)
    narrow = eqx.tree_at(lambda p: p.proposal, wide, Narrow(z))
    plan, expected = (planner(key, np.zeros(1), task) for planner in (narrow, wide))
    assert plan.invalid == 0 and plan.chosen == 2
    np.testing.assert_array_equal(plan.candidate_values, expected.candidate_values)
    assert open_pool(z, z[:, 0], jnp.zeros(3, bool), 1).totals.dtype == jnp.float32


def test_a_goal_beside_z_in_16_bits_is_not_rounded(key):
    z = jnp.zeros((2, 1, 1), "bfloat16")
    planner = eqx.tree_at(lambda p: p.proposal, bandit([0.0] * 2, Uniform(4)), Narrow(z))
    plan = planner(key, np.zeros(1), Task(heads_with_goal, np.full(1, 1.001), aim=True))
    assert plan.chosen == -1 and plan.z[0, 0] == np.float32(1.001)


def test_more_evaluations_than_an_int32_can_count(key):
    planner = bandit([0.1] * 4, Uniform(2**30), max_rows=2**30, solver="midpoint", num_steps=100)
    pool = pool_of([0.5] * 4, [True] * 4, samples=2**30)
    plan = planner.conclude(key, jnp.zeros(1), TASK, pool)
    assert int(plan.evaluations) == 4 * 2**30 * 200


def test_rounds_may_be_a_list(key):
    """As JSON and most users write them; what is compiled needs something hashable."""
    planner = bandit([0.1, 0.9], Elimination([[2, 8], (1, 8)]))
    assert planner.search == Elimination(((2, 8), (1, 8)))
    assert planner(key, np.zeros(1), TASK).chosen == 1


def test_budgets_stop_between_rounds_and_say_what_was_spent(key):
    search = Elimination(((8, 4), (4, 8), (2, 16)))
    planner = bandit(np.linspace(0.1, 0.9, 8), search)
    whole = planner(key, np.zeros(1), TASK)
    slow = planner(key, np.zeros(1), TASK, budget_ms=1e9)
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(slow), strict=True):
        np.testing.assert_array_equal(a, b)
    hasty = planner(key, np.zeros(1), TASK, budget_ms=0)
    np.testing.assert_array_equal(hasty.spent.sum(1), [32, 0, 0])
    assert int(hasty.evaluations) == 32 and int(whole.evaluations) == 96
    assert float(hasty.value) == np.asarray(hasty.candidate_values).max()


@pytest.mark.parametrize("settings", [{}, {"common_noise": True}, {"fresh": 16}])
def test_budgets_stop_between_the_candidates_of_a_uniform_search(settings, key):
    planner = bandit(np.linspace(0.1, 0.9, 11), Uniform(8, **settings))
    whole = planner(key, np.zeros(1), TASK)
    slow = planner(key, np.zeros(1), TASK, budget_ms=1e9)
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(slow), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    hasty = planner(key, np.zeros(1), TASK, budget_ms=0)
    # An eighth of the candidates, rounded up, and no fresh chains.
    assert hasty.spent.sum() == 2 * 8 and int(hasty.evaluations) == 16 and hasty.chosen in (0, 1)
    np.testing.assert_array_equal(hasty.candidate_values[:2], whole.candidate_values[:2])
    assert np.isnan(hasty.candidate_values[2:]).all() and hasty.invalid == 0
    fresh = settings.get("fresh", 0)
    assert whole.spent.sum() == 11 * 8 + fresh == int(whole.evaluations)
    if fresh:
        assert whole.spent.shape == (2, 11) and whole.spent[1, int(whole.chosen)] == fresh


def test_a_margin_keeps_the_base_policy_unless_another_is_clearly_better(key):
    task = Task(heads_with_goal, goal=np.full(1, 0.5))

    def chosen(best, margin):
        search = Elimination(((2, 256), (1, 1024)))
        planner = bandit([0.1, best], search, include_base=True, margin=margin)
        plan = planner(key, np.zeros(1), task)
        assert plan.candidates.shape == (3, 1, 1) and plan.candidates[0, 0, 0] == 0.5
        return float(plan.z[0, 0])

    assert chosen(0.7, 0.0) == pytest.approx(0.7)
    assert chosen(0.7, 0.6) == pytest.approx(0.5)
    assert chosen(0.9, 0.6) == pytest.approx(0.9)


def test_the_last_plan_stands_among_the_candidates(key):
    chances = np.asarray([0.2, 0.4, 0.9, 0.5])
    planner = bandit(chances, Uniform(256), warm_start=2, margin=0.1)
    first = planner(key, np.zeros(1), TASK)
    assert first.candidate_values.shape == (8,) and bool(first.memory.valid)
    np.testing.assert_allclose(first.memory.z[:, 0, 0], [0.9, 0.5])
    # The proposals become poor; what is remembered does not.
    poor = eqx.tree_at(lambda p: p.proposal.z, planner, planner.proposal.z * 0.5)
    second = poor(key, np.zeros(1), TASK, first.memory)
    assert float(second.z[0, 0]) == pytest.approx(0.9) and int(second.chosen) in (0, 2)
    # And is held on to unless another is better by the margin.
    close = eqx.tree_at(lambda p: p.proposal.z, planner, jnp.full((4, 1, 1), 0.95))
    assert float(close(key, np.zeros(1), TASK, first.memory).z[0, 0]) == pytest.approx(0.9)
    forgotten = eqx.tree_at(lambda m: m.valid, first.memory, jnp.asarray(False))
    assert float(close(key, np.zeros(1), TASK, forgotten).z[0, 0]) == pytest.approx(0.95)


def shunned(states, goal):
    return -(states[..., 0] == goal[0]).astype(states.dtype)


@pytest.mark.parametrize("aim", [False, True])
def test_where_zero_is_the_best_value_nobody_goes_to_the_forbidden_place(aim, key):
    """The base policy does what it is told: sent to the goal of such a task it would arrive."""
    forbidden = Task(shunned, np.ones(1), aim=aim)
    plan = bandit([0.0, 1.0, 0.5], Uniform(64))(key, np.zeros(1), forbidden)
    # Others are worth less: a choice like any other.
    assert plan.chosen == 0 and plan.z[0, 0] == 0 and not plan.all_zero
    plan = bandit([0.0, 0.0], Uniform(4))(key, np.zeros(1), forbidden)
    # All are safe. That alone does not tell an aim from a danger; the task does.
    assert plan.all_zero and plan.value == 0
    assert (int(plan.chosen), float(plan.z[0, 0])) == ((-1, 1.0) if aim else (0, 0.0))


def test_the_way_out_when_nothing_is_found(key):
    task = Task(heads_with_goal, goal=np.full(1, 0.5), aim=True)
    plans = {
        way: bandit([0.0, 0.0], Uniform(4), when_all_zero=way)(key, np.zeros(1), task)
        for way in ("base", "candidate")
    }
    assert all(plan.all_zero and plan.value == 0 for plan in plans.values())
    assert plans["base"].chosen == -1 and plans["base"].z[0, 0] == 0.5
    assert plans["candidate"].chosen == 0 and plans["candidate"].z[0, 0] == 0
    # A batch knows as much of its tasks.
    keys, goals = jax.random.split(key, 2), task.for_goal(np.full((2, 1), 0.5))
    assert (bandit([0.0, 0.0], Uniform(4)).batch(keys, np.zeros((2, 1)), goals).chosen == -1).all()


def test_what_is_remembered_is_ranked_by_value_and_never_broken():
    """The chosen one, the others of the last round, the eliminated ones; NaN is none of them."""
    values = [jnp.nan, 0.1, 0.7, 0.3, 0.2, 0.5]
    pool = pool_of(values, [True, True, False, False, True, False])
    assert best_first(pool, jnp.asarray(4)).tolist() == [4, 1, 2, 5, 3, 4]


def test_the_eliminated_are_remembered_by_value(key):
    chances = np.asarray([0.05, 0.9, 0.1, 0.8, 0.3, 0.6])
    planner = bandit(chances, Elimination(((6, 512), (1, 512))), warm_start=6)
    # What is remembered stands twice among the candidates, and what is proposed once.
    remembered = planner(key, np.zeros(1), TASK).memory.z[:, 0, 0]
    np.testing.assert_allclose(remembered, [0.9] * 3 + [0.8] * 3)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Uniform(0), "samples=0"),
        (lambda: Uniform(10, slices=3), "slices=3"),
        (lambda: Elimination(()), "rounds"),
        (lambda: Elimination(((4, 8), (8, 8))), "must not grow"),
        (lambda: Elimination(((4, 0),)), "samples=0"),
        (lambda: bandit([0.1, 0.2], Elimination(((1, 4),))), "1 of 2 candidates"),
        (lambda: bandit([0.1], Uniform(4), margin=0.1), "margin=0.1"),
        (lambda: bandit([0.1], Uniform(4), warm_start=3), "warm_start=3"),
        (
            lambda: bandit([0.1, 0.2], Uniform(4), warm_start=1.5),
            r"warm_start=1\.5: must be a whole",
        ),
        (lambda: bandit([0.1], Uniform(4), action_limit=-1), "action_limit=-1: must be above 0"),
        (lambda: ZeroShot(NoAction(), action_limit=-1), "action_limit=-1: must be above 0"),
        (lambda: Uniform(2.5), r"samples=2\.5: must be a whole"),
        (lambda: bandit([0.1], Uniform(4), max_rows=3), "max_rows=3"),
        (lambda: bandit([0.1], Uniform(4), objective="w"), "objective='w'"),
        (lambda: bandit([0.1], Uniform(4), num_steps=0), "num_steps=0"),
        (lambda: bandit([0.1], Uniform(4), when_all_zero="stop"), "when_all_zero='stop'"),
        (lambda: fast_search(0), "candidates=0"),
    ],
)
def test_wrong_settings_are_named(make, named):
    with pytest.raises(ConfigError, match=named):
        make()
