"""Many real environments, stepped together by worker processes.

One call of ``step`` sends an action to every environment and returns when all have moved, so that a
policy or planner is asked once per control step for all of them. States and actions live in memory
that the processes share; what goes through pipes is a few bytes of text. A worker is given its
domain as it starts, so that any will do and not only those in the registry. Workers import no JAX,
unless a domain's own module does, and end with their parent.

An environment whose episode is over is no longer stepped: its row keeps its last observation, so
that shapes never change and nothing recompiles.

Shapes: E environments, d state, da action dimensions.
"""

import contextlib
import json
import multiprocessing
import signal
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from jumpyworld.domains import Domain
from jumpyworld.domains.generate.parts import exit_with_parent
from jumpyworld.errors import ConfigError, JumpyError, check_whole
from jumpyworld.machine import available_cores

_SPAWN = multiprocessing.get_context("spawn")


class Lockstep:
    """Environments of one domain; use as a context manager.

    Attributes:
        observations: current states, float32 [E, d]; a copy is returned by ``reset`` and ``step``.
        num_envs: E.
    """

    def __init__(
        self,
        domain: Domain,
        num_envs: int,
        *,
        workers: int | None = None,
        terminate_at_goal: bool = True,
    ):
        """Start the workers.

        Args:
            domain: what to simulate; of a class that another process can import.
            num_envs: E.
            workers: processes; as many as cores by default, never more than environments.
            terminate_at_goal: end an episode at its first success, as in evaluation.

        Raises:
            ConfigError: a number is out of range, or the domain cannot be handed to a process.
        """
        check_whole("num_envs", num_envs, 1)
        workers = available_cores() if workers is None else workers
        check_whole("workers", workers, 1)
        workers = min(num_envs, workers)
        self.num_envs = num_envs
        shapes = {
            "observations": (num_envs, domain.observation_dim),
            "actions": (num_envs, domain.action_dim),
            "goals": (num_envs, domain.observation_dim),
            "success": (num_envs, 1),
        }
        self._memory = {key: _SPAWN.RawArray("f", int(np.prod(s))) for key, s in shapes.items()}
        self._arrays = _views(self._memory, shapes)
        self._pipes: list[Connection] = []
        self._processes = []
        for rows in np.array_split(np.arange(num_envs), workers):
            ours, theirs = _SPAWN.Pipe()
            arguments = (theirs, domain, self._memory, shapes, rows, terminate_at_goal)
            process = _SPAWN.Process(target=_work, args=arguments, daemon=True)
            _start(process, domain)
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def reset(self, episodes: Sequence[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
        """Start an episode in every environment.

        Args:
            episodes: for each environment ``seed`` and, as they apply, ``task`` (1 to 5) or a
                stored simulator state as lists ``qpos`` and ``qvel``.

        Returns:
            Observations and goal observations, float32 [E, d] each.
        """
        if len(episodes) != self.num_envs:
            raise ConfigError(f"{len(episodes)} episodes for {self.num_envs} environments")
        shares = np.array_split(np.arange(self.num_envs), len(self._pipes))
        texts = [json.dumps([episodes[i] for i in share]) for share in shares]
        self._command([f"reset {text}" for text in texts])
        return self._arrays["observations"].copy(), self._arrays["goals"].copy()

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Take one control step in every environment whose episode goes on.

        Args:
            actions: [E, da]; those beyond the bounds of the environment's box are clipped to it,
                rows of finished episodes are ignored.

        Returns:
            Observations float32 [E, d], and whether the last step of each succeeded, bool [E].
        """
        self._arrays["actions"][:] = actions
        self._command(["step"] * len(self._pipes))
        return self._arrays["observations"].copy(), self._arrays["success"][:, 0] > 0

    def _command(self, texts: list[str]) -> None:
        try:
            for pipe, text in zip(self._pipes, texts, strict=True):
                pipe.send_bytes(text.encode())
            answers = [pipe.recv_bytes().decode() for pipe in self._pipes]
        except (EOFError, OSError):
            raise JumpyError(
                "a worker process ended unexpectedly (out of memory, a script without "
                '`if __name__ == "__main__"`, or a domain whose class it cannot import?)'
            ) from None
        for answer in answers:
            if answer != "done":
                raise JumpyError(f"an environment failed: {answer}")

    def close(self) -> None:
        """End the workers."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join()

    def __enter__(self) -> "Lockstep":
        return self

    def __exit__(self, *_) -> None:
        self.close()


def _start(process: Any, domain: Domain) -> None:
    try:
        process.start()
    except OSError:
        raise
    except Exception as error:  # of many kinds: whatever the first part of it raises that is stuck
        raise ConfigError(
            f"{domain.alias}: cannot be handed to a worker process ({error}); its class has to "
            "stand at the top of a module, and its fields be plain values"
        ) from error


def _views(memory: dict[str, Any], shapes: dict[str, tuple[int, int]]) -> dict[str, np.ndarray]:
    return {k: np.frombuffer(memory[k], np.float32).reshape(s) for k, s in shapes.items()}


def _work(pipe, domain: Domain, memory, shapes, rows, terminate_at_goal: bool) -> None:
    """Serve commands until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=exit_with_parent, daemon=True).start()
    arrays = _views(memory, shapes)
    try:
        envs = [domain.make_env(0, terminate_at_goal=terminate_at_goal) for _ in rows]
        bounds = [_bounds(env) for env in envs]
    except Exception as error:  # told to the parent as soon as it asks for something
        with contextlib.suppress(EOFError, OSError):
            pipe.recv_bytes()
            pipe.send_bytes(_said(error))
        return
    running = [False] * len(envs)

    def reset(i: int, episode: dict) -> None:
        row, env = rows[i], envs[i]
        options = {"task_id": episode["task"]} if "task" in episode else None
        observation, info = env.reset(seed=episode["seed"], options=options)
        arrays["goals"][row] = info["goal"]
        if "qpos" in episode:
            from jumpyworld.domains.envs import set_state  # here: it needs OGBench, and we may not

            set_state(env, episode["qpos"], episode["qvel"])
            observation = domain.observe(env)
        arrays["observations"][row] = observation
        arrays["success"][row] = 0.0
        running[i] = True

    def step(i: int) -> None:
        row = rows[i]
        # Some environments take any action: a point that moves by it would jump over walls.
        action = np.clip(arrays["actions"][row], *bounds[i])
        observation, _, terminated, _, info = envs[i].step(action)
        arrays["observations"][row] = observation
        arrays["success"][row] = float(info["success"])
        running[i] = not terminated

    # A parent that closes its end, perhaps before the answer, wants nothing more.
    with contextlib.suppress(EOFError, OSError):
        _serve(pipe, reset, step, running)


def _bounds(env: Any) -> tuple[Any, Any]:
    """Return the least and the largest action; infinite where the space is no box."""
    space = env.action_space
    low, high = getattr(space, "low", None), getattr(space, "high", None)
    return (-np.inf, np.inf) if low is None or high is None else (low, high)


def _serve(pipe, reset, step, running: list[bool]) -> None:
    while True:
        verb, _, text = pipe.recv_bytes().decode().partition(" ")
        answer = b"done"
        try:
            if verb == "reset":
                for i, episode in enumerate(json.loads(text)):
                    reset(i, episode)
            else:
                for i in range(len(running)):
                    if running[i]:
                        step(i)
        except Exception as error:  # told to the parent, which raises it there
            answer = _said(error)
        pipe.send_bytes(answer)


def _said(error: Exception) -> bytes:
    """Return an error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split()).encode()
