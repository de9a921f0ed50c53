"""Where the agent lives: OGBench domains, what their goals mean, and how their data is made."""

from jumpyworld.domains.base import Collection, Domain
from jumpyworld.domains.cube import CubeDomain
from jumpyworld.domains.grid import Grid
from jumpyworld.domains.maze import MazeDomain
from jumpyworld.domains.registry import DOMAINS, get, names

__all__ = ["DOMAINS", "Collection", "CubeDomain", "Domain", "Grid", "MazeDomain", "get", "names"]
