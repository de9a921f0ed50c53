"""What CompPlan refuses, in one line that names the setting and its value."""

import math
from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

from jumpyworld.errors import ConfigError, PlanError, brief, check_whole
from jumpyworld.planning.inputs import check_sampler, check_size
from jumpyworld.planning.plan import Memory
from jumpyworld.planning.search import Elimination, Search, Uniform
from jumpyworld.planning.tasks import Task

if TYPE_CHECKING:
    from jumpyworld.planning.compplan import CompPlan


def check_horizons(horizons: Sequence[float], betas: Sequence[float], model: Any) -> None:
    """Raise ConfigError where a horizon is beyond what the model was trained for."""
    trained = float(getattr(model, "gamma_max", 1.0))
    for horizon, beta in zip(horizons, betas, strict=True):
        if beta > trained + 1e-6:
            raise ConfigError(
                f"horizons: {horizon:g} steps (beta={beta:g}) is beyond the "
                f"{1 / (1 - trained):g} steps that the model was trained for "
                f"(gamma_max={trained:g}); allow_extrapolation=True asks anyway"
            )


def check_parts(ghm: Any, policy: Any) -> None:
    """Raise ConfigError unless both can be asked for samples."""
    check_sampler("ghm", ghm)
    check_sampler("policy", policy)


def check_search(search: Any) -> Search:
    """Return what is a search; raise ConfigError for anything else."""
    if not isinstance(search, Uniform | Elimination):
        raise ConfigError(f"search={search!r}: must be a Uniform or an Elimination")
    return search


def check_places(places: Any) -> Any:
    """Return what knows the data's jumps; raise ConfigError for anything else."""
    if not hasattr(places, "precedents"):
        raise ConfigError(f"places={brief(places)}: must be Places, as find_places returns them")
    return places


def check_memory(memory: Any, expected: tuple[int, ...]) -> None:
    """Raise PlanError where a memory cannot be that of the planner's last plan.

    Args:
        memory: what was given.
        expected: shape of its ``z`` but for the width, which only a proposal knows.
    """
    if not isinstance(memory, Memory):
        raise PlanError(f"memory={memory!r}: must be the memory of a plan")
    if memory.z.ndim != len(expected) + 1 or memory.z.shape[:-1] != expected:
        *_, warm, segments = expected
        raise PlanError(
            f"memory of shape {memory.z.shape}: is of another planner, or of another number of "
            f"environments; here warm_start={warm}, and sequences are of {segments}"
        )


def check_settings(planner: "CompPlan") -> None:
    """Raise ConfigError where a setting is out of range, or two do not fit together."""
    _check_counts(planner)
    margin = planner.margin
    if not (isinstance(margin, Real) and 0 <= margin < math.inf):
        raise ConfigError(f"margin={margin}: must be a finite number, at least 0")
    search, count = planner.search, planner.proposal.count
    warm, rows = planner.warm_start, planner.max_rows
    most = max([s for _, s in search.schedule(planner.num_candidates)] + [search.fresh])
    first = search.rounds[0][0] if isinstance(search, Elimination) else count
    held = planner.include_base or warm > 0
    for ok, text in (
        (planner.objective in ("q", "v"), f"objective={planner.objective!r}: must be 'q' or 'v'"),
        (
            planner.when_all_zero in ("base", "candidate"),
            f"when_all_zero={planner.when_all_zero!r}: must be 'base' or 'candidate'",
        ),
        (warm <= count, f"warm_start={warm}: exceeds the {count} candidates"),
        (
            margin == 0 or held,
            f"margin={margin:g}: needs include_base or warm_start, to compare with",
        ),
        (rows >= most, f"max_rows={rows}: below the {most} samples of one candidate"),
        (first >= count, f"rounds: the first takes {first} of {count} candidates"),
    ):
        if not ok:
            raise ConfigError(text)


def _check_counts(planner: "CompPlan") -> None:
    steps, proposal = planner.repertoire.num_steps, planner.proposal
    check_size(f"{type(proposal).__name__}: count", proposal.count, 1)
    check_whole("warm_start", planner.warm_start, 0)
    check_whole("max_rows", planner.max_rows, 1)
    check_size("num_steps", 1 if steps is None else steps, 1)


def check_widths(planner: "CompPlan", state_width: int, task: Task) -> None:
    """Raise PlanError where a state or goal cannot be what the model and policy expect."""
    for part in (planner.repertoire.model, planner.repertoire.policy):
        width = getattr(part, "observation_dim", state_width)
        if width != state_width:
            raise PlanError(
                f"state: has {state_width} values, {type(part).__name__} has states of {width}"
            )
    width, goal = getattr(planner.repertoire.policy, "z_dim", None), task.goal
    if planner.include_base and goal is not None and width not in (None, goal.shape[-1]):
        raise PlanError(f"goal of shape {goal.shape}: the last dimension must be {width}, as z's")
