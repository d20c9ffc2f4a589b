"""Where a dry run ends, and what it does without: data decide nothing, weights and their memory are not needed."""

import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import kvviz
from kvviz.decode.run_sessions import SingleRun
from kvviz.errors import InputError, LoadError, ReplayError, UnknownValueError
from kvviz.ext import op
from kvviz.graph.model import Graph
from kvviz.memory.ghosts import ghost
from kvviz.ops import registry
from tests.engine.dry_and_real import assert_agree
from tests.engine.graphs import graph_of, proto_of
from tests.engine.untouchable import POLICIES

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "assets/models/storyteller/concat/model.onnx"
NEG = "g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }"


def dry(graph: Graph, shapes: Mapping[str, Sequence[int]], policy: str = "ideal", **counts: int) -> kvviz.Trace:
    given = {name: ghost(shape, np.float32) for name, shape in shapes.items()}
    return SingleRun(graph, given, policy=policy, dry=counts).run_to_end()


def test_a_count_says_one_length_and_no_more() -> None:
    graph = graph_of('g (float[1,1,4,4] x, float[4] s) => (float[] y) { [resize] y = Resize(x, "", s) }')
    with pytest.raises(UnknownValueError, match=r"node 'resize' \(Resize\): the shape of 'y'.*run the model") as told:
        dry(graph, {"x": (1, 1, 4, 4), "s": (4,)}, resize=64)
    assert "counts=" not in str(told.value)


def test_more_iterations_than_the_trip_count_are_refused() -> None:
    graph = graph_of("""g (float[2,3] x) => (float[2,3] y) <int64 n = {2}> {
        [loop] y = Loop (n, "", x) <body = f (int64 i, bool c, float[2,3] a) => (bool go, float[2,3] b) {
            b = Neg(a) sum = ReduceSum <keepdims = 0> (b) go = Cast <to = 9> (sum) }> }""")
    assert len(dry(graph, {"x": (2, 3)}, loop=1).steps) < len(dry(graph, {"x": (2, 3)}, loop=2).steps)
    with pytest.raises(InputError, match="3 iterations of 'loop', and its trip count is 2"):
        dry(graph, {"x": (2, 3)}, loop=3)


