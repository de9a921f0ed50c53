"""CompPlan: choose a first action and a sequence of policies by random shooting.

    z^(i) ~ proposal(s),  a_1^(i) ~ pi_{z_1}(s)                    M candidates
    value^(i) = mean over N chains of sum_k w_k r(S_k)              ``estimate``, ``search``
    execute a_1 of the best; then follow pi of its z_1              until the next plan

Paper: Eq. planning, algorithm compplan. Its relatives are the same with other switching
probabilities (section 3.3): one policy for ever is GPI, equal probabilities are GGPI, a switch
after every step is planning over primitive actions (``gpi``, ``actionplan``).

Extensions, all off by default: the base policy and the last plan among the candidates, a margin
for leaving them, elimination, the objective V, doubt about jumps that the data never made. Where no
candidate finds any reward on the way to a goal, the base policy acts.

Shapes: M candidates, K segments, d state, da action, dz policy-encoding dimensions.
"""

# Some of JAX's own signatures are only partly typed.
# pyright: reportUnknownMemberType=false

from collections.abc import Callable, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jumpyworld.flows import Solver
from jumpyworld.planning.base import AbstractPlanner
from jumpyworld.planning.budget import plan_within
from jumpyworld.planning.checks import (
    check_horizons,
    check_memory,
    check_parts,
    check_places,
    check_search,
    check_settings,
    check_widths,
)
from jumpyworld.planning.estimate import Question, candidate_totals, draw_in_turns
from jumpyworld.planning.gsp import Tail, discounts_of_horizons, gsp_weights
from jumpyworld.planning.plan import Memory, Plan
from jumpyworld.planning.precedents import Places
from jumpyworld.planning.proposals import AbstractProposal, check_proposal, draw_candidates
from jumpyworld.planning.repertoire import (
    Precision,
    Repertoire,
    SampleActions,
    SampleSuccessors,
    draw_actions,
    rounded,
    rounded_policy,
)
from jumpyworld.planning.search import (
    Pool,
    Search,
    Uniform,
    open_pool,
    play_part,
    play_round,
)
from jumpyworld.planning.standing import (
    base_sequence,
    best_first,
    best_of,
    not_the_base,
    num_protected,
    protected,
    with_standing,
)
from jumpyworld.planning.tasks import Task
from jumpyworld.policies.base import in_fewer_steps

Objective = Literal["q", "v"]
WayOut = Literal["base", "candidate"]
MakeProposal = Callable[[Sequence[float]], AbstractProposal]
"""Horizons to a proposal, for those that depend on them where a planner sets its own."""


