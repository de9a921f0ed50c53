"""Make standard sets with all cores and note time, size and what is in them.

    python benchmarks/make_sets.py --out DIR antmaze-medium cube-2 antmaze-large:64

A name may carry a number of episodes. Prints a row for each set and writes ``DIR/sets.jsonl``.
"""

import argparse
import json
import os
import platform
import subprocess
import time
from pathlib import Path

from jumpyworld import data, domains
from jumpyworld.data.summary import summarise
from jumpyworld.domains.generate.runner import Request, generate


def commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "unknown"


def rounded(value):
    """Five digits of every number."""
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    for name in arguments.sets:
        alias, _, episodes = name.partition(":")
        request = Request.make(domains.get(alias), 0, int(episodes) if episodes else None)
        start = time.monotonic()
        path = generate(request, arguments.out / alias, workers=arguments.workers)
        seconds = time.monotonic() - start
        sidecar = json.loads(path.with_suffix(".json").read_text())
        facts = sidecar["files"][path.name]
        row = {
            "kind": "speed",
            "what": "data set",
            "domain": alias,
            "seed": request.seed,
            "transitions": facts["transitions"],
            "seconds": round(seconds, 1),
            "workers": arguments.workers,
            "megabytes": round(facts["bytes"] / 1e6, 1),
            "goals_per_episode": round(facts["goals_reached"] / facts["episodes"], 2),
            "versions": sidecar["versions"],
            "summary": rounded(summarise(data.load(path)).as_dict()),
            "device": f"{platform.machine()} CPU",
            "commit": commit(),
        }
        print({k: v for k, v in row.items() if k not in ("summary", "versions")}, flush=True)
        with (arguments.out / "sets.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
