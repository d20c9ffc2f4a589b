"""``python -m kvviz``."""

from __future__ import annotations

import sys

from kvviz.cli import main

if __name__ == "__main__":
    sys.exit(main())
