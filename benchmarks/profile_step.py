"""Profile one version of the GHM's training step: kernels per step, and where the time goes.

python benchmarks/profile_step.py --out DIR --version bf16 --batch 256
"""

import argparse
import gzip
import json
import time
from collections import Counter
from pathlib import Path

import jax

from jumpyworld.experiments.bench_train import (
    VERSIONS,
    one_step_policy,
    random_dataset,
    version_job,
)
from jumpyworld.ghm import GHMConfig
from jumpyworld.training.chunk import ChunkRunner

STEPS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--version", default="bf16")
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--batch", type=int, default=256)
    a = parser.parse_args()
    version = next(v for v in VERSIONS if v.name == a.version)
    dataset = random_dataset()
    config = GHMConfig.preset(a.preset, batch_size=a.batch)
    job = version_job(version, config, dataset, one_step_policy(dataset, a.preset))
    clock = time.monotonic()
    runner = ChunkRunner(job, (0,))
    carry = runner.start()
    runner.compile(carry)
    print(f"compiled in {time.monotonic() - clock:.0f} s", flush=True)
    carry = jax.block_until_ready(runner.run(carry, 0, STEPS))
    clock = time.monotonic()
    carry = jax.block_until_ready(runner.run(carry, 0, 10 * STEPS))
    print(f"{100 * (time.monotonic() - clock) / STEPS:.3f} ms a step", flush=True)
    folder = a.out.parent / "trace"
    with jax.profiler.trace(str(folder)):
        carry = jax.block_until_ready(runner.run(carry, 0, STEPS))
    path = next(folder.rglob("*.trace.json.gz"))
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    names = {
        e["pid"]: e["args"]["name"]
        for e in events
        if e.get("ph") == "M" and e["name"] == "process_name"
    }
    lanes = {
        (e["pid"], e["tid"]): e["args"]["name"]
        for e in events
        if e.get("ph") == "M" and e["name"] == "thread_name"
    }
    total, count = Counter(), Counter()
    for e in events:
        lane = lanes.get((e.get("pid"), e.get("tid")), "")
        if e.get("ph") == "X" and "GPU" in names.get(e["pid"], "") and "Stream" in lane:
            total[e["name"]] += e["dur"] / STEPS
            count[e["name"]] += 1 / STEPS
    print(f"{sum(count.values()):.0f} kernels a step, busy {sum(total.values()):.0f} us")
    for name, micros in total.most_common(45):
        print(f"{micros:9.1f} us {count[name]:7.1f} x  {name[:100]}")


if __name__ == "__main__":
    main()
