"""Where ggml's graph allocator puts tensors, and what it refuses.

Expected offsets: ggml's own allocator, run on these graphs (x and y are INPUT, 1,024 bytes each).
"""

import json

import pytest

from kvviz.errors import KvvizError
from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.memory_plan import MemoryPlan, Refusal
from kvviz.ggml.graph.tensor import OUTPUT, Tensor, new_tensor
from kvviz.ggml.order.gallocr import Address, FreeBlocks, plan_memory
from tests.ggml.planned import given, op, planned
from tests.ggml.recordings import DATA

OPS = json.loads((DATA / "ops.json").read_text("utf-8"))


def _reasons(plan: MemoryPlan, node: Tensor) -> list[tuple[int, Refusal, tuple[str, ...]]]:
    made = plan.of(node)
    assert made is not None
    return [(refused.position, refused.reason, tuple(one.name for one in refused.who)) for refused in made.refused]


def test_a_chain_runs_in_the_memory_of_its_input() -> None:
    x, y = given("x"), given("y")
    a = op("a", "SQR", x)
    b = op("b", "ADD", a, y)
    o = op("o", "SCALE", b)
    found = planned(o)
    assert [found.offset(tensor) for tensor in (x, y, a, b, o)] == [0, 1024, 0, 0, 0]
    assert found.plan.nbytes == 2048
    assert [plan.taken for plan in found.plan.nodes] == [0, 0, 0]
    assert found.plan.owner(o) is x


def test_what_is_flagged_as_an_output_is_not_taken_over_and_not_freed() -> None:
    x, y = given("x"), given("y")
    a = op("a", "SQR", x)
    a.flags |= OUTPUT
    o = op("o", "SCALE", op("b", "ADD", a, y))
    found = planned(o)
    assert found.offset(o) == 1024
    b = found.graph.nodes[1]
    assert (0, Refusal.OUTPUT, ()) in _reasons(found.plan, b)
    assert a in [one for plan in found.plan.nodes for one in plan.withheld]


def test_a_reshape_on_the_way_forces_new_memory() -> None:
    x = given("x")
    a = op("a", "SQR", x)
    view = op("view", "RESHAPE", a, view_of=a)
    o = op("o", "SCALE", view)
    found = planned(o)
    assert found.offset(a) == 0
    assert found.offset(o) == 1024
    assert _reasons(found.plan, o) == [(0, Refusal.IS_VIEW, ())]
    assert found.plan.nodes[-1].freed == (a,)


def test_what_is_used_twice_is_taken_over_by_the_second_user() -> None:
    x, y = given("x"), given("y")
    a = op("a", "SQR", x)
    b = op("b", "ADD", a, y)
    o = op("o", "MUL", b, a)
    found = planned(o)
    # b goes to where y is; of o's sources b comes first, and is free as well.
    assert (found.offset(b), found.offset(o)) == (1024, 1024)
    assert (0, Refusal.CHILDREN_LEFT, ("o",)) in _reasons(found.plan, b)


def test_the_second_user_takes_the_first_source_that_is_free() -> None:
    x, y = given("x"), given("y")
    a = op("a", "SQR", x)
    b = op("b", "ADD", a, y)
    o = op("o", "MUL", a, b)
    found = planned(o)
    assert (found.offset(b), found.offset(o)) == (1024, 0)


def test_a_node_that_reads_a_source_twice_does_not_take_it() -> None:
    x = given("x")
    a = op("a", "SQR", x)
    found = planned(op("o", "MUL", a, a))
    o = found.graph.nodes[-1]
    assert _reasons(found.plan, o) == [(0, Refusal.READ_TWICE, ("o",)), (1, Refusal.READ_TWICE, ("o",))]
    assert found.offset(o) == 1024


def test_a_write_that_nobody_reads_keeps_its_root_to_the_end() -> None:
    x, y = given("x"), given("y")
    a = op("a", "CONT", x)
    write = op("write", "CPY", y, op("view", "VIEW", a, view_of=a), view_of=a)
    c = op("c", "MUL_MAT", x, y)
    found = planned(write, c)
    assert found.offset(a) == 2048
    assert found.offset(c) == 3072
    assert a not in [one for plan in found.plan.nodes for one in plan.freed]


