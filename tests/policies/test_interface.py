"""Every trained policy: one interface, outside callers' conventions, files."""

import dataclasses
import json
from collections import defaultdict
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld import policies
from jumpyworld.errors import CheckpointError, ConfigError
from jumpyworld.policies.settings import renewed
from jumpyworld.storage import runs, schema, trees

NAMES = tuple(policies.ALGORITHMS)
FLOWS = [name for name in NAMES if name != "hiql"]


@pytest.fixture(params=NAMES)
def trained(request, briefly_trained):
    return briefly_trained(request.param)


def test_steps_are_pure_and_counted(trained):
    again, metrics = trained.step(trained.states[0], jax.random.key(1))
    assert eqx.tree_equal(again, trained.states[1])
    assert [int(state.step) for state in trained.states] == [1, 2, 3]
    assert again.step.dtype == jnp.int32
    assert {"loss", "grad/norm"} <= set(metrics)
    assert all(value.shape == () and np.isfinite(value) for value in metrics.values())


def test_a_step_trains_all_networks_and_no_statistics(trained):
    before, after = (trees.to_arrays(trained.states[i]) for i in (0, 2))
    still = {name for name in before if np.array_equal(before[name], after[name])}
    assert {name for name in still if "normaliser" in name} == still
    assert any("normaliser/offset" in name for name in still)


@pytest.mark.parametrize("name", ["gctd3", "gc1s", "sharsa", "hiql"])
def test_a_target_begins_as_its_network(briefly_trained, name):
    state = briefly_trained(name).initial
    networks = state.networks
    assert eqx.tree_equal(state.target, networks.value.heads if name == "hiql" else networks.critic)


@pytest.mark.parametrize("name", ["crl", "gc1s"])
def test_the_actor_does_not_move_the_critic(briefly_trained, name):
    """Neither critic's target needs the actor, so another actor leaves the critic's step alone."""
    trained = briefly_trained(name)
    state = trained.states[0]
    moved = jax.tree.map(lambda x: x + 0.1, state.networks.actors)
    other = eqx.tree_at(lambda s: s.networks.actors, state, moved)
    after, after_other = (trained.step(s, jax.random.key(9))[0] for s in (state, other))
    assert eqx.tree_equal(after.networks.critic, after_other.networks.critic)
    assert not eqx.tree_equal(after.networks.actors, after_other.networks.actors)


@pytest.mark.parametrize("name", ["crl", "gc1s", "gctd3"])
def test_what_the_actor_keeps_to_does_not_move_the_critic(briefly_trained, walks, quick, name):
    """GC-TD3's target asks the actor, so only the actor's loss is changed: both of its terms.

    A value term that reached the critic's weights would do so by its scale, whatever lambda is.
    """
    trained = briefly_trained(name)
    state, key = trained.states[0], jax.random.key(9)
    looser = dataclasses.replace(trained.config, distill_coefficient=0.01, normalise_q=False)
    other, _ = quick(lambda s: trained.algorithm.step(s, walks[1], key, looser))(state)
    after, _ = trained.step(state, key)
    assert eqx.tree_equal(after.networks.critic, other.networks.critic)
    assert not eqx.tree_equal(after.networks.actors.student, other.networks.actors.student)
    assert eqx.tree_equal(after.networks.actors.behaviour, other.networks.actors.behaviour)


def test_rounded_inner_layers_change_actions_a_little(trained, key):
    policy = trained.policy
    width = policy.observation_dim
    states, z = jax.random.normal(key, (2, 64, width))
    rounded = policy.with_inner_layers(jnp.bfloat16)
    sample = eqx.filter_jit(lambda p: p.sample(key, states, z))
    exact, near = sample(policy), sample(rounded)
    assert near.dtype == exact.dtype == jnp.float32
    gap = np.abs(np.asarray(near) - np.asarray(exact))
    assert 0 < gap.max() < 0.1
    before, after = trees.to_arrays(policy), trees.to_arrays(rounded)
    units = [name for name in before if "normaliser" in name]
    assert units and all(before[name].dtype == after[name].dtype for name in units)


