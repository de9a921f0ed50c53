"""Every policy learns: nearby goals reached in the real pointmaze, after seconds on a CPU.

Starts and goals are states of the validation set, 60 steps apart and at least 3 metres from each
other; a policy gets 120 steps to come within the maze's own tolerance of 1 metre. Random actions
reach none of them. Thresholds are about a third to a half of what was measured (beside them).
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld import data, policies
from jumpyworld.domains import get as get_domain
from jumpyworld.domains.generate import runner

NUM_PAIRS, OFFSET = 60, 60

# name -> (settings besides the small preset's, gradient steps, least share of goals reached), and
# behind it the share that was measured, of 60 goals.
# Three Euler steps of the teacher are enough for the unimodal actions of this maze.
CASES = {
    "gcbc": ({"discount": 0.98}, 3000, 0.3),  # .75
    "hfbc": ({"discount": 0.98}, 3000, 0.35),  # .67
    "crl": ({"flow_steps": 3}, 2000, 0.3),  # .80
    # A weaker distillation than the paper's .1 to .4: see ``gctd3`` on slopes that are too small.
    "gctd3": ({"distill_coefficient": 0.05, "flow_steps": 3}, 3000, 0.3),  # .93
    "gc1s": ({"flow_steps": 3}, 1500, 0.3),  # .77
    "hiql": ({}, 800, 0.4),  # .87
    "sharsa": ({}, 2000, 0.35),  # .75
}


class Maze:
    """The data, and the maze's own physics for many points at once."""

    def __init__(self, folder, quick):
        from ogbench.locomaze.point import PointEnv

        self.domain, self.quick = get_domain("pointmaze-medium"), quick
        path = runner.generate(runner.Request.make(self.domain, 0, 100), folder, workers=2)
        self.train, self.validation = data.load(path), data.load(path, split="val")
        self.device = data.device_data(self.train)
        self.spec = policies.PolicySpec.from_arrays(self.train.observations, self.train.actions)
        self._scene, self._step = self.domain.make_env().unwrapped, PointEnv.step
        self._scene.reset()

    def pairs(self, offset, number, apart):
        rows = np.random.default_rng(0).permutation(self.validation.valid_indices)
        ends = np.repeat(self.validation.ends, self.validation.lengths + 1)
        rows = rows[rows + offset <= ends[rows]]
        s, g = self.validation.observations[rows], self.validation.observations[rows + offset]
        far = np.linalg.norm(s - g, axis=1) >= apart
        return s[far][:number], g[far][:number]

    def reached(self, policy, s, g, steps):
        """The share of goals reached. A point has no memory, so one simulator serves all."""
        s, done = s.copy(), np.zeros(len(s), bool)
        for t in range(steps):
            actions = np.asarray(policy.sample(jax.random.key(t), s, g))
            for i in np.flatnonzero(~done):
                self._scene.data.qpos[:] = s[i]
                self._step(self._scene, actions[i])
                s[i] = self._scene.data.qpos
            done |= np.asarray(self.domain.success(s, g))
        return done.mean()

    def fit(self, name, longer=1):
        settings, steps, _ = CASES[name]
        algorithm = policies.get(name)
        config = algorithm.config.preset(
            "small", "pointmaze-medium", **{"hidden": (64, 64), "batch_size": 128, **settings}
        )

        def loop(state, key, device, number):
            def body(i, state):
                return algorithm.step(state, device, jax.random.fold_in(key, i), config)[0]

            return jax.lax.fori_loop(0, number, body, state)

        # Compilation is most of the time: the start, which runs once, is not optimised at all.
        key = jax.random.key(0)
        state = self.quick(lambda k: algorithm.init(k, config, self.spec))(key)
        train = jax.jit(loop, compiler_options={"xla_backend_optimization_level": 1})
        return algorithm.inference_model(train(state, key, self.device, jnp.int32(longer * steps)))


@pytest.fixture(scope="module")
def maze(tmp_path_factory, quick):
    return Maze(tmp_path_factory.mktemp("pointmaze"), quick)


class RandomPolicy(policies.AbstractPolicy):
    @property
    def observation_dim(self):
        return 2

    @property
    def action_dim(self):
        return 2

    def act(self, key, s, z, temperature):
        return jax.random.uniform(key, (2,), minval=-1.0, maxval=1.0)


def test_the_task_is_neither_trivial_nor_impossible(maze):
    s, g = maze.pairs(OFFSET, NUM_PAIRS, apart=3.0)
    assert maze.reached(RandomPolicy(), s, g, 2 * OFFSET) < 0.05
    script = policies.ScriptedGoalPolicy(maze.domain.grid)
    assert maze.reached(script, s, g, 2 * OFFSET) > 0.95


@pytest.mark.parametrize("name", [name for name in CASES if name != "hfbc"])
def test_learns_to_reach_nearby_goals(maze, name):
    policy = maze.fit(name)
    share = maze.reached(policy, *maze.pairs(OFFSET, NUM_PAIRS, apart=3.0), 2 * OFFSET)
    print("reached", share)
    assert share >= CASES[name][2]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_keeps_what_it_learnt(maze, name):
    """Four times as long: a run that diverges late fails here. Measured: .55 (HFBC) to .95."""
    policy = maze.fit(name, longer=4)
    share = maze.reached(policy, *maze.pairs(OFFSET, NUM_PAIRS, apart=3.0), 2 * OFFSET)
    print("reached", name, share)
    assert share >= 0.4


def test_hfbc_and_its_levels(maze, key):
    policy = maze.fit("hfbc")
    share = maze.reached(policy, *maze.pairs(OFFSET, NUM_PAIRS, apart=3.0), 2 * OFFSET)
    print("reached", share)
    assert share >= CASES["hfbc"][2]
    # The low level alone, asked for what it was trained on: a state one lookahead away.
    low = maze.reached(policy.low, *maze.pairs(25, NUM_PAIRS, apart=1.5), 50)
    print("low", low)
    assert low >= 0.35  # measured: .65
    # Proposals: about a lookahead away, and nearer to a goal that is further than that.
    s, g = maze.pairs(OFFSET, 400, apart=4.0)
    w = policy.propose(key, s, g)
    assert w.shape == s.shape
    nearer = jnp.linalg.norm(w - g, axis=1) < jnp.linalg.norm(s - g, axis=1)
    print("nearer", float(nearer.mean()))
    assert nearer.mean() > 0.75  # measured: .92
    assert 1.0 < float(jnp.median(jnp.linalg.norm(w - s, axis=1))) < 5.5
    assert maze.domain.grid.in_wall(np.asarray(w)).mean() < 0.15
