"""``make bench``: what runs take against other runtimes, and how near the policy `rten` is to rten.

Set the number of threads before NumPy is imported; everything that imports it is imported in `main`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit status is 1 only with ``--strict`` and a figure over its limit."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=11, help="rounds of turns on the small models (default: 11)")
    parser.add_argument("--strict", action="store_true", help="fail where a figure is over its limit")
    parser.add_argument("--write", action="store_true", help="keep the ratios in figures.json, to be committed")
    parser.add_argument("--wheels", type=Path, help="the folder that tests.wheels made (default: build/wheels)")
    options = parser.parse_args(arguments)
    for name in THREADS:
        os.environ[name] = "1"
    sys.path.insert(0, str(ROOT))
    from tests.bench.growth import growth_table
    from tests.bench.opening import opening_table
    from tests.bench.real_models import FOLDER, real_models
    from tests.bench.smollm2 import smollm2
    from tests.bench.tables import agreement_table, everything
    from tests.bench.tell import machine, summary

    print(machine(), flush=True)
    rounds = max(options.rounds, 1)
    over = everything(rounds) + smollm2(max(rounds // 3, 3))
    real_models(options.wheels or FOLDER)
    opening_table()
    # In a process of its own: memory that the tables before it left free would hide what a save takes, or add to it.
    subprocess.run([sys.executable, "-m", "tests.bench.long_trace"], cwd=ROOT, check=True)
    over += growth_table() + agreement_table()
    summary(options.write)
    return 1 if options.strict and over else 0


if __name__ == "__main__":
    sys.exit(main())
