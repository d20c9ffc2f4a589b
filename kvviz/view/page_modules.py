"""The parts of the page that are loaded on demand, packed for a trait or a file."""

from __future__ import annotations

import gzip
import json
from functools import lru_cache
from pathlib import Path

from kvviz.errors import KvvizError

# The bundle belongs to the widget, a higher layer: only its files are read, nothing is imported.
STATIC = Path(__file__).resolve().parent.parent / "widget" / "static"
_PAGES = frozenset({"kvviz", "planner", "ask"})


def bundled(name: str) -> bytes:
    """A file of the page's bundle.

    Raises `KvvizError`: if it is missing from the installation.
    """
    try:
        return (STATIC / name).read_bytes()
    except OSError as error:
        raise KvvizError(f"the page's bundle is missing ({name}): build it with `make widget`") from error


@lru_cache(maxsize=1)
def page_modules() -> bytes:
    """Texts by name, gzipped: what ``assets/widget/src/modules.ts`` reads."""
    names = sorted(path.stem for path in STATIC.glob("*.js") if path.stem not in _PAGES)
    texts = {name: bundled(f"{name}.js").decode() for name in names}
    return gzip.compress(json.dumps(texts).encode(), 9, mtime=0)
