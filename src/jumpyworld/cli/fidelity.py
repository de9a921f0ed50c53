"""``jumpy fidelity``: how right geometric horizon models are."""

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from jumpyworld.cli.flags import spelt

if TYPE_CHECKING:
    from jumpyworld.cli.models import LoadedModel
    from jumpyworld.evaluation.fidelity import Fidelity as Distances
    from jumpyworld.evaluation.fidelity import Protocol
    from jumpyworld.evaluation.study import Outcome
    from jumpyworld.loading import LoadedPolicy

# jumpy fidelity --ghm runs/ghm --policy runs/gcbc --dataset data --out fidelity
# jumpy fidelity --ghm runs/hc --ghm runs/flow --policy scripted --dataset data \
#     --gammas .99 .995 .998 --allow-extrapolation --out fidelity
# jumpy fidelity --samples fidelity/samples/in-support-0-1a2b3c4d --pair 3 --picture pair3.png


@dataclasses.dataclass(frozen=True)
class Fidelity:
    """Measure how right models are: exact EMD between their samples and real rollouts.

    Rollouts start in states of the validation split. The noise floor (two halves of the rollouts
    against each other) bounds what a perfect model scores from above. Writes OUT/fidelity.jsonl,
    the samples and a picture. Rollouts are kept: the same command again, or with another --ghm,
    reuses them.
    """

    ghm: tyro.conf.UseAppendAction[tuple[Path, ...]] = ()
    """A model's run or checkpoint folder; give --ghm again for each further model."""
    policy: str | None = None
    """The policy that the models were trained for: a run folder, or scripted[:REACH]."""
    dataset: Path | None = None
    """Data set whose validation split the pairs come from."""
    domain: str | None = None
    """Name or alias (default: the data set's)."""
    pairs: Literal["in-support", "random"] | None = None
    """Goals that the data reached from the state (default for quick), or any state with any goal
    (default for paper)."""
    preset: Literal["paper", "quick"] = "quick"
    """256 pairs x 64 rollouts, 2048 samples, gamma .99 and .995; or 32 x 16, 384, .9 to .995."""
    gammas: tuple[float, ...] = ()
    """Discounts (default: the preset's)."""
    allow_extrapolation: bool = False
    """Permit discounts above the largest that a model was trained on."""
    num_pairs: int | None = None
    """State-goal pairs, instead of the preset's."""
    num_rollouts: int | None = None
    """Rollouts of each pair, instead of the preset's."""
    num_samples: int | None = None
    """Samples per pair and discount, instead of the preset's."""
    rollout_steps: int | None = None
    """Steps of each rollout (default: 1000); later times are clipped to the last state."""
    seed: int = 0
    """Fixes pairs, rollouts and samples."""
    ghm_seed: int | None = None
    """Which seed of models trained with several."""
    policy_seed: int | None = None
    """Which seed of a policy trained with several."""
    workers: int | None = None
    """Processes (default: all cores); they change the time alone."""
    out: Path = Path("fidelity")
    """Folder for results, samples and the picture."""
    rollouts: Path | None = None
    """Where rollouts are kept (default: OUT/rollouts); 2 GB for an antmaze with --preset paper."""
    picture: Path | None = None
    """PNG file (default: in OUT)."""
    pair: int | None = None
    """Which pair the picture shows, from 0 (default: the one with the farthest goal)."""
    samples: tuple[Path, ...] = ()
    """Measure nothing: draw these saved samples (files, or one of the folders in OUT/samples)."""

    @property
    def _kind(self) -> Literal["in-support", "random"]:
        return self.pairs or ("random" if self.preset == "paper" else "in-support")

    def run(self) -> None:
        """Measure, save, print and draw."""
        if self.samples:
            self._draw(list(self.samples), self.picture or Path("fidelity.png"))
            return
        from jumpyworld.cli.console import progress
        from jumpyworld.cli.train_loop import warn
        from jumpyworld.evaluation.pairs import draw_pairs
        from jumpyworld.evaluation.study import run_study
        from jumpyworld.storage.manifest import sha256_json

        protocol = self.protocol()
        domain, dataset = self._data()
        policy, models = self._policy_and_models(domain)
        pairs = draw_pairs(self._kind, dataset, protocol.pairs, self.seed)
        mark = sha256_json([policy.fingerprint, pairs.fingerprint])[:8]
        folder = self.out / "samples" / f"{self._kind}-{self.seed}-{mark}"
        try:
            outcome = run_study(
                domain,
                policy.policy,
                {name: each.model for name, each in models.items()},
                pairs,
                protocol,
                policy_fingerprint=policy.fingerprint,
                seed=self.seed,
                rollouts_folder=self.rollouts or self.out / "rollouts",
                samples_folder=folder,
                allow_extrapolation=self.allow_extrapolation,
                workers=self.workers,
                report=progress,
                warn=warn,
            )
        except KeyboardInterrupt:
            raise KeyboardInterrupt("(the same command reuses the rollouts it finished)") from None
        self._write(domain, policy, models, protocol, outcome)
        print_tables(outcome)
        print(f"rows: {self.out / 'fidelity.jsonl'}\nsamples: {folder}")
        self._draw(outcome.files, self.picture or self.out / f"{folder.name}.png")

    def protocol(self) -> "Protocol":
        """Return the preset with the sizes asked for; refuse flags that are wrong or missing."""
        from jumpyworld.errors import ConfigError
        from jumpyworld.evaluation.fidelity import PRESETS

        for name in ("ghm", "policy", "dataset"):
            if not getattr(self, name):
                raise ConfigError(f"--{name} is missing (or give --samples, to draw a picture)")
        if self.seed < 0:
            raise ConfigError(f"{spelt('seed', self.seed)}: must not be negative")
        if self.workers is not None and self.workers < 1:
            raise ConfigError(f"{spelt('workers', self.workers)}: must be at least 1")
        if self.picture is not None and self.picture.suffix.lower() != ".png":
            raise ConfigError(f"{self.picture}: pictures are PNG files; --picture must end in .png")
        asked = {
            "pairs": self.num_pairs,
            "rollouts": self.num_rollouts,
            "samples": self.num_samples,
            "steps": self.rollout_steps,
            "gammas": tuple(sorted(self.gammas)) or None,
        }
        changes = {name: value for name, value in asked.items() if value is not None}
        return dataclasses.replace(PRESETS[self.preset], **changes)

    def _data(self):
        """Return the domain and the validation split, which must belong together."""
        from jumpyworld import domains
        from jumpyworld.data import load
        from jumpyworld.errors import ConfigError, data_error

        named = None if self.domain is None else domains.get(self.domain)
        dataset = load(self.dataset or "", split="val")
        if named is None and dataset.domain is None:
            raise ConfigError(f"{dataset.source}: its domain is not known; give --domain")
        domain = named or domains.get(dataset.domain or "")
        widths = (dataset.observation_dim, dataset.action_dim)
        if dataset.domain not in (None, domain.name) or widths != (
            domain.observation_dim,
            domain.action_dim,
        ):
            raise data_error(
                dataset.source,
                f"is of {dataset.domain or 'an unknown domain'} with states of {widths[0]} and "
                f"actions of {widths[1]} dimensions, not of {domain.name}",
            )
        return domain, dataset

    def _policy_and_models(self, domain) -> tuple["LoadedPolicy", dict[str, "LoadedModel"]]:
        """Load the policy and the models of it; refuse models of another policy or domain."""
        from jumpyworld.cli.models import load_ghm
        from jumpyworld.cli.train_loop import warn
        from jumpyworld.errors import CheckpointError
        from jumpyworld.loading import load_policy

        policy = load_policy(self.policy or "", domain.name, seed=self.policy_seed, warn=warn)
        models: dict[str, LoadedModel] = {}
        for path in self.ghm:
            found = load_ghm(path, domain, policy, seed=self.ghm_seed)
            name = found.objective
            if name in models:
                name = f"{found.objective}-{path.resolve().name}"
            if name in models:
                raise CheckpointError(f"{path}: given twice")
            models[name] = found
        return policy, models

    def _write(self, domain, policy: "LoadedPolicy", models, protocol, outcome: "Outcome") -> None:
        """Add a row per model to OUT/fidelity.jsonl; the same measurement replaces its old row."""
        from jumpyworld.cli.models import trained, training_minutes
        from jumpyworld.cli.provenance import provenance
        from jumpyworld.evaluation.study import result_rows
        from jumpyworld.storage.rows import replace_rows

        whose = trained(self.policy or "", self.policy_seed)
        rows = [
            {
                "kind": "fidelity",
                "domain": domain.alias,
                "policy": policy.name,
                "objective": each.objective,
                "model": name,
                "seed": self.seed,
                "pairs": self._kind,
                "num_pairs": protocol.pairs,
                "rollouts": protocol.rollouts,
                "rollout_steps": protocol.steps,
                "samples": protocol.samples,
                "steps": each.step,
                "fingerprints": {"policy": policy.fingerprint, "ghm": each.fingerprint},
                "gammas": list(protocol.gammas),
                **result_rows(outcome, name),
                **provenance(),
                "config": each.config,
                "trained": {"policy": whose, "model": trained(path, self.ghm_seed)},
                "minutes": {**_of_training(training_minutes(path)), **outcome.minutes},
            }
            for path, (name, each) in zip(self.ghm, models.items(), strict=True)
        ]
        same = ("domain", "policy", "model", "seed", "pairs", "num_pairs", "rollouts", "samples")
        same = (*same, "rollout_steps", "steps", "fingerprints", "gammas")
        replace_rows(self.out / "fidelity.jsonl", rows, same)

    def _draw(self, paths: list[Path], picture: Path) -> None:
        from jumpyworld.errors import MissingExtraError
        from jumpyworld.evaluation.pictures import draw_samples
        from jumpyworld.evaluation.samples import read_all

        columns = self.gammas if self.samples else ()
        try:
            pair = draw_samples(read_all(paths), picture, pair=self.pair, gammas=columns)
        except MissingExtraError as error:
            if self.samples or self.picture:
                raise
            print(f"no picture: {error}", file=sys.stderr)
            return
        print(f"picture: {picture} (pair {pair})")


