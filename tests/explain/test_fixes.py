"""Fixes of real models and of random graphs: those that are offered work, whatever the policy."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import kvviz
from kvviz import Policy, Trace
from kvviz.fixes.fix import fix_for
from kvviz.graph.model import Graph
from kvviz.trace.index.value_index import index_of
from kvviz.trace.reasons import is_missed
from kvviz.trace.schema.events import IN_PLACE
from tests.engine.graphs import graph_of as parsed
from tests.engine.random_graphs import Example, examples, feeds
from tests.explain.applying import offered, problems
from tests.explain.nested_graphs import nested
from tests.graph.build import FILES, MODELS, file_id

DECODERS = [path for path in FILES if path.stem == "model" and "silero" not in str(path)]
POLICIES = ["ideal", "never", "rten", "onnxruntime"]
calm = [HealthCheck.too_slow, HealthCheck.data_too_large]


@cache
def graph_of(path: Path) -> Graph:
    return kvviz.load(path)


def stored(path: Path, run: int) -> dict[str, np.ndarray]:
    with np.load(path.with_name("ref.npz")) as reference:
        return {key.split(".in.")[1]: reference[key] for key in reference if key.startswith(f"run{run}.in.")}


def decoded(path: Path, tokens: int, length: int = 0, **options: Any) -> Trace:
    """A decode of the stored prompt, which is repeated to a length."""
    with np.load(path.with_name("ref.npz")) as reference:
        prompt = np.resize(reference["prompt"], length or reference["prompt"].shape).tolist()
    given = {name: value for name, value in stored(path, 0).items() if name == "encoder_hidden_states"}
    return kvviz.decode(graph_of(path), prompt, tokens, inputs=given, progress=False, **options)


def of_example(example: Example, policy: str | Policy = "ideal") -> Trace:
    return kvviz.run(kvviz.load(example.model), feeds(example), donate=example.donate, policy=policy)


def of_seed(seed: int, policy: str | Policy = "ideal") -> Trace:
    model, inputs, donate = nested(seed)
    return kvviz.run(kvviz.load(model), {n: a.copy() for n, a in inputs.items()}, donate=donate, policy=policy)


@pytest.mark.parametrize("path", DECODERS, ids=file_id)
@pytest.mark.parametrize("ideal", [True, False])
def test_every_fix_of_a_decode_works(path: Path, ideal: bool) -> None:
    # Other policies in turn, with room and without in turn: each has several models.
    at = DECODERS.index(path)
    policy = "ideal" if ideal else POLICIES[1 + at % 3]
    for capacity in (None, 40) if ideal else (None, 40)[at // 3 % 2 :][:1]:
        trace = decoded(path, 3 if ideal else 2, policy=policy, kv_capacity=capacity)
        assert problems(trace, most=None if ideal else 8) == []


@pytest.mark.parametrize("path", DECODERS, ids=file_id)
def test_every_fix_of_a_stored_run_works(path: Path) -> None:
    # Under another policy than the decode above.
    for number, policy in ((0, "ideal"), (1, "ideal"), (1, POLICIES[1 + (DECODERS.index(path) + 1) % 3])):
        trace = kvviz.run(graph_of(path), stored(path, number), policy=policy)
        assert problems(trace, most=None if policy == "ideal" else 8) == []


@pytest.mark.parametrize("policy", POLICIES)
def test_every_fix_of_an_encoder_works_and_of_a_recurrent_model_in_one_run_and_in_a_stream(policy: str) -> None:
    path, encoder = (MODELS / name for name in ("o08_silero_vad_sequence/model.onnx", "o03_optimum1_merged_whisper"))
    chunks = [{"input": stored(path, run)["input"]} for run in (0, 1)]
    with np.load(encoder / "ref.npz") as reference:
        features = {"input_features": reference["encoder.in.input_features"]}
    for trace in (
        kvviz.run(graph_of(path), stored(path, 1), policy=policy),
        kvviz.stream(graph_of(path), chunks, policy=policy),
        kvviz.run(graph_of(encoder / "encoder.onnx"), features, policy=policy),
    ):
        assert problems(trace) == []


@settings(max_examples=300, derandomize=True, suppress_health_check=calm)
@given(example=examples())
def test_every_fix_of_a_random_graph_works(example: Example) -> None:
    assert problems(of_example(example, "ideal")) == []


@settings(max_examples=120, derandomize=True, suppress_health_check=calm)
@given(example=examples())
def test_every_fix_of_a_random_graph_works_under_other_policies(example: Example) -> None:
    for policy in ("never", "rten", "onnxruntime"):
        assert problems(of_example(example, policy)) == []


@pytest.mark.parametrize("policy", POLICIES)
def test_every_fix_of_bodies_inside_bodies_works(policy: str) -> None:
    kinds: set[str] = set()
    for seed in range(120):
        trace = of_seed(seed, policy)
        assert problems(trace) == [], f"seed {seed}"
        kinds |= {type(change).__name__ for _, _, fix in offered(trace) for change in fix.changes}
    wanted = {
        "ideal": {"RunFirst", "Donate", "Drop"},
        "never": {"UsePolicy"},
        "rten": {"RunFirst", "Swap", "Donate", "Drop"},
        "onnxruntime": {"RunFirst", "Donate"},
    }
    assert wanted[policy] <= kinds


def test_what_ran_in_place_had_nothing_left_to_change() -> None:
    """The reasoning behind fixes, held against the engine's own decisions."""
    checked = 0
    for seed in range(150):
        trace = of_seed(seed, "ideal")
        index = index_of(trace)
        for step, row in enumerate(index.rows):
            if row.taken and row.outs[0] is not None and row.outs[0].how == IN_PLACE:
                assert fix_for(index, step, row.taken[0]) is None
                checked += 1
    assert checked > 200