class CompPlan(AbstractPlanner):
    """Plans over sequences of policies.

    Attributes:
        repertoire: policies, their model, and the ODE settings of planning.
        base: what acts when no candidate finds any reward; the policy itself by default.
        proposal: makes candidates.
        betas: effective discounts [K].
        weights: of the segments [K].
        search: how chains are spent.
        objective: ``q`` scores a first action and executes it; ``v`` averages over first actions
            and draws a fresh one.
        include_base: let the base policy's own sequence stand among the candidates.
        warm_start: how many of the last plan's best sequences stand among the candidates, as they
            are and one segment further on.
        margin: by which share more than the last plan (or else the base policy) another candidate
            must be worth to be chosen. Among equally good ways this avoids going to and fro.
        when_all_zero: what to do when no candidate finds any reward: ``base`` follows the base
            policy where the task's goal is an aim (``Task.aim``) and can be its z; ``candidate``,
            and whatever else has no such goal, takes the first of the equals, ``candidate`` the
            first but the base policy's. The same where no value is finite; the first that can be
            followed stands for the first.
        max_rows: chains, candidates or first actions alive at once. Only where there are more
            candidates than that does it change what is drawn.
    """

    repertoire: Repertoire
    base: SampleActions | None
    proposal: AbstractProposal
    betas: Float[Array, " K"]
    weights: Float[Array, " K"]
    search: Search = eqx.field(static=True)
    objective: Objective = eqx.field(static=True)
    include_base: bool = eqx.field(static=True)
    warm_start: int = eqx.field(static=True)
    margin: float = eqx.field(static=True)
    when_all_zero: WayOut = eqx.field(static=True)
    max_rows: int = eqx.field(static=True)

    def __init__(
        self,
        ghm: SampleSuccessors,
        policy: SampleActions,
        *,
        horizons: Sequence[float],
        discount: float,
        proposal: AbstractProposal | MakeProposal,
        search: Search | None = None,
        objective: Objective = "q",
        tail: Tail = "truncate",
        solver: Solver | None = None,
        num_steps: int | None = None,
        policy_steps: int | None = None,
        precision: Precision = "fp32",
        action_limit: float | None = 1.0,
        places: Places | None = None,
        base: SampleActions | None = None,
        include_base: bool = False,
        warm_start: int = 0,
        margin: float = 0.0,
        when_all_zero: WayOut = "base",
        max_rows: int = 2**16,
        allow_extrapolation: bool = False,
    ):
        """Check and keep the settings.

        Args:
            ghm: the model, anything with ``sample(key, states, actions, z, gamma)``.
            policy: pi, anything with ``sample(key, states, z)``.
            horizons: mean steps of each segment, at least 1; 1 is a single step.
            discount: the global one; its horizon 1 / (1 - discount) bounds the others.
            proposal: makes candidates; or a function that makes the proposal from the horizons.
            search: by default the paper's 256 chains for each.
            objective: ``q`` or ``v``.
            tail: ``truncate`` or ``absorb``; see ``gsp``.
            solver: ODE solver while planning; the model's own by default.
            num_steps: ODE steps while planning; the model's own by default.
            policy_steps: midpoint steps of the policy's flow in chains; None solves it there as it
                acts, which for ten Euler steps can cost more than the model's own two or three.
            precision: of inner layers in chains, the model's and the policy's, ``fp32`` or
                ``bf16``; the policy acts in its own.
            action_limit: largest size of an action's entries; None for no limit.
            places: where the data go from where; jumps without a precedent are refused.
            base: what acts when no candidate finds any reward, with the goal as its z.
            include_base: add the candidate z_k = g for all k.
            warm_start: add so many sequences of the last plan.
            margin: needed to leave the last plan, or else the base policy.
            when_all_zero: ``base`` or ``candidate``.
            max_rows: chains, candidates or first actions alive at once; more are taken in turns.
            allow_extrapolation: let horizons exceed what the model was trained for.

        Raises:
            ConfigError: a setting is wrong; the message names it and its value.
            PlanError: the model, policy or proposal cannot be hashed, and is no equinox Module.
        """
        check_parts(ghm, policy)
        chosen_search = check_search(Uniform(256) if search is None else search)
        betas = discounts_of_horizons(horizons)
        weights = gsp_weights(betas, discount, tail)
        if not allow_extrapolation:
            check_horizons(horizons, betas.tolist(), ghm)
        model = rounded(ghm, precision)
        hurried = policy if policy_steps is None else in_fewer_steps(policy, policy_steps)
        chained = rounded_policy(hurried, precision)
        known = None if places is None else check_places(places).precedents(betas)
        self.repertoire = Repertoire(model, policy, chained, solver, num_steps, action_limit, known)
        made: Any = proposal
        if callable(made) and not isinstance(made, AbstractProposal):
            made = made(tuple(horizons))
        check_proposal("proposal", made)
        self.base, self.proposal = base, made
        self.betas, self.weights = jnp.asarray(betas), jnp.asarray(weights)
        self.search = chosen_search
        self.objective, self.include_base = objective, include_base
        self.warm_start, self.margin, self.when_all_zero = warm_start, margin, when_all_zero
        self.max_rows = max_rows
        check_settings(self)

    @property
    def num_candidates(self) -> int:
        """Candidates of a plan: proposed, remembered and the base policy's."""
        return self.proposal.count + 2 * self.warm_start + int(self.include_base)

    @property
    def environments_at_once(self) -> int:
        """As many as ``max_rows`` has room for in the widest round; at least one."""
        widest = max(count * n for count, n in self.search.schedule(self.num_candidates))
        return max(1, self.max_rows // widest)

    @property
    def first_horizon(self) -> float | None:
        """Mean steps of the first segment."""
        return float(1 / (1 - self.betas[0]))

    def check_widths(self, state_width: int, task: Task) -> None:
        """Raise PlanError where a state or goal cannot be what the model and policy expect."""
        check_widths(self, state_width, task)

    def check_memory(self, memory: Any, environments: tuple[int, ...]) -> None:
        """Raise PlanError where a memory is not one that this planner can go on from."""
        check_memory(memory, (*environments, self.warm_start, len(self.betas)))

    def plan(
        self, key: PRNGKeyArray, state: Float[Array, " d"], task: Task, memory: Memory | None
    ) -> Plan:
        """Return the plan for one state."""
        open_key, play_key, end_key = jax.random.split(key, 3)
        pool = self.open(open_key, state, task, memory)
        for number in range(len(self.search.schedule(self.num_candidates))):
            pool = self.play(play_key, state, task, pool, number)
        return self.conclude(end_key, state, task, pool)

    def open(
        self, key: PRNGKeyArray, state: Float[Array, " d"], task: Task, memory: Memory | None
    ) -> Pool:
        """Draw the candidates and their first actions."""
        keys = jax.random.split(key, 2)
        z = draw_candidates(self.proposal, keys[0], self._question(state, task))
        z = with_standing(
            z, task, memory, include_base=self.include_base, warm_start=self.warm_start
        )
        states = jnp.broadcast_to(state, (len(z), *state.shape))

        def act(key: PRNGKeyArray, rows: tuple[Array, Array]) -> Array:
            return self.repertoire.act(key, *rows)

        actions = draw_in_turns(act, keys[1], (states, z[:, 0]), self.max_rows)
        held = jnp.zeros(len(z), bool)
        if self.margin > 0:
            held = protected(
                memory, len(z), include_base=self.include_base, warm_start=self.warm_start
            )
        return open_pool(z, actions, held, len(self.search.schedule(len(z))))

    def play(
        self, key: PRNGKeyArray, state: Float[Array, " d"], task: Task, pool: Pool, number: int
    ) -> Pool:
        """Play one round of the search; the key is the same for all rounds."""
        return play_round(
            key,
            self._question(state, task),
            pool,
            self.search,
            number,
            shared_action=self.objective == "q",
            protects=num_protected(self.warm_start) if self.margin > 0 else 0,
        )

    def play_some(
        self,
        key: PRNGKeyArray,
        state: Float[Array, " d"],
        task: Task,
        pool: Pool,
        first: Int[Array, ""],
        size: int,
    ) -> Pool:
        """Play some candidates of a uniform search's one round."""
        assert isinstance(self.search, Uniform)
        q = self.objective == "q"
        question = self._question(state, task)
        return play_part(key, question, pool, self.search, first, size, shared_action=q)

    def conclude(
        self,
        key: PRNGKeyArray,
        state: Float[Array, " d"],
        task: Task,
        pool: Pool,
        *,
        fresh: bool = True,
    ) -> Plan:
        """Choose among the candidates of the last round.

        Args:
            key: randomness.
            state: where the plan starts.
            task: reward and goal.
            pool: after the last round.
            fresh: whether there is time for the search's fresh chains, if it has any.
        """
        fresh_key, act_key = jax.random.split(key)
        best, scores = best_of(pool, self.margin)
        if self.include_base and self.when_all_zero == "candidate":
            best = not_the_base(pool, best)
            scores = jnp.where(pool.no_reward, pool.scores, scores)
        z, action, value = pool.z[best], pool.actions[best], scores[best]
        if self.objective == "v":
            action = self.repertoire.act(act_key, state[None], z[:1])[0]
        spent = pool.spent
        if self.search.fresh:
            anew = jnp.zeros((1, len(pool.z)), spent.dtype)
            if fresh:
                value = self._fresh_value(fresh_key, state, task, pool, best)
                anew = anew.at[0, best].set(self.search.fresh)
            spent = jnp.concatenate([spent, anew])
        chosen, broken = best, ~jnp.isfinite(scores[best])
        nothing = pool.no_reward | broken
        way_out = nothing if self.when_all_zero == "base" else broken & ~pool.sound.any()
        # Only to a goal that is an aim: to the policy any goal is a place to go to.
        base_z = base_sequence(pool.z, task) if task.aim else None
        if base_z is not None:
            base = self.repertoire.policy if self.base is None else self.base
            limit = self.repertoire.action_limit
            outward = draw_actions(base, act_key, state[None], base_z[:1], limit)[0]
            action = jnp.where(way_out, outward.astype(action.dtype), action)
            z = jnp.where(way_out, base_z, z)
            chosen = jnp.where(way_out, jnp.full_like(chosen, -1), chosen)
        remembered = None
        if self.warm_start:
            remembered = Memory(pool.z[best_first(pool, best)[: self.warm_start]], ~nothing)
        return Plan(
            action=action,
            z=z,
            value=jnp.where(nothing, jnp.where(broken, jnp.nan, 0.0).astype(value.dtype), value),
            candidate_values=pool.means,
            candidates=pool.z,
            chosen=chosen,
            spent=spent,
            evaluations=self._evaluations(spent),
            all_zero=pool.no_reward,
            invalid=(~jnp.isfinite(pool.means) & (pool.spent.sum(0) > 0)).sum(dtype=jnp.int32),
            weight_sum=self.weights.sum(),
            memory=remembered,
        )

    def act_between(
        self, key: PRNGKeyArray, state: Float[Array, " d"], plan: Plan
    ) -> Float[Array, " da"]:
        """Return an action of pi_{z_1}, or of the base policy where there was no plan."""
        limit = self.repertoire.action_limit
        action = self.repertoire.act(key, state[None], plan.z[:1])[0]
        if self.base is None:
            return action
        base = draw_actions(self.base, key, state[None], plan.z[:1], limit)[0]
        return jnp.where(plan.chosen < 0, base.astype(action.dtype), action)

    def remember(self, key: PRNGKeyArray, state: Float[Array, " d"], task: Task) -> Memory | None:
        """Return an empty memory of the right shape."""
        return self._no_memory(key, state, task) if self.warm_start else None

    @eqx.filter_jit  # or every plan would trace the model again, which takes longer than the plan
    def _no_memory(self, key: PRNGKeyArray, state: Array, task: Task) -> Memory:
        def propose(key: PRNGKeyArray, state: Array) -> Array:
            return draw_candidates(self.proposal, key, self._question(state, task))

        z = jax.eval_shape(propose, key, state)
        return Memory(jnp.zeros((self.warm_start, *z.shape[1:]), z.dtype), jnp.zeros((), bool))

    def within(
        self,
        budget_ms: float,
        key: PRNGKeyArray,
        state: Float[Array, " d"],
        task: Task,
        memory: Memory | None,
    ) -> Plan:
        """Play rounds while the next one is expected to end in time."""
        return plan_within(self, budget_ms, key, state, task, memory)

    def _question(self, state: Array, task: Task) -> Question:
        return Question(self.repertoire, task, state, self.betas, self.weights, self.max_rows)

    def _fresh_value(
        self, key: PRNGKeyArray, state: Array, task: Task, pool: Pool, best: Array
    ) -> Array:
        total = candidate_totals(
            key,
            self._question(state, task),
            pool.actions[best][None] if self.objective == "q" else None,
            pool.z[best][None],
            self.search.fresh,
            common_noise=False,
        )
        return total[0] / self.search.fresh

    def _evaluations(self, spent: Array) -> Array:
        segments, each = len(self.betas), self.repertoire.evaluations_per_jump
        proposed = float(self.proposal.jumps(segments) * each)
        return spent.sum(dtype=float) * float(segments * each) + proposed