def test_an_operator_of_a_user_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_TABLE", dict(registry._TABLE))

    @op("Halve", domain="local")
    def halve(x: np.ndarray) -> np.ndarray:
        return x[: len(x) // 2].copy()

    graph = graph_of("g (float[2,3] x) => (float[] y) { [halve] y = local.Halve(x) }")
    with pytest.raises(UnknownValueError, match=r"node 'halve' \(local.Halve\): .*known to its kernel alone"):
        kvviz.dry(graph)


# "t" is a transposed input.
TURNED = [
    "y = QuantizeLinear(t, s, z)",
    "y, a, b = DynamicQuantizeLinear(t)",
    "n, y, r = LayerNormalization <axis = 2> (t, w)",
    "n, m, y = LayerNormalization <axis = 2> (t, w)",
    "y = Cast <to = 24> (t)",
    "y = ai.onnx.ml.Binarizer <threshold = 0.0> (t)",
]


@pytest.mark.parametrize("op", TURNED)
def test_what_an_operator_makes_lies_in_row_major_order(op: str) -> None:
    graph = graph_of(f"""g (float[3,2,5,4] x) => (float[a,b,c,d] y) <float s = {{1}}, int8 z = {{0}},
        float[2,3] w = {{1, 1, 1, 1, 1, 1}}> {{ t = Transpose <perm = [3, 2, 1, 0]> (x) {op} }}""", 24)  # fmt: skip
    y = kvviz.run(graph, {"x": np.ones((3, 2, 5, 4), np.float32)}).outputs["y"]
    assert y.flags.c_contiguous


def test_the_code_of_a_dry_trace_and_of_its_fixes_makes_dry_traces() -> None:
    graph = kvviz.load(MODEL)
    trace = kvviz.dry(graph, prompt_tokens=5, max_new_tokens=3)
    report = kvviz.explain(trace)
    named: dict[str, Any] = {"kvviz": kvviz, "graph": graph}
    fix = next(entry.fix for entry in report.missed if entry.fix and "kv_capacity" in entry.fix.code)
    exec(fix.code, named)
    assert_agree(named["trace"], kvviz.decode(graph, [1] * 5, 3, kv_capacity=7, stop_tokens=(), progress=False))
    again = "trace = kvviz.dry(kvviz.load('model.onnx'), prompt_tokens=5, max_new_tokens=3)"
    assert again in report.to_markdown().split("\n")


def test_a_dry_run_has_no_values_and_options_of_a_decode_are_refused_where_there_is_none() -> None:
    with pytest.raises(ReplayError, match="a dry run works out layouts and no numbers"):
        kvviz.dry(graph_of(NEG)).summarise()
    for option in ({"batch": 2}, {"cache": "shared"}, {"kv_capacity": 4}):
        with pytest.raises(InputError, match="is for a decode; give prompt_tokens, too"):
            kvviz.dry(graph_of(NEG), **option)


def test_an_array_that_a_dry_run_was_given_to_overwrite_keeps_its_contents() -> None:
    x = np.arange(4, dtype=np.float32)
    kvviz.dry(graph_of("g (float[4] x, float[4] z) => (float[4] y) { y = Add(x, z) }"), {"x": x}, donate=["x"])
    graph = graph_of("""g (float[4] x) => (float[4] y) <int64 n = {0}> {
        y = Loop (n, "", x) <body = f (int64 i, bool c, float[4] a) => (bool go, float[4] b) {
            go = Identity(c) b = Neg(a) }> }""")
    assert kvviz.run(graph, {"x": x}).outputs["y"].tolist() == [0, 1, 2, 3]
    sized = graph_of("g (float[4] x) => (float[] y) { shape = Cast <to = 7> (x) y = ConstantOfShape(shape) }")
    assert kvviz.dry(sized, {"x": x}).steps[-1].outs[0].shape == (0, 1, 2, 3)


def test_inputs_that_only_made_what_is_given_are_left_out_of_a_dry_run_too() -> None:
    text = "g (float[6,2] x) => (float[] y) { a, b = Split <num_outputs = 2> (x) c = Neg(a) y = Add(c, b) }"
    graph = graph_of(text)
    halves = {name: np.ones((3, 2), np.float32) for name in "ab"}
    assert_agree(kvviz.dry(graph, halves, policy="rten"), kvviz.run(graph, halves, policy="rten"))


KEYS = """(float[1,3,8] q, float[1,3,8] k, float[1,3,8] v, float[%s] m) => (float[] z) {
    y, keys, values = %s (q, k, v, m) z = Neg(keys) }"""
TURNED_BITS = """(float[2,3,4] x) => (float[] y) <float scale = {0.1}, int8 zero = {0}, int64[1] from = {0},
    int64[1] to = {1}, int64[1] axis = {1}> { t = Transpose <perm = [0, 2, 1]> (x) q = QuantizeLinear(t, scale, zero)
    d = DequantizeLinear(q, scale, zero) part = Slice(d, from, to, axis) n = Neg(d) y = Sum(part%s) }"""
AGREE = {
    "each element of Unique": "(float[2,3] x) => (float[] u) { u, first, inverse, times = Unique (x) }",
    "each row of Unique": "(float[2,3] x) => (float[] u) { u, first, inverse, times = Unique <axis = 1> (x) }",
    "attention without a past": KEYS % ("3,3", "Attention <q_num_heads = 2, kv_num_heads = 2>"),
    "attention without a past and with a bias": KEYS % ("24", "com.microsoft.MultiHeadAttention <num_heads = 2>"),
    "quantised values that lie turned": TURNED_BITS % "",
    "quantised values that lie turned and are read twice": TURNED_BITS % ", n",
    "lists that are put in and picked": """(float[2,3] x, float[2,3] z) => (float[N,M] y) <int64 o = {1}> {
        t = Transpose(x) s = SequenceConstruct(t, t) e = SequenceErase(s, o) u = Neg(z) r = SequenceInsert(e, u)
        q = SequenceAt(r, o) y = Exp(q) }""",
    "lists that are split and joined": """(float[4,3] x) => (float[N,M] y) <int64 o = {1}> {
        s = SplitToSequence <axis = 0> (x) q = SequenceAt(s, o) y = Exp(q) c = ConcatFromSequence <axis = 1> (s)
        d = ConcatFromSequence <axis = 0, new_axis = 1> (s) l = SequenceLength(s) }""",
    "optional values": """(float[4,3] x) => (float[N,M] y) { w = Optional(x) h = OptionalHasElement(w)
        v = OptionalGetElement(w) y = Neg(v) }""",
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("text", AGREE.values(), ids=AGREE)
def test_layouts_agree_with_those_of_the_real_run(text: str, policy: str) -> None:
    graph = graph_of(f"g {text}", 23)
    shapes = {value.name: tuple(d for d in value.shape or () if isinstance(d, int)) for value in graph.inputs}
    donate = [name for name in shapes if name == "x"]
    names = [name for node in graph.nodes for name in node.outputs]
    for outputs in (None, names):
        real = kvviz.run(graph, {n: np.ones(s, np.float32) for n, s in shapes.items()}, outputs, donate, policy)
        given = {name: ghost(shape, np.float32) for name, shape in shapes.items()}
        counts = {"u": 1} if "Unique" in text else {}
        assert_agree(SingleRun(graph, given, outputs, donate, policy, dry=counts).run_to_end(), real)


def apart(folder: Path, least: int = 1024) -> Path:
    """The storyteller with its weights in a file of their own."""
    onnx.save(onnx.load(MODEL), folder / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=least)
    return folder / "m.onnx"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_model_whose_data_are_missing_runs_dry_with_all_figures(tmp_path: Path, policy: str) -> None:
    path = apart(tmp_path)
    real = kvviz.decode(kvviz.load(path), [5, 17, 33], 3, policy=policy, progress=False, stop_tokens=())
    (tmp_path / "m.data").unlink()
    assert_agree(kvviz.dry(path, prompt_tokens=3, max_new_tokens=3, policy=policy), real)
    (tmp_path / "m.data").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    assert_agree(kvviz.dry(kvviz.load(path), prompt_tokens=3, max_new_tokens=3, policy=policy), real)


def test_numbers_of_a_model_whose_data_are_missing_are_refused_by_weight_and_file(tmp_path: Path) -> None:
    path = apart(tmp_path)
    missing = (tmp_path / "m.data").rename(tmp_path / "elsewhere")
    graph = kvviz.load(path)
    for start in (
        lambda: kvviz.decode(graph, [5], 2, progress=False),
        lambda: kvviz.run(graph, kvviz.inputs(graph)),
        lambda: kvviz.debug(graph, prompt=[5]),
    ):
        with pytest.raises(LoadError, match=r"^weight '.*'m\.data', which is missing; put it next to the model"):
            start()
    # when the file comes, the graph that was loaded before runs
    missing.rename(tmp_path / "m.data")
    wanted = kvviz.decode(kvviz.load(MODEL), [5], 2, progress=False).tokens
    assert kvviz.decode(graph, [5], 2, progress=False).tokens == wanted


def test_a_shape_that_lies_in_the_missing_data_is_asked_for_by_the_name_of_its_file(tmp_path: Path) -> None:
    text = "g (float[2, 3] x) => (float[a, b] y) <int64[2] shape = {3, 2}> { [change] y = Reshape(x, shape) }"
    model = proto_of(text)
    # Only data that are stored as bytes go to a file of their own.
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array([3, 2]), "shape"))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    (tmp_path / "m.data").unlink()
    told = r"^node 'change' \(Reshape\).*weight 'shape'.*'m\.data', which is miss"
    with pytest.raises(UnknownValueError, match=told):
        kvviz.dry(tmp_path / "m.onnx")


def test_where_the_address_space_is_limited_all_figures_stay() -> None:
    code = """
        import resource, sys
        import numpy as np
        import kvviz
        if len(sys.argv) > 1:
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
            try:
                np.empty(1 << 32, np.uint8)
            except MemoryError:
                print("limited", file=sys.stderr)
        graph = kvviz.shapes.llama(layers=4, vocabulary=128_000, hidden=4096, dtype="float16")
        for policy in ("ideal", "never", "rten", "onnxruntime"):
            trace = kvviz.dry(graph, prompt_tokens=64, max_new_tokens=3, kv_capacity=1 << 20, policy=policy)
            print(trace.peak_bytes, [(o.storage, o.how, o.offset, o.strides) for s in trace.steps for o in s.outs])
    """
    line = [sys.executable, "-c", textwrap.dedent(code)]
    runs = [
        subprocess.run([*line, *limit], cwd=ROOT, capture_output=True, text=True, check=True)
        for limit in ([], ["limited"])
    ]
    assert runs[1].stderr == "limited\n"
    assert len(runs[0].stdout) > 10_000 and runs[0].stdout == runs[1].stdout