def test_nothing_is_offered_where_no_fix_could_keep_its_word() -> None:
    # another run would draw other numbers
    text = "g (float[2, 3] x) => (float[2, 3] t, float[2, 3] z) { a = RandomNormalLike(x) t = Relu(a) z = Neg(a) }"
    trace = kvviz.run(parsed(text), {"x": np.ones((2, 3), np.float32)})
    assert any(is_missed(trace, row) for row in trace.log) and offered(trace) == []
    # a constant, which an If hands out
    text = """g (bool c) => (float[2] y) <float[2] k = {1, 2}> {
        a = If (c) <then_branch = t () => (float[2] p) { p = Identity(k) },
                    else_branch = e () => (float[2] q) <float[2] w = {3, 4}> { q = Identity(w) }>
        y = Relu(a) }"""
    assert offered(kvviz.run(parsed(text), {"c": np.array(False)}, policy="never")) == []
    # an input that no op reads lies in the same memory
    text = "g (float[4] x, float[4] w) => (float[4] y) <float[4] w = {1, 2, 3, 4}> { y = Ceil(x) }"
    assert offered(kvviz.run(parsed(text), {"x": BLOCK[:4], "w": BLOCK[2:6]})) == []


LIKE_VIEW = """g (float[2, 3] x) => (float[3, 3] y, float[3, 3] z) <float[1, 3] w = {4, 5, 6},
    float[1, 3] r = {1, 2, 3}, int64[2] s = {2, 3}> {
    v = VIEW y = Concat <axis = 0> (v, w) z = Concat <axis = 0> (x, r) }"""
