"""What planners refuse, in one line: bad requests, bad settings, parts that answer wrongly."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from beeline import GOAL, drifting, near

from jumpyworld import domains
from jumpyworld.errors import ConfigError, JumpyError, PlanError
from jumpyworld.planning import (
    GGPI,
    AbstractProposal,
    ActionPlan,
    Actor,
    BaseProposal,
    CompPlan,
    Elimination,
    FirstProposal,
    GoalProposal,
    ListProposal,
    Memory,
    MixtureProposal,
    OneZProposal,
    Task,
    UnconditionalProposal,
    Uniform,
    ZeroShot,
    decide,
    fast_search,
    goal_task,
)
from jumpyworld.policies import from_callable

POINT = domains.get("pointmaze-large")


def remembered(count, width=2):
    return Memory(jnp.zeros((count, 2, width)), jnp.ones((), bool))


def twisted(states, goal):
    return jax.lax.complex(states[..., 0], states[..., 0])


@pytest.mark.parametrize(
    ("ask", "named"),
    [
        (lambda p, k: p(k, np.asarray([np.nan, 0]), Task(near, GOAL)), "state: 1 values"),
        (lambda p, k: p(k, np.asarray([1e300, 0]), Task(near, GOAL)), "state: 1 values"),
        (lambda p, k: p(k, np.asarray([1j, 0]), Task(near, GOAL)), "state: .* complex"),
        (lambda p, k: p(k, ["1", "2"], Task(near, GOAL)), "state: must be numbers"),
        (lambda p, k: p(k, [[1.0], 2.0], Task(near, GOAL)), "state: is no array of numbers"),
        (lambda p, k: p(k, None, Task(near, GOAL)), "state: must be numbers"),
        (lambda p, k: p(k, np.zeros(2), Task(near, ["a", "b"])), "goal: must be numbers"),
        (lambda p, k: p(k, np.zeros(2), Task(near, [[1.0], 2.0])), "goal: is no array"),
        (lambda p, k: p(k, np.zeros(2), Task(near, [1e300, 0])), "goal: 1 values"),
        (lambda p, k: p(k, np.zeros(2), goal_task(POINT, [[1.0], 2.0])), "goal: is no array"),
        (lambda p, k: p(None, np.zeros(2), Task(near, GOAL)), "key of type NoneType"),
        (lambda p, k: p(k[None], np.zeros(2), Task(near, GOAL)), "key: 1 of them"),
        (
            lambda p, k: p.batch(None, np.zeros((1, 2)), Task(near, np.zeros((1, 2)))),
            "keys: one for a batch of 1",
        ),
        (
            lambda p, k: decide(
                p, k[None], np.zeros((1, 2)), Task(near, GOAL[None]), step=0, replan_every=0
            ),
            "replan_every=0",
        ),
        (
            lambda p, k: decide(p, k[None], np.zeros((1, 2)), Task(near, GOAL[None]), step="0"),
            "step='0': must be a whole number, at least 0",
        ),
        (lambda p, k: Actor(p, Task(near, GOAL), 0), "key of type int: give a jax.random key"),
        (
            lambda p, k: ZeroShot(Constant(0.0))(k, GOAL, Task(near, GOAL), budget_ms=-1),
            "budget_ms",
        ),
        (lambda p, k: p(k, np.zeros(2), Task(near, GOAL), budget_ms="1"), "budget_ms=1"),
        (lambda p, k: p(k, np.zeros((1, 2)), Task(near, GOAL)), r"state of shape \(1, 2\)"),
        (lambda p, k: p(k, np.zeros(2), Task(near, np.asarray([np.inf, 0]))), "goal"),
        (lambda p, k: p(k, np.zeros(2), GOAL), "task="),
        (lambda p, k: p(k, np.zeros(2), Task(near)), "goal=None"),
        (lambda p, k: p(k, np.zeros(2), Task("near")), "reward="),
        (lambda p, k: p(k, np.zeros(2), Task(lambda s: s)), "goal=None"),
        (lambda p, k: p(k, np.zeros(2), goal_task(POINT, np.zeros(3))), r"goal of shape \(3,\)"),
        (lambda p, k: p(k, np.zeros(2), Task(POINT.reward, np.zeros(3))), "3"),
        (lambda p, k: p(k, np.zeros(2), Task(near, np.zeros((4, 2)))), r"\(4, 2\)"),
        (lambda p, k: p(k, np.zeros(2), Task(near, GOAL), budget_ms=-1), "budget_ms=-1"),
        (lambda p, k: p.batch(k[None], np.zeros((1, 2)), Task(near, GOAL)), "needs one each"),
        (
            lambda p, k: p.batch(k[None], np.zeros((2, 2)), Task(near, np.zeros((2, 2)))),
            "keys: 1 for a batch of 2 states",
        ),
        # As many goals as a candidate has chains: each would be judged by its own.
        (lambda p, k: p(k, np.zeros(2), goal_task(POINT, np.zeros((4, 2)))), "one state has one"),
        (lambda p, k: p(k, np.zeros(2), goal_task(POINT, np.zeros((1, 2)))), "one state has one"),
        (lambda p, k: p.follow(k, np.zeros(2), None), "plan=None: must be a Plan"),
        (lambda p, k: p(k, np.zeros(2), Task(near, GOAL), "x"), "memory='x': must be the memory"),
        (lambda p, k: p(k, np.zeros(2), Task(near, GOAL), remembered(1)), "memory of shape"),
        (
            lambda p, k: drifting(warm_start=2)(k, np.zeros(2), Task(near, GOAL), remembered(1)),
            r"memory of shape \(1, 2, 2\): is of another planner.* warm_start=2",
        ),
        (
            lambda p, k: drifting(warm_start=1)(k, np.zeros(2), Task(near, GOAL), remembered(1, 3)),
            r"memory of shape \(1, 2, 3\)",
        ),
        (lambda p, k: p(k, np.zeros(2), Task(twisted, GOAL)), "reward: must be real numbers"),
        (
            lambda p, k: ZeroShot(Constant(0.0))(k, np.zeros(2), Task(near, np.zeros((2, 2)))),
            r"ZeroShot: goal of shape \(2, 2\)",
        ),
    ],
)
def test_bad_requests_are_refused_in_one_line(ask, named, key):
    with pytest.raises(JumpyError, match=named) as caught:
        ask(drifting(), key)
    assert "\n" not in str(caught.value)


def wrong_shape(states):
    return states


def test_a_reward_of_another_shape_is_refused(key):
    planner = drifting(proposal=ListProposal(np.zeros((4, 2, 2))))
    with pytest.raises(PlanError, match="reward: returned shape"):
        planner(key, np.zeros(2), Task(wrong_shape))
    with pytest.raises(PlanError, match="reward: raised TypeError"):
        planner(key, np.zeros(2), Task(near))


def ggpi(**asked):
    settings = {"alpha": 0.5, "num_segments": 2, "discount": 0.9, **asked}
    return GGPI(Short(), Raises(), proposal=GoalProposal(4), **settings)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: drifting(horizons=(0, 8)), r"horizons\[0\]=0"),
        (lambda: drifting(horizons=()), r"horizons=\(\)"),
        (lambda: drifting(horizons=(4, 80)), "80 steps"),
        (lambda: drifting(discount=1.0), "discount=1"),
        (lambda: drifting(discount=None), "discount=None"),
        (lambda: drifting(horizons=None), "horizons=None"),
        (lambda: drifting(horizons=5), "horizons=5: must be a sequence"),
        (lambda: drifting(horizons=("5", "five")), "horizons=.*five.*: must be numbers"),
        (lambda: drifting(proposal=ListProposal([[[1.0]], 2.0])), "ListProposal: z: is no array"),
        (lambda: drifting(proposal=GoalProposal(0)), "number=0"),
        (lambda: drifting(proposal=UnconditionalProposal(-1)), "number=-1"),
        (lambda: drifting(proposal=ListProposal(np.zeros((0, 2, 2)))), r"\(0, 2, 2\)"),
        (lambda: drifting(proposal=ListProposal(np.full((1, 2, 2), np.nan))), "finite"),
        (lambda: drifting(proposal=MixtureProposal(())), "proposes nothing"),
        (lambda: MixtureProposal(GoalProposal(4)), "parts=GoalProposal.* must be a tuple"),
        (lambda: MixtureProposal((GoalProposal(4), "x")), r"parts\[1\]='x': must be a proposal"),
        (lambda: OneZProposal("x"), "OneZProposal: inner='x': must be a proposal"),
        (lambda: FirstProposal("x", (4,)), "FirstProposal: inner='x': must be a proposal"),
        (lambda: drifting(places=[[1, 2]]), r"places=\[\[1, 2\]\]: must be Places"),
        (lambda: drifting(horizons=(4, 1e17)), r"horizons\[1\]=1e\+17: is too long"),
        (lambda: drifting(action_limit="a"), "action_limit='a': must be one number"),
        (lambda: drifting(action_limit=np.ones((2, 2))), "action_limit=array.*: must be one num"),
        (lambda: ZeroShot(Raises(), action_limit=np.ones(2)), "action_limit=array.*: must be one"),
        (lambda: drifting(proposal=Own(jnp.zeros, 0)), "Own: count=0: must be a whole number"),
        (lambda: drifting(proposal=lambda horizons: None), "proposal=None: must be a proposal"),
        (lambda: drifting(model=Short()), "beyond the 5 steps"),
        (lambda: drifting(search="uniform"), "search='uniform': must be a Uniform"),
        (lambda: CompPlan(Short(), Raises(), horizons=(4,), discount=0.95, proposal=None), "None"),
        (lambda: drifting(margin="a", include_base=True), "margin=a: must be a finite number"),
        (lambda: drifting(margin=float("inf"), include_base=True), "margin=inf: must be a finite"),
        (lambda: drifting(margin=float("nan"), include_base=True), "margin=nan: must be a finite"),
        (lambda: GoalProposal(2.5), r"GoalProposal: number=2\.5; must be a whole number"),
        (lambda: GoalProposal("8"), "GoalProposal: number=8; must be a whole number"),
        (
            lambda: ActionPlan(Short(), Raises(), discount=0.9, action_horizon=2.5),
            r"zon=2\.5: must",
        ),
        (lambda: ggpi(num_segments=2.5), r"num_segments=2\.5: must be a whole number"),
        (lambda: ggpi(alpha="a"), "alpha=a: must be a number"),
        (lambda: Elimination(((4,),)), r"rounds=\(\(4,\),\): must be pairs"),
        (lambda: Elimination(None), "rounds=None: must be pairs"),
        (lambda: ZeroShot("gcbc"), "policy='gcbc': has no method sample"),
        (lambda: drifting(model="runs/ghm"), "ghm='runs/ghm': has no method sample"),
        (lambda: drifting(policy=3), "policy=3: has no method sample"),
        (lambda: ActionPlan("world", Raises(), discount=0.9), "world_model='world': has no method"),
        # What 32 bits cannot count.
        (lambda: GoalProposal(2**31), r"number=2147483648; must be .*, below 2\^31"),
        (
            lambda: drifting(proposal=Own(jnp.zeros, 2**31)),
            r"count=2147483648: must be below",
        ),
        (lambda: drifting(num_steps=10**30), r"num_steps=10*: must be below 2\^31"),
        (lambda: fast_search(2**31), r"candidates=2147483648: must be below 2\^31"),
        (lambda: Uniform(2**31), r"samples=2147483648: must be below 2\^31"),
        (
            lambda: ActionPlan(Short(), Raises(), discount=0.9, candidates=10**30),
            r"candidates=10*: must be below 2\^31",
        ),
    ],
)
def test_bad_settings_are_refused_in_one_line(make, named):
    with pytest.raises(ConfigError, match=named) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_mixtures_are_of_one_width(key):
    mixed = MixtureProposal((GoalProposal(4), ListProposal(np.ones((4, 2, 5)))))
    with pytest.raises(ConfigError, match=r"MixtureProposal: z of widths \[2, 5\]"):
        drifting(proposal=mixed)(key, np.zeros(2), Task(near, GOAL))


class Short(eqx.Module):
    """A model that was trained for five steps."""

    gamma_max: float = eqx.field(static=True, default=0.8)

    def sample(self, key, states, actions, z, gamma):
        return states + actions


def test_extrapolation_can_be_asked_for():
    assert len(drifting(model=Short(), allow_extrapolation=True).betas) == 2


class Raises(eqx.Module):
    def sample(self, key, states, z):
        raise ValueError("out of order\nand more")


class Returns(eqx.Module):
    """A policy, or a model, that answers whatever it is told to."""

    answer: Callable = eqx.field(static=True)

    def sample(self, key, states, *others):
        return self.answer(states)


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ({"model": Returns(lambda s: 1 / 0)}, "model Returns: raised ZeroDivisionError"),
        ({"model": Returns(lambda s: s[:, :1])}, r"model Returns: returned shape \(\d+, 1\)"),
        ({"model": Returns(lambda s: None)}, "model Returns: raised"),
        ({"policy": Returns(lambda s: None)}, "policy Returns: raised"),
        ({"policy": Returns(lambda s: s[0])}, r"policy Returns: returned shape \(2,\)"),
        ({"policy": Returns(lambda s: "left")}, "policy Returns: raised"),
    ],
)
def test_parts_that_answer_wrongly_are_named_in_one_line(parts, named, key):
    with pytest.raises(PlanError, match=named) as caught:
        drifting(**parts)(key, np.zeros(2), Task(near, GOAL))
    assert "\n" not in str(caught.value)
    if "policy" in parts:
        with pytest.raises(PlanError, match=named):
            ZeroShot(parts["policy"])(key, np.zeros(2), Task(near, GOAL))


class Own(AbstractProposal):
    """A user's own proposal, which answers whatever it is told to."""

    answer: Callable = eqx.field(static=True)
    promised: int = eqx.field(static=True, default=8)

    @property
    def count(self):
        return self.promised

    def sample(self, key, question):
        return self.answer()


