"""The ten domains, by OGBench's names and the paper's aliases.

The figures below are OGBench's; a test compares them with the environments themselves, so that
listing domains needs no simulator.
"""

import difflib

from jumpyworld.domains.base import Collection, Domain
from jumpyworld.domains.cube import CubeDomain
from jumpyworld.domains.maze import MazeDomain
from jumpyworld.errors import ConfigError


def _maze(body: str, size: str, *, obs: int, act: int, noise: float, rate: int) -> MazeDomain:
    # Giant mazes take twice the steps to cross: half as many episodes, twice as long.
    episodes, steps = (500, 2001) if size == "giant" else (1000, 1001)
    return MazeDomain(
        name=f"{body}maze-{size}-navigate-v0",
        alias=f"{body}maze-{size}",
        observation_dim=obs,
        action_dim=act,
        max_episode_steps=1000,
        collection=Collection(episodes, steps, noise, rate),
    )


def _cube(word: str, number: int, *, limit: int, episodes: int, rate: int) -> CubeDomain:
    return CubeDomain(
        name=f"cube-{word}-play-v0",
        alias=f"cube-{number}",
        observation_dim=19 + 9 * number,
        action_dim=5,
        max_episode_steps=limit,
        collection=Collection(episodes, 1001, 0.1, rate),
    )


DOMAINS: tuple[Domain, ...] = (
    _maze("point", "medium", obs=2, act=2, noise=0.5, rate=10800),
    _maze("point", "large", obs=2, act=2, noise=0.5, rate=7300),
    _maze("point", "giant", obs=2, act=2, noise=0.5, rate=8800),
    _maze("ant", "medium", obs=29, act=8, noise=0.2, rate=2300),
    _maze("ant", "large", obs=29, act=8, noise=0.2, rate=1750),
    _maze("ant", "giant", obs=29, act=8, noise=0.2, rate=1870),
    _cube("single", 1, limit=200, episodes=1000, rate=450),
    _cube("double", 2, limit=500, episodes=1000, rate=390),
    _cube("triple", 3, limit=1000, episodes=3000, rate=370),
    _cube("quadruple", 4, limit=1000, episodes=5000, rate=260),
)

_BY_NAME = {key: d for d in DOMAINS for key in (d.name, d.alias, d.env_id)}
_BY_NAME |= {d.env_id.removesuffix("-v0"): d for d in DOMAINS}


def names() -> list[str]:
    """Return every name that ``get`` understands."""
    return sorted(_BY_NAME)


def get(name: str) -> Domain:
    """Return a domain by data set name, environment id or alias.

    Raises:
        ConfigError: no domain has that name; the message offers the nearest ones.
    """
    if domain := _BY_NAME.get(name):
        return domain
    near = difflib.get_close_matches(name, _BY_NAME, n=3)
    hint = f"did you mean {', '.join(near)}?" if near else "see `jumpy data list`"
    raise ConfigError(f"unknown domain {name!r}: {hint}")
