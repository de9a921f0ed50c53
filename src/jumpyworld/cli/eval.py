"""``jumpy eval``: success of planners and policies on a domain's tasks."""

import contextlib
import dataclasses
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from jumpyworld.cli.stopping import answers_signals

if TYPE_CHECKING:
    from jumpyworld.cli.models import LoadedModel
    from jumpyworld.domains import Domain
    from jumpyworld.evaluation.lockstep import Lockstep
    from jumpyworld.evaluation.planned import Contender, Outcomes, Results
    from jumpyworld.evaluation.planners import PlannerSettings
    from jumpyworld.evaluation.success import Success
    from jumpyworld.loading import LoadedPolicy
    from jumpyworld.planning import AbstractPlanner

# jumpy eval --domain pointmaze-large --policy scripted:3 --out eval
# jumpy eval --domain antmaze-medium --policy runs/gcbc --ghm runs/ghm \
#     --planner zero-shot compplan gpi --episodes 50 --out eval

SETTINGS = (
    "proposal", "patience", "stride", "refuse", "append_goal", "search", "candidates", "samples",
    "horizons", "discount", "solver", "ode_steps", "policy_steps", "precision", "include_base",
    "warm_start", "margin", "tail", "objective", "when_all_zero", "alpha", "gpi_chain",
    "action_horizon", "max_rows", "allow_extrapolation",
)  # fmt: skip
"""Flags that are fields of ``PlannerSettings``."""