def out_of_order():
    raise ValueError("out of order\nand more")


@pytest.mark.parametrize(
    "settings",
    [{}, {"search": Elimination(((16, 2), (2, 4)))}, {"warm_start": 1}],
    ids=["uniform", "elimination", "warm"],
)
@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (lambda: jnp.zeros((0, 2, 2)), r"returned shape \(0, 2, 2\); must be .* M=8 and"),
        (lambda: jnp.zeros((5, 2, 2)), r"returned shape \(5, 2, 2\); must be .* M=8 and"),
        (lambda: jnp.zeros((8, 3, 2)), r"returned shape \(8, 3, 2\); must be .* K=2 horizons"),
        (lambda: jnp.zeros((8, 2)), r"returned shape \(8, 2\); must be \[M, K, dz\]"),
        (out_of_order, "raised ValueError: out of order"),
        (lambda: "left", "raised"),
    ],
)
def test_proposals_that_answer_wrongly_are_named_in_one_line(answer, named, settings, key):
    own = Own(answer)
    for proposal in (own, MixtureProposal((GoalProposal(4), own)), OneZProposal(own)):
        with pytest.raises(PlanError, match=f"proposal Own: {named}") as caught:
            drifting(proposal=proposal, **settings)(key, np.zeros(2), Task(near, GOAL))
        assert "\n" not in str(caught.value)


