"""Where ggml's graph allocator puts tensors, and what it refuses.

Expected offsets: ggml's own allocator, run on these graphs (x and y are INPUT, 1,024 bytes each).
"""

import json

import pytest

from kvviz.errors import KvvizError
from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.memory_plan import EXTERNAL, VIEW, MemoryPlan
from kvviz.ggml.graph.tensor import INPUT, OUTPUT, Tensor
from kvviz.ggml.order.gallocr import plan_memory
from kvviz.trace import blockers as b
from tests.ggml.recordings import DATA, recording
from tests.ggml.seed_graphs import leaf, op
from tests.ggml.worst_case import read_lines, reserved_graph

OPS = json.loads((DATA / "ops.json").read_text("utf-8"))


def given(name: str) -> Tensor:
    return leaf(name, 256, flags=INPUT)


def planned(*expanded: Tensor) -> MemoryPlan:
    graph = ComputeGraph("planned")
    for tensor in expanded:
        graph.expand(tensor)
    return plan_memory(graph)


def reasons(plan: MemoryPlan, node: Tensor) -> dict[int, int]:
    return dict(next(made.masks for made in plan.nodes if made.node is node))


def graph_of(text: str) -> dict[str, Tensor]:
    """Tensors of a line as ``name = OP sources``, with ``@root`` for a view of it and ``!`` for an output."""
    made = {"x": given("x"), "y": given("y")}
    for part in text.split(";"):
        name, kind, *sources = part.replace("=", " ").split()
        root = next((made[one[1:]] for one in sources if one[0] == "@"), None)
        src = [made[one] for one in sources if one[0] != "@"]
        one = op(name.strip("!"), kind, *src, view_of=root, ne=(1, 1) if kind == "MUL_MAT" else (256,))
        one.flags |= OUTPUT * name.endswith("!")
        made[one.name] = one
    return made


