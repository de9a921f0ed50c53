"""Which models the page shows: folders that a user names, policies joined with their models.

A geometric horizon model says in its checkpoint which policy it is a model of (a hash); so the
folders may come in any order, and a model without its policy is refused by name.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jumpyworld
from jumpyworld import domains, loading
from jumpyworld.domains import Domain
from jumpyworld.errors import CheckpointError, ConfigError
from jumpyworld.loading import LoadedPolicy
from jumpyworld.planning import Places, Traces
from jumpyworld.storage import manifest, runs
from jumpyworld.viewer.known import demo_places, read_places

HOW_TO_TRAIN = (
    "no demo weights are installed; train a policy and its model, then name both: "
    "jumpy data generate pointmaze-medium --episodes 200 --out data; "
    "jumpy train policy gcbc --dataset data --preset small --out runs/gcbc; "
    "jumpy train ghm --dataset data --policy runs/gcbc --preset small --out runs/ghm; "
    "jumpy view runs/gcbc runs/ghm"
)


@dataclass(frozen=True)
class Opened:
    """A policy and its model, ready to plan with.

    Attributes:
        id: what requests call it; no path ever leaves or enters the server.
        title: for people.
        domain: where it lives.
        policy: pi, and the whole hierarchy where ``policy`` is the low level of one.
        ghm: the geometric horizon model.
        has_behaviour: whether the unconditional model was trained and needs no action.
        known: what data know of the domain, for candidates made of them; None for none.
    """

    id: str
    title: str
    domain: Domain
    policy: LoadedPolicy
    ghm: Any
    has_behaviour: bool
    known: Places | Traces | None = None

    @property
    def longest(self) -> float:
        """Mean steps of the longest jump that the model was trained for."""
        return 1 / (1 - float(self.ghm.gamma_max))


def demo_folders() -> list[str]:
    """Return the folders of the weights that ship with the package, if any do."""
    home = Path(jumpyworld.__file__).parent / "demo"
    return [str(path.parent) for path in sorted(home.glob("*/config.json"))]


def open_models(sources: Sequence[str], warn: runs.Warn = runs.python_warning) -> list[Opened]:
    """Load what a user names.

    Args:
        sources: run, checkpoint or export folders of models and of their policies, in any order;
            none for the demo's. Scripted policies need no naming.
        warn: called with one line for each damaged checkpoint passed over.

    Raises:
        CheckpointError: a folder cannot be loaded, or a model's policy is not among them.
        ConfigError: there is nothing to open.
    """
    if not sources:
        return _demo(warn)
    folders = list(sources)
    documents = {folder: loading.describe(folder, warn) for folder in folders}
    models = [f for f in folders if documents[f]["kind"] == "ghm"]
    others = [f for f in folders if documents[f]["kind"] in loading.POLICIES]
    for folder in folders:
        if folder not in models and folder not in others:
            raise CheckpointError(
                f"{folder}: is a {documents[folder]['kind']}; the page shows policies and ghms"
            )
    if not models:
        raise ConfigError(
            f"{', '.join(folders)}: no geometric horizon model among them; train one with "
            f"jumpy train ghm --policy {folders[0]}"
        )
    policies = {loading.fingerprint(folder): folder for folder in others}
    policies |= {loading.stands_for(folder): folder for folder in others}
    return [
        _join(f"m{number}", folder, documents[folder], policies, warn)
        for number, folder in enumerate(models)
    ]


def _demo(warn: runs.Warn) -> list[Opened]:
    """Open what ships with the package, with what its data know."""
    folders, places = demo_folders(), demo_places()
    if not folders:
        raise ConfigError(HOW_TO_TRAIN)
    models = open_models(folders, warn)
    if places is None:
        return models
    return [replace(model, known=read_places(places, model.domain)) for model in models]


def _join(
    name: str, folder: str, document: dict[str, Any], policies: dict[str, str], warn: runs.Warn
) -> Opened:
    trained, config = document["fingerprints"], document["config"]
    if trained.get("domain") is None:
        raise CheckpointError(f"{folder}: does not say which domain it was trained on")
    domain = domains.get(trained["domain"])
    policy = _policy_of(folder, trained, domain, policies, warn)
    step = manifest.read_manifest(runs.resolve(Path(folder), warn)).step
    objective = "TD-HC" if config["hc_fraction"] > 0 else "TD-Flow"
    return Opened(
        name,
        f"{domain.alias} · {policy.name} · {objective}, {step:,} steps",
        domain,
        policy,
        loading.load(folder, warn=warn),
        bool(config["mask_action"] and config["uncond_fraction"] > 0),
    )


def _policy_of(
    folder: str,
    trained: dict[str, Any],
    domain: Domain,
    policies: dict[str, str],
    warn: runs.Warn,
) -> LoadedPolicy:
    wanted, name = str(trained.get("policy")), str(trained.get("policy_name"))
    whole, low, _ = wanted.partition(":low")
    if whole in policies:
        return loading.load_policy(policies[whole] + low, domain.name, warn=warn)
    if loading.is_scripted(name):
        found = loading.load_policy(name, domain.name)
        if found.fingerprint == wanted:
            return found
    raise CheckpointError(
        f"{folder}: is a model of the policy {name} ({wanted[:12]}), which is not among the "
        "folders given; name its folder too"
    )
