"""Planners by name, and what their settings mean to whom."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from drifting import MEDIUM, Drift

from jumpyworld import domains
from jumpyworld.errors import ConfigError
from jumpyworld.evaluation.planners import (
    COMPOSING,
    PLANNING,
    make_planner,
    planner_settings,
    takers,
    takes,
)
from jumpyworld.planning import (
    GGPI,
    GPI,
    CompPlan,
    GoalProposal,
    HighLevelProposal,
    MixtureProposal,
    OneZProposal,
    Uniform,
)


class Hierarchy(eqx.Module):
    def sample(self, key, states, z):
        return jnp.zeros_like(states)

    def propose(self, key, states, goals):
        return goals


def test_planners_by_name():
    settings = planner_settings(MEDIUM, "gcbc", candidates=8, samples=3)
    assert (settings.horizons, settings.discount) == ((50.0, 50.0, 100.0, 100.0, 200.0), 0.999)
    policy, model = Hierarchy(), Drift()
    planner = make_planner("compplan", settings, policy, ghm=model)
    assert isinstance(planner, CompPlan) and isinstance(planner.proposal, GoalProposal)
    assert planner.num_candidates == 8 and planner.search == Uniform(3)
    gpi = make_planner("gpi", settings, policy, ghm=model)
    assert isinstance(gpi, GPI) and len(gpi.betas) == 1
    chain = dataclasses.replace(settings, gpi_chain=True)
    chained = make_planner("gpi", chain, policy, ghm=model)
    assert isinstance(chained, GPI) and isinstance(chained.proposal, OneZProposal)
    ggpi = make_planner("ggpi", settings, policy, ghm=model)
    assert isinstance(ggpi, GGPI)
    np.testing.assert_allclose(ggpi.betas[:4], 0.98, atol=1e-6)
    action = make_planner("actionplan", settings, policy, world_model=model)
    assert isinstance(action, CompPlan) and len(action.betas) == 25 and action.num_candidates == 8

    # HFBC's conditional proposals are its high level's; cubes' are unconditional.
    assert planner_settings(MEDIUM, "hfbc").proposal == "high-level"
    assert planner_settings(domains.get("cube-2"), "hfbc").proposal == "unconditional"
    high = dataclasses.replace(settings, proposal="high-level")
    made = make_planner("compplan", high, policy, ghm=model)
    assert isinstance(made, CompPlan) and isinstance(made.proposal, HighLevelProposal)
    whole = Hierarchy()
    low = make_planner("compplan", high, policy, ghm=model, whole=whole)
    assert low.base is whole and low.proposal.policy is whole and low.repertoire.policy is policy
    assert make_planner("zero-shot", high, policy, whole=whole).policy is whole
    # Actions are proposed by pi_g, and a low level is not pi_g: far goals are none of its subgoals.
    steps = make_planner("actionplan", high, policy, world_model=model, whole=whole)
    assert steps.repertoire.policy is whole
    mixed = make_planner(
        "compplan", dataclasses.replace(settings, proposal="mixture"), policy, ghm=model
    )
    assert isinstance(mixed, CompPlan) and isinstance(mixed.proposal, MixtureProposal)
    assert mixed.num_candidates == 8
    for kind in ("goal", "unconditional", "high-level", "mixture"):
        ends = dataclasses.replace(settings, proposal=kind, append_goal=True)
        made = make_planner("compplan", ends, policy, ghm=model).proposal
        parts = made.parts if kind == "mixture" else (made,)
        assert all(part.append_goal for part in parts)
    assert "append_goal" in ends.used_by("compplan")
    assert "append_goal" not in settings.used_by("compplan")
    rounds = planner_settings(MEDIUM, "gcbc", search="elimination", candidates=256).rounds
    assert rounds == ((256, 16), (32, 48), (4, 192))


def test_only_what_a_planner_uses_tells_two_runs_apart():
    settings = planner_settings(MEDIUM, "gcbc")
    changed = dataclasses.replace(settings, action_horizon=7, alpha=0.1, max_rows=1000)
    for name in ("zero-shot", "compplan", "gpi"):
        assert settings.used_by(name) == changed.used_by(name)
    for name in ("ggpi", "actionplan"):
        assert settings.used_by(name) != changed.used_by(name)
    # Candidates that have no room at once are drawn in turns, with other noise.
    turns = dataclasses.replace(settings, max_rows=settings.candidates - 1)
    assert turns.used_by("compplan")["max_rows"] == settings.candidates - 1
    assert turns.used_by("zero-shot") == settings.used_by("zero-shot")
    # Those that stand beside the proposed ones need room as well.
    full = dataclasses.replace(settings, max_rows=settings.candidates)
    assert "max_rows" not in full.used_by("compplan")
    for beside in ({"include_base": True}, {"warm_start": 1}):
        assert "max_rows" in dataclasses.replace(full, **beside).used_by("compplan")


def test_fewer_steps_of_the_policy_reach_every_planner_and_tell_runs_apart():
    settings = planner_settings(MEDIUM, "gcbc", policy_steps=2)
    for name in PLANNING:
        assert settings.used_by(name)["policy_steps"] == 2
        assert "policy_steps" not in planner_settings(MEDIUM, "gcbc").used_by(name)
        models = {"ghm": Drift(), "world_model": Drift()}
        with pytest.raises(ConfigError, match="policy_steps=2: Hierarchy has no flow"):
            make_planner(name, settings, Hierarchy(), **models)


def test_who_takes_what():
    assert takers("alpha") == ("ggpi",) and takers("world_model") == ("actionplan",)
    assert takers("replan_every") == takers("discount") == PLANNING
    assert takers("ghm") == takers("patience") == COMPOSING
    assert "zero-shot" in takers("episodes")
    assert takes("gpi", "horizons", gpi_chain=True) and not takes("gpi", "horizons")
    for name in ("zero-shot", *PLANNING):
        fields = planner_settings(MEDIUM, "gcbc").used_by(name)
        told = {"tail"} if name in ("gpi", "ggpi") else set()  # what it is, and nobody's choice
        assert all(takes(name, field) for field in set(fields) - told)
    assert takes("gpi", "horizons", proposal="bridge")
    assert not takes("gpi", "horizons", proposal="goal") and "ggpi" not in takers("tail")


def test_a_single_jump_has_no_tail():
    settings = planner_settings(MEDIUM, "gcbc")
    absorb = dataclasses.replace(settings, tail="absorb")
    assert not takes("gpi", "tail") and takes("gpi", "tail", gpi_chain=True)
    # Results of before keep their names.
    assert absorb.used_by("gpi") == settings.used_by("gpi")
    assert settings.used_by("gpi")["tail"] == "truncate"
    chain = dataclasses.replace(absorb, gpi_chain=True)
    assert chain.used_by("gpi")["tail"] == "absorb"


class Trained(Drift):
    gamma_max: float = eqx.field(static=True, default=0.996)


def test_a_row_says_what_gpi_and_ggpi_really_planned_with():
    settings = planner_settings(MEDIUM, "gcbc")
    gpi = make_planner("gpi", settings, Hierarchy(), ghm=Trained())
    assert settings.used_by("gpi", Trained())["discount"] == 0.996
    np.testing.assert_allclose(gpi.betas, [0.996], rtol=1e-6)
    assert settings.used_by("gpi", Drift())["discount"] == 0.999
    assert settings.used_by("compplan", Trained())["discount"] == 0.999
    ggpi = make_planner("ggpi", settings, Hierarchy(), ghm=Trained())
    assert settings.used_by("ggpi", Trained())["tail"] == "absorb"
    assert float(ggpi.weights.sum()) == pytest.approx(1)


class Layered(Drift):
    dtype: str = eqx.field(static=True, default="float32")

    def with_inner_layers(self, dtype):
        return Layered(dtype=jnp.dtype(dtype).name)


def test_actionplan_has_the_precision_of_the_others():
    settings = planner_settings(MEDIUM, "gcbc", precision="bf16")
    planner = make_planner("actionplan", settings, Hierarchy(), world_model=Layered())
    assert planner.repertoire.model.world_model.dtype == "bfloat16"
    assert settings.used_by("actionplan")["precision"] == "bf16"
    with pytest.raises(ConfigError, match="Drift has no layers to round"):
        make_planner("actionplan", settings, Hierarchy(), world_model=Drift())


@pytest.mark.parametrize(
    ("planner", "asked", "text"),
    [
        ("ggpi", {"horizons": (0, 40)}, r"horizons\[0\]=0: must be"),
        ("ggpi", {"horizons": ()}, r"horizons=\(\)"),
        ("ggpi", {"horizons": (), "alpha": 0.1}, r"horizons=\(\)"),
        ("ggpi", {"discount": 0}, "discount=0: must lie"),
        ("ggpi", {"discount": 1, "horizons": (1, 20)}, "discount=1: must lie"),
        ("gpi", {"discount": 5}, "discount=5: must lie"),
        ("gpi", {"discount": 1}, "discount=1: must lie"),
        ("actionplan", {"discount": 1}, "discount=1: must lie"),
    ],
)
def test_discounts_and_horizons_out_of_range_are_named(planner, asked, text):
    settings = planner_settings(MEDIUM, "gcbc", **asked)
    with pytest.raises(ConfigError, match=text):
        make_planner(planner, settings, Hierarchy(), ghm=Drift(), world_model=Drift())


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"search": "elimination", "samples": 4}, "samples=4"),
        ({"rounds": ((4, 4),)}, "rounds"),
    ],
)
def test_settings_that_contradict_are_refused(asked, text):
    with pytest.raises(ConfigError, match=text):
        planner_settings(MEDIUM, "gcbc", **asked)


def test_missing_models_are_named():
    settings = planner_settings(MEDIUM, "gcbc")
    with pytest.raises(ConfigError, match="ghm is missing"):
        make_planner("compplan", settings, Hierarchy())
    with pytest.raises(ConfigError, match="world-model is missing"):
        make_planner("actionplan", settings, Hierarchy(), ghm=Drift())
