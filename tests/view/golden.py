"""Golden states: what Python says at some cursors of ten traces, for the page's tests to say after it.

``python -m tests.view.golden`` (``make golden``) writes them anew to ``assets/widget/test/golden``, beside the payloads
that they belong to and the tables of codes. Drawings are left out: they depend on the Graphviz that is installed.
"""

import gzip
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import kvviz
from kvviz.debugger import Breakpoint, Cursor
from kvviz.debugger.state import frame_id_after, frontier_after, node_states
from kvviz.decode.token_loop import DecodeSession
from kvviz.explain.sentences import ended, rule, sentence
from kvviz.explain.summary import distinct
from kvviz.graph.model import Graph
from kvviz.query.grammar import DECISIONS, header
from kvviz.runtimes.named_policies import planning_events
from kvviz.trace.index.value_index import index_of
from kvviz.trace.reasons import placed_before
from kvviz.trace.schema.events import HOW
from kvviz.view.charts.heat_cells import STATES
from kvviz.view.drawing.around_step import Around
from kvviz.view.page_data.packed_columns import Columns, Strings, pack, unpack
from kvviz.view.page_data.payload import CODES, Payloads
from kvviz.view.page_data.payload_cache_rows import METERS, cache_payload
from kvviz.view.page_data.payload_plan import plan_payload
from tests.engine.graphs import graph_of
from tests.test_models import ROOT, VAD, reference
from tests.trace.recordings import copy_into_view, two_lanes

FOLDER = Path(__file__).resolve().parents[2] / "assets" / "widget" / "test" / "golden"
CURSORS = 120
"""Of each trace."""

BODIES = """agraph (float[4] x, float[3,4] rows, bool flag) =>
    (float[4] y, float[4] last, float[3,4] all, float[2] half) {
    trips = Constant <value_int = 3> ()
    on = Constant <value = bool {1}> ()
    two = Constant <value_int = 2> ()
    one = Constant <value_int = 1> ()
    base = Relu (x)
    [loop] looped = Loop (trips, on, base) <body = turn (int64 i, bool c, float[4] acc) => (bool go, float[4] next) {
        go = Identity (c)
        more = Add (acc, base)
        [inner] next = If (flag) <
            then_branch = yes () => (float[4] a) { t = Neg (more) a = Abs (t) },
            else_branch = no () => (float[4] b) { b = Exp (more) }>
    }>
    [scan] last, all = Scan <num_scan_inputs = 1, body = row (float[4] s, float[4] r) => (float[4] t, float[4] u) {
        t = Add (s, r)
        u = Mul (t, r)
    }> (looped, rows)
    parts = SplitToSequence <axis = 0> (looped, two)
    half = SequenceAt (parts, one)
    [called] y = local.twice (looped)
}
<domain: "local", opset_import: ["" : 21]> twice (v) => (w) { d = Add (v, v) w = Tanh (d) }"""


def model_of(name: str) -> Graph:
    """A model that has not run: the tables of a log are in another order after that."""
    return kvviz.load(ROOT / name / "model.onnx")


def _decoded(name: str, prompt: Sequence[int], count: int, **options: Any) -> kvviz.Trace:
    return kvviz.decode(model_of(name), list(prompt), count, progress=False, **options)


def _whisper() -> kvviz.Trace:
    states = reference("o03_optimum1_merged_whisper")["encoder.out.last_hidden_state"]
    inputs = {"encoder_hidden_states": states}
    return _decoded("o03_optimum1_merged_whisper", [3, 9], 2, inputs=inputs, policy="rten")


def _voice() -> kvviz.Trace:
    given = {key: value for key, value in reference(VAD).items() if key.startswith("run0.in.")}
    inputs = {key.removeprefix("run0.in."): value for key, value in given.items()}
    return kvviz.run(model_of(VAD), inputs, policy="onnxruntime")


def _called() -> kvviz.Trace:
    """Ops that rten calls in place: one has no room and copies, one is broadcast, one overwrites its input."""
    graph = graph_of(
        "agraph (float[1,p,8] past, float[1,1,8] more) => (float[1,q,8] present, float[1,5,8] wide, float[1,1,8] low) {"
        "five = Constant <value_ints = [1, 5, 8]> () present = Concat <axis = 1> (past, more)"
        "up = Exp (more) wide = Expand (up, five) down = Sqrt (more) low = Neg (down)}"
    )
    inputs = {"past": np.ones((1, 5, 8), np.float32), "more": np.ones((1, 1, 8), np.float32)}
    return kvviz.run(graph, inputs, donate=["past"], policy="rten")


