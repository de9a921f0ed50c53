"""A policy, a dataset and settings as one thing that the training loop can train."""

from jumpyworld.data import Dataset, device_data
from jumpyworld.errors import ConfigError
from jumpyworld.policies.registry import get
from jumpyworld.policies.settings import PolicyConfig, PolicySpec
from jumpyworld.storage.schema import to_json
from jumpyworld.training import TrainingJob


def policy_job(name: str, dataset: Dataset, config: PolicyConfig) -> TrainingJob:
    """Return the job that trains a policy.

    Its checkpoints say which data they come from: ``fingerprints`` holds the dataset's hash and
    the name of its domain.

    Args:
        name: the algorithm's, from ``registry``.
        dataset: what to learn from.
        config: settings, of the algorithm's own class.

    Raises:
        ConfigError: there is no such algorithm, or the settings are another's.
    """
    algorithm = get(name)
    if type(config) is not algorithm.config:
        wanted = algorithm.config.__name__
        raise ConfigError(f"{name} needs a {wanted}, not a {type(config).__name__}")
    probe = algorithm.probe
    spec = PolicySpec.from_arrays(dataset.observations, dataset.actions)
    return TrainingJob(
        kind=name,
        config=config,
        init=lambda key: algorithm.init(key, config, spec),
        step=lambda state, data, key: algorithm.step(state, data, key, config),
        inference_model=algorithm.inference_model,
        probe=probe and (lambda state, data, key: probe(state, data, key, config)),
        data=device_data(dataset),
        spec=to_json(spec, "spec"),
        fingerprints={"dataset": dataset.fingerprint(), "domain": dataset.domain},
    )
