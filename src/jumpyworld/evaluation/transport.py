"""The earth mover's distance between two samples, exactly, and many of them at once.

For uniform weights and equal sizes an optimal transport plan is an assignment, so POT's network
simplex and SciPy's assignment give the same value; POT is used where it is installed. Two samples
of 2048 states take about a second, and there are hundreds to compare: worker processes share them.
A distance is a function of its two samples alone, whoever computes it.

No JAX backend is started in a worker: the accelerator stays with the parent. (POT imports JAX where
it finds it, and leaves it at that.)

Shapes: n samples, d state dimensions.
"""

import multiprocessing
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Literal

import numpy as np
from jaxtyping import Float

from jumpyworld.domains.generate.parts import exit_with_parent
from jumpyworld.errors import ConfigError, JumpyError
from jumpyworld.machine import available_cores

Solver = Literal["pot", "scipy"]
Sample = Float[np.ndarray, "n d"]
Progress = Callable[[int, int], None]

# POT's own default of 100,000 pivots is not enough for 2048 samples.
MAX_PIVOTS = 10_000_000


def emd(x: Sample, y: Sample, solver: Solver | None = None) -> float:
    """Return the exact earth mover's distance between two equally large samples.

    The ground distance is Euclidean, in the samples' own units.

    Args:
        x: [n, d].
        y: [n, d].
        solver: ``pot`` or ``scipy``; by default POT where it is installed.

    Raises:
        ConfigError: the shapes differ, or a value is not finite.
    """
    # Imported here: POT takes a second, and workers that never get a job should not pay it.
    from scipy.spatial.distance import cdist

    if x.shape != y.shape or x.ndim != 2 or len(x) == 0:
        raise ConfigError(
            f"emd: samples of shapes {x.shape} and {y.shape} must be equal and [n, d]"
        )
    # Differences are squared one by one: |x|^2 + |y|^2 - 2xy loses digits far from the origin.
    cost = cdist(np.asarray(x, np.float64), np.asarray(y, np.float64))
    if not np.isfinite(cost).all():
        raise ConfigError("emd: a sample holds values that are not finite")
    value = None if solver == "scipy" else _pot(cost)
    if value is None and solver == "pot":
        raise ConfigError("emd: POT is not installed, or did not find the optimum")
    return _assignment(cost) if value is None else value


def emds(
    jobs: Sequence[tuple[Sample, Sample]],
    *,
    workers: int | None = None,
    progress: Progress = lambda done, total: None,
) -> Float[np.ndarray, " jobs"]:
    """Return the distance of every pair of samples, in their order.

    Args:
        jobs: pairs of samples [n, d].
        workers: processes; as many as cores by default. One works in this process.
        progress: called with (distances done, all).

    Raises:
        JumpyError: a worker died.
    """
    workers = min(available_cores() if workers is None else workers, len(jobs))
    out = np.empty(len(jobs))
    progress(0, len(jobs))
    if workers <= 1:
        for i, job in enumerate(jobs):
            out[i] = _distance(job)
            progress(i + 1, len(jobs))
        return out
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin)
    try:
        for i, value in enumerate(pool.map(_distance, jobs)):
            out[i] = value
            progress(i + 1, len(jobs))
    except BrokenProcessPool:
        raise JumpyError("a worker process ended unexpectedly (out of memory?)") from None
    finally:
        pool.shutdown(cancel_futures=True)
    return out


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=exit_with_parent, daemon=True).start()


def _distance(job: tuple[Sample, Sample]) -> float:
    return emd(*job)


def _pot(cost: Float[np.ndarray, "n n"]) -> float | None:
    """Return POT's optimum, or None without POT or where it gave up before the optimum."""
    try:
        import ot
    except ImportError:
        return None
    weights = np.full(len(cost), 1.0 / len(cost))
    plan, log = ot.emd(weights, weights, cost, numItermax=MAX_PIVOTS, log=True)
    return None if log["warning"] else float((np.asarray(plan) * cost).sum())


def _assignment(cost: Float[np.ndarray, "n n"]) -> float:
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(cost)
    return float(cost[rows, columns].mean())
