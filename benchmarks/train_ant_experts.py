"""Train several ant experts side by side, one process and one core each, and compare them.

    python benchmarks/train_ant_experts.py --seeds 14 --minutes 8 --out DIR

Writes ``DIR/seed<N>.safetensors`` and ``DIR/seed<N>.json`` (settings, curve, final measurements)
and prints a table. Final measurements use starts and directions that training never saw.
"""

import argparse
import json
import multiprocessing
import os
from dataclasses import asdict
from pathlib import Path

NOISE = 0.2


def limit_to_one_thread(core: int | None) -> None:
    """Keep this process to one thread; only works before JAX and NumPy are imported."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    if core is not None:
        os.sched_setaffinity(0, {core})


def train(seed: int, minutes: float, out: Path, core: int | None, overrides: dict) -> None:
    limit_to_one_thread(core)
    from jumpyworld.domains.generate.ant_expert import AntExpert, save_expert
    from jumpyworld.domains.generate.ant_runner import measure_expert
    from jumpyworld.domains.generate.sac import SACConfig, train_expert

    def progress(entry: dict) -> None:
        line = f"seed {seed}: {entry['wall_s']:.0f} s, {entry['env_steps']} steps"
        print(
            f"{line}, {entry['speed']:.2f} m/s, {entry['falls']} falls, {entry['flips']} flips",
            flush=True,
        )

    config = SACConfig(**overrides)
    weights, curve = train_expert(config, seed=seed, minutes=minutes, progress=progress)
    expert = AntExpert(weights)
    # A seed outside the 32 bits that training derives its own from.
    final = {
        name: asdict(measure_expert(expert, num_envs=32, noise=noise, seed=2**40))
        for name, noise in (("clean", 0.0), ("noisy", NOISE))
    }
    steps = curve[-1]["env_steps"]
    notes = {"seed": seed, "env_steps": steps, "config": asdict(config), "measured": final}
    save_expert(out / f"seed{seed}.safetensors", weights, notes)
    report = {**notes, "minutes": minutes, "curve": curve}
    (out / f"seed{seed}.json").write_text(json.dumps(report, indent=1))


def table(out: Path, seeds: list[int]) -> str:
    rows = [f"seed   steps    m/s  m/s at noise {NOISE}  falls  flips  falls, flips at noise"]
    for seed in seeds:
        path = out / f"seed{seed}.json"
        if not path.exists():
            rows.append(f"{seed:4d}  failed")
            continue
        report = json.loads(path.read_text())
        a, b = report["measured"]["clean"], report["measured"]["noisy"]
        rows.append(
            f"{seed:4d} {report['env_steps']:7d}  {a['speed']:5.3f}  {b['speed']:16.3f}  "
            f"{a['falls']:5d}  {a['flips']:5d}  {b['falls']:11d}, {b['flips']}"
        )
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=4, help="number of experts")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=8.0, help="training time of each")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=NUMBER")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    overrides = {name: json.loads(value) for name, value in (s.split("=") for s in args.set)}
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    seeds = list(range(args.first_seed, args.first_seed + args.seeds))
    spawn = multiprocessing.get_context("spawn")
    jobs = []
    for i, seed in enumerate(seeds):
        # Pinning pays when every expert has a core; else the scheduler knows better.
        core = cores[i] if 1 < len(seeds) <= len(cores) else None
        (args.out / f"seed{seed}.json").unlink(missing_ok=True)
        jobs.append(
            spawn.Process(target=train, args=(seed, args.minutes, args.out, core, overrides))
        )
        jobs[-1].start()
    for job in jobs:
        job.join()
    print(table(args.out, seeds))


if __name__ == "__main__":
    main()
