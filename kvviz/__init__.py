"""kvviz: step through an ONNX graph in a notebook, and see who owns every buffer.

>>> graph = kvviz.load("model.onnx")
>>> trace = kvviz.decode(graph, [5, 17, 33], max_new_tokens=8, kv_capacity=16)
>>> kvviz.debug(graph, prompt=[5, 17, 33])
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kvviz import policies
from kvviz.decode.loop import decode
from kvviz.decode.single import run
from kvviz.decode.stream import stream
from kvviz.decode.synthetic_inputs import inputs
from kvviz.decode.warnings import cache_warnings
from kvviz.engine.policy import Policy
from kvviz.engine.trace import Trace
from kvviz.errors import KvvizError
from kvviz.explain.compare import Comparison, compare
from kvviz.explain.diagnose import Report
from kvviz.explain.fixes import fixer
from kvviz.explain.hazards import hazards
from kvviz.graph.load import load
from kvviz.memory import reserve

if TYPE_CHECKING:
    from kvviz.explain.diagnose import explain
    from kvviz.view import plots as plot
    from kvviz.widget import Debugger, Pair, debug, plan

__version__ = "0.1.0"
__all__ = [
    "Comparison",
    "Debugger",
    "KvvizError",
    "Pair",
    "Policy",
    "Trace",
    "cache_warnings",
    "compare",
    "debug",
    "decode",
    "explain",
    "hazards",
    "inputs",
    "load",
    "plan",
    "plot",
    "policies",
    "reserve",
    "run",
    "stream",
]

# Drawing and Jupyter are imported when they are used first, so that the engine stays light.
_LATER = {
    "plot": "kvviz.view.plots",
    "Debugger": "kvviz.widget:Debugger",
    "Pair": "kvviz.widget:Pair",
    "debug": "kvviz.widget:debug",
    "plan": "kvviz.widget:plan",
    "smollm2": "kvviz.smollm2",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'kvviz' has no attribute {name!r}")
    module, _, attribute = _LATER[name].partition(":")
    found = import_module(module)
    return getattr(found, attribute) if attribute else found


def __dir__() -> list[str]:
    return sorted({*__all__, *_LATER, *(name for name in globals() if name.startswith("__"))})


def _table(trace: Trace, steps: Any = None) -> Any:
    """The steps as a table that prints, shows itself in a notebook, and has ``rows``."""
    from kvviz.view.table import steps_table

    return steps_table(trace, steps)


def _to_html(trace: Trace, path: Any = None) -> str:
    """The debugger over this trace in one file that needs neither a kernel nor a network."""
    from kvviz.view.export import to_html

    return to_html(trace, path)


def _to_perfetto(trace: Trace, path: Any) -> None:
    """Write the trace for Perfetto or chrome://tracing: slices by op, counters for memory and caches."""
    from kvviz.view.perfetto import export_perfetto

    export_perfetto(trace, path)


def _view(name: str) -> Callable[..., Any]:
    """A function of `kvviz.view` as a method; what draws is imported when it is used first."""
    module, _, function = name.partition(":")

    def method(self: Any, *args: Any, **options: Any) -> Any:
        return getattr(import_module(f"kvviz.view.{module}"), function)(self, *args, **options)

    return method


# What holds data knows nothing of the ways to look at it; here is where they become its methods.
for _name, _function in (("table", _table), ("to_html", _to_html), ("to_perfetto", _to_perfetto)):
    setattr(Trace, _name, _function)
for _name, _place in (
    ("__repr__", "compare:comparison_text"),
    ("_repr_html_", "compare:comparison_html"),
    ("table", "compare:comparison_table"),
    ("plot", "compare:plot_comparison"),
):
    setattr(Comparison, _name, _view(_place))
Trace.fixer = staticmethod(fixer)
for _name, _place in (("__repr__", "report:report_text"), ("_repr_html_", "report_html:report_html")):
    setattr(Report, _name, _view(_place))
