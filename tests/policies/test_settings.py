"""Settings of every trained policy: presets, the paper's sweeps, what is refused."""

import dataclasses
import json

import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld import policies
from jumpyworld.domains import get as get_domain
from jumpyworld.errors import ConfigError
from jumpyworld.policies.networks import descend, start_optimiser
from jumpyworld.policies.settings import PolicySpec
from jumpyworld.storage import schema

NAMES = tuple(policies.ALGORITHMS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", ["paper", "base", "small", "debug"])
def test_presets_are_json_and_hashable(name, size):
    config_type = policies.get(name).config
    for domain in ("antmaze-giant", "cube-4", "pointmaze-medium", "my-own-robot"):
        config = config_type.preset(size, domain, learning_rate=1e-2)
        assert config.learning_rate == 1e-2
        assert hash(config) == hash(dataclasses.replace(config))
        assert (
            schema.from_json(config_type, json.loads(json.dumps(schema.to_json(config)))) == config
        )


# The paper's table of base-policy hyperparameters: (domain, field) -> (values swept, our default).
PAPER_GCBC = {
    "antmaze-medium": ({0.98, 0.99}, 0.99, 125_000),
    "antmaze-large": ({0.98, 0.99}, 0.99, 125_000),
    "antmaze-giant": ({0.99, 0.995}, 0.995, 125_000),
    "cube-1": ({0.95, 0.96}, 0.95, 500_000),
    "cube-2": ({0.96, 0.97}, 0.96, 1_000_000),
    "cube-3": ({0.96, 0.97, 0.98}, 0.97, 2_000_000),
    "cube-4": ({0.96, 0.98, 0.99}, 0.98, 3_000_000),
}


# What the paper leaves open, from public code: width, layers, batch and what else is there.
PUBLIC = {
    "gcbc": (1024, 4, 1024, {"flow_steps": 10, "layer_norm": True}),
    "hfbc": (1024, 4, 1024, {"flow_steps": 10, "layer_norm": True}),
    "sharsa": (1024, 4, 1024, {"flow_steps": 10, "num_subgoals": 32, "target_rate": 0.005}),
    "crl": (512, 4, 256, {"flow_steps": 10, "latent_dim": 512, "penalty": 0.1}),
    "gctd3": (512, 4, 256, {"flow_steps": 10, "target_rate": 0.005, "n_step": 1}),
    "gc1s": (512, 4, 256, {"flow_steps": 10, "target_rate": 0.005, "n_step": 1}),
    "hiql": (512, 3, 1024, {"representation_dim": 10, "target_rate": 0.005, "expectile": 0.7}),
}


@pytest.mark.parametrize("name", NAMES)
def test_what_the_paper_leaves_open_is_as_in_public_code(name):
    width, layers, batch, others = PUBLIC[name]
    config = policies.get(name).config.preset("paper")
    assert config.hidden == (width,) * layers and config.batch_size == batch
    assert config.learning_rate == 3e-4 and config.final_lr_fraction == 1
    assert config.normalise == "none"
    assert {field: getattr(config, field) for field in others} == others


@pytest.mark.parametrize("domain", PAPER_GCBC)
def test_sweeps_are_the_papers(domain):
    cube, giant = domain.startswith("cube"), domain == "antmaze-giant"
    swept, default, steps = PAPER_GCBC[domain]
    gcbc = policies.get("gcbc").config
    assert set(gcbc.sweep(domain)["discount"]) == swept
    assert gcbc.preset("paper", domain).discount == default
    assert gcbc.preset("paper", get_domain(domain).name).gradient_steps == steps
    for name in ("crl", "gctd3", "gc1s"):
        table = policies.get(name).config.sweep(domain)
        config = policies.get(name).config.preset("paper", domain)
        coefficients = (0.7, 0.8, 0.9, 1, 3) if cube else (0.1, 0.15, 0.2, 0.3, 0.4)
        assert table["distill_coefficient"] == coefficients
        lowest = name == "crl" and domain == "cube-1"
        assert config.distill_coefficient == (0.7 if lowest else 1 if cube else 0.2)
        discounts = {"antmaze-giant": (0.995, 0.997), "cube-4": (0.99, 0.995)}.get(domain, (0.99,))
        assert table["discount"] == discounts and config.discount == discounts[0]
        steps = {"cube-1": 5e5, "cube-2": 5e5, "cube-3": 1e6, "cube-4": 3e6}.get(domain, 1e6)
        assert config.gradient_steps == steps
        assert table["gradient_steps"] == ((steps,) if cube else (1_000_000, 3_000_000))
    for name in ("hfbc", "sharsa"):
        table = policies.get(name).config.sweep(domain)
        config = policies.get(name).config.preset("paper", domain)
        assert table["lookahead"] == (25, 50) and config.lookahead == 25
        assert table["discount"] == ((0.95, 0.99, 0.995) if cube else (0.99, 0.995))
        assert config.discount == (0.95 if domain == "cube-1" else 0.99 if cube else 0.995)
        assert config.gradient_steps == (1_000_000 if domain in ("cube-1", "cube-2") else 3_000_000)
    for name in NAMES:
        config = policies.get(name).config.preset("paper", domain)
        for field, values in config.sweep(domain).items():
            assert getattr(config, field) in values, f"{name}: the default {field} is not swept"
    sharsa = policies.get("sharsa").config.preset("paper", domain)
    flags = ("geometric", "min") if cube else ("uniform", "mean")  # horizon-reduction's
    assert (sharsa.actor_goals, sharsa.target_aggregation) == flags
    hiql = policies.get("hiql").config.preset("paper", domain)
    assert (hiql.lookahead, hiql.discount) == (10 if cube else 25, 0.995 if giant else 0.99)


@pytest.mark.parametrize(
    "name, change, message",
    [
        ("gcbc", {"discount": 1.0}, "discount=1.0"),
        ("gcbc", {"batch_size": 0}, "batch_size=0"),
        ("gcbc", {"hidden": ()}, "hidden=.*one or more widths"),
        ("gcbc", {"normalise": "maybe"}, "none, standard"),
        ("hfbc", {"lookahead": 0}, "lookahead=0"),
        ("crl", {"critic": "guess"}, "infonce, binary"),
        ("crl", {"distill_coefficient": -1.0}, "distill_coefficient"),
        ("crl", {"latent_dim": 0}, "latent_dim=0: must be at least 1"),
        ("crl", {"latent_dim": -1}, "latent_dim=-1: must be at least 1"),
        ("crl", {"logsumexp_penalty": -5.0}, "logsumexp_penalty=-5.0: must be at least 0"),
        ("gcbc", {"learning_rate": 1e300}, r"learning_rate=1e\+300: must be above 0 and finite"),
        ("gctd3", {"goal_trajectory": 0.9}, "1 - goal_current"),
        ("gctd3", {"n_step": 0}, "n_step=0"),
        ("gctd3", {"n_step": 200_000_000}, "n_step=200000000: must be from 1 to 1000000"),
        ("gctd3", {"n_step": 3_000_000_000}, "n_step=3000000000: must be from 1 to 1000000"),
        ("hfbc", {"lookahead": 2**31 - 1}, "lookahead=2147483647: must be from 1 to 1000000"),
        ("hiql", {"lookahead": 3_000_000_000}, "lookahead=3000000000: must be from 1 to 1000000"),
        ("hiql", {"high_alpha": -3.0}, "high_alpha=-3.0: must be at least 0"),
        ("hiql", {"low_alpha": -0.1}, "low_alpha=-0.1: must be at least 0"),
        ("gctd3", {"actor_value": "logit"}, "actor_value=logit: must be q, unless"),
        ("gctd3", {"actor_value": "log"}, "actor_value=log: must be q, unless critic_loss is bce"),
        ("gc1s", {"target_rate": 2.0}, "target_rate"),
        ("hiql", {"expectile": 1.0}, "expectile"),
        ("sharsa", {"num_subgoals": 0}, "num_subgoals"),
    ],
)
def test_wrong_settings_are_refused(name, change, message):
    with pytest.raises(ConfigError, match=message):
        policies.get(name).config(**change)


def test_the_learning_rate_falls_only_where_asked():
    """Adam's first steps are as long as its rate, whatever the size of a constant gradient."""
    config = policies.get("gcbc").config(learning_rate=0.1, gradient_steps=4)
    falling = dataclasses.replace(config, final_lr_fraction=0.2)
    for settings, share in ((config, 1.0), (falling, 0.2)):
        w, rate = jnp.ones(3), settings.rate
        state, lengths = start_optimiser(w, rate), []
        for _ in range(6):
            after, state, _ = descend(lambda w: (jnp.sum(w), {}), w, state, rate)
            lengths.append(float((w - after)[0]))
            w = after
        cosine = (1 + np.cos(np.pi * np.minimum(np.arange(6), 4) / 4)) / 2
        np.testing.assert_allclose(lengths, 0.1 * (share + (1 - share) * cosine), rtol=1e-3)
    with pytest.raises(ConfigError, match=r"final_lr_fraction=1\.5"):
        dataclasses.replace(config, final_lr_fraction=1.5)


def test_unknown_names_and_specs():
    with pytest.raises(ConfigError, match="gcbc"):
        policies.get("sac")
    with pytest.raises(ConfigError, match="preset 'huge'"):
        policies.get("gcbc").config.preset("huge")
    with pytest.raises(ConfigError, match="observation_std has 1 values"):
        PolicySpec(2, 1, (0.0, 0.0), (1.0,))
