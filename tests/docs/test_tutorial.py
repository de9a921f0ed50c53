"""The tutorial and the how-to pages run as they stand: blocks in order, in an empty folder."""

import os
import re
import shlex
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld.cli import run
from jumpyworld.data import Dataset
from jumpyworld.planning import CompPlan, Task, Uniform

PAGES = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.fixture(autouse=True)
def as_users_have_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # Programs this small take longer to optimise than to run.
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", True)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield
    jax.config.update("jax_disable_most_optimizations", before)


def follow(page, names):
    """Run the blocks of a page; Python ones share ``names``."""
    for language, text in BLOCK.findall((PAGES / page).read_text()):
        if language == "python":
            exec(compile(text, page, "exec"), names)
            continue
        for line in text.splitlines():
            command, *words = shlex.split(line)
            assert command == "jumpy", line
            assert run(words) == 0, line
    return names


def test_the_tutorial(capsys):
    names = follow("tutorial.md", {})
    names["env"].close()
    said = capsys.readouterr().out
    assert "10 trajectories, 10000 transitions" in said
    plan = names["plan"]
    assert plan.z.shape == (3, 2) and np.isfinite(plan.z).all() and np.isfinite(plan.value)
    assert np.isfinite(names["state"]).all()
    assert all(np.isfinite(names["where"])) and "50 steps ahead" in said
    assert re.search(r"^zero-shot 0\.\d", said, re.MULTILINE)
    assert re.search(r"^compplan 0\.\d", said, re.MULTILINE)
    assert sorted(os.listdir()) == ["data", "eval", "fidelity", "runs"]


class Drift:
    """A model and a policy at once: whoever is sent to z is there at the first jump."""

    def sample(self, key, states, *rest):
        return jnp.clip(rest[0] - states, -1, 1) if len(rest) == 1 else rest[1]


@pytest.fixture(scope="module")
def logged():
    states = np.random.default_rng(0).normal(size=(40, 2))
    return Dataset.from_arrays(states, np.zeros((40, 2)), np.arange(40) == 39)


def test_a_new_policy(logged, capsys):
    names = follow("howto/policy.md", {"dataset": logged})
    assert "(5, 2)" in capsys.readouterr().out
    assert names["job"].kind == "ghm"


def test_a_pytorch_policy(key):
    policy = follow("howto/pytorch-policy.md", {})["policy"]
    np.testing.assert_allclose(policy.sample(key, np.zeros(2), np.ones(2)), np.tanh(1), rtol=1e-5)


def test_a_new_planner(key):
    names = follow("howto/planner.md", {})
    inner = CompPlan(
        Drift(), Drift(), horizons=(5, 5), discount=0.9, proposal=names["NearbyProposal"](8),
        search=Uniform(2),
    )  # fmt: skip
    task = Task(lambda states, goal: -jnp.abs(states - goal).sum(-1), np.array([0.5, 9.0]))
    plan, half = inner(key, np.zeros(2), task), names["Hesitant"](inner)(key, np.zeros(2), task)
    np.testing.assert_allclose(half.action, plan.action / 2)
    np.testing.assert_allclose(half.z[-1], task.goal)
    assert plan.action.any()


def test_a_reward(capsys):
    follow("howto/reward.md", {})
    assert "[1. 0.]" in capsys.readouterr().out


def test_a_new_domain(capsys):
    follow("howto/domain.md", {})
    assert "[ True  True False] [1. 1. 0.]" in capsys.readouterr().out


def test_a_robots_log(capsys):
    assert follow("howto/own-data.md", {})["job"].kind == "gcbc"
    assert "20 2980" in capsys.readouterr().out


def test_every_how_to_page_has_a_test():
    pages = {path.stem for path in (PAGES / "howto").glob("*.md")}
    assert set(re.findall(r'follow\("howto/([\w-]+)\.md"', Path(__file__).read_text())) == pages
