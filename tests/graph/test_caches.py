"""Cache pairs: every convention of the exporters, by structure where the graph shows it and by name where not."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.graph import load
from kvviz.graph.cache_pairs import CachePair, cache_pairs
from tests.graph.build import FILES, MODELS, file_id, graph, model, node, run_in_onnxruntime

MS = "com.microsoft"


def pairs(nodes: list[onnx.NodeProto], inputs: list[str], outputs: list[str], **more: Any) -> dict[str, CachePair]:
    """Cache pairs of a small model, by input."""
    more.setdefault("domains", [MS])
    return {p.input: p for p in cache_pairs(load(model(nodes, inputs, outputs, **more)))}


def only(found: dict[str, CachePair]) -> CachePair:
    (pair,) = found.values()
    return pair


# Real models


@pytest.mark.parametrize("path", sorted(MODELS.glob("o*/meta.json")), ids=lambda p: p.parent.name)
def test_caches_and_writers_of_the_exported_models_are_found(path: Path) -> None:
    # given what was measured when the models were made
    mechanics = json.loads(path.read_text())["mechanics"]
    expected = {(p["input"], p["output"]): p["writer"] for p in mechanics.get("cache_pairs", [])}
    expected |= dict.fromkeys(mechanics.get("state", {}).items(), "LSTM")
    # when the pairs are looked for
    found = cache_pairs(load(path.parent / "model.onnx"))
    # then they are those, in the order of the inputs, with the same writers in each branch
    assert {(p.input, p.output) for p in found} == expected.keys()
    for pair in found:
        writers = expected[pair.input, pair.output]
        assert pair.ops == (tuple(writers.values()) if isinstance(writers, dict) else (writers,))


@pytest.mark.parametrize("path", [p for p in FILES if p.name == "model.onnx"], ids=file_id)
def test_caches_have_grown_or_stayed_in_the_recorded_runs_as_the_protocol_says(path: Path) -> None:
    # given arrays recorded from onnxruntime for the first decode step
    runs = np.load(path.parent / "ref.npz")
    for pair in cache_pairs(load(path)):
        before, after = runs[f"run1.in.{pair.input}"], runs[f"run1.out.{pair.output}"]
        if pair.protocol == "growing":
            assert pair.axis is not None
            size = before.shape[pair.axis]
            assert after.shape[pair.axis] == size + 1
            np.testing.assert_array_equal(np.take(after, range(size), pair.axis), before)
        elif pair.protocol == "static":
            # One row of the sequence axis changed, and no other.
            assert pair.axis is not None
            assert after.shape == before.shape
            rows = np.moveaxis(after != before, pair.axis, 0).reshape(before.shape[pair.axis], -1).any(axis=1)
            assert rows.sum() == 1
        elif pair.protocol == "state":
            assert pair.axis is None
            assert after.shape == before.shape
        else:
            assert pair.protocol == "cross"
            assert after.shape[0] == 0  # merged decoders give nothing in place of the encoder's keys


# Structure, under names that say nothing


def test_a_window_drops_old_rows() -> None:
    nodes = [node("Concat", "k_cache x", "all", axis=2), node("Slice", "all start end axes", "k_cache_out")]
    inputs = ["k_cache float 1 2 16 8", "x float 1 2 1 8"]
    ends = {"start": np.array([-16]), "end": np.array([9999]), "axes": np.array([2])}
    pair = only(pairs(nodes, inputs, ["k_cache_out float 1 2 16 8"], **ends))
    assert (pair.protocol, pair.axis, pair.ops) == ("window", 2, ("Slice<-Concat",))
    cut_first = [node("Slice", "k_cache start end axes", "tail"), node("Concat", "tail x", "k_cache_out", axis=2)]
    assert only(pairs(cut_first, inputs, ["k_cache_out float 1 2 16 8"], **ends)).protocol == "window"
    # The last columns of a convolution are a state.
    nodes = [node("Concat", "past_conv.0 x", "all", axis=2), node("Slice", "all start end axes", "present_conv.0")]
    inputs = ["past_conv.0 float 1 16 3", "x float 1 16 1"]
    pair = only(pairs(nodes, inputs, ["present_conv.0 float 1 16 3"], **ends | {"start": np.array([-3])}))
    assert (pair.protocol, pair.axis) == ("state", None)


def test_what_merely_joins_inputs_is_no_cache() -> None:
    joined = [node("Concat", "a b", "c", axis=2)]
    assert pairs(joined, ["a float 1 2 s 8", "b float 1 2 n 8"], ["c float 1 2 t 8"]) == {}
    # Padding in front of a convolution, and something that only its name calls an output of something.
    pad = {"pad": np.zeros((1, 4, 2), np.float32)}
    joined = [node("Concat", "pad x", "present_state", axis=2)]
    assert pairs(joined, ["x float 1 4 s"], ["present_state float 1 4 t"], **pad) == {}
    assert pairs([node("Identity", "opt_in", "opt_out")], ["opt_in float 3"], ["opt_out float 3"]) == {}
    joined = [node("Concat", "value0 value1", "y", axis=0)]
    assert pairs(joined, ["value0 float a", "value1 float b"], ["y float c"]) == {}
    joined = [node("Neg", "n", "m"), node("Concat", "input_ids m", "sequences", axis=1)]
    assert pairs(joined, ["input_ids int64 b s", "n int64 b 1"], ["sequences int64 b t"]) == {}


@pytest.mark.parametrize(("kind", "is_cache"), [("float", True), ("bool", True), ("uint8", True), ("int64", False)])
def test_flags_and_bytes_may_be_a_cache_and_wider_integers_are_counts(kind: str, is_cache: bool) -> None:
    # given something that is made longer by what was computed, without a telling name
    computed = node("Not", "x", "fresh") if kind == "bool" else node("Mul", "x x", "fresh")
    nodes = [computed, node("Concat", "kept fresh", "longer", axis=1)]
    found = pairs(nodes, [f"kept {kind} b s 4", f"x {kind} b n 4"], [f"longer {kind} b t 4"])
    assert [(pair.output, pair.protocol, pair.axis) for pair in found.values()] == [("longer", "growing", 1)] * is_cache


@given(st.permutations([0, 1, 2, 3]), st.integers(0, 3))
def test_the_axis_of_a_scatter_is_seen_through_transposes(perm: list[int], rows: int) -> None:
    # given a cache whose rows lie on any axis, moved to the front, scattered into and moved back
    order = [rows, *(axis for axis in perm if axis != rows)]
    back = [order.index(axis) for axis in range(4)]
    shape = [3, 4, 5, 6]
    nodes = [
        node("Transpose", "cache", "front", perm=order),
        node("Unsqueeze", "position last", "where"),
        node("ScatterND", "front where update", "written", name="write"),
        node("Transpose", "written", "cache_out", perm=back),
    ]
    update = " ".join(["1", *(str(shape[axis]) for axis in order[1:])])
    inputs = [f"cache float {' '.join(map(str, shape))}", "position int64 1", f"update float {update}"]
    proto = model(nodes, inputs, ["cache_out float 3 4 5 6"], last=np.array([-1]))
    (pair,) = cache_pairs(load(proto))
    # then the axis is the one on which onnxruntime changes a single row
    feeds = {"cache": np.zeros(shape, np.float32), "update": np.ones([int(d) for d in update.split()], np.float32)}
    (after,) = run_in_onnxruntime(proto, position=np.array([2]), **feeds)
    changed = [axis for axis in range(4) if after.any(axis=tuple(set(range(4)) - {axis})).sum() == 1]
    assert (pair.axis, pair.protocol, pair.writer) == (rows, "static", ("write",))
    assert changed == [rows]


@pytest.mark.parametrize(
    ("op", "attributes", "protocol", "axis"),
    [
        ("TensorScatter", {}, "static", 2),
        ("TensorScatter", {"axis": 1}, "static", 1),
        ("TensorScatter", {"axis": -1, "mode": "circular"}, "window", 3),
        ("ScatterElements", {"axis": 2}, "static", 2),
    ],
)
def test_scatters_into_an_input_are_static_caches(
    op: str, attributes: dict[str, Any], protocol: str, axis: int
) -> None:
    operands = "buffer2 new at" if op == "TensorScatter" else "buffer2 at new"
    nodes = [node("Identity", "buffer", "buffer2"), node(op, operands, "other", **attributes)]
    inputs = ["buffer float 1 2 16 8", "new float 1 2 1 8", "at int64 1"]
    pair = only(pairs(nodes, inputs, ["other float 1 2 16 8"], opset=24))
    assert (pair.input, pair.protocol, pair.axis) == ("buffer", protocol, axis)


def operator(op: str, inputs: int, at: dict[int, str], outputs: str, domain: str = MS, **attributes: Any) -> Any:
    names = " ".join(at.get(i, "-" if i > 0 else "x") for i in range(inputs))
    return node(op, names, outputs, domain=domain, **attributes)


SHARED: dict[str, Any] = {"past_present_share_buffer": 1}


@pytest.mark.parametrize(
    ("made", "protocol", "axis"),
    [
        (operator("Attention", 6, {1: "x", 2: "x", 4: "a", 5: "b"}, "y c d", ""), "growing", 2),
        (operator("GroupQueryAttention", 9, {3: "a", 4: "b"}, "y c d"), "growing", 2),
        (operator("GroupQueryAttention", 9, {3: "a", 4: "b"}, "y c d", sliding_window_cache=1), "window", 2),
        (operator("MultiHeadAttention", 8, {6: "a", 7: "b"}, "y c d"), "growing", 2),
        (operator("MultiHeadAttention", 9, {6: "a", 7: "b", 8: "x"}, "y c d"), "static", 2),
        (operator("DecoderMaskedMultiHeadAttention", 8, {5: "a", 6: "b"}, "y c d"), "growing", 2),
        (operator("DecoderMaskedMultiHeadAttention", 8, {5: "a", 6: "b"}, "y c d", **SHARED), "static", 2),
        (operator("SparseAttention", 5, {3: "a", 4: "b"}, "y c d"), "static", 2),
        (operator("PagedAttention", 5, {3: "a", 4: "b"}, "y c d"), "static", None),
        (operator("LSTM", 7, {5: "a", 6: "b"}, "y c d", ""), "state", None),
        (operator("GRU", 6, {1: "x", 2: "x", 5: "a"}, "y c", ""), "state", None),
        (operator("LinearAttention", 4, {1: "x", 2: "x", 3: "a"}, "y c", ""), "state", None),
        (operator("LinearAttention", 4, {3: "a"}, "y c"), "state", None),
        (operator("CausalConvWithState", 4, {1: "x", 3: "a"}, "y c", ""), "state", None),
    ],
)
def test_operators_with_a_past_and_a_present_pair_them(made: Any, protocol: str, axis: int | None) -> None:
    inputs = ["x float 1 4 8", "a float 1 2 s 8", "b float 1 2 s 8"]
    found = pairs([made], inputs, [f"{name} float 1 2 t 8" for name in made.output], opset=27)
    assert {p.input: p.output for p in found.values()} == dict(zip("ab", made.output[1:]))
    assert {(p.protocol, p.axis) for p in found.values()} == {(protocol, axis)}


# Through branches, loops and functions


def test_a_function_or_a_scan_may_write_the_cache_whatever_its_name() -> None:
    imports, names = [onnx.helper.make_opsetid("", 18)], {"past.0.key": "b1", "past.1.key": "b0"}
    body = [node("Concat", "old new", "grown", axis=2, name="append")]
    append = onnx.helper.make_function("local", "Append", ["old", "new"], ["grown"], body, imports)
    nodes = [node("Neg", "x", "n"), *(node("Append", f"{a} n", b, domain="local") for a, b in names.items())]
    inputs, outputs = [f"{a} float 1 2 s 8" for a in names], [f"{b} float 1 2 t 8" for b in names.values()]
    found = pairs(nodes, [*inputs, "x float 1 2 n 8"], outputs, functions=[append], domains=["local"])
    assert {p.input: p.output for p in found.values()} == names
    assert {(p.protocol, p.axis, p.writer) for p in found.values()} == {("growing", 2, ("append",))}
    body = [node("Concat", "s e", "s2", axis=0, name="append"), node("Neg", "e", "o")]
    turn = graph(body, ["s float n", "e float 1"], ["s2", "o"])
    nodes = [node("Scan", "memory x", "memory_out ys", name="scan", body=turn, num_scan_inputs=1)]
    pair = only(pairs(nodes, ["memory float n", "x float 4 1"], ["memory_out float m", "ys float 4 1"]))
    assert (pair.input, pair.output, pair.writer) == ("memory", "memory_out", ("append",))


def test_a_branch_may_write_the_cache_afresh() -> None:
    append = graph([node("Concat", "cache x", "out1", axis=2, name="append")], [], ["out1 float 1 2 t 8"])
    fresh = graph([node("Mul", "x two", "out2", name="start")], [], ["out2 float 1 2 t 8"], two=np.float32(2))
    nodes = [node("If", "use_cache", "present", name="choose", then_branch=append, else_branch=fresh)]
    pair = only(pairs(nodes, ["use_cache bool -", "cache float 1 2 s 8", "x float 1 2 n 8"], ["present float 1 2 t 8"]))
    assert dict(zip(pair.writer, pair.ops)) == {"append": "Concat", "start": "Mul"}
    assert (pair.input, pair.protocol, pair.axis) == ("cache", "growing", 2)


def test_joins_of_joins_do_not_take_forever() -> None:
    # given forty joins of ten computed values each, every one made of the one before
    nodes = [node("Neg", "x", "v0")]
    nodes += [node("Concat", " ".join([f"v{i}"] * 5 + [f"w{i}"] * 5), f"v{i + 1}", axis=1) for i in range(40)]
    nodes += [node("Neg", f"v{i}", f"w{i}") for i in range(40)]
    assert pairs(nodes, ["x float 1 s"], ["v40 float 1 t"]) == {}


@pytest.mark.parametrize("rows", [1, 3])
def test_a_scatter_at_places_of_several_numbers_writes_along_the_last_of_them(rows: int) -> None:
    # given places of which the last number is a row, and those before it entries, heads and the like
    parts = [f"place{axis}" for axis in range(rows + 1)]
    nodes = [node("Concat", " ".join(parts), "where", axis=-1), node("ScatterND", "cache where update", "cache_out")]
    update = " ".join(["1", *["3", "4", "5", "6"][rows + 1 :]])
    inputs = ["cache float 3 4 5 6", f"update float {update}", *(f"{part} int64 1 1" for part in parts)]
    # when the pair is looked for
    (pair,) = cache_pairs(load(model(nodes, inputs, ["cache_out float 3 4 5 6"])))
    # then its rows are not taken to be where caches have them as a rule
    assert (pair.axis, pair.protocol) == (rows, "static")


@pytest.mark.parametrize("axis", [0, 1, -3, -4])
def test_what_grows_on_an_axis_of_fixed_length_is_no_cache(axis: int) -> None:
    # given images that are joined along an axis counted from the front or from the end
    nodes = [node("Relu", "a", "r"), node("Concat", "a r", "c", axis=axis)]
    # when that axis is of fixed length, or of any
    shapes = [[length if place == axis % 4 else 5 for place in range(4)] for length in (4, 8, "n", "m")]
    before, longer, any_before, any_longer = (" ".join(map(str, shape)) for shape in shapes)
    fixed = pairs(nodes, [f"a float {before}"], [f"c float {longer}"])
    free = pairs(nodes, [f"a float {any_before}"], [f"c float {any_longer}"])
    # then it is one only where the next run may be given more
    assert fixed == {} and only(free).output == "c"
