"""The parts of the page that are loaded on demand, packed for a trait or a file."""

from __future__ import annotations

import gzip
import json
import lzma
import re
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path

from kvviz.errors import KvvizError

# The bundle belongs to the widget, a higher layer: only its files are read, nothing is imported.
STATIC = Path(__file__).resolve().parent.parent / "widget" / "static"
_PAGES = frozenset({"kvviz", "planner", "ask", "lesson", "lessonpage", "start"})
# The page's reader knows the bits of context.
_FILTER = {"id": lzma.FILTER_LZMA1, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 1 << 20, "lc": 2, "lp": 0, "pb": 0}
_PART = re.compile(r"/\*! part (\w+) \*/")


def bundled(name: str) -> bytes:
    """A file of the page's bundle. Raises `KvvizError`: if it is missing from the installation."""
    try:
        return (STATIC / name).read_bytes()
    except OSError as error:
        raise KvvizError(f"the page's bundle is missing ({name}): build it with `make widget`") from error


@lru_cache(maxsize=1)
def page_modules() -> bytes:
    """The texts of all parts by name, gzipped: what ``assets/widget/src/modules.ts`` reads in a notebook."""
    texts = {name: bundled(f"{name}.js").decode() for name in _parts()}
    return gzip.compress(json.dumps(texts, ensure_ascii=False).encode(), 9, mtime=0)


@lru_cache(maxsize=8)
def file_modules(page: str, without: frozenset[str] = frozenset()) -> bytes:
    """The texts of a page, its parts and their style sheet: what ``assets/widget/src/filestart.ts`` reads. ``page``:
    the name of the page. ``without``: parts that the file cannot need. Returns the number of bytes of the texts (32
    bits, big endian) and an LZMA stream: between two texts there is a byte 0; the first line of each is its name."""
    names = [page, *([] if page == "planner" else [name for name in _parts() if name not in without])]
    named = {"style": _rules(names)} | {name: bundled(f"{name}.js").decode() for name in names}
    texts = "\0".join(f"{name}\n{text}" for name, text in named.items()).encode()
    return len(texts).to_bytes(4, "big") + lzma.compress(texts, format=lzma.FORMAT_RAW, filters=[_FILTER])


def _parts() -> list[str]:
    return sorted(path.stem for path in STATIC.glob("*.js") if path.stem not in _PAGES)


def _rules(parts: Collection[str]) -> str:
    """The style sheet: the rules that all pages share and those of some parts, but none against a notebook around."""
    shared, *rest = _PART.split(bundled("kvviz.css").decode())
    text = shared + "".join(rules for part, rules in zip(rest[::2], rest[1::2]) if part in {"page", *parts})
    # The guard against the rules of a page around, see assets/widget/build.mjs: a file has no other rules.
    return text.replace(":not(#_)", "")