def _of_training(minutes: float | None) -> dict[str, float]:
    """Return the model's minutes under its name, as ``jumpy eval`` has them; exports have none."""
    return {} if minutes is None else {"ghm": minutes}


def print_tables(outcome: "Outcome") -> None:
    """Print EMD per model and discount, what plans are made of, and the first action's effect."""
    from rich.console import Console
    from rich.table import Table

    # Into a file or a pipe a table is as wide as it needs to be; nothing is cut off.
    width = None if sys.stdout.isatty() else 200
    console = Console(highlight=False, markup=False, emoji=False, width=width)

    def show(first: str, titles: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column(first, no_wrap=True)
        for title in titles:
            table.add_column(title, justify="right", no_wrap=True)
        for row in rows:
            table.add_row(*row)
        console.print(table)
        console.print()

    rows, plans = [], []
    for name, facts in outcome.fidelity.items():
        for i, fact in enumerate(facts):
            cells = (name, f"{fact.gamma:g}", f"{1 / (1 - fact.gamma):.0f}")
            rows.append((*cells, *_distances(fact), _percent(fact.clipped)))
            places = _distances(outcome.places[name][i]) if outcome.places else ()
            walls = (outcome.walls[name][i], outcome.walls["truth"][i])
            reward = outcome.rewards[name][i]
            rewards = (_number(reward.model), _number(reward.truth))
            plans.append((*cells, *places, *map(_percent, walls), *rewards))
    distances = ("EMD", "± 95%", "floor", "± 95%")
    show("model", ("gamma", "steps", *distances, "clipped"), rows)
    of_places = distances if outcome.places else ()
    titles = ("gamma", "steps", *of_places, "in walls", "(truth)", "reward", "(truth)")
    show("what decides the task" if outcome.places else "for planning", titles, plans)
    rows = [
        (
            name,
            f"{fact.gamma:g}",
            f"{1 / (1 - fact.gamma):.0f}",
            *map(_number, (fact.shift, fact.spread, fact.ratio)),
        )
        for name, facts in outcome.sensitivity.items()
        for fact in facts
    ]
    show("first action", ("gamma", "steps", "shift", "spread", "shift / spread"), rows)


def _distances(fact: "Distances") -> tuple[str, ...]:
    return tuple(map(_number, (fact.emd, fact.ci95, fact.floor, fact.floor_ci95)))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}%"
