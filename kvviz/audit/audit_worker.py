"""One worker's task for one model: path and options in, plain data out.

Invariant: only `KeyboardInterrupt` and `SystemExit` leave `audit_one`; every other error is a row.
"""

from __future__ import annotations

import base64
import ctypes
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx

from kvviz.audit.budget import figures_of
from kvviz.audit.model_files import local_model
from kvviz.decode.model_kind import model_kind
from kvviz.decode.public_runs import decode, dry, run
from kvviz.decode.synthetic_inputs import generated
from kvviz.errors import KvvizError
from kvviz.graph.loading.load import load
from kvviz.graph.loading.tensors import Weights
from kvviz.graph.model import Graph, fingerprint
from kvviz.report.explain import explain
from kvviz.report.faces.report_data import finding_key
from kvviz.report.finding import Finding
from kvviz.shapes import preset
from kvviz.trace.recording import Trace
from kvviz.trace.units import size
from kvviz.version import VERSION
from kvviz.view.export import lanes_to_html

SHAPES = "shapes:"  # begins the name of a graph from `kvviz.shapes`, such as "shapes:llama-3-8b?form=gqa&layers=2"
_CURVE = 80  # points of the curve of live bytes
DEFAULTS: dict[str, Any] = {
    "policies": ("ideal", "onnxruntime"),
    "dry": "auto",
    "prompt_tokens": 8,
    "max_new_tokens": 4,
    "memory": 1_000_000_000,
    "timeout": 300.0,
    "fixes": False,
    "page": False,
}
"""The options of a worker; see `kvviz.audit`."""


class TimeLimitError(BaseException):
    """The time for a model is over. No handler of `Exception` in a kernel catches it as a failed op."""


def audit_one(path: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Run one model under every policy. ``path``: a file, any URL that fsspec reads, or ``shapes:`` with the name of a
    preset. ``options``: those of `DEFAULTS` that differ. Returns the fields of `kvviz.audit.audit.AuditRow` without
    ``name``, as plain JSON data."""
    options, begun = {**DEFAULTS, **options}, time.perf_counter()
    row: dict[str, Any] = {"path": path, "state": "done", "error": "", "kvviz": VERSION, "onnx": onnx.__version__}
    try:
        with time_limit(options["timeout"]):
            row |= _figures(path, options)
    except TimeLimitError:
        row |= {"state": "time limit", "error": f"not done after {options['timeout']:g} s"}
    except (KvvizError, OSError, MemoryError) as error:
        row |= {"state": "failed", "error": str(error) or type(error).__name__}
    except Exception as error:
        row |= {"state": "failed", "error": f"{type(error).__name__}: {error}"}
    return {**row, "seconds": round(time.perf_counter() - begun, 3)}


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise `TimeLimitError` in this thread after so many seconds. It works in any thread on any system, and takes
    effect between two bytecodes of Python: a kernel within NumPy is finished first."""
    if not seconds:
        yield
        return
    thread, lock, done = ctypes.c_ulong(threading.get_ident()), threading.Lock(), False

    def stop() -> None:
        with lock:
            if not done:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(TimeLimitError))

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        with lock:
            done = True
        timer.cancel()


def _figures(path: str, options: Mapping[str, Any]) -> dict[str, Any]:
    with local_model(path) as local:
        graph = load_model(local)
        trace_of, stays_dry, need = _runner(graph, options)
        traces = {policy: trace_of(policy) for policy in options["policies"]}
        if any(trace.interrupted for trace in traces.values()):
            raise KeyboardInterrupt  # a part of a run is no row
        found = {policy: _result(trace, options["fixes"]) for policy, trace in traces.items()}
        for trace in traces.values():
            trace.title = title_of(path)
        page = lanes_to_html(traces) if options["page"] else ""
        return {
            "kind": model_kind(graph).name,
            "fingerprint": fingerprint(graph),
            "nodes": len(graph.nodes),
            "need": need,
            "dry": stays_dry,
            "policies": found,
            "traces": {policy: _packed(trace) for policy, trace in traces.items()},
            "page": page,
        }


def title_of(path: str) -> str:
    """The folder and the name of a model: many files are called model.onnx."""
    return path if path.startswith(SHAPES) else "/".join(Path(path).parts[-2:])


def load_model(path: str) -> Graph:
    if not path.startswith(SHAPES):
        return load(path)
    name, _, rest = path.removeprefix(SHAPES).partition("?")
    pairs = (pair.partition("=") for pair in rest.split("&") if pair)
    sizes: dict[str, Any] = {key: int(value) if value.isdecimal() else value for key, _, value in pairs}
    return preset(name, **sizes)


def _runner(graph: Graph, options: Mapping[str, Any]) -> tuple[Callable[[str], Trace], str, int | None]:
    """A function that runs the graph under a policy, why it stays dry (empty: it does not), and the bytes that a run
    needs. A dry run comes first, because it determines the need before any weight is read."""
    weights = cast(Weights, graph.weights)  # a loaded graph has no others
    decodes, tokens, more = model_kind(graph).decodes, options["prompt_tokens"], options["max_new_tokens"]
    lengths = {"prompt_tokens": tokens, "max_new_tokens": more} if decodes else {}

    def dry_run(policy: str) -> Trace:
        return dry(graph, policy=policy, **lengths)

    def real_run(policy: str) -> Trace:
        inputs = generated(graph, {}, {}, decoding=int(decodes))
        if not decodes:
            return run(graph, inputs, policy=policy)
        return decode(graph, [1] * tokens, more, inputs, policy, stop_tokens=(), progress=False)

    asked, most, need = options["dry"], options["memory"], None
    if asked is True:
        return dry_run, "asked for", None
    if asked == "auto":
        try:
            need = dry_run(options["policies"][0]).peak_bytes
        except KvvizError:  # lengths or branches depend on data: only a real run knows them
            need = sum(map(weights.nbytes, weights))
            if need > most:
                raise
        if need > most:
            return dry_run, f"a run needs {size(need)}, more than the {size(most)} of a worker", need
        if not all(map(weights.has_contents, weights)):
            return dry_run, "it was made from its shapes and has no weights", need
    return real_run, "", need


def _result(trace: Trace, fixes: bool) -> dict[str, Any]:
    report, live = explain(trace), np.asarray(trace.log.column("live"), float)
    parts = np.array_split(live, min(_CURVE, max(len(live), 1)))
    return {
        "figures": figures_of(report),
        "curve": [int(part.max(initial=0)) for part in parts],
        "findings": [_finding(one, fixes) for one in report.findings if not one.calm and one.kind != "peak"],
    }


def _finding(one: Finding, fixes: bool) -> dict[str, Any]:
    node = one.selection[1] if one.selection is not None else ""
    names = ("kind", "title", "where", "example", "bytes", "steps", "step", "scope", "query")
    facts = {name: getattr(one, name) for name in names}
    return {**facts, "reasons": list(one.reasons), "key": finding_key(one), "node": node} | (
        {"fix": one.change} if fixes else {}
    )


def _packed(trace: Trace) -> str:
    file = BytesIO()
    trace.save(file)
    return base64.b64encode(file.getvalue()).decode()
