"""The parts of the page that are loaded on demand, packed for a trait or a file."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path

from kvviz.errors import KvvizError

# The bundle belongs to the widget, a higher layer: only its files are read, nothing is imported.
STATIC = Path(__file__).resolve().parent.parent / "widget" / "static"
_PAGES = frozenset({"kvviz", "planner", "ask", "lesson", "lessonpage"})
_PART = re.compile(r"/\*! part (\w+) \*/")


def bundled(name: str) -> bytes:
    """A file of the page's bundle.

    Raises `KvvizError`: if it is missing from the installation.
    """
    try:
        return (STATIC / name).read_bytes()
    except OSError as error:
        raise KvvizError(f"the page's bundle is missing ({name}): build it with `make widget`") from error


@lru_cache(maxsize=8)
def page_modules(page: str = "", without: frozenset[str] = frozenset()) -> bytes:
    """Texts by name, gzipped: what ``assets/widget/src/modules.ts`` reads.

    ``page``: the name of a page; in a file, it and the style sheet are among the texts.
    ``without``: parts that the file cannot need.
    """
    names = sorted(path.stem for path in STATIC.glob("*.js") if path.stem not in _PAGES | without)
    if page == "planner":
        names = []
    texts = {name: bundled(f"{name}.js").decode() for name in ([page] if page else []) + names}
    if page:
        texts["style"] = _rules({page, *names})
    return gzip.compress(json.dumps(texts, ensure_ascii=False).encode(), 9, mtime=0)


def _rules(parts: Collection[str]) -> str:
    """The style sheet, with the rules that all pages share and those of some parts."""
    shared, *rest = _PART.split(bundled("kvviz.css").decode())
    return shared + "".join(rules for part, rules in zip(rest[::2], rest[1::2]) if part in parts)
