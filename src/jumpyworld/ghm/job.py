"""Geometric horizon and world models as things that the training loop can train.

The policy whose future is learnt is part of a job's data: its weights are arguments of the compiled
program and not constants in it.
"""

from typing import Any

from jumpyworld.data import Dataset, device_data
from jumpyworld.errors import ConfigError
from jumpyworld.ghm import algorithm, probe, world_model
from jumpyworld.ghm.batch import SupportsSample
from jumpyworld.ghm.config import GHMConfig
from jumpyworld.ghm.model import GeometricHorizonModel
from jumpyworld.ghm.spec import GHMSpec
from jumpyworld.ghm.world_model import WorldModelConfig
from jumpyworld.policies.base import in_fewer_steps
from jumpyworld.training import TrainingJob


def ghm_job(
    dataset: Dataset,
    policy: SupportsSample,
    config: GHMConfig,
    *,
    policy_fingerprint: str | None = None,
    policy_name: str | None = None,
    start: GeometricHorizonModel | None = None,
    start_fingerprint: str | None = None,
) -> TrainingJob:
    """Return the job that trains a geometric horizon model of a policy.

    Its checkpoints say what they come from: ``fingerprints`` holds the hashes of dataset and
    policy, the name of the dataset's domain, and the policy's name.

    Args:
        dataset: what to learn from.
        policy: whose future to learn; frozen.
        config: settings.
        policy_fingerprint: hash of the policy (``jumpyworld.loading.load_policy``). None where it
            has none, and then nobody notices that a run goes on with another policy.
        policy_name: the policy's algorithm, for readers of the checkpoint.
        start: a trained model to begin with instead of new weights.
        start_fingerprint: its hash.

    Raises:
        ConfigError: the policy or a setting does not fit the dataset.
    """
    _check_widths(dataset, policy, config)
    if config.use_masks and "masks" not in dataset.extras:
        raise ConfigError(f"use_masks: {dataset.source} has no masks, which say where tasks ended")
    if config.use_masks and config.hc_fraction > 0:
        # Where a jump ends in an end state the third term would ask for a future from there, and
        # no row of the data begins there.
        raise ConfigError(f"use_masks: needs hc_fraction=0 (td-flow), not {config.hc_fraction:g}")
    if config.landings > dataset.num_states:
        raise ConfigError(
            f"landings={config.landings}: must be at most the data's {dataset.num_states} states"
        )
    if config.policy_steps is not None:
        policy = in_fewer_steps(policy, config.policy_steps)
    one_hot = config.z_source == "one_hot"
    spec = _measure(dataset, getattr(policy, "z_dim", None) if one_hot else None)
    return TrainingJob(
        kind="ghm",
        config=config,
        init=lambda key: algorithm.init(key, config, spec, policy, start),
        step=lambda state, data, key: algorithm.step(state, data[0], key, config, data[1]),
        inference_model=algorithm.inference_model,
        probe=lambda state, data, key: probe.probe(state, data[0], key, config),
        data=(device_data(dataset), policy),
        spec=spec.shapes(),
        fingerprints={
            **_trained_on(dataset),
            "policy": policy_fingerprint,
            "policy_name": policy_name,
            **({} if start is None else {"start": start_fingerprint}),
        },
    )


def world_model_job(dataset: Dataset, config: WorldModelConfig) -> TrainingJob:
    """Return the job that trains a one-step world model.

    Args:
        dataset: what to learn from.
        config: settings.
    """
    spec = _measure(dataset)
    return TrainingJob(
        kind="world-model",
        config=config,
        init=lambda key: world_model.init(key, config, spec),
        step=lambda state, data, key: world_model.step(state, data, key, config),
        inference_model=world_model.inference_model,
        probe=lambda state, data, key: probe.world_model_probe(state, data, key, config.batch_size),
        data=device_data(dataset),
        spec=spec.shapes(),
        fingerprints=_trained_on(dataset),
    )


def _measure(dataset: Dataset, z_dim: int | None = None) -> GHMSpec:
    return GHMSpec.from_arrays(
        dataset.observations, dataset.starts, dataset.ends, dataset.action_dim, z_dim=z_dim
    )


def _trained_on(dataset: Dataset) -> dict[str, str | None]:
    return {"dataset": dataset.fingerprint(), "domain": dataset.domain}


def _check_widths(dataset: Dataset, policy: Any, config: GHMConfig) -> None:
    """Compare the widths that a policy tells with those of the data, before anything is traced."""
    wanted = {"observation_dim": dataset.observation_dim, "action_dim": dataset.action_dim}
    if config.z_source == "goals":
        wanted["z_dim"] = dataset.observation_dim
    elif not hasattr(policy, "z_dim"):
        raise ConfigError("z_source=one_hot: the policy must tell its z_dim")
    for name, width in wanted.items():
        found = getattr(policy, name, width)
        if found != width:
            raise ConfigError(
                f"the policy's {name} is {found}, but {dataset.source} needs {width}: "
                "policy and dataset belong to different domains"
            )
