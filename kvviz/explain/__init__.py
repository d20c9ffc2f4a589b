"""What a trace means: reasons, fixes, costs, comparisons. ``kvviz.explain(trace)`` is the report of all of it."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Explain(ModuleType):
    """This package, which can also be called."""

    def __call__(self, trace: Any) -> Any:
        """The report on a trace; see `kvviz.explain.diagnose.explain`."""
        from kvviz.explain.diagnose import explain

        return explain(trace)


sys.modules[__name__].__class__ = _Explain
