"""``jumpy demo``: the whole story on a CPU, from no data to plans that beat the policy.

Every stage is a command that can be typed; the demo prints it before it runs it. So the demo goes
on where it was interrupted, because the commands do.
"""

import dataclasses
import shlex
import time
from pathlib import Path
from typing import Any

from jumpyworld.cli.stopping import answers_signals

DOMAIN, PICTURE, SECONDS = "pointmaze-large", "story.png", "seconds.json"
# Candidates are ways that the data know, and the model says which of them this policy can follow;
# what it believes of jumps through walls, of which the data know nothing, is refused.
PLANNING = (
    "--horizons 50 50 50 50 50 50 50 50 --discount 0.995 --proposal bridge --when-all-zero "
    "candidate --solver midpoint --ode-steps 2"
)


@dataclasses.dataclass(frozen=True)
class Size:
    """How much the demo does.

    Attributes:
        data_episodes: of the data set.
        policy_steps: gradient steps of GC-BC.
        ghm_steps: gradient steps of the model from new weights.
        tuning_steps: the same from the weights that ship with the package.
        episodes: of each task in the comparison.
        replan_every: control steps between plans.
        preset: of policy and model.
        max_steps: of an episode.
        planners: who are compared.
        search: how they look for the best candidate.
    """

    data_episodes: int
    policy_steps: int
    ghm_steps: int
    tuning_steps: int
    episodes: int
    replan_every: int
    preset: str = "small"
    max_steps: int = 1000
    planners: str = "zero-shot gpi compplan"
    search: str = "--search elimination --candidates 16 --rounds 16x8 4x24"


FULL = Size(300, 8000, 1500, 500, 4, 20)
# Most of its minute is compiling, so that it has one planner fewer and a search of one round.
FAST = Size(
    30,
    300,
    100,
    20,
    1,
    25,
    max_steps=300,
    planners="zero-shot compplan",
    search="--search uniform --candidates 8 --samples 8",
)


