"""Settings of a geometric horizon model and its training, and four named sets of them.

``paper`` holds the values of the paper's GHM hyperparameter table, literally where it speaks. The
others are ours: the network sees displacements instead of positions (``frame="moving"``), data that
move slowly are larger than the noise (``normaliser="paced"``), long horizons come as often as short
ones (``gamma_sampler="mixture"``), targets take half as many Euler steps, which costs no fidelity
(``docs/performance.md``), and the target network is fast enough for a run of minutes. ``base``,
which is for GPUs, also rounds inner layers and draws jumps one step ahead; on a pointmaze neither
changed what was learnt. Its learning rate and its target's rate fall, as those of our best models
did in 16,000 to 45,000 steps (``docs/fidelity.md``; this preset as a whole was not measured): give
a run of another length its own ``gradient_steps``.

A target that moves by ``target_rate`` a step is renewed steps x rate times, and each renewal is
about one Bellman iteration; their number should be several times the longest horizon.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal, get_args, get_origin

from jumpyworld.errors import ConfigError
from jumpyworld.flows import Solver
from jumpyworld.nn.embed import GammaEmbed
from jumpyworld.nn.film_unet import Skip
from jumpyworld.nn.normaliser import NormaliserKind

FrameKind = Literal["absolute", "moving", "matched"]
DiscountLaw = Literal["uniform", "log_uniform", "mixture"]
BetaLaw = Literal["uniform", "log_uniform", "mixture", "ratio"]
BootstrapGrid = Literal["scaled", "fixed", "through", "every"]
Precision = Literal["fp32", "bf16"]
ZSource = Literal["goals", "one_hot"]
Preset = Literal["paper", "base", "small", "debug"]


@dataclass(frozen=True)
class GHMConfig:
    """Everything that decides what a GHM run does; plain values only, so it is JSON as it stands.

    The defaults are the paper's (label ``table:fm-td-consistency-hparams``).

    Attributes:
        width: units of every hidden layer (block, encoder and embedding widths). Paper 1024.
        stages: U-Net blocks down, and up. Paper 3.
        embed_dim: sinusoid features of t and of gamma. Paper 256.
        embed_scale: factor on t and gamma before their sinusoids. Paper silent.
        gamma_embed: what gamma's sinusoid sees, ``gamma`` or ``log_horizon``.
        skip: how up blocks take their skips, ``concat`` or ``add``. Paper silent.
        films_per_block: modulated LayerNorms per block, 1 or 2. Paper silent.
        linear_mix: no activation after the sum of conditioning parts, so that FiLM can be cached.
        frame: ``absolute`` (the paper's field), ``moving`` (with the state) or ``matched`` (and to
            a Gaussian of the data's displacement); see ``Frame``.
        z_frame: how the network sees a z that is a state: ``absolute``, or ``moving``, as seen from
            the state too; see ``Frame.towards``. Paper absolute.
        normaliser: ``standard``, ``identity``, ``scaled`` (standard times ``data_scale``) or
            ``paced`` (standard times 1 to ``data_scale``, more for slow dimensions).
        data_scale: size of the data in units of the noise, for ``scaled`` and, at most, ``paced``.
        solver: ``euler`` (paper) or ``midpoint``; in training and by default in sampling.
        train_steps: ODE steps of a bootstrap target. Paper 10.
        eval_steps: ODE steps of a sample. Paper 20.
        policy_steps: midpoint steps in which targets solve the flow of a policy that has one; None,
            as in the paper, solves it as the policy acts (ten Euler steps for GC-BC and HFBC).
        bootstrap_grid: ``scaled`` (step t / train_steps), ``fixed`` (1 / train_steps),
            ``through`` (one path from 0 to 1 that passes t: its end is S+, its velocity at t the
            target) or ``every`` (all train_steps points of such a path are learnt from); see
            ``losses``.
        precision: of the inner layers' products in training, ``fp32`` or ``bf16``; weights,
            optimiser and losses are in fp32 either way.
        unroll: ODE steps per iteration of the compiled loop; ``train_steps`` suits a GPU.
        gamma_min: smallest discount trained. Paper: gamma_min in the text, 0 in Algorithm 1.
        gamma_max: largest discount trained, below 1. Paper 0.996.
        gamma_sampler: law of gamma. Paper uniform.
        curriculum: share of ``gradient_steps`` in which the longest horizon trained grows from 2 to
            that of ``gamma_max``, evenly in its logarithm. Paper 0.
        beta_sampler: law of beta, cut off at the row's gamma, or ``ratio``, horizons 1.5 to 4 times
            shorter than the row's; see ``discounts``. Paper uniform.
        batch_size: rows per gradient step, K. Paper 256.
        hc_fraction: share of rows with horizon consistency; 0 is TD-Flow. Paper 0.25 antmaze, 0.15
            cube.
        uncond_fraction: share of rows with z (and the action) masked. Paper 0.1.
        mask_action: masked rows lose the action as well as z.
        uncond_source: what unconditional rows learn from: ``bootstrap`` (paper), whose fixed point
            redraws the behaviour at every state, or ``trajectory``, the state that the data
            reached at a geometric time; see ``algorithm.trajectory_futures``.
        hindsight: how far targets look ahead along the data, as a share of the row's horizon, where
            the goal is in the row's own future; for policies that imitate the data (GC-BC), see
            ``hindsight``. Paper 0: one step.
        landings: jumps of consistency rows end at the nearest of so many states of the data; with 0
            (paper) where the model says. See ``landing``.
        jumps: when S+ of a consistency row is drawn: ``now``, or ``ahead``, one step before the row
            is learnt from, which halves the evaluations in a row; see ``ahead``.
        use_masks: at true ends of an episode (the data's ``masks``) the process stays where it is:
            the one-step term has the whole weight there; for TD-Flow alone. Paper: no masks.
        reduction: ``sum`` (squared norm, paper) or ``mean`` over state dimensions.
        loss_units: what errors are measured in: ``state``, the model's normalised units (paper), or
            ``frame``, the network's own outputs in a frame that moves. A dimension's weight is then
            the same at every horizon, and near things that hardly move count as much as
            velocities that are forgotten at once; each velocity's best value stays what it is.
        step_power: how much more slow dimensions weigh: squared errors are divided by the data's
            displacement in one step to the power 2 ``step_power``, at every horizon alike. At 1 and
            with ``loss_units="state"`` an error of one step of the way weighs the same in each
            dimension. With ``paced`` units fast dimensions still weigh more, as none is shrunk
            below its standard deviation. Paper 0.
        input_power: the encoder sees dimensions of s and z larger by this power of their gain, so
            that a step of a slow one is not lost among fast ones. Paper 0.
        z_source: ``goals`` (states of the dataset) or ``one_hot`` (a finite set of policies).
        goal_trajectory: share of goals from the row's own future; the rest is random. Paper 0.5.
        goal_discount: of the geometric offset to a trajectory goal. Paper 0.995.
        learning_rate: Adam's. Paper 1e-4.
        final_lr_fraction: learning rate after ``gradient_steps`` over the first one, reached along
            a cosine; 1 keeps it constant. Paper constant.
        adam_eps: Adam's. Paper silent.
        weight_decay: decoupled. Paper 0.
        grad_clip: largest gradient norm, in units of the typical one of the steps before (see
            ``nn.clip``), above 1; 0 for none. Paper none.
        target_rate: share of the online weights that enters the target each step, 1 - zeta. Paper
            5e-4.
        final_target_rate: the same after ``gradient_steps``, reached along a power law; None keeps
            it constant. A fast target renews often, a slow one averages. Paper constant.
        gradient_steps: length of a full run. Paper 3M.
    """

    width: int = 1024
    stages: int = 3
    embed_dim: int = 256
    embed_scale: float = 1000.0
    gamma_embed: GammaEmbed = "gamma"
    skip: Skip = "concat"
    films_per_block: int = 1
    linear_mix: bool = False
    frame: FrameKind = "absolute"
    z_frame: Literal["absolute", "moving"] = "absolute"
    normaliser: NormaliserKind = "standard"
    data_scale: float = 10.0
    solver: Solver = "euler"
    train_steps: int = 10
    eval_steps: int = 20
    policy_steps: int | None = None
    bootstrap_grid: BootstrapGrid = "scaled"
    precision: Precision = "fp32"
    unroll: int = 1
    gamma_min: float = 0.0
    gamma_max: float = 0.996
    gamma_sampler: DiscountLaw = "uniform"
    curriculum: float = 0.0
    beta_sampler: BetaLaw = "uniform"
    batch_size: int = 256
    hc_fraction: float = 0.25
    uncond_fraction: float = 0.1
    mask_action: bool = True
    uncond_source: Literal["bootstrap", "trajectory"] = "bootstrap"
    hindsight: float = 0.0
    landings: int = 0
    jumps: Literal["now", "ahead"] = "now"
    use_masks: bool = False
    reduction: Literal["sum", "mean"] = "sum"
    loss_units: Literal["state", "frame"] = "state"
    step_power: float = 0.0
    input_power: float = 0.0
    z_source: ZSource = "goals"
    goal_trajectory: float = 0.5
    goal_discount: float = 0.995
    learning_rate: float = 1e-4
    final_lr_fraction: float = 1.0
    adam_eps: float = 1e-8
    weight_decay: float = 0.0
    grad_clip: float = 0.0
    target_rate: float = 5e-4
    final_target_rate: float | None = None
    gradient_steps: int = 3_000_000

    def __post_init__(self):
        counts = ("width", "stages", "train_steps", "eval_steps", "unroll", "batch_size")
        for name in (*counts, "gradient_steps"):
            _require(self, name, getattr(self, name) >= 1, "at least 1")
        _require(
            self, "policy_steps", self.policy_steps is None or self.policy_steps >= 1, "at least 1"
        )
        _require(self, "embed_dim", self.embed_dim > 0 and self.embed_dim % 2 == 0, "even, above 0")
        _require(self, "films_per_block", self.films_per_block in (1, 2), "1 or 2")
        _require(self, "gamma_min", 0 <= self.gamma_min < self.gamma_max, "in [0, gamma_max)")
        _require(self, "gamma_max", self.gamma_max < 1, "below 1")
        for name in (
            "hc_fraction",
            "uncond_fraction",
            "goal_trajectory",
            "final_lr_fraction",
            "step_power",
            "input_power",
            "curriculum",
            "hindsight",
        ):
            _require(self, name, 0 <= getattr(self, name) <= 1, "in [0, 1]")
        _require(self, "goal_discount", 0 <= self.goal_discount < 1, "in [0, 1)")
        _require(self, "target_rate", 0 < self.target_rate <= 1, "in (0, 1]")
        final = self.target_rate if self.final_target_rate is None else self.final_target_rate
        _require(self, "final_target_rate", 0 < final <= 1, "in (0, 1]")
        if self.uncond_source == "trajectory" and not self.mask_action:
            raise ConfigError(
                "uncond_source=trajectory: needs mask_action, as nothing is known of "
                "the actions on the way"
            )
        ok = not (self.use_masks and self.uncond_source == "trajectory")
        _require(self, "uncond_source", ok, "bootstrap with use_masks")
        ok = self.jumps == "now" or self.bootstrap_grid not in ("through", "every")
        _require(self, "bootstrap_grid", ok, "scaled or fixed with jumps=ahead")
        ok = self.loss_units == "state" or self.frame != "absolute"
        _require(self, "loss_units", ok, "state with frame=absolute")
        ok = self.hindsight == 0 or (self.z_source == "goals" and not self.use_masks)
        _require(self, "hindsight", ok, "0 with z_source=one_hot or use_masks")
        ok = self.hindsight == 0 or self.uncond_source == "bootstrap"
        _require(self, "uncond_source", ok, "bootstrap with hindsight")
        ok = self.z_frame == "absolute" or self.z_source == "goals"
        _require(self, "z_frame", ok, "absolute with z_source=one_hot")
        for name in ("data_scale", "embed_scale", "learning_rate", "adam_eps"):
            _require(self, name, getattr(self, name) > 0, "above 0")
        for name in ("weight_decay", "landings"):
            _require(self, name, getattr(self, name) >= 0, "at least 0")
        _require(self, "grad_clip", self.grad_clip == 0 or self.grad_clip > 1, "above 1, or 0")
        for field in dataclasses.fields(self):
            choices = get_args(field.type) if get_origin(field.type) is Literal else ()
            allowed = f"one of {', '.join(map(str, choices))}"
            _require(self, field.name, not choices or getattr(self, field.name) in choices, allowed)
        layout = self.layout
        if layout.plain < 0:
            raise ConfigError(
                f"hc_fraction={self.hc_fraction} and uncond_fraction={self.uncond_fraction}: these "
                f"are {layout.hc + layout.unconditional} rows of a batch of {self.batch_size}"
            )

    @property
    def layout(self) -> "BatchLayout":
        """How many rows of a batch are of each kind."""
        hc = _ceil(self.hc_fraction * self.batch_size)
        unconditional = _ceil(self.uncond_fraction * self.batch_size)
        return BatchLayout(hc, self.batch_size - hc - unconditional, unconditional)

    @property
    def times_per_row(self) -> int:
        """Flow times that each row of a batch is learnt at."""
        return self.train_steps if self.bootstrap_grid == "every" else 1

    @classmethod
    def preset(cls, name: Preset, domain: str = "antmaze", **changes) -> "GHMConfig":
        """Return a named configuration, with changes.

        Args:
            name: ``paper``, ``base``, ``small`` or ``debug``.
            domain: domain name or alias; cubes take the paper's smaller consistency share.
            changes: fields to set.
        """
        if name not in _PRESETS:
            raise ConfigError(f"preset {name!r}: must be one of {', '.join(_PRESETS)}")
        share = 0.15 if domain.startswith("cube") else 0.25
        return cls(**{"hc_fraction": share, **_PRESETS[name], **changes})


@dataclass(frozen=True)
class BatchLayout:
    """Rows of a batch, in this order: consistency, plain, unconditional.

    Paper: Algorithm 1 gives the first ceil(K tau_c) rows to horizon consistency; unconditional
    rows do not overlap them. Counts are fixed, so that array shapes are.

    Attributes:
        hc: rows with beta < gamma.
        plain: rows with beta = gamma.
        unconditional: rows with beta = gamma and z (and the action) masked.
    """

    hc: int
    plain: int
    unconditional: int

    @property
    def conditional(self) -> int:
        """Rows that have a z."""
        return self.hc + self.plain


_OURS = {
    "frame": "moving",
    "normaliser": "paced",
    "gamma_sampler": "mixture",
    "beta_sampler": "mixture",
    "train_steps": 5,
}
_PRESETS = {
    "paper": {},
    "base": {
        **_OURS,
        "width": 512,
        "batch_size": 1024,
        "learning_rate": 5e-4,
        "final_lr_fraction": 0.05,
        # Without it a training on cube-2 blew up (``docs/results.md``).
        "grad_clip": 3.0,
        "target_rate": 2e-2,
        "final_target_rate": 5e-3,
        "precision": "bf16",
        "jumps": "ahead",
        "gradient_steps": 60_000,
    },
    "small": {
        **_OURS,
        "width": 128,
        "learning_rate": 1e-3,
        "target_rate": 2e-2,
        "gradient_steps": 25_000,
    },
    "debug": {
        **_OURS,
        "width": 32,
        "stages": 1,
        "embed_dim": 32,
        "train_steps": 3,
        "eval_steps": 4,
        "batch_size": 32,
        "learning_rate": 1e-3,
        "target_rate": 5e-2,
        "gradient_steps": 20,
    },
}


def _ceil(rows: float) -> int:
    # 0.07 * 100 is 7.000000000000001 in floating point; that is seven rows, not eight.
    return math.ceil(rows - 1e-9)


def _require(config: GHMConfig, name: str, ok: bool, what: str) -> None:
    if not ok:
        raise ConfigError(f"{name}={getattr(config, name)}: must be {what}")
