"""Where a page's candidates come from: the paper's proposals, or ways that the data know.

Each source has horizons and an effort of its own, which are part of compiled shapes. Ways of the
data (bridges in mazes, traces of cubes) lead to a goal that a chain of samples seldom meets; they
are longer, so that fewer of them are looked at in the same time. They need a goal: a painted reward
is left to the paper's proposals. Where a maze's data are known, jumps without a precedent are
refused for both, as in ``jumpy eval --precedents``.
"""

import abc
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from jumpyworld.domains import MazeDomain
from jumpyworld.evaluation.planners import STRIDES, PlannerSettings, make_planner
from jumpyworld.planning import (
    AbstractProposal,
    CompPlan,
    Elimination,
    GoalProposal,
    HighLevelProposal,
    MixtureProposal,
    Places,
    UnconditionalProposal,
    planning_preset,
)
from jumpyworld.viewer.known import Tabled
from jumpyworld.viewer.opened import Opened

REMEMBERED = 2  # sequences of the last plan that stand among the next one's candidates
Rounds = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Effort:
    """What a plan may cost; everything here is part of a compiled shape.

    The defaults are what one core plans in about 150 ms with a network of 128.

    Attributes:
        candidates: M, without the base policy's and the remembered ones.
        rounds: (count, chains) of each round of the search.
        ode_steps: of the model while planning.
        explained: fresh chains for each of the three sequences that are compared.
        samples: shown for one discount.
    """

    candidates: int = 32
    rounds: Rounds = ((32, 5), (6, 16), (2, 40))
    ode_steps: int = 3
    explained: int = 30
    samples: int = 256

    @classmethod
    def of(cls, candidates: int, ode_steps: int) -> "Effort":
        """Return the usual effort for a number of candidates."""
        fewer = max(2, candidates // 5)
        return cls(candidates, ((candidates, 5), (fewer, 16), (2, 40)), ode_steps)

    @property
    def longer(self) -> tuple[int, Rounds]:
        """Return candidates and rounds for sequences half as long again, at the same cost."""
        count = max(2, self.candidates // 2)
        return count, ((count, 6), (max(2, count // 4), 20))


@dataclass(frozen=True)
class Horizons:
    """Mean steps of each segment, and the global discount."""

    segments: tuple[float, ...]
    discount: float

    def within(self, longest: float) -> "Horizons":
        """Return them cut to what a model was trained for and to the discount's own horizon."""
        most = min(longest, 1 / (1 - self.discount))
        return Horizons(tuple(min(h, most) for h in self.segments), self.discount)


class AbstractSource(abc.ABC):
    """A source of candidates.

    Attributes:
        name: what requests call it.
        usual: horizons that the page begins with, within what the model was trained for.
        needs_goal: whether it can do nothing for a painted reward.
    """

    name: str
    usual: Horizons
    needs_goal: bool

    @abc.abstractmethod
    def planner(self, has_goal: bool, base: np.ndarray, horizons: Horizons) -> CompPlan:
        """Return a planner; cheap, its programs are found again.

        Args:
            has_goal: whether the task is to reach a goal, rather than to collect what is painted.
            base: what the base policy aims at [d].
            horizons: of the segments, and the discount.
        """

    def prepare(self) -> None:
        """Do ahead what would make later answers slow; nothing, unless a source says otherwise."""
        return

    @abc.abstractmethod
    def kinds(self, has_goal: bool, remembers: bool) -> list[str]:
        """Return where each candidate comes from, in the planner's order.

        Args:
            has_goal: see ``planner``.
            remembers: whether there is a last plan; else proposals stand where it would.
        """


class PaperSource(AbstractSource):
    """Half on the base policy's own way, half wherever the data went; and the base policy's own."""

    name, needs_goal = "paper", False

    def __init__(self, opened: Opened, effort: Effort, places: Places | None):
        """Keep them; places refuse jumps that the data never made."""
        self._opened, self._effort, self._places = opened, effort, places
        wanted = Horizons((50.0, 50.0, 100.0, 100.0), 0.995)
        # Four segments are what two cores plan in time; a shorter overall horizon than the paper's
        # thousand steps lets those four hold most of the weight.
        if not isinstance(opened.domain, MazeDomain):
            preset = planning_preset(opened.domain.name, opened.policy.name)
            wanted = Horizons(preset.horizons, preset.discount)
        self.usual = wanted.within(opened.longest)

    def planner(self, has_goal: bool, base: np.ndarray, horizons: Horizons) -> CompPlan:
        """Return the planner of a task."""
        everyone = self._effort.candidates + 2 * REMEMBERED + int(has_goal)
        (_, chains), *later = self._effort.rounds
        return CompPlan(
            self._opened.ghm,
            self._opened.policy.policy,
            horizons=horizons.segments,
            discount=horizons.discount,
            proposal=self._proposal(None if has_goal else base),
            search=Elimination(((everyone, chains), *later)),
            num_steps=self._effort.ode_steps,
            places=self._places,
            base=self._opened.policy.whole,
            include_base=has_goal,
            warm_start=REMEMBERED,
        )

    def kinds(self, has_goal: bool, remembers: bool) -> list[str]:
        """Return where each candidate comes from."""
        count, behaviour = self._effort.candidates, self._behaviour
        own = "high level" if self._is_high_level and has_goal else "goal"
        proposed = [own] * (count - behaviour) + ["behaviour"] * behaviour
        return ["base"] * has_goal + _standing(proposed, remembers) + proposed

    @property
    def _is_high_level(self) -> bool:
        return hasattr(self._opened.policy.whole or self._opened.policy.policy, "propose")

    @property
    def _behaviour(self) -> int:
        return self._effort.candidates // 2 if self._opened.has_behaviour else 0

    def _proposal(self, aim: np.ndarray | None) -> AbstractProposal:
        """Return the proposal; few candidates must not miss the goal, so that it is the last z."""
        ends, behaviour = aim is None, self._behaviour
        count = self._effort.candidates - behaviour
        if self._is_high_level and ends:
            whole = self._opened.policy.whole or self._opened.policy.policy
            own: AbstractProposal = HighLevelProposal(policy=whole, number=count, append_goal=ends)
        else:
            own = GoalProposal(count, goal=aim, append_goal=ends)
        if not behaviour:
            return own
        return MixtureProposal((own, UnconditionalProposal(behaviour, append_goal=ends)))


class DataSource(AbstractSource):
    """Ways that the data know: bridges between places of a maze, or traces of cubes."""

    needs_goal = True
    name: Literal["bridge", "trace"]

    def __init__(self, opened: Opened, effort: Effort, made: dict[str, Any], usual: Horizons):
        """Keep them.

        Args:
            opened: policy and model.
            effort: of a plan.
            made: what ``make_planner`` takes of the data, ``places`` or ``traces``.
            usual: horizons that the page begins with.
        """
        self.name = "bridge" if "places" in made else "trace"
        self._opened, self._effort, self._made, self.usual = opened, effort, made, usual
        self._last: tuple[Horizons, CompPlan] | None = None

    def planner(self, has_goal: bool, base: np.ndarray, horizons: Horizons) -> CompPlan:
        """Return the planner of any goal; that of the last horizons is kept."""
        if self._last is None or self._last[0] != horizons:
            count, ((_, chains), *later) = self._effort.longer
            settings = PlannerSettings(
                horizons.segments,
                horizons.discount,
                self.name,
                count,
                search="elimination",
                rounds=((count + 2 * REMEMBERED, chains), *later),
                ode_steps=self._effort.ode_steps,
                warm_start=REMEMBERED,
                # Where the goal is too far for any chain, a way towards it beats the base policy;
                # for the same reason that policy's own sequence is not among them.
                when_all_zero="candidate",
            )
            policy = self._opened.policy
            made = make_planner(
                "compplan",
                settings,
                policy.policy,
                ghm=self._opened.ghm,
                whole=policy.whole,
                **self._made,
            )
            assert isinstance(made, CompPlan)
            self._last = horizons, made
        return self._last[1]

    def prepare(self) -> None:
        """Count the precedents of all horizons that a slider can ask for."""
        if "places" in self._made:
            self._made["places"].count_all()

    def kinds(self, has_goal: bool, remembers: bool) -> list[str]:
        """Return where each candidate comes from."""
        proposed: list[str] = [self.name] * self._effort.longer[0]
        return _standing(proposed, remembers) + proposed


def sources_of(opened: Opened, effort: Effort) -> list[AbstractSource]:
    """Return what a model's page can choose from, the first choice first."""
    known = opened.known
    if known is None:
        return [PaperSource(opened, effort, None)]
    if isinstance(known, Places):
        # A trajectory must be longer than a bridge's jumps.
        longest = (int(np.diff(known.ends, prepend=-1).max()) - 1) / STRIDES["bridge"]
        # Far enough for the far ends of a large maze: six jumps of 75 steps of the data.
        usual = Horizons((150.0,) * 6, 0.998).within(min(opened.longest, max(1.0, longest)))
        paper = PaperSource(opened, effort, None).usual.segments
        places = Tabled.of(known, opened.longest, (*usual.segments, *paper))
        made = DataSource(opened, effort, {"places": places}, usual)
        return [made, PaperSource(opened, effort, places)]
    usual = Horizons((50.0,) * 6, 0.99).within(opened.longest)
    return [
        DataSource(opened, effort, {"traces": known}, usual),
        PaperSource(opened, effort, None),
    ]


def _standing(proposed: list[str], remembers: bool) -> list[str]:
    """Return the kinds of the sequences of the last plan, or of those that stand for them."""
    return ["remembered"] * (2 * REMEMBERED) if remembers else 2 * proposed[:REMEMBERED]