@dataclasses.dataclass(frozen=True)
class Eval:
    """Measure success: any planner, any policy, all five tasks, in the real environment.

    Several planners meet the same episodes: same starts, goals and noise. Differences are paired
    and go to zero-shot, or else to the first planner. Planning settings default to the paper's for
    the domain and policy. Writes OUT/success.jsonl and every episode's outcome; the same command
    again runs only what is missing.
    """

    domain: str
    """Name or alias, such as antmaze-medium or cube-2."""
    policy: str
    """A run or checkpoint folder; or scripted (pointmaze), or scripted:REACH."""
    planner: tuple[Literal["zero-shot", "compplan", "gpi", "ggpi", "actionplan"], ...] = (
        "zero-shot",
    )
    """One or several."""
    ghm: Path | None = None
    """The policy's geometric horizon model, for compplan, gpi and ggpi."""
    world_model: Path | None = None
    """One-step world model, for actionplan."""
    episodes: int = 20
    """Episodes per task."""
    tasks: tuple[int, ...] = (1, 2, 3, 4, 5)
    """Which tasks."""
    replan_every: int | None = None
    """Control steps between plans (default: the paper's, 1); in between, pi of the plan's z_1."""
    proposal: (
        Literal["goal", "unconditional", "high-level", "mixture", "bridge", "trace"] | None
    ) = None
    """Where candidates come from; bridge (mazes) and trace (cubes) take them from the precedents,
    and go best with --when-all-zero candidate."""
    patience: float = 0.3
    """Of bridges, the chance to go on after each jump: lower prefers short ways to usual ones."""
    stride: float | None = None
    """Steps of the data that a segment covers, as a share of its horizon: of bridges (default: 0.5;
    0 for geometric lengths) and traces (default: 1)."""
    precedents: Path | None = None
    """A data set of the domain: bridges and traces are made of it, and (but for traces) jumps of
    the model that it never made are refused."""
    refuse: bool = True
    """Refuse jumps of the model without a precedent; --no-refuse keeps them for bridges alone."""
    precedent_share: float = 0.9
    """Of the data's own jumps from a place, the share that counts, the most usual first."""
    append_goal: bool = False
    """Let every proposed sequence end with the goal."""
    reward: Literal["count", "indicator", "neg-distance"] = "count"
    """What planners maximise: cubes in place, all in place (mazes: the same), or nearness."""
    search: Literal["uniform", "elimination"] = "uniform"
    """Equal chains for every candidate, as in the paper, or rounds of elimination."""
    candidates: int | None = None
    """Candidates M of a plan."""
    samples: int | None = None
    """Chains N of each candidate."""
    rounds: tuple[str, ...] = ()
    """Rounds of the elimination as CANDIDATESxCHAINS, such as 256x16 32x48 4x192."""
    horizons: tuple[float, ...] | None = None
    """Mean steps of each segment."""
    discount: float | None = None
    """The global discount."""
    solver: Literal["euler", "midpoint"] | None = None
    """ODE solver while planning (default: the model's)."""
    ode_steps: int | None = None
    """ODE steps while planning (default: the model's)."""
    policy_steps: int | None = None
    """Midpoint steps of the policy's own flow in chains (default: as it acts)."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Of inner layers in chains, the model's and the policy's; the policy acts in its own."""
    include_base: bool = False
    """Let the base policy's own sequence stand among the candidates."""
    warm_start: int = 0
    """Best sequences of the last plan that stand among the candidates, as they were and one segment
    further on."""
    margin: float = 0.0
    """By which share more than the last plan another must be worth to be chosen."""
    tail: Literal["truncate", "absorb"] = "truncate"
    """What the weights do with the time after the last segment (ggpi always absorbs it)."""
    objective: Literal["q", "v"] = "q"
    """Score a first action and execute it, or average over first actions."""
    when_all_zero: Literal["base", "candidate"] = "base"
    """What acts when no candidate finds any reward."""
    alpha: float | None = None
    """Switching probability of ggpi (default: that of the first horizon)."""
    gpi_chain: bool = False
    """Let gpi follow one policy through all horizons, instead of one jump."""
    action_horizon: int = 25
    """Steps that actionplan looks ahead."""
    max_rows: int = 2**16
    """Chains alive at once, which bounds memory: environments are planned for in turns."""
    allow_extrapolation: bool = False
    """Permit horizons beyond what the model was trained for."""
    max_steps: int | None = None
    """Episode limit in control steps (default: the domain's)."""
    workers: int | None = None
    """Processes for the environments (default: all cores); they change the time alone."""
    seed: int = 0
    """Fixes all episodes."""
    policy_seed: int | None = None
    """Which seed of a policy trained with several."""
    ghm_seed: int | None = None
    """Which seed of models trained with several."""
    out: Path = Path("eval")
    """Folder for rows, outcomes and frames."""
    frames: bool = False
    """Draw one episode of each task and planner into OUT/frames; cubes with see-through samples of
    the model, where OpenGL can render (MUJOCO_GL=egl without a display)."""
    overwrite: bool = False
    """Run planners again that OUT already has results of."""

    @answers_signals()
    def run(self) -> None:
        """Evaluate planner after planner, and print a table."""
        from jumpyworld.cli.eval_table import print_table
        from jumpyworld.evaluation.planned import Outcomes, Results, difference_fields
        from jumpyworld.evaluation.success import open_environments

        domain, policy, models, contenders = self._asked()
        results = Results(self.out)
        outcomes: dict[str, Outcomes] = {}
        envs: Lockstep | None = None
        with contextlib.ExitStack() as stack:
            for contender, planner in contenders:
                found = None if self.overwrite else results.finished(contender)
                if found is None:
                    results.prepare()
                    many = self.episodes * len(self.tasks)
                    envs = envs or stack.enter_context(
                        open_environments(domain, many, self.workers)
                    )
                    row, success = self._evaluate(domain, contender, planner, policy, models, envs)
                    results.write(contender, success, row)
                    if self.frames:
                        self._draw(domain, contender, planner, success.traces)
                    found = Outcomes(success.outcomes, success.steps)
                else:
                    more = " and draws it" if self.frames else ""
                    again = f"(--overwrite runs it again{more})"
                    print(f"{contender.planner}: already in {self.out} {again}")
                outcomes[contender.planner] = found
        baseline, theirs = self._baseline(contenders, outcomes, results)
        for contender, _ in contenders:
            if theirs is not None and contender.planner != baseline:
                more = difference_fields(baseline, outcomes[contender.planner], theirs)
                results.write_row({**results.rows[contender.id], **more})
        print_table([results.rows[contender.id] for contender, _ in contenders])
        print(f"rows: {self.out / 'success.jsonl'}")

    def again(self) -> tuple[dict[str, "AbstractPlanner"], dict[str, "Outcomes"]]:
        """Return the planners that the command asks for, and what OUT already has of them."""
        from jumpyworld.evaluation.planned import Results

        contenders, results = self._asked()[-1], Results(self.out)
        found = {contender.planner: results.finished(contender) for contender, _ in contenders}
        return (
            {contender.planner: planner for contender, planner in contenders},
            {name: outcomes for name, outcomes in found.items() if outcomes is not None},
        )

    def _asked(
        self,
    ) -> tuple[
        "Domain",
        "LoadedPolicy",
        dict[str, "LoadedModel"],
        list[tuple["Contender", "AbstractPlanner"]],
    ]:
        """Check the flags, load what they name, and build every planner."""
        from jumpyworld import domains
        from jumpyworld.cli.eval_checks import check_flags

        domain = domains.get(self.domain)
        check_flags(self, domain)
        policy, models = self._load(domain)
        settings = self._settings(domain, policy)
        return domain, policy, models, self._contenders(domain, policy, models, settings)

    def _load(self, domain: "Domain") -> tuple["LoadedPolicy", dict[str, "LoadedModel"]]:
        """Load the policy, and the models that planners ask for."""
        from jumpyworld.cli.models import load_ghm, load_world_model
        from jumpyworld.cli.train_loop import warn
        from jumpyworld.errors import ConfigError
        from jumpyworld.loading import load_policy

        policy = load_policy(self.policy, domain.name, seed=self.policy_seed, warn=warn)
        width = policy.policy.observation_dim
        if width != domain.observation_dim:
            raise ConfigError(
                f"--policy {self.policy}: its states have {width} values, those of {domain.name} "
                f"{domain.observation_dim}"
            )
        if policy.domain not in (None, domain.name):
            warn(f"{self.policy}: trained on {policy.domain}, evaluated in {domain.name}")
        models = {}
        if self.ghm is not None:
            models["ghm"] = load_ghm(self.ghm, domain, policy, seed=self.ghm_seed)
        if self.world_model is not None:
            models["world_model"] = load_world_model(self.world_model, domain, seed=self.ghm_seed)
        return policy, models

    def _settings(self, domain: "Domain", policy: "LoadedPolicy") -> "PlannerSettings":
        from jumpyworld.cli.eval_checks import read_rounds
        from jumpyworld.evaluation.planners import planner_settings

        asked = {name: getattr(self, name) for name in SETTINGS}
        return planner_settings(domain, policy.name, rounds=read_rounds(self.rounds), **asked)

    def _contenders(
        self,
        domain: "Domain",
        policy: "LoadedPolicy",
        models: dict[str, "LoadedModel"],
        settings: "PlannerSettings",
    ) -> list[tuple["Contender", "AbstractPlanner"]]:
        """Build every planner, so that bad settings are refused before anything runs."""
        from jumpyworld.cli.eval_progress import say
        from jumpyworld.cli.models import load_places, load_traces
        from jumpyworld.domains.versions import simulator_versions
        from jumpyworld.evaluation.planned import Contender
        from jumpyworld.evaluation.planners import make_planner
        from jumpyworld.planning import planning_preset

        episodes = {
            "seed": self.seed,
            "tasks": list(self.tasks),
            "episodes": self.episodes,
            "max_steps": self.max_steps or domain.max_episode_steps,
        }
        every = self.replan_every or planning_preset(domain.name, policy.name).replan_every
        made: dict[str, Any] = {name: found.model for name, found in models.items()}
        precedents: dict[str, Any] = {}
        if self.precedents is not None:
            say(f"reading --precedents {self.precedents} ...")  # a million rows take 15 s
        if self.precedents is not None and self.proposal == "trace":
            made["traces"], dataset = load_traces(self.precedents, domain)
            precedents = {"precedents": dataset[:16]}
        elif self.precedents is not None:
            made["places"], dataset = load_places(self.precedents, domain, self.precedent_share)
            precedents = {"precedents": dataset[:16]}
            precedents |= {"precedent_share": self.precedent_share} if self.refuse else {}
        contenders = []
        for name in self.planner:
            planner = make_planner(name, settings, policy.policy, whole=policy.whole, **made)
            who: dict[str, Any] = {
                "domain": domain.name,
                "policy": policy.fingerprint[:16],
                "simulator": simulator_versions(),
            }
            if name != "zero-shot":
                model = models["world_model" if name == "actionplan" else "ghm"]
                who["model"] = model.fingerprint[:16]
                who["replan_every"] = every
                who |= settings.used_by(name, model.model)
                who |= {} if self.reward == "count" else {"reward": self.reward}
                who |= {} if name == "actionplan" else precedents
            contenders.append((Contender(name, who, episodes), planner))
        return contenders

    def _evaluate(
        self,
        domain: "Domain",
        contender: "Contender",
        planner: "AbstractPlanner",
        policy: "LoadedPolicy",
        models: dict[str, "LoadedModel"],
        envs: "Lockstep",
    ) -> tuple[dict[str, Any], "Success"]:
        """Run one planner's episodes; return its row and what came of them."""
        from jumpyworld.cli.eval_progress import describe_work, watched
        from jumpyworld.cli.provenance import provenance
        from jumpyworld.evaluation.planned import success_fields
        from jumpyworld.evaluation.success import evaluate

        clock = time.monotonic()
        limit, every = contender.episodes["max_steps"], contender.who.get("replan_every", 1)
        work = describe_work(planner, self.episodes * len(self.tasks), limit, every, envs.num_envs)
        try:
            with watched(contender.planner, work) as update:
                success = evaluate(
                    domain,
                    planner,
                    episodes=self.episodes,
                    tasks=self.tasks,
                    seed=self.seed,
                    envs=envs,
                    max_steps=limit,
                    replan_every=every,
                    reward=self.reward,
                    record=int(self.frames),
                    progress=update,
                )
        except KeyboardInterrupt:
            raise KeyboardInterrupt("(the same command keeps the planners it finished)") from None
        minutes = {"eval": round((time.monotonic() - clock) / 60, 2)}
        row: dict[str, Any] = {
            "kind": "success",
            "domain": domain.alias,
            "policy": policy.name,
            "planner": contender.planner,
            "seed": self.seed,
            **success_fields(success),
            **provenance(),
            "config": contender.config,
            "trained": self._trained(contender.planner),
            "minutes": {**self._training_minutes(contender.planner), **minutes},
        }
        if "ghm" in models and contender.planner in ("compplan", "gpi", "ggpi"):
            row |= {"objective": models["ghm"].objective, "model_steps": models["ghm"].step}
        return row, success

    def _model(self, planner: str) -> Path | None:
        """Return the model that a planner plans with."""
        return {"zero-shot": None, "actionplan": self.world_model}.get(planner, self.ghm)

    def _trained(self, planner: str) -> dict[str, Any]:
        """Return the recipes and seeds of what a planner plans with."""
        from jumpyworld.cli.models import trained

        found, model = {"policy": trained(self.policy, self.policy_seed)}, self._model(planner)
        return found if model is None else {**found, "model": trained(model, self.ghm_seed)}

    def _training_minutes(self, planner: str) -> dict[str, float]:
        from jumpyworld.cli.models import training_minutes

        model = self._model(planner)
        kind = "world_model" if planner == "actionplan" else "ghm"
        paths = {"policy": self.policy.removesuffix(":low"), kind: model}
        found = {name: training_minutes(path) for name, path in paths.items() if path is not None}
        return {name: minutes for name, minutes in found.items() if minutes is not None}

    def _baseline(
        self,
        contenders: list[tuple["Contender", "AbstractPlanner"]],
        outcomes: dict[str, "Outcomes"],
        results: "Results",
    ) -> tuple[str, "Outcomes | None"]:
        """Return whom the others are compared with: zero-shot, run now or earlier, or the first."""
        from jumpyworld.evaluation.planned import Contender

        if "zero-shot" in outcomes:
            return "zero-shot", outcomes["zero-shot"]
        first = contenders[0][0]
        same = ("domain", "policy", "simulator")
        who = {name: first.who[name] for name in same}
        stored = results.find(Contender("zero-shot", who, first.episodes))
        if stored is not None:
            print(f"zero-shot: its episodes in {self.out} are the baseline")
            return "zero-shot", stored
        return first.planner, outcomes[first.planner] if len(contenders) > 1 else None

    def _draw(
        self, domain: "Domain", contender: "Contender", planner: "AbstractPlanner", traces
    ) -> None:
        from jumpyworld.cli.train_loop import warn
        from jumpyworld.errors import MissingExtraError
        from jumpyworld.evaluation.frames import draw_episodes

        path = self.out / "frames" / f"{contender.planner}-{contender.id}.png"
        title = f"{domain.alias}: {contender.planner}"
        try:
            draw_episodes(domain, planner, traces, path, title, warn=warn)
        except MissingExtraError as error:
            print(f"no frames: {error}", file=sys.stderr)
            return
        print(f"frames: {path}")
