import numpy as np
import pytest

from jumpyworld import domains
from jumpyworld.errors import ConfigError, DataError


@pytest.mark.parametrize("domain", domains.DOMAINS, ids=lambda d: d.alias)
def test_registry_agrees_with_the_environment(domain):
    env = domain.make_env(0)
    observation, info = env.reset(options={"task_id": 1})
    assert env.spec.max_episode_steps == domain.max_episode_steps
    assert observation.shape == info["goal"].shape == (domain.observation_dim,)
    assert env.action_space.shape == (domain.action_dim,)
    assert (env.action_space.low == -1).all() and (env.action_space.high == 1).all()
    assert env.unwrapped.num_tasks == domain.num_tasks
    assert env.spec.id == domain.env_id


@pytest.mark.parametrize(
    ("name", "alias"),
    [
        ("antmaze-large-navigate-v0", "antmaze-large"),
        ("antmaze-large-v0", "antmaze-large"),
        ("antmaze-large", "antmaze-large"),
        ("cube-triple-play-v0", "cube-3"),
        ("cube-triple", "cube-3"),
        ("cube-3", "cube-3"),
        ("pointmaze-giant", "pointmaze-giant"),
    ],
)
def test_a_domain_is_found_by_each_of_its_names(name, alias):
    assert domains.get(name).alias == alias


def test_there_are_ten_domains():
    assert len(domains.DOMAINS) == 10
    assert len({d.name for d in domains.DOMAINS}) == len({d.alias for d in domains.DOMAINS}) == 10


def test_unknown_domain_names_the_value_and_the_nearest_one():
    with pytest.raises(ConfigError, match=r"antmaze-huge.*did you mean antmaze-"):
        domains.get("antmaze-huge")


def test_tolerance_and_cube_count_come_from_the_simulator():
    for domain in domains.DOMAINS:
        scene = domain.make_env(0)
        scene.reset(options={"task_id": 1})
        if isinstance(domain, domains.CubeDomain):
            assert scene.unwrapped._num_cubes == domain.num_cubes == domain.reward_offset
        else:
            assert scene.unwrapped._goal_tol == domain.tolerance
            assert scene.unwrapped._maze_unit == domain.grid.unit == 4.0
            assert scene.unwrapped._offset_x == scene.unwrapped._offset_y == domain.grid.offset


def test_cube_positions_are_the_simulators():
    domain = domains.get("cube-3")
    env = domain.make_env(0)
    observation, info = env.reset(options={"task_id": 2})
    for i, position in enumerate(domain.cube_positions(observation)):
        np.testing.assert_allclose(position, info[f"privileged/block_{i}_pos"], atol=1e-12)


@pytest.mark.parametrize("shape", [(), (3,), (5, 28)])
def test_wrong_dimension_is_named(shape):
    domain = domains.get("antmaze-medium")
    with pytest.raises(DataError, match=r"antmaze-medium: states of shape .* must be 29"):
        domain.success(np.zeros(shape), np.zeros(29))
    with pytest.raises(DataError, match="goal of shape"):
        domain.reward(np.zeros((4, 29)), np.zeros(shape))
