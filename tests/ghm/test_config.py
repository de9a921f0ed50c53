import dataclasses
import json
import math

import pytest

from jumpyworld.errors import ConfigError
from jumpyworld.ghm import GHMConfig
from jumpyworld.storage.schema import from_json, to_json


@pytest.mark.parametrize(
    ("domain", "rows"), [("antmaze-large-navigate-v0", (64, 166, 26)), ("cube-2", (39, 191, 26))]
)
def test_the_paper_batch_is_split_as_algorithm_1_says(domain, rows):
    layout = GHMConfig.preset("paper", domain).layout
    assert (layout.hc, layout.plain, layout.unconditional) == rows
    assert sum(rows) == 256 and layout.conditional == rows[0] + rows[1]


def test_row_counts_round_up_but_not_for_a_rounding_error():
    assert GHMConfig(batch_size=100, hc_fraction=0.07).layout.hc == 7
    assert GHMConfig(batch_size=100, hc_fraction=0.071).layout.hc == 8
    assert GHMConfig(hc_fraction=0.0).layout.hc == 0


def test_the_paper_preset_holds_the_values_of_its_table():
    paper = GHMConfig.preset("paper")
    table = {
        "width": 1024,
        "stages": 3,
        "embed_dim": 256,
        "frame": "absolute",
        "solver": "euler",
        "train_steps": 10,
        "eval_steps": 20,
        "gamma_min": 0.0,
        "gamma_max": 0.996,
        "gamma_sampler": "uniform",
        "beta_sampler": "uniform",
        "batch_size": 256,
        "hc_fraction": 0.25,
        "uncond_fraction": 0.1,
        "reduction": "sum",
        "goal_trajectory": 0.5,
        "goal_discount": 0.995,
        "learning_rate": 1e-4,
        "final_lr_fraction": 1.0,
        "weight_decay": 0.0,
        "grad_clip": 0.0,
        "target_rate": 5e-4,
        "gradient_steps": 3_000_000,
    }
    # Where the table is silent: the nearest reading, and nothing of ours.
    silent = {
        "embed_scale": 1000.0,
        "gamma_embed": "gamma",
        "skip": "concat",
        "films_per_block": 1,
        "linear_mix": False,
        "z_frame": "absolute",
        "normaliser": "standard",
        "data_scale": 10.0,
        "policy_steps": None,
        "bootstrap_grid": "scaled",
        "precision": "fp32",
        "unroll": 1,
        "curriculum": 0.0,
        "mask_action": True,
        "uncond_source": "bootstrap",
        "hindsight": 0.0,
        "landings": 0,
        "jumps": "now",
        "use_masks": False,
        "loss_units": "state",
        "step_power": 0.0,
        "input_power": 0.0,
        "z_source": "goals",
        "adam_eps": 1e-8,
        "final_target_rate": None,
    }
    assert dataclasses.asdict(paper) == table | silent
    assert GHMConfig.preset("paper", "cube-4") == GHMConfig(hc_fraction=0.15)
    assert paper == GHMConfig()


@pytest.mark.parametrize("name", ["paper", "base", "small", "debug"])
def test_presets_survive_json_and_are_hashable(name):
    config = GHMConfig.preset(name)
    data = json.loads(json.dumps(to_json(config)))
    assert from_json(GHMConfig, data) == config
    assert isinstance(hash(config), int)


def test_our_presets_renew_the_target_several_times_the_longest_horizon():
    for name in ("paper", "base", "small"):
        config = GHMConfig.preset(name)
        # A rate that falls along a power law has its logarithmic mean on average.
        rate, last = config.target_rate, config.final_target_rate
        rate = rate if last is None else (rate - last) / math.log(rate / last)
        assert config.gradient_steps * rate >= 2 / (1 - config.gamma_max)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gamma_max": 1.0}, "gamma_max=1.0"),
        ({"gamma_min": 0.997}, "gamma_min=0.997"),
        ({"hc_fraction": 0.95}, "256"),
        ({"frame": "rotating"}, "frame=rotating: must be one of absolute, moving, matched"),
        ({"reduction": "max"}, "reduction=max"),
        ({"gradient_steps": 0}, "gradient_steps=0: must be at least 1"),
        ({"step_power": 2.0}, r"step_power=2.0: must be in \[0, 1\]"),
        ({"curriculum": -1.0}, r"curriculum=-1.0: must be in \[0, 1\]"),
        ({"loss_units": "frame"}, "loss_units=frame: must be state with frame=absolute"),
        ({"solver": "rk4"}, "solver=rk4"),
        ({"embed_dim": 7}, "embed_dim=7"),
        ({"target_rate": 0.0}, "target_rate=0.0"),
        ({"train_steps": 0}, "train_steps=0"),
    ],
)
def test_a_bad_value_is_named(change, message):
    with pytest.raises(ConfigError, match=message):
        dataclasses.replace(GHMConfig(), **change)


def test_an_unknown_preset_is_named():
    with pytest.raises(ConfigError, match="'huge'"):
        GHMConfig.preset("huge")
