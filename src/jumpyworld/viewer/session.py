"""One model on the page: its stage, its goal or painted reward, its plan. What every request does.

Methods take checked values and return plain ones. They run on the engine's thread, one at a time.
The page belongs to one person: two tabs share the stage and see each other's clicks.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jumpyworld.domains import CubeDomain
from jumpyworld.errors import PlanError
from jumpyworld.planning import CompPlan, Plan, Task
from jumpyworld.viewer.candidates import AbstractSource, Effort, Horizons
from jumpyworld.viewer.explain import Asked, number, plan_as_values, rounded
from jumpyworld.viewer.opened import Opened
from jumpyworld.viewer.scene import scene_of
from jumpyworld.viewer.stage import Stage
from jumpyworld.viewer.thinking import Thinker

Source = Literal["goal", "plan", "behaviour"]
TRAIL = 4000  # places kept of the way taken


class NotReadyError(Exception):
    """What is asked for is still being compiled."""


class Program(NamedTuple):
    """Something to compile: its name, a call that does it, and whether the page waits for it."""

    name: str
    call: Callable[[], None]
    first: bool


class Session:
    """See the module.

    Attributes:
        thinker: the policy and its model.
        stage: the real environment.
    """

    def __init__(self, opened: Opened, effort: Effort | None = None):
        """Make the environment; compiles nothing."""
        self.opened, self.scene = opened, scene_of(opened.domain)
        self.thinker = Thinker(opened, self.scene, effort)
        self.stage = Stage(self.scene)
        self.compiled: set[str] = set()
        self.failed: dict[str, str] = {}
        self._field: np.ndarray | None = None
        self._start_episode()

    def programs(self) -> list[Program]:
        """Return what is compiled: first what the page cannot do without, then the rest."""
        state, goal = self.stage.observation, self._goal
        paint = self.thinker.paint_task(np.zeros(self.scene.free.shape, np.float32))
        first, *others = self.thinker.sources.values()

        def try_plan(source: AbstractSource, task: Task) -> None:
            plan, _, planner = self.thinker.plan(0, state, task, goal, source, source.usual, None)
            planner.follow(jax.random.key(0), jnp.asarray(state), plan)

        def sample(z: np.ndarray | None) -> None:
            self.thinker.samples(0, state, z, first.usual.segments[0])

        def to_goal(source: AbstractSource, at_once: bool) -> Program:
            task = self.thinker.goal_task(goal)
            return Program(source.name, lambda: try_plan(source, task), first=at_once)

        paper = self.thinker.sources["paper"]
        listed = [
            Program("samples", lambda: sample(goal), first=True),
            to_goal(first, True),
            Program("first task", self.begin, first=True),
            *(to_goal(source, False) for source in others),
            Program("painting", lambda: try_plan(paper, paint), first=False),
        ]
        if self.opened.has_behaviour:
            listed.append(Program("behaviour", lambda: sample(None), first=False))
        listed.append(Program("precedents", first.prepare, first=False))
        return listed

    def begin(self) -> None:
        """Go to the task with a plan that is worth most more than the base policy alone.

        Where no task has a plan, to the first. The page's first plan has the same seed, and is the
        plan that was found here.
        """
        source, gains = self.thinker.first, dict[int, float]()
        for task in (1, 2, 3, 4, 5):
            self.reset(task, 0)
            goal, state = self._goal, self.stage.observation
            asked = self.thinker.goal_task(goal)
            plan, compared, planner = self.thinker.plan(
                0, state, asked, goal, source, source.usual, None
            )
            if float(plan.value) > 0:
                chosen, _, base = compared.rewards.mean(-1) @ np.asarray(planner.weights)
                gains[task] = float(chosen - base)
        self.reset(max(gains, key=lambda task: gains[task], default=1), 0)

    def need(self, program: str) -> None:
        """Raise NotReadyError where a program is not compiled yet: waiting would block the page.

        Raises:
            PlanError: it cannot be compiled.
        """
        if program in self.failed:
            raise PlanError(f"{program}: cannot be compiled ({self.failed[program]})")
        if program not in self.compiled:
            raise NotReadyError(f"{program}: still compiling, one moment")

    @property
    def proposals(self) -> tuple[str, ...]:
        """Where candidates can come from, the first choice first."""
        return tuple(self.thinker.sources)

    def segments(self, proposal: str) -> int:
        """Return the number of horizons in a request, as compiled."""
        return len(self.thinker.sources[proposal].usual.segments)

    def describe(self) -> dict[str, Any]:
        """Return what the page needs to draw itself."""
        return {
            **self.scene.describe(),
            "id": self.opened.id,
            "title": self.opened.title,
            "policy": self.opened.policy.name,
            "proposals": [
                {
                    "name": source.name,
                    "horizons": list(source.usual.segments),
                    "discount": source.usual.discount,
                    "needs_goal": source.needs_goal,
                }
                for source in self.thinker.sources.values()
            ],
            "longest": self.opened.longest,
            "has_behaviour": self.opened.has_behaviour,
            **self.state(),
            "trail": rounded(self._trail),
        }

    def state(self) -> dict[str, Any]:
        """Return where everything is now, and what it is to become."""
        observation = self.stage.observation
        domain, painted = self.opened.domain, self._field
        values: dict[str, Any] = {
            "task": self.stage.task,
            "step": self.stage.steps,
            "objects": rounded(self.scene.places(observation)),
            "effector": None,
            "goal": rounded(self.scene.places(self._goal)) if painted is None else None,
            "painted": None,
            "reached": self.reached,
            "reward": number(self._collected),
        }
        if isinstance(domain, CubeDomain):
            values["effector"] = rounded(domain.effector_position(observation)[:2])
        if painted is not None:
            cells = np.argwhere(painted != 0)
            values["painted"] = [[int(i), int(j), number(painted[i, j])] for i, j in cells]
        return {"state": values}

    @property
    def reached(self) -> bool:
        """Whether the goal is reached; a painted reward has no end."""
        done = self.opened.domain.success(self.stage.observation, self._goal)
        return self._field is None and bool(done)

    def reset(self, task: int, seed: int) -> dict[str, Any]:
        """Begin one of the five tasks."""
        self.stage.reset(task, seed)
        self._field = None
        self._start_episode()
        return self.state()

    def place(self, start: tuple[float, float]) -> dict[str, Any]:
        """Begin somewhere else, for the same goal or reward."""
        goal, field = self._goal, self._field
        self.stage.place(start)
        self._start_episode()
        self._goal, self._field = goal, field
        return self.state()

    def set_goal(self, places: Sequence[Sequence[float]]) -> dict[str, Any]:
        """Aim at other places, one for each object."""
        self._goal = self.scene.goal_at(self.stage.task_goal, places)
        self._field = None
        self._forget()
        return self.state()

    def paint(self, cells: Sequence[tuple[int, int, float]]) -> dict[str, Any]:
        """Collect a painted reward instead of reaching a goal; nothing painted: the goal again."""
        field = self.scene.field_of(cells)
        self._field = field if field.any() else None
        self._forget()
        return self.state()

    def samples(self, source: Source, horizon: float, seed: int) -> dict[str, Any]:
        """Return the model's samples from the state now, for one discount."""
        if horizon > self.opened.longest * (1 + 1e-6):
            raise PlanError(f"horizon: the model was trained up to {self.opened.longest:g} steps")
        if source == "plan" and self._plan is None:
            raise PlanError("source: there is no plan yet")
        if source == "behaviour" and not self.opened.has_behaviour:
            raise PlanError("source: this model was not trained on the behaviour")
        self.need("behaviour" if source == "behaviour" else "samples")
        z = None if source == "behaviour" else self._base
        if source == "plan" and self._plan is not None:
            z = np.asarray(self._plan.z[0])
        begin = time.perf_counter()
        found = self.thinker.samples(seed, self.stage.observation, z, horizon)
        took = time.perf_counter() - begin
        return {"samples": rounded(self.scene.places(found)), "ms": number(1e3 * took, 1)}

    def plan(self, proposal: str, horizons: Horizons, seed: int) -> dict[str, Any]:
        """Plan from the state now; nothing moves."""
        source = self.thinker.sources[proposal]
        if self._field is not None and source.needs_goal:
            raise PlanError(
                f"proposal: a {proposal} leads to a goal, and a painted reward has none; erase it, "
                "or let candidates be the paper's"
            )
        self.need(proposal if self._field is None else "painting")
        if proposal != self._proposal:  # its sequences have another length
            self._memory, self._proposal = None, proposal
        task, memory, begin = self._task, self._memory, time.perf_counter()
        plan, compared, planner = self.thinker.plan(
            seed, self.stage.observation, task, self._base, source, horizons, memory
        )
        took = time.perf_counter() - begin
        self._plan, self._planner, self._planned_at = plan, planner, self.stage.steps
        remembers = memory is not None and bool(memory.valid)
        asked = Asked(source, horizons, self._field is not None, remembers)
        values = plan_as_values(self.thinker, asked, plan, compared)
        return {"plan": {**values, "proposal": proposal, "seed": seed, "ms": number(1e3 * took, 1)}}

    def advance(
        self, count: int, proposal: str, horizons: Horizons, replan_every: int, seed: int
    ) -> dict[str, Any]:
        """Step the real environment, planning anew every few steps.

        Returns:
            The state, the way taken, and the last plan if one was made.
        """
        moved: list[Any] = []
        answer: dict[str, Any] = {}
        for _ in range(count):
            if self.reached:
                break
            key = jax.random.fold_in(jax.random.key(seed), self.stage.steps)
            stale = self.stage.steps - self._planned_at >= replan_every
            stale |= proposal != self._proposal
            if self._plan is None or self._planner is None or stale:
                answer |= self.plan(proposal, horizons, (seed + self.stage.steps) % 2**31)
                if self._plan is None:  # for the type checker: a plan was just made
                    break
                self._memory, action = self._plan.memory, self._plan.action
            elif self.stage.steps == self._planned_at:
                self._memory, action = self._plan.memory, self._plan.action
            else:
                here = jnp.asarray(self.stage.observation)
                action = self._planner.follow(key, here, self._plan)
            self.stage.step(np.asarray(action))
            self._collected += self._reward_now()
            moved.append(self._focus())
        self._trail = [*self._trail, *moved][-TRAIL:]
        return {**answer, **self.state(), "moved": rounded(moved) if moved else []}

    def frame(self) -> bytes:
        """Return a rendered picture of the stage."""
        return self.stage.frame()

    @property
    def _task(self) -> Task:
        if self._field is not None:
            return self.thinker.paint_task(self._field)
        return self.thinker.goal_task(self._goal)

    @property
    def _base(self) -> np.ndarray:
        """What the base policy aims at: the goal, or the best painted cell."""
        if self._field is None:
            return self._goal
        best = np.where(self.scene.free, self._field, -np.inf).argmax()
        i, j = np.unravel_index(best, self._field.shape)
        places = np.asarray(self.scene.places(self._goal)).copy()
        places[:] = self.scene.centre_of((int(i), int(j)))
        try:
            return self.scene.goal_at(self.stage.task_goal, places.tolist())
        except PlanError:  # painted at the table's edge, where nothing can be put
            return self._goal

    def _focus(self) -> Any:
        """Return the place that leaves a trail: the body, or the arm's end."""
        domain, observation = self.opened.domain, self.stage.observation
        if isinstance(domain, CubeDomain):
            return domain.effector_position(observation)[:2]
        return np.asarray(self.scene.places(observation))[0]

    def _reward_now(self) -> float:
        if self._field is None:
            return float(self.opened.domain.reward(self.stage.observation, self._goal))
        return float(
            self.scene.painted_reward(jax.numpy.asarray(self.stage.observation), self._field)
        )

    def _start_episode(self) -> None:
        self._goal = self.stage.task_goal
        self._collected = 0.0
        self._trail: list[Any] = [self._focus()]
        self._forget()

    def _forget(self) -> None:
        self._plan: Plan | None = None
        self._planner: CompPlan | None = None
        self._memory: Any = None
        self._proposal: str | None = None
        self._planned_at = 0
