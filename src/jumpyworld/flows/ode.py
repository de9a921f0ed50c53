"""Fixed-step solvers for dx/dt = field(x, t), from t = 0 to an end time of each sample's own.

    h = t_end / num_steps                      every sample takes the same number of steps
    Euler      x <- x + h field(x, t)
    midpoint   x <- x + h field(x + h/2 field(x, t), t + h/2)

Paper: psi_t of the initial value problem in section 2; Euler with 10 steps in training and 20 at
evaluation. The paper gives a step of 0.1 and an end time t drawn from U([0, 1]) and not how the
two fit together; here the step is t / 10 (grid ``scaled``). Grid ``fixed`` keeps the step 0.1 and
shortens the last one.

Nothing is clipped inside the loop: the end point is the solver's alone.

Shapes: d state dimension; leading axes are a batch. A field sees x [..., d] and t [...].
"""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jumpyworld.errors import ConfigError

Field = Callable[[Float[Array, "*batch d"], Float[Array, "*batch"]], Float[Array, "*batch d"]]
Solver = Literal["euler", "midpoint"]
Grid = Literal["scaled", "fixed"]


def integrate(
    field: Field,
    x0: Float[Array, "*batch d"],
    t_end: Float[Array, "*batch"],
    *,
    num_steps: int,
    solver: Solver = "euler",
    grid: Grid = "scaled",
    unroll: int = 1,
) -> Float[Array, "*batch d"]:
    """Follow the field from x0 at t = 0 and return the state at ``t_end``.

    Args:
        field: velocity at x [..., d] and t [...].
        x0: state at t = 0 [..., d].
        t_end: end time of each sample in [0, 1] [...].
        num_steps: number of steps; midpoint evaluates the field twice per step.
        solver: ``euler`` or ``midpoint``.
        grid: ``scaled`` (step t_end / num_steps) or ``fixed`` (step 1 / num_steps, cut at t_end).
        unroll: steps per iteration of the compiled loop. 1 compiles fastest; ``num_steps`` removes
            the loop and is about 1.4 times faster on a GPU at small batches.
    """
    step = _step(field, t_end, num_steps, solver, grid)

    def body(x: Array, i: Array) -> tuple[Array, None]:
        return step(x, i)[0], None

    return jax.lax.scan(body, x0, _counter(num_steps), unroll=_unroll(unroll, num_steps))[0]


def integrate_path(
    field: Field,
    x0: Float[Array, "*batch d"],
    t_end: Float[Array, "*batch"],
    *,
    num_steps: int,
    solver: Solver = "euler",
    grid: Grid = "scaled",
    unroll: int = 1,
) -> tuple[Float[Array, "points *batch"], Float[Array, "points *batch d"]]:
    """Follow the field like ``integrate`` and return the whole path.

    Returns:
        Times [num_steps + 1, ...] and states [num_steps + 1, ..., d]; the first are 0 and x0, the
        last are ``t_end`` and the end point.
    """
    step = _step(field, t_end, num_steps, solver, grid)

    def body(x: Array, i: Array) -> tuple[Array, tuple[Array, Array]]:
        x, t = step(x, i)
        return x, (t, x)

    _, (t, x) = jax.lax.scan(body, x0, _counter(num_steps), unroll=_unroll(unroll, num_steps))
    first = jax.lax.full_like(t_end, 0)
    return jnp.concatenate([first[None], t]), jnp.concatenate([x0[None], x])


def _step(
    field: Field, t_end: Array, num_steps: int, solver: Solver, grid: Grid
) -> Callable[[Array, Array], tuple[Array, Array]]:
    """Return the function (state, step number) -> (next state, next time)."""
    if num_steps < 1:
        raise ConfigError(f"num_steps={num_steps}: an ODE solve needs at least one step")
    if solver not in ("euler", "midpoint"):
        raise ConfigError(f"solver={solver!r}: must be 'euler' or 'midpoint'")
    if grid not in ("scaled", "fixed"):
        raise ConfigError(f"grid={grid!r}: must be 'scaled' or 'fixed'")

    def time(i: Array) -> Array:
        # From the step number rather than a running sum, so that the last time is t_end exactly.
        fraction = i.astype(t_end.dtype) / num_steps
        return fraction * t_end if grid == "scaled" else jnp.minimum(fraction, t_end)

    def step(x: Array, i: Array) -> tuple[Array, Array]:
        t, t_next = time(i), time(i + 1)
        h = jnp.expand_dims(t_next - t, -1)
        if solver == "euler":
            return x + h * field(x, t), t_next
        half = x + 0.5 * h * field(x, t)
        return x + h * field(half, 0.5 * (t + t_next)), t_next

    return step


def _counter(num_steps: int) -> Array:
    return jax.lax.iota(jnp.int32, num_steps)


def _unroll(unroll: int, num_steps: int) -> int:
    if unroll < 1:
        raise ConfigError(f"unroll={unroll}: must be at least 1")
    return min(unroll, num_steps)