ONES, BLOCK = np.ones((2, 3), np.float32), np.arange(8, dtype=np.float32)
# A graph, its inputs made anew for each run, and what is donated. Each was offered a fix that did not work.
HARD: dict[str, tuple[str, Callable[[], dict[str, np.ndarray]], list[str]]] = {
    "a vector with gaps": (
        "g (float[4] x) => (float[4] y, float[2, 2] z) <int64[2] s = {2, 2}> { y = Ceil(x) z = Reshape(x, s) }",
        lambda: {"x": BLOCK.copy()[::2]},
        [],
    ),
    "an input in the memory of an output that could be dropped": (
        "g (float[4] a, float[4] b) => (float[4] y, float[4] z) { z = Transpose(b) y = Softmax(a) }",
        lambda: {"a": (block := BLOCK.copy())[:4], "b": block[4:]},
        ["a"],
    ),
    **{
        f"room that an op on a like view takes first: {view}": (
            LIKE_VIEW.replace("VIEW", view),
            lambda: {"x": ONES},
            [],
        )
        for view in ("Cast <to = 1> (x)", "Transpose <perm = [0, 1]> (x)", "Reshape (x, s)")
    },
    "what every iteration gets a copy of": (
        """g (float[2] x) => (float[N] y) <int64 n = {2}, bool go = {1}, float[1] w = {5}> {
        y = Loop (n, go) <body = b (int64 i, bool c) => (bool d, float[M] s) { d = Identity(c)
            s = Concat <axis = 0> (x, w) }> }""",
        lambda: {"x": np.ones(2, np.float32)},
        ["x"],
    ),
    "a single row that is reversed": (
        """g (float[1] x) => (float[2] y)
        <int64[1] m = {-1}, int64[1] e = {-9}, int64[1] z = {0}, float[1] w = {5}> {
        v = Slice (x, m, e, z, m) y = Concat <axis = 0> (v, w) }""",
        lambda: {"x": np.ones(1, np.float32)},
        [],
    ),
    "two ops that append, of which rten runs the other one first once an output is dropped": (
        """g (float[4, p] x) => (float[4, p] s, float[4, q] f, float[4, q] c, float[4, q] y)
        <float[4, 1] w = {1, 2, 3, 4}> {
        s = Softplus (x) c = Concat <axis = 1> (x, w) f = Concat <axis = 1> (x, w) y = Elu (f) }""",
        lambda: {"x": kvviz.reserve(np.ones((4, 4), np.float32), 1, 9)},
        ["x"],
    ),
    "two ops that would both append, and an output that could be dropped": (
        """g (float[p] x, float[1] w) => (float[p] y, float[q] f, float[q] g) {
        y = Neg (x) f = Concat <axis = 0> (x, w) g = Concat <axis = 0> (x, w) }""",
        lambda: {"x": kvviz.reserve(np.ones(3, np.float32), 0, 4), "w": np.ones(1, np.float32)},
        ["x"],
    ),
    "room that an op takes first which reads a reversed input by another name": (
        """g (float[2, 1] x) => (float[3, 1] y, float[3, 1] z) <float[1, 1] w = {4}, float[1, 1] r = {1}> {
        v = Identity(x) y = Concat <axis = 0> (v, w) z = Concat <axis = 0> (x, r) }""",
        lambda: {"x": np.arange(2, dtype=np.float32).reshape(2, 1)[::-1]},
        ["x"],
    ),
    "a block that an input lies in which no op reads": (
        """g (float[2, 3] x, float[2, 3] u) => (float[2, 4] y) <float[2, 3] u = {1, 2, 3, 4, 5, 6},
        float[2, 1] w = {7, 8}> { y = Concat <axis = 1> (x, w) }""",
        lambda: {"x": (block := kvviz.reserve(ONES, 1, 5)), "u": block[:]},
        ["x"],
    ),
    "a body that holds a block by two names": (
        """g (float[4] x, float[4] y, bool c) => (float[4] p, float[4] q, float[4] r) {
        u = Identity (x) r = Identity (y) o, p, q = If (c) <
            then_branch = t () => (float[4] a, float[4] a1, float[4] a2) {
                a = Identity (u) a1 = Identity (a) a2 = Identity (a) },
            else_branch = e () => (float[4] d, float[4] d1, float[4] d2) {
                d = Identity (y) d2 = Identity (x) d1 = Identity (d) }> }""",
        lambda: {"x": (block := np.ones(4, np.float32)), "y": block, "c": np.array(False)},
        ["x", "y"],
    ),
}


@pytest.mark.parametrize("name", HARD)
def test_what_is_offered_for_a_hard_graph_works_under_every_policy(name: str) -> None:
    text, inputs, donate = HARD[name]
    for policy in POLICIES:
        assert problems(kvviz.run(parsed(text), inputs(), donate=donate, policy=policy)) == [], policy


@pytest.mark.parametrize("policy", POLICIES)
def test_no_fix_donates_an_array_whose_rows_are_one(policy: str) -> None:
    # given: an input that a run refuses to be donated; packed it would be viewed by Flatten, and no longer copied
    graph = parsed("""g (float[2, 3] x, float[3] w) => (float[1, 6] f, float[2, 3] n, float[2, 3] y) {
        f = Flatten <axis = 0> (x) n = Neg(x) y = Add (x, w) }""")
    feeds = {"w": np.arange(3, dtype=np.float32), "x": np.broadcast_to(np.ones(3, np.float32), (2, 3))}
    trace = kvviz.run(graph, feeds, policy=policy)
    assert not [fix.label for _, _, fix in offered(trace) if "donate x" in fix.label] and problems(trace) == []


@pytest.mark.parametrize("policy", POLICIES)
def test_no_fix_is_offered_where_inputs_cannot_be_laid_out_again_as_they_were(policy: str) -> None:
    # given: rows in a block of their own that has gaps
    graph = parsed("g (float[2, 3] x) => (float[2, 3] y, float[6] n, float[6] e) <int64[1] m = {-1}> {"
                   "f = Reshape (x, m) n = Neg (f) e = Exp (f) y = Neg (x) }")  # fmt: skip
    x = np.lib.stride_tricks.as_strided(np.arange(9, dtype=np.float32), (2, 3), (20, 4))
    trace, packed = (kvviz.run(graph, {"x": given}, policy=policy) for given in (x, x.copy()))
    assert offered(trace) == [] and problems(packed) == [] and (offered(packed) or policy == "onnxruntime")