# Graph, what is expanded, offsets, refusals of one node, and what the last node frees.
PLACES: dict[str, tuple[str, str, dict[str, int], dict[str, dict[int, int]], str]] = {
    "a chain runs in the memory of its input": (
        "a = SQR x; b = ADD a y; o = SCALE b", "o", {"x": 0, "y": 1024, "a": 0, "b": 0, "o": 0}, {}, ""
    ),
    "an output is not taken over and not freed": (
        "a! = SQR x; b = ADD a y; o = SCALE b", "o", {"o": 1024}, {"b": {0: b.REQUESTED_OUTPUT}}, ""
    ),
    "a reshape on the way forces new memory": (
        "a = SQR x; v = RESHAPE a @a; o = SCALE v", "o", {"a": 0, "o": 1024}, {"o": {0: VIEW}}, "a"
    ),
    # b goes to where y is; of o's sources b comes first, and is free as well.
    "the second user of a source takes it over": (
        "a = SQR x; b = ADD a y; o = MUL b a", "o", {"b": 1024, "o": 1024},
        {"b": {0: b.NOT_LAST_USE}}, "a",
    ),
    "it takes the first that is free": ("a = SQR x; b = ADD a y; o = MUL a b", "o", {"b": 1024, "o": 0}, {}, "b"),
    "a node that reads a source twice does not take it": (
        "a = SQR x; o = MUL a a", "o", {"o": 1024}, {"o": dict.fromkeys((0, 1), b.SAME_OP_TWICE)}, "a"
    ),
    "a write that nobody reads keeps its root to the end": (
        "a = CONT x; v = VIEW a @a; write = CPY y v @a; c = MUL_MAT x y", "write c", {"a": 2048, "c": 3072}, {}, "x y"
    ),
    "a matrix product frees its sources behind itself": (
        "a = SQR x; o = MUL_MAT a y", "o", {"o": 2048}, {"o": {}}, "a y"
    ),
    "a clamp lies where ggml puts it": (
        "a = CLAMP x; b = SQR a; c = CLAMP a; o = ADD b c", "o", {"x": 0, "a": 0, "b": 1024, "c": 0, "o": 1024}, {}, "c"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PLACES)
def test_tensors_lie_where_ggmls_allocator_puts_them(case: str) -> None:
    text, expanded, offsets, refused, freed = PLACES[case]
    made = graph_of(text)
    plan = planned(*(made[name] for name in expanded.split()))
    assert {name: plan.places[made[name]].offset for name in offsets} == offsets
    for name, expected in refused.items():
        assert reasons(plan, made[name]) == expected
    assert sorted(one.name for one in plan.nodes[-1].freed) == freed.split()


def test_every_reason_is_kept_not_only_the_first_and_what_is_external_is_never_placed() -> None:
    weight, cache = leaf("w", 128, type_="f16", role="weight"), leaf("cache", 256, role="state")
    a = op("a", "SQR", given("x"))
    a.flags |= OUTPUT
    view = op("view", "VIEW", a, view_of=a)
    other = op("other", "ADD", a, weight)
    last = op("last", "SCALE", cache)
    found = planned(view, other, op("read", "SQR", a), last)
    assert reasons(found, other) == {
        0: b.REQUESTED_OUTPUT | b.NOT_LAST_USE | b.ALIASED,
        1: b.CONSTANT | b.DTYPE_DIFFERS | b.SHAPE_DIFFERS,
    }
    assert reasons(found, last) == {0: EXTERNAL}
    assert cache not in found.places and weight not in found.places


def test_a_buffer_type_with_a_largest_block_has_its_memory_in_chunks() -> None:
    graph = ComputeGraph("chunks").expand(op("o", "MUL_MAT", given("x"), given("y"), ne=(8, 8)))
    plan = plan_memory(graph, max_chunk=1024)
    assert [(there.chunk, there.offset) for there in plan.places.values()] == [(0, 0), (1, 0), (2, 0)]
    assert plan.sizes == {("compute", 0): 1024, ("compute", 1): 1024, ("compute", 2): 256}
    for alignment in (0, 24, -32):
        with pytest.raises(KvvizError, match="power of two"):
            plan_memory(graph, alignment=alignment)


def test_an_op_runs_in_place_exactly_where_ggml_lets_it() -> None:
    # given ops of which nothing but their kind can stand in the way
    for kind in set(OPS["ops"]) - {"NONE"}:
        found = planned(op("o", kind, op("a", "SQR", given("x"))))
        assert (found.places[found.nodes[-1].node].source is not None) == (kind in OPS["can_inplace"]), kind


def test_what_a_back_end_keeps_for_a_fused_op_is_not_taken_over_before_it_has_run() -> None:
    x = given("x")
    a = op("a", "MUL_MAT", x, x)
    square = op("b", "SQR", a)
    o = op("o", "MUL_MAT", square, square)
    graph = ComputeGraph("fused").expand(o)
    free, kept = plan_memory(graph), plan_memory(graph, keep={o: [a]})
    assert free.places[square].offset == free.places[a].offset
    assert kept.places[square].offset != kept.places[a].offset != kept.places[o].offset
    assert a in kept.nodes[-1].freed


@pytest.mark.parametrize(
    ("file", "first", "cells_seen", "hidden_embd"),
    [
        ("old_smollm2_cpy_fa_off_defrag", 0, 32, 0),
        ("smollm2_fa_off", 0, 0, 576),
        ("smollm2_fa_on_ubatch4", 1, 0, 576),
        ("smollm2_fa_on_q8kv_shift", 0, 0, 576),
        ("tiny_gemma3_fa_off", 0, 0, 32),
        ("tiny_mamba", 0, 0, 32),
    ],
)
def test_every_recorded_place_in_the_compute_buffer_is_that_of_the_plan(
    file: str, first: int, cells_seen: int, hidden_embd: int
) -> None:
    recorded = read_lines(DATA / f"{file}.jsonl.gz")
    config = recorded.meta["config"]
    tokens = min(config["n_ctx"], config["n_ubatch"] or 512)
    many, one = recorded.graphs[first : first + 2]
    reserved, copies = reserved_graph(many, one, tokens, config["n_ctx"], cells_seen, hidden_embd)
    plan = plan_memory(reserved)
    assert plan.nbytes == recorded.buffers["compute"]
    order = [copies[tensor] for tensor in (*many.leafs, *many.nodes)]
    # Shifts and defragmentation are other graphs.
    alike = [graph for graph in recorded.graphs if len(graph.nodes) == len(many.nodes)]
    assert len(alike) >= 3
    for graph in alike:
        places = [
            (tensor.address, plan.places[copy].offset)
            for tensor, copy in zip((*graph.leafs, *graph.nodes), order)
            if tensor.buffer.endswith("compute") and tensor.view_src is None
        ]
        assert len(places) > 50
        assert [real for real, _ in places] == [ours for _, ours in places]


@pytest.mark.parametrize("name", ["tiny_mamba.jsonl.gz", "tiny_gemma3_fa_off.jsonl.gz"])
def test_no_two_storages_of_the_compute_buffer_share_an_address_at_once(name: str) -> None:
    trace = recording(name).trace
    end = len(trace.steps)
    placed = [
        (one.address, one.address + one.capacity, one.born, end if one.freed is None else one.freed)
        for one in trace.storages
        if one.arena == "CPU compute" and one.capacity and one.address is not None
    ]
    assert len(placed) > 40
    for number, (low, high, born, freed) in enumerate(placed):
        for first, last, began, ended in placed[:number]:
            # What is freed with an op and what that op makes are both there for a moment.
            assert high <= first or last <= low or ended <= born or freed <= began
