"""kvviz: step through an ONNX graph in a notebook, and see who owns every buffer.

>>> graph = kvviz.load("model.onnx")
>>> trace = kvviz.decode(graph, [5, 17, 33], max_new_tokens=8, kv_capacity=16)
>>> kvviz.debug(graph, prompt=[5, 17, 33])
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kvviz import policies
from kvviz.caches.cache_warnings import cache_warnings
from kvviz.decode.chunk_stream import stream
from kvviz.decode.single_run import run
from kvviz.decode.synthetic_inputs import inputs
from kvviz.decode.token_loop import decode
from kvviz.engine.policy import Policy
from kvviz.errors import KvvizError
from kvviz.explain.compare import Comparison, compare
from kvviz.explain.diagnose import Report, explain
from kvviz.explain.forking import fork
from kvviz.explain.hazards import hazards
from kvviz.graph.load import load
from kvviz.memory import reserve
from kvviz.trace.recording import Trace
from kvviz.version import VERSION

if TYPE_CHECKING:
    from kvviz import device, ggml, lessons
    from kvviz.view import plots as plot
    from kvviz.widget import Debugger, Pair, debug, plan

__version__ = VERSION
__all__ = [
    "Comparison",
    "Debugger",
    "KvvizError",
    "Pair",
    "Policy",
    "Report",
    "Trace",
    "cache_warnings",
    "compare",
    "debug",
    "decode",
    "device",
    "explain",
    "fork",
    "ggml",
    "hazards",
    "inputs",
    "lessons",
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
    "device": "kvviz.device",
    "ggml": "kvviz.ggml",
    "lessons": "kvviz.lessons",
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
