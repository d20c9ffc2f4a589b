"""What a model reads and writes as text, and optional packages, with a clear error if one is missing."""

from __future__ import annotations

import importlib
from typing import Any

from kvviz.errors import KvvizError


def needed(module: str, extra: str = "text") -> Any:
    """Import a package that an extra of kvviz installs, or, if ``extra`` is empty, one that no extra installs."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        what = f"'kvviz[{extra}]'" if extra else module
        raise KvvizError(f"{error.name} is not installed; get it with: pip install {what}") from None