def test_states_fit_the_training_loop(trained):
    """A leaf that changes type or that is no array would stop the compiled loop."""
    before, after = (
        [(x.shape, x.dtype) for x in jax.tree.leaves(state)]
        for state in (trained.initial, trained.states[0])
    )
    assert before == after
    assert jax.tree.structure(trained.initial) == jax.tree.structure(trained.states[0])
    assert all(eqx.is_array(leaf) for leaf in jax.tree.leaves(trained.initial))


def test_shapes_and_range(trained, key):
    policy = trained.policy
    s = 40 * jax.random.normal(key, (2, 3, 3))
    assert policy.sample(key, s[0, 0], s[1, 0]).shape == (2,)
    assert policy.sample(key, s[0, 0], s).shape == (2, 3, 2)
    assert (policy.observation_dim, policy.action_dim, policy.z_dim) == (3, 2, 3)
    actions = policy.sample(key, s, s[0, 0])
    assert actions.shape == (2, 3, 2)
    assert jnp.abs(actions).max() <= 1 and np.isfinite(actions).all()
    one = policy.sample(key, s[0, :1], s[1, :1])
    assert np.array_equal(one[0], policy.sample(key, s[0, 0], s[1, 0]))
    with pytest.raises(ConfigError, match="width is 3"):
        policy.sample(key, s[..., :2], s)
    with pytest.raises(ConfigError, match="z has shape"):
        policy.sample(key, s, s[..., :1])


def test_traced_into_a_larger_program(briefly_trained, key):
    policy = briefly_trained("gcbc").policy
    s, g = jnp.ones((2, 6, 3)), jnp.zeros((2, 6, 3))
    keys = jax.random.split(key, 2)
    both = eqx.filter_jit(lambda p: jax.vmap(p.sample)(keys, s, g))(policy)
    apart = jnp.stack([policy.sample(keys[i], s[i], g[i]) for i in range(2)])
    np.testing.assert_allclose(both, apart, atol=1e-5)


class OneEpisode:
    """An environment of the kind that OGBench's loop expects."""

    def reset(self, options):
        self.steps = 0
        return np.full(3, 2.5), {"goal": np.full(3, -1.5), "goal_rendered": None}

    def step(self, action):
        assert action.shape == (2,) and action.dtype == np.float32 and np.abs(action).max() <= 1
        self.steps += 1
        return np.full(3, 2.5) + self.steps, 0.0, False, self.steps == 3, {"success": 0.0}


@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_calls_of_ogbench_evaluation_loop(trained, legacy, temperature):
    """What OGBench's ``evaluate`` does: split a key, act on one observation, np.array, step."""
    agent = trained.policy
    rng = jax.random.PRNGKey(7) if legacy else jax.random.key(7)
    env, trajectory = OneEpisode(), defaultdict(list)
    observation, info = env.reset(options={"task_id": 1, "render_goal": False})
    done = False
    while not done:
        rng, key = jax.random.split(rng)
        action = agent.sample_actions(
            observations=observation, goals=info.get("goal"), temperature=temperature, seed=key
        )
        action = np.clip(np.array(action), -1, 1)
        observation, _, terminated, truncated, _ = env.step(action)
        done = terminated or truncated
        trajectory["action"].append(action)
    assert len(trajectory["action"]) == 3


def test_sample_actions_agrees_with_sample(trained):
    policy = trained.policy
    s, g = np.ones((6, 3)), np.zeros((6, 3))
    default = type(policy).default_temperature
    got = policy.sample_actions(s, goals=g, seed=jax.random.PRNGKey(3), temperature=default)
    typed = policy.sample_actions(s, goals=g, seed=jax.random.key(3), temperature=default)
    assert np.array_equal(got, typed)
    assert np.array_equal(got, policy.sample(jax.random.key(3), s, g))


