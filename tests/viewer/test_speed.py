"""The page answers at once: with a network of the demo's size, on two cores."""

import statistics
import time

import jax
import pytest
from served import HORIZONS, Server

from jumpyworld import domains
from jumpyworld.ghm import GHMConfig
from jumpyworld.ghm.model import GeometricHorizonModel
from jumpyworld.ghm.spec import GHMSpec
from jumpyworld.loading import load_policy
from jumpyworld.viewer.guard import Door
from jumpyworld.viewer.opened import Opened
from jumpyworld.viewer.thinking import Effort

WITHIN_MS = 200


@pytest.mark.slow  # it means something only where nothing else runs
def test_answers_come_within_a_fifth_of_a_second():
    jax.config.update("jax_disable_most_optimizations", False)
    domain = domains.get("pointmaze-medium")
    spec = GHMSpec.blank(domain.observation_dim, domain.action_dim)
    model = GeometricHorizonModel(GHMConfig.preset("small"), spec, key=jax.random.key(0))
    policy = load_policy("scripted:3", domain.name)
    server = Server([Opened("m0", "", domain, policy, model, True)], Effort(), Door(port=0))
    try:
        server.wait("samples", "plans", "painting", "behaviour", seconds=600)
        steer = {"count": 1, "replan_every": 1000, **HORIZONS}
        asked = {
            "plan": lambda seed: server.ask("plan", seed=seed, **HORIZONS),
            "samples": lambda seed: server.ask("samples", source="goal", horizon=50, seed=seed),
            "step": lambda seed: server.ask("step", seed=seed, **steer),
        }
        found, slow = {}, False
        for name, call in asked.items():
            took = []
            for seed in range(20):
                cpu, begin = time.process_time(), time.perf_counter()
                call(seed)
                took.append((1e3 * (time.perf_counter() - begin), time.process_time() - cpu))
            wall, work = (statistics.median(column) for column in zip(*took, strict=True))
            found[name] = f"{wall:.0f} ms, {1e3 * work:.0f} ms of CPU"
            slow |= wall > WITHIN_MS
        assert not slow, found
    finally:
        server.stop()
