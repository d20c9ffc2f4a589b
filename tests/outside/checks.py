"""One case through everything: each policy against onnxruntime, and what kvviz says against what it did."""

import traceback
from collections import Counter
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import helper

import kvviz
from tests.ort_session import session_of
from tests.outside import books, readers
from tests.outside.generator import Case, case
from tests.outside.scopes import Seq, tensor_type

POLICIES = ("ideal", "never", "rten", "onnxruntime")
LOOSE = {"float32": 2e-3, "float64": 2e-3, "float16": 3e-2}


class Judge:
    """onnxruntime on a model whose every value is an output."""

    def __init__(self, case: Case) -> None:
        model = onnx.ModelProto()
        model.CopyFrom(case.model)
        self.values = case.values
        told = {out.name for out in model.graph.output}
        for name, value in case.values.items():
            of_many = isinstance(value, Seq)
            make = helper.make_tensor_sequence_value_info if of_many else helper.make_tensor_value_info
            if name not in told:
                model.graph.output.append(make(name, tensor_type(value.dtype), None))
        self.session = session_of(model)
        self.names = [out.name for out in model.graph.output]

    def run(self, feeds: dict[str, np.ndarray]) -> dict[str, Any]:
        plain = {name: np.array(value, order="C", subok=False) for name, value in feeds.items()}
        return dict(zip(self.names, self.session.run(None, plain)))

    def compare(self, what: str, have: Any, want: Any, name: str) -> list[str]:
        """What is wrong with a result; floats may differ by rounding where the order of sums is free."""
        if isinstance(want, list):
            if not isinstance(have, (list, tuple)) or len(have) != len(want):
                return [f"{what}: {have!r} is not a sequence like {want!r}"]
            pairs = enumerate(zip(have, want))
            return [line for i, (a, b) in pairs for line in self.compare(f"{what}[{i}]", a, b, name)]
        if not isinstance(have, np.ndarray):
            return [f"{what} is a {type(have).__name__}"]
        if (have.dtype, have.shape) != (want.dtype, want.shape):
            return [f"{what}: {have.dtype}{list(have.shape)}, onnxruntime {want.dtype}{list(want.shape)}"]
        value = self.values.get(name)
        loose = 0.0 if value is None or value.exact or have.dtype.kind != "f" else LOOSE[str(have.dtype)]
        if have.dtype.kind == "f" and have.size:
            with np.errstate(all="ignore"):
                finite = want[np.isfinite(want)]
                scale = float(np.abs(finite).max(initial=1.0))
                if np.allclose(have.astype(float), want.astype(float), loose, loose * scale, equal_nan=True):
                    return []
        elif np.array_equal(have, want):
            return []
        return [f"{what}: {np.ravel(have)[:8]}, onnxruntime {np.ravel(want)[:8]} (exact: {not loose})"]


def check(number: int, count: Counter[str], html: bool = False) -> list[str]:
    one = case(number)
    try:
        judge = Judge(one)
        first = judge.run(one.feeds()[0])
    except Exception as error:
        count["refused by onnxruntime"] += 1
        count[f"  {type(error).__name__}"] += 1
        return []
    count["graphs"] += 1
    wrong: list[str] = []
    try:
        graph = kvviz.load(one.model)
    except Exception:
        return [f"load: {_short()}"]
    told: dict[str, Any] = {}
    for policy in POLICIES:
        try:
            wrong += [f"{policy}: {line}" for line in _policy(one, graph, judge, first, policy, told, count, html)]
        except Exception:
            wrong.append(f"{policy}: {_short()}")
    return wrong


def _short() -> str:
    lines = traceback.format_exc(limit=-4).splitlines()
    return "\n".join(line for line in lines[1:] if "^" not in line)


def _run(one: Case, graph: Any, policy: str, feeds: dict[str, np.ndarray], **more: Any) -> Any:
    donate = [name for name in one.donate if feeds[name].flags.writeable]
    return kvviz.run(graph, feeds, outputs=one.outputs, donate=donate, policy=policy, **more)


