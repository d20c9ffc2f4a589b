"""``python -m tests.bench``."""

from __future__ import annotations

import sys

from tests.bench.bench import main

if __name__ == "__main__":
    sys.exit(main())
