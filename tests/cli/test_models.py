"""What result rows say of how a policy or model was trained."""

import numpy as np
import pytest

from jumpyworld.cli.models import trained
from jumpyworld.errors import JumpyError
from jumpyworld.ghm import GHMConfig
from jumpyworld.ghm.world_model import WorldModelConfig
from jumpyworld.loading import describe, is_scripted, load_policy
from jumpyworld.policies.gcbc import GCBCConfig
from jumpyworld.storage import checkpoint
from jumpyworld.storage.manifest import make_document

DATA = {"dataset": "abc", "domain": "pointmaze-medium-navigate-v0"}


@pytest.fixture
def saved(tmp_path):
    """Return a function that saves something trained: no weights are looked at."""

    def save(seeds=(0,), step=4, kind="gcbc", prints=DATA, **changes):
        config_type = {"ghm": GHMConfig, "world-model": WorldModelConfig}.get(kind, GCBCConfig)
        config = config_type.preset("debug", **changes)
        folder = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
        arrays = {"w": np.full((len(seeds), 2), seeds[0], np.float32)}
        document = make_document(kind, config, {}, dict(prints), list(seeds))
        checkpoint.save(folder, document, step=step, model=arrays, state=arrays)
        return folder

    return save


def test_seeds_of_one_recipe_have_one_hash(saved):
    first, second = trained(saved()), trained(saved(seeds=(1,)))
    assert first["recipe"] == second["recipe"]
    assert (first["steps"], first["seed"], second["seed"]) == (4, 0, 1)
    several = trained(saved(seeds=(0, 1, 2)), seed=2)
    assert several == {**first, "seed": 2}
    assert trained(saved(step=5)) == {**first, "steps": 5}


def test_a_setting_that_came_later_leaves_the_names_of_recipes(saved, monkeypatch):
    """A run of before ``policy_steps`` and one that leaves it alone are seeds of one recipe."""
    before = saved(kind="ghm")
    named = trained(before)["recipe"]
    document = describe(before)
    assert document["config"].pop("policy_steps", 0) is None
    monkeypatch.setattr("jumpyworld.loading.describe", lambda folder: document)
    assert trained(before)["recipe"] == named
    monkeypatch.undo()
    assert trained(saved(kind="ghm", policy_steps=2))["recipe"] != named


def test_a_constant_rate_is_what_world_models_had_before_they_could_choose(saved, monkeypatch):
    constant = saved(kind="world-model", final_lr_fraction=1.0)
    named = trained(constant)["recipe"]
    document = describe(constant)
    del document["config"]["final_lr_fraction"]
    assert document["config"].pop("grad_clip") == 0  # nor could they clip
    monkeypatch.setattr("jumpyworld.loading.describe", lambda folder: document)
    assert trained(constant)["recipe"] == named
    monkeypatch.undo()
    assert trained(saved(kind="world-model", final_lr_fraction=0.5))["recipe"] != named


def test_other_settings_data_or_origins_are_other_recipes(saved):
    folder = saved()
    changed = [
        saved(batch_size=3),
        saved(prints={**DATA, "dataset": "xyz"}),
        saved(prints={**DATA, checkpoint.ROUNDED_FROM: "f"}),
        f"{folder}:low",
    ]
    assert len({trained(path)["recipe"] for path in (folder, *changed)}) == 5


@pytest.mark.parametrize(
    ("word", "known"),
    [
        ("scripted", True), ("scripted:3", True), ("scripted:999999", True),
        ("scripted:1000000", False), ("scripted:", False), ("scripted:3:low", False),
        ("./scripted", False),
    ],
)  # fmt: skip
def test_what_loads_as_a_scripted_policy_is_one_everywhere(word, known):
    assert is_scripted(word) == known
    if known:
        assert load_policy(word, DATA["domain"]).name == word
        assert trained(word) == {"recipe": word}
        return
    for use in (lambda: load_policy(word, DATA["domain"]), lambda: trained(word)):
        with pytest.raises(JumpyError):
            use()


def test_whose_model_it_is_is_the_policys_recipe(saved):
    models = [saved(kind="ghm", prints={**DATA, "policy": each}) for each in ("p", "q")]
    assert trained(models[0]) == trained(models[1])
    begun = saved(kind="ghm", prints={**DATA, "policy": "p", "start": "s"})
    assert trained(begun)["recipe"] != trained(models[0])["recipe"]
