"""``jumpy train``: policies, geometric horizon models and one-step world models."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from jumpyworld.cli.train_loop import TrainCommand, warn

# jumpy train policy gcbc --dataset data --preset small --out runs/gcbc
# jumpy train ghm --dataset data --policy runs/gcbc --preset small --out runs/ghm
# jumpy train world-model --dataset data --minutes 10 --out runs/wm


@dataclasses.dataclass(frozen=True)
class Policy(TrainCommand):
    """Train a goal-conditioned policy.

    The same command with the same --out continues a run that was stopped, bit for bit.
    """

    name: tyro.conf.Positional[str]
    """Algorithm: gcbc, hfbc, crl, gctd3, gc1s, hiql or sharsa."""

    def settings(self, domain: str | None):
        """Return the policy's settings; presets differ between domains."""
        from jumpyworld import policies

        known = {} if domain is None else {"domain": domain}
        config = self.changed(policies.get(self.name).config.preset(self.preset, **known))
        self.warn_of_a_fall_cut_short(config)
        return config

    def job(self, dataset):
        """Return the policy's job."""
        from jumpyworld.policies.job import policy_job

        return policy_job(self.name, dataset, self.settings(dataset.domain))


@dataclasses.dataclass(frozen=True)
class GHM(TrainCommand):
    """Train a geometric horizon model: where a policy will be, some steps from now.

    The same command with the same --out continues a run that was stopped, bit for bit.
    """

    policy: str
    """Whose future: a run or checkpoint folder; or scripted (pointmaze), or scripted:REACH, which
    goes for goals at most REACH cells away."""
    policy_seed: int | None = None
    """Which seed of a policy trained with several."""
    objective: Literal["td-hc", "td-flow"] = "td-hc"
    """With horizon consistency, or without (hc_fraction = 0)."""
    start_from: Path | None = None
    """A trained model to begin with instead of new weights: run, checkpoint or export folder."""

    def settings(self, domain: str | None):
        """Return the model's settings, which must be the objective's."""
        from jumpyworld.errors import ConfigError
        from jumpyworld.ghm import GHMConfig

        changes = {"hc_fraction": 0.0} if self.objective == "td-flow" else {}
        config = self.changed(GHMConfig.preset(self.preset, domain or "", **changes))
        if (config.hc_fraction == 0) != (self.objective == "td-flow"):
            raise ConfigError(
                f"--set hc_fraction={config.hc_fraction:g} is not --objective {self.objective}"
            )
        grown = config.curriculum * config.gradient_steps
        if self.steps is not None and self.steps < grown:
            raise ConfigError(
                f"--steps {self.steps}: horizons of --set curriculum={config.curriculum:g} grow "
                f"until step {grown:.0f} of gradient_steps={config.gradient_steps}; set that too"
            )
        self.warn_of_a_fall_cut_short(config)
        return config

    def job(self, dataset):
        """Return the model's job, with the policy as part of its data."""
        from jumpyworld.ghm.job import ghm_job
        from jumpyworld.loading import load_policy

        config = self.settings(dataset.domain)
        found = load_policy(self.policy, dataset.domain, seed=self.policy_seed, warn=warn)
        job = ghm_job(
            dataset,
            found.policy,
            config,
            policy_fingerprint=found.fingerprint,
            policy_name=found.name,
            **self._start(),
        )
        if found.domain != dataset.domain:
            warn(f"{self.policy}: trained on {found.domain}, but the data are {dataset.domain}")
        if config.hindsight > 0:
            self._warn_of_hindsight(found.name, config.goal_discount)
        return job

    def _warn_of_hindsight(self, policy_name: str, goal_discount: float) -> None:
        from jumpyworld.loading import describe

        if policy_name != "gcbc":
            warn(
                f"--set hindsight: the targets of {policy_name}, which does not imitate ways to "
                "such goals, lean towards the data's behaviour"
            )
            return
        imitated = describe(self.policy)["config"]["discount"]
        if imitated != goal_discount:
            warn(
                f"--set hindsight: {self.policy} imitates ways to goals of discount {imitated:g}, "
                f"here they have goal_discount={goal_discount:g}; the same is more exact"
            )

    def _start(self) -> dict[str, Any]:
        if self.start_from is None:
            return {}
        from jumpyworld.errors import ConfigError
        from jumpyworld.ghm import GeometricHorizonModel
        from jumpyworld.loading import fingerprint, load

        model = load(self.start_from, warn=warn)
        if not isinstance(model, GeometricHorizonModel):
            raise ConfigError(f"--start-from {self.start_from}: no geometric horizon model")
        return {"start": model, "start_fingerprint": fingerprint(self.start_from)}


@dataclasses.dataclass(frozen=True)
class WorldModel(TrainCommand):
    """Train a one-step world model, for planning over actions.

    The same command with the same --out continues a run that was stopped, bit for bit.
    """

    def settings(self, domain: str | None):
        """Return the model's settings."""
        from jumpyworld.ghm import WorldModelConfig

        del domain
        config = self.changed(WorldModelConfig.preset(self.preset))
        self.warn_of_a_fall_cut_short(config)
        return config

    def job(self, dataset):
        """Return the model's job."""
        from jumpyworld.ghm.job import world_model_job

        return world_model_job(dataset, self.settings(dataset.domain))


@dataclasses.dataclass(frozen=True)
class Train:
    """Train policies and models; interrupted, the same command continues."""

    command: Annotated[Policy | GHM | WorldModel, tyro.conf.arg(name="")]

    def run(self) -> None:
        """Run the chosen command."""
        self.command.run()
