"""``python -m kvviz.smollm2``."""

from __future__ import annotations

import sys

from kvviz.smollm2.command import main

if __name__ == "__main__":
    sys.exit(main())
