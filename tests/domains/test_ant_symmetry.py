"""The ant's frame: what is the same ant, however its legs are called or the world is turned."""

import numpy as np
import pytest
from ant_copies import mirror_world, random_state, rename_legs, turn_world
from scipy.spatial.transform import Rotation

from jumpyworld.domains.generate.ant_expert import canonical_features

pytest.importorskip("mujoco")
pytest.importorskip("ogbench")

from jumpyworld.domains.generate.ant_runner import ACTION_MIRROR, FEATURE_MIRROR, AntVector


@pytest.mark.parametrize("seed", range(20))
def test_features_match_rotation_matrices(seed):
    qpos, qvel, direction = random_state(seed)
    features, k = canonical_features(qpos, qvel, direction)
    body = Rotation.from_quat(np.roll(qpos[3:7], -1))
    heading = 2 * np.arctan2(qpos[6], qpos[3]) + k * np.pi / 2
    world_to_frame = Rotation.from_euler("z", -heading)
    body_to_frame = Rotation.from_euler("z", -k * np.pi / 2)
    np.testing.assert_allclose(features[0], qpos[2], rtol=1e-6)
    up = body_to_frame.apply(body.inv().apply([0, 0, 1]))
    np.testing.assert_allclose(features[1:4], up, atol=1e-6)
    np.testing.assert_allclose(features[4:7], world_to_frame.apply(qvel[:3]), atol=1e-6)
    np.testing.assert_allclose(features[7:10], body_to_frame.apply(qvel[3:6]), atol=1e-6)
    np.testing.assert_allclose(features[26:], world_to_frame.apply([*direction, 0])[:2], atol=1e-6)
    assert features[26] >= np.sqrt(0.5) - 1e-6  # within 45 degrees of the front
    unnormalised = qpos.copy()
    unnormalised[3:7] *= 1.7
    np.testing.assert_allclose(
        canonical_features(unnormalised, qvel, direction)[0], features, atol=1e-6
    )


@pytest.mark.parametrize("seed", range(10))
def test_renamed_and_turned_copies_look_alike(seed, expert):
    qpos, qvel, direction = random_state(seed)
    features, k = canonical_features(qpos, qvel, direction)
    action = expert(qpos, qvel, direction)
    renamed, turned, renamed_action = (qpos, qvel), (qpos, qvel, direction), action
    for quarter in range(1, 5):
        renamed = rename_legs(*renamed)
        turned = turn_world(*turned)
        other, other_k = canonical_features(*renamed, direction)
        np.testing.assert_allclose(other, features, atol=2e-6)
        assert other_k == (k - quarter) % 4
        # Motors are listed leg 4, 1, 2, 3 with ankle signs + + - -.
        legs = renamed_action.reshape(4, 2) * np.array([[1, 1], [1, 1], [1, -1], [1, -1]])
        legs = np.roll(legs, -1, axis=0) * np.array([[1, 1], [1, 1], [1, -1], [1, -1]])
        renamed_action = legs.ravel()
        np.testing.assert_allclose(expert(*renamed, direction), renamed_action, atol=1e-4)
        other, other_k = canonical_features(*turned)
        np.testing.assert_allclose(other, features, atol=2e-6)
        assert other_k == k
        np.testing.assert_allclose(expert(*turned), action, atol=1e-4)
    np.testing.assert_allclose(renamed_action, action)


def run_copies(states, expert, num_steps):
    """Features [copies, steps, 28] and headings of ants that start in the given states."""
    ants = AntVector(len(states), np.random.default_rng(0))
    for i, (qpos, qvel, direction) in enumerate(states):
        ants.qpos[i][:], ants.qvel[i][:], ants.directions[i] = qpos, qvel, direction
    trail = []
    for _ in range(num_steps):
        controls = [
            expert(q, v, d) for q, v, d in zip(ants.qpos, ants.qvel, ants.directions, strict=True)
        ]
        trail.append(ants.step(np.stack(controls)).features)
        assert np.all([d.time > 0 for d in ants.data])
    return np.stack(trail, 1)


@pytest.mark.parametrize("kind", ["renamed", "turned"])
def test_four_copies_stay_equal_when_simulated(kind, expert):
    qpos, qvel, direction = random_state(3, upright=True)
    states = [(qpos, qvel, direction)]
    for _ in range(3):
        qpos, qvel, direction = states[-1]
        renamed = (*rename_legs(qpos, qvel), direction)
        states.append(renamed if kind == "renamed" else turn_world(qpos, qvel, direction))
    trail = run_copies(states, expert, 20)
    assert np.ptp(trail[0], axis=0).max() > 0.5  # the ant does move
    for copy in trail[1:]:
        np.testing.assert_allclose(copy, trail[0], atol=2e-4)


def test_mirrored_copy_stays_mirrored_when_simulated():
    index, sign = FEATURE_MIRROR
    state = random_state(5, upright=True)
    mirrored = mirror_world(*state)
    features, k = canonical_features(*state)
    other, other_k = canonical_features(*mirrored)
    np.testing.assert_allclose(other, features[index] * sign, atol=1e-6)
    ants = AntVector(2, np.random.default_rng(0))
    for i, (qpos, qvel, direction) in enumerate((state, mirrored)):
        ants.qpos[i][:], ants.qvel[i][:], ants.directions[i] = qpos, qvel, direction
    ants.turns[:] = k, other_k
    rng = np.random.default_rng(0)
    for _ in range(20):
        action = rng.uniform(-1, 1, 8)
        action_index, action_sign = ACTION_MIRROR
        step = ants.step_canonical(np.stack([action, action[action_index] * action_sign]))
        np.testing.assert_allclose(step.features[1], step.features[0][index] * sign, atol=2e-4)
