"""What generating data costs beside stepping the bare environment with the same actions.

    python benchmarks/generate_speed.py --seconds 20 --out results/generate-speed.jsonl

Episodes are made and replayed in turn, in one process, from the same reset with the same actions:
the replay is exact, so both sides see the same contacts, and the same machine. Times are the
process's own processor time; writing each episode's part counts as generating. Prints a table,
appends JSON rows; the exit status is the number of domains over their limit.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np

from jumpyworld import domains
from jumpyworld.domains.generate.episodes import episode_generator, episode_maker
from jumpyworld.storage.files import atomic_file

LIMITS = {"pointmaze": 1.3, "antmaze": 1.15, "cube": 1.15}


def measure(domain, *, seconds: float, steps: int = 1001) -> dict:
    """Return generating and bare times of alternating episodes, for about ``seconds``."""
    maker = episode_maker(domain, steps, domain.collection.noise)
    made, bare = [], []
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        index = -1  # the first episode warms caches and compiles the scene; it does not count
        while len(made) < 3 or time.monotonic() - start < seconds:
            clock = time.process_time()
            episode = maker(episode_generator(0, "train", index + 1))
            with atomic_file(Path(folder) / "part", durable=False) as file:
                np.savez(file, **asdict(episode))
            generating = time.process_time() - clock
            maker.reset(episode_generator(0, "train", index + 1))
            step = maker.env.step
            clock = time.process_time()
            for action in episode.actions:
                observation = step(action)[0]
            stepping = time.process_time() - clock
            assert np.isfinite(observation).all()
            if index >= 0:
                made.append(generating)
                bare.append(stepping)
            index += 1
    ratios = np.array(made) / np.array(bare)
    resampled = np.random.default_rng(0).choice(ratios, (2000, len(ratios)))
    low, high = np.quantile(np.median(resampled, axis=1), [0.025, 0.975])
    return {
        "kind": "speed",
        "what": "generate",
        "domain": domain.alias,
        "episodes": len(made),
        "steps_per_second": round(steps / float(np.median(made))),
        "bare_steps_per_second": round(steps / float(np.median(bare))),
        "ratio": round(float(np.median(ratios)), 3),
        "ci95": [round(float(low), 3), round(float(high), 3)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20, help="per domain")
    parser.add_argument("--domains", nargs="*", default=[d.alias for d in domains.DOMAINS])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    facts = {
        "device": f"{platform.machine()} CPU, one core",
        "commit": commit.stdout.strip() or "unknown",
        "config": {"steps": 1001, "clock": "processor time"},
    }
    over = 0
    for alias in arguments.domains:
        row = measure(domains.get(alias), seconds=arguments.seconds) | facts
        limit = LIMITS[alias.split("-")[0]]
        over += row["ratio"] > limit
        print(
            f"{alias:18} {row['steps_per_second']:7d} steps/s"
            f"  bare {row['bare_steps_per_second']:7d}  ratio {row['ratio']:.3f} {row['ci95']}"
            f"  limit {limit}  n={row['episodes']}",
            flush=True,
        )
        if arguments.out:
            arguments.out.parent.mkdir(parents=True, exist_ok=True)
            with arguments.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
    sys.exit(over)


if __name__ == "__main__":
    main()
