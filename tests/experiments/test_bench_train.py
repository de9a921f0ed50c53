import dataclasses

import equinox as eqx
import jax
import numpy as np
import pytest

from jumpyworld import policies
from jumpyworld.errors import ConfigError
from jumpyworld.experiments import bench_train
from jumpyworld.experiments.bench_train import (
    VERSIONS,
    bench_ghm,
    bench_policies,
    random_dataset,
    untrained_policy,
    version_job,
)
from jumpyworld.experiments.plain import plain_loss
from jumpyworld.ghm import GHMConfig, algorithm, td_hc_loss
from jumpyworld.ghm.job import ghm_job


@pytest.fixture(scope="module")
def setting():
    dataset = random_dataset(rows=2000)
    policy = untrained_policy("gctd3", dataset, "debug")
    return dataset, policy, GHMConfig.preset("debug", width=16, embed_dim=8, batch_size=12)


@pytest.mark.parametrize("hc_fraction", [0.25, 0.0])
def test_the_straightforward_loss_is_the_fast_one(setting, hc_fraction):
    dataset, policy, config = setting
    config = dataclasses.replace(config, hc_fraction=hc_fraction)
    job = ghm_job(dataset, policy, config)
    state = job.init(jax.random.key(0))
    rng = np.random.default_rng(0)

    def moved(model, seed):
        rng = np.random.default_rng(seed)
        shake = lambda w: w + 0.1 * rng.normal(size=w.shape).astype(w.dtype)  # noqa: E731
        return eqx.tree_at(lambda m: m.field, model, jax.tree.map(shake, model.field))

    model, target = moved(state.model, 1), moved(state.target, 2)
    batch = algorithm.sample_batch(job.data[0], jax.random.key(1), config, model.z_dim)
    key = jax.random.key(int(rng.integers(100)))
    arguments = (target, batch, key, config, policy)
    fast = eqx.filter_jit(eqx.filter_value_and_grad(lambda m: td_hc_loss(m, *arguments)[0]))
    plain = eqx.filter_jit(eqx.filter_value_and_grad(lambda m: plain_loss(m, *arguments)))
    (got, got_gradient), (want, want_gradient) = fast(model), plain(model)
    np.testing.assert_allclose(got, want, rtol=1e-5)
    other = dataclasses.replace(config, step_power=0.5)
    with pytest.raises(ConfigError, match=r"step_power=0\.5: the plain loss has 0\.0 alone"):
        plain_loss(model, target, batch, key, other, policy)
    with pytest.raises(ConfigError, match="landings=4: the plain loss has 0 alone"):
        plain_loss(model, target, batch, key, dataclasses.replace(config, landings=4), policy)
    a, b = (
        np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree.field)])
        for tree in (got_gradient, want_gradient)
    )
    assert np.linalg.norm(a - b) < 1e-3 * np.linalg.norm(b)


def test_versions_are_named_once_and_the_first_is_the_reference(setting):
    names = [version.name for version in VERSIONS]
    assert len(set(names)) == len(names) and VERSIONS[0].plain
    dataset, policy, config = setting
    flow = bench_train.untrained_policy("gcbc", dataset, "debug")
    for version in VERSIONS:  # every change is a field of the config
        version_job(version, config, dataset, flow if version.policy == "gcbc" else policy)


def test_the_straightforward_step_lets_the_target_rate_fall(setting):
    dataset, policy, config = setting
    config = dataclasses.replace(
        config, hc_fraction=0.0, target_rate=0.5, final_target_rate=0.1, gradient_steps=1
    )
    job = version_job(VERSIONS[0], config, dataset, policy)
    state, step = job.init(jax.random.key(0)), eqx.filter_jit(job.step)
    for rate in (0.5, 0.1):
        after, _ = step(state, job.data, jax.random.key(1))
        old, new, online = (
            jax.tree.leaves(net.field)[0] for net in (state.target, after.target, after.model)
        )
        np.testing.assert_allclose(new, old + rate * (online - old), rtol=1e-5, atol=1e-7)
        state = after


def test_rows_say_what_was_measured():
    # Without consistency rows the four programs compile in half the time.
    versions = [
        dataclasses.replace(v, changes={**v.changes, "hc_fraction": 0.0})
        for v in VERSIONS
        if v.name in ("plain", "shared")
    ]
    rows = bench_ghm("debug", (8, 16), versions, seconds=0.01, rounds=2)
    assert [row["variant"] for row in rows] == ["plain", "shared"] * 2
    assert [row["batch"] for row in rows] == [8, 8, 16, 16]
    assert rows[0]["speedup"] == rows[2]["speedup"] == 1.0 and all(row["ms"] > 0 for row in rows)
    np.testing.assert_allclose(
        [row["samples_per_second"] for row in rows],
        [1000 * row["batch"] / row["ms"] for row in rows],
        rtol=0.01,
    )


def test_a_version_may_ask_another_policy(monkeypatch):
    def measured(jobs, seeds, **box):
        asked = [job.data[1] for job in jobs.values()]
        assert [type(each).__name__ for each in asked] == ["OneStepPolicy", *["GCBCPolicy"] * 2]
        assert [(each.flow_steps, each.solver) for each in asked[1:]] == [
            (3, "euler"),
            (2, "midpoint"),
        ]
        return {name: {"ms": 1.0} for name in jobs}

    monkeypatch.setattr(bench_train, "measure", measured)
    versions = [v for v in VERSIONS if v.name in ("bf16", "flow-policy", "flow-policy-2")]
    rows = bench_ghm("debug", (8,), versions)
    assert [row["policy"] for row in rows] == ["gctd3", "gcbc", "gcbc"]
    assert versions[0].changes == versions[1].changes


def test_every_policy_has_a_row_of_its_own_pace(monkeypatch):
    took = {name: 2.0 + i for i, name in enumerate(policies.ALGORITHMS)}

    def measured(jobs, seeds, **box):
        assert {name: job.kind for name, job in jobs.items()} == {name: name for name in took}
        return {name: {"ms": took[name]} for name in jobs}

    monkeypatch.setattr(bench_train, "measure", measured)
    rows = bench_policies("debug")
    assert {row["policy"]: row["steps_per_second"] for row in rows} == {
        name: round(1000 / ms, 1) for name, ms in took.items()
    }
    assert all(row["what"] == "policy train step" and row["batch"] > 0 for row in rows)
