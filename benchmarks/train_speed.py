"""Time training steps on a GPU: `jumpy bench train` for several batches, and XLA's options.

python benchmarks/train_speed.py --out DIR [--preset paper] [--batches 256 1024]
"""

import argparse
from pathlib import Path

from jumpyworld.cli.bench import BenchTrain


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--batches", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--what", nargs="+", default=["ghm"])
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    a = parser.parse_args()
    BenchTrain(
        a.preset, tuple(a.batches), tuple(a.what), tuple(a.only), a.seconds, a.rounds, a.out
    ).run()


if __name__ == "__main__":
    main()
