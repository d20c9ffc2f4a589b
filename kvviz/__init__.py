"""kvviz: step through an ONNX graph in a notebook, and see who owns every buffer.

>>> graph = kvviz.load("model.onnx")
>>> trace = kvviz.decode(graph, [5, 17, 33], max_new_tokens=8, kv_capacity=16)
>>> kvviz.debug(graph, prompt=[5, 17, 33])
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any
from warnings import warn

from kvviz.other_names import attributes, missing, tables
from kvviz.version import VERSION

if TYPE_CHECKING:
    from kvviz import device, ggml, lessons, policies, shapes
    from kvviz import smollm2 as smollm2
    from kvviz.audit.audit import Audit, audit
    from kvviz.caches.cache_warnings import cache_warnings
    from kvviz.decode.public_runs import decode, dry, run
    from kvviz.decode.run_sessions import stream
    from kvviz.decode.synthetic_inputs import inputs
    from kvviz.engine.policy import Policy
    from kvviz.errors import KvvizError
    from kvviz.fixes.forking import fork
    from kvviz.graph.loading.load import load
    from kvviz.memory import reserve
    from kvviz.report.explain import Report, explain, findings
    from kvviz.report.faces.hazard_table import hazards
    from kvviz.trace.recording import Trace
    from kvviz.verification.verify import verify
    from kvviz.verification.verify_decode import verify_decode
    from kvviz.view.charts import plots as plot
    from kvviz.view.charts.finding_picture import picture
    from kvviz.view.compare import Comparison, compare
    from kvviz.widget import Debugger, Pair, debug, plan

__version__ = VERSION
__all__ = [
    "Audit",
    "Comparison",
    "Debugger",
    "KvvizError",
    "Pair",
    "Policy",
    "Report",
    "Trace",
    "audit",
    "cache_warnings",
    "compare",
    "debug",
    "decode",
    "device",
    "dry",
    "explain",
    "findings",
    "fork",
    "ggml",
    "hazards",
    "inputs",
    "lessons",
    "load",
    "picture",
    "plan",
    "plot",
    "policies",
    "reserve",
    "run",
    "shapes",
    "stream",
    "verify",
    "verify_decode",
]

# Everything is imported on first use: the shell answers at once, and drawing and Jupyter are loaded only if needed.
_LATER = {
    "Audit": "kvviz.audit.audit:Audit",
    "Comparison": "kvviz.view.compare:Comparison",
    "Debugger": "kvviz.widget:Debugger",
    "KvvizError": "kvviz.errors:KvvizError",
    "Pair": "kvviz.widget:Pair",
    "Policy": "kvviz.engine.policy:Policy",
    "Report": "kvviz.report.explain:Report",
    "Trace": "kvviz.trace.recording:Trace",
    "audit": "kvviz.audit.audit:audit",
    "cache_warnings": "kvviz.caches.cache_warnings:cache_warnings",
    "compare": "kvviz.view.compare:compare",
    "debug": "kvviz.widget:debug",
    "decode": "kvviz.decode.public_runs:decode",
    "device": "kvviz.device",
    "dry": "kvviz.decode.public_runs:dry",
    "explain": "kvviz.report.explain:explain",
    "findings": "kvviz.report.explain:findings",
    "fork": "kvviz.fixes.forking:fork",
    "ggml": "kvviz.ggml",
    "hazards": "kvviz.report.faces.hazard_table:hazards",
    "inputs": "kvviz.decode.synthetic_inputs:inputs",
    "lessons": "kvviz.lessons",
    "load": "kvviz.graph.loading.load:load",
    "load_ipython_extension": "kvviz.widget.open_widget:load_ipython_extension",
    "picture": "kvviz.view.charts.finding_picture:picture",
    "plan": "kvviz.widget:plan",
    "plot": "kvviz.view.charts.plots",
    "policies": "kvviz.policies",
    "reserve": "kvviz.memory:reserve",
    "run": "kvviz.decode.public_runs:run",
    "shapes": "kvviz.shapes",
    "smollm2": "kvviz.smollm2",
    "stream": "kvviz.decode.run_sessions:stream",
    "verify": "kvviz.verification.verify:verify",
    "verify_decode": "kvviz.verification.verify_decode:verify_decode",
}
_HIDDEN = {"load_ipython_extension"}


def _submodule(name: str) -> ModuleType:
    try:
        if not name.startswith("_") and name not in attributes("kvviz"):
            return import_module(f"kvviz.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"kvviz.{name}":
            raise
    raise missing("kvviz", name, _LATER)


class _Names(ModuleType):
    """This module. Importing a package inside it must not hide the function of the same name, such as ``decode``, nor
    the error that names the right one, as for ``report``."""

    def __getattr__(self, name: str) -> Any:
        if name not in _LATER:
            return _submodule(name)
        module, _, attribute = _LATER[name].partition(":")
        found = import_module(module)
        found = getattr(found, attribute) if attribute else found
        super().__setattr__(name, found)
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType) and (":" in _LATER.get(name, "") or name in attributes("kvviz")):
            return
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*__all__, *(_LATER.keys() - _HIDDEN), *(name for name in globals() if name.startswith("__"))})


class _Moved(MetaPathFinder, Loader):
    """Modules under their former names."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        moved = tables()["moved"] if name.startswith("kvviz.") else {}
        holds = any(old.startswith(f"{name}.") for old in moved)
        return ModuleSpec(name, self, is_package=holds) if holds or name in moved else None

    def exec_module(self, module: ModuleType) -> None:
        if now := tables()["moved"].get(module.__name__):
            warn(f"{module.__name__} has moved to {now}", DeprecationWarning, stacklevel=2)
            vars(module).update({k: v for k, v in vars(import_module(now)).items() if not k.startswith("__")})


sys.modules[__name__].__class__ = _Names
sys.meta_path.append(_Moved())