def test_values_of_whole_numbered_z_are_not_rounded(key):
    z = np.arange(32).reshape(8, 2, 2) % 5
    whole = drifting(proposal=Own(lambda: z))(key, np.zeros(2), Task(near, GOAL))
    listed = drifting(proposal=ListProposal(z))(key, np.zeros(2), Task(near, GOAL))
    np.testing.assert_array_equal(whole.candidate_values, listed.candidate_values)
    assert 0 < whole.value < 1


@pytest.mark.parametrize(
    "proposal",
    [
        GoalProposal(8),
        GoalProposal(8, goal=np.zeros(3)),
        GoalProposal(8, goal=GOAL, append_goal=True),
        BaseProposal(8),
        None,
    ],
)
def test_a_goal_of_another_width_than_z_is_named(proposal, key):
    policy = from_callable(lambda s, z: s, observation_dim=2, action_dim=2, z_dim=2)
    planner = drifting(policy, proposal=proposal) if proposal else ZeroShot(policy)
    who = type(proposal or planner).__name__
    with pytest.raises(PlanError, match=f"^{who}: goal of 3 values; must be 2, as z's of"):
        planner(key, np.zeros(2), Task(near, np.zeros(3)))


class Constant(eqx.Module):
    value: float = eqx.field(static=True)

    def sample(self, key, states, z):
        return jnp.full(states.shape, self.value, states.dtype)


