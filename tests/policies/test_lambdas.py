"""``benchmarks/lambdas.py``: members of one training are what they would be alone."""

import importlib.util
from pathlib import Path

import jax
import numpy as np
import pytest

import jumpyworld
from jumpyworld.errors import ConfigError
from jumpyworld.policies import gc1s, gctd3
from jumpyworld.storage.trees import is_array
from jumpyworld.training import TrainingConfig, train

SCRIPT = Path(__file__).parents[2] / "benchmarks/lambdas.py"


@pytest.fixture(scope="module")
def lambdas():
    spec = importlib.util.spec_from_file_location("lambdas", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("name", "algorithm"), [("gc1s", gc1s), ("gctd3", gctd3)])
def test_a_member_takes_the_steps_of_its_own_policy_and_lambda(
    lambdas, walks, quick, name, algorithm
):
    dataset, data, spec = walks
    config = gc1s.GC1SConfig.preset("debug", distill_coefficient=7.0)
    job = lambdas.members_job([(name, 0.3)], dataset, config)
    key, step_key = jax.random.key(1), jax.random.key(2)
    member, _ = quick(lambda m, k: job.step(m, job.data, k))(job.init(key), step_key)
    alone = {"gc1s": gc1s.GC1SConfig, "gctd3": gctd3.GCTD3Config}[name]
    alone = alone.preset("debug", distill_coefficient=0.3)
    initial = algorithm.init(key, alone, spec)
    want, _ = quick(lambda s, k: algorithm.step(s, data, k, alone))(initial, step_key)
    for got, wanted in zip(jax.tree.leaves(member.state), jax.tree.leaves(want), strict=True):
        if is_array(got):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_each_member_is_exported_under_its_own_name(lambdas, walks, tmp_path):
    members = [("gc1s", 0.1), ("gctd3", 0.4)]
    config = gc1s.GC1SConfig.preset("debug")
    job = lambdas.members_job(members, walks[0], config)
    train(job, tmp_path, TrainingConfig(steps=2, num_seeds=2, seed=5))
    folders = lambdas.export(tmp_path, 2, members, 5)
    assert [x.name for x in folders] == ["gc1s-0.1-seed5-000000002", "gctd3-0.4-seed6-000000002"]
    state = walks[0].observations[0]
    first, second = (jumpyworld.load(folder) for folder in folders)
    key = jax.random.key(0)
    assert np.any(first.sample(key, state, state) != second.sample(key, state, state))
    documents = [lambdas.checkpoint.read(folder)[0] for folder in folders]
    told = [(x["kind"], x["config"]["distill_coefficient"], x["seeds"]) for x in documents]
    assert told == [("gc1s", 0.1, [5]), ("gctd3", 0.4, [6])]


@pytest.mark.parametrize("text", ["crl:0.1", "gc1s", "gc1s:-1", "gctd3:inf"])
def test_what_is_no_member_is_refused(lambdas, text):
    with pytest.raises(ConfigError, match=f"member '{text}': must be gc1s:LAMBDA"):
        lambdas.read_member(text)