def _bodies() -> kvviz.Trace:
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    inputs = {"x": np.ones(4, np.float32), "rows": rows, "flag": np.array(True)}
    return kvviz.run(graph_of(BODIES), inputs, donate=["x"])


def stopped_halfway() -> kvviz.Trace:
    """A decode that was stopped in the middle of its second run, and can go on."""
    session = DecodeSession(model_of("storyteller/attention_24"), [1, 5, 9], max_new_tokens=3)
    for _ in range(75):
        session.advance()
    session.look_ahead()
    return session.trace


TRACES: dict[str, Callable[[], kvviz.Trace]] = {
    "growing": lambda: _decoded("o01_optimum_llama", [5, 17, 33], 2),
    "appended": lambda: _decoded("storyteller/attention_23", [1, 5, 9], 3, kv_capacity=16, policy="onnxruntime"),
    "static": lambda: _decoded("o04_dynamo_static_llama_op18", [5, 17, 33], 3, policy="rten"),
    "functions": lambda: _decoded("o06_mobius_static_llama_op24", [5, 17, 33], 3, policy="onnxruntime"),
    "branches": lambda: _decoded("o02_optimum1_merged_gpt2", [5, 17, 33], 2),
    "crossed": _whisper,
    "voice": _voice,
    "quantized": lambda: _decoded("o07_genai_llama_int4", [5, 17, 33], 3, policy="rten"),
    "long": lambda: _decoded("storyteller/gqa", [1, 5, 9], 30, detail=range(3, 29, 5)),
    "called": _called,
    "bodies": _bodies,
    "halfway": stopped_halfway,
    "arena": copy_into_view,
    "device": two_lanes,
}


def files(traces: Mapping[str, Callable[[], kvviz.Trace]] = TRACES) -> Iterator[tuple[str, Any]]:
    """Names of all golden files, and what is in them: bytes of a payload, or a value for JSON."""
    yield (
        "codes.json",
        {"codes": CODES, "query": header(), "states": STATES, "meters": [meter._asdict() for meter in METERS]},
    )
    for name, make in traces.items():
        trace = make()
        told = Payloads(trace)
        yield f"{name}.payload", _undrawn(told.encode())
        yield f"{name}.json.gz", _states(trace, told.kept)
        if name == "static":
            yield "caches.payload", cache_payload(trace)
    yield from _plan()


def _undrawn(payload: bytes) -> bytes:
    header, arrays = unpack(payload)
    columns, strings = Columns(), Strings()
    for name in header.pop("columns"):
        if name not in ("text.of", "number.added"):
            columns.arrays[name] = ("d" if arrays[name].dtype == np.float64 else "i", arrays[name])
    for text in header["strings"]:
        strings(text)
    return pack({**header, "strings": strings.table(columns), "drawings": []}, columns, 9)


def _states(trace: Any, kept: Sequence[int]) -> dict[str, Any]:
    place = {step: at for at, step in enumerate(kept)}
    moves = len(kept) == len(trace.steps) and trace.live is None
    at = _cursors(trace, kept)
    return {
        "states": [_state(trace, step, place.get(step, -1), moves) for step in at],
        "stops": [[b.kind, b.value, _stops(trace, b, kept)] for b in _breakpoints(trace, kept)],
    }


