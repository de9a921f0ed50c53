import pytest

from jumpyworld.errors import ConfigError
from jumpyworld.storage.schema import from_json, to_json
from jumpyworld.training import TrainingConfig


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("steps", 0),
        ("steps", 2**31),
        ("minutes", 0.0),
        ("minutes", float("nan")),
        ("seed", -1),
        ("num_seeds", 0),
        ("save_every", 0),
        ("keep", 0),
        ("keep_steps", (0,)),
        ("log_every", 0),
        ("chunk", 0),
    ],
)
def test_settings_that_cannot_work_are_named(field, value):
    with pytest.raises(ConfigError, match=field):
        TrainingConfig(**{field: value})


def test_training_needs_an_end():
    with pytest.raises(ConfigError, match="both None"):
        TrainingConfig(steps=None)
    assert TrainingConfig(steps=None, minutes=1.0).seeds == (0,)


def test_settings_come_back_from_json():
    config = TrainingConfig(steps=7, minutes=0.5, seed=3, num_seeds=2, keep_steps=(4,))
    assert from_json(TrainingConfig, to_json(config)) == config
    assert config.seeds == (3, 4)
