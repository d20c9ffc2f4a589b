"""``python -m tests.faults``."""

from __future__ import annotations

import sys

from tests.faults.command import main

if __name__ == "__main__":
    sys.exit(main())