class SometimesNaN(eqx.Module):
    """Breaks where z is on the left."""

    def sample(self, key, states, z):
        return jnp.where(z[..., :1] < 0, jnp.nan, jnp.ones_like(states))


def test_policies_that_fail(key):
    state, task = np.zeros(2), Task(near, GOAL)
    with pytest.raises(PlanError, match="policy Raises: raised ValueError: out of order"):
        drifting(policy=Raises())(key, state, task)
    with pytest.raises(PlanError, match=r"not finite, .* invalid candidates: 8"):
        drifting(policy=Constant(float("nan")))(key, state, task)
    # Out of range: clipped before it is scored.
    plan = drifting(policy=Constant(7.0))(key, state, task)
    np.testing.assert_array_equal(plan.action, [1, 1])
    # Some candidates break: the others are planned with, and the breaks are counted.
    z = np.asarray([-1.0, 2.0, -3.0, 3.0])[:, None, None] * np.ones((4, 2, 2))
    plan = drifting(policy=SometimesNaN(), proposal=ListProposal(z))(key, state, task)
    assert plan.invalid == 2 and plan.chosen in (1, 3) and np.isfinite(plan.action).all()


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (lambda s, z: np.full_like(s, np.nan), "returned nan"),
        (lambda s, z: np.full_like(s, 3.0), "must lie in"),
        (lambda s, z: s[:, :1], "returned actions of shape"),
    ],
)
def test_policies_of_the_host_that_fail(answer, named, key):
    policy = from_callable(answer, observation_dim=2, action_dim=2, z_dim=2)
    with pytest.raises(PlanError, match=named) as caught:
        drifting(policy=policy)(key, np.zeros(2), Task(near, GOAL))
    assert "\n" not in str(caught.value)


def test_policies_of_the_host_can_be_planned_with(key):
    policy = from_callable(
        lambda s, z: np.clip(z - s, -1, 1), observation_dim=2, action_dim=2, z_dim=2
    )
    task, state = Task(near, GOAL), np.zeros(2, np.float32)
    outside = drifting(policy=policy)(key, state, task)
    inside = drifting()(key, state, task)
    np.testing.assert_allclose(outside.action, inside.action, atol=1e-6)
    np.testing.assert_allclose(outside.candidate_values, inside.candidate_values, atol=1e-5)
