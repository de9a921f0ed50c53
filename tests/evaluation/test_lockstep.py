import dataclasses
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from own_domain import LINE, LineDomain

from jumpyworld import domains
from jumpyworld.errors import ConfigError, JumpyError
from jumpyworld.evaluation.lockstep import Lockstep, _bounds


@pytest.mark.parametrize("alias", ["pointmaze-medium", "antmaze-medium"])
def test_lockstep_is_each_environment_by_itself(alias):
    domain = domains.get(alias)
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (12, 3, domain.action_dim)).astype(np.float32)
    with Lockstep(domain, 3, workers=2) as envs:
        observations, goals = envs.reset([{"seed": i, "task": i + 1} for i in range(3)])
        together = [observations, *(envs.step(a)[0] for a in actions)]
    for i in range(3):
        env = domain.make_env(0)
        observation, info = env.reset(seed=i, options={"task_id": i + 1})
        np.testing.assert_array_equal(goals[i], np.float32(info["goal"]))
        alone = [observation, *(env.step(a[i])[0] for a in actions)]
        np.testing.assert_array_equal(np.float32(alone), [t[i] for t in together])


@pytest.mark.parametrize("room", ["lockstep", "transport"])
def test_worker_processes_need_no_jax(room):
    """It would cost each of them 170 MB and most of a second."""
    code = f"import jumpyworld.evaluation.{room}, sys; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_only_boxes_bound_actions():
    class Boxed:
        action_space = gymnasium.spaces.Box(-2.0, 0.5, (2,), np.float32)

    class Other:
        action_space = gymnasium.spaces.Discrete(7)

    far = np.asarray([5.0, -5.0], np.float32)
    clipped = np.clip(far, *_bounds(Boxed()))
    assert clipped.dtype == np.float32 and clipped.tolist() == [0.5, -2.0]
    np.testing.assert_array_equal(np.clip(far, *_bounds(Other())), far)


def test_a_finished_episode_stands_still_and_keeps_its_success():
    domain = domains.get("pointmaze-medium")
    env = domain.make_env(0)
    _, info = env.reset(seed=0, options={"task_id": 1})
    near = (info["goal"] + [1.05, 0.0]).tolist()
    with Lockstep(domain, 2, workers=1) as envs:
        episodes = [
            {"seed": 0, "task": 1, "qpos": near, "qvel": [0.0, 0.0]},
            {"seed": 0, "task": 1},
        ]
        envs.reset(episodes)
        left = np.array([[-1.0, 0.0], [0.0, 0.0]], np.float32)
        for _ in range(3):
            observations, success = envs.step(left)
            if success[0]:
                break
        assert success.tolist() == [True, False]
        later, success = envs.step(left)
        np.testing.assert_array_equal(later[0], observations[0])
        assert success.tolist() == [True, False]


def test_closing_in_the_middle_of_a_step_is_silent(capfd):
    """As after Ctrl-C: workers that have nobody left to answer to say nothing."""
    envs = Lockstep(domains.get("pointmaze-medium"), 2, workers=2)
    envs.reset([{"seed": i, "task": 1} for i in range(2)])
    for pipe in envs._pipes:
        pipe.send_bytes(b"step")
    envs.close()
    assert all(process.exitcode == 0 for process in envs._processes)
    assert capfd.readouterr().err == ""


def test_environments_that_cannot_be_made_say_why(monkeypatch, capfd):
    monkeypatch.setenv("MUJOCO_GL", "nonsense")
    with (
        Lockstep(domains.get("pointmaze-medium"), 1) as envs,
        pytest.raises(JumpyError, match=r"failed: RuntimeError: .*nonsense") as caught,
    ):
        envs.reset([{"seed": 0, "task": 1}])
    assert "\n" not in str(caught.value) and capfd.readouterr().err == ""


def test_a_worker_that_is_gone_is_one_line():
    with Lockstep(domains.get("pointmaze-medium"), 2, workers=2) as envs:
        envs.reset([{"seed": i, "task": 1} for i in range(2)])
        envs._processes[1].kill()
        envs._processes[1].join()
        with pytest.raises(JumpyError, match="a worker process ended unexpectedly"):
            envs.step(np.zeros((2, 2)))


def test_an_environments_failure_is_named():
    with Lockstep(domains.get("pointmaze-medium"), 1, workers=1) as envs:
        with pytest.raises(JumpyError, match="Task ID must be"):
            envs.reset([{"seed": 0, "task": 9}])
        with pytest.raises(ConfigError, match="2 episodes for 1 environments"):
            envs.reset([{"seed": 0}, {"seed": 1}])


def test_a_domain_that_no_registry_knows_steps_as_its_environment_does():
    with pytest.raises(ConfigError, match="unknown domain"):
        domains.get(LINE.name)
    for domain in (LINE, dataclasses.replace(LINE, wrapped=True)):
        with Lockstep(domain, 2, workers=2) as envs:
            states, goals = envs.reset([{"seed": i, "task": i + 1} for i in range(2)])
            together = [states, envs.step(np.ones((2, 1)))[0]]
        assert goals.tolist() == [[3.0], [6.0]]
        for i in range(2):
            env = domain.make_env(0)
            alone = [env.reset(seed=i, options={"task_id": i + 1})[0], env.step(np.float32([1]))[0]]
            np.testing.assert_array_equal(np.float32(alone), [t[i] for t in together])


def test_a_domain_that_cannot_be_handed_over_says_why():
    class Inside(LineDomain):
        pass

    inside = Inside(*dataclasses.astuple(LINE)[:5], LINE.collection)
    with pytest.raises(ConfigError, match=r"line: cannot be handed .*top of a module") as caught:
        Lockstep(inside, 1)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("many", "workers"), [(0, 1), (2.5, 1), (1, 0), (1, -1)])
def test_numbers_that_are_none_are_refused(many, workers):
    named = "num_envs" if workers == 1 else "workers"
    with pytest.raises(ConfigError, match=f"^{named}=.*: must be a whole number, at least 1"):
        Lockstep(LINE, many, workers=workers)
