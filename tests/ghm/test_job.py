import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld import policies
from jumpyworld.errors import ConfigError
from jumpyworld.ghm import GHMSpec, WorldModelConfig
from jumpyworld.ghm.job import ghm_job, world_model_job
from jumpyworld.policies import from_callable
from jumpyworld.storage.trees import is_array


class TablePolicy(eqx.Module):
    """Has an array of its own, larger than anything else that a step could hold fast."""

    table: jax.Array

    def sample(self, key, states, z):
        return jnp.broadcast_to(self.table.mean(0), (len(states), 2))


def constants(job):
    """Return the arrays compiled into a step: those of closures, not of state, data and key."""
    state = eqx.filter_eval_shape(job.init, jax.random.key(0))
    arrays, static = eqx.partition((state, job.data), is_array)
    traced = jax.make_jaxpr(
        lambda a, key: eqx.filter(job.step(*eqx.combine(a, static), key), is_array)
    )(arrays, jax.random.key(0))
    return traced.consts


def test_data_and_policy_are_arguments_of_the_program(dataset, config):
    policy = TablePolicy(jnp.ones((1000, 2)))
    job = ghm_job(dataset, policy, config, policy_fingerprint="abc", policy_name="table")
    assert all(const.size < 100 for const in constants(job))
    assert any(leaf is policy.table for leaf in jax.tree.leaves(job.data))
    assert job.kind == "ghm" and job.config is config
    assert job.spec == GHMSpec.blank(3, 2).shapes()
    assert job.fingerprints == {
        "dataset": dataset.fingerprint(),
        "domain": None,
        "policy": "abc",
        "policy_name": "table",
    }


def test_targets_may_ask_a_policy_in_fewer_steps(dataset, config, change):
    gcbc = policies.get("gcbc")
    settings = gcbc.config.preset("debug", flow_steps=10)
    spec = policies.PolicySpec.from_arrays(dataset.observations, dataset.actions)
    policy = gcbc.inference_model(gcbc.init(jax.random.key(0), settings, spec))
    assert ghm_job(dataset, policy, config).data[1] is policy
    asked = ghm_job(dataset, policy, change(config, policy_steps=2)).data[1]
    assert (asked.flow_steps, asked.solver) == (2, "midpoint")
    assert eqx.tree_equal(asked.field, policy.field)
    with pytest.raises(ConfigError, match="policy_steps=2: TablePolicy has no flow"):
        ghm_job(dataset, TablePolicy(jnp.ones((9, 2))), change(config, policy_steps=2))
    with pytest.raises(ConfigError, match="policy_steps=0: must be at least 1"):
        change(config, policy_steps=0)


def test_jumps_cannot_end_at_more_states_than_there_are(dataset, config, policy, change):
    """A hundred million of them would not fit into memory, which is found out minutes later."""
    many = dataset.num_states
    ghm_job(dataset, policy, change(config, landings=many))
    with pytest.raises(
        ConfigError, match=f"landings={many + 1}: must be at most the data's {many}"
    ):
        ghm_job(dataset, policy, change(config, landings=many + 1))


def test_a_job_may_start_from_a_trained_model(dataset, config, change, policy, make_model):
    trained = make_model(config, seed=3)
    job = ghm_job(dataset, policy, config, start=trained, start_fingerprint="abc")
    state = job.init(jax.random.key(0))
    for model in (state.model, state.target):
        for part in ("field", "frame", "state_normaliser", "z_normaliser"):
            same = eqx.tree_equal(getattr(model, part), getattr(trained, part))
            assert bool(same), part
    assert job.fingerprints["start"] == "abc"
    wider = ghm_job(dataset, policy, change(config, width=32), start=trained)
    with pytest.raises(ConfigError, match="trained with another network"):
        wider.init(jax.random.key(0))
    scaled = ghm_job(dataset, policy, change(config, normaliser="scaled"), start=trained)
    with pytest.raises(ConfigError, match="normaliser: that of the model to start from is paced"):
        scaled.init(jax.random.key(0))
    # The same shapes and another function: read back by its settings it would be wrong.
    mixed = ghm_job(dataset, policy, change(config, linear_mix=True), start=trained)
    with pytest.raises(ConfigError, match="other settings of its network"):
        mixed.init(jax.random.key(0))


def test_a_policy_from_outside_is_asked_within_a_step(dataset, config):
    asked = []

    def towards(states, z):
        asked.append(len(states))
        return np.tanh(0.01 * (z[:, :2] - states[:, :2]))

    policy = from_callable(towards, observation_dim=3, action_dim=2, z_dim=3)
    job = ghm_job(dataset, policy, config)
    state = job.init(jax.random.key(0))
    after, metrics = eqx.filter_jit(job.step)(state, job.data, jax.random.key(1))
    assert np.isfinite(metrics["loss"]) and int(after.step) == 1
    layout = config.layout
    assert sorted(asked) == sorted([layout.hc, layout.conditional])  # A+ and A'


def test_a_world_model_needs_no_policy(dataset):
    job = world_model_job(dataset, WorldModelConfig.preset("debug"))
    assert all(const.size < 100 for const in constants(job))
    assert job.kind == "world-model"
    assert job.fingerprints == {"dataset": dataset.fingerprint(), "domain": None}


@pytest.mark.parametrize(
    ("widths", "message"),
    [
        ((4, 2, 3), "policy's observation_dim is 4, but memory needs 3"),
        ((3, 5, 3), "policy's action_dim is 5, but memory needs 2"),
        ((3, 2, 7), "policy's z_dim is 7, but memory needs 3"),
    ],
)
def test_a_policy_of_other_widths_is_refused(dataset, config, widths, message):
    policy = from_callable(
        lambda s, z: s[:, :2], observation_dim=widths[0], action_dim=widths[1], z_dim=widths[2]
    )
    with pytest.raises(ConfigError, match=message):
        ghm_job(dataset, policy, config)


def test_one_of_a_finite_set_of_policies(dataset, config):
    config = dataclasses.replace(config, z_source="one_hot")
    policy = from_callable(lambda s, z: s[:, :2], observation_dim=3, action_dim=2, z_dim=7)
    assert ghm_job(dataset, policy, config).spec["z_dim"] == 7
    with pytest.raises(ConfigError, match="must tell its z_dim"):
        ghm_job(dataset, TablePolicy(jnp.ones((2, 2))), config)
