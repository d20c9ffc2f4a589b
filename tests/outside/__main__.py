"""Check many models: ``python -m tests.outside --count 5000 --seed 1``."""

import argparse
import sys
import time
import traceback
from collections import Counter

from tests.outside.checks import check


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.outside", description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="so many models")
    parser.add_argument("--seed", type=int, default=0, help="the models of this seed; each has numbers of its own")
    parser.add_argument("--only", type=int, help="the model of this number only")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so much time")
    options = parser.parse_args()
    start, count, bad = time.monotonic(), Counter[str](), 0
    first = options.seed * 1_000_000
    for number in [options.only] if options.only is not None else range(first, first + options.count):
        if time.monotonic() - start > options.seconds:
            break
        try:
            wrong = check(number, count, html=number % 50 == 0)
        except Exception:
            wrong = [traceback.format_exc()]
        bad += bool(wrong)
        if wrong:
            print(f"--- {number}", *wrong[:6], sep="\n", flush=True)
    print(f"{bad} bad;", ", ".join(f"{what.strip()} {n:,}" for what, n in count.items()))
    print(f"{time.monotonic() - start:.0f} s")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
