"""Flow matching: the straight path and the fixed-step solvers, shared by policies and models.

Time runs as in the paper: t = 0 is noise, t = 1 is data.
"""

from jumpyworld.flows.ode import Field, Grid, Solver, integrate, integrate_along, integrate_through
from jumpyworld.flows.path import interpolate, target_velocity

__all__ = [
    "Field",
    "Grid",
    "Solver",
    "integrate",
    "integrate_along",
    "integrate_through",
    "interpolate",
    "target_velocity",
]