def test_every_reason_is_kept_not_only_the_first() -> None:
    x = given("x")
    weight = new_tensor("f16", (128,), "w")
    weight.role = "weight"
    a = op("a", "SQR", x)
    a.flags |= OUTPUT
    view = op("view", "VIEW", a, view_of=a)
    other = op("other", "ADD", a, weight)
    found = planned(view, other, op("last", "SQR", a))
    assert _reasons(found.plan, other) == [
        (0, Refusal.OUTPUT, ()),
        (0, Refusal.CHILDREN_LEFT, ("last",)),
        (0, Refusal.VIEWS_LEFT, ("view",)),
        (1, Refusal.EXTERNAL, ()),
        (1, Refusal.TYPE_DIFFERS, ()),
        (1, Refusal.SHAPE_DIFFERS, ()),
    ]


def test_a_matrix_product_is_not_in_the_list_and_frees_its_sources_behind_itself() -> None:
    x, y = given("x"), given("y")
    a = op("a", "SQR", x)
    o = op("o", "MUL_MAT", a, y, ne=(1, 1))
    found = planned(o)
    assert _reasons(found.plan, o)[0] == (-1, Refusal.OP_NOT_LISTED, ())
    assert found.plan.nodes[-1].freed == (a, y)
    assert found.offset(o) == 2048


def test_external_tensors_are_never_placed() -> None:
    cache = new_tensor("f32", (256,), "cache")
    cache.role = "state"
    o = op("o", "SCALE", cache)
    found = planned(o)
    assert cache not in found.plan.places
    assert _reasons(found.plan, o) == [(0, Refusal.EXTERNAL, ())]


def test_the_free_list_takes_the_smallest_block_that_fits_and_joins_neighbours() -> None:
    free = FreeBlocks()
    taken = [free.take(size) for size in (100, 64, 32, 64, 256, 32)]
    assert [there.offset for there in taken] == [0, 128, 192, 224, 288, 544]
    free.give(taken[0], 100)
    free.give(taken[2], 32)
    free.give(taken[4], 256)
    assert free.take(30) == Address(0, 192)  # the block of 32, not the ones of 128 and 256
    assert free.take(100) == Address(0, 0)
    free.give(taken[3], 64)  # joins the 256 bytes behind it
    assert free.take(320) == Address(0, 224)
    assert free.max_sizes == [576]


def test_the_last_block_is_used_only_where_nothing_else_fits() -> None:
    free = FreeBlocks()
    first = free.take(64)
    free.take(32)
    free.give(first, 64)
    assert free.take(96) == Address(0, 96)
    assert free.take(64) == Address(0, 0)


def test_a_buffer_type_with_a_largest_block_has_its_memory_in_chunks() -> None:
    x, y = given("x"), given("y")
    graph = ComputeGraph("chunks").expand(op("o", "MUL_MAT", x, y, ne=(8, 8)))
    plan = plan_memory(graph, max_chunk=1024)
    assert [(there.chunk, there.offset) for there in plan.places.values()] == [(0, 0), (1, 0), (2, 0)]
    assert plan.sizes == {("compute", 0): 1024, ("compute", 1): 1024, ("compute", 2): 256}


@pytest.mark.parametrize("alignment", [0, 24, -32])
def test_an_alignment_that_is_no_power_of_two_is_refused(alignment: int) -> None:
    with pytest.raises(KvvizError, match="power of two"):
        plan_memory(ComputeGraph("none"), alignment=alignment)


@pytest.mark.parametrize("kind", [name for name in OPS["ops"] if name != "NONE"])
def test_an_op_runs_in_place_exactly_where_ggml_lets_it(kind: str) -> None:
    # given an op of which nothing but its kind can stand in the way
    x = given("x")
    found = planned(op("o", kind, op("a", "SQR", x)))
    # then
    assert (found.plan.nodes[-1].taken == 0) == (kind in OPS["can_inplace"])


def test_a_clamp_in_a_chain_lies_where_ggml_puts_it() -> None:
    x = given("x")
    a = op("a", "CLAMP", x)
    b = op("b", "SQR", a)
    c = op("c", "CLAMP", a)
    o = op("o", "ADD", b, c)
    # then: offsets of ggml 0.25.3
    found = planned(o)
    assert [found.offset(tensor) for tensor in (x, a, b, c, o)] == [0, 0, 1024, 0, 1024]


def test_what_a_back_end_keeps_for_a_fused_op_is_not_taken_over_before_it_has_run() -> None:
    x = given("x")
    a = op("a", "MUL_MAT", x, x)
    b = op("b", "SQR", a)
    o = op("o", "MUL_MAT", b, b)
    graph = ComputeGraph("fused").expand(o)
    free, kept = plan_memory(graph), plan_memory(graph, keep={o: [a]})
    assert free.places[b].offset == free.places[a].offset
    assert kept.places[b].offset != kept.places[a].offset != kept.places[o].offset
    assert a in kept.nodes[-1].freed
