"""Where ggml's graph allocator puts tensors, and what it refuses.

Expected offsets: ggml's own allocator, run on these graphs (x and y are INPUT, 1,024 bytes each).
"""

import json
from typing import Any

import pytest

import kvviz
from kvviz.errors import KvvizError
from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.memory_plan import EXTERNAL, VIEW, MemoryPlan
from kvviz.ggml.graph.tensor import INPUT, OUTPUT, Tensor, new_tensor, packed
from kvviz.ggml.order.gallocr import plan_memory
from kvviz.ggml.recording.recorded_graphs import Recording
from kvviz.trace import blockers
from tests.ggml.recordings import DATA, lines, recording
from tests.ggml.seed_graphs import leaf, op

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
        "a! = SQR x; b = ADD a y; o = SCALE b", "o", {"o": 1024}, {"b": {0: blockers.REQUESTED_OUTPUT}}, ""
    ),
    "a reshape on the way forces new memory": (
        "a = SQR x; v = RESHAPE a @a; o = SCALE v", "o", {"a": 0, "o": 1024}, {"o": {0: VIEW}}, "a"
    ),
    # b goes to where y is; of o's sources b comes first, and is free as well.
    "the second user of a source takes it over": (
        "a = SQR x; b = ADD a y; o = MUL b a", "o", {"b": 1024, "o": 1024},
        {"b": {0: blockers.NOT_LAST_USE}}, "a",
    ),
    "it takes the first that is free": ("a = SQR x; b = ADD a y; o = MUL a b", "o", {"b": 1024, "o": 0}, {}, "b"),
    "a node that reads a source twice does not take it": (
        "a = SQR x; o = MUL a a", "o", {"o": 1024}, {"o": dict.fromkeys((0, 1), blockers.SAME_OP_TWICE)}, "a"
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
        0: blockers.REQUESTED_OUTPUT | blockers.NOT_LAST_USE | blockers.ALIASED,
        1: blockers.CONSTANT | blockers.DTYPE_DIFFERS | blockers.SHAPE_DIFFERS,
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


KQ_MASK_PAD = 64


def reserved_graph(
    many: ComputeGraph, one: ComputeGraph, tokens: int, cells: int, cells_seen: int = 0, hidden_embd: int = 0
) -> tuple[ComputeGraph, dict[Tensor, Tensor]]:
    """The largest graph that llama.cpp reserves memory for, from two recorded ones: ``many`` tokens, and ``one``.

    ``llama_context`` reserves for ``tokens = min(n_ctx, n_ubatch)``, all of them outputs, over the full cache; smaller
    graphs with the same nodes then keep those places (``ggml_gallocr_needs_realloc``). Graphs are read here as tensors,
    with nothing of the recording's own but buffers and places in them.

    ``cells_seen``: cells that the recorded graphs attend to, where that is not all of the cache.
    ``hidden_embd``: width of the input of embeddings that is in the graph without a node that computes from it.
    """
    copies: dict[Tensor, Tensor] = {}
    computed = set(many.nodes)
    outputs: set[Tensor] = set()
    pairs = [*zip(many.leafs, one.leafs), *zip(many.nodes, one.nodes)]
    had = next(b.ne[0] and a.ne[0] // b.ne[0] for a, b in pairs if a.flags & INPUT and a.type == "i32")
    for a, b in pairs:
        # What grows with the tokens does so by a fixed number for each.
        ne: Any = tuple(m + (n - m) // (had - 1) * (tokens - 1) for n, m in zip(a.ne, b.ne))
        if a.op == "GET_ROWS" and a.src[1] in many.leafs and a.src[1].ne[0] == 1 < had:
            outputs.add(a)
        if a.role == "input" and a.type == "i32" and a.ne[0] == 1 < had and "s_copy" not in a.name:
            ne = (tokens, 1, 1, 1)
        if outputs.intersection(source for source in a.src if source is not None):
            outputs.add(a)
        if a in outputs:
            ne = (ne[0], tokens, *ne[2:])
        if (
            a.role == "input"
            and a.type in ("f32", "f16")
            and a.ne[0] in (cells, cells_seen)
            and a.ne[1] == KQ_MASK_PAD != had
        ):
            ne = (cells, tokens, 1, 1)
        if cells_seen and a.view_src is None and a.op != "NONE" and ne[0] == cells_seen:
            ne = (cells, *ne[1:])
        if a.op == "CPY" and a.src[1] is a and a.src[0] is not None:
            ne = copies[a.src[0]].ne
        copies[a] = Tensor(
            a.name, a.type, ne, packed(a.type, ne) if a.view_src is None else a.nb, a.op, flags=a.flags, role=a.role
        )
    graph = ComputeGraph("reserved")
    for a, copy in copies.items():
        copy.src = [None if source is None else copies[source] for source in a.src]
        copy.view_src = None if a.view_src is None else copies.get(a.view_src)
        (graph.nodes if a in computed else graph.leafs).append(copy)
    if hidden_embd:
        at = next(i for i, leaf in enumerate(graph.leafs) if leaf.flags & INPUT)
        graph.leafs.insert(at + 1, new_tensor("f32", (hidden_embd, tokens), "inp_embd"))
    return graph, copies


def with_leafs(file: str) -> Recording:
    """A recording, the leafs of whose graphs are in the order in which they were met."""
    recording = kvviz.ggml.load(DATA / file)
    orders: dict[tuple[int, int], list[int]] = {}  # of graphs that are alike
    for graph in recording.graphs:
        met = dict.fromkeys(source for node in graph.nodes for source in node.src if source is not None)
        nodes = set(graph.nodes)
        leafs = [tensor for tensor in met if tensor not in nodes]
        alike = len(graph.nodes), len(leafs)
        if alike not in orders:
            orders[alike] = [leafs.index(leaf) for leaf in leafs_as_visited(graph.nodes)]
        graph.leafs = [leafs[number] for number in orders[alike]]
    return recording


def leafs_as_visited(nodes: list[Tensor]) -> list[Tensor]:
    """The leafs in the order in which ``ggml_build_forward_expand`` met them, which no recording says.

    It was called for some of the nodes: for the embeddings by themselves, and then the list is cut into the longest
    parts that a call gives.
    """
    built = ComputeGraph().expand(nodes[0], compute=False)
    at = 1
    while at < len(nodes):
        stop = min(len(nodes), at + 120)
        for end in range(stop, at, -1):
            if _emitted(nodes[end - 1], set(nodes[:at])) == nodes[at:end]:
                built.expand(nodes[end - 1], compute=False)
                at = end
                break
        else:
            raise AssertionError(f"no call gives {nodes[at].name}")
    assert built.nodes == nodes
    return built.leafs


def _emitted(node: Tensor, there: set[Tensor]) -> list[Tensor]:
    """The nodes that a call for one of them would append."""
    graph = ComputeGraph()
    graph._visited = there
    return graph.expand(node, compute=False).nodes


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
    recorded = with_leafs(f"{file}.jsonl.gz")
    config = recorded.meta["config"]
    tokens = min(config["n_ctx"], config["n_ubatch"] or 512)
    many, one = recorded.graphs[first : first + 2]
    reserved, copies = reserved_graph(many, one, tokens, config["n_ctx"], cells_seen, hidden_embd)
    plan = plan_memory(reserved)
    buffers = {row["usage"]: row["size"] for row in lines(f"{file}.jsonl.gz") if row["k"] == "buffer"}
    assert plan.nbytes == buffers["compute"]
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
