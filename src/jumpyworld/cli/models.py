"""Models that a user names, checked against the policy and domain that they are used with."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jumpyworld.data import Dataset
    from jumpyworld.domains import Domain
    from jumpyworld.loading import LoadedPolicy
    from jumpyworld.planning import Places, Traces


@dataclass(frozen=True)
class LoadedModel:
    """A model, and what results made with it say of it."""

    model: Any
    """A GeometricHorizonModel or WorldModel."""
    step: int
    """Gradient steps it was trained for."""
    config: dict[str, Any]
    """Its settings."""
    fingerprint: str
    """Hash of its settings and weights."""

    @property
    def objective(self) -> str:
        """How a geometric horizon model was trained: ``td-hc`` or ``td-flow``."""
        return "td-hc" if self.config["hc_fraction"] > 0 else "td-flow"


def load_ghm(
    path: Path, domain: "Domain", policy: "LoadedPolicy", *, seed: int | None = None
) -> LoadedModel:
    """Load a geometric horizon model; refuse one of another policy or domain.

    Raises:
        CheckpointError: it cannot be loaded, or belongs to something else; the message says what.
    """
    from jumpyworld.errors import CheckpointError

    found, trained = _load(path, "ghm", domain, seed)
    known = {policy.fingerprint, policy.rounded_from or policy.fingerprint}
    if trained.get("policy") not in known:
        raise CheckpointError(
            f"{path}: trained for another policy ({_short(trained.get('policy'))}) than "
            f"--policy {policy.name} ({_short(policy.fingerprint)})"
        )
    return found


def load_world_model(path: Path, domain: "Domain", *, seed: int | None = None) -> LoadedModel:
    """Load a one-step world model; refuse one of another domain.

    Raises:
        CheckpointError: it cannot be loaded, or belongs to something else; the message says what.
    """
    return _load(path, "world-model", domain, seed)[0]


def load_places(path: Path, domain: "Domain", share: float) -> tuple["Places", str]:
    """Return where a data set's trajectories go from where, and the data set's hash.

    Raises:
        ConfigError: it is of another domain, or the share is out of range.
    """
    from jumpyworld.errors import ConfigError
    from jumpyworld.planning.precedents import GoalFeatures, find_places

    found = _precedents(path, domain)
    try:
        places = find_places(found.observations, found.ends, GoalFeatures(domain), share=share)
    except ConfigError as error:
        raise ConfigError(f"--precedents {path}: {error}") from None
    return places, found.fingerprint()


def load_traces(path: Path, domain: "Domain") -> tuple["Traces", str]:
    """Return the ways of single cubes in a data set, and the data set's hash.

    Raises:
        ConfigError: it is of another domain, or of one without cubes.
    """
    from jumpyworld.errors import ConfigError
    from jumpyworld.planning.trace import find_traces

    found = _precedents(path, domain)
    try:
        return find_traces(domain, found.observations, found.ends), found.fingerprint()
    except ConfigError as error:
        raise ConfigError(f"--precedents {path}: {error}") from None


def _precedents(path: Path, domain: "Domain") -> "Dataset":
    """Load a data set of a domain."""
    from jumpyworld import data
    from jumpyworld.errors import ConfigError

    found = data.load(path)
    if found.domain not in (None, domain.name):
        raise ConfigError(f"--precedents {path}: of {found.domain}, not {domain.name}")
    if found.observation_dim != domain.observation_dim:
        raise ConfigError(
            f"--precedents {path}: states of {found.observation_dim} dimensions, not the "
            f"{domain.observation_dim} of {domain.name}"
        )
    return found


def _load(
    path: Path, kind: str, domain: "Domain", seed: int | None
) -> tuple[LoadedModel, dict[str, Any]]:
    from jumpyworld.cli.train_loop import warn
    from jumpyworld.errors import CheckpointError
    from jumpyworld.loading import describe, fingerprint, load
    from jumpyworld.storage import manifest, runs

    folder = runs.resolve(path, warn)
    document = describe(folder, warn)
    trained = document["fingerprints"]
    if document["kind"] != kind:
        raise CheckpointError(f"{path}: is a {document['kind']}, not a {kind}")
    if trained.get("domain") not in (None, domain.name):
        raise CheckpointError(f"{path}: trained on {trained['domain']}, not {domain.name}")
    found = LoadedModel(
        load(folder, seed=seed, warn=warn),
        manifest.read_manifest(folder).step,
        document["config"],
        fingerprint(folder, seed=seed),
    )
    return found, trained


def trained(path: Path | str, seed: int | None = None) -> dict[str, Any]:
    """Return how a policy or model was trained: a hash of its recipe, its steps and its seed.

    Of equal recipes, different seeds are seeds of one another. The recipe is all that was chosen
    but the seed: settings, data, weights to begin with. Whose model it is does not count, as the
    policy has a recipe of its own.

    Args:
        path: a run, checkpoint or export folder, perhaps with ``:low``; or a scripted policy.
        seed: which of several trained at once.
    """
    from jumpyworld.loading import describe, is_scripted
    from jumpyworld.storage import checkpoint, manifest, runs

    if is_scripted(path):
        return {"recipe": str(path)}
    name, low, _ = str(path).partition(":low")
    folder = runs.resolve(Path(name), lambda line: None)  # whoever loaded it has warned
    document = describe(folder)
    origin = dict(document["fingerprints"])
    origin.pop("policy", None)
    rounded = origin.pop(checkpoint.ROUNDED_FROM, None) is not None
    settings = dict(document["config"])
    if settings.get("policy_steps", 0) is None:
        del settings["policy_steps"]  # recipes from before there was this setting keep their names
    if document["kind"] == "world-model":  # as above
        later = {"final_lr_fraction": 1, "grad_clip": 0}
        settings = {k: v for k, v in settings.items() if k not in later or v != later[k]}
    recipe = [document["kind"], low, settings, origin, rounded]
    seeds = document["seeds"]
    return {
        "recipe": manifest.sha256_json(recipe)[:16],
        "steps": manifest.read_manifest(folder).step,
        "seed": seeds[0] if len(seeds) == 1 else seed,
    }


def training_minutes(path: Path | str) -> float | None:
    """Return how long a run trained, by its log, or until one of its checkpoints; None without one.

    Args:
        path: a run folder, or a checkpoint within one. An export has no log.
    """
    from jumpyworld.storage import manifest, runs
    from jumpyworld.storage.metrics import read_rows

    run, until = Path(path), math.inf
    if run.parent.name == runs.CHECKPOINTS and (run / manifest.MANIFEST).exists():
        run, until = run.parents[1], manifest.read_manifest(run).step
    seconds, last = 0.0, 0
    for row in read_rows(run / "metrics.jsonl"):
        end, rate = min(row["step"], until), row.get("steps_per_second")
        seconds += (end - last) / rate if rate else 0.0  # further seeds have rows of the same step
        last = end
    return round(seconds / 60, 2) if seconds else None


def _short(fingerprint: str | None) -> str:
    return "not recorded" if fingerprint is None else fingerprint[:12]