@dataclasses.dataclass(frozen=True)
class Demo:
    """Make data, train a policy and its model, plan with both, and compare.

    GC-BC in a large maze, alone and composed by GPI and CompPlan, on the five tasks. Writes a
    table, OUT/story.png and OUT/summary.json. Interrupted, the same command continues.
    """

    out: Path | None = None
    """Folder for all that the demo makes (default: demo, with --fast demo-fast)."""
    fast: bool = False
    """Run everything, and learn next to nothing."""
    seed: int = 0
    """Fixes data, training and episodes."""

    @answers_signals()
    def run(self) -> None:
        """Run stage after stage, draw the picture, write the summary."""
        from jumpyworld.cli import parse
        from jumpyworld.errors import check_whole

        began, seconds = time.monotonic(), {}
        stages, existed = self.stages(), self.folder.exists()
        check_whole("seed", self.seed, 0)
        earlier, resumed = self._earlier()
        self._keep(earlier, resumed)
        last = len(stages) + 1
        for number, (title, words) in enumerate(stages, 1):
            print(f"\n[{number}/{last}] {title}\n$ jumpy {shlex.join(words)}", flush=True)
            out, clock = Path(words[-1]), time.monotonic()
            before = _contents(out)
            parse(words).run()
            seconds[title] = round(time.monotonic() - clock, 1)
            if title in earlier and _contents(out) == before:
                seconds[title] = earlier[title]  # it was done already, in the time on record
            else:
                resumed = resumed or existed
            # At once: whoever is interrupted in a later stage still knows how long this one took.
            self._keep({**earlier, **seconds}, resumed)
        title = "Draw a picture: one episode again, with and without planning"
        print(f"\n[{last}/{last}] {title}; up to a minute", flush=True)
        clock = time.monotonic()
        picture = self._draw()
        seconds[title] = round(time.monotonic() - clock, 1)
        seconds["in all"] = round(sum(seconds.values()), 1)
        self._finish(picture, seconds, resumed, time.monotonic() - began)

    def _keep(self, seconds: dict[str, float], resumed: bool) -> None:
        """Write how long the stages took that have ended."""
        self._write(SECONDS, {**self._which(), "seconds": seconds, "resumed": resumed})

    def _write(self, name: str, value: dict[str, Any]) -> None:
        """Write a file of the demo's own."""
        from jumpyworld.errors import unwritable
        from jumpyworld.storage.files import write_json

        try:
            write_json(self.folder / name, value)
        except OSError as error:
            raise unwritable(self.folder, error) from error

    def _earlier(self) -> tuple[dict[str, float], bool]:
        """Return how long the stages took that earlier starts ended; was any start continued?

        Raises:
            ConfigError: what is there is a demo of another seed or size.
        """
        from jumpyworld.errors import CheckpointError, ConfigError
        from jumpyworld.storage.manifest import parse_json

        which = self._which()
        for path in (self.folder / SECONDS, self.folder / "summary.json"):
            try:
                found = parse_json(path.read_bytes(), path)
                if (found["seed"], found["fast"]) != (self.seed, self.fast):
                    size = " --fast" if found["fast"] else ""
                    raise ConfigError(
                        f"{self.folder}: holds the demo of --seed {found['seed']}{size}; "
                        "choose another --out"
                    )
                if {name: found[name] for name in which} == which:
                    seconds = {title: float(took) for title, took in found["seconds"].items()}
                    return seconds, bool(found["resumed"])
            except (OSError, CheckpointError, AttributeError, KeyError, TypeError, ValueError):
                continue  # there is none, or it is damaged: it is written anew
        return {}, False

    def _which(self) -> dict[str, Any]:
        """Return what decides the stages."""
        shipped = self.start_from() is not None
        return {"seed": self.seed, "fast": self.fast, "shipped_weights": shipped}

    @property
    def folder(self) -> Path:
        """Where everything goes: sizes differ, so that neither demo can go on with the other's."""
        return self.out or Path("demo-fast" if self.fast else "demo")

    @property
    def size(self) -> Size:
        """How much is done."""
        return FAST if self.fast else FULL

    def start_from(self) -> Path | None:
        """Return the shipped model that the demo begins with: it fits a small one alone."""
        return shipped_ghm() if self.size.preset == "small" else None

    def stages(self) -> list[tuple[str, list[str]]]:
        """Return what to do, each with the words of its command."""
        size = self.size
        data, policy, ghm, results = (
            str(self.folder / name) for name in ("data", "gcbc", "ghm", "eval")
        )
        make = f"data generate {DOMAIN} --episodes {size.data_episodes} --seed {self.seed}".split()
        common = ["--preset", size.preset, "--seed", str(self.seed), "--dataset", data]
        clone = f"train policy gcbc --steps {size.policy_steps}".split()
        start, steps, rate = [], size.ghm_steps, ""
        title = "Train the model of where the policy will be"
        if shipped := self.start_from():
            start, steps = ["--start-from", str(shipped)], size.tuning_steps
            # Gently, or it forgets; and in the units that it was trained in.
            rate = " learning_rate=3e-4 target_rate=0.01 normaliser=scaled"
            title += ", from weights that ship with the package"
        model = f"train ghm --steps {steps} --set gradient_steps={steps} jumps=ahead "
        model += "final_lr_fraction=0.1" + rate
        model = [*model.split(), *start]
        compare = f"eval --domain {DOMAIN} --planner {size.planners} --seed {self.seed} "
        compare += f"--episodes {size.episodes} --replan-every {size.replan_every} "
        compare += f"--max-steps {size.max_steps} {size.search} {PLANNING}"
        trained = ["--policy", policy, "--ghm", ghm]
        return [
            ("Make data: a point on its way from goal to goal", [*make, "--out", data]),
            (
                "Train the policy: goal-conditioned behavioural cloning",
                [*clone, *common, "--out", policy],
            ),
            (title, [*model, *common, "--policy", policy, "--out", ghm]),
            (
                "Compare: the policy alone, and composed by planners",
                [*compare.split(), "--precedents", data, *trained, "--out", results],
            ),
        ]

    def _finish(
        self, picture: dict[str, Any], seconds: dict[str, float], resumed: bool, took: float
    ) -> None:
        """Write the summary, and say where everything is."""
        from jumpyworld.cli.provenance import provenance
        from jumpyworld.evaluation.planned import Results

        rows = {row["planner"]: row for row in Results(self.folder / "eval").rows.values()}
        summary: dict[str, Any] = {
            "domain": DOMAIN,
            **self._which(),
            "success": {
                name: {key: row[key] for key in ("mean", "ci95", "diff", "diff_ci95") if key in row}
                for name, row in rows.items()
            },
            "episodes": 5 * self.size.episodes,
            # Of the start that ended a stage; what an interrupted one spent on it is not in it.
            "seconds": seconds,
            "resumed": resumed,
            "picture": picture,
            **provenance(),
        }
        self._write("summary.json", summary)
        for note in picture["notes"]:
            print(f"in the picture, {note}")
        print(f"\npicture: {self.folder / PICTURE}\nsummary: {self.folder / 'summary.json'}")
        if self.fast:
            print("So little training solves hardly anything; judge by the demo without --fast.")
        view = f"jumpy view {self.folder}/gcbc {self.folder}/ghm --precedents {self.folder}/data"
        print(f"{took:.0f} s in all. Next: {view}")

    def _draw(self) -> dict[str, Any]:
        """Draw an episode; return which, and where it is not as the table counts it."""
        from jumpyworld import domains
        from jumpyworld.cli import parse
        from jumpyworld.evaluation.story import draw_story, most_telling, replay, unlike_counted

        command, domain = parse(self.stages()[-1][1]), domains.get(DOMAIN)
        assert isinstance(domain, domains.MazeDomain)
        planners, outcomes = command.again()
        place = task, episode = most_telling(outcomes["zero-shot"], outcomes["compplan"])
        again = {name: getattr(self.size, name) for name in ("replan_every", "max_steps")}
        again["seed"] = self.seed
        (alone, _), (planned, plans) = (
            replay(domain, planners[name], task + 1, episode, **again)
            for name in ("zero-shot", "compplan")
        )
        told = {"zero-shot": alone, "compplan": planned}
        unlike = {name: unlike_counted(told[name], outcomes[name], place) for name in told}
        notes = [f"{name}: {text}" for name, text in unlike.items() if text]
        draw_story(
            domain, planners["compplan"], alone, planned, plans, self.folder / PICTURE,
            seed=self.seed, notes=notes,
        )  # fmt: skip
        return {"task": task + 1, "episode": episode, "notes": notes}


def _contents(folder: Path) -> dict[str, str]:
    """Return a hash of each file below a folder; who holds it is no content."""
    from jumpyworld.storage.files import sha256_file

    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(folder)): sha256_file(path) for path in files}


def shipped_ghm() -> Path | None:
    """Return the folder of the model that ships with the package, if one does."""
    import jumpyworld

    folder = Path(jumpyworld.__file__).parent / "demo" / "ghm"
    return folder if (folder / "config.json").is_file() else None
