"""What people type by instinct, and what it is called here.

One table for attributes and one for arguments: a name of another library is answered with the right one. A third one
has modules that lessons or the README named and that have moved: they can be imported for one more release.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_MEMORY = {"peak": "peak_bytes", "peak_memory": "peak_bytes", "memory": "peak_bytes", "copied": "bytes_copied"}
_MEMORY |= {"written": "bytes_written", "allocated": "bytes_allocated"}

ATTRIBUTES: dict[str, dict[str, str]] = {
    "kvviz": {
        "generate": "kvviz.decode",
        "open": "kvviz.load (a model) or kvviz.Trace.load (a saved trace)",
        "load_trace": "kvviz.Trace.load",
        "show": "kvviz.debug",
        "visualize": "kvviz.debug",
        "report": "kvviz.explain",
        "diagnose": "kvviz.explain",
        "profile": "kvviz.run or kvviz.decode",
        "warnings": "kvviz.cache_warnings",
    },
    "Trace": {
        **_MEMORY,
        **dict.fromkeys(("nodes", "ops", "events", "log_rows"), "steps"),
        **dict.fromkeys(("df", "to_df", "to_dataframe", "dataframe"), "to_pandas()"),
        **dict.fromkeys(("show", "debug", "view", "display"), "kvviz.debug(trace)"),
        **dict.fromkeys(("filter", "query", "search", "select"), "find(query)"),
        **dict.fromkeys(("write", "dump", "to_file"), "save(path)"),
        "to_json": "explain().to_dict()",
        "output": "outputs",
        "token": "tokens",
        "text": "words",
        "cache": "caches",
        "buffers": "storages",
        "report": "explain()",
        "missed": "explain().missed",
        "verdict": "explain().verdict",
        "findings": "kvviz.findings(trace)",
        "hazards": "kvviz.hazards(trace)",
        "warnings": "kvviz.cache_warnings(trace)",
        "cache_warnings": "kvviz.cache_warnings(trace)",
        "fork": "kvviz.fork(trace, …)",
        "plot": "kvviz.plot.memory(trace)",
        "html": "to_html(path)",
        "to_dot": "to_graphviz()",
    },
    "Graph": {
        **dict.fromkeys(("run", "forward", "execute"), "kvviz.run(graph, inputs)"),
        **dict.fromkeys(("decode", "generate"), "kvviz.decode(graph, prompt)"),
        **dict.fromkeys(("initializers", "initializer", "parameters", "params"), "weights"),
        **dict.fromkeys(("debug", "show", "view"), "kvviz.debug(graph, prompt=… or inputs=…)"),
        **dict.fromkeys(("ops", "node", "operators"), "nodes"),
        **dict.fromkeys(("to_dot", "dot", "plot", "draw"), "to_graphviz()"),
        "input": "inputs",
        "output": "outputs",
        "opset": "opsets",
        "tokenizer": "companions.tokenizer",
    },
    "Step": {
        "name": "node",
        "op": "op_type",
        "type": "op_type",
        "kind": "op_type",
        "in_place": "decision.dispatch, or .how of each of outs",
        "blockers": "decision.blockers",
        "reasons": "decision.blockers",
        "dispatch": "decision.dispatch",
        "shares": "decision.shares",
        "storage": "outs[0].storage",
        "shape": "outs[0].shape",
        "dtype": "outs[0].dtype",
        "bytes": "allocated, copied or written",
        "bytes_copied": "copied",
        "bytes_written": "written",
        "bytes_allocated": "allocated",
        "live": "live_bytes",
        "attributes": "graph_node.attributes",
        "value": "trace.value(name, step.index)",
    },
    "Cache": {
        "capacity": "runs[-1].capacity",
        "valid": "runs[-1].valid",
        "length": "runs[-1].valid",
        "bytes_copied": "runs[i].bytes_copied",
        "bytes_written": "runs[i].bytes_written",
        "kind": "protocol",
    },
    "Report": {
        **dict.fromkeys(("save", "write", "to_json"), "to_dict()"),
        "fixes": "missed[i].fix",
        "blockers": "missed[i].blockers",
    },
}
"""By the name of a class, or ``kvviz`` itself: what is tried, and what to write."""

ARGUMENTS: dict[str, str] = {
    **dict.fromkeys(("max_tokens", "max_length", "num_tokens", "n_tokens", "new_tokens", "steps"), "max_new_tokens"),
    **dict.fromkeys(("feeds", "feed", "feed_dict", "input_feed", "arguments"), "inputs"),
    **dict.fromkeys(("output_names", "fetches", "output"), "outputs"),
    **dict.fromkeys(("capacity", "max_cache_len", "cache_capacity", "kv_cache_size"), "kv_capacity"),
    **dict.fromkeys(("donated", "donate_argnums", "donate_inputs"), "donate"),
    **dict.fromkeys(("eos_token_id", "eos", "stop"), "stop_tokens"),
    **dict.fromkeys(("text", "tokens", "input_ids", "prompt_tokens"), "prompt"),
    **dict.fromkeys(("runtime", "backend", "provider"), "policy"),
    **dict.fromkeys(("verbose", "progress_bar"), "progress"),
    **dict.fromkeys(("dimensions", "shapes"), "dims"),
    **dict.fromkeys(("model", "session"), "graph"),
}
"""What is tried, and the argument that is meant, in all public functions that have it."""

MOVED: dict[str, str] = {
    "kvviz.decode.heat": "kvviz.caches.cache_heat",
    "kvviz.engine.bound": "kvviz.engine.sessions.io_binding",
    "kvviz.engine.io_binding": "kvviz.engine.sessions.io_binding",
    "kvviz.engine.plans.plan": "kvviz.engine.plan",
    "kvviz.engine.plans.policy": "kvviz.engine.policy",
    "kvviz.engine.rten.quirks": "kvviz.runtimes.rten.rten_operators",
    "kvviz.engine.schedules": "kvviz.runtimes.schedules",
    "kvviz.explain.compare": "kvviz.view.compare",
    "kvviz.graph.caches.cache_pairs": "kvviz.graph.cache_pairs",
    "kvviz.runtimes.named_schedules": "kvviz.runtimes.named_policies",
    "kvviz.runtimes.policy_data": "kvviz.runtimes.named_policies",
    "kvviz.runtimes.rten.quirks": "kvviz.runtimes.rten.rten_operators",
    "kvviz.trace.producer.writer": "kvviz.trace.writer",
    "kvviz.trace.run_labels": "kvviz.trace.units",
    "kvviz.view.hazard_picture": "kvviz.view.drawing.hazard_picture",
}
"""Where a module was, and where it is now."""


def missing(owner: str, name: str, known: Iterable[str]) -> AttributeError:
    """The error for an attribute that a class (or kvviz itself) does not have, with the name that is meant."""
    what = "module 'kvviz'" if owner == "kvviz" else f"{owner!r} object"
    said = f"{what} has no attribute {name!r}"
    if meant := ATTRIBUTES.get(owner, {}).get(name):
        return AttributeError(f"{said}; use {meant}")
    close = [] if name.startswith("_") else get_close_matches(name, [k for k in known if not k.startswith("_")], 1)
    return AttributeError(f"{said}; did you mean {close[0]!r}?" if close else said)


def not_there(thing: Any, name: str) -> Any:
    """What ``__getattr__`` of a class in the table does: raise the error that names the right attribute."""
    kind = type(thing)
    if hasattr(kind, name):
        # A property that failed: its own error, which Python has dropped by now.
        return object.__getattribute__(thing, name)
    raise missing(kind.__name__, name, dir(thing))


def with_other_names(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function: an argument that it does not have is answered with the one that is meant."""
    parameters = inspect.signature(function).parameters
    takes_more = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())

    @wraps(function)
    def called(*arguments: P.args, **options: P.kwargs) -> R:
        for name in options:
            if name not in parameters and (not takes_more or name in ARGUMENTS):
                raise TypeError(_no_argument(function.__name__, name, parameters, takes_more))
        return function(*arguments, **options)

    return called


def _no_argument(function: str, name: str, known: Iterable[str], takes_more: bool) -> str:
    said = f"kvviz.{function} has no argument {name}="
    meant = ARGUMENTS.get(name, "")
    if meant in known or (meant and takes_more):
        return f"{said}; it is {meant}="
    close = get_close_matches(name, known, 1)
    return f"{said}; did you mean {close[0]}=?" if close else f"{said}; it has {', '.join(known)}"