@pytest.mark.parametrize("wide", [2, 0])
def test_no_fix_lets_an_op_without_new_rows_take_a_row_that_lies_as_no_new_one_does(wide: int) -> None:
    # given: a single row in a wider block, or at a new axis, which has a step of 0; and one that lies as usual
    graph = parsed("""g (float[1, 3] x) => (float[1, 3] y) <float[0, 3] none = {}> {
        y = Concat <axis = 0> (x, none) }""")
    block = np.arange(3 + wide, dtype=np.float32)
    odd = block.reshape(1, -1)[:, :3] if wide else block[None]
    traces = [kvviz.run(graph, {"x": x}, policy="never") for x in (odd, block[:3].reshape(1, 3).copy())]
    assert [len(offered(trace)) for trace in traces] == [0, 1]
    assert [problems(trace) for trace in traces] == [[], []]


@pytest.mark.parametrize("policy", ["ideal", "never"])
def test_what_a_dropped_output_alone_needs_moves_no_other_reader(policy: str) -> None:
    # given: "If" needs "Exp"; without "f" it does not run, and "Exp" has to be asked for by itself
    graph = parsed("""g (float[2, 3] x, bool c) => (float[2, 3] y, float[2, 3] q, float[2, 3] f) {
        v = Identity (x) u = Identity (x) y = Neg (x) [exp] q = Exp (u)
        f = If (c) <then_branch = t () => (float[2, 3] p) { k = Abs (q) p = Identity (v) },
                    else_branch = e () => (float[2, 3] o) { l = Abs (q) o = Identity (v) }> }""")
    trace = kvviz.run(graph, {"x": np.ones((2, 3), np.float32), "c": np.array(True)}, donate=["x"], policy=policy)
    labels = [fix.label for step, _, fix in offered(trace) if trace.steps[step].op_type == "Neg"]
    assert [label.partition(" and policy")[0] for label in labels] == ["run Exp first and drop output f"]
    assert problems(trace) == []


@pytest.mark.parametrize("policy", ["ideal", "never", "rten"])
def test_no_fix_is_offered_for_what_a_sequence_holds(policy: str) -> None:
    # given: an input that could be donated, were it not an element of a sequence that is handed out
    text = "g (float[64] x) => (float[64] y, {}) {{ s = {} (x) y = Neg(x) }}"
    kinds = [("seq(float[64]) s", "SequenceConstruct"), ("float[64] s", "Abs")]
    held, free = (
        kvviz.run(parsed(text.format(*kind)), {"x": np.ones(64, np.float32)}, policy=policy) for kind in kinds
    )
    assert offered(held) == [] and problems(held) == []
    assert offered(free) and problems(free) == []


@pytest.mark.parametrize("policy", ["ideal", "never"])
@pytest.mark.parametrize("part", ["Identity (s)", "Slice (s, zero, one, zero)", "Reshape (d, one)"])
def test_no_fix_writes_to_what_expand_spread_however_small_the_part(part: str, policy: str) -> None:
    # given: an input that could be donated, and a single element of what it was spread to
    graph = parsed(f"""g (float[1] x) => (float[1] y)
        <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[2] two = {{1, 1}}> {{
        d = Expand (x, two) s = Squeeze (d, zero) v = {part} y = Neg (v) }}""")
    trace = kvviz.run(graph, {"x": np.ones(1, np.float32)}, policy=policy)
    neg = trace.steps[-1]
    assert neg.decision.blockers and neg.decision.dispatch == "run" and problems(trace) == []


@pytest.mark.parametrize("view", ["Reshape (x, s)", "Flatten (x)", "Identity (x)"])
@pytest.mark.parametrize("axis", [0, 1])
def test_no_room_is_offered_whose_gaps_an_op_on_the_way_would_close(view: str, axis: int) -> None:
    text = f"""g (float[2, 3] x) => (float[n, m] y) <float[2, 3] w = {{1, 2, 3, 4, 5, 6}}, int64[2] s = {{2, 3}}> {{
        v = {view} y = Concat <axis = {axis}> (v, w) }}"""
    for policy in ("rten", "ideal", "never"):
        trace = kvviz.run(parsed(text), {"x": np.ones((2, 3), np.float32)}, donate=["x"], policy=policy)
        assert problems(trace) == []
        assert offered(trace) or (policy, axis, view[0]) in {("rten", 1, "R"), ("rten", 1, "F")}


@pytest.mark.parametrize("policy", ["ideal", "never"])
def test_room_behind_a_single_entry_stays_room_though_a_reshape_states_other_strides(policy: str) -> None:
    text = """g (float[1, 2, 1] x) => (float[1, n, 1] y) <int64[3] s = {-1, 2, 1}> {
        v = Reshape (x, s) y = Concat <axis = 1> (v, v) }"""
    trace = kvviz.run(parsed(text), {"x": np.ones((1, 2, 1), np.float32)}, donate=["x"], policy=policy)
    assert offered(trace) and problems(trace) == []