def _cursors(trace: Any, kept: Sequence[int]) -> list[int]:
    """Both ends, ends of runs, where a frame begins or ends, and others at random, always the same."""
    frames = [trace.steps[step].frame_id for step in kept]
    turns = [kept[i] for i in range(len(kept) - 1) if frames[i] != frames[i + 1]]
    choose = random.Random(len(kept))
    found = {-1, kept[0], kept[-1], *choose.sample(turns, min(len(turns), CURSORS // 2))}
    rest = [step for step in kept if step not in found]
    # Where steps are left out, what comes next is not told.
    found.update(choose.sample(rest, min(len(rest), CURSORS - len(found))))
    return sorted(found)


def _state(trace: Any, step: int, place: int, moves: bool) -> dict[str, Any]:
    frames = trace.frames
    present = frame_id_after(trace, step)
    stack: list[int] = []
    at = present
    while at is not None:
        stack.insert(0, at)
        at = frames[at].parent
    told: dict[str, Any] = {
        "step": step,
        "cursor": place,
        "frames": [list(frames[f].path)[-1:] or ["main"] for f in stack],
        "frontier": [node.name for node in frontier_after(trace, step)],
        "places": [_places(trace, f, step) for f in stack],
    }
    if trace.live is not None and step == len(trace.steps) - 1:
        told["costs"] = [list(cost) for cost in trace.live.costs] or [[None, 0] for _ in trace.live.frontier]
    if step >= 0:
        told["nodes"] = node_states(trace, step)
        told["live"] = _live(trace, step)
        told["decision"] = _decision(trace, step)
    if moves:
        told["moves"] = {name: _moved(trace, step, name) for name in ("over", "into", "out", "back")}
    return told


def _places(trace: Any, frame: int, step: int) -> list[list[Any]]:
    """Of all values of a frame that are no weights: name, storage, generation, how."""
    graph = trace.frames[frame].graph
    names = dict.fromkeys(v.name for v in (*graph.inputs, *graph.outputs))
    names |= dict.fromkeys(
        name for node in graph.nodes for name in (*node.inputs, *node.outputs, *node.captures) if name
    )
    found = []
    for name in names:
        where = placed_before(trace, frame, name, step)
        if where is not None and where.how != "weight":
            how = where.how if isinstance(where.how, str) else HOW[where.how]
            found.append([name, where.storage, where.generation, how])
    return found


def _live(trace: Any, step: int) -> list[int]:
    """Storages that were alive while a step ran."""
    index = index_of(trace)
    moment = index.moment(step)
    return sorted({life.storage for life in index.lives if life.first <= moment <= life.last})


def _decision(trace: Any, index: int) -> dict[str, Any]:
    step = trace.steps[index]
    blockers = distinct(step.decision.blockers)
    return {
        "node": step.node,
        "op": step.graph_node.qualified_op,
        "dispatch": step.decision.dispatch,
        "outcome": "done" if step.outcome == "new" else step.outcome,
        "ended": ended(step),
        "taken": sorted({step.inputs.index(name) for name in step.decision.taken}),
        "outs": [[o.name, o.storage, o.generation, o.how, o.offset, o.nbytes] for o in step.outs],
        # What outlived the step, and died in a run whose steps were not kept, is told of none.
        "freed": [storage for storage in step.freed if storage not in trace.log.later],
        "bytes": [step.live_bytes, step.allocated, step.copied, step.written],
        "blockers": [[b.code.value, b.position, b.culprit, b.message, b.bytes] for b in blockers],
        "sentence": sentence(step, trace),
        "rule": rule(step) if trace.policy.decides else "",
        "hidden": Around(trace, step).hidden(),
    }


def _moved(trace: Any, step: int, move: str) -> int | None:
    """Where a move of the headless debugger leads; None: the recording ends before it does."""
    cursor = Cursor(trace)
    cursor.position = step
    stop = getattr(cursor, move)()
    return None if stop.reason == "end" else stop.position


def _breakpoints(trace: Any, kept: Sequence[int]) -> Iterator[Breakpoint]:
    step = trace.steps[kept[len(kept) // 2]]
    yield Breakpoint("op", step.op_type)
    yield Breakpoint("op", step.op_type.lower())
    yield Breakpoint("op", step.graph_node.qualified_op)
    yield Breakpoint("node", step.node)
    yield Breakpoint("node", step.node.upper())
    for out in step.outs:
        yield Breakpoint("buffer", out.storage)
    for decision in DECISIONS:
        yield Breakpoint("decision", decision)


def _stops(trace: Any, point: Breakpoint, kept: Sequence[int]) -> list[int]:
    return [at for at, step in enumerate(kept) if point.matches(trace, step)]


def _plan() -> Iterator[tuple[str, Any]]:
    graph = model_of("o06_mobius_static_llama_op24")
    events = planning_events(graph, policy="rten")
    yield "plan.payload", _undrawn(plan_payload(graph, events, {"name": "rten", "about": ""}))
    yield (
        "plan.json.gz",
        [
            {
                "phase": event.phase,
                "action": event.action,
                "node": event.node and event.node.name,
                "frontier": [node.name for node in event.frontier],
                "ready": [node.name for node in event.ready],
            }
            for event in events
        ],
    )


def as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def read(name: str) -> Any:
    """What a golden file holds: a payload's header and columns, or a value."""
    data = (FOLDER / name).read_bytes()
    if name.endswith(".payload"):
        return contents(data)
    return json.loads(gzip.decompress(data) if name.endswith(".gz") else data)


def contents(payload: bytes) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """Header and columns, to compare: the same bytes may be packed in other ways."""
    header, columns = unpack(payload)
    return header, {name: column.tolist() for name, column in columns.items()}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.iterdir():
        old.unlink()
    for name, value in files():
        data = value
        if not isinstance(value, bytes):
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
            data = gzip.compress(text, 9, mtime=0) if name.endswith(".gz") else text + b"\n"
        (FOLDER / name).write_bytes(data)
        print(f"{name} {len(data) / 1000:.1f} kB")


if __name__ == "__main__":
    main()
