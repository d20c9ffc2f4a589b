"""A dry run decides over layouts alone, and says what the real run says."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

import kvviz
from kvviz.decode.run_sessions import SingleRun
from kvviz.errors import KvvizError, UnknownValueError
from kvviz.memory.ghosts import ghost, is_ghost, with_room
from tests.engine.dry_and_real import assert_agree
from tests.engine.graphs import graph_of
from tests.engine.random_graphs import Example, examples, feeds
from tests.engine.untouchable import POLICIES, cases, without_contents

ROOT = Path(__file__).resolve().parents[2]
EXPORTS = ["o01_optimum_llama", "o02_optimum1_merged_gpt2", "o04_dynamo_static_llama_op18", "o07_genai_llama_int4"]
# Operators whose outputs are as long as their numbers say, and those that run as functions over sequences.
DATA_DECIDES = {"Compress", "MaxUnpool", "NonMaxSuppression", "NonZero", "Resize", "SequenceMap", "Unique", "Upsample"}


def ghosts_of(example: Example) -> dict[str, np.ndarray]:
    """What `feeds` gives, without contents."""
    given = {name: ghost(array.shape, array.dtype) for name, array in example.inputs.items()}
    for name in example.grow:
        given[name] = with_room(given[name], 0, len(given[name]) + 7)
    for name, array in given.items():
        array.flags.writeable = name in example.donate
    return given


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(examples())
def test_every_figure_of_a_random_graph_follows_from_layouts(example: Example) -> None:
    graph = kvviz.load(example.model)
    for policy in POLICIES:
        real = kvviz.run(graph, feeds(example), donate=example.donate, policy=policy)
        dry = SingleRun(graph, ghosts_of(example), None, example.donate, policy, dry={}).run_to_end()
        assert_agree(dry, real)


# What makes a length, a branch or an iteration of the number ``sum``.
HANGS_ON_DATA = {
    "length": "n = Cast <to = 7> (sum) [hangs] m = ConstantOfShape(n)",
    "shape": "n = Cast <to = 7> (sum) [hangs] m = Expand(flat, n)",
    "range": "n = Squeeze(sum) o = Sub(n, n) [hangs] m = Range(o, n, n)",
    "choice": "n = Cast <to = 9> (flat) [hangs] m = NonZero(n)",
    "selection": "n = Cast <to = 9> (sum) [hangs] m = Compress <axis = 0> (flat, n)",
    "branch": """n = Cast <to = 9> (sum)
        [hangs] m = If (n) <then_branch = a () => (float[k] r) { r = Neg(flat) },
                            else_branch = b () => (float[k] r) { r = Abs(flat) }>""",
}


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(examples(), st.sampled_from(sorted(HANGS_ON_DATA)), st.sampled_from(POLICIES))
def test_random_graphs_whose_shapes_hang_on_data_are_refused_by_the_name_of_a_node(
    example: Example, kind: str, policy: str
) -> None:
    text = f"h (float x0) => (float m) {{ flat = Reshape(x0, end) sum = ReduceSum(flat) {HANGS_ON_DATA[kind]} }}"
    model = onnx.ModelProto.FromString(example.model.SerializeToString())
    model.graph.node.extend(onnx.parser.parse_graph(text).node)
    model.graph.initializer.append(numpy_helper.from_array(np.array([-1]), "end"))
    model.graph.output.append(onnx.ValueInfoProto(name="m"))
    with pytest.raises(UnknownValueError, match=r"node 'hangs' "):
        SingleRun(kvviz.load(model), ghosts_of(example), None, example.donate, policy, dry={}).run_to_end()


def test_a_slice_that_a_body_takes_out_of_its_own_copy_lies_where_it_does_in_the_real_run() -> None:
    """A Loop of rten gives each iteration a copy of what it captures, which may be sliced in place."""
    text = """g (float[2,3] x, float[2,3] z) => (float[2,3] y, float[N,1,3] w)
        <int64 n = {3}, int64[1] one = {1}, int64[1] two = {2}, int64[1] zero = {0}> {
        y, w = Loop (n, "", x) <body = b (int64 i, bool go, float[2,3] v) => (bool on, float[2,3] u, float[1,3] t)
            { s = Slice (z, one, two, zero) t = Neg (s) u = Neg (v) on = Identity (go) }> }"""
    graph = graph_of(text)
    x = np.ones((2, 3), np.float32)
    real = kvviz.run(graph, {"x": x, "z": x.copy()}, donate=["z"], policy="rten")
    given = {"x": ghost((2, 3), np.float32), "z": ghost((2, 3), np.float32)}
    assert_agree(SingleRun(graph, given, None, ["z"], "rten", dry={}).run_to_end(), real)
    places = [out.offset for step in real.steps if step.op_type == "Slice" for out in step.outs]
    assert places == [12] * 3


@pytest.mark.parametrize("turn", range(2))
@pytest.mark.parametrize("model", EXPORTS)
def test_every_figure_of_a_decode_follows_from_layouts(model: str, turn: int) -> None:
    # Two policies in turn, one with room. All of them decode every small decoder in `test_dry_decodes`.
    policy = POLICIES[(EXPORTS.index(model) + 2 * turn) % 4]
    prompt, capacity = [(3, None), (17, 24)][turn]
    graph = kvviz.load(ROOT / "assets/models" / model / "model.onnx")
    options: dict[str, Any] = {"policy": policy, "kv_capacity": capacity}
    real = kvviz.decode(graph, [5] * prompt, 4, progress=False, stop_tokens=(), **options)
    assert_agree(kvviz.dry(graph, prompt_tokens=prompt, max_new_tokens=4, **options), real)


@pytest.mark.filterwarnings("ignore")
def test_layouts_of_the_operators_in_the_onnx_suite_are_known_or_said_to_depend_on_data() -> None:
    known, unknown = 0, Counter[str]()
    for graph, feed in cases():
        donate = [name for name, value in feed.items() if isinstance(value, np.ndarray)]
        ghosts = {n: without_contents(np.array(v) if n in donate else v) for n, v in feed.items()}
        try:
            copies = {name: np.array(value) if name in donate else value for name, value in feed.items()}
            real = kvviz.run(graph, copies, donate=donate)  # which may overwrite them
        except KvvizError:
            continue
        try:
            dry = SingleRun(graph, ghosts, None, donate, "ideal", dry={}).run_to_end()
        except UnknownValueError:
            unknown[graph.nodes[0].op_type] += 1
            continue
        assert_agree(dry, real, caches=False)
        known += 1
    assert set(unknown) <= DATA_DECIDES
    assert known > 1800 and unknown.total() < 50


def test_no_byte_of_a_ghost_is_touched_by_any_rule_or_view_of_any_operator() -> None:
    """Its pages are taken away, so that whoever reads or writes one stops the process."""
    models = ["storyteller/concat", "storyteller/gqa", "storyteller/static_scatter_nd", *EXPORTS[:2]]
    paths = [str(ROOT / "assets/models" / model / "model.onnx") for model in models]
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.untouchable", *paths], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout.startswith("untouched "), done.stderr[-2000:]
    assert [int(number) > 1500 for number in done.stdout.split()[1:]] == [True, True], done.stdout


def test_what_depends_on_data_is_asked_for_by_the_name_of_its_node_and_taken_as_stated() -> None:
    graph = graph_of("g (float[2, 3] x) => (int64[a, b] y) { pick = NonZero(x) y = Neg(pick) }")
    with pytest.raises(UnknownValueError, match=r"node 'pick' \(NonZero\).*counts=\{'pick': n\}"):
        kvviz.dry(graph)
    x = np.array([[1, 0, 2], [0, 0, 3]], np.float32)
    assert_agree(kvviz.dry(graph, counts={"pick": 3}), kvviz.run(graph, {"x": x}))
    graph = graph_of("""g (float[2, 3] x) => (float[a, b] y) {
        sum = ReduceSum <keepdims = 0> (x) go = Cast <to = 9> (sum)
        y = If (go) <then_branch = yes () => (float[a, b] r) { r = Neg(x) },
                     else_branch = no () => (float[a, b] r) { r = Concat <axis = 0> (x, x) }> }""")
    with pytest.raises(UnknownValueError, match=r"node 'y' \(If\).*counts=\{'y': 1 or 0\}"):
        kvviz.dry(graph)
    for branch in (0, 1):
        real = kvviz.run(graph, {"x": np.full((2, 3), branch, np.float32)})
        assert_agree(kvviz.dry(graph, counts={"y": branch}), real)


KNOWN = """g (float[2, 3] x) => (float[a, b] y) {
    shape = Shape(x) wide = Cast <to = 1> (shape) sum = ReduceSum <keepdims = 0> (x) twice = Add(wide, %s)
    target = Cast <to = 7> (twice) y = ConstantOfShape(target) }"""


def test_what_follows_from_known_values_is_computed_until_it_is_overwritten_with_what_is_not() -> None:
    assert kvviz.dry(graph_of(KNOWN % "wide")).steps[-1].outs[0].shape == (4, 6)
    with pytest.raises(UnknownValueError, match="node 'y'"):
        kvviz.dry(graph_of(KNOWN % "sum"))


def test_a_fix_of_a_dry_trace_is_tried_dry_and_saves_what_it_saves_in_numbers() -> None:
    graph = kvviz.load(ROOT / "assets/models/storyteller/concat/model.onnx")
    real = kvviz.decode(graph, [5, 17, 33], 4, progress=False, stop_tokens=())
    dry = kvviz.dry(graph, prompt_tokens=3, max_new_tokens=4)
    fixes = [[entry.fix for entry in kvviz.explain(trace).missed if entry.fix] for trace in (dry, real)]
    assert fixes[0] and [fix.sentence for fix in fixes[0]] == [fix.sentence for fix in fixes[1]]
    assert_agree(fixes[0][0].apply(), fixes[1][0].apply())


def test_a_copy_of_a_ghost_is_a_ghost_in_memory_of_its_own() -> None:
    first = ghost((4, 3), np.float32)
    part = first[1:]
    assert is_ghost(part) and np.shares_memory(first, part) and part.strides == first.strides
    assert not np.may_share_memory(first, ghost((4, 3), np.float32))
