"""Which models the page opens: folders to policies with their models."""

import numpy as np
import pytest
from stand_ins import save_untrained

from jumpyworld.cli import run
from jumpyworld.errors import CheckpointError, ConfigError
from jumpyworld.loading import load_policy
from jumpyworld.viewer import opened

NAME = "pointmaze-medium-navigate-v0"


def save(folder, **trained):
    """Write an untrained model of the maze."""
    states = np.random.default_rng(0).uniform(0, 20, (100, 2)).astype(np.float32)
    return save_untrained(folder, states, 2, domain=NAME, **trained)


def test_a_model_of_a_scripted_policy_brings_its_policy(tmp_path):
    policy = load_policy("scripted:3", NAME)
    folder = save(tmp_path / "ghm", policy=policy.fingerprint, policy_name="scripted:3")
    (found,) = opened.open_models([folder])
    assert found.id == "m0" and found.policy.name == "scripted:3" and found.has_behaviour
    assert found.title == "pointmaze-medium · scripted:3 · TD-HC, 7 steps"


def test_a_model_without_its_policy_is_refused_by_name(tmp_path):
    folder = save(tmp_path / "ghm", policy="a" * 64, policy_name="gcbc")
    with pytest.raises(CheckpointError, match=r"policy gcbc \(aaaaaaaaaaaa\)"):
        opened.open_models([folder])


def test_with_nothing_to_open_it_says_what_to_train(monkeypatch, capsys):
    monkeypatch.setattr(opened, "demo_folders", lambda: [])
    with pytest.raises(ConfigError, match="jumpy train ghm"):
        opened.open_models([])
    assert run(["view"]) == 2
    assert "jumpy data generate" in capsys.readouterr().err


def test_a_folder_of_nothing_is_one_line(tmp_path, capsys):
    assert run(["view", str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