def _policy(
    one: Case, graph: Any, judge: Judge, first: Any, policy: str, told: dict[str, Any], count: Counter[str], html: bool
) -> list[str]:
    r = Random(one.seed)
    feeds, guards = one.feeds()
    layout = {name: np.lib.array_utils.byte_bounds(a) and a for name, a in feeds.items()}
    trace = _run(one, graph, policy, feeds)
    count[f"runs, {policy}"] += 1
    count["steps"] += len(trace.steps)
    wrong = _guards(guards)
    given = {name: np.array(value) for name, value in one.feeds()[0].items()}
    for name, have in trace.outputs.items():
        wrong += judge.compare(name, have, first.get(name, given.get(name)), name)
        # rten overwrites strided data where it lies, and a product's last bit hangs on how far apart the rows are.
        exact = policy != "rten" or all(np.asarray(value).flags.c_contiguous for value in feeds.values())
        if exact and name in told and not readers.same(have, told[name]):
            wrong.append(f"{name} has other bits than under {POLICIES[0]}")
        told.setdefault(name, [a.copy() for a in have] if isinstance(have, list) else np.array(have))
    if set(trace.outputs) != set(one.outputs or [o.name for o in one.model.graph.output]):
        wrong.append(f"outputs are {list(trace.outputs)}")
    wrong += books.problems(trace)
    wrong += readers.report(trace, r, 2)
    wrong += readers.hazard_pairs(trace, layout)
    wrong += readers.file(trace, html)
    if policy in ("ideal", "rten"):
        known = {n: v for n, v in first.items() if n in one.values and isinstance(v, np.ndarray)}
        if known:
            wrong += readers.values(trace, known, r, lambda what, have, n: judge.compare(what, have, known[n], n))
    feeds, guards = one.feeds()
    poisoned = _run(one, graph, policy, feeds, poison=True)
    wrong += [f"poisoned: {line}" for line in _guards(guards)]
    for name, have in poisoned.outputs.items():
        if not readers.same(have, trace.outputs[name]):
            wrong.append(f"{name} has other bits when poisoned")
    if one.next_feeds:
        wrong += _chain(one, graph, judge, policy, poisoned, count)
    return wrong


def _guards(guards: list[Any]) -> list[str]:
    wrong = []
    for what, array, copy, mask in guards:
        same = array.tobytes() == copy.tobytes() if mask is None else np.array_equal(array[mask], copy[mask])
        if not same:
            wrong.append(f"{what} has changed")
    return wrong


def _chain(one: Case, graph: Any, judge: Judge, policy: str, trace: Any, count: Counter[str]) -> list[str]:
    wrong = []
    for turn in range(1, 4):
        feeds, guards = one.feeds()
        for name, output in one.next_feeds.items():
            feeds[name] = trace.outputs[output]
            if not feeds[name].flags.writeable:
                feeds[name] = feeds[name].copy()
        given = {f"borrowed {name}" for name in one.next_feeds}
        guards = [g for g in guards if g[0] not in given]
        donate = [n for n in feeds if (n in one.donate or n in one.next_feeds) and feeds[n].flags.writeable]
        if any(_may_overflow(value) for value in feeds.values()):
            # ONNX says nothing of sums that do not fit: onnxruntime's ReduceSum stops at the largest one, NumPy wraps.
            break
        want = judge.run(feeds)
        kept = {name: np.array(feeds[name]) for name in feeds}
        trace = kvviz.run(graph, feeds, donate=donate, policy=policy, poison=True)
        count["chained runs"] += 1
        wrong += [f"turn {turn}: {line}" for line in [*_guards(guards), *books.problems(trace)]]
        for name, have in trace.outputs.items():
            wrong += judge.compare(f"turn {turn}: {name}", have, want.get(name, kept.get(name)), name)
    return wrong


def _may_overflow(value: Any) -> bool:
    array = np.asarray(value)
    if array.dtype.kind not in "iu" or array.dtype.itemsize < 4 or not array.size:
        return False
    return int(np.abs(array.astype(np.float64)).max()) > np.iinfo(array.dtype).max >> 8