def test_temperature(briefly_trained, oracle):
    def act(name, temperature, seed=0):
        policy = briefly_trained(name).policy
        return policy.sample_actions(np.ones(3), np.zeros(3), jax.random.key(seed), temperature)

    for name in FLOWS:
        assert np.array_equal(act(name, 0.0), act(name, 1.0))
        assert not np.array_equal(act(name, 1.0), act(name, 1.0, seed=1))
    assert np.array_equal(act("hiql", 0.0), act("hiql", 0.0, seed=1))
    assert not np.array_equal(act("hiql", 1.0), act("hiql", 0.0))
    hiql = briefly_trained("hiql").policy
    s, z = hiql.normaliser.normalise(jnp.ones(3)), hiql.normaliser.normalise(jnp.zeros(3))
    mean = oracle.net(hiql.high, s, z)
    subgoal = np.sqrt(len(mean)) * mean / np.linalg.norm(mean)
    want = np.clip(oracle.net(hiql.low, s, subgoal), -1, 1)
    np.testing.assert_allclose(act("hiql", 0.0), want, atol=1e-6)


def test_missing_arguments_are_named(briefly_trained):
    policy = briefly_trained("gcbc").policy
    with pytest.raises(ConfigError, match="needs goals"):
        policy.sample_actions(np.ones(3), seed=jax.random.key(0))
    with pytest.raises(ConfigError, match="needs a seed"):
        policy.sample_actions(np.ones(3), np.ones(3))
    with pytest.raises(ConfigError, match=r"give a jax\.random key"):
        policy.sample_actions(np.ones(3), np.ones(3), seed=np.float32(0.5))


def test_raw_units_outside(trained, walks):
    """Shifting and stretching the data and the normaliser together changes no action."""
    policy = trained.policy
    arrays = trees.to_arrays(policy)
    moved = {
        name: 10 * array - 7 if "offset" in name else 10 * array if "scale" in name else array
        for name, array in arrays.items()
        if "normaliser" in name
    }
    assert moved
    stretched = trees.from_arrays(policy, arrays | moved)
    s, g = walks[0].observations[:6], walks[0].observations[6:12]
    key = jax.random.key(0)
    np.testing.assert_allclose(
        policy.sample(key, s, g), stretched.sample(key, 10 * s - 7, 10 * g - 7), atol=1e-4
    )


def test_checkpoints_give_the_policy_back(trained, walks):
    algorithm, policy = trained.algorithm, trained.policy
    document = {"config": schema.to_json(trained.config), "spec": schema.to_json(walks[2])}
    document = json.loads(json.dumps(document)) | {"kind": algorithm.name}
    arrays = {name: np.asarray(array) for name, array in trees.to_arrays(policy).items()}
    loaded = algorithm.from_checkpoint(document, arrays)
    assert eqx.tree_equal(loaded, policy)
    name = next(iter(arrays))
    with pytest.raises(CheckpointError, match=name):
        algorithm.from_checkpoint(document, {k: v for k, v in arrays.items() if k != name})
    with pytest.raises(CheckpointError, match="no such field"):
        algorithm.from_checkpoint(document | {"config": {"beard": 3}}, arrays)


# One field drove targets and actors alike, until it became two.
@pytest.mark.parametrize(
    "name, fields",
    [
        ("crl", ["actor_aggregation"]),
        ("gctd3", ["target_aggregation", "actor_aggregation"]),
        ("gc1s", ["target_aggregation", "actor_aggregation"]),
        ("sharsa", ["target_aggregation"]),
    ],
)
def test_checkpoints_of_before_a_field_was_split_still_load(name, fields, briefly_trained, walks):
    trained = briefly_trained(name)
    asked = dataclasses.replace(trained.config, **dict.fromkeys(fields, "min"))
    now = schema.to_json(asked)
    then = {key: value for key, value in now.items() if key not in fields}
    then["aggregation"] = "min"
    assert schema.from_json(type(asked), renewed(type(asked), then)) == asked
    arrays = {key: np.asarray(array) for key, array in trees.to_arrays(trained.policy).items()}
    document = {"config": then, "spec": schema.to_json(walks[2])}
    assert eqx.tree_equal(trained.algorithm.from_checkpoint(document, arrays), trained.policy)
    with pytest.raises(CheckpointError, match=r"'aggregation': .* has no such field"):
        trained.algorithm.from_checkpoint(document | {"config": {**now, **then}}, arrays)
    # Such a run is not continued: what it stored and what is asked now cannot be compared.
    with pytest.raises(CheckpointError, match=r"config\.aggregation is 'min' there and None here"):
        runs.check_same(Path("run"), {"config": then}, {"config": now}, schema.defaults(asked))
